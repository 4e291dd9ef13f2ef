//! A process that an earlier process of the service has left behind.

use std::time::Duration;

use greenroom::transport::ProcessIdentity;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

/// Pause between two looks at a process: its end is no event for us, because it is no child of this process.
const LOOK: Duration = Duration::from_millis(50);

/// A process that an earlier process of the service has left behind.
#[derive(Clone, Debug)]
pub(crate) struct LeftProcess(ProcessIdentity);

impl LeftProcess {
    /// Reads the identity that the owner has written down.
    pub(crate) fn of(record: &Value) -> serde_json::Result<Self> {
        serde_json::from_value(record.clone()).map(Self)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.pid
    }

    pub(crate) async fn is_alive(&self) -> bool {
        let this = self.0.clone();
        // A look that panics counts as a process that runs: the wait for its end looks again.
        tokio::task::spawn_blocking(move || this.is_alive()).await.unwrap_or(true)
    }

    pub(crate) async fn gone(&self) {
        self.0.gone(LOOK).await;
    }

    /// Kills the process group, if its leader is still the process that was written down: the system gives the id of an ended
    /// process to another one.
    pub(crate) fn kill(&self) {
        if self.0.started.is_none() || started(self.0.pid) != self.0.started {
            return;
        }
        let group = i32::try_from(self.0.pid).ok().and_then(Pid::from_raw);
        // Never 0 or 1: those are no groups of a CLI, and 0 would be our own.
        let Some(group) = group.filter(|group| group.as_raw_nonzero().get() > 1) else { return };
        if let Err(error) = kill_process_group(group, Signal::KILL) {
            tracing::warn!(pid = self.0.pid, %error, "a CLI of an earlier process could not be killed");
        }
    }
}

/// The start of a process in clock ticks since the boot; `None` without such a process.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // `PID (NAME) STATE …`: the name may have spaces and brackets. The start is field 22 of proc_pid_stat(5).
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    String::from_utf8_lossy(&stat[after_name..]).split_ascii_whitespace().nth(19)?.parse().ok()
}
