//! The machine of a name: what follows each message and the end of each step.

use std::sync::Arc;

use greenroom::message::UsageTracker;
use ractor::ActorProcessingErr;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Mutex, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Span;

use super::steps::look::{Look, look};
use super::watch::{self, StageWatch};
use super::{NameContext, StepEnd};
use crate::actor::context::Activation;
use crate::actor::task::Task;
use crate::error::FleetError;
use crate::event::{FleetEvent, PassivatedBy};
use crate::id::{Name, PromptId};
use crate::record::PromptRecord;

/// The stage of a name.
///
/// ```text
///              something waits       a slot            started
///  Settled ───────────────► Waiting ─────► Activating ────────► Idle ◄────────────┐
///  (no session)                │               │                 │ a turn         │
///     ▲  ▲  ▲                  │ nothing       │ failed          ▼                │ outcome
///     │  │  └──────────────────┘ waits any     ▼               Running ───────────┘
///     │  └──── the time passes ──────────── Backoff              │
///     │                                                          │ fenced, cut
///     │                                                          ▼
///     └───────────────────────────────────────────────────── Passivating ◄── Idle: too long, evicted, asked for, over, drained
///
///  Settled, and nothing waits: the actor ends, and the name is passive.
///  Settled, Waiting ──► Backoff: a deletion or a quarantine comes first.
///  Activating ──► Running: the turn was granted with the slot.
///  Activating ──► Settled: no prompt waits any more, or the name cannot run here.
///  Activating ──► Passivating: fenced, to end at once, or the backend refuses a name that is owned.
///  Running ──► Passivating: also if the session is over, its transcript is lost, or the backend refuses.
///  Passivating ──► Waiting: the name keeps its place. Passivating ──► Backoff: a turn or an activation has failed, or the name is held.
///  Backoff ──► Settled: also by a drain or a fence.
/// ```
pub(super) enum NameStage {
    /// There is no session, and no slot was asked for.
    Settled,
    /// A slot was asked for.
    Waiting(SlotRequest),
    /// A step claims the name and starts its session. `turn`: admission counts a turn with the slot.
    Activating { turn: bool },
    /// An activation or a turn has failed, or a deletion or a quarantine comes first. The slot was given back.
    Backoff,
    /// The session is up, without a turn. The next turn may have been asked for.
    Idle { live: Live, asked: Option<SlotRequest> },
    /// A step runs a turn.
    Running { live: Live, prompt: PromptId, interrupt: CancellationToken },
    /// A step ends the session and gives the name back. `asked`: the name had asked for a turn, and keeps its place. `failures`: the
    /// number in a row, if the next activation has to wait.
    Passivating { asked: bool, failures: Option<u32> },
}

impl NameStage {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Waiting(_) => "waiting",
            Self::Activating { .. } => "activating",
            Self::Backoff => "backoff",
            Self::Idle { .. } => "idle",
            Self::Running { .. } => "running",
            Self::Passivating { .. } => "passivating",
        }
    }

    /// The session, if it is up.
    pub(super) fn live(&self) -> Option<&Live> {
        match self {
            Self::Idle { live, .. } | Self::Running { live, .. } => Some(live),
            _ => None,
        }
    }

    /// Takes the session for the next stage, which the caller enters at once. Leaves `Settled`.
    pub(super) fn take_live(&mut self) -> Option<Live> {
        match std::mem::replace(self, Self::Settled) {
            Self::Idle { live, .. } | Self::Running { live, .. } => Some(live),
            stage => {
                *self = stage;
                None
            }
        }
    }
}

/// A request to admission, until it is granted.
pub(super) struct SlotRequest {
    /// The place of the prompt for which a turn was asked. `None`: a slot alone was asked for.
    pub(super) order: Option<u64>,
    /// Ends with the request.
    pub(super) _span: Span,
}

/// A session that is up.
pub(super) struct Live {
    pub(super) activation: Activation,
    /// The usage of the session's turns so far.
    pub(super) meter: Arc<Mutex<UsageTracker>>,
    /// The interrupts that are on their way to the CLI. No turn begins before they have arrived: they would hit that turn.
    pub(super) interrupts: TaskTracker,
    /// Keeps the identity of the session's process.
    _processes: Task,
    /// Waits for a fence.
    _fence: Task,
}

impl Live {
    pub(super) fn new(activation: Activation, cx: &NameContext) -> Self {
        Self {
            meter: Arc::default(),
            interrupts: TaskTracker::new(),
            _processes: watch::processes(&cx.shared, &activation),
            _fence: watch::fence(&cx.myself, cx.cell.fenced()),
            activation,
        }
    }
}

/// The callers of a name, and their wishes.
#[derive(Default)]
pub(super) struct Callers {
    /// Callers that wait for the session to be up.
    pub(super) warm: Vec<oneshot::Sender<Result<(), FleetError>>>,
    /// Callers that wait for the end of the session.
    pub(super) passive: Vec<oneshot::Sender<bool>>,
    /// The session is to end when the running step has ended.
    pub(super) passivate: Option<PassivatedBy>,
    /// Deletions and quarantines, which come before the next activation. Each is over when its sender is dropped.
    pub(super) holds: Vec<oneshot::Receiver<()>>,
}

impl Callers {
    /// Tells the callers that the session is up, or why not.
    pub(super) fn tell_up(&mut self, up: &Result<(), FleetError>) {
        self.warm.drain(..).for_each(|warm| answer(warm, up.clone()));
    }

    pub(super) fn not_up(&mut self, why: &str) {
        self.tell_up(&Err(FleetError::State(why.to_owned())));
    }

    /// Tells the callers that there is no session, and whether there was one.
    pub(super) fn tell_passive(&mut self, had_session: bool) {
        self.passivate = None;
        self.passive.drain(..).for_each(|done| answer(done, had_session));
    }

    /// True while a deletion or a quarantine comes before the next activation.
    pub(super) fn are_held(&mut self) -> bool {
        self.holds.retain_mut(|hold| hold.try_recv() == Err(TryRecvError::Empty));
        !self.holds.is_empty()
    }
}

pub(super) fn answer<T>(caller: oneshot::Sender<T>, answer: T) {
    // An error: the caller waits no more.
    caller.send(answer).ok();
}

/// A look at what waits for the name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looking {
    No,
    Runs,
    /// Something has changed since the look began.
    RunsAndAgain,
}

/// The reason why the name is not activated here any more. A fence counts more than a drain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ending {
    /// The fleet drains.
    Drained,
    /// The name or the lease is lost, and nothing may be written.
    Fenced,
}

/// The state of a name's actor.
pub(crate) struct NameActorState {
    pub(super) cx: NameContext,
    pub(super) stage: NameStage,
    pub(super) watch: StageWatch,
    pub(super) tenant: String,
    /// The prompt that may begin now, as the last look found it.
    pub(super) next: Option<PromptRecord>,
    looking: Looking,
    pub(super) callers: Callers,
    /// Failures in a row: of the session, of the host, and refusals of the backend.
    pub(super) failures: u32,
    pub(super) ending: Option<Ending>,
}

impl NameActorState {
    pub(super) fn new(cx: NameContext) -> Self {
        let ending = cx.shared.draining.is_cancelled().then_some(Ending::Drained);
        Self {
            watch: StageWatch::new(cx.myself.clone()),
            cx,
            stage: NameStage::Settled,
            tenant: String::new(),
            next: None,
            looking: Looking::No,
            callers: Callers::default(),
            failures: 0,
            ending,
        }
    }

    pub(super) fn enter(&mut self, stage: NameStage) {
        tracing::trace!(stage = stage.name(), "name");
        self.cx.cell.holdings().stage = Some((stage.name(), Instant::now()));
        self.stage = stage;
        self.watch.renew();
        if matches!(self.stage, NameStage::Waiting(_)) {
            self.tell(|name, tenant| FleetEvent::Waiting { name, tenant });
        }
    }

    /// Tells an event of the name.
    pub(super) fn tell(&self, event: impl FnOnce(Name, String) -> FleetEvent) {
        self.cx.shared.tell(event(self.cx.cell.name.clone(), self.tenant.clone()));
    }

    /// Goes on with a prompt that may begin, as the keeper has found it: admission is asked before anything else is read, so names
    /// ask in the order in which they are started.
    pub(super) fn begin_with(&mut self, next: PromptRecord) {
        self.cx.cell.look();
        self.tenant.clone_from(&next.tenant);
        self.next = Some(next);
        self.decide();
    }

    /// Looks at what waits for the name, unless the name waits for its slot with this prompt already.
    pub(super) fn woken(&mut self, next: Option<PromptId>) {
        let waits_for = self.next.as_ref().map(|prompt| prompt.id);
        if matches!(self.stage, NameStage::Waiting(_)) && next.is_some() && waits_for == next {
            return self.cx.cell.look();
        }
        self.look();
    }

    /// Looks at what waits for the name, once more if a look runs.
    pub(super) fn look(&mut self) {
        if self.looking != Looking::No {
            self.looking = Looking::RunsAndAgain;
            return;
        }
        self.looking = Looking::Runs;
        let is_wanted = !self.callers.warm.is_empty();
        self.cx
            .step(async move |shared, cell| StepEnd::Looked(Box::new(look(&shared, &cell, is_wanted).await)));
    }

    /// # Errors
    /// The text of a panic in the step, which is the end of the actor.
    pub(super) fn step_ended(&mut self, end: StepEnd) -> Result<(), ActorProcessingErr> {
        match end {
            StepEnd::Panicked(text) => return Err(format!("a step panicked: {text}").into()),
            StepEnd::Looked(look) => self.looked(*look),
            StepEnd::Activated(activated) => self.activated(*activated),
            StepEnd::TurnEnded(end) => self.turn_ended(end),
            StepEnd::Interrupted => self.decide(),
            StepEnd::Passivated => self.passivated(),
        }
        Ok(())
    }

    fn looked(&mut self, Look { tenant, next, not_up }: Look) {
        if std::mem::replace(&mut self.looking, Looking::No) == Looking::RunsAndAgain {
            return self.look();
        }
        self.next = next;
        if let Some(tenant) = tenant {
            self.tenant = tenant;
        }
        if let Some(why) = not_up {
            self.callers.tell_up(&Err(why));
        }
        self.decide();
    }

    /// Does what is to be done next, between steps.
    pub(super) fn decide(&mut self) {
        let is_held = self.callers.are_held();
        let order = self.next.as_ref().map(|prompt| prompt.order);
        let wants = order.is_some() || !self.callers.warm.is_empty();
        match &self.stage {
            NameStage::Settled | NameStage::Waiting(_) if self.ending.is_some() || !wants => {
                self.withdraw();
                self.enter(NameStage::Settled);
                self.rest();
            }
            NameStage::Settled | NameStage::Waiting(_) if is_held => self.hold(),
            NameStage::Settled => {
                let request = self.ask();
                self.enter(NameStage::Waiting(request));
            }
            NameStage::Waiting(request) if request.order != order => {
                self.stage = NameStage::Waiting(self.ask());
            }
            NameStage::Activating { turn: false } if order.is_some() => {
                // The turn comes with the slot.
                self.ask();
                self.stage = NameStage::Activating { turn: true };
            }
            NameStage::Idle { .. } if self.stops() => {
                self.begin_passivating(self.callers.passivate.unwrap_or(PassivatedBy::Drain), None);
            }
            NameStage::Idle { live, asked } if order.is_some() => {
                let is_asked = asked.as_ref().is_some_and(|request| request.order == order);
                if !is_asked && live.interrupts.is_empty() {
                    let request = self.ask();
                    if let NameStage::Idle { asked, .. } = &mut self.stage {
                        *asked = Some(request);
                    }
                }
            }
            NameStage::Idle { asked: Some(_), .. } => {
                self.withdraw();
                // The session may have been idle for long meanwhile.
                self.watch_idle();
            }
            _ => {}
        }
    }

    /// True if the session is to end before its next turn.
    pub(super) fn stops(&self) -> bool {
        self.ending.is_some() || self.callers.passivate.is_some()
    }

    /// Ends the actor if nothing is left to do.
    pub(super) fn rest(&mut self) {
        if matches!(self.stage, NameStage::Settled) && self.looking == Looking::No {
            self.callers.not_up("the fleet is draining");
            self.callers.tell_passive(false);
            self.cx.myself.stop(None);
        }
    }
}
