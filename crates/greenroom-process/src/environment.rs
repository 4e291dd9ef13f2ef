//! Environments of processes, as `/proc` tells them. A search for other facts of processes reads their [`Status`](Facts::Status) in
//! the same way.
//!
//! ```text
//!   a program runs ── execve ──► between two programs ──► the next program runs
//!   environment                  none                     environment
//! ```
//!
//! Between two programs a process shows no environment, for as long as the system reads the next program from its disk.
//! A search looks at such a process again until it shows an environment, because it may be a process that is searched
//! for. The search waits for all such processes together, for a bounded time.
//!
//! Processes may start others and end while the search runs. The system numbers processes one after another, and a parent runs
//! when its child begins. So the search reads the last number, then looks at all listed processes, and then at the numbers that
//! were given since, in rising order, and at some beyond the last one:
//!
//! ```text
//! number   parent ├──────┤
//!    │     child      ├──────┤
//!    ▼     its child      ├──────┤
//!          the search  ╲ meets at least one of them, for none begins after its parent has ended
//! ```
//!
//! If the system gives more numbers meanwhile, the search goes on with the new numbers, and looks further beyond the last one. A
//! process has its number a moment before it can be seen, so each look begins with some numbers of the look before.
//!
//! Not seen: a child that has not begun its first program. It shows the environment of its parent. A process whose environment
//! may not be read hides those that it starts during the search.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, getpid};

use super::numbers::{AHEAD, is_ours, last_number, listed, numbers_from};
use crate::numbers::is_absent;
use crate::stat::Stat;

/// Pause between two looks at processes that are between two programs.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

/// Longest time that a search follows processes that are started while it runs. The time of the list is added [`LISTS`] times:
/// the longer a list takes, the more are started. The wait for processes that are between two programs is added, too.
const LONGEST: Duration = Duration::from_millis(200);
const LISTS: u32 = 4;

/// Most numbers beyond the last one that are looked at: [`AHEAD`] of them, doubled for the next look if more were given meanwhile.
const MOST_AHEAD: i32 = 1 << 13;

/// Most numbers that are looked at one by one. A list has fewer.
const MOST_NUMBERS: i32 = 1 << 15;

/// Looks at a process that shows no environment although it may have one: it may have begun its program, or one of its
/// threads may have become its first thread, between two readings. A process can hide its environment for ever, and
/// delays no search.
const LOOKS: u32 = 5;

/// Room for an environment at first, and at most, in bytes. The system allows 6 MiB.
const ROOM: usize = 128 << 10;
const MOST_ROOM: usize = 8 << 20;

/// The file of a process in `/proc` that a search reads.
#[derive(Clone, Copy)]
pub(crate) enum Facts {
    Environment,
    /// proc_pid_status(5). A process shows it also between two programs, and as a zombie.
    Status,
}

/// How long searches wait, all searches that share it together.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// The rest of the wait for processes that are between two programs.
    between: Duration,
    /// When the searches end.
    end: Option<Instant>,
}

impl Patience {
    /// Waits for processes that are between two programs for `between`, and ends the searches after `total`, except that the
    /// first search looks at each process once.
    pub(crate) fn of(between: Duration, total: Option<Duration>) -> Self {
        Self { between, end: total.map(|total| Instant::now() + total) }
    }

    pub(super) fn is_over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self::of(Duration::from_millis(200), None)
    }
}

/// Where a search has come to. The next one with it looks only at the processes that were started since, and at those that were
/// between two programs.
#[derive(Default)]
pub(crate) struct Since {
    last: Option<i32>,
    between: Vec<Pid>,
}

/// True for a process in `execve`.
#[cfg(target_os = "linux")]
pub(super) fn is_between_programs(pid: Pid) -> bool {
    matches!(state(pid), Ok(State::BetweenPrograms))
}

/// True if this process may read the environment of the process.
pub(super) fn is_readable(pid: Pid) -> bool {
    let refused = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    !File::open(path(Facts::Environment, pid)).is_err_and(refused)
}

/// The environment of a process, or its status. Empty if it shows none at this moment.
///
/// # Errors
/// This process has no file descriptor left, or no memory.
pub(super) fn of(facts: Facts, pid: Pid) -> io::Result<Vec<u8>> {
    let mut environment = vec![0; ROOM];
    let length = read(&path(facts, pid), &mut environment)?.unwrap_or(0);
    environment.truncate(length);
    Ok(environment)
}

/// Calls `look` with the environment, or the status, of each process besides this process, or of those that were started `since` an earlier
/// search. A process may be looked at more than once.
///
/// A process that stays between two programs is missed. Without `/proc/loadavg`, a process may be missed whose parent has
/// started it and ended.
///
/// # Errors
/// A process could not be looked at, or processes are started faster than they can be looked at. The others were.
#[expect(
    clippy::disallowed_methods,
    reason = "a search blocks its thread anyway, and the system tells no event"
)]
pub(super) fn each(
    facts: Facts,
    patience: &mut Patience,
    since: &mut Since,
    mut look: impl FnMut(Pid, &[u8]),
) -> io::Result<()> {
    let own = getpid();
    let mut environment = vec![0; ROOM];
    let mut result = Ok(());
    // Returns whether the process is between two programs.
    let mut visit = |pid: Pid, is_listed: bool| {
        match show(facts, pid, &mut environment) {
            Ok(Shown::Environment(length)) if is_listed || is_process(pid) => {
                look(pid, &environment[..length])
            }
            Ok(Shown::NotYet) => return true,
            Ok(_) => {}
            Err(error) => result = Err(error),
        }
        false
    };
    let (begin, mut waited) = (Instant::now(), Duration::ZERO);
    let Since { last: earlier, mut between } = std::mem::take(since);
    let mut last = match earlier {
        Some(earlier) => Some(earlier),
        None => last_number()?,
    };
    if earlier.is_none() {
        between = listed()?;
    }
    between.retain(|pid| *pid != own && visit(*pid, earlier.is_none()));
    let longest = LONGEST + begin.elapsed() * LISTS;
    let mut beyond = AHEAD;
    let settled = loop {
        let before = std::mem::replace(&mut last, last_number()?);
        let (numbers, ahead) = match before.zip(last) {
            None => (Vec::new(), None),
            Some((before, now)) if (0..=MOST_NUMBERS).contains(&now.saturating_sub(before)) => {
                let ahead = now.saturating_add(beyond);
                (numbers_from(before, ahead), Some(now..=ahead))
            }
            // The numbers have begun anew, or there are too many.
            Some((_, now)) => (listed()?, Some(now..=now)),
        };
        between.extend(numbers.into_iter().filter(|pid| *pid != own && visit(*pid, false)));
        between.sort_unstable_by_key(|pid| pid.as_raw_pid());
        between.dedup();
        let after = last_number()?;
        let is_complete = ahead.is_none_or(|ahead| after.is_some_and(|after| ahead.contains(&after)));
        if is_complete && (between.is_empty() || waited >= patience.between) {
            break true;
        }
        if !is_complete {
            beyond = (beyond * 2).min(MOST_AHEAD);
        }
        if patience.is_over() {
            break false;
        }
        if begin.elapsed() >= longest + patience.between {
            break is_complete;
        }
        if !between.is_empty() {
            let pause = Instant::now();
            std::thread::sleep(PAUSE);
            waited += pause.elapsed();
            between.retain(|pid| visit(*pid, false));
        }
    };
    patience.between = patience.between.saturating_sub(waited);
    if result.is_ok() {
        *since = Since { last, between };
    }
    if settled {
        return result;
    }
    result.and(Err(io::Error::other("processes are started faster than they can be looked at")))
}

/// False for a thread other than the first one of its process. Such threads are not listed, but can be looked at.
fn is_process(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).unwrap_or_default();
    let first = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    first == Some(pid.as_raw_pid())
}

/// The result of a look at a process.
enum Shown {
    /// An environment of this length.
    Environment(usize),
    /// It is between two programs.
    NotYet,
    /// It has ended, has no environment or hides it, or may not be looked at.
    Nothing,
}

fn show(facts: Facts, pid: Pid, environment: &mut Vec<u8>) -> io::Result<Shown> {
    for _ in 0..LOOKS {
        match read(&path(facts, pid), environment)? {
            None => return Ok(Shown::Nothing),
            Some(0) => {}
            Some(length) => return Ok(Shown::Environment(length)),
        }
        match state(pid)? {
            State::Program => {}
            State::BetweenPrograms => return Ok(Shown::NotYet),
            State::OtherThreads if has_ended(pid) => return Ok(Shown::Nothing),
            State::OtherThreads => {
                let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid()));
                for thread in threads.into_iter().flatten().flatten() {
                    if let Some(length @ 1..) = read(&thread.path().join("environ"), environment)? {
                        return Ok(Shown::Environment(length));
                    }
                }
            }
            State::NoEnvironment => return Ok(Shown::Nothing),
        }
    }
    Ok(Shown::Nothing)
}

fn path(facts: Facts, pid: Pid) -> PathBuf {
    let file = match facts {
        Facts::Environment => "environ",
        Facts::Status => "status",
    };
    format!("/proc/{}/{file}", pid.as_raw_pid()).into()
}

/// Reads an environment in one call, which the system answers from one program. Two calls could see two programs. Returns
/// its length; 0 if there is none, or this process may not read it. `None` without such a process.
fn read(path: &Path, environment: &mut Vec<u8>) -> io::Result<Option<usize>> {
    loop {
        let mut file = match File::open(path) {
            Err(error) if is_ours(&error) => return Err(error),
            Err(error) if is_absent(&error) => return Ok(None),
            Err(_) => return Ok(Some(0)),
            Ok(file) => file,
        };
        let length = file.read(environment).unwrap_or(0);
        if length < environment.len() || length >= MOST_ROOM {
            return Ok(Some(length));
        }
        environment.resize(environment.len() * 2, 0);
    }
}

/// True for a zombie without other threads, which no program comes after. False if the system does not tell.
#[cfg(target_os = "linux")]
fn has_ended(pid: Pid) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{PidfdFlags, pidfd_open};

    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    pidfd_open(pid, PidfdFlags::empty())
        .is_ok_and(|pidfd| poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&now)) == Ok(1))
}

#[cfg(not(target_os = "linux"))]
fn has_ended(_: Pid) -> bool {
    false
}

/// The state of a process that showed no environment.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// It runs a program with an environment, and may have begun it after the look.
    Program,
    BetweenPrograms,
    /// Its first thread has ended. Another thread may be about to begin the next program, or has just taken the place of
    /// the first thread.
    OtherThreads,
    NoEnvironment,
}

fn state(pid: Pid) -> io::Result<State> {
    Ok(Stat::of(pid)?.and_then(|stat| state_in(&stat)).unwrap_or(State::NoEnvironment))
}

fn state_in(stat: &Stat) -> Option<State> {
    /// Flags of a thread of the system itself, and of a thread that ends.
    const KERNEL: u64 = 0x0020_0000;
    const ENDING: u64 = 0x4;
    let flags = stat.number(9)?;
    // The count of threads (field 20) tells nothing here: while a thread takes the place of the first thread, the count
    // is 0 or 1.
    let has_ended = stat.has_ended() || flags & ENDING != 0;
    // The system notes the end of the program's code last, when the environment is there.
    let (code, begin, end) = (stat.number(27)?, stat.number(50)?, stat.number(51)?);
    Some(if flags & KERNEL != 0 {
        State::NoEnvironment
    } else if has_ended {
        State::OtherThreads
    } else if code == 0 {
        State::BetweenPrograms
    } else if begin != end {
        State::Program
    } else {
        State::NoEnvironment
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first thread was read while the second thread took its place. Its count of threads is read after its state.
    #[test]
    fn a_first_thread_that_is_replaced_leaves_the_process_to_its_other_threads() {
        for threads in 0..3 {
            let mut fields = vec!["0".to_owned(); 50];
            fields[0] = "Z".to_owned();
            fields[9 - 3] = "4".to_owned();
            fields[20 - 3] = threads.to_string();
            let stat = format!("4711 (a) name) {}", fields.join(" "));
            assert_eq!(
                state_in(&Stat::parse(stat.as_bytes()).unwrap()),
                Some(State::OtherThreads),
                "{threads} threads"
            );
        }
    }
}
