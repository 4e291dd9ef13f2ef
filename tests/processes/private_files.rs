//! Files that hold secrets: nobody but the user of the CLI can read them, and they go with the CLI.

#![cfg(unix)]
#![allow(clippy::disallowed_methods, reason = "the test runs itself once more, under another umask")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::common::*;
use crate::root::own_users;
use crate::wait::found;
use greenroom::options::{Delivery, EnvPolicy, ExternalServer, OsUser};
use greenroom::sessions::TranscriptEntry;
use greenroom::store::{MemoryStore, SessionKey, SessionStore};
use greenroom::{Session, SessionBuilder};
use greenroom_testkit::ScriptedCli;
use serde_json::json;

const ID: &str = "9f0bd1c4-3a5e-4c0e-8f6f-0d4a8f6a7c44";
const SECRET: &str = "hunter2";

/// Somebody who is not the user of the tests.
const NOBODY: OsUser = OsUser::new(65534, 65534);

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The folder and everything below it.
fn all(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    if path.is_dir() {
        found.extend(fs::read_dir(path).unwrap().flat_map(|entry| all(&entry.unwrap().path())));
    }
    found
}

fn is_private(path: &Path, uid: u32) {
    for path in all(path) {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), expected, "{}", path.display());
        assert_eq!(fs::metadata(&path).unwrap().uid(), uid, "{}", path.display());
    }
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Says why a test was not run.
fn is_root() -> bool {
    own_users(0).is_some()
}

fn with_secrets() -> SessionBuilder {
    let server = ExternalServer::http("http://127.0.0.1:9/mcp").with_header("Authorization", SECRET);
    Session::builder()
        .external_mcp_server("web", server)
        .settings(json!({ "env": { "TOKEN": SECRET } }))
        .configure(|options| {
            options.delivery = Delivery::Arguments;
            options.lock_dir = crate::locks();
        })
}

async fn stored() -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::new());
    let key = SessionKey::new("p", ID);
    let entry = json!({ "type": "user", "uuid": ID, "sessionId": ID, "message": { "role": "user", "content": "hi" } });
    let entry: TranscriptEntry = serde_json::from_value(entry).unwrap();
    store.append(&key, &[entry]).await.unwrap();
    store
}

async fn resuming() -> SessionBuilder {
    let builder = Session::builder().session_store(stored().await).resume(ID);
    builder.configure(|options| {
        options.store.project_key = Some("p".into());
        options.lock_dir = crate::locks();
    })
}

// Guards: the CLI takes secrets only by arguments
#[tokio::test]
async fn secrets_are_in_private_files_that_are_removed_with_the_cli() {
    let (session, end, _listener) = start_by_hand(with_secrets()).await;
    let args = end.launch().args.clone();
    assert!(!args.iter().any(|arg| arg.contains(SECRET)), "{args:?}");
    let files: Vec<PathBuf> = ["--mcp-config=", "--settings="]
        .iter()
        .map(|flag| args.iter().find_map(|arg| arg.strip_prefix(flag)).unwrap().into())
        .collect();
    for file in &files {
        assert!(fs::read_to_string(file).unwrap().contains(SECRET));
        is_private(file.parent().unwrap(), me());
    }
    stop(session, end).await;
    assert!(!files[0].parent().unwrap().exists());
}

// Guards: the CLI takes secrets only by arguments
#[tokio::test]
async fn the_files_go_when_the_cli_dies_and_the_next_one_gets_its_own() {
    let (session, end, mut listener) = start_by_hand(with_secrets()).await;
    let file = |end: &greenroom_testkit::CliEnd| -> PathBuf {
        end.launch().args.iter().find_map(|arg| arg.strip_prefix("--settings=")).unwrap().into()
    };
    let first = file(&end);
    end.exit(greenroom::transport::Exit::Signal(9));
    let mut end = within(SOON, listener.accept()).await;
    end.handshake().await;
    let second = file(&end);
    assert!(!first.exists() && second.exists());
    drop(session);
    within(SOON, end.run_out()).await;
    found("the file is removed", || (!second.exists()).then_some(())).await;
}

/// Writes a shell script that everybody can run.
///
/// A child process writes it: a file that this process has open for writing may be inherited by a child of another
/// test, and the system refuses to run a file that is open for writing.
fn executable(path: &Path, script: &str) {
    let write = "printf '#!/bin/sh\n%s' \"$1\" >\"$0\" && chmod 755 \"$0\"";
    let status = Command::new("/bin/sh").args(["-c", write]).arg(path).arg(script).status();
    assert!(status.unwrap().success());
}

#[tokio::test]
async fn a_start_that_fails_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("claude");
    executable(
        &script,
        "for arg; do case $arg in --settings=*) echo \"${arg#*=}\" >&2;; esac; done\nexit 3\n",
    );
    let error = within(SOON, with_secrets().cli_path(&script).start()).await.unwrap_err();
    let named = PathBuf::from(error.stderr().unwrap().trim());
    assert!(named.is_absolute() && !named.exists(), "{error:?}");
}

/// The folder that a session from a store is started with.
async fn resumed_folder(builder: SessionBuilder) -> (Session, greenroom_testkit::CliEnd, PathBuf) {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let (session, end) = tokio::join!(within(SOON, builder.transport(transport).start()), async {
        let mut end = listener.accept().await;
        end.handshake().await;
        end
    });
    let folder = end.launch().command.env["CLAUDE_CONFIG_DIR"].clone().into();
    (session.unwrap(), end, folder)
}

/// Set in the process that has the umask.
const OPEN: &str = "GREENROOM_TEST_UMASK";

#[tokio::test]
async fn the_folder_of_a_session_from_a_store_is_private_whatever_the_umask() {
    if std::env::var_os(OPEN).is_none() {
        for umask in ["000", "077"] {
            let test = "private_files::the_folder_of_a_session_from_a_store_is_private_whatever_the_umask";
            let run = format!("umask {umask}; exec \"$0\" --exact {test} --nocapture");
            let this = std::env::current_exe().unwrap();
            let output = Command::new("sh").args(["-c", &run]).arg(this).env(OPEN, umask).output().unwrap();
            assert!(output.status.success(), "umask {umask}: {}", String::from_utf8_lossy(&output.stderr));
        }
        return;
    }
    let (session, end, folder) = resumed_folder(resuming().await).await;
    assert!(all(&folder).iter().any(|path| path.ends_with(format!("{ID}.jsonl"))));
    is_private(&folder, me());
    stop(session, end).await;
    assert!(!folder.exists());
}

#[tokio::test]
async fn the_folder_of_a_session_from_a_store_belongs_to_the_user_of_the_cli() {
    if !is_root() {
        return;
    }
    let builder = resuming().await.configure(|options| options.user = Some(NOBODY));
    let (session, end, folder) = resumed_folder(builder).await;
    is_private(&folder, NOBODY.uid);
    stop(session, end).await;

    // A process of that user reads it.
    let bin = tempfile::tempdir().unwrap();
    fs::set_permissions(bin.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let script = bin.path().join("claude");
    executable(
        &script,
        "id -u >&2; cat \"$CLAUDE_CONFIG_DIR\"/projects/*/*.jsonl >&2\n: > \"$CLAUDE_CONFIG_DIR/made\" && echo made >&2; exit 3\n",
    );
    let builder = resuming().await.cli_path(&script).env("PATH", "/usr/bin:/bin").configure(|options| {
        options.user = Some(NOBODY);
        options.env_policy = EnvPolicy::Clean;
        options.cwd = Some("/".into());
    });
    let error = within(SOON, builder.start()).await.unwrap_err();
    let stderr = error.stderr().unwrap();
    let expected = ["65534", "\"content\":\"hi\"", "made"];
    assert!(expected.iter().all(|part| stderr.contains(part)), "{error:?}");
}

#[tokio::test]
async fn a_link_that_the_cli_has_made_is_not_followed_to_a_file_of_another_user() {
    if !is_root() {
        return;
    }
    let config = tempfile::tempdir().unwrap();
    let secret = tempfile::NamedTempFile::new().unwrap();
    fs::write(secret.path(), json!({ "oauthAccount": SECRET }).to_string()).unwrap();
    fs::write(config.path().join("settings.json"), "{}").unwrap();
    std::os::unix::fs::symlink(secret.path(), config.path().join(".claude.json")).unwrap();
    let own = [config.path().to_owned(), config.path().join("settings.json")];
    own.iter().for_each(|path| std::os::unix::fs::chown(path, Some(NOBODY.uid), Some(NOBODY.gid)).unwrap());
    let of_user = resuming().await.env("CLAUDE_CONFIG_DIR", config.path().to_str().unwrap());
    let (session, end, folder) =
        resumed_folder(of_user.configure(|options| options.user = Some(NOBODY))).await;
    assert!(folder.join("settings.json").exists() && !folder.join(".claude.json").exists());
    stop(session, end).await;
}

// Guards: the CLI takes secrets only by arguments
#[tokio::test]
async fn files_of_arguments_belong_to_the_user_of_the_cli() {
    if !is_root() {
        return;
    }
    let builder = with_secrets().configure(|options| options.user = Some(NOBODY));
    let (session, end, _listener) = start_by_hand(builder).await;
    let file = end.launch().args.iter().find_map(|arg| arg.strip_prefix("--settings=")).unwrap();
    is_private(Path::new(file).parent().unwrap(), NOBODY.uid);
    stop(session, end).await;
}
