//! The guardian ends the groups of a host that has ended. Each test plays the host, which to the guardian is a pipe.

// Guards: no-orphans

#![allow(clippy::disallowed_methods, reason = "the groups are started without the code under test")]

use std::io::Read;
use std::process::{Child, ChildStdout, Command, ExitStatus};

use rustix::process::{
    Signal, WaitId, WaitIdOptions, getpgid, kill_process, kill_process_group, test_kill_process, waitid,
};

use uuid::Uuid;

use super::*;
use crate::tests::{blocking, in_time};

/// A group of two processes; one of them ignores SIGTERM.
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
        let stdout = Self::ready(&mut leader);
        Self { leader, stdout }
    }

    fn ready(leader: &mut Child) -> Option<ChildStdout> {
        let mut stdout = leader.stdout.take().unwrap();
        let mut line = [0; 6];
        stdout.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"ready\n");
        Some(stdout)
    }

    fn group(&self) -> Pid {
        Pid::from_child(&self.leader)
    }

    /// Waits until all members have ended.
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

/// The guardian of a host with a name of its own, so that it does not end processes of other tests.
fn guardian() -> Guardian {
    let name = Host { mark: Uuid::new_v4().simple().to_string(), base: None };
    Guardian { name: Some(Arc::new(name)), ..Guardian::new("/bin/sh") }
}

fn watch(guardian: &mut Guardian, members: &Members) {
    if let Some(warning) = guardian.watch(members.group(), Duration::ZERO, None) {
        panic!("{warning:?}");
    }
}

/// Ends the host, and returns how the guardian ended.
async fn end_of_host(mut guardian: Guardian) -> ExitStatus {
    let GuardianProcess { mut child, lines, .. } = guardian.running.take().expect("there is one");
    drop(lines);
    blocking(move || child.wait().unwrap()).await
}

fn pid(guardian: &Guardian) -> Pid {
    Pid::from_child(&guardian.running.as_ref().expect("there is one").child)
}

/// Kills the guardian and waits until it has ended, without reaping it.
fn kill(guardian: &Guardian) -> Pid {
    let pid = pid(guardian);
    kill_process(pid, Signal::KILL).unwrap();
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
    pid
}

/// Kills the guardian of this process for good, to test the host without one.
pub(crate) fn lose() {
    let mut guardian = lock(&GUARDIAN);
    guardian.short_lived = SHORT_LIVED;
    guardian.running.as_mut().expect("there is one").since = Instant::now();
    kill(&guardian);
}

#[tokio::test]
async fn when_the_host_ends_exactly_its_remaining_groups_are_killed() {
    let mut guardian = guardian();
    let (mut first, mut second) = (Members::start(), Members::start());
    watch(&mut guardian, &first);
    watch(&mut guardian, &second);
    // Started while the guardian runs: if they inherited the pipe, it would not end before they do.
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
async fn each_group_has_its_grace_time_and_empty_groups_are_not_awaited() {
    let mut guardian = guardian();
    let (mut patient, mut hasty, mut brief) = (Members::start(), Members::start(), Members::start());
    guardian.watch(patient.group(), Duration::from_secs(60 * 60), None);
    guardian.watch(hasty.group(), Duration::ZERO, None);
    guardian.watch(brief.group(), Duration::from_millis(200), None);
    let end = tokio::spawn(end_of_host(guardian));
    hasty.gone().await;
    brief.gone().await;
    assert!(patient.runs());
    kill_process_group(patient.group(), Signal::KILL).unwrap();
    patient.leader.wait().unwrap();
    assert!(in_time(end).await.unwrap().success());
}

/// Starts a process with the mark in a session of its own, as commands of the Bash tool run.
fn marked(mark: &str) -> Members {
    in_session(":", mark)
}

fn in_session(begin: &str, mark: &str) -> Members {
    let script = format!("{begin}; trap '' TERM; echo ready; while :; do sleep 1000; done");
    let mut leader = Command::new("/usr/bin/setsid")
        .args(["/bin/sh", "-c", &script])
        .env(crate::mark::VARIABLE, mark)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = Members::ready(&mut leader);
    Members { leader, stdout }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn exactly_the_marked_processes_that_left_are_killed() {
    // With and without `grep` and `sleep`, and in another shell.
    for (shell, path) in
        [("/bin/sh", PATH), ("/bin/sh", "/none"), ("/bin/bash", PATH), ("/bin/bash", "/none")]
    {
        let mut guardian = Guardian { shell, path, ..guardian() };
        let mark = guardian.name.as_ref().unwrap().mark.clone();
        let (mut one, mut nested) = (marked(&format!("{mark}.1")), marked(&format!("outer.7,{mark}.2")));
        let mut stranger = marked("5f0c7d9e.1");
        let mut members = Members::start();
        watch(&mut guardian, &members);
        assert!(end_of_host(guardian).await.success(), "{shell} {path}");
        one.gone().await;
        nested.gone().await;
        members.gone().await;
        assert!(stranger.runs(), "{shell} {path}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_control_groups_of_the_host_are_killed_and_removed() {
    use crate::contain::cgroup::Leaf;

    let mark = Uuid::new_v4().simple().to_string();
    let base = crate::contain::cgroup::own_folder()
        // The groups of a process that does not run are removed by other hosts.
        .map(|own| crate::contain::cgroup::base(&own, std::process::id(), &mark));
    let made = base.clone().map(|base| Leaf::make(&base, "cli-1"));
    let Some((base, leaf)) = base.zip(made.and_then(Result::ok)) else {
        return crate::tests::say_no_cgroups();
    };
    let name = Arc::new(Host { mark, base: Some(base.clone()) });
    let mut guardian = Guardian { name: Some(name), ..guardian() };
    // Like the groups of a host that ran under the child.
    std::fs::create_dir_all(base.join("cli-1/greenroom-1-a/cli-2")).unwrap();
    let enter = format!("echo $$ >'{}/cli-1/greenroom-1-a/cli-2/cgroup.procs'", base.display());
    let mut members = in_session(&enter, "no mark of this host");
    assert!(guardian.ready().is_none());
    end_of_host(guardian).await;
    members.gone().await;
    assert!(!base.exists(), "removed");
    drop(leaf);
}

#[tokio::test]
async fn without_groups_the_guardian_ends_at_once() {
    let mut guardian = guardian();
    let mut members = Members::start();
    watch(&mut guardian, &members);
    guardian.forget(members.group());
    assert!(end_of_host(guardian).await.success());
    assert!(members.runs());
}

#[tokio::test]
async fn a_killed_guardian_is_reaped_and_replaced_by_one_that_knows_all_groups() {
    let mut guardian = guardian();
    let [mut first, mut second, mut third, mut fourth] = std::array::from_fn(|_| Members::start());
    for members in [&first, &second, &third] {
        watch(&mut guardian, members);
    }
    let killed = kill(&guardian);
    guardian.forget(third.group());
    assert!(test_kill_process(killed).is_err(), "reaped");

    let killed = kill(&guardian);
    assert!(matches!(guardian.watch(fourth.group(), Duration::ZERO, None), Some(Warning::Replaced(_))));
    assert!(test_kill_process(killed).is_err(), "reaped");

    end_of_host(guardian).await;
    for members in [&mut first, &mut second, &mut fourth] {
        members.gone().await;
    }
    assert!(third.runs());
}

#[tokio::test]
async fn a_guardian_that_someone_else_has_reaped_is_replaced() {
    let mut guardian = guardian();
    let mut members = Members::start();
    watch(&mut guardian, &members);
    let killed = kill(&guardian);
    waitid(WaitId::Pid(killed), WaitIdOptions::EXITED).unwrap();
    assert!(matches!(guardian.ended(), Some(Warning::Replaced(_))));
    end_of_host(guardian).await;
    members.gone().await;
}

#[tokio::test]
async fn a_stopped_guardian_blocks_nothing_and_is_replaced() {
    let mut guardian = guardian();
    let (mut first, mut second) = (Members::start(), Members::start());
    watch(&mut guardian, &first);
    let stopped = pid(&guardian);
    kill_process(stopped, Signal::STOP).unwrap();
    let group = second.group();
    let fill = move || {
        while pid(&guardian) == stopped {
            guardian.watch(group, Duration::ZERO, None);
            guardian.forget(group);
        }
        guardian
    };
    let mut guardian = blocking(fill).await;
    assert!(test_kill_process(stopped).is_err(), "killed and reaped");
    assert!(first.runs() && second.runs(), "the stopped guardian has killed no group");
    watch(&mut guardian, &second);
    end_of_host(guardian).await;
    first.gone().await;
    second.gone().await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn signals_of_a_terminal_do_not_end_the_guardian() {
    let mut guardian = guardian();
    let mut members = Members::start();
    watch(&mut guardian, &members);
    guardian.forget(members.group());
    watch(&mut guardian, &members);
    // The script ignores signals before it reads.
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
async fn a_host_without_a_shell_is_warned_once_and_works() {
    let mut guardian = Guardian::new("/no/such/shell");
    let members = Members::start();
    match guardian.watch(members.group(), Duration::ZERO, None) {
        Some(Warning::Missing(error)) => assert_eq!(error.kind(), io::ErrorKind::NotFound),
        other => panic!("{other:?}"),
    }
    guardian.forget(members.group());
    assert!(guardian.watch(members.group(), Duration::ZERO, None).is_none());
    assert!(guardian.running.is_none());
}

/// A guardian program that acknowledges nothing. Each start after the first one fails.
#[cfg(target_os = "linux")]
fn silent_guardian(folder: &std::path::Path) -> Guardian {
    let program = folder.join("silent");
    // It reads nothing, and writes its arguments until the pipe is full.
    std::os::unix::fs::symlink("/usr/bin/yes", &program).unwrap();
    let mut guardian = guardian();
    guardian.program = Some(program.clone());
    assert!(guardian.ready().is_none());
    std::fs::remove_file(program).unwrap();
    guardian
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_silent_guardian_stays_if_no_other_one_can_be_started() {
    let folder = tempfile::tempdir().unwrap();
    let mut guardian = silent_guardian(folder.path());
    let silent = pid(&guardian);
    let ((_, words), _) = guardian.extend(1, BootTime::now()).unwrap();
    guardian.replace(&words, io::ErrorKind::TimedOut.into()).unwrap_err();
    assert_eq!(pid(&guardian), silent);
    test_kill_process(silent).unwrap();
}

#[tokio::test]
async fn a_guardian_that_ends_before_a_watchdog_goes_is_replaced() {
    let (mut guardian, members) = (guardian(), Members::start());
    watch(&mut guardian, &members);
    guardian.deadlines.insert(1, Deadline { until: BootTime::now(), seq: 1 });
    let killed = kill(&guardian);
    guardian.drop_watchdog(1);
    assert_ne!(pid(&guardian), killed);
    end_of_host(guardian).await;
}
