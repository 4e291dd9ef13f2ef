//! The bounds of a fleet and the quotas of its tenants.

mod pause;
mod quota;

use std::time::Duration;

pub use pause::Pause;
pub use quota::{Budget, Quota, Rate};
pub(crate) use quota::{BudgetLevel, Quotas, micro_dollars};

/// Bounds for prompts that wait. Default: see [`FleetLimits::queue`](crate::FleetLimits::queue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueBounds {
    /// For each name.
    pub name: u32,
    /// For each tenant whose [`Quota::queued`] says nothing else. Prompts of several sessions that are accepted at the same moment may be
    /// over it together.
    pub tenant: u32,
    /// For the whole fleet, in the same way. A tenant may have a 512th of it waiting even if it is full, so all
    /// tenants together may exceed it by that.
    pub fleet: u32,
    /// Reminders that wait in the whole fleet, in the same way, with the same share for a tenant. The other bounds of numbers leave reminders out; [`Quota::reminders`] bounds
    /// those of a tenant.
    pub reminders: u32,
    /// Bytes of one prompt and its continuation, as JSON.
    pub prompt_bytes: u64,
}

impl Default for QueueBounds {
    fn default() -> Self {
        Self { name: 16, tenant: 256, fleet: 4096, reminders: 65_536, prompt_bytes: 8 << 20 }
    }
}

/// The bounds of a fleet.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FleetLimits {
    /// Sessions with a CLI process at one moment. A slot is free again when the process group of the CLI is gone. Default: one for
    /// each 512 MiB of the memory that is available when the builder is made, less 1 GiB, and at least 1. Available is what the system
    /// has, or what the limits of the process's control groups leave (a container's, systemd's `MemoryMax`), if that is less.
    pub live: usize,
    /// Sessions that start at one moment. Default: the number of processors.
    pub activations_at_once: usize,
    /// The time after which an idle session is passivated. Default: 5 minutes.
    pub idle_after: Duration,
    /// The time for which a session has to be idle before it is passivated to make room for another name. Default: 5 seconds.
    pub idle_before_eviction: Duration,
    /// Prompts that wait. Default: 16 for a name, 256 for a tenant, 4,096 in the fleet; 65,536 reminders; 8 MiB for a prompt.
    pub queue: QueueBounds,
    /// The time for which a prompt may wait, from the moment at which it may begin. Default: 5 minutes.
    pub wait: Duration,
    /// The lease of the fleet's node. Default: 30 seconds; renewed after a sixth of it; after four fifths the node stops.
    /// On an [exclusive](crate::backend::Backend::is_exclusive) backend, such as a `LocalBackend`, the node goes on
    /// without it. At least 1 second, and 5 seconds with a watchdog, which kills the CLIs in the last fifth.
    pub lease: Duration,
    /// The time for which background tasks of the CLI keep their session from being idle, turns in between included. Default: 10 minutes.
    pub background: Duration,
    /// The time for which a CLI waits for the answer to a [question](crate::FleetTenant::questions). A question that cannot be deferred, such
    /// as an elicitation or one of a subagent, counts as denied then. Default: 10 minutes. Zero: people are not
    /// asked, and a profile may answer with [`on_inquiry`](greenroom::SessionBuilder::on_inquiry) itself.
    pub question: Duration,
    /// The time after which an open question about a tool call is deferred: its turn is parked, its CLI ends, and its slot is free until the
    /// question is decided. Default: 60 seconds. [`FleetBuilder::question_holds`](crate::FleetBuilder::question_holds) sets it for a profile.
    pub question_holds: Duration,
    /// The time after which a question about a tool call counts as denied, parked or not. Default: 14 days. Zero: no turn is parked, and
    /// `question` bounds every question.
    pub question_parked: Duration,
    /// The first wait after a failed activation, and before a node that is [degraded](crate::Health) tries again; it doubles up to
    /// `backoff_max`. Default: 1 second.
    pub backoff: Duration,
    /// The longest wait after a failed activation. Default: 60 seconds.
    pub backoff_max: Duration,
    /// Failed activations within `failure_period` after which a name is quarantined. Default: 3.
    pub failures: u32,
    /// The time in which failed activations are counted together. Default: 10 minutes.
    pub failure_period: Duration,
    /// Owners in a row that were lost with a turn running, after which a name is quarantined. Default: 3.
    pub losses: u32,
    /// The messages that are kept of a turn, in bytes of their JSON. Default: 16 MiB.
    pub turn_bytes: u64,
    /// The time that a drain takes at most, when the last handle is dropped. Default: 28 seconds.
    pub drain: Duration,
    /// The time for which the opening waits for CLIs that an earlier process of the service has left behind, before it kills them, and
    /// once more after that. Default: 30 seconds.
    pub left_processes: Duration,
    /// The time for which outcomes, messages and keys are kept after the outcome. Default: 24 hours.
    pub retention: Duration,
    /// The time for which [usage](crate::FleetTenant::usage) is kept, in whole days. Default: 100 days.
    pub usage: Duration,
}

impl FleetLimits {
    /// The wait after so many failures in a row, a quarter more or less by chance, so that not all begin again at once.
    pub(crate) fn pause(&self, failures: u32) -> Duration {
        self.pauses().after(failures)
    }

    /// The waits after failures.
    pub(crate) fn pauses(&self) -> Pause {
        Pause { first: self.backoff, longest: self.backoff_max, factor: 0.75 + 0.5 * fastrand::f64() }
    }

    /// Every limit of time.
    pub(crate) fn durations(&self) -> [Duration; 15] {
        [
            self.idle_after,
            self.idle_before_eviction,
            self.wait,
            self.lease,
            self.background,
            self.question,
            self.question_holds,
            self.question_parked,
            self.backoff,
            self.backoff_max,
            self.failure_period,
            self.drain,
            self.left_processes,
            self.retention,
            self.usage,
        ]
    }
}

impl Default for FleetLimits {
    fn default() -> Self {
        Self {
            live: live_by_memory(),
            activations_at_once: std::thread::available_parallelism().map_or(1, usize::from),
            idle_after: Duration::from_secs(300),
            idle_before_eviction: Duration::from_secs(5),
            queue: QueueBounds::default(),
            wait: Duration::from_secs(300),
            lease: Duration::from_secs(30),
            background: Duration::from_secs(600),
            question: Duration::from_secs(600),
            question_holds: Duration::from_secs(60),
            question_parked: Duration::from_secs(14 * 24 * 3600),
            backoff: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            failures: 3,
            failure_period: Duration::from_secs(600),
            losses: 3,
            turn_bytes: 16 << 20,
            drain: Duration::from_secs(28),
            left_processes: Duration::from_secs(30),
            retention: Duration::from_secs(24 * 3600),
            usage: Duration::from_secs(100 * 24 * 3600),
        }
    }
}

/// One session for each 512 MiB of the memory that is available, less 1 GiB, and at least one. A system that does not say counts as one
/// with 2 GiB.
fn live_by_memory() -> usize {
    let available = greenroom_process::available_memory().unwrap_or(2 << 30);
    usize::try_from((available.saturating_sub(1 << 30) / (512 << 20)).max(1)).unwrap_or(1)
}
