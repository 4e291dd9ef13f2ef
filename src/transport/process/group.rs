//! A process group, and the one rule about it: a signal goes out only while the group's number is surely
//! ours.
//!
//! The number of a group is that of its leader, and it stays taken as long as the leader has not been reaped.
//! So the leader is reaped last, after the group got its SIGKILL:
//!
//! ```text
//! Running ──kill──► Killed ──leader exits, reaped──► Gone
//!    └──leader exits──► Exited (a zombie) ──kill, reaped──► Gone
//! ```
//!
//! One SIGKILL is enough. The system gives it to all members in one step that no fork can slip through.
//!
//! The guardian follows the same rule: it knows the number from the first moment until just before `Gone`.

#[cfg(target_os = "linux")]
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid};
use tokio::sync::SetOnce;

use super::guardian;
use crate::transport::Exit;

/// Where the leader, the CLI itself, stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leader {
    Running,
    /// It runs still, but its group has been sent SIGKILL.
    Killed,
    /// It has exited and is not reaped. Other members may run.
    Exited,
    /// Reaped: the number may belong to someone else.
    Gone,
}

#[derive(Debug)]
pub(super) struct Group {
    id: Pid,
    leader: Mutex<Leader>,
    /// Set once the leader has exited.
    exit: SetOnce<Exit>,
}

impl Group {
    /// The group whose leader is a running child of this process. Someone has to wait for the leader (`exits.rs`),
    /// or it is not reaped.
    pub(super) fn new(leader: Pid) -> Arc<Self> {
        Arc::new(Self { id: leader, leader: Mutex::new(Leader::Running), exit: SetOnce::new() })
    }

    pub(super) fn id(&self) -> Pid {
        self.id
    }

    /// Waits until the leader has exited and someone has noticed.
    pub(super) async fn exited(&self) -> Exit {
        *self.exit.wait().await
    }

    /// Blocks until the leader has exited.
    pub(super) fn wait_for_leader(&self) -> Exit {
        // NOWAIT: look at the exit without reaping.
        let look = || waitid(WaitId::Pid(self.id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        self.leader_ended(rustix::io::retry_on_intr(look))
    }

    /// Looks whether the leader has exited.
    #[cfg(target_os = "linux")]
    pub(super) fn look_at_leader(&self, pidfd: &OwnedFd) -> bool {
        match look(pidfd) {
            Ok(None) => false,
            seen => {
                self.leader_ended(seen);
                true
            }
        }
    }

    /// Whether one can look at the leader in that way.
    #[cfg(target_os = "linux")]
    pub(super) fn may_be_looked_at(&self, pidfd: &OwnedFd) -> rustix::io::Result<()> {
        look(pidfd).map(drop)
    }

    /// Nobody waits for the leader any more. Nothing happens if its exit has been noticed.
    pub(super) fn lost(&self) {
        self.exit.set(Exit::Unknown).ok();
    }

    fn leader_ended(&self, seen: rustix::io::Result<Option<WaitIdStatus>>) -> Exit {
        let exit = match seen {
            Ok(status) => {
                let mut leader = self.leader();
                *leader = match *leader {
                    Leader::Running => Leader::Exited,
                    Leader::Killed => self.reap(),
                    settled @ (Leader::Exited | Leader::Gone) => settled,
                };
                status.map_or(Exit::Unknown, exit_of)
            }
            // Someone else in this process reaps children that are not theirs. What is left of the group is
            // ended now or never.
            Err(_) => {
                let mut leader = self.leader();
                self.signal(Signal::KILL);
                guardian::forget(self.id);
                *leader = Leader::Gone;
                Exit::Unknown
            }
        };
        self.exit.set(exit).ok();
        exit
    }

    fn terminate(&self) {
        let leader = self.leader();
        if *leader != Leader::Gone {
            self.signal(Signal::TERM);
        }
    }

    fn kill(&self) {
        let mut leader = self.leader();
        if *leader != Leader::Gone {
            self.signal(Signal::KILL);
        }
        *leader = match *leader {
            Leader::Running | Leader::Killed => Leader::Killed,
            Leader::Exited => self.reap(),
            Leader::Gone => Leader::Gone,
        };
    }

    fn signal(&self, signal: Signal) {
        // It fails when nobody is left, or when all who are left run as another user; neither can be helped.
        kill_process_group(self.id, signal).ok();
    }

    /// Only for a leader that has exited: then it does not block.
    fn reap(&self) -> Leader {
        guardian::forget(self.id);
        waitid(WaitId::Pid(self.id), WaitIdOptions::EXITED | WaitIdOptions::NOHANG).ok();
        Leader::Gone
    }

    fn leader(&self) -> MutexGuard<'_, Leader> {
        self.leader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// NOWAIT: without reaping.
#[cfg(target_os = "linux")]
fn look(pidfd: &OwnedFd) -> rustix::io::Result<Option<WaitIdStatus>> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    rustix::io::retry_on_intr(|| waitid(WaitId::PidFd(pidfd.as_fd()), options))
}

fn exit_of(status: WaitIdStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Unknown,
    }
}

/// Kills the group when it is dropped.
#[derive(Debug)]
pub(super) struct GroupGuard(Arc<Group>);

impl GroupGuard {
    pub(super) fn new(group: Arc<Group>) -> Self {
        Self(group)
    }

    pub(super) fn group(&self) -> &Arc<Group> {
        &self.0
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id.as_raw_nonzero().get().unsigned_abs()
    }

    pub(super) fn terminate(&self) {
        self.0.terminate();
    }

    pub(super) fn kill(&self) {
        self.0.kill();
    }
}

impl Drop for GroupGuard {
    fn drop(&mut self) {
        self.0.kill();
    }
}
