//! The process group of a child, and the rule for its signals: a signal is sent only while the process id of the group
//! surely belongs to this child.
//!
//! The id of a group is the process id of its leader, and the system does not reuse it until the leader is reaped. So
//! the leader is reaped last, after the group got its SIGKILL:
//!
//! ```text
//! Running ──kill──► Killed ──leader exits, reaped──► Reaped
//!    └──leader exits──► Exited (a zombie) ──kill, reaped──► Reaped
//! ```
//!
//! A single SIGKILL is enough: the system gives it to all members of the group in one step that no fork can slip
//! through. The leader gets a SIGKILL of its own as well, because it may have moved to another group. Descendants may
//! have left the group too; the first kill submits them to `contain/sweep.rs`.
//!
//! The guardian follows the same rule: it knows the id from the start of the leader until just before the leader is
//! reaped.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, getpgid, kill_process, kill_process_group, waitid,
};
use tokio::sync::SetOnce;

use super::contain::containment::{Contained, Descendants, Swept};
use super::exits::{self, WatchedChild};
use super::guardian;
use super::identity::ProcessIdentity;
use crate::{Exit, Leftover, lock};

/// State of the leader, which is the child process itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leader {
    Running,
    /// Still running, but its group was sent SIGKILL.
    Killed,
    /// Exited and not reaped. Other members of the group may run.
    Exited,
    /// The process id may belong to another process.
    Reaped,
}

#[derive(Debug)]
pub(super) struct Group {
    id: Pid,
    pidfd: Option<OwnedFd>,
    leader: Mutex<Leader>,
    exit: SetOnce<Exit>,
    pub(super) identity: ProcessIdentity,
    pub(super) descendants: Arc<Descendants>,
}

impl Group {
    /// A group whose leader is a running child of this process. The caller has it watched (`exits.rs`), or the leader
    /// is never reaped.
    pub(super) fn new(leader: Pid, contained: Contained) -> Arc<Self> {
        Arc::new(Self {
            id: leader,
            pidfd: exits::pidfd(leader),
            leader: Mutex::new(Leader::Running),
            exit: SetOnce::new(),
            identity: ProcessIdentity::of_child(leader, contained.mark.as_deref()),
            descendants: Arc::new(Descendants::new(leader, contained)),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.id.as_raw_nonzero().get().unsigned_abs()
    }

    /// The leader, if it runs, and the descendants that the sweep has found and that still run. `None` if there are none and
    /// it is not known whether there are others.
    pub(super) fn left(&self) -> Option<Vec<Leftover>> {
        // Before the processes: the sweep may end meanwhile.
        let is_known = self.descendants.is_known();
        let mut left = self.descendants.left();
        if self.leader_runs() && left.iter().all(|leftover| leftover.pid != self.pid()) {
            left.push(Leftover { pid: self.pid(), name: "the child itself".to_owned() });
        }
        (is_known || !left.is_empty()).then_some(left)
    }

    /// Asks the system: the thread that notes the exit may be behind.
    fn leader_runs(&self) -> bool {
        // Locked until it is looked at, so that it is not reaped meanwhile.
        let leader = lock(&self.leader);
        // An error: someone else has reaped it.
        *leader != Leader::Reaped && matches!(self.status(), Ok(None))
    }

    /// Waits until the leader has exited.
    pub(super) async fn exited(&self) -> Exit {
        *self.exit.wait().await
    }

    /// Asks the whole group to end (SIGTERM).
    pub(super) fn terminate(&self) {
        let leader = lock(&self.leader);
        if *leader == Leader::Reaped {
            return;
        }
        self.signal_group(Signal::TERM);
        // A leader in the group gets one SIGTERM only: some programs take the second as "exit without cleaning up".
        if getpgid(Some(self.id)).is_ok_and(|group| group != self.id) {
            self.signal_leader(Signal::TERM);
        }
    }

    /// Kills the group, reaps the leader if it has exited, and has what left the group swept.
    pub(super) fn kill(&self) {
        let mut leader = lock(&self.leader);
        if *leader != Leader::Reaped {
            self.signal_group(Signal::KILL);
            self.signal_leader(Signal::KILL);
        }
        let first = matches!(*leader, Leader::Running | Leader::Exited);
        *leader = match *leader {
            Leader::Running | Leader::Killed => Leader::Killed,
            Leader::Exited => self.reap(),
            Leader::Reaped => Leader::Reaped,
        };
        drop(leader);
        if first {
            self.sweep();
        }
    }

    fn leader_ended(&self, status: rustix::io::Result<Option<WaitIdStatus>>) {
        let exit = match status {
            Ok(status) => {
                let mut leader = lock(&self.leader);
                *leader = match *leader {
                    Leader::Running => Leader::Exited,
                    Leader::Killed => self.reap(),
                    settled @ (Leader::Exited | Leader::Reaped) => settled,
                };
                status.map_or(Exit::Unknown, exit_of)
            }
            // Someone else in this process has reaped the leader. Kill the group now: its id may be reused soon.
            Err(_) => {
                let mut leader = lock(&self.leader);
                let first = *leader == Leader::Running;
                self.signal_group(Signal::KILL);
                guardian::forget(self.id);
                *leader = Leader::Reaped;
                drop(leader);
                if first {
                    self.sweep();
                }
                Exit::Unknown
            }
        };
        self.exit.set(exit).ok();
    }

    fn sweep(&self) {
        #[cfg(target_os = "linux")]
        if self.descendants.contained.mark.is_some() {
            return super::contain::sweep::submit(Arc::clone(&self.descendants));
        }
        self.descendants.set_swept(Swept { killed: Vec::new(), is_known: true });
    }

    fn signal_group(&self, signal: Signal) {
        // Fails if the group is empty, or if all members run as another user. Neither can be helped.
        kill_process_group(self.id, signal).ok();
    }

    /// Only before the leader is reaped. By the pidfd where there is one, in case someone else has reaped the leader.
    fn signal_leader(&self, signal: Signal) {
        #[cfg(target_os = "linux")]
        if let Some(pidfd) = &self.pidfd {
            rustix::process::pidfd_send_signal(pidfd, signal).ok();
            return;
        }
        kill_process(self.id, signal).ok();
    }

    /// Only after the leader has exited, so that this does not block.
    fn reap(&self) -> Leader {
        guardian::forget(self.id);
        waitid(WaitId::Pid(self.id), WaitIdOptions::EXITED | WaitIdOptions::NOHANG).ok();
        Leader::Reaped
    }

    /// The leader's exit status, without waiting and without reaping; `None` while it runs. Only before the leader is reaped.
    fn status(&self) -> rustix::io::Result<Option<WaitIdStatus>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        #[cfg(target_os = "linux")]
        if let Some(pidfd) = &self.pidfd {
            let status =
                rustix::io::retry_on_intr(|| waitid(WaitId::PidFd(std::os::fd::AsFd::as_fd(pidfd)), options));
            // Linux 5.3 has pidfds, and cannot wait for them.
            if !matches!(status, Err(rustix::io::Errno::INVAL)) {
                return status;
            }
        }
        rustix::io::retry_on_intr(|| waitid(WaitId::Pid(self.id), options))
    }
}

impl WatchedChild for Group {
    fn pidfd(&self) -> Option<&OwnedFd> {
        self.pidfd.as_ref()
    }

    fn poll_exit(&self) -> bool {
        match self.status() {
            Ok(None) => false,
            status => {
                self.leader_ended(status);
                true
            }
        }
    }

    fn wait_exit(&self) {
        self.leader_ended(exits::wait_without_reaping(self.id));
    }

    fn abandon(&self) {
        self.exit.set(Exit::Unknown).ok();
    }

    fn thread_name(&self) -> &'static str {
        "greenroom-wait"
    }
}

fn exit_of(status: WaitIdStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Unknown,
    }
}

/// Owns a group; kills it when dropped.
#[derive(Debug)]
pub(super) struct GroupGuard(Arc<Group>);

impl GroupGuard {
    pub(super) fn new(group: Arc<Group>) -> Self {
        Self(group)
    }
}

impl std::ops::Deref for GroupGuard {
    type Target = Arc<Group>;

    fn deref(&self) -> &Arc<Group> {
        &self.0
    }
}

impl Drop for GroupGuard {
    fn drop(&mut self) {
        self.0.kill();
    }
}
