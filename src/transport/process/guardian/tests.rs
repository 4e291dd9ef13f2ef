//! What becomes of groups whose host is gone. The host is played: to the guardian it is the end of a pipe.

#![allow(clippy::disallowed_methods, reason = "the groups are started without the code under test")]

use std::io::Read;
use std::os::fd::AsFd;
use std::process::{ChildStdout, ExitStatus};

use rustix::process::{
    Signal, WaitId, WaitIdOptions, getpgid, kill_process, kill_process_group, test_kill_process, waitid,
};

use super::super::tests::{blocking, in_time};
use super::*;

/// A group of two, of which one ignores SIGTERM.
struct Members {
    leader: Child,
    stdout: Option<ChildStdout>,
}

impl Members {
    fn start() -> Self {
        let mut leader = Command::new("/bin/sh")
            .args(["-c", "sleep 1000 & trap '' TERM; echo ready; wait; wait"])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut stdout = leader.stdout.take().unwrap();
        let mut line = [0; 6];
        stdout.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"ready\n");
        Self { leader, stdout: Some(stdout) }
    }

    fn group(&self) -> Pid {
        Pid::from_child(&self.leader)
    }

    /// Waits until all of them are gone.
    async fn gone(&mut self) {
        let mut stdout = self.stdout.take().unwrap();
        assert_eq!(blocking(move || stdout.read_to_end(&mut Vec::new()).unwrap()).await, 0);
    }

    fn runs(&mut self) -> bool {
        self.leader.try_wait().unwrap().is_none()
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        if self.runs() {
            kill_process_group(self.group(), Signal::KILL).unwrap();
            self.leader.wait().unwrap();
        }
    }
}

fn guardian() -> Guardian {
    Guardian::new("/bin/sh")
}

fn watch(guardian: &mut Guardian, members: &Members) {
    if let Some(warning) = guardian.watch(members.group()) {
        panic!("{warning:?}");
    }
}

/// Ends the host; how the guardian ended.
async fn end_of_host(mut guardian: Guardian) -> ExitStatus {
    let Running { mut child, lines } = guardian.running.take().expect("there is one");
    drop(lines);
    blocking(move || child.wait().unwrap()).await
}

fn pid(guardian: &Guardian) -> Pid {
    Pid::from_child(&guardian.running.as_ref().expect("there is one").child)
}

/// Kills the guardian, and waits until it has ended. It is not reaped.
fn kill(guardian: &Guardian) -> Pid {
    let pid = pid(guardian);
    kill_process(pid, Signal::KILL).unwrap();
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
    pid
}

/// Kills the guardian of this very process, to show what goes without it.
pub(in super::super) fn lose() {
    kill(&lock());
}

#[tokio::test]
async fn when_the_host_ends_the_groups_that_are_left_are_killed_and_no_others() {
    let mut guardian = guardian();
    let (mut first, mut second) = (Members::start(), Members::start());
    watch(&mut guardian, &first);
    watch(&mut guardian, &second);
    // Started with the guardian there: did they inherit the pipe, it would not end before they do.
    let (mut between, mut last, mut stranger) = (Members::start(), Members::start(), Members::start());
    watch(&mut guardian, &between);
    watch(&mut guardian, &last);
    guardian.forget(between.group());
    guardian.forget(first.group());
    watch(&mut guardian, &first);
    guardian.forget(second.group());
    guardian.forget(second.group());

    end_of_host(guardian).await;
    first.gone().await;
    last.gone().await;
    assert!(second.runs() && between.runs() && stranger.runs());
}

#[tokio::test]
async fn without_groups_the_guardian_just_ends() {
    let mut guardian = guardian();
    let mut members = Members::start();
    watch(&mut guardian, &members);
    guardian.forget(members.group());
    assert!(end_of_host(guardian).await.success());
    assert!(members.runs());
}

#[tokio::test]
async fn a_guardian_that_was_killed_is_reaped_and_replaced_by_one_that_knows_all() {
    let mut guardian = guardian();
    let [mut first, mut second, mut third, mut fourth] = std::array::from_fn(|_| Members::start());
    for members in [&first, &second, &third] {
        watch(&mut guardian, members);
    }
    let killed = kill(&guardian);
    guardian.forget(third.group());
    assert!(test_kill_process(killed).is_err(), "reaped");

    let killed = kill(&guardian);
    assert!(matches!(guardian.watch(fourth.group()), Some(Warning::Replaced(_))));
    assert!(test_kill_process(killed).is_err(), "reaped");

    end_of_host(guardian).await;
    for members in [&mut first, &mut second, &mut fourth] {
        members.gone().await;
    }
    assert!(third.runs());
}

#[tokio::test]
async fn a_guardian_that_is_stopped_holds_up_nobody_and_is_replaced() {
    let mut guardian = guardian();
    let (mut first, mut second) = (Members::start(), Members::start());
    watch(&mut guardian, &first);
    let stopped = pid(&guardian);
    kill_process(stopped, Signal::STOP).unwrap();
    let group = second.group();
    let fill = move || {
        while pid(&guardian) == stopped {
            guardian.watch(group);
            guardian.forget(group);
        }
        guardian
    };
    let mut guardian = blocking(fill).await;
    assert!(test_kill_process(stopped).is_err(), "killed and reaped");
    assert!(first.runs() && second.runs(), "the one that was given up has killed nobody");
    watch(&mut guardian, &second);
    end_of_host(guardian).await;
    first.gone().await;
    second.gone().await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_is_sent_to_all_does_not_end_the_guardian() {
    let mut guardian = guardian();
    let mut members = Members::start();
    watch(&mut guardian, &members);
    guardian.forget(members.group());
    watch(&mut guardian, &members);
    // Once it reads, it is past the line that has signals ignored.
    let pipe = &guardian.running.as_ref().unwrap().lines;
    let all_is_read = async {
        while rustix::io::ioctl_fionread(pipe).unwrap() > 0 {
            tokio::task::yield_now().await;
        }
    };
    in_time(all_is_read).await;
    let pid = pid(&guardian);
    assert_eq!(getpgid(Some(pid)).unwrap(), pid, "a group of its own");
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::TSTP] {
        kill_process(pid, signal).unwrap();
    }
    end_of_host(guardian).await;
    members.gone().await;
}

#[tokio::test]
async fn a_host_without_a_shell_is_warned_once_and_goes_on() {
    let mut guardian = Guardian::new("/no/such/shell");
    let members = Members::start();
    match guardian.watch(members.group()) {
        Some(Warning::Missing(error)) => assert_eq!(error.kind(), io::ErrorKind::NotFound),
        other => panic!("{other:?}"),
    }
    guardian.forget(members.group());
    assert!(guardian.watch(members.group()).is_none());
    assert!(guardian.running.is_none());
}

#[tokio::test]
async fn a_fork_of_the_host_leaves_the_groups_of_its_parent_to_its_parent() {
    let mut guardian = guardian();
    let (mut of_parent, mut of_fork) = (Members::start(), Members::start());
    watch(&mut guardian, &of_parent);
    // What a fork finds in its memory. The parent goes on to hold the pipe.
    let parent = guardian.running.as_ref().unwrap().lines.as_fd().try_clone_to_owned().unwrap();
    guardian.host = 0;
    watch(&mut guardian, &of_fork);
    guardian.forget(of_parent.group());
    end_of_host(guardian).await;
    of_fork.gone().await;
    assert!(of_parent.runs());
    drop(parent);
    of_parent.gone().await;
}
