//! Kills the descendants that an incarnation has left behind, and reports them.
//!
//! ```text
//! killed ──► control group: list, kill ──► marked processes: list, kill ──┐
//!                ▲                                                        │ found any
//!                └──────────── wait for the killed ones to end ◄──────────┤
//!                                                                         └ found none ──► swept
//! ```
//!
//! A thread (`greenroom-sweep`) does this, because it reads files of the system and must work without a runtime. The
//! thread starts with the first incarnation that is killed and ends when no sweep is left. Sweeps that run at the same
//! time share each scan of the process list.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpgid, kill_process, pidfd_open, pidfd_send_signal};

use super::containment::Descendants;
use super::mark;
use crate::transport::process::environment::Patience;
use crate::transport::{ContainedBy, Leftover};

/// Most rounds of one sweep. Processes that are left then cannot be killed, or fork faster than they die.
const ROUNDS: u32 = 64;

/// The next round starts when no killed process has ended for this long.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Most processes whose end one round waits for.
const AWAITED: usize = 64;

static SWEEPER: Mutex<Sweeper> = Mutex::new(Sweeper::new(0));

struct Sweeper {
    /// Process id of the owner. A fork of the host inherits this memory, but not the thread.
    host: u32,
    waiting: Vec<Arc<Descendants>>,
    thread_runs: bool,
}

impl Sweeper {
    const fn new(host: u32) -> Self {
        Self { host, waiting: Vec::new(), thread_runs: false }
    }
}

/// Sweeps the descendants of a CLI whose process group was killed.
pub(crate) fn submit(descendants: Arc<Descendants>) {
    {
        let mut sweeper = lock();
        sweeper.waiting.push(descendants);
        if std::mem::replace(&mut sweeper.thread_runs, true) {
            return;
        }
    }
    if thread::Builder::new().name("greenroom-sweep".into()).spawn(serve).is_err() {
        serve();
    }
}

fn lock() -> MutexGuard<'static, Sweeper> {
    let mut sweeper = SWEEPER.lock().unwrap_or_else(PoisonError::into_inner);
    let host = std::process::id();
    if sweeper.host != host {
        // Forgotten, not dropped: the descendants belong to the parent.
        std::mem::forget(std::mem::replace(&mut *sweeper, Sweeper::new(host)));
    }
    sweeper
}

fn serve() {
    let mut open = Vec::new();
    loop {
        {
            let mut sweeper = lock();
            open.extend(sweeper.waiting.drain(..).map(Sweep::new));
            if open.is_empty() {
                sweeper.thread_runs = false;
                return;
            }
        }
        if catch_unwind(AssertUnwindSafe(|| round(&mut open))).is_err() {
            // The panic hook has reported it. Callers of `swept` must not wait for ever.
            open.drain(..).for_each(Sweep::finish);
        }
    }
}

/// The sweep of one incarnation.
struct Sweep {
    descendants: Arc<Descendants>,
    killed: BTreeMap<i32, Leftover>,
    rounds: u32,
    /// Rounds in a row that found nothing.
    clean_rounds: u32,
}

impl Sweep {
    fn new(descendants: Arc<Descendants>) -> Self {
        Self { descendants, killed: BTreeMap::new(), rounds: 0, clean_rounds: 0 }
    }

    /// Records a process that is about to be killed. Members of the process group were killed with it and are no
    /// leftovers.
    fn record(&mut self, pid: Pid) {
        let leader = self.descendants.leader();
        // A process that has just ended may have been a member of the group.
        let Ok(group) = getpgid(Some(pid)) else { return };
        let Ok(name) = std::fs::read(format!("/proc/{}/comm", pid.as_raw_pid())) else { return };
        if pid == leader || group == leader {
            return;
        }
        self.killed.entry(pid.as_raw_pid()).or_insert_with(|| {
            let name = String::from_utf8_lossy(&name).trim_end().to_owned();
            Leftover { pid: pid.as_raw_pid().unsigned_abs(), name }
        });
    }

    /// Kills all processes in the control group. Returns false if there are none.
    fn kill_control_group(&mut self, dying: &mut Vec<OwnedFd>) -> bool {
        let descendants = Arc::clone(&self.descendants);
        let Some(leaf) = &descendants.contained().leaf else { return false };
        let processes = leaf.processes();
        for pid in &processes {
            self.record(*pid);
            await_end(dying, pidfd_open(*pid, PidfdFlags::empty()).ok());
        }
        if processes.is_empty() {
            // The folder cannot be removed while a dying process is in it.
            return leaf.remove().is_err();
        }
        if let Err(error) = leaf.kill() {
            tracing::debug!(%error, "a control group could not be killed");
        }
        true
    }

    /// Without a control group two clean rounds are needed: a process may start another one and end. A round can be too
    /// early for the new process and too late for the old one.
    fn is_done(&self) -> bool {
        let needed = if self.descendants.contained().by() == ContainedBy::Cgroup { 1 } else { 2 };
        self.clean_rounds >= needed || self.rounds >= ROUNDS
    }

    fn finish(self) {
        if self.clean_rounds == 0 {
            tracing::warn!(
                pid = self.descendants.leader().as_raw_pid(),
                "what this CLI has started could not be ended"
            );
        }
        self.descendants.set_swept(self.killed.into_values().collect());
    }
}

fn round(open: &mut Vec<Sweep>) {
    let mut dying = Vec::new();
    let mut found: Vec<bool> = open.iter_mut().map(|sweep| sweep.kill_control_group(&mut dying)).collect();
    let swept: Vec<_> = open.iter().map(|sweep| Arc::clone(&sweep.descendants)).collect();
    let marks: Vec<_> = swept.iter().map(|it| it.contained().mark.as_deref().unwrap_or_default()).collect();
    let searched = mark::scan(&marks, &mut Patience::default(), |nth, pid| {
        found[nth] = true;
        if let Some(pidfd) = kill_marked(marks[nth], pid, || open[nth].record(pid)) {
            await_end(&mut dying, pidfd);
        }
    });
    if let Err(error) = searched {
        tracing::debug!(%error, "what CLIs have started is searched for once more");
        found.fill(true);
    }
    for (sweep, found) in open.iter_mut().zip(&found) {
        sweep.rounds += 1;
        sweep.clean_rounds = if *found { 0 } else { sweep.clean_rounds + 1 };
    }
    open.extract_if(.., |sweep| sweep.is_done()).for_each(Sweep::finish);
    if found.contains(&true) {
        wait(&mut dying);
    }
}

/// Kills the process if it still has the mark, because its id may have been reused since the scan. Returns `None` if
/// not.
fn kill_marked(mark: &str, pid: Pid, record: impl FnOnce()) -> Option<Option<OwnedFd>> {
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok();
    if !mark::has(mark, pid) {
        return None;
    }
    record();
    // Fails if the process has ended, or now runs as another user.
    match &pidfd {
        Some(pidfd) => pidfd_send_signal(pidfd, Signal::KILL).ok(),
        // Systems before Linux 5.3. The mark was seen a moment ago.
        None => kill_process(pid, Signal::KILL).ok(),
    };
    Some(pidfd)
}

fn await_end(dying: &mut Vec<OwnedFd>, pidfd: Option<OwnedFd>) {
    dying.extend(pidfd.filter(|_| dying.len() < AWAITED));
}

/// Waits until all have ended, or none has ended for [`PAUSE`].
fn wait(dying: &mut Vec<OwnedFd>) {
    loop {
        let mut events: Vec<_> = dying.iter().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)).collect();
        if !poll(&mut events, Some(&PAUSE)).is_ok_and(|ended| ended > 0) {
            return;
        }
        let mut ended =
            events.iter().map(|event| !event.revents().is_empty()).collect::<Vec<_>>().into_iter();
        dying.retain(|_| !ended.next().unwrap_or_default());
        if dying.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;

    use super::super::containment::Contained;
    use super::*;

    #[test]
    fn a_process_that_ends_before_it_is_recorded_is_no_leftover() {
        #[expect(clippy::disallowed_methods, reason = "the process is started without the code under test")]
        let mut command = std::process::Command::new("/bin/cat");
        let mut leader = command.stdin(std::process::Stdio::piped()).process_group(0).spawn().unwrap();
        let mut sweep =
            Sweep::new(Arc::new(Descendants::new(Pid::from_child(&leader), Contained::default())));
        sweep.record(Pid::from_child(&leader));
        // Greater than the greatest process id.
        sweep.record(Pid::from_raw(2_000_000_000).unwrap());
        assert_eq!(sweep.killed.len(), 0);
        sweep.record(rustix::process::getpid());
        assert_eq!(sweep.killed.len(), 1);
        drop(leader.stdin.take());
        leader.wait().unwrap();
    }
}
