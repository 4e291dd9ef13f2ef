//! Environments of processes, as `/proc` tells them.
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
//! were given since, in rising order and up to some that are not given yet:
//!
//! ```text
//! number   parent ├──────┤
//!    │     child      ├──────┤
//!    ▼     its child      ├──────┤
//!          the search  ╲ meets at least one of them, for none begins after its parent has ended
//! ```
//!
//! A search that was overtaken by the numbers is repeated with those that came since.
//!
//! Not seen: a child that has not begun its first program. It shows the environment of its parent.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, getpid};

use crate::files::is_absent;

/// Pause between two looks at processes that are between two programs.
const PAUSE: Duration = Duration::from_millis(1);

/// Longest time that a search follows processes that are started while it runs, besides the wait for processes that are
/// between two programs, and besides [`LISTS`] times the time of the list: the longer a list takes, the more are started.
const LONGEST: Duration = Duration::from_millis(200);
const LISTS: u32 = 4;

/// Numbers that are looked at before they are given.
const AHEAD: i32 = 128;

/// Looks at a process that shows no environment although it may have one: it may have begun its program, or one of its
/// threads may have become its first thread, between two readings. A process can hide its environment for ever, and
/// delays no search.
const LOOKS: u32 = 5;

/// Room for an environment at first, and at most, in bytes. The system allows 6 MiB.
const ROOM: usize = 128 << 10;
const MOST_ROOM: usize = 8 << 20;

/// The processes on this machine, besides this process, whose environment has the variable with `value` as one of its
/// values, in rising order. Commas separate the values of a variable, so a value must not have one. Zombies do not count.
///
/// A process inherits the environment of the process that starts it, unless that process chooses another one. So a
/// service finds what an earlier process of the service has started: set a variable of your own with
/// [`SessionBuilder::env`](crate::SessionBuilder::env), and write its value down before the session starts. A
/// [`ProcessIdentity`](super::ProcessIdentity) is known only after the start;
/// [`is_alive`](super::ProcessIdentity::is_alive) lists what neither of them notices.
///
/// An id that is returned may belong to another process a moment later. To kill a process, open it by `pidfd_open(2)`,
/// read its environment again, and then send the signal by the descriptor.
///
/// Blocks the calling thread, so use `spawn_blocking` in asynchronous code: milliseconds on a machine with hundreds of
/// processes. While processes are in `execve(2)`, or are started faster than they can be looked at, up to 400 ms and four times
/// as long more. Finds nothing on any other system than Linux.
///
/// # Errors
/// This process has no file descriptor left, or no memory, or processes are started faster than they can be looked at: then
/// nobody knows whether there is such a process.
///
/// ```
/// use greenroom::transport::processes_with;
///
/// # fn main() -> std::io::Result<()> {
/// assert!(processes_with("MY_SERVICE_SESSION", "2f6c0a1e")?.is_empty());
/// # Ok(()) }
/// ```
pub fn processes_with(variable: &str, value: &str) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    each(&mut Patience::default(), &mut Since::default(), |pid, environment| {
        let variables = environment.split(|byte| *byte == 0);
        let values =
            variables.filter_map(|entry| entry.strip_prefix(variable.as_bytes())?.strip_prefix(b"="));
        if values.flat_map(|values| values.split(|byte| *byte == b',')).any(|found| found == value.as_bytes())
        {
            found.push(pid.as_raw_nonzero().get().unsigned_abs());
        }
    })?;
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// How long searches wait, all searches that share it together.
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

/// Where a search has come to. The next one with it looks only at the processes that were started since.
#[derive(Default)]
pub(crate) struct Since(Option<i32>);

/// True if this process may read the environment of the process.
pub(super) fn is_readable(pid: Pid) -> bool {
    let refused = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    !File::open(path(pid)).is_err_and(refused)
}

/// The environment of a process. Empty if it shows none at this moment.
pub(super) fn of(pid: Pid) -> Vec<u8> {
    let mut environment = vec![0; ROOM];
    let length = read(&path(pid), &mut environment).unwrap_or(0);
    environment.truncate(length);
    environment
}

/// Calls `look` with the environment of each process besides this process, or of those that were started `since` an earlier
/// search. A process may be looked at more than once.
///
/// Without `/proc/loadavg`, a process may be missed whose parent has started it and ended.
///
/// # Errors
/// A process could not be looked at, or processes are started faster than they can be looked at. The others were.
#[expect(
    clippy::disallowed_methods,
    reason = "a search blocks its thread anyway, and the system tells no event"
)]
pub(super) fn each(
    patience: &mut Patience,
    since: &mut Since,
    mut look: impl FnMut(Pid, &[u8]),
) -> io::Result<()> {
    let own = getpid();
    let mut environment = vec![0; ROOM];
    let mut result = Ok(());
    // Returns whether the process is between two programs.
    let mut visit = |pid: Pid, is_listed: bool| {
        match show(pid, &mut environment) {
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
    let earlier = since.0.take();
    let mut last = earlier.or_else(last_number);
    let mut between = if earlier.is_some() { Vec::new() } else { listed()? };
    between.retain(|pid| *pid != own && visit(*pid, true));
    let longest = LONGEST + begin.elapsed() * LISTS;
    let settled = loop {
        let before = std::mem::replace(&mut last, last_number());
        let (numbers, ahead) = match before.zip(last) {
            None => (Vec::new(), None),
            Some((before, now)) if before <= now => {
                let ahead = now.saturating_add(AHEAD);
                ((before + 1..=ahead).filter_map(Pid::from_raw).collect(), Some(now..=ahead))
            }
            // The numbers have begun anew.
            Some((_, now)) => (listed()?, Some(now..=now)),
        };
        between.extend(numbers.into_iter().filter(|pid| *pid != own && visit(*pid, false)));
        let is_complete = ahead.is_none_or(|ahead| last_number().is_some_and(|now| ahead.contains(&now)));
        if is_complete && (between.is_empty() || waited >= patience.between) {
            break true;
        }
        if begin.elapsed() >= longest + patience.between || patience.is_over() {
            break false;
        }
        if !between.is_empty() {
            let pause = Instant::now();
            std::thread::sleep(PAUSE);
            waited += pause.elapsed();
            between.retain(|pid| visit(*pid, false));
        }
    };
    patience.between = patience.between.saturating_sub(waited);
    if settled {
        since.0 = last;
        return result;
    }
    result.and(Err(io::Error::other("processes are started faster than they can be looked at")))
}

/// The processes of this machine.
fn listed() -> io::Result<Vec<Pid>> {
    let processes = match fs::read_dir("/proc") {
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        processes => processes?.flatten(),
    };
    let number = |name: &str| Pid::from_raw(name.parse().ok()?);
    Ok(processes.filter_map(|entry| number(entry.file_name().to_str()?)).collect())
}

/// The number of the process or thread that was started last.
fn last_number() -> Option<i32> {
    fs::read_to_string("/proc/loadavg").ok()?.split_ascii_whitespace().nth(4)?.parse().ok()
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

fn show(pid: Pid, environment: &mut Vec<u8>) -> io::Result<Shown> {
    for _ in 0..LOOKS {
        let length = read(&path(pid), environment)?;
        if length > 0 {
            return Ok(Shown::Environment(length));
        }
        match state(pid)? {
            State::Program => {}
            State::BetweenPrograms => return Ok(Shown::NotYet),
            State::OtherThreads if has_ended(pid) => return Ok(Shown::Nothing),
            State::OtherThreads => {
                let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid()));
                for thread in threads.into_iter().flatten().flatten() {
                    let length = read(&thread.path().join("environ"), environment)?;
                    if length > 0 {
                        return Ok(Shown::Environment(length));
                    }
                }
            }
            State::NoEnvironment => return Ok(Shown::Nothing),
        }
    }
    Ok(Shown::Nothing)
}

fn path(pid: Pid) -> PathBuf {
    format!("/proc/{}/environ", pid.as_raw_pid()).into()
}

/// Reads an environment in one call, which the system answers from one program. Two calls could see two programs. Returns
/// its length; 0 if there is none, or this process may not read it.
fn read(path: &Path, environment: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        let mut file = match File::open(path) {
            Err(error) if is_ours(&error) => return Err(error),
            Err(_) => return Ok(0),
            Ok(file) => file,
        };
        let length = file.read(environment).unwrap_or(0);
        if length < environment.len() || length >= MOST_ROOM {
            return Ok(length);
        }
        environment.resize(environment.len() * 2, 0);
    }
}

/// True for an error of this process, such as too many open files: it says nothing about the process that is looked at.
fn is_ours(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
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

/// Reads the fields of proc_pid_stat(5).
fn state(pid: Pid) -> io::Result<State> {
    match fs::read(format!("/proc/{}/stat", pid.as_raw_pid())) {
        Err(error) if is_ours(&error) => Err(error),
        stat => Ok(stat.ok().and_then(|stat| state_in(&stat)).unwrap_or(State::NoEnvironment)),
    }
}

fn state_in(stat: &[u8]) -> Option<State> {
    /// Flags of a thread of the system itself, and of a thread that ends.
    const KERNEL: u64 = 0x0020_0000;
    const ENDING: u64 = 0x4;
    // The name before it may have spaces and brackets, and need not be UTF-8.
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let fields = String::from_utf8_lossy(&stat[after_name..]);
    // The state is field 3.
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let flags = number(9)?;
    // The count of threads (field 20) tells nothing here: while a thread takes the place of the first thread, the count
    // is 0 or 1.
    let has_ended = matches!(*fields.first()?, "Z" | "X" | "x") || flags & ENDING != 0;
    // The system notes the end of the program's code last, when the environment is there.
    let (code, begin, end) = (number(27)?, number(50)?, number(51)?);
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
            assert_eq!(state_in(stat.as_bytes()), Some(State::OtherThreads), "{threads} threads");
        }
    }
}
