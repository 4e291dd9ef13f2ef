//! The keeper: does what time has to do.
//!
//! | duty | when | at most in a step |
//! |---|---|---|
//! | renew the lease | after a sixth of it; after a failure sooner | one attempt of a sixth of the lease, 2 s at most |
//! | expire prompts and questions | at the next expiry, after hints, every 5 s | 8 batches of 256 |
//! | wake names | at the next moment at which a prompt may begin, after hints, every 5 s | the names that can run, 256 in a request |
//! | forget outcomes | every minute at most; a second after a full batch | 500 prompts |
//! | finish deletions | every 5 s; a name whose files cannot be removed after 1 s, 2 s … 60 s | 16 names |
//! | release strangers | every 5 s | the names that this node owns |
//! | carry out commands of other nodes | after hints; each second while there is another node and a name is awake here | 256 commands, each by a task of its own |
//! | watch the nodes | each second if other nodes can use the backend; when a lease ends; when the next batch of names may be recovered | reads all nodes, recovers 64 names of dead ones |
//!
//! Each duty:
//!
//! ```text
//!  Waiting ──its moment, a hint──► Running: a task asks the backend ──the task has ended, or panicked──► Waiting
//!                                     └── a hint meanwhile: the duty runs once more ──┘
//! ```
//!
//! Hints are the changes that the backend tells. A lost hint delays a duty by 5 s, and is never fatal. At most one hint of a duty
//! waits in the mailbox, and there is a pause between two steps of a duty, so that a flood of changes is no flood of requests.
//!
//! The fence: the lease counts from the moment before its renewal was sent. When four fifths of it have passed without
//! another renewal, or the backend says that the node is dead, `shared.lost` is cancelled, and the keeper does nothing
//! more. `fence.rs` has its clocks. On a backend that only this process can use nobody could take the names: there the lease may pass, and only
//! the backend's word fences the node.
//!
//! Restart policy: permanent. A keeper that is started again has no memory: it looks at everything once.

mod commands;
mod duty;
mod hints;
mod lease;
mod listen;
mod steps;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SpawnErr};
use tokio::time::Instant;

use self::duty::{Duty, DutyEnd};
use self::hints::HintedDuties;
use self::steps::KeeperContext;
use super::context::FleetShared;
use super::name::NameMessage;
use super::task::Task;
use crate::backend::Requests;
use crate::event::FleetEvent;
use crate::id::{AttemptId, Name};
use crate::record::PromptRecord;

pub(crate) use watch::RECOVER;

/// Takes prompts that may begin, one for each name, in the order in which their names come. It must not block.
pub(crate) type WakeNames = Arc<dyn Fn(Vec<PromptRecord>) + Send + Sync>;

/// Asks for the claims by which this node owns names, and for those that are under way. `None`: nobody knows at the moment.
pub(crate) type OwnedNames =
    Arc<dyn Fn() -> BoxFuture<'static, Option<HashSet<(Name, AttemptId)>>> + Send + Sync>;

/// Sends a message to the actor of a name, if it has one. It must not block.
pub(crate) type SendToName = Arc<dyn Fn(Name, NameMessage) + Send + Sync>;

/// A running keeper.
#[derive(Clone)]
pub(crate) struct Keeper {
    actor: ActorRef<KeeperMessage>,
    context: Arc<KeeperContext>,
    hints: Arc<HintedDuties>,
}

impl Keeper {
    /// Starts a keeper under a supervisor, which starts it again if it fails.
    pub(crate) async fn spawn(
        shared: Arc<FleetShared>,
        wake: WakeNames,
        owned: OwnedNames,
        send: SendToName,
        supervisor: ActorCell,
    ) -> Result<Self, SpawnErr> {
        let context = Arc::new(KeeperContext::new(shared, wake, owned, send));
        let hints = Arc::new(HintedDuties::default());
        let arguments = (context.clone(), hints.clone());
        let (actor, _) = Actor::spawn_linked(None, KeeperActor, arguments, supervisor).await?;
        Ok(Self { actor, context, hints })
    }

    pub(crate) fn id(&self) -> ActorId {
        self.actor.get_id()
    }

    /// Says that something may wait for a name.
    pub(crate) fn hint(&self, name: Name) {
        self.context.hinted.add(name);
        self.hints.tell(Duty::Wake, &self.actor);
    }

    /// Makes the actor fail, to test that the fleet survives it.
    #[cfg(any(test, feature = "testkit"))]
    pub(crate) fn panic(&self) {
        // An error: it has ended.
        self.actor.cast(KeeperMessage::Panic).ok();
    }
}

#[derive(Debug)]
pub(crate) enum KeeperMessage {
    /// The moment of a duty has come, or a hint has.
    Due(Duty),
    /// A step of a duty has ended.
    Ended(Duty, DutyEnd),
    /// The moment may have come at which the node gives its lease up.
    Fence,
    #[cfg(any(test, feature = "testkit"))]
    Panic,
}

#[cfg(feature = "cluster")]
impl ractor::Message for KeeperMessage {}

struct KeeperActor;

/// A duty at a moment. Dropping it ends its task.
enum Progress {
    Waiting {
        _timer: Task,
    },
    Running {
        _step: Task,
        again: bool,
    },
    /// The node has lost its lease.
    Over,
}

struct KeeperState {
    context: Arc<KeeperContext>,
    myself: ActorRef<KeeperMessage>,
    hints: Arc<HintedDuties>,
    duties: [Progress; Duty::ALL.len()],
    /// The moments at which the latest steps began.
    began: [Instant; Duty::ALL.len()],
    _fence: Task,
    _listener: Task,
    _transitions: Task,
}

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for KeeperActor {
    type Msg = KeeperMessage;
    type State = KeeperState;
    type Arguments = (Arc<KeeperContext>, Arc<HintedDuties>);

    async fn pre_start(
        &self,
        myself: ActorRef<KeeperMessage>,
        (context, hints): (Arc<KeeperContext>, Arc<HintedDuties>),
    ) -> Result<KeeperState, ActorProcessingErr> {
        // Before the first look at the records, so that no change is missed.
        let changes = context.shared.backend.changes();
        let listener = Task::spawn(listen::listen(changes, context.clone(), hints.clone(), myself.clone()));
        let made = context.shared.backend.transitions();
        let transitions = Task::spawn(listen::tell_transitions(made, context.clone()));
        let fence = fence(&context, &myself);
        let duties = Duty::ALL.map(|duty| run(duty, &context, &myself));
        let began = [Instant::now(); Duty::ALL.len()];
        Ok(KeeperState {
            context,
            myself,
            hints,
            duties,
            began,
            _fence: fence,
            _listener: listener,
            _transitions: transitions,
        })
    }

    async fn handle(
        &self,
        _: ActorRef<KeeperMessage>,
        message: KeeperMessage,
        state: &mut KeeperState,
    ) -> Result<(), ActorProcessingErr> {
        // Also before the timer of the fence: it comes late after a suspend.
        if state.check_fence() {
            return Ok(());
        }
        match message {
            KeeperMessage::Due(duty) => state.due(duty),
            KeeperMessage::Ended(duty, end) => state.ended(duty, end),
            KeeperMessage::Fence => state._fence = fence(&state.context, &state.myself),
            #[cfg(any(test, feature = "testkit"))]
            KeeperMessage::Panic => panic!("a fault was injected into the keeper"),
        }
        Ok(())
    }
}

impl KeeperState {
    fn due(&mut self, duty: Duty) {
        self.hints.heard(duty);
        if let Progress::Running { again, .. } = &mut self.duties[duty as usize] {
            *again = true;
        } else {
            self.start(duty);
        }
    }

    /// Runs a step, or waits until the pause since the one before is over.
    fn start(&mut self, duty: Duty) {
        let (now, earliest) = (Instant::now(), self.began[duty as usize] + duty.pause_between_steps());
        self.duties[duty as usize] = if now < earliest {
            wait(duty, earliest, &self.myself)
        } else {
            self.began[duty as usize] = now;
            run(duty, &self.context, &self.myself)
        };
    }

    fn ended(&mut self, duty: Duty, end: DutyEnd) {
        let at = match end {
            DutyEnd::At(at) => at,
            DutyEnd::Failed(error) => {
                self.context.shared.tell(FleetEvent::BackendUnavailable { why: error.to_string() });
                Instant::now() + duty.pause_after_failure()
            }
            DutyEnd::Panicked(why) => {
                tracing::error!(?duty, why, "a step of the keeper has panicked");
                let actor = format!("keeper, at its duty to {duty}");
                self.context.shared.tell(FleetEvent::ActorRestarted { actor, why });
                Instant::now() + duty.pause_after_failure()
            }
        };
        if matches!(self.duties[duty as usize], Progress::Running { again: true, .. }) {
            self.start(duty);
        } else {
            self.duties[duty as usize] = wait(duty, at, &self.myself);
        }
    }

    /// Fences the node if its lease has passed. `true`: it has.
    fn check_fence(&mut self) -> bool {
        let shared = &self.context.shared;
        if shared.holds_lease() {
            return false;
        }
        if !shared.lost.is_cancelled() {
            tracing::error!(node = %shared.node, "the lease of this node could not be renewed in time");
            shared.lost.cancel();
        }
        self.duties = Duty::ALL.map(|_| Progress::Over);
        true
    }
}

/// Looks at the fence when its moment has come. A renewal moves the moment and leaves the timer as it is. A moment that
/// has passed, because nobody else can use the backend, is looked at again each second: the backend may be closed.
fn fence(context: &KeeperContext, myself: &ActorRef<KeeperMessage>) -> Task {
    let at = context.shared.fence.at();
    let now = Instant::now();
    later(if at <= now { now + Duration::from_secs(1) } else { at }, KeeperMessage::Fence, myself)
}

fn wait(duty: Duty, at: Instant, myself: &ActorRef<KeeperMessage>) -> Progress {
    Progress::Waiting { _timer: later(at, KeeperMessage::Due(duty), myself) }
}

fn later(at: Instant, message: KeeperMessage, myself: &ActorRef<KeeperMessage>) -> Task {
    let myself = myself.clone();
    Task::spawn(async move {
        tokio::time::sleep_until(at).await;
        // An error: the keeper has ended.
        myself.cast(message).ok();
    })
}

fn run(duty: Duty, context: &Arc<KeeperContext>, myself: &ActorRef<KeeperMessage>) -> Progress {
    let (context, myself) = (context.clone(), myself.clone());
    let step = Task::spawn(async move {
        let end = DutyEnd::of(context.step(duty)).await;
        // An error: the keeper has ended.
        myself.cast(KeeperMessage::Ended(duty, end)).ok();
    });
    Progress::Running { _step: step, again: false }
}
