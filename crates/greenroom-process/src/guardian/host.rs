//! The host's side of the guardian: one small process that outlives the host and ends what the host leaves behind.
//!
//! When the host ends, the system sends SIGTERM to its children, where it knows a parent-death signal. But a child may hang, and
//! what it has started may survive it. So a host starts a guardian
//! before its first child:
//!
//! ```text
//! host ──pipe: "+ID/MS" when a group starts, "-ID/MS" before its leader is reaped──► guardian
//!   └─ ends, so the pipe ends ──► waits until each remaining group is empty, for at most MS ──► SIGKILL to the group
//!                              ──► SIGKILL to all in the host's control groups, and to all marked processes ──► exit
//! ```
//!
//! - Only the host holds the writing end (close-on-exec), so the pipe ends when the host ends, also by a normal exit. A fork
//!   of the host that executes nothing holds the pipe too; then it ends with the last such fork.
//! - Lines are read in order and before the end of the pipe, so a group whose `-` was written is never killed. A group that
//!   was not taken off has members, or a leader that the host could have reaped only a moment ago, so its id is not reused.
//!   From then on the guardian looks at the groups every 100 ms and forgets the empty ones.
//! - Control groups and marks contain the host's name (`contain/containment.rs`), so the guardian needs no line for each.
//! - It has a process group of its own and ignores the signals that a terminal or a supervisor sends to all. It has no
//!   session of its own: a stopped guardian is continued by the system when its group is orphaned, which is when the host
//!   ends.
//! - It is the host's own program, started once more, if the host has called `guardian::init` (`program.rs`). Only a program can
//!   be a watchdog (`watchdog.rs`). Else it is a shell, because a library has no program of its own to start: `/bin/sh` with
//!   `guardian.sh`, which needs only builtins and works better with `sleep`, `grep` and `rmdir`. Without a shell the host
//!   runs without a guardian.
//! - The host never waits for it: a line is written only if the pipe has room. If the pipe is full, the guardian is replaced
//!   by one that is told all groups at its start; one that has ended is replaced when its end is noticed (`exits.rs`).

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::acknowledgements::Acknowledgements;
use super::boot_time::BootTime;
use super::running::{Deadline, GuardianProcess, Watched, command};
use crate::contain::containment::{self, Host};
use crate::exits::{self, WatchedChild};
use crate::lock;

const SHELL: &str = "/bin/sh";

/// `PATH` for `sleep`, `grep` and `rmdir`: only folders that no other user can write to.
const PATH: &str = "/usr/bin:/bin:/run/current-system/sw/bin";

/// After this many guardians in a row that ended within a second, no other is started until the next child starts.
const SHORT_LIVED: u32 = 5;

/// Whether the system sends the child a signal when the host ends (`start/spawn.rs`).
const SYSTEM_ASKS: bool = cfg!(any(target_os = "linux", target_os = "android", target_os = "freebsd"));

/// The guardian of this process, not of each child: a thousand children should not cost a thousand shells.
static GUARDIAN: Mutex<Guardian> = Mutex::new(Guardian::new(SHELL));

/// The program that runs as the guardian in place of the shell.
static PROGRAM: Mutex<Option<PathBuf>> = Mutex::new(None);

pub(super) fn set_program(path: PathBuf) {
    *lock(&PROGRAM) = Some(path);
}

/// The program that runs as the guardian. `None`: a shell does.
pub(super) fn program() -> Option<PathBuf> {
    lock(&PROGRAM).clone()
}

/// Starts the guardian if none runs. Returns whether one runs now.
pub(crate) fn ready() -> bool {
    update(|guardian| {
        let warning = guardian.ready();
        (guardian.running.is_some(), warning)
    })
}

/// Tells the guardian of a group that has just started, which may live for `grace` after the host has ended, and not longer than
/// its watchdog's deadline.
pub(crate) fn watch(group: Pid, grace: Duration, watchdog: Option<u64>) {
    update(|guardian| ((), guardian.watch(group, grace, watchdog)));
}

/// Takes a group off, just before its leader is reaped and the id can be reused.
pub(crate) fn forget(group: Pid) {
    update(|guardian| (guardian.forget(group), None));
}

/// Moves a watchdog's deadline, and blocks until a guardian has acknowledged that: this one, or the one that replaces it.
pub(super) fn extend(watchdog: u64, until: BootTime) -> io::Result<()> {
    let (seq, words) = update(|guardian| split(guardian.extend(watchdog, until)))?;
    let Err(error) = words.wait(seq) else { return Ok(()) };
    let words = update(|guardian| split(guardian.replace(&words, error)))?;
    words.wait(seq)
}

fn split<T>(result: io::Result<(T, Option<Warning>)>) -> (io::Result<T>, Option<Warning>) {
    match result {
        Ok((value, warning)) => (Ok(value), warning),
        Err(error) => (Err(error), None),
    }
}

/// Forgets a watchdog whose handles and children are gone.
pub(super) fn drop_watchdog(watchdog: u64) {
    update(|guardian| (guardian.drop_watchdog(watchdog), None));
}

/// A guardian has ended: starts another, unless that has happened already.
fn ended() {
    update(|guardian| ((), guardian.ended()));
}

/// Changes the guardian of this process. After the lock is released, has the end of a new one watched and logs the
/// warning: a subscriber may take its time.
fn update<T>(change: impl FnOnce(&mut Guardian) -> (T, Option<Warning>)) -> T {
    let mut guardian = lock(&GUARDIAN);
    let (result, warning) = change(&mut guardian);
    let started = guardian.unwatched.take();
    drop(guardian);
    if let Some(exit) = started
        && let Err(error) = exits::watch(&exit)
    {
        tracing::debug!(%error, "the end of the guardian will be noticed at the next start of a child");
    }
    match warning {
        None => {}
        Some(Warning::Replaced(error)) => tracing::warn!(%error, "lost the guardian, and started another"),
        Some(Warning::Missing(error)) => tracing::warn!(
            %error,
            "no guardian: should this process be killed, what its children have started may stay"
        ),
    }
    result
}

#[derive(Debug)]
enum Warning {
    /// There is no guardian. Reported once.
    Missing(io::Error),
    /// The guardian had ended or did not read, and was replaced.
    Replaced(io::Error),
}

/// The number of a deadline that was told, and the words of the guardian that acknowledges it.
type Told = (u64, Arc<Acknowledgements>);

/// The host's side of the guardian. Dropping it ends the pipe, which the guardian takes for the end of the host.
#[derive(Debug)]
struct Guardian {
    shell: &'static str,
    path: &'static str,
    /// The host whose marks and control groups the guardian ends: this process, or the host that a test plays.
    name: Option<Arc<Host>>,
    running: Option<GuardianProcess>,
    /// A guardian that was started and whose end nobody watches yet.
    unwatched: Option<Arc<GuardianExit>>,
    /// The program to start in place of the shell, for tests. Default: that of the process.
    program: Option<PathBuf>,
    groups: BTreeMap<i32, Watched>,
    /// The deadlines by the numbers of their watchdogs.
    deadlines: BTreeMap<u64, Deadline>,
    /// The number of deadlines that were told.
    told: u64,
    /// [`Warning::Missing`] was returned.
    warned: bool,
    /// Guardians in a row that ended within a second.
    short_lived: u32,
}

/// The end of one guardian.
#[derive(Debug)]
struct GuardianExit {
    id: Pid,
    pidfd: Option<OwnedFd>,
}

impl WatchedChild for GuardianExit {
    fn pidfd(&self) -> Option<&OwnedFd> {
        self.pidfd.as_ref()
    }

    fn poll_exit(&self) -> bool {
        ended();
        true
    }

    fn wait_exit(&self) {
        // An error means that someone else has reaped it: it has ended, too.
        exits::wait_without_reaping(self.id).ok();
        ended();
    }

    fn thread_name(&self) -> &'static str {
        "greenroom-guard"
    }
}

impl Guardian {
    const fn new(shell: &'static str) -> Self {
        Self {
            shell,
            path: PATH,
            name: None,
            running: None,
            unwatched: None,
            program: None,
            groups: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            told: 0,
            warned: false,
            short_lived: 0,
        }
    }

    fn ready(&mut self) -> Option<Warning> {
        let error = if self.running.is_none() { self.start().err()? } else { return None };
        let first = !std::mem::replace(&mut self.warned, true);
        first.then_some(Warning::Missing(error))
    }

    fn watch(&mut self, group: Pid, grace: Duration, watchdog: Option<u64>) -> Option<Warning> {
        let watched = Watched::new(grace, watchdog);
        self.groups.insert(group.as_raw_pid(), watched);
        let lost = self.tell(|is_program| watched.line('+', group.as_raw_pid(), is_program)).err();
        self.ready().or_else(|| self.replaced(lost?))
    }

    /// The warning after a loss. `None`: there is no other guardian, which was reported before.
    fn replaced(&self, lost: io::Error) -> Option<Warning> {
        self.running.is_some().then_some(Warning::Replaced(lost))
    }

    fn forget(&mut self, group: Pid) {
        let Some(watched) = self.groups.remove(&group.as_raw_pid()) else { return };
        let told = self.tell(|is_program| watched.line('-', group.as_raw_pid(), is_program));
        self.start_after(told);
    }

    /// Starts a guardian in place of one that could not be told, if there is something to guard.
    fn start_after(&mut self, told: io::Result<()>) {
        if told.is_err() && !(self.groups.is_empty() && self.deadlines.is_empty()) {
            // If this fails, the next start of a child tries again and warns.
            self.start().ok();
        }
    }

    /// Moves a deadline. Returns the number by which a guardian acknowledges it, and the guardian's words.
    fn extend(&mut self, watchdog: u64, until: BootTime) -> io::Result<(Told, Option<Warning>)> {
        self.told += 1;
        let seq = self.told;
        let before = self.deadlines.get(&watchdog).map_or(until, |deadline| deadline.until);
        let deadline = Deadline { until: until.max(before), seq };
        self.deadlines.insert(watchdog, deadline);
        let is_shell = self.running.as_ref().is_some_and(|running| running.acknowledgements.is_none());
        let lost = if is_shell {
            // The shell was started before the program was known.
            self.stop();
            None
        } else {
            self.tell(|_| deadline.line(watchdog)).err()
        };
        if self.running.is_none() {
            self.start()?;
        }
        Ok(((seq, self.acknowledgements()?), lost.map(Warning::Replaced)))
    }

    /// Replaces a guardian that has not acknowledged a deadline, unless that has happened already.
    fn replace(
        &mut self,
        silent: &Arc<Acknowledgements>,
        error: io::Error,
    ) -> io::Result<(Arc<Acknowledgements>, Option<Warning>)> {
        let running = self.running.as_ref().and_then(|running| running.acknowledgements.as_ref());
        let is_silent = running.is_some_and(|words| Arc::ptr_eq(words, silent));
        if is_silent || self.running.is_none() {
            // The silent one knows the deadlines before, so it stays if no other one can be started.
            let silent = self.running.take();
            if let Err(error) = self.start() {
                self.running = silent;
                return Err(error);
            }
            if let Some(silent) = silent {
                silent.kill();
            }
        }
        Ok((self.acknowledgements()?, is_silent.then_some(Warning::Replaced(error))))
    }

    fn acknowledgements(&self) -> io::Result<Arc<Acknowledgements>> {
        let running = self.running.as_ref().and_then(|running| running.acknowledgements.clone());
        running.ok_or_else(|| io::Error::other("the guardian of this process is a shell"))
    }

    fn drop_watchdog(&mut self, watchdog: u64) {
        if self.deadlines.remove(&watchdog).is_some() {
            let told = self.tell(|_| format!("~{watchdog}\n"));
            self.start_after(told);
        }
    }

    fn ended(&mut self) -> Option<Warning> {
        let running = self.running.as_mut()?;
        let how = match running.child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => status.to_string(),
            // Someone else in this process has reaped the guardian.
            Err(error) => error.to_string(),
        };
        // A guardian that cannot run on this machine must not be restarted without end.
        self.short_lived = if running.since.elapsed().as_secs() == 0 { self.short_lived + 1 } else { 0 };
        self.running = None;
        if self.short_lived >= SHORT_LIVED {
            return Some(Warning::Missing(io::Error::other(format!("it ends at once ({how})"))));
        }
        let lost = io::Error::other(format!("it has ended ({how})"));
        self.ready().or_else(|| self.replaced(lost))
    }

    fn start(&mut self) -> io::Result<()> {
        let host = self.name.clone().unwrap_or_else(containment::host);
        let program = self.program.clone().or_else(program);
        let mut command = command(program.as_deref(), self.shell, self.path);
        command.arg(&host.mark);
        command.arg(host.base.as_deref().unwrap_or("".as_ref()));
        command.arg(if SYSTEM_ASKS { "" } else { "ask" });
        for (group, watched) in &self.groups {
            let line = watched.line('+', *group, program.is_some());
            // The script takes groups without a sign.
            command.arg(if program.is_some() { line.trim_end() } else { line[1..].trim_end() });
        }
        if program.is_some() {
            command.args(
                self.deadlines
                    .iter()
                    .map(|(watchdog, deadline)| deadline.line(*watchdog).trim_end().to_owned()),
            );
        }
        command.current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stderr(Stdio::null());
        command.stdout(if program.is_some() { Stdio::piped() } else { Stdio::null() });
        let mut child = command.spawn()?;
        let Some(lines) = child.stdin.take() else {
            return Err(io::Error::other("it was started without a pipe"));
        };
        rustix::io::ioctl_fionbio(&lines, true)?;
        let acknowledgements = child.stdout.take().map(Acknowledgements::new).map(Arc::new);
        let id = Pid::from_child(&child);
        self.unwatched = Some(Arc::new(GuardianExit { id, pidfd: exits::pidfd(id) }));
        self.running = Some(GuardianProcess { child, lines, since: Instant::now(), acknowledgements });
        Ok(())
    }

    /// Writes a line if a guardian runs. If that fails, kills the guardian.
    fn tell(&mut self, line: impl FnOnce(bool) -> String) -> io::Result<()> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let told = running.tell(&line(running.acknowledgements.is_some()));
        if told.is_err() {
            self.stop();
        }
        told
    }

    /// Kills the guardian.
    fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.kill();
        }
    }
}
