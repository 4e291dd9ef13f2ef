//! The machine of a name: what follows each message and the end of each step.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use greenroom::Session;
use ractor::ActorRef;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Span;

use super::steps;
use super::steps::look::look;
use super::{NameContext, NameMessage};
use crate::actor::cell::{NameCell, StageKind};
use crate::actor::context::FleetShared;
use crate::actor::task::{Task, answer, panic_text};
use crate::error::FleetError;
use crate::event::{FleetEvent, PassivatedBy};
use crate::health::{Held, Try};
use crate::id::{Name, PromptId};
use crate::record::{PromptOrigin, PromptRecord};

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
///  Settled, Activating ──► Held: a cause that is not the name's holds it back, such as a rate limit.
///  Held ──► Settled: the name may try, the cause is mended, its prompt has expired; a drain or a fence.
///  Activating ──► Running: the turn was granted with the slot.
///  Activating ──► Waiting: the tenant is at its cap of live sessions on other nodes; the name keeps its place.
///  Activating ──► Settled: no prompt waits any more, or the name cannot run here.
///  Activating ──► Passivating: fenced, to end at once, or the backend refuses a name that is owned.
///  Running ──► Idle: also if the API limits its credential; the prompt waits there for its try.
///  Running ──► Passivating: also if the session is over, its key is rejected, its transcript is lost, or the backend refuses.
///  Passivating ──► Waiting: the name keeps its place. Passivating ──► Backoff: a turn or an activation has failed, or the name is held.
///  Backoff ──► Settled: also by a drain or a fence.
///  Idle ──► Running: also by a turn that the CLI begins by itself.
///  Idle, Running: background work keeps the slot for `limits.background` in all, over turns. After that the session yields it between turns.
/// ```
pub(super) enum NameStage {
    /// There is no session, and no slot was asked for.
    Settled,
    /// A slot was asked for.
    Waiting,
    /// A step claims the name and starts its session. `turn`: admission counts a turn with the slot.
    Activating { turn: bool },
    /// A cause that is not the name's holds it back. It has no slot.
    Held,
    /// An activation or a turn has failed, or a deletion or a quarantine comes first. The slot was given back.
    Backoff,
    /// The session is up, without a turn. The next turn may have been asked for.
    Idle(Live),
    /// A step runs a turn: that of a prompt, or one that the CLI has begun by itself.
    Running { live: Live, prompt: PromptId, origin: PromptOrigin, interrupt: CancellationToken },
    /// A step ends the session and gives the name back. `failures`: the number in a row, if the next activation has to wait.
    Passivating { failures: Option<u32> },
}

impl NameStage {
    fn kind(&self) -> StageKind {
        match self {
            Self::Settled => StageKind::Settled,
            Self::Waiting => StageKind::Waiting,
            Self::Activating { .. } => StageKind::Activating,
            Self::Held => StageKind::Held,
            Self::Backoff => StageKind::Backoff,
            Self::Idle(_) => StageKind::Idle,
            Self::Running { .. } => StageKind::Running,
            Self::Passivating { .. } => StageKind::Passivating,
        }
    }

    /// The session, if it is up.
    pub(super) fn live(&self) -> Option<&Live> {
        match self {
            Self::Idle(live) | Self::Running { live, .. } => Some(live),
            _ => None,
        }
    }

    /// Takes the session for the next stage, which the caller enters at once. Leaves `Settled`.
    pub(super) fn take_live(&mut self) -> Option<Live> {
        match std::mem::replace(self, Self::Settled) {
            Self::Idle(live) | Self::Running { live, .. } => Some(live),
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
    pub(super) since: Instant,
    /// Ends with the request.
    pub(super) span: Span,
}

/// A session that is up.
pub(super) struct Live {
    pub(super) session: Session,
    /// Interrupts and messages for the running turn that are on their way to the CLI. No turn begins before they have arrived: they would
    /// hit that turn.
    pub(super) for_turn: TaskTracker,
    /// The moment at which background work began to keep the slot. Stays over turns, until the session is seen idle.
    pub(super) background: Option<Instant>,
    /// Admission has taken the slot back in the moment in which the CLI began a turn by itself: the session ends after the turn.
    pub(super) is_evicted: bool,
    /// Keeps the identity of the session's process.
    pub(super) _processes: Task,
}

/// The watch of a name's stage. Its transition is made only while the watch is kept.
pub(super) struct StageWatch {
    pub(super) _task: Task,
    pub(super) _kept: Arc<()>,
}

/// The callers of a name, and their wishes.
#[derive(Default)]
pub(super) struct Callers {
    /// Callers that wait for the session to be up.
    pub(super) warm: Vec<oneshot::Sender<Result<(), FleetError>>>,
    /// Callers that wait for the end of the session, which comes when the running step has ended.
    pub(super) passive: Vec<oneshot::Sender<bool>>,
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
        self.passive.drain(..).for_each(|done| answer(done, had_session));
    }

    /// True while a deletion or a quarantine comes before the next activation.
    pub(super) fn are_held(&mut self) -> bool {
        self.holds.retain_mut(|hold| hold.try_recv() == Err(TryRecvError::Empty));
        !self.holds.is_empty()
    }
}

/// The state of a name's actor.
pub(crate) struct NameActorState {
    pub(super) myself: ActorRef<NameMessage>,
    pub(super) cx: NameContext,
    pub(super) stage: NameStage,
    pub(super) watch: Option<StageWatch>,
    /// Waits for the try of a live session's prompt, or for its end, beside the watch.
    pub(super) try_watch: Option<StageWatch>,
    /// The prompt that may begin now, as the last look found it.
    pub(super) next: Option<PromptRecord>,
    /// The last request to admission in this stage, unless it was withdrawn or given back.
    pub(super) asked: Option<SlotRequest>,
    /// A look at what waits runs.
    is_looking: bool,
    pub(super) callers: Callers,
    /// Failures in a row: of the session, of the host, and refusals of the backend.
    pub(super) failures: u32,
    /// The permits to start a session, and to begin its first turn, in spite of causes that hold other names back.
    pub(super) tries: Vec<Try>,
}

impl NameActorState {
    pub(super) fn new(myself: ActorRef<NameMessage>, cx: NameContext) -> Self {
        Self {
            myself,
            cx,
            stage: NameStage::Settled,
            watch: None,
            try_watch: None,
            next: None,
            asked: None,
            is_looking: false,
            callers: Callers::default(),
            failures: 0,
            tries: Vec::new(),
        }
    }

    /// Runs a step, and then the transition that the step returns. The step goes on if the actor fails; its panic fails the actor.
    pub(super) fn step<F, T>(&self, step: impl FnOnce(Arc<FleetShared>, Arc<NameCell>) -> F)
    where
        F: Future<Output = T> + Send + 'static,
        T: FnOnce(&mut Self) + Send + 'static,
    {
        let step = AssertUnwindSafe(step(self.cx.shared.clone(), self.cx.cell.clone())).catch_unwind();
        let myself = self.myself.clone();
        self.cx.cell.steps.spawn(async move {
            let end = step.await.map(|transition| Box::new(transition) as _);
            let end = end.map_err(|panic| panic_text(&*panic).to_owned());
            // An error: the actor has failed, and its supervisor gives back what the step has got.
            myself.cast(NameMessage::Step(end)).ok();
        });
    }

    pub(super) fn enter(&mut self, stage: NameStage) {
        tracing::trace!(stage = ?stage.kind(), "name");
        self.cx.cell.holdings().stage = Some((stage.kind(), Instant::now()));
        (self.stage, self.watch, self.try_watch, self.asked) = (stage, None, None, None);
        if matches!(self.stage, NameStage::Waiting) {
            self.tell(|name| FleetEvent::Waiting { name });
        }
    }

    /// Tells an event of the name.
    pub(super) fn tell(&self, event: impl FnOnce(Name) -> FleetEvent) {
        self.cx.shared.tell_of(&self.cx.cell, event);
    }

    /// Goes on with a prompt that may begin, as the keeper has found it: admission is asked before anything else is read, so names
    /// ask in the order in which they are started.
    pub(super) fn begin_with(&mut self, next: PromptRecord) {
        if !self.cx.shared.health.is_healthy() {
            // Whether a cause holds the name back depends on its profile.
            return self.look();
        }
        self.cx.cell.look();
        self.next = Some(next);
        self.decide();
    }

    /// Looks at what waits for the name, unless the name waits for its slot with this prompt already.
    pub(super) fn woken(&mut self, next: Option<PromptId>) {
        if self.is_looking {
            // A look that began before the wake finds the mark at its end.
            return;
        }
        let waits_for = self.next.as_ref().map(|prompt| prompt.id);
        let waits = matches!(self.stage, NameStage::Waiting | NameStage::Held | NameStage::Backoff);
        if waits && next.is_some() && waits_for == next {
            return self.cx.cell.look();
        }
        self.look();
    }

    /// Looks at what waits for the name, once more if a look runs.
    pub(super) fn look(&mut self) {
        self.cx.cell.mark();
        if std::mem::replace(&mut self.is_looking, true) {
            return;
        }
        let is_wanted = !self.callers.warm.is_empty();
        self.step(async move |shared, cell| {
            let looked = look(&shared, &cell, is_wanted).await;
            move |state: &mut Self| state.looked(looked)
        });
    }

    fn looked(&mut self, look: Result<Option<PromptRecord>, FleetError>) {
        self.is_looking = false;
        if self.cx.cell.is_dirty() {
            // Something has changed since the look began.
            return self.look();
        }
        self.next = look.unwrap_or_else(|why| {
            self.callers.tell_up(&Err(why));
            None
        });
        self.decide();
    }

    /// Does what is to be done next, between steps.
    pub(super) fn decide(&mut self) {
        let is_held = self.callers.are_held();
        let order = self.next.as_ref().map(|prompt| prompt.order);
        let wants = order.is_some() || !self.callers.warm.is_empty();
        let is_asked = self.asked.as_ref().is_some_and(|request| request.order == order);
        match &self.stage {
            NameStage::Settled | NameStage::Waiting if self.is_ending() || !wants => {
                self.withdraw();
                self.enter(NameStage::Settled);
                self.rest();
            }
            NameStage::Settled | NameStage::Waiting if is_held => self.hold(),
            NameStage::Settled => {
                // Before a slot is asked for, which an idle session might have to give up.
                if let Err(held) = self.admit() {
                    return self.hold_back(held);
                }
                self.enter(NameStage::Waiting);
                self.ask();
                self.watch_tries();
            }
            NameStage::Waiting if !is_asked => self.ask(),
            NameStage::Activating { turn: false } if order.is_some() => {
                // The turn comes with the slot.
                self.ask();
                self.stage = NameStage::Activating { turn: true };
            }
            NameStage::Idle(_) if self.stops() => {
                let by = match () {
                    () if !self.callers.passive.is_empty() => PassivatedBy::Request,
                    () if self.is_ending() => PassivatedBy::Drain,
                    () => PassivatedBy::Eviction,
                };
                self.begin_passivating(by, None);
            }
            NameStage::Idle(live) if order.is_some() && !is_asked && live.for_turn.is_empty() => {
                self.ask_idle()
            }
            NameStage::Idle(_) if order.is_none() => {
                self.tries.clear();
                self.try_watch = None;
                if self.asked.is_some() {
                    self.withdraw();
                    // The session may have been idle for long meanwhile.
                    self.watch_idle();
                }
            }
            _ => {}
        }
    }

    /// Finds out if a cause holds the name back. A name whose profile is not known is let through, and held back when it has its slot.
    fn admit(&mut self) -> Result<(), Held> {
        steps::admit(&self.cx.shared, &self.cx.cell, &mut self.tries)
    }

    /// True if the name is not activated here any more.
    pub(super) fn is_ending(&self) -> bool {
        self.cx.shared.draining.is_cancelled() || self.cx.shared.is_fenced(&self.cx.cell)
    }

    /// True if the session is to end before its next turn.
    pub(super) fn stops(&self) -> bool {
        let is_evicted = self.stage.live().is_some_and(|live| live.is_evicted);
        self.is_ending() || !self.callers.passive.is_empty() || is_evicted
    }

    /// Ends the actor if nothing is left to do.
    pub(super) fn rest(&mut self) {
        if matches!(self.stage, NameStage::Settled) && !self.is_looking {
            self.callers.not_up("the fleet is draining");
            self.callers.tell_passive(false);
            self.tries.clear();
            self.myself.stop(None);
        }
    }
}
