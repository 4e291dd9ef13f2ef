//! Ends the processes that have a mark.
//!
//! ```text
//!        ┌─ found one that it had not found before: SIGSTOP ─┐
//! round ─┴─► search ──found no other──► SIGKILL to all, the newest process first ──► the next round
//!              └──found none──► clean
//! ```
//!
//! Processes are stopped before they are killed. A stopped process starts no other one, and does not notice that a process
//! that it waits for has ended. The newest process is killed first: the system continues stopped processes whose parent has
//! ended, if the parent's end leaves their process group without a link to another group of the session.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::mark;
use crate::transport::process::environment::Patience;

/// Most searches of one round. A process that was found in the last search is killed without a search after it.
const SEARCHES: u32 = 16;

/// The next round starts when no killed process has ended for this long.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Most processes whose end one round waits for.
const AWAITED: usize = 64;

/// Stops and then kills all processes that have one of the marks. Calls `found` for each with the position of its mark, while
/// the process is stopped.
///
/// # Errors
/// There may be processes that were not found.
pub(crate) fn round(
    marks: &[&str],
    patience: &mut Patience,
    dying: &mut Dying,
    mut found: impl FnMut(usize, Pid),
) -> io::Result<()> {
    let mut stopped = BTreeMap::new();
    let mut searched = Ok(());
    for _ in 0..SEARCHES {
        let before = stopped.len();
        let mut lost = false;
        searched = mark::scan(marks, patience, |mark, pid| {
            // Each time: somebody may have continued it.
            match signal(marks[mark], pid, Signal::STOP) {
                Some(_) => _ = stopped.insert(pid.as_raw_pid(), (pid, mark)),
                None => lost = true,
            }
        });
        if lost {
            searched = searched.and(Err(io::Error::other("a process ended, or was between two programs")));
        } else if stopped.len() == before {
            break;
        }
    }
    for (pid, mark) in stopped.into_values().rev() {
        found(mark, pid);
        if let Some(pidfd) = signal(marks[mark], pid, Signal::KILL) {
            dying.add(pidfd);
        }
    }
    searched
}

/// Sends the signal to the process if it still has the mark, because its id may have been reused since the search. Returns
/// `None` if it has not.
fn signal(mark: &str, pid: Pid, signal: Signal) -> Option<Option<OwnedFd>> {
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok();
    if !mark::has(mark, pid) {
        return None;
    }
    // Fails if the process has ended, or now runs as another user.
    match &pidfd {
        Some(pidfd) => pidfd_send_signal(pidfd, signal).ok(),
        // Systems before Linux 5.3. The mark was seen a moment ago.
        None => kill_process(pid, signal).ok(),
    };
    Some(pidfd)
}

/// Killed processes that may not have ended yet.
#[derive(Debug, Default)]
pub(crate) struct Dying(Vec<OwnedFd>);

impl Dying {
    pub(crate) fn add(&mut self, pidfd: Option<OwnedFd>) {
        self.0.extend(pidfd.filter(|_| self.0.len() < AWAITED));
    }

    /// Waits until all have ended, or none has ended for [`PAUSE`]. Without a descriptor of them, waits for [`PAUSE`].
    pub(crate) fn wait(mut self) {
        loop {
            let mut events: Vec<_> = self.0.iter().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)).collect();
            if !poll(&mut events, Some(&PAUSE)).is_ok_and(|ended| ended > 0) {
                return;
            }
            let mut ended =
                events.iter().map(|event| !event.revents().is_empty()).collect::<Vec<_>>().into_iter();
            self.0.retain(|_| !ended.next().unwrap_or_default());
            if self.0.is_empty() {
                return;
            }
        }
    }
}
