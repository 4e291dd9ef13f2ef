//! The keeper: does what time has to do.
//!
//! | duty | when | at most in a step |
//! |---|---|---|
//! | renew the lease | after a sixth of it; after a failure sooner | one attempt of a sixth of the lease, 2 s at most |
//! | expire prompts and questions | at the next expiry, after hints, every 5 s | 8 batches of 256 |
//! | wake names | at the next moment at which a prompt may begin, after hints, every 5 s | the names that can run, 256 in a request |
//! | forget outcomes, usage and the feed | every minute at most; a second after a full batch | 500 prompts, 16 batches of the others |
//! | finish deletions | after hints of other nodes; every 5 s; a name whose files could not be removed again after 1 s, 2 s … 15 s | 16 names, and those that wait for their next try |
//! | release strangers | every 5 s | the names that this node owns |
//! | carry out commands of other nodes | after hints; each second while there is another node and a name is awake here | 256 commands, each by a task of its own |
//! | read the quotas that were set | after hints, every 5 s | one counter; all quotas, if another one was set |
//! | read which credentials are held | after hints, every 5 s | all of them, 1,024 in a request |
//! | watch the nodes | each second if other nodes can use the backend; when a lease ends; when the next batch of names may be recovered | reads all nodes, recovers 64 names of dead ones |
//!
//! Each duty is a task:
//!
//! ```text
//!  ┌─► a step: asks the backend, and says when the next one is ──► a pause ──► its moment, or a hint ─┐
//!  └─────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Hints are the changes that the backend tells. A lost hint delays a duty by 5 s, and is never fatal. At most one hint of a duty
//! is kept, also while a step runs, and there is a pause between two steps of a duty, so that a flood of changes is no flood of
//! requests. A step that fails or panics is told, and repeated after a pause or a hint. So is a panic of the fence, or of the tasks that
//! listen to the backend.
//!
//! The fence: the lease counts from the moment before its renewal was sent. When four fifths of it have passed without
//! another renewal, or the backend says that the node is dead, `shared.lost` is cancelled, and the keeper does nothing
//! more. `fence.rs` has its clocks. On a backend that only this process can use nobody could take the names: there the lease may pass, and only
//! the backend's word fences the node.
//!
//! The fleet's supervisor owns the keeper. A keeper that starts looks at everything once.

mod listen;
mod looks;
mod quotas;
mod steps;
#[cfg(test)]
mod tests;
mod watch;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep_until};

use self::steps::KeeperContext;
use super::context::FleetShared;
use super::name::NameMessage;
use super::task::{Task, panic_text, spawn};
use crate::backend::Requests;
use crate::error::BackendError;
use crate::event::FleetEvent;
use crate::id::Name;
use crate::record::PromptRecord;

pub(crate) use watch::RECOVER;

/// Time after which a duty looks at everything, even without a hint.
const LOOK: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(1);
/// The pause after a renewal that has failed. Other duties pause for a second.
const RENEW_AGAIN: Duration = Duration::from_millis(250);

/// Takes prompts that may begin, one for each name, in the order in which their names come. It must not block.
pub(crate) type WakeNames = Arc<dyn Fn(Vec<PromptRecord>) + Send + Sync>;

/// Sends a message to the actor of a name, if it has one. It must not block.
pub(crate) type SendToName = Arc<dyn Fn(Name, NameMessage) + Send + Sync>;

/// The next moment of a duty, after a step.
type NextMoment = Result<Instant, BackendError>;

/// A duty of the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    Renew,
    Expire,
    Wake,
    Forget,
    Delete,
    Release,
    Watch,
    Command,
    Quotas,
    Holds,
}

/// The duties in the order of their numbers, in words, each with the shortest time in milliseconds from the beginning of a step to that of the
/// next one. A prompt that was accepted just now expires much later.
const DUTIES: [(Duty, &str, u64); 10] = [
    (Duty::Renew, "renew the lease", 0),
    (Duty::Expire, "expire prompts and questions", 100),
    (Duty::Wake, "wake names", 1),
    (Duty::Forget, "forget outcomes", 0),
    (Duty::Delete, "finish deletions", 10),
    (Duty::Release, "release strangers", 0),
    (Duty::Watch, "watch the nodes", 0),
    (Duty::Command, "carry out commands of other nodes", 10),
    (Duty::Quotas, "read the quotas that were set", 10),
    (Duty::Holds, "read which credentials are held", 250),
];

/// A running keeper. Its tasks end when it is dropped.
pub(crate) struct Keeper {
    context: Arc<KeeperContext>,
    _tasks: Vec<Task>,
}

impl Keeper {
    pub(crate) fn start(shared: Arc<FleetShared>, wake: WakeNames, send: SendToName) -> Self {
        let context = Arc::new(KeeperContext::new(shared, wake, send));
        // Before the first look at the records, so that no change is missed.
        let (changes, made) = (context.shared.backend.changes(), context.shared.backend.transitions());
        let mut tasks = vec![
            spawn(listen::listen(changes, context.clone())),
            spawn(listen::tell_transitions(made, context.clone())),
            spawn(fence(context.clone())),
        ];
        for (duty, words, pause) in DUTIES {
            let context = context.clone();
            tasks.push(spawn(async move {
                let lost = &context.shared.lost;
                // `None`: the node has lost its lease.
                lost.run_until_cancelled(attend(duty, words, Duration::from_millis(pause), &context)).await;
            }));
        }
        Self { context, _tasks: tasks }
    }

    /// Says that something may wait for a name.
    pub(crate) fn hint(&self, name: Name) {
        self.context.hint_to_wake(Some(name));
    }
}

/// Does a duty until the node has lost its lease.
async fn attend(duty: Duty, words: &str, pause: Duration, context: &KeeperContext) {
    let mut is_hinted = false;
    // Also before the timer of the fence: it comes late after a suspend.
    while !is_fenced(&context.shared) {
        let began = Instant::now();
        let next = match AssertUnwindSafe(context.step(duty, is_hinted)).catch_unwind().await {
            Ok(Ok(at)) => {
                is_hinted = false;
                Some(at)
            }
            Ok(Err(error)) => {
                context.shared.tell(FleetEvent::BackendUnavailable { why: error.to_string() });
                None
            }
            Err(panic) => {
                tell_panic(words, &*panic, &context.shared);
                None
            }
        };
        let again = if duty == Duty::Renew { RENEW_AGAIN } else { SECOND };
        let next = next.unwrap_or_else(|| Instant::now() + again);
        sleep_until(began + pause).await;
        tokio::select! {
            biased;
            () = context.hints[duty as usize].notified() => is_hinted = true,
            () = sleep_until(next) => {}
        }
    }
}

/// Tells a panic of the keeper, which goes on.
fn tell_panic(duty: &str, panic: &(dyn Any + Send), shared: &FleetShared) {
    let why = panic_text(panic).to_owned();
    // The panic may be that of a subscriber to the log.
    catch_unwind(|| tracing::error!(duty, why, "a step of the keeper has panicked")).ok();
    shared.tell(FleetEvent::ActorRestarted { actor: format!("keeper, at its duty to {duty}"), why });
}

/// Takes a step that does not wait. `None`: it has panicked, which is told.
fn step_of<T>(duty: &str, shared: &FleetShared, step: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(step)).map_err(|panic| tell_panic(duty, &*panic, shared)).ok()
}

/// Fences the node if its lease has passed. `true`: it has.
fn is_fenced(shared: &FleetShared) -> bool {
    if shared.holds_lease() {
        return false;
    }
    if !shared.lost.is_cancelled() {
        // Before the log, whose subscriber may panic.
        shared.lost.cancel();
        tracing::error!(node = %shared.node, "the lease of this node could not be renewed in time");
    }
    true
}

/// Looks at the fence when its moment has come. A renewal moves the moment meanwhile. A moment that has passed, because nobody else
/// can use the backend, is looked at again each second: the backend may be closed.
async fn fence(context: Arc<KeeperContext>) {
    while step_of("fence the node", &context.shared, || is_fenced(&context.shared)) != Some(true) {
        let (at, now) = (context.shared.fence.at(), Instant::now());
        sleep_until(if at <= now { now + SECOND } else { at }).await;
    }
}
