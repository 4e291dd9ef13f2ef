//! A process is recognised as long as anything of it lives, and no other process is taken for it.

use std::os::unix::process::CommandExt;

use super::*;
use crate::variable::{kill_processes_with, processes_with};
use crate::wait::found_by_thread;

const LOOK: Duration = Duration::from_millis(10);

/// Runs the script, which prints `ready`. The default containment decides on the mark.
async fn ready(script: &str) -> (BufReader<impl tokio::io::AsyncRead + Unpin>, Process, ProcessIdentity) {
    let Child { stdout: reader, process, .. } = open(sh(script)).await;
    let mut reader = BufReader::new(reader);
    expect_line(&mut reader, "ready").await;
    let identity = process.identity().clone();
    assert_eq!(identity.pid, process.pid());
    (reader, process, identity)
}

async fn end(mut process: Process) {
    process.kill();
    in_time(process.wait()).await;
    in_time(process.cleared()).await;
}

#[tokio::test]
async fn a_process_is_alive_until_it_was_killed_and_not_after_a_reboot() {
    let (_reader, process, identity) = ready("echo ready; exec sleep 1000").await;
    let read: ProcessIdentity = serde_json::from_value(serde_json::to_value(&identity).unwrap()).unwrap();
    assert_eq!(read, identity);
    assert!(identity.is_alive());
    let other = Some("00000000-0000-4000-8000-000000000000".to_owned());
    assert!(!ProcessIdentity { boot: other, ..identity.clone() }.is_alive());
    assert!(ProcessIdentity { boot: None, ..identity.clone() }.is_alive(), "a system that does not tell");
    end(process).await;
    assert!(!identity.is_alive());
    in_time(identity.gone(LOOK)).await;
}

#[tokio::test]
async fn a_process_id_that_is_used_again_is_another_process() {
    let (_reader, process, identity) = ready("echo ready; exec sleep 1000").await;
    let earlier = identity.started.map(|started| started - 1);
    let before = ProcessIdentity { started: earlier, mark: None, ..identity.clone() };
    assert!(!before.is_alive(), "the group of a leader that was replaced is gone");
    let marked_otherwise = Some("no.such.mark".to_owned());
    assert!(!ProcessIdentity { mark: marked_otherwise, ..before }.is_alive());
    end(process).await;
}

#[tokio::test]
async fn a_group_whose_leader_is_a_zombie_is_alive_while_it_has_members() {
    // The member inherits no mark: its environment is empty.
    let (_reader, mut process, identity) = ready("env -i /bin/sleep 1000 & echo ready; exit 3").await;
    in_time(process.wait()).await;
    let group = ProcessIdentity { mark: None, ..identity };
    assert!(group.is_alive());
    // Ends the member. The leader stays a zombie until it is killed.
    process.terminate();
    in_time(group.gone(LOOK)).await;
    assert!(exists(group.pid), "the leader was reaped");
    end(process).await;
}

#[tokio::test]
async fn what_has_left_the_group_is_recognised_by_its_mark() {
    let script = "setsid sh -c 'echo ready; kill -STOP $$' & read line";
    let Child { stdout: reader, stdin: writer, mut process } = open(sh(script)).await;
    let mut reader = BufReader::new(reader);
    expect_line(&mut reader, "ready").await;
    let identity = process.identity().clone();
    drop(writer);
    in_time(process.wait()).await;
    assert!(identity.is_alive());
    assert!(!ProcessIdentity { mark: None, ..identity.clone() }.is_alive(), "it is not in the group");
    end(process).await;
    in_time(identity.gone(LOOK)).await;
}

/// The processes that a search finds. A search that cannot follow the processes that other tests start says so, and is
/// repeated.
fn found(variable: &str, value: &str) -> Vec<u32> {
    found_by_thread("a search that sees all processes", || processes_with(variable, value).ok())
}

/// Each process of a chain starts the next one and ends.
#[test]
fn chains_of_forks_are_killed_by_their_variable() {
    const VARIABLE: &str = "GREENROOM_TEST_OF_CHAINS";
    // The chains end with the test.
    let goes_on = tempfile::NamedTempFile::new().unwrap();
    let value = std::process::id().to_string();
    let next = r#"[ -e "$1" ] && sh -c "$0" "$0" "$1" &"#;
    for _ in 0..3 {
        let mut first = StdCommand::new("/bin/sh");
        first.args(["-c", next, next]).arg(goes_on.path()).env(VARIABLE, &value);
        assert!(first.status().unwrap().success());
    }
    found_by_thread("a chain", || processes_with(VARIABLE, &value).ok().filter(|found| !found.is_empty()));
    found_by_thread("the end of all", || kill_processes_with(VARIABLE, &value).ok());
    assert!(found(VARIABLE, &value).is_empty());
    assert!(goes_on.path().exists());
}

/// Between two programs a process has no environment. Here that is a twentieth of the time.
#[tokio::test]
async fn a_process_that_runs_one_program_after_another_is_found_by_every_search() {
    let next = r#"next='exec sh -c "$0" "$0"'; echo ready; exec sh -c "$next" "$next""#;
    let (_reader, process, identity) = ready(next).await;
    let mark = identity.mark.as_deref().unwrap();
    let found = (0..500).filter(|_| found("GREENROOM_INCARNATION", mark) == [identity.pid]).count();
    end(process).await;
    assert_eq!(found, 500);
    assert!(self::found("GREENROOM_INCARNATION", mark).is_empty());
}

/// Meanwhile the first thread of the process has ended, and the process looks like one that has ended.
#[test]
fn a_process_whose_second_thread_runs_the_next_program_is_found_by_every_search() {
    const VARIABLE: &str = "GREENROOM_TEST_OF_THREADS";
    let test = "a_process_whose_second_thread_runs_the_next_program_is_found_by_every_search";
    let mut next = StdCommand::new(std::env::current_exe().unwrap());
    next.args(["--exact", &format!("tests::identity::{test}"), "--nocapture"]);
    if std::env::var_os(VARIABLE).is_some() {
        let failed = std::thread::spawn(move || next.exec()).join().unwrap();
        panic!("the next program does not begin: {failed}");
    }
    let value = std::process::id().to_string();
    let mut child = next.env(VARIABLE, &value).stdout(Stdio::null()).spawn().unwrap();
    let found = (0..500).filter(|_| found(VARIABLE, &value) == [child.id()]).count();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(found, 500);
}
