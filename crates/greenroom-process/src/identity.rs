//! The identity of a child's process, which outlives the host that started it.

use std::time::Duration;

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::mark;

/// Identifies the process of a child, and what that child has started, on this machine. A service writes it down and, when
/// it was killed and is started again, waits until nothing of its old children is left.
///
/// A process id alone is not enough, because the system uses it again. As JSON, with `null` for what the system does
/// not tell (any system but Linux):
///
/// ```
/// # fn main() -> Result<(), serde_json::Error> {
/// let written = r#"{"pid":4711,"started":86021,"boot":"6f1dc1b0-0a62-4e8c-a5a7-5d9f0e3b8a11","mark":"c2a9.77f0"}"#;
/// let process: greenroom_process::ProcessIdentity = serde_json::from_str(written)?;
/// // That was before this machine was started.
/// # #[cfg(target_os = "linux")]
/// assert!(!process.is_alive());
/// assert_eq!(serde_json::to_string(&process)?, written);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessIdentity {
    /// The process id of the child, which is also the id of its process group.
    pub pid: u32,
    /// The start of the child, in clock ticks of the system since its boot.
    #[serde(default)]
    pub started: Option<u64>,
    /// The id of the boot in which the child was started.
    #[serde(default)]
    pub boot: Option<String>,
    /// The mark that everything started by the child has in the variable `GREENROOM_INCARNATION`; see
    /// [`Containment`](crate::Containment). `None` with `Containment::Group`.
    #[serde(default)]
    pub mark: Option<String>,
}

impl ProcessIdentity {
    /// The identity of a child that was not reaped yet, so that its id is not used again.
    pub(super) fn of_child(leader: Pid, mark: Option<&str>) -> Self {
        let pid = leader.as_raw_nonzero().get().unsigned_abs();
        Self { pid, started: system::started(leader), boot: system::boot(), mark: mark.map(str::to_owned) }
    }

    /// Whether the child, a member of its process group, or another process with its mark still runs. Zombies do not
    /// count. False after a reboot, and on any other machine than that of the child.
    ///
    /// Blocks the calling thread for two searches, each as [`processes_with`](crate::processes_with) does. True if nobody can
    /// tell: this process has no file descriptor left to look with, or processes are started faster than they can be looked at.
    ///
    /// | not noticed | why |
    /// |---|---|
    /// | a child that has not begun its first program | it shows the environment of its parent |
    /// | a process that has left the group and cleared its environment, or runs as a user whose processes this one must not read | it has no mark that can be seen |
    /// | processes of another PID namespace, such as that of an earlier container | its processes are not in this `/proc`; they end with the namespace |
    /// | processes of other users under a `/proc` with `hidepid` | the system hides them |
    ///
    /// On other systems than Linux only the process group is looked for, by its id. So processes that have left the
    /// group are missed, and a later group with the same id is taken for the old one, also after a reboot.
    pub fn is_alive(&self) -> bool {
        system::is_alive(self)
    }

    /// Waits until nothing is [alive](ProcessIdentity::is_alive) any more. Looks on a blocking thread, with this pause
    /// between two looks; 50 ms is a good one. Ends nothing by itself, and has no limit: after the death of its host, a
    /// child is ended by the guardian within
    /// [`Command::exit_after_host`](crate::Command::exit_after_host).
    pub async fn gone(&self, pause: Duration) {
        loop {
            let this = self.clone();
            // Fails only when the runtime shuts down, which ends this future as well.
            if matches!(tokio::task::spawn_blocking(move || this.is_alive()).await, Ok(false)) {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// The start of a process, in clock ticks of the system since its boot. `None` if there is no such process, or if it is a zombie.
#[cfg(target_os = "linux")]
pub(super) fn started(pid: Pid) -> Option<u64> {
    system::runs_since(pid)
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs;

    use rustix::process::Pid;

    use super::super::environment::Patience;
    use super::super::numbers::listed;
    use super::super::stat::Stat;
    use super::{ProcessIdentity, mark};

    pub(super) fn started(pid: Pid) -> Option<u64> {
        Stat::of(pid).ok()??.started()
    }

    pub(super) fn runs_since(pid: Pid) -> Option<u64> {
        Stat::of(pid).ok()?.filter(|stat| !stat.has_ended())?.started()
    }

    pub(super) fn boot() -> Option<String> {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(id.trim().to_owned())
    }

    pub(super) fn is_alive(process: &ProcessIdentity) -> bool {
        let (then, now) = (&process.boot, boot());
        if then.is_some() && now.is_some() && *then != now {
            return false;
        }
        let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
        let Ok(leader) = pid.map_or(Ok(None), Stat::of) else { return true };
        // The system does not give the id of a group that has members to another process.
        let reused = process.started.is_some()
            && leader.as_ref().is_some_and(|leader| leader.started() != process.started);
        if !reused && (leader.is_some_and(|leader| !leader.has_ended()) || has_members(process.pid)) {
            return true;
        }
        let mut patience = Patience::default();
        let mut is_marked = |mark| is_marked(mark, &mut patience);
        // Twice: not every system tells the last number, which the search needs to follow processes that start others and end.
        process.mark.as_deref().is_some_and(|mark| is_marked(mark) || is_marked(mark))
    }

    /// Also true if nobody can tell.
    fn has_members(group: u32) -> bool {
        let Ok(pids) = listed() else { return true };
        pids.into_iter().any(|pid| match Stat::of(pid) {
            Ok(stat) => stat.is_some_and(|stat| stat.number(5) == Some(group.into()) && !stat.has_ended()),
            Err(_) => true,
        })
    }

    /// Also true if nobody can tell.
    fn is_marked(mark: &str, patience: &mut Patience) -> bool {
        let mut found = false;
        let searched = mark::scan(&[mark], patience, |_, _| found = true);
        found || searched.is_err()
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use rustix::io::Errno;
    use rustix::process::{Pid, test_kill_process_group};

    use super::ProcessIdentity;

    pub(super) fn started(_: Pid) -> Option<u64> {
        None
    }

    pub(super) fn boot() -> Option<String> {
        None
    }

    pub(super) fn is_alive(process: &ProcessIdentity) -> bool {
        let group = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
        // A group whose members run as another user exists, too.
        group.is_some_and(|group| matches!(test_kill_process_group(group), Ok(()) | Err(Errno::PERM)))
    }
}
