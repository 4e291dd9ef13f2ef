//! Environment, directory and user of a child, and the errors of a start that fails.

use super::*;
use crate::start::{spawn, spawner};

pub(super) async fn printed(launch: Command) -> Vec<String> {
    let mut connection = open(launch).await;
    to_the_end(&mut connection.stdout).await.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_clean_environment_has_only_the_given_variables() {
    let env = [("A".to_owned(), "b".to_owned())].into();
    let launch = Command { inherit_env: false, env, ..program("/usr/bin/env", []) };
    let without_mark = Command { containment: Containment::Group, ..launch.clone() };
    assert_eq!(printed(without_mark).await, ["A=b"]);
    let with_mark = printed(launch).await;
    assert_eq!(with_mark.len(), 2, "{with_mark:?}");
    assert!(with_mark.iter().any(|line| line.starts_with("GREENROOM_INCARNATION=")), "{with_mark:?}");
}

#[tokio::test]
async fn variables_are_added_to_and_removed_from_the_inherited_ones() {
    let path = format!("PATH={}", std::env::var("PATH").unwrap());
    let env: std::collections::BTreeMap<_, _> = [("A".to_owned(), "b".to_owned())].into();
    let inherited = printed(Command { env: env.clone(), ..program("/usr/bin/env", []) }).await;
    assert!(inherited.contains(&"A=b".to_owned()) && inherited.contains(&path), "{inherited:?}");

    let unset_env = vec!["PATH".to_owned()];
    let taken = printed(Command { env, unset_env, ..program("/usr/bin/env", []) }).await;
    assert!(taken.contains(&"A=b".to_owned()), "{taken:?}");
    assert!(!taken.iter().any(|line| line.starts_with("PATH=")), "{taken:?}");
}

#[tokio::test]
async fn the_working_directory_is_the_one_given() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().canonicalize().unwrap();
    let launch = Command { cwd: Some(directory.clone()), ..program("/bin/sh", ["-c", "pwd -P"]) };
    assert_eq!(printed(launch).await, [directory.to_str().unwrap()]);
}

#[track_caller]
fn assert_refused(error: &Error, kind: ErrorKind, words: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
    assert!(error.help().is_some(), "{error}");
}

#[tokio::test]
async fn a_child_without_an_acknowledged_deadline_is_not_started() {
    let watchdog = Some(crate::guardian::Watchdog::without_deadline());
    let launch = Command { watchdog, ..program("/bin/sh", ["-c", "exit 0"]) };
    let error = start(launch).await.err().unwrap();
    assert_refused(&error, ErrorKind::Spawn, "the deadline of its watchdog has passed, or was never set");
}

#[tokio::test]
async fn a_child_with_a_watchdog_that_a_group_alone_contains_is_not_started() {
    let until = crate::guardian::BootTime::now() + Duration::from_secs(600);
    let watchdog = Some(crate::guardian::Watchdog::acknowledged(until));
    let launch = Command { watchdog, containment: Containment::Group, ..program("/bin/sleep", ["1000"]) };
    let error = start(launch).await.err().unwrap();
    assert_refused(&error, ErrorKind::Spawn, "what it starts could not be found at the deadline");
}

#[tokio::test]
async fn a_program_that_the_system_cannot_run_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("claude");

    std::fs::write(&path, "text").unwrap();
    assert_refused(
        &refused(program(&path, [])).await,
        ErrorKind::NotExecutable,
        "does not let this process execute",
    );
    std::fs::remove_file(&path).unwrap();

    executable(&path, "#!/no/such/interpreter\n");
    assert_refused(&refused(program(&path, [])).await, ErrorKind::NotExecutable, "interpreter or loader");
}

#[tokio::test]
async fn arguments_that_are_too_long_are_refused() {
    // More than 128 KiB for one argument (Linux), and than the limit for all arguments (other systems).
    let huge = "x".repeat(8 << 20);
    let error = refused(program("/bin/sh", ["-c", "exit", &huge])).await;
    assert_refused(&error, ErrorKind::Spawn, "longer than the system takes");
}

/// Writes an executable, in a child: a child of another test could inherit a descriptor that is open for writing here,
/// and the file could not be executed then ("text file busy").
fn executable(path: &Path, content: impl AsRef<[u8]>) {
    use std::io::Write;
    let mut command = StdCommand::new("/bin/sh");
    command.args(["-c", "cat >\"$0\" && chmod +x \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(content.as_ref()).unwrap();
    assert!(child.wait().unwrap().success());
}

#[tokio::test]
async fn a_file_that_the_system_refuses_is_run_by_no_shell() {
    let mut program = [0; 4096];
    File::open(std::env::current_exe().unwrap()).unwrap().read_exact(&mut program).unwrap();
    let mut foreign = program;
    foreign[18..20].copy_from_slice(&[0xff, 0xff]);
    // Read as a script, each of them would write a file into the working directory.
    let script = b"\necho >written\n";
    let files = [
        (b"echo >written\n".to_vec(), "its first line names no interpreter"),
        ([&program[..4], script].concat(), "damaged or incomplete"),
        (program[..60].to_vec(), "damaged or incomplete"),
        ([&foreign[..], script].concat(), "a build for another processor"),
        ([&b"MZ\0"[..], script].concat(), "its format is unknown here"),
        (Vec::new(), "the file is empty"),
    ];
    for (content, words) in files {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("claude");
        executable(&path, content);
        let cwd = Some(folder.path().to_owned());
        let launch = Command { cwd, ..super::program(&path, []) };
        match in_time(start(launch)).await {
            Ok(mut connection) => panic!("{words}: it was run, and {}", wait(&mut connection).await),
            Err(error) => assert_refused(&error, ErrorKind::NotExecutable, words),
        }
        let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(files.len(), 1, "{words}: {files:?}");
    }
}

#[tokio::test]
async fn the_child_runs_as_the_given_user_or_not_at_all() {
    let user = Some(crate::OsUser::new(65_534, 65_533));
    let launch = Command { user, ..sh("id -u; id -g; id -G") };
    if rustix::process::getuid().is_root() {
        assert_eq!(printed(launch).await, ["65534", "65533", "65533"], "no other group either");
    } else {
        assert_refused(&refused(launch).await, ErrorKind::Spawn, "as the user 65534");
    }
}

#[tokio::test]
async fn dropping_a_start_kills_the_child_that_it_has_started() {
    // The only thread is busy until the start waits for it, so the start cannot finish before it is dropped.
    let spawner: &'static spawner::Spawner = Box::leak(Box::new(spawner::Spawner::new()));
    let (begin, begun) = tokio::sync::oneshot::channel();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let mut busy = Box::pin(spawner.run(move || {
        begin.send(()).unwrap();
        gone.recv().ok();
    }));
    assert!(futures_util::poll!(&mut busy).is_pending());
    in_time(begun).await.unwrap();

    let fifo = Fifo::new();
    let sleeps = sh(&fifo.held_by("sleep 1000 & wait"));
    let mut starting = Box::pin(spawn::start_on(spawner, move || Ok::<_, Error>(sleeps)));
    let waits = async {
        while spawner.waiting() == 0 {
            assert!(futures_util::poll!(&mut starting).is_pending());
            tokio::task::yield_now().await;
        }
    };
    in_time(waits).await;
    // Not polled again, so the future never learns that the process was started.
    go.send(()).unwrap();
    let held = fifo.opened().await;
    drop(starting);
    held.closed().await;
    in_time(busy).await.unwrap();
}
