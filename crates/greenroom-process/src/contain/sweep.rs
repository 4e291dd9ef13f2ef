//! Kills the descendants that a child has left behind, and reports them.
//!
//! ```text
//! killed ──► control group: list, kill ──► marked processes: stop, kill (ending.rs) ──┐
//!                ▲                                                                    │ found any
//!                └────────────────── wait for the killed ones to end ◄────────────────┤
//!                                                        found none, or ROUNDS passed └──► swept
//! ```
//!
//! A thread (`greenroom-sweep`) does this, because it reads files of the system and must work without a runtime. The
//! thread starts with the first child that is killed and ends when no sweep is left. Sweeps that run at the same
//! time share each scan of the process list.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::{Pid, PidfdFlags, getpgid, pidfd_open};

use super::containment::{Descendants, Swept};
use super::ending::{self, Dying};
use crate::environment::{Facts, Patience};
use crate::lock;
use crate::mark;
use crate::{ContainedBy, Leftover};

/// Most rounds of one sweep. Processes that are left then cannot be killed, or fork faster than they die.
const ROUNDS: u32 = 64;

/// Most processes of a round that are named if they are left.
const MOST_LEFT: usize = 64;

static SWEEPER: Mutex<Sweeper> = Mutex::new(Sweeper { waiting: Vec::new(), thread_runs: false });

struct Sweeper {
    waiting: Vec<Arc<Descendants>>,
    thread_runs: bool,
}

/// Sweeps the descendants of a child whose process group was killed.
pub(crate) fn submit(descendants: Arc<Descendants>) {
    {
        let mut sweeper = lock(&SWEEPER);
        sweeper.waiting.push(descendants);
        if std::mem::replace(&mut sweeper.thread_runs, true) {
            return;
        }
    }
    if thread::Builder::new().name("greenroom-sweep".into()).spawn(serve).is_err() {
        serve();
    }
}

fn serve() {
    let mut open = Vec::new();
    loop {
        {
            let mut sweeper = lock(&SWEEPER);
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

/// The sweep of one child.
struct Sweep {
    descendants: Arc<Descendants>,
    /// Processes outside the process group that were found in any round.
    killed: BTreeMap<i32, Leftover>,
    /// Processes that were found in this round.
    found: BTreeMap<i32, Leftover>,
    rounds: u32,
    /// Rounds in a row that found nothing.
    clean_rounds: u32,
}

impl Sweep {
    fn new(descendants: Arc<Descendants>) -> Self {
        Self { descendants, killed: BTreeMap::new(), found: BTreeMap::new(), rounds: 0, clean_rounds: 0 }
    }

    /// Records a process that is killed. Members of the process group were killed with it and are no leftovers.
    fn record(&mut self, seen: Option<Seen>) {
        let Some(Seen { pid, group, leftover }) = seen else { return };
        let leader = self.descendants.leader;
        if pid != leader && group != leader {
            self.killed.entry(pid.as_raw_pid()).or_insert_with(|| leftover.clone());
        }
        if self.found.len() < MOST_LEFT {
            self.found.insert(pid.as_raw_pid(), leftover);
        }
    }

    /// Kills all processes in the control group. Returns false if there are none.
    fn kill_control_group(&mut self, dying: &mut Dying) -> bool {
        let descendants = Arc::clone(&self.descendants);
        let Some(leaf) = &descendants.contained.leaf else { return false };
        let processes = leaf.processes();
        for pid in &processes {
            self.record(Seen::of(*pid));
            dying.add(pidfd_open(*pid, PidfdFlags::empty()).ok());
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

    /// Without a control group two clean rounds are needed: a process that is being started has a number before it can be seen,
    /// and not every system tells the last number.
    fn is_done(&self) -> bool {
        let needed = if self.descendants.contained.by == ContainedBy::Cgroup { 1 } else { 2 };
        self.clean_rounds >= needed || self.rounds >= ROUNDS
    }

    /// Counts a round, in which processes were `found` or not.
    fn count(&mut self, found: bool) {
        self.rounds += 1;
        self.clean_rounds = if found { 0 } else { self.clean_rounds + 1 };
        self.descendants.set_left(std::mem::take(&mut self.found).into_values().collect());
    }

    fn finish(mut self) {
        for left in self.descendants.left() {
            self.killed.remove(&left.pid.cast_signed());
        }
        let is_known = self.clean_rounds > 0;
        if !is_known {
            tracing::warn!(
                pid = self.descendants.leader.as_raw_pid(),
                "what this child has started could not be ended"
            );
        }
        self.descendants.set_swept(Swept { killed: self.killed.into_values().collect(), is_known });
    }
}

/// A process as the system shows it before its end.
struct Seen {
    pid: Pid,
    group: Pid,
    leftover: Leftover,
}

impl Seen {
    /// `None` for a process that has just ended: it may have been a member of the group.
    fn of(pid: Pid) -> Option<Self> {
        let group = getpgid(Some(pid)).ok()?;
        let name = std::fs::read(format!("/proc/{}/comm", pid.as_raw_pid())).ok()?;
        let name = String::from_utf8_lossy(&name).trim_end().to_owned();
        Some(Self { pid, group, leftover: Leftover { pid: pid.as_raw_pid().unsigned_abs(), name } })
    }
}

fn round(open: &mut Vec<Sweep>) {
    let mut dying = Dying::default();
    let mut found: Vec<bool> = open.iter_mut().map(|sweep| sweep.kill_control_group(&mut dying)).collect();
    let swept: Vec<_> = open.iter().map(|sweep| Arc::clone(&sweep.descendants)).collect();
    let marks: Vec<_> = swept.iter().map(|it| it.contained.mark.as_deref().unwrap_or_default()).collect();
    let select = |environment: &[u8]| mark::position(&marks, environment);
    let (facts, mut patience) = (Facts::Environment, Patience::default());
    let ended = ending::round(facts, select, &mut patience, &mut dying, Seen::of, |nth, seen| {
        found[nth] = true;
        open[nth].record(seen);
    });
    if let Err(error) = ended {
        tracing::debug!(%error, "what children have started is searched for once more");
        found.fill(true);
    }
    open.iter_mut().zip(&found).for_each(|(sweep, found)| sweep.count(*found));
    open.extract_if(.., |sweep| sweep.is_done()).for_each(Sweep::finish);
    if found.contains(&true) {
        dying.wait();
    }
}

// Guards: a killed process of a CLI does not end within `timeouts.reap`
#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;

    use super::super::containment::Contained;
    use super::*;
    use crate::Containment;

    #[test]
    fn only_a_sweep_whose_last_round_was_clean_knows_what_is_left() {
        for found in [true, false] {
            let descendants = Arc::new(Descendants::new(rustix::process::getpid(), Contained::default()));
            let mut sweep = Sweep::new(Arc::clone(&descendants));
            assert!(!descendants.is_known());
            sweep.count(found);
            sweep.finish();
            assert_eq!(descendants.is_known(), !found);
        }
    }

    #[test]
    fn a_process_that_ends_before_it_is_recorded_is_no_leftover() {
        #[expect(clippy::disallowed_methods, reason = "the process is started without the code under test")]
        let mut command = std::process::Command::new("/bin/cat");
        let mut leader = command.stdin(std::process::Stdio::piped()).process_group(0).spawn().unwrap();
        let mut sweep =
            Sweep::new(Arc::new(Descendants::new(Pid::from_child(&leader), Contained::default())));
        sweep.record(Seen::of(Pid::from_child(&leader)));
        // Greater than the greatest process id.
        sweep.record(Seen::of(Pid::from_raw(2_000_000_000).unwrap()));
        assert_eq!(sweep.killed.len(), 0);
        sweep.record(Seen::of(rustix::process::getpid()));
        assert_eq!(sweep.killed.len(), 1);
        drop(leader.stdin.take());
        leader.wait().unwrap();
    }

    /// A process of another user, and a host without the capability to end it.
    #[test]
    fn a_process_that_cannot_be_ended_is_left_and_named() {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

        let mut contained = Contained::prepare(Containment::Mark, None).unwrap();
        #[expect(clippy::disallowed_methods, reason = "the process is started without the code under test")]
        let mut command = std::process::Command::new("/bin/cat");
        command.stdin(std::process::Stdio::piped()).process_group(0);
        let is_root = rustix::process::getuid().is_root();
        if is_root {
            command.uid(65_534).gid(65_534);
        }
        contained.apply(&mut command);
        let mut child = command.spawn().unwrap();
        let pid = Pid::from_child(&child);
        // Nobody but root can start it, and without `CAP_SYS_PTRACE` nobody finds it.
        let stays = is_root && contained.confirm(pid).is_ok();
        let descendants = Arc::new(Descendants::new(pid, contained));
        let mut open = vec![Sweep::new(Arc::clone(&descendants))];
        let sweep = move || {
            // Changes this thread only.
            let mut own = capabilities(None).unwrap();
            own.effective -= CapabilitySet::KILL;
            set_capabilities(None, own).unwrap();
            while !open.is_empty() {
                round(&mut open);
            }
        };
        thread::spawn(sweep).join().unwrap();
        if !stays {
            // Not with `eprintln!`, which is not shown for a test that passes.
            let note = b"a_process_that_cannot_be_ended_is_left_and_named: not run, for it needs root with CAP_SYS_PTRACE\n";
            std::io::Write::write_all(&mut std::io::stderr(), note).unwrap();
        }
        let left: Vec<_> = descendants.left().into_iter().map(|left| (left.pid, left.name)).collect();
        assert_eq!(left, if stays { vec![(child.id(), "cat".to_owned())] } else { Vec::new() });
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
