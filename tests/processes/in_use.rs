//! No two live sessions of two processes of one user have one conversation.

#![cfg(unix)]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::host::{Host, test_alone};
use crate::wait::{SOON, within};
use greenroom::options::EnvPolicy;
use greenroom::{ErrorKind, Session, SessionBuilder};

const ID: &str = "3f0c5d3e-8a57-4b0c-9a41-5b8f1d0c7e01";

/// Where the other process has its configuration, and so its locks.
const FOLDER: &str = "GREENROOM_TEST_FOLDER";

const READY: &str = "the conversation is claimed";

fn builder(folder: &Path) -> SessionBuilder {
    Session::builder()
        .cli_path(env!("CARGO_BIN_EXE_greenroom-fake-cli"))
        .env("HOME", folder.to_str().unwrap())
        .configure(|options| {
            options.env_policy = EnvPolicy::Clean;
            options.timeouts.reap = SOON;
        })
}

fn resuming(folder: &Path, id: &str) -> SessionBuilder {
    builder(folder).configure(|options| options.resume = Some(id.to_owned()))
}

fn lock_folder(folder: &Path) -> PathBuf {
    folder.join(format!(".claude/greenroom-locks-{}", rustix::process::geteuid().as_raw()))
}

fn locks(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(lock_folder(folder)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Not a test by itself, but the other process.
#[tokio::test]
async fn holder() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let _session = resuming(Path::new(&folder), ID).start().await.unwrap();
        println!("{READY}");
        std::future::pending().await
    }
}

fn other_process(folder: &Path) -> Host {
    // Another folder for temporary files than this process has.
    let mut command = test_alone("in_use::holder");
    command.env(FOLDER, folder).env("TMPDIR", folder).stdout(Stdio::piped());
    let mut child = Host::start(&mut command);
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    // The harness may write on the same line first.
    assert!(lines.any(|line| line.unwrap().ends_with(READY)), "the other process has ended");
    child
}

// Guards: another live session has the conversation
#[tokio::test]
async fn a_conversation_of_another_process_is_refused_until_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = other_process(folder.path());
    let error = within(SOON, resuming(folder.path(), ID).start()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionInUse, "{error}");
    let holder = format!("process {}", other.0.id());
    assert!(error.to_string().contains(ID) && error.to_string().contains(&holder), "{error}");
    other.0.kill().unwrap();
    other.0.wait().unwrap();
    let session = within(SOON, resuming(folder.path(), ID).start()).await.unwrap();
    within(SOON, session.stop()).await.unwrap();
    assert_eq!(locks(folder.path()), [""; 0]);
}

#[tokio::test]
async fn the_lock_of_a_killed_process_is_removed_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = other_process(folder.path());
    other.0.kill().unwrap();
    other.0.wait().unwrap();
    let [left] = &locks(folder.path())[..] else { panic!("the killed process left no lock") };
    assert_eq!(*left, format!("{ID}.lock"));
    let session = within(SOON, builder(folder.path()).start()).await.unwrap();
    assert_eq!(locks(folder.path()), [""; 0]);
    within(SOON, session.stop()).await.unwrap();
}

/// Not a test by itself, but a process with a session that has a turn.
#[tokio::test]
async fn turn() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let session = builder(Path::new(&folder)).start().await.unwrap();
        let mut turn = session.prompt("go").await.unwrap();
        turn.outcome().await.unwrap();
        // The claim is taken in the background: its file is there before it is locked. A session that cannot lock it fails, and has no
        // snapshot then.
        while !locks(Path::new(&folder)).iter().any(|claimed| is_locked(Path::new(&folder), claimed)) {
            session.snapshot().await.unwrap();
        }
        let [claimed] = &locks(Path::new(&folder))[..] else { panic!("not one lock") };
        let lock = std::fs::File::open(lock_folder(Path::new(&folder)).join(claimed)).unwrap();
        assert!(matches!(lock.try_lock(), Err(std::fs::TryLockError::WouldBlock)), "it is not held");
        session.prompt("again").await.unwrap().outcome().await.unwrap();
        session.stop().await.unwrap();
    }
}

/// True if a process holds the lock, by the system's list of locks. The look takes no lock, so it disturbs no process that is about to.
fn is_locked(folder: &Path, lock: &str) -> bool {
    let Ok(file) = std::fs::metadata(lock_folder(folder).join(lock)) else { return false };
    let inode = format!(":{} ", file.ino());
    let Ok(held) = std::fs::read_to_string("/proc/locks") else { return true };
    held.lines().any(|line| line.contains(&inode))
}

#[tokio::test]
async fn a_temporary_folder_that_another_user_has_taken_stops_no_session() {
    let folder = tempfile::tempdir().unwrap();
    let temporary = folder.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    // As if of another user: nothing can be locked there.
    let user = rustix::process::geteuid().as_raw();
    for name in ["greenroom", "greenroom-locks"] {
        std::fs::write(temporary.join(format!("{name}-{user}")), "").unwrap();
    }
    let mut command = test_alone("in_use::turn");
    let mut host = Host::start(command.env(FOLDER, folder.path()).env("TMPDIR", &temporary));
    assert!(host.0.wait().unwrap().success());
}

#[allow(
    clippy::disallowed_methods,
    reason = "another process of the user, with a limit that this one must not have"
)]
#[tokio::test]
async fn a_session_goes_on_though_its_lock_file_cannot_be_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let alone = test_alone("in_use::turn");
    // No file may grow, as on a full disk. Without the trap the system would kill the process.
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", r#"trap "" XFSZ; ulimit -f 0; exec "$0" "$@""#]);
    command.arg(alone.get_program()).args(alone.get_args()).env(FOLDER, folder.path()).stdin(Stdio::null());
    // Through pipes, which have no limit.
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn a_session_that_cannot_lock_does_not_start_its_cli() {
    let folder = tempfile::tempdir().unwrap();
    let started = folder.path().join("started");
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let builder = builder(folder.path())
        .env("FAKE_CLI", format!("print-args={}", started.display()))
        .configure(|options| options.lock_dir = Some(file.join("locks")));
    let error = within(SOON, builder.start()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("the folder {}/locks cannot be used: ", file.display())), "{text}");
    assert!(text.contains("name a folder in `lock_dir`"), "{text}");
    assert!(!started.exists(), "the CLI was started");
}
