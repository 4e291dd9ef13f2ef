//! The processes of an activation: how they are written down, and how a later process of the service finds and ends
//! them.
//!
//! ```text
//! claim ──► the activation is recorded ──► the CLI starts ──► its process is recorded, too ──► … ──► release: removed
//!           (its id, in a variable of          │
//!           the CLI's environment)             └─ a service that is killed here leaves a CLI that only the variable names
//! ```
//!
//! The id is known before there is a process, so a record leads to each CLI that runs: at the first start, and when the
//! session starts its CLI again. The variable shows from the moment at which the process begins the CLI's program. All that the CLI starts inherits the variable.

use std::fmt;
use std::io;
use std::time::Duration;

use greenroom::SessionBuilder;
use greenroom::transport::{ProcessIdentity, kill_processes_with, processes_with};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::AttemptId;

/// Has the claim of the activation in the environment of its CLI, and of all that the CLI starts.
const VARIABLE: &str = "GREENROOM_FLEET_ACTIVATION";

/// Pause between two looks at a process: its end is no event for us, because it is no child of this process.
const LOOK: Duration = Duration::from_millis(50);

/// Sets the variable for the CLI of an activation. A fleet in a service that runs under another fleet's CLI keeps the
/// outer claim.
pub(crate) fn mark(builder: SessionBuilder, claim: AttemptId) -> SessionBuilder {
    let claims = match std::env::var(VARIABLE) {
        Ok(outer) => format!("{outer},{claim}"),
        Err(_) => claim.to_string(),
    };
    builder.env(VARIABLE, claims)
}

/// The record of an activation's processes, for the backend. `None`: no process is known yet.
pub(crate) fn record(claim: AttemptId, process: Option<&ProcessIdentity>) -> Value {
    let process = process.cloned().map(|mut process| {
        // Processes with greenroom's own mark have the variable as well: the search for the mark is left out.
        process.mark = None;
        process
    });
    // Plain data always becomes JSON.
    serde_json::to_value(LeftProcess { claim, process }).unwrap_or_default()
}

/// The processes that an activation of an earlier process of the service may have left behind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LeftProcess {
    claim: AttemptId,
    #[serde(flatten)]
    process: Option<ProcessIdentity>,
}

impl fmt::Display for LeftProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.process {
            Some(process) => write!(f, "the process {}", process.pid),
            None => write!(f, "a process with {VARIABLE}={}", self.claim),
        }
    }
}

impl LeftProcess {
    pub(crate) async fn is_alive(&self) -> bool {
        let this = self.clone();
        // A look that panics counts as a process that runs: the wait for its end looks again.
        tokio::task::spawn_blocking(move || this.lives()).await.unwrap_or(true)
    }

    /// Waits until nothing of the activation lives.
    pub(crate) async fn gone(&self) {
        while self.is_alive().await {
            tokio::time::sleep(LOOK).await;
        }
    }

    fn lives(&self) -> bool {
        // If nobody can tell, a process counts as one that runs.
        let is_found =
            || processes_with(VARIABLE, &self.claim.to_string()).map_or(true, |found| !found.is_empty());
        // Twice: not every system tells the last number, which the search needs to follow processes that start others and end.
        self.process.as_ref().is_some_and(ProcessIdentity::is_alive) || is_found() || is_found()
    }

    /// Kills the process group, if its leader is still the process that was written down: the system gives the id of an
    /// ended process to another one. Also kills all processes with the activation's variable.
    pub(crate) fn kill(&self) {
        self.process.iter().for_each(kill_group);
        match kill_processes_with(VARIABLE, &self.claim.to_string()) {
            Err(error) if error.kind() != io::ErrorKind::Unsupported => {
                tracing::warn!(%error, "processes of an earlier CLI are left")
            }
            _ => {}
        }
    }
}

fn kill_group(process: &ProcessIdentity) {
    if process.started.is_none() || started(process.pid) != process.started {
        return;
    }
    let group = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
    // Never 0 or 1: those are no groups of a CLI, and 0 would be our own.
    let Some(group) = group.filter(|group| group.as_raw_nonzero().get() > 1) else { return };
    if let Err(error) = kill_process_group(group, Signal::KILL) {
        tracing::warn!(pid = process.pid, %error, "a CLI of an earlier process could not be killed");
    }
}

/// The start of a process in clock ticks since the boot; `None` without such a process, or where the system does not tell.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // `PID (NAME) STATE …`: the name may have spaces and brackets. The start is field 22 of proc_pid_stat(5).
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    String::from_utf8_lossy(&stat[after_name..]).split_ascii_whitespace().nth(19)?.parse().ok()
}
