//! Ends the processes that are known by their environment, by a mark or by another variable, or by their status.
//!
//! ```text
//!        ┌─ found one that it had not found before: SIGSTOP ─┐
//! round ─┴─► search ──found no other──► SIGKILL to all, the newest process first ──► the next round
//!              └──found none──► clean       │ its environment is another one
//!                                           └─► SIGCONT
//! ```
//!
//! Processes are stopped before they are killed. A stopped process starts no other one, and does not notice that a process
//! that it waits for has ended. The newest process is killed first: the system continues stopped processes whose parent has
//! ended, if the parent's end leaves their process group without a link to another group of the session.
//!
//! A process may get SIGSTOP while it executes a program with another environment. It is not killed, and must not stay stopped.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use crate::environment::{self, Facts, Patience, Since};
use crate::identity::started;

/// Most rounds for an application that kills processes.
#[cfg(target_os = "linux")]
pub(crate) const ROUNDS: u32 = 64;

/// Most searches of one round. A process that was found in the last search is killed without a search after it.
const SEARCHES: u32 = 16;

/// The next round starts when no killed process has ended for this long.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Looks of a round at stopped processes that are in `execve`.
const LOOKS: u32 = 20;

/// Most processes whose end one round waits for.
const AWAITED: usize = 64;

/// Kills all processes whose environment, or status, `select` takes, until two rounds in a row find none and `done` is true. Each round has
/// the `patience` for processes that are between two programs.
///
/// # Errors
/// There may be such a process after so many rounds, or when the time of `patience` is over.
pub(crate) fn kill_all(
    facts: Facts,
    select: impl Fn(&[u8]) -> Option<usize>,
    rounds: u32,
    patience: Patience,
    done: impl Fn() -> bool,
) -> io::Result<()> {
    let mut clean = 0;
    for _ in 0..rounds {
        let (mut found, mut dying, mut patience) = (false, Dying::default(), patience);
        let searched = round(facts, &select, &mut patience, &mut dying, |_| (), |_, ()| found = true);
        clean = if !done() || found || searched.is_err() { 0 } else { clean + 1 };
        if clean == 2 {
            return Ok(());
        }
        if patience.is_over() {
            break;
        }
        if clean == 0 {
            dying.wait();
        }
    }
    Err(io::Error::other("processes were killed and have not ended, or there may be others"))
}

/// Stops and then kills all processes whose environment, or status, `select` takes. Calls `look` for each when it is stopped, and
/// `killed`, with what `select` and `look` have returned, for each that was killed or has ended since.
///
/// # Errors
/// There may be processes that were not found.
pub(crate) fn round<T>(
    facts: Facts,
    select: impl Fn(&[u8]) -> Option<usize>,
    patience: &mut Patience,
    dying: &mut Dying,
    mut look: impl FnMut(Pid) -> T,
    mut killed: impl FnMut(usize, T),
) -> io::Result<()> {
    let (mut stopped, mut since) = (BTreeMap::new(), Since::default());
    let (mut searched, mut lost, mut looks) = (Ok(()), 0, LOOKS);
    for _ in 0..SEARCHES {
        let before = stopped.len() + lost;
        searched = environment::each(facts, patience, &mut since, |pid, environment| {
            let Some(selected) = select(environment) else { return };
            match signal(facts, &select, pid, Signal::STOP) {
                Some(_) => {
                    let found = || (pid, selected, started(pid), look(pid));
                    stopped.entry(pid.as_raw_pid()).or_insert_with(found);
                }
                None => lost += 1,
            }
        });
        if stopped.len() + lost == before {
            break;
        }
        if patience.is_over() {
            searched = searched.and(Err(io::Error::from(io::ErrorKind::TimedOut)));
            break;
        }
    }
    if lost > 0 {
        searched = searched.and(Err(is_another()));
    }
    for (pid, selected, begin, looked) in stopped.into_values().rev() {
        begin_program(pid, patience, &mut looks);
        match signal(facts, &select, pid, Signal::KILL) {
            Some(pidfd) => {
                dying.add(pidfd);
                killed(selected, looked);
            }
            None => {
                // The system ends stopped processes whose group loses its last link to the session.
                if begin.is_some() && started(pid) != begin {
                    killed(selected, looked);
                } else {
                    go_on(pid, begin);
                }
                searched = searched.and(Err(is_another()));
            }
        }
    }
    searched
}

fn is_another() -> io::Error {
    io::Error::other("a process ended, or was between two programs")
}

/// Waits for a stopped process that is in `execve`: it stops when it has begun the program.
#[expect(
    clippy::disallowed_methods,
    reason = "a search blocks its thread anyway, and the system tells no event"
)]
fn begin_program(pid: Pid, patience: &Patience, looks: &mut u32) {
    while *looks > 0 && !patience.is_over() && environment::is_between_programs(pid) {
        *looks -= 1;
        std::thread::sleep(environment::PAUSE);
    }
}

/// Continues a process that was stopped, unless it has ended and its id was reused. A descriptor of each stopped process would
/// tell as well, but there may be more processes than descriptors.
fn go_on(pid: Pid, begin: Option<u64>) {
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok();
    if begin.is_none() || started(pid) != begin {
        return;
    }
    send(pidfd.as_ref(), pid, Signal::CONT);
}

/// Sends the signal to the process if `select` still takes it, because its id may have been reused since the search. Returns
/// `None` if it does not.
fn signal(
    facts: Facts,
    select: &impl Fn(&[u8]) -> Option<usize>,
    pid: Pid,
    signal: Signal,
) -> Option<Option<OwnedFd>> {
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok();
    select(&environment::of(facts, pid).ok()?)?;
    send(pidfd.as_ref(), pid, signal);
    Some(pidfd)
}

/// Sends the signal to a process that was recognised after the descriptor was opened.
fn send(pidfd: Option<&OwnedFd>, pid: Pid, signal: Signal) {
    // Fails if the process has ended, or now runs as another user.
    match pidfd {
        Some(pidfd) => pidfd_send_signal(pidfd, signal).ok(),
        // Systems before Linux 5.3. The process was recognised a moment ago.
        None => kill_process(pid, signal).ok(),
    };
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;
    use std::time::Duration;

    use rustix::process::{WaitId, WaitIdOptions, waitid};

    use super::*;
    use crate::mark;
    use crate::wait::found_by_thread;

    /// A child that was started has its environment a moment later.
    fn has_mark(mark: &str, pid: Pid) {
        found_by_thread("a program with the mark", || mark::has(mark, pid).then_some(()));
    }

    #[test]
    fn a_stopped_process_that_loses_its_mark_goes_on_and_is_not_told() {
        let mark = format!("lost{}", uuid::Uuid::new_v4().simple());
        #[expect(clippy::disallowed_methods, reason = "the process is started without the code under test")]
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", "read line; exec env -i /bin/cat"]).env(mark::VARIABLE, &mark);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        has_mark(&mark, pid);
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut echo = |text: &str| {
            stdin.write_all(text.as_bytes()).unwrap();
            stdout.read_exact(&mut [0]).unwrap();
        };
        let stopped = || waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).unwrap();
        // Takes its mark away between the search and the kill.
        let look = |found: Pid| {
            assert_eq!(found, pid);
            stopped();
            kill_process(pid, Signal::CONT).unwrap();
            // A line for the shell, and what its next program sends back.
            echo("\nx");
            kill_process(pid, Signal::STOP).unwrap();
            stopped();
        };
        let mut told = 0;
        let select = |environment: &[u8]| mark::position(&[&mark], environment);
        let ended = round(
            Facts::Environment,
            select,
            &mut Patience::default(),
            &mut Dying::default(),
            look,
            |_, ()| told += 1,
        );
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap();
        let is_stopped = stat.contains(") T ");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_stopped, "it stays stopped: {stat}");
        assert_eq!(told, 0, "it was not killed");
        assert!(ended.is_err(), "nobody knows what it has started");
    }

    #[test]
    fn a_search_whose_time_is_over_kills_what_it_has_found() {
        let mark = format!("late{}", uuid::Uuid::new_v4().simple());
        #[expect(clippy::disallowed_methods, reason = "the process is started without the code under test")]
        let mut command = std::process::Command::new("/bin/cat");
        let mut child = command.env(mark::VARIABLE, &mark).stdin(Stdio::piped()).spawn().unwrap();
        has_mark(&mark, Pid::from_child(&child));
        let mut patience = Patience::of(Duration::ZERO, Some(Duration::ZERO));
        let mut told = 0;
        let select = |environment: &[u8]| mark::position(&[&mark], environment);
        let ended = round(
            Facts::Environment,
            select,
            &mut patience,
            &mut Dying::default(),
            |_| (),
            |_, ()| told += 1,
        );
        assert!(ended.is_err(), "there may be others");
        assert_eq!(told, 1);
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}
