//! The end of a child, alone and together with its descendants.

use tokio::process::ChildStdout;

use super::*;
use crate::{exits, group};

#[tokio::test]
async fn exit_codes_and_signals_are_reported() {
    for (script, exit) in [
        ("exit 0", Exit::Code(0)),
        ("exit 7", Exit::Code(7)),
        ("exit 255", Exit::Code(255)),
        ("kill -TERM $$", Exit::Signal(15)),
        ("kill -KILL $$", Exit::Signal(9)),
    ] {
        assert_eq!(wait(&mut open(sh(script)).await).await, exit, "{script}");
    }
}

#[tokio::test]
async fn the_future_of_wait_may_be_dropped_and_wait_called_again() {
    let mut connection = open(sh("read line; exit 3")).await;
    assert!(futures_util::poll!(std::pin::pin!(connection.process.wait())).is_pending());
    connection.stdin.write_all(b"\n").await.unwrap();
    assert_eq!(wait(&mut connection).await, Exit::Code(3));
    assert_eq!(wait(&mut connection).await, Exit::Code(3));
}

#[tokio::test]
async fn many_at_once_keep_their_exits_apart() {
    let children = (0..20).map(|code| async move {
        let mut connection = open(sh(&format!("exit {code}"))).await;
        assert_eq!(wait(&mut connection).await, Exit::Code(code));
    });
    futures_util::future::join_all(children).await;
}

/// Starts a grandchild that holds stdout open, and prints `ready`.
const WITH_GRANDCHILD: &str = "sleep 1000 & echo ready; ";

/// The containments in which the process group alone must end the grandchild, and in which others help.
const CONTAINMENTS: [Containment; 2] = [Containment::Group, Containment::Auto];

#[tokio::test]
async fn kill_reaches_the_grandchild() {
    for containment in CONTAINMENTS {
        let launch = Command { containment, ..sh(&format!("{WITH_GRANDCHILD} wait")) };
        let Child { stdout: reader, mut process, .. } = open(launch).await;
        let mut reader = BufReader::new(reader);
        expect_line(&mut reader, "ready").await;
        process.kill();
        assert_eq!(to_the_end(reader).await, "");
        assert_eq!(in_time(process.wait()).await, Exit::Signal(9));
        assert!(!exists(process.pid()), "reaped");
    }
}

#[tokio::test]
async fn kill_reaches_the_grandchild_after_the_child_has_exited() {
    for containment in CONTAINMENTS {
        let launch = Command { containment, ..sh(&format!("{WITH_GRANDCHILD} exit 3")) };
        let Child { stdout: reader, mut process, .. } = open(launch).await;
        let mut reader = BufReader::new(reader);
        expect_line(&mut reader, "ready").await;
        assert_eq!(in_time(process.wait()).await, Exit::Code(3));
        assert!(exists(process.pid()), "a zombie keeps the id of the group");
        process.kill();
        assert_eq!(to_the_end(reader).await, "");
        assert!(!exists(process.pid()), "reaped");
        process.kill();
        process.terminate();
        assert_eq!(in_time(process.wait()).await, Exit::Code(3));
    }
}

#[tokio::test]
async fn drop_kills_and_reaps() {
    let ((_stdin, stdout, _stderr), group, _) = started(sh(&format!("{WITH_GRANDCHILD} wait"))).await;
    let seen = Arc::clone(&group);
    let mut reader = BufReader::new(ChildStdout::from_std(stdout).unwrap());
    expect_line(&mut reader, "ready").await;
    let pid = group.pid();
    drop(group);
    assert_eq!(to_the_end(reader).await, "");
    assert_eq!(in_time(seen.exited()).await, Exit::Signal(9));
    assert!(!exists(pid), "reaped");
}

#[tokio::test]
async fn drop_after_the_exit_kills_and_reaps() {
    let Child { stdout: reader, mut process, .. } = open(sh(&format!("{WITH_GRANDCHILD} exit 3"))).await;
    in_time(process.wait()).await;
    let pid = process.pid();
    drop(process);
    assert_eq!(to_the_end(reader).await, "ready\n");
    assert!(!exists(pid), "reaped");
}

#[tokio::test]
async fn dropping_the_whole_connection_kills() {
    let fifo = Fifo::new();
    let connection = open(sh(&fifo.held_by("exec sleep 1000"))).await;
    let held = fifo.opened().await;
    drop(connection);
    held.closed().await;
}

#[tokio::test]
async fn terminate_asks_the_whole_group() {
    // `sh -c`, because a mere fork of the script would keep the trap until its program runs.
    let script = "trap 'echo asked; exit 5' TERM; sh -c 'echo ready; exec sleep 1000' & wait";
    let Child { stdout: reader, mut process, .. } = open(sh(script)).await;
    let mut reader = BufReader::new(reader);
    expect_line(&mut reader, "ready").await;
    process.terminate();
    // Stdout ends only after the grandchild has ended as well.
    assert_eq!(to_the_end(reader).await, "asked\n");
    assert_eq!(in_time(process.wait()).await, Exit::Code(5));
}

#[tokio::test]
async fn a_child_that_ignores_terminate_is_killed() {
    let Child { stdout: reader, mut process, .. } =
        open(sh("trap '' TERM; echo ready; while :; do sleep 1000; done")).await;
    let mut reader = BufReader::new(reader);
    expect_line(&mut reader, "ready").await;
    process.terminate();
    process.kill();
    assert_eq!(in_time(process.wait()).await, Exit::Signal(9));
}

#[tokio::test]
async fn if_someone_else_reaps_the_child_its_group_is_killed() {
    use std::os::unix::process::CommandExt;
    // The grandchild lives until its stdin ends, which is at the end of this test at the latest.
    let mut child = StdCommand::new("/bin/sh")
        .args(["-c", "exec 3<&0; cat <&3 & echo ready; exit 3"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let group = group::Group::new(Pid::from_child(&child), Default::default());
    let _stdin = child.stdin.take();
    child.wait().unwrap();
    exits::WatchedChild::wait_exit(&*group);
    assert_eq!(in_time(group.exited()).await, Exit::Unknown);
    let stdout = ChildStdout::from_std(child.stdout.take().unwrap()).unwrap();
    assert_eq!(to_the_end(stdout).await, "ready\n");
}

#[tokio::test]
async fn a_child_whose_exit_is_not_noted_yet_is_not_left() {
    use std::os::unix::process::CommandExt;
    let mut child = StdCommand::new("/bin/cat").stdin(Stdio::piped()).process_group(0).spawn().unwrap();
    let group = group::Group::new(Pid::from_child(&child), Default::default());
    assert_eq!(group.left().unwrap_or_default().len(), 1, "it runs");
    group.kill();
    exits::wait_without_reaping(Pid::from_child(&child)).unwrap();
    assert_eq!(group.left(), Some(Vec::new()));
    child.wait().unwrap();
}
