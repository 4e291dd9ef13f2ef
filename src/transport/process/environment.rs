//! Environments of processes, as `/proc` tells them.
//!
//! ```text
//!   a program runs ── execve ──► between two programs ──► the next program runs
//!   environment                  none                     environment
//! ```
//!
//! Between two programs a process has no environment, for as long as the system reads the next program from its disk. So
//! a search looks at such a process again until it has an environment: otherwise what it searches for could escape.

use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, getpid};

/// Pause between two looks at processes that are between two programs.
const PAUSE: Duration = Duration::from_millis(1);

/// Most looks. A process that hangs between two programs, on a disk of the network for instance, delays a search by
/// 200 ms at most.
const LOOKS: u32 = 200;

/// The processes on this machine, besides this process, whose environment has the variable with `value` as one of its
/// values, separated by commas. Everything that a process starts inherits its environment. Zombies do not count.
///
/// A service finds what an earlier process of the service has started: set a variable of your own with
/// [`SessionBuilder::env`](crate::SessionBuilder::env), and write its value down before the session starts. A
/// [`ProcessIdentity`](super::ProcessIdentity) is known only after the start.
///
/// Reads `/proc`: milliseconds on a machine with hundreds of processes, in which the calling thread is blocked. Processes
/// whose environment this process may not read are skipped, and processes that start during the search may be missed.
/// Empty on any other system than Linux.
///
/// ```
/// use greenroom::transport::processes_with;
///
/// assert!(processes_with("MY_SERVICE_SESSION", "2f6c0a1e").is_empty());
/// ```
pub fn processes_with(variable: &str, value: &str) -> Vec<u32> {
    let mut found = Vec::new();
    each(|pid, environment| {
        let mut variables =
            environment.split(|byte| *byte == 0).filter_map(|entry| str::from_utf8(entry).ok());
        let values = variables.find_map(|entry| entry.strip_prefix(variable)?.strip_prefix('='));
        if values.is_some_and(|values| values.split(',').any(|found| found == value)) {
            found.push(pid.as_raw_nonzero().get().unsigned_abs());
        }
    });
    found
}

/// The file with the environment of a process.
pub(super) fn file(pid: Pid) -> PathBuf {
    format!("/proc/{}/environ", pid.as_raw_pid()).into()
}

/// Reads the environment of each process besides this process.
#[expect(
    clippy::disallowed_methods,
    reason = "a search blocks its thread anyway, and the system tells no event"
)]
pub(super) fn each(mut look: impl FnMut(Pid, &[u8])) {
    let own = getpid();
    let mut environment = Vec::new();
    // Returns whether the process is between two programs.
    let mut visit = |pid: Pid| {
        let shown = read(pid, &mut environment);
        if matches!(shown, Shown::Environment) {
            look(pid, &environment);
        }
        matches!(shown, Shown::NotYet)
    };
    let mut between = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?));
        between.extend(pid.filter(|pid| *pid != own && visit(*pid)));
    }
    for _ in 0..LOOKS {
        if between.is_empty() {
            return;
        }
        std::thread::sleep(PAUSE);
        between.retain(|pid| visit(*pid));
    }
}

/// What a process shows.
enum Shown {
    Environment,
    /// It is between two programs.
    NotYet,
    /// It has ended, has no environment, or may not be read.
    Nothing,
}

fn read(pid: Pid, environment: &mut Vec<u8>) -> Shown {
    environment.clear();
    let read = File::open(file(pid)).and_then(|mut file| file.read_to_end(environment));
    match read {
        Err(_) => Shown::Nothing,
        Ok(0) if is_between_programs(pid).unwrap_or(false) => Shown::NotYet,
        Ok(0) => Shown::Nothing,
        Ok(_) => Shown::Environment,
    }
}

/// Whether a process that showed no environment has one soon, or has one by now. Fields of proc_pid_stat(5).
fn is_between_programs(pid: Pid) -> Option<bool> {
    /// Flags of the system's own threads, and of processes that end.
    const KERNEL_OR_ENDING: u64 = 0x0020_0000 | 0x4;
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    // The name before it may have spaces and brackets, and need not be UTF-8.
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let fields = String::from_utf8_lossy(&stat[after_name..]);
    // The first one, the state, is field 3.
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let has_ended = matches!(*fields.first()?, "Z" | "X" | "x");
    if has_ended || number(9)? & KERNEL_OR_ENDING != 0 {
        return Some(false);
    }
    // The system sets the end of the program's code last.
    let (code, begin, end) = (number(27)?, number(50)?, number(51)?);
    Some(code == 0 || begin != end)
}
