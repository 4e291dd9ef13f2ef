//! The guardian as a program: the executable of the host, or another one, started once more.
//!
//! ```text
//! host ──pipe: "+ID/MS/W" and "-ID/…" for groups, "!W/NS/SEQ" for a deadline, "~W" for a watchdog that is gone──► guardian
//!   ▲                                                                                                                │
//!   └───────────────────────────────── pipe: "SEQ" when a deadline is known ─────────────────────────────────────────┘
//! ```
//!
//! | event | the guardian |
//! |---|---|
//! | the pipe ends: the host has ended | waits for the groups, kills what is left, exits: as the script does (`host.rs`). Kills the processes of a watchdog's children as soon as their groups are gone, and at its deadline at the latest |
//! | a watchdog's deadline passes on the boot clock | kills all processes of this watchdog's children, and looks again each second until the deadline is extended |
//!
//! So the sessions of a host that is stopped end at the deadline as well. A session of watchdog `W` is found by its group, and
//! by the beginning of its mark and of its control group's name, which hold `W`; a child that the host could not tell of
//! any more is found too.
//!
//! It has one thread. It waits in `poll`, and for the system while it reads of processes to kill.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal, test_kill_process_group,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::acknowledgements::ACKNOWLEDGE;
use super::boot_time::BootTime;
use crate::contain::cgroup;
use crate::contain::ending;
use crate::environment::{Facts, Patience};
use crate::mark;

/// Set for a program that is to be the guardian: the version of the host's library.
pub(super) const VARIABLE: &str = "GREENROOM_GUARDIAN";

/// Exit statuses of a program that cannot be the guardian.
pub(super) const OTHER_VERSION: i32 = 3;
pub(super) const NO_GUARDIAN: i32 = 4;

/// Pause between two looks for processes that should end.
const PAUSE: Duration = Duration::from_millis(100);

/// The wait of each round for processes that are between two programs.
const PATIENCE: Duration = Duration::from_millis(100);

/// Time after which the searches at a deadline end, and what they have found is killed. The guardian acknowledges no deadline
/// meanwhile. There are other searches after [`AGAIN`].
const SEARCH: Duration = Duration::from_millis(400);

// The rest is for the kill, and for a machine under load.
const _: () = assert!(SEARCH.as_millis() + 300 <= ACKNOWLEDGE.as_millis());

/// Time after which the children of a watchdog whose deadline has passed are looked for again.
const AGAIN: Duration = Duration::from_secs(1);

/// Most rounds of the last search for marked processes.
const ROUNDS: u32 = 250;

/// Most rounds of a search at a deadline.
const ROUNDS_AT_A_DEADLINE: u32 = 5;

/// Runs the guardian if this process was started as one, and ends the process then.
pub(super) fn run_if_asked() {
    let Some(version) = std::env::var_os(VARIABLE) else { return };
    let status = if version != env!("CARGO_PKG_VERSION") {
        OTHER_VERSION
    } else {
        ignore_signals();
        close_inherited();
        match Program::of_arguments(std::env::args_os().skip(1)) {
            Some(program) => program.run().map_or(NO_GUARDIAN, |()| 0),
            None => NO_GUARDIAN,
        }
    };
    std::process::exit(status);
}

/// Ignores the signals that a terminal or a supervisor sends to all processes.
fn ignore_signals() {
    use libc::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2};

    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGTSTP, SIGTTIN, SIGTTOU] {
        // SAFETY: `SIG_IGN` runs no code of this process. No safe interface in the dependencies sets it.
        unsafe {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

/// Closes the descriptors that the host has left open for every program that it starts: somebody may wait for their end. The
/// program may have opened descriptors before the call of `init`, such as those of a runtime; these are closed on `execve`.
fn close_inherited() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<RawFd> =
        open.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok())).collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // SAFETY: reads the flags of a number, which need not be a descriptor.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFD) };
        if flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
            // SAFETY: this program opens no descriptor that stays open on `execve`, so it does not own this one.
            unsafe {
                libc::close(descriptor);
            }
        }
    }
}

/// A process group that the host has told of.
#[derive(Debug)]
struct Member {
    grace: Duration,
    /// `0`: the group has no watchdog.
    watchdog: u64,
    /// The leader, while it is not reaped.
    leader: Option<OwnedFd>,
}

#[derive(Debug)]
struct Program {
    /// The beginning of all marks of the host.
    mark: String,
    /// The folder of its control groups.
    base: Option<PathBuf>,
    /// The system does not ask the children to end.
    asks: bool,
    groups: BTreeMap<i32, Member>,
    deadlines: BTreeMap<u64, BootTime>,
    acknowledge: u64,
}

impl Program {
    fn of_arguments(mut arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let mark = arguments.next()?.into_string().ok().filter(|mark| !mark.is_empty())?;
        let base = Some(PathBuf::from(arguments.next()?)).filter(|base| !base.as_os_str().is_empty());
        let asks = !arguments.next()?.is_empty();
        let (groups, deadlines) = (BTreeMap::new(), BTreeMap::new());
        let mut program = Self { mark, base, asks, groups, deadlines, acknowledge: 0 };
        for word in arguments {
            program.line(word.to_str()?);
        }
        Some(program)
    }

    fn run(mut self) -> io::Result<()> {
        let (input, output) = (io::stdin(), io::stdout());
        rustix::io::ioctl_fionbio(&input, true)?;
        rustix::io::ioctl_fionbio(&output, true)?;
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let mut text = Vec::new();
        let mut acknowledged = 0;
        loop {
            let ended = self.read(&input, &mut text)?;
            if self.acknowledge > acknowledged {
                acknowledged = self.acknowledge;
                // Fails if the host reads nothing or has ended: it takes the missing word for a guardian that is gone.
                rustix::io::write(&output, format!("{acknowledged}\n").as_bytes()).ok();
            }
            if ended {
                self.end_of_host();
                return Ok(());
            }
            let next = self.pass_deadlines();
            set(&timer, next)?;
            let mut events = [PollFd::new(&input, PollFlags::IN), PollFd::new(&timer, PollFlags::IN)];
            match poll(&mut events, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads all lines that the host has written. `true`: the host has ended.
    fn read(&mut self, input: impl AsFd, text: &mut Vec<u8>) -> io::Result<bool> {
        let mut part = [0; 4096];
        loop {
            match rustix::io::read(&input, &mut part) {
                Ok(0) => return Ok(true),
                Ok(read) => text.extend_from_slice(&part[..read]),
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
            while let Some(end) = memchr::memchr(b'\n', text) {
                let line: Vec<u8> = text.drain(..=end).collect();
                if let Ok(line) = std::str::from_utf8(&line[..end]) {
                    self.line(line);
                }
            }
        }
    }

    /// A line, or a word of the arguments. Only the host writes lines, so none is wrong.
    fn line(&mut self, line: &str) {
        let mut numbers = line.get(1..).unwrap_or_default().split('/').map(str::parse::<u64>);
        let mut number = || numbers.next().and_then(Result::ok);
        match line.as_bytes().first() {
            Some(b'+') => {
                let Some((id, grace, watchdog)) = group(number(), number(), number()) else { return };
                let leader = pidfd_open(id, PidfdFlags::empty()).ok();
                let grace = Duration::from_millis(grace);
                self.groups.insert(id.as_raw_pid(), Member { grace, watchdog, leader });
            }
            Some(b'-') => {
                if let Some((id, ..)) = group(number(), Some(0), Some(0)) {
                    self.groups.remove(&id.as_raw_pid());
                }
            }
            Some(b'!') => {
                let (Some(watchdog), Some(until), Some(seq)) = (number(), number(), number()) else { return };
                let deadline = self.deadlines.entry(watchdog).or_default();
                *deadline = BootTime::from_nanos(until).max(*deadline);
                self.acknowledge = self.acknowledge.max(seq);
            }
            Some(b'~') => {
                if let Some(watchdog) = number() {
                    self.deadlines.remove(&watchdog);
                }
            }
            _ => {}
        }
    }

    /// Kills the children of watchdogs whose deadline has passed. Returns the next moment to look.
    fn pass_deadlines(&self) -> Option<BootTime> {
        let passed = self.passed();
        self.kill(&passed);
        let coming = self.deadlines.iter().filter(|(watchdog, _)| !passed.contains(watchdog));
        let again = (!passed.is_empty()).then(|| BootTime::now() + AGAIN);
        coming.map(|(_, at)| *at).chain(again).min()
    }

    /// The watchdogs whose deadline has passed.
    fn passed(&self) -> Vec<u64> {
        let now = BootTime::now();
        self.deadlines.iter().filter(|(_, at)| **at <= now).map(|(watchdog, _)| *watchdog).collect()
    }

    /// Kills the processes of the children of these watchdogs: the groups of all of them first, which takes no time.
    fn kill(&self, watchdogs: &[u64]) {
        if watchdogs.is_empty() {
            return;
        }
        for (id, member) in self.groups.iter().filter(|(_, member)| watchdogs.contains(&member.watchdog)) {
            // A leader that cannot get a signal is reaped, and the number of its group may be another's.
            let there =
                member.leader.as_ref().is_none_or(|leader| pidfd_send_signal(leader, Signal::KILL).is_ok());
            if there && let Some(id) = Pid::from_raw(*id) {
                kill_process_group(id, Signal::KILL).ok();
            }
        }
        if let Some(base) = &self.base {
            for watchdog in watchdogs {
                cgroup::kill_below(base, &cgroup::leaf_name(Some(*watchdog), ""));
            }
        }
        let marks: Vec<String> = watchdogs
            .iter()
            .map(|watchdog| format!("{}.{}", self.mark, mark::of_watchdog(*watchdog)))
            .collect();
        kill_marked(&marks, ROUNDS_AT_A_DEADLINE, Some(SEARCH), || true);
    }

    /// Ends what the host has left.
    fn end_of_host(mut self) {
        if self.asks {
            self.signal_groups(Signal::TERM);
        }
        let begin = Instant::now();
        loop {
            let waited = begin.elapsed();
            self.groups.retain(|id, member| {
                let Some(id) = Pid::from_raw(*id) else { return false };
                if waited >= member.grace {
                    kill_process_group(id, Signal::KILL).ok();
                    return false;
                }
                test_kill_process_group(id).is_ok()
            });
            if self.groups.is_empty() {
                break;
            }
            self.end_watchdogs();
            std::thread::park_timeout(PAUSE);
        }
        if let Some(base) = &self.base {
            // An error: the host has no control groups.
            cgroup::kill_all(base).ok();
        }
        kill_marked(std::slice::from_ref(&self.mark), ROUNDS, None, || {
            self.base.as_ref().is_none_or(|base| cgroup::remove(base).is_ok() || !base.exists())
        });
    }

    /// Kills what is left of watchdogs whose groups are gone, or whose deadline has passed: the groups of others may have a
    /// long time to end.
    fn end_watchdogs(&mut self) {
        let is_gone = |watchdog: &u64| self.groups.values().all(|member| member.watchdog != *watchdog);
        let mut over = self.passed();
        over.extend(self.deadlines.keys().filter(|watchdog| is_gone(watchdog)));
        self.groups.retain(|id, member| {
            let stays = !over.contains(&member.watchdog);
            if !stays && let Some(id) = Pid::from_raw(*id) {
                kill_process_group(id, Signal::KILL).ok();
            }
            stays
        });
        self.kill(&over);
        self.deadlines.retain(|watchdog, _| !over.contains(watchdog));
    }

    fn signal_groups(&self, signal: Signal) {
        for id in self.groups.keys().filter_map(|id| Pid::from_raw(*id)) {
            // An error: the group is empty.
            kill_process_group(id, signal).ok();
        }
    }
}

fn group(id: Option<u64>, grace: Option<u64>, watchdog: Option<u64>) -> Option<(Pid, u64, u64)> {
    Some((Pid::from_raw(i32::try_from(id?).ok()?)?, grace?, watchdog?))
}

/// Kills all processes whose mark begins with one of `marks`.
fn kill_marked(marks: &[String], rounds: u32, time: Option<Duration>, done: impl Fn() -> bool) {
    let marks: Vec<&str> = marks.iter().map(String::as_str).collect();
    let select = |environment: &[u8]| mark::position(&marks, environment);
    // An error: what is left is searched for again, or nobody is there to be told.
    ending::kill_all(Facts::Environment, select, rounds, Patience::of(PATIENCE, time), done).ok();
}

/// Sets the timer to a moment, or switches it off.
fn set(timer: &OwnedFd, at: Option<BootTime>) -> io::Result<()> {
    let off = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A timer at zero is off; the boot clock is past it.
    let it_value = at.map_or(off, BootTime::timespec);
    let timed = Itimerspec { it_interval: off, it_value };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &timed)?;
    Ok(())
}
