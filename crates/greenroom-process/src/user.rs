//! Processes of a user of the operating system.

use std::io;

use super::environment::{Facts, Patience, Since, each};
#[cfg(target_os = "linux")]
use super::variable::ROUNDS;

/// The processes on this machine, besides this process, that run as a user: with this id as their real, effective, saved or
/// file system user id. In rising order. Zombies do not count.
///
/// Blocks the calling thread for milliseconds, as [`processes_with`](super::processes_with) does. Finds nothing on any other system
/// than Linux, nor processes that a mount of `/proc` with `hidepid` hides from this one.
///
/// # Errors
/// Nobody knows whether there is such a process: this process has no file descriptor left, or no memory, or processes are started
/// faster than they can be looked at.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// assert!(greenroom_process::processes_of_user(4_000_000_000)?.is_empty());
/// # Ok(()) }
/// ```
pub fn processes_of_user(uid: u32) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    each(Facts::Status, &mut Patience::default(), &mut Since::default(), |pid, status| {
        if is_of(status, uid) {
            found.push(pid.as_raw_nonzero().get().unsigned_abs());
        }
    })?;
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Kills the processes that [`processes_of_user`] finds, and those that they start meanwhile, as
/// [`kill_processes_with`](super::kill_processes_with) does. The user must be one that nobody else uses.
///
/// Blocks the calling thread until two searches in a row have found none, so use `spawn_blocking` in asynchronous code.
///
/// # Errors
/// [`InvalidInput`](io::ErrorKind::InvalidInput) for root and for the user of this process. There still is such a process after 64
/// rounds of searches and kills, or nobody knows whether there is. [`Unsupported`](io::ErrorKind::Unsupported) on any other system
/// than Linux.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// greenroom_process::kill_processes_of_user(60_001)?;
/// # Ok(()) }
/// ```
pub fn kill_processes_of_user(uid: u32) -> io::Result<()> {
    if uid == 0 || uid == rustix::process::getuid().as_raw() || uid == rustix::process::geteuid().as_raw() {
        let text = format!(
            "the processes of the user {uid} are not killed: it is root, or the user of this process"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    #[cfg(target_os = "linux")]
    return super::contain::ending::kill_all(
        Facts::Status,
        |status| is_of(status, uid).then_some(0),
        ROUNDS,
        Patience::default(),
        || true,
    );
    #[cfg(not(target_os = "linux"))]
    Err(io::ErrorKind::Unsupported.into())
}

/// True if the status is that of a process with this user id, and of no zombie.
fn is_of(status: &[u8], uid: u32) -> bool {
    let status = String::from_utf8_lossy(status);
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let has_ended = field("State:").is_none_or(|state| state.trim_start().starts_with(['Z', 'X', 'x']));
    let is = |ids: &str| ids.split_ascii_whitespace().any(|id| id.parse() == Ok(uid));
    !has_ended && field("Uid:").is_some_and(is)
}
