//! Processes that are known by a variable of their environment.

use std::io;

use super::environment::{Facts, Patience, Since, each};

/// The processes on this machine, besides this process, whose environment has the variable with `value` as one of its
/// values, in rising order. Commas separate the values of a variable, so a value must not have one. Zombies do not count.
///
/// A process inherits the environment of the process that starts it, unless that process chooses another one. So a
/// service finds what an earlier process of the service has started: set a variable of your own with
/// [`Command::env`](crate::Command::env), and write its value down before the child starts. A
/// [`ProcessIdentity`](super::ProcessIdentity) is known only after the start;
/// [`is_alive`](super::ProcessIdentity::is_alive) lists what neither of them notices.
///
/// An id that is returned may belong to another process a moment later: [`kill_processes_with`] kills them.
///
/// Blocks the calling thread, so use `spawn_blocking` in asynchronous code: milliseconds on a machine with hundreds of
/// processes. While processes are in `execve(2)`, or are started faster than they can be looked at, up to 400 ms more, and four
/// times the time of a list of all processes. Finds nothing on any other system than Linux.
///
/// # Errors
/// This process has no file descriptor left, or no memory, or processes are started faster than they can be looked at: then
/// nobody knows whether there is such a process.
///
/// ```
/// use greenroom_process::processes_with;
///
/// # fn main() -> std::io::Result<()> {
/// assert!(processes_with("MY_SERVICE_SESSION", "2f6c0a1e")?.is_empty());
/// # Ok(()) }
/// ```
pub fn processes_with(variable: &str, value: &str) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    each(Facts::Environment, &mut Patience::default(), &mut Since::default(), |pid, environment| {
        if has(environment, variable, value) {
            found.push(pid.as_raw_nonzero().get().unsigned_abs());
        }
    })?;
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Kills the processes that [`processes_with`] finds, and those that they start meanwhile. Each process is stopped (SIGSTOP)
/// before any of them is killed, so that chains of processes which start each other cannot escape.
///
/// Blocks the calling thread until two searches in a row have found none, so use `spawn_blocking` in asynchronous code:
/// milliseconds, or seconds on a busy machine and with processes that cannot be killed.
///
/// # Errors
/// After 64 rounds of searches and kills there still is such a process, as one that may not be killed or waits for a disk, or
/// nobody knows whether there is. [`Unsupported`](io::ErrorKind::Unsupported) on any other system than Linux.
///
/// ```no_run
/// use greenroom_process::kill_processes_with;
///
/// # fn main() -> std::io::Result<()> {
/// kill_processes_with("MY_SERVICE_SESSION", "2f6c0a1e")?;
/// # Ok(()) }
/// ```
#[cfg_attr(not(target_os = "linux"), expect(unused_variables))]
pub fn kill_processes_with(variable: &str, value: &str) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return super::contain::ending::kill_all(
        Facts::Environment,
        |environment| has(environment, variable, value).then_some(0),
        super::contain::ending::ROUNDS,
        Patience::default(),
        || true,
    );
    #[cfg(not(target_os = "linux"))]
    Err(io::ErrorKind::Unsupported.into())
}

fn has(environment: &[u8], variable: &str, value: &str) -> bool {
    let variables = environment.split(|byte| *byte == 0);
    let mut values = variables
        .filter_map(|entry| entry.strip_prefix(variable.as_bytes())?.strip_prefix(b"="))
        .flat_map(|values| values.split(|byte| *byte == b','));
    values.any(|found| found == value.as_bytes())
}
