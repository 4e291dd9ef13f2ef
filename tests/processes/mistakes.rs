//! Mistakes with the executable of the CLI, each with the whole text of its error. `tests/offline/options/mistakes.rs` has the
//! mistakes that need no process; the text for a CLI that is nowhere is in `src/transport/locate.rs`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use greenroom::{ErrorKind, Session, SessionBuilder};

/// The text of a failed start.
async fn failed(builder: SessionBuilder, kind: ErrorKind) -> String {
    let error = builder.start().await.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    error.to_string()
}

fn builder(cli: impl AsRef<Path>) -> SessionBuilder {
    Session::builder().cli_path(cli.as_ref()).configure(|options| options.lock_dir = crate::locks())
}

#[tokio::test]
async fn a_name_that_is_not_on_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let text = failed(builder("claude").env("PATH", path), ErrorKind::CliNotFound).await;
    assert_eq!(
        text.replace(path, "FOLDER"),
        "no 'claude' (option `cli_path`) on PATH; looked at: FOLDER/claude; give `cli_path` the whole \
         path of the executable, or leave it out"
    );
}

#[tokio::test]
async fn a_wrong_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let text = failed(builder(folder.path().join("claude")), ErrorKind::CliNotFound).await;
    assert_eq!(
        text.replace(path, "FOLDER"),
        "'FOLDER/claude' (option `cli_path`) does not exist; correct `cli_path`, or leave it out to \
         have PATH searched"
    );
    let text = failed(builder(folder.path()), ErrorKind::CliNotFound).await;
    assert_eq!(
        text.replace(path, "FOLDER"),
        "'FOLDER' (option `cli_path`) is not a file; correct `cli_path`, or leave it out to have PATH \
         searched"
    );
}

#[tokio::test]
async fn a_file_that_is_not_executable() {
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (folder.path().to_str().unwrap(), folder.path().join("claude"));
    std::fs::write(&file, "#!/bin/sh\n").unwrap();
    let text = failed(builder(&file), ErrorKind::CliNotFound).await;
    assert_eq!(
        text.replace(path, "FOLDER"),
        "'FOLDER/claude' (option `cli_path`) is not executable; make the file executable with `chmod \
         +x`, or correct `cli_path`, or leave it out to have PATH searched"
    );
}

#[tokio::test]
async fn a_program_that_is_not_the_cli() {
    let text = failed(builder("/bin/false"), ErrorKind::CliExited).await;
    assert_eq!(
        text,
        "the CLI exited with code 1 before it answered `initialize`; it was started as `/bin/false \
         --output-format --verbose --input-format` (without the values of flags); check that this is \
         the claude CLI: with `--version` it prints `... (Claude Code)`; the option `cli_path` names \
         another"
    );
}

#[tokio::test]
async fn no_value_of_a_flag_is_in_the_error() {
    let secret = builder("/bin/false").configure(|options| {
        options.extra_args.insert("token".into(), Some("hunter2".into()));
        options.system_prompt = greenroom::options::SystemPrompt::Text("hunter2".into());
    });
    let text = failed(secret, ErrorKind::CliExited).await;
    assert!(text.contains("--token") && !text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn a_program_that_says_why_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (folder.path().to_str().unwrap(), folder.path().join("claude"));
    std::fs::write(&file, "#!/bin/sh\necho 'the licence has run out' >&2\nexit 3\n").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    let text = failed(builder(&file), ErrorKind::CliExited).await;
    assert_eq!(
        text.replace(path, "FOLDER"),
        "the CLI exited with code 3 before it answered `initialize`; it was started as `FOLDER/claude \
         --output-format --verbose --input-format` (without the values of flags); run the CLI by hand \
         with the same options to see what it needs\n\
         the CLI's stderr ended with:\n\
         the licence has run out"
    );
}
