//! What a child starts with, and what keeps it from starting.

use super::*;

async fn printed(launch: Launch) -> Vec<String> {
    let mut connection = open(launch).await;
    to_the_end(&mut connection.reader).await.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn clean_is_what_was_given_and_no_more() {
    let env = [("A".to_owned(), "b".to_owned())].into();
    let launch = Launch { inherit_env: false, env, ..program("/usr/bin/env", []) };
    assert_eq!(printed(launch).await, ["A=b"]);
}

#[tokio::test]
async fn inherited_is_added_to_and_taken_from() {
    let path = format!("PATH={}", std::env::var("PATH").unwrap());
    let env: std::collections::BTreeMap<_, _> = [("A".to_owned(), "b".to_owned())].into();
    let inherited = printed(Launch { env: env.clone(), ..program("/usr/bin/env", []) }).await;
    assert!(inherited.contains(&"A=b".to_owned()) && inherited.contains(&path), "{inherited:?}");

    let unset_env = vec!["PATH".to_owned()];
    let taken = printed(Launch { env, unset_env, ..program("/usr/bin/env", []) }).await;
    assert!(taken.contains(&"A=b".to_owned()), "{taken:?}");
    assert!(!taken.iter().any(|line| line.starts_with("PATH=")), "{taken:?}");
}

#[tokio::test]
async fn the_working_directory_is_the_one_given() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().canonicalize().unwrap();
    let launch = Launch { cwd: Some(directory.clone()), ..program("/bin/sh", ["-c", "pwd -P"]) };
    assert_eq!(printed(launch).await, [directory.to_str().unwrap()]);
}

#[tokio::test]
async fn the_program_is_looked_for_on_the_path_of_the_child() {
    let directory = tempfile::tempdir().unwrap();
    executable(&directory.path().join("claude"), "#!/bin/sh\\necho \"$@\"\\n");
    let env = [("PATH".to_owned(), directory.path().to_str().unwrap().to_owned())].into();
    let launch = Launch { program: None, env, ..program("", ["--verbose", "--x=a b"]) };
    assert_eq!(printed(launch).await, ["--verbose --x=a b"]);
}

#[track_caller]
fn assert_refused(error: &Error, kind: ErrorKind, words: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
    assert!(error.help().is_some(), "{error}");
}

#[tokio::test]
async fn a_missing_program() {
    let error = refused(program("/no/such/claude", [])).await;
    assert_refused(&error, ErrorKind::CliNotFound, "'/no/such/claude' (option `cli_path`) does not exist");
}

#[tokio::test]
async fn a_missing_working_directory() {
    let error = refused(Launch { cwd: Some("/no/such/place".into()), ..sh("exit") }).await;
    assert_refused(&error, ErrorKind::Spawn, "working directory '/no/such/place' does not exist");
    let error = refused(Launch { cwd: Some("/bin/sh".into()), ..sh("exit") }).await;
    assert_refused(&error, ErrorKind::Spawn, "working directory '/bin/sh' is not a directory");
}

#[tokio::test]
async fn a_program_that_this_system_cannot_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("claude");

    std::fs::write(&path, "text").unwrap();
    assert_refused(&refused(program(&path, [])).await, ErrorKind::CliNotFound, "is not executable");
    std::fs::remove_file(&path).unwrap();

    executable(&path, "#!/no/such/interpreter\\n");
    assert_refused(&refused(program(&path, [])).await, ErrorKind::Spawn, "interpreter or loader");
}

#[tokio::test]
async fn arguments_that_are_too_long() {
    // Linux takes 128 KiB for one argument; other systems, this much for all.
    let huge = "x".repeat(8 << 20);
    let error = refused(program("/bin/sh", ["-c", "exit", &huge])).await;
    assert_refused(&error, ErrorKind::Spawn, "longer than the system takes");
}

/// Writes an executable. A child does the writing: a descriptor that is open for writing in this process
/// might be inherited by a child of another test, and the file could then not be executed ("text file busy").
fn executable(path: &Path, content: &str) {
    let script = format!("printf '{content}' > \"$0\" && chmod +x \"$0\"");
    assert!(Command::new("/bin/sh").args(["-c", &script]).arg(path).status().unwrap().success());
}

#[tokio::test]
async fn the_user_is_the_one_given_or_there_is_no_child() {
    let user = Some(crate::options::OsUser::new(65_534, 65_533));
    let launch = Launch { user, ..sh("id -u; id -g; id -G") };
    if rustix::process::getuid().is_root() {
        assert_eq!(printed(launch).await, ["65534", "65533", "65533"], "no other group either");
    } else {
        assert_refused(&refused(launch).await, ErrorKind::Spawn, "as the user 65534");
    }
}

#[tokio::test]
async fn a_script_runs_under_its_runtime_with_the_arguments_of_that_first() {
    let directory = tempfile::tempdir().unwrap();
    let (runtime, script) = (directory.path().join("bun"), directory.path().join("cli.js"));
    executable(&runtime, "#!/bin/sh\necho \"$@\"\n");
    std::fs::write(&script, "").unwrap();
    let script = script.to_str().unwrap();
    let launch = Launch {
        runtime: Some(runtime),
        runtime_args: vec!["--smol".into()],
        ..program(script, ["--verbose"])
    };
    assert_eq!(printed(launch).await, [format!("--smol {script} --verbose")]);
}

#[tokio::test]
async fn a_start_that_is_given_up_kills_what_it_has_started() {
    /// Says that the future wants to be polled.
    struct Wakes(tokio::sync::Notify);
    impl std::task::Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.notify_one();
        }
    }
    let fifo = Fifo::new();
    let mut opening = ChildProcess::new().open(sh(&fifo.held_by("sleep 1000 & wait")));
    let wakes = Arc::new(Wakes(tokio::sync::Notify::new()));
    let waker = Arc::clone(&wakes).into();
    let mut cx = std::task::Context::from_waker(&waker);
    // The look, and then the start, of which it is never told.
    assert!(opening.as_mut().poll(&mut cx).is_pending());
    in_time(wakes.0.notified()).await;
    assert!(opening.as_mut().poll(&mut cx).is_pending());
    let held = fifo.opened().await;
    drop(opening);
    held.closed().await;
}
