//! Processes of a user of the operating system.

use std::io;

use crate::environment::{Facts, Patience, Since, each};

/// The processes on this machine, besides this process, that run as a user: with this id as their real, effective, saved or
/// file system user id. In rising order. Zombies do not count.
///
/// Blocks the calling thread for milliseconds, as [`processes_with`](crate::processes_with) does. Finds nothing on any other system
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
/// [`kill_processes_with`](crate::kill_processes_with) does. The user must be one that nobody else uses.
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
    return super::ending::kill_all(
        Facts::Status,
        |status| is_of(status, uid).then_some(0),
        super::ending::ROUNDS,
        Patience::default(),
        || true,
    );
    #[cfg(not(target_os = "linux"))]
    Err(io::ErrorKind::Unsupported.into())
}

/// Removes the System V shared memory, semaphores and message queues that a user has made or owns. They stay when the processes of
/// the user end, and the next process of the user could read them. Does nothing on any other system than Linux.
///
/// # Errors
/// One cannot be removed, or the system's lists cannot be read.
#[cfg_attr(not(target_os = "linux"), expect(unused_variables))]
pub fn remove_ipc_of_user(uid: u32) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    for (list, remove) in IPC {
        // Without the file the system has no such objects.
        let Ok(text) = std::fs::read_to_string(format!("/proc/sysvipc/{list}")) else { continue };
        for id in ipc_of(&text, uid) {
            if remove(id) == -1 {
                let error = io::Error::last_os_error();
                // Removed meanwhile.
                if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EIDRM)) {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

#[cfg(target_os = "linux")]
type Remove = fn(libc::c_int) -> libc::c_int;

/// The lists of the system, each with the call that removes an object.
#[cfg(target_os = "linux")]
const IPC: [(&str, Remove); 3] = [
    // SAFETY: the command `IPC_RMID` takes no pointer: the call only looks at the number, which need not be that of an object.
    ("shm", |id| unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) }),
    // SAFETY: as above.
    ("sem", |id| unsafe { libc::semctl(id, 0, libc::IPC_RMID) }),
    // SAFETY: as above.
    ("msg", |id| unsafe { libc::msgctl(id, libc::IPC_RMID, std::ptr::null_mut()) }),
];

/// The ids of a user's objects in a list of the system. Its first line has the names of the columns.
#[cfg(target_os = "linux")]
fn ipc_of(list: &str, uid: u32) -> Vec<libc::c_int> {
    let mut lines = list.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let names = lines.next().unwrap_or_default();
    let id = names.iter().position(|name| name.ends_with("id") && !name.ends_with("pid"));
    let owners: Vec<_> = (0..names.len()).filter(|nth| matches!(names[*nth], "uid" | "cuid")).collect();
    let is_own = |line: &[&str], nth: &usize| line.get(*nth).is_some_and(|owner| owner.parse() == Ok(uid));
    let own = lines.filter(|line| owners.iter().any(|nth| is_own(line, nth)));
    own.filter_map(|line| line.get(id?)?.parse().ok()).collect()
}

/// True if the status is that of a process with this user id, and of no zombie.
fn is_of(status: &[u8], uid: u32) -> bool {
    let status = String::from_utf8_lossy(status);
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let has_ended = field("State:").is_none_or(|state| state.trim_start().starts_with(['Z', 'X', 'x']));
    let is = |ids: &str| ids.split_ascii_whitespace().any(|id| id.parse() == Ok(uid));
    !has_ended && field("Uid:").is_some_and(is)
}
