//! The machine of a name: what follows each message and the end of each step.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use ractor::{ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::steps::{self, Look};
use super::{Live, NameArguments, NameMessage, StepEnd, watch};
use crate::actor::admitter::{AdmissionLink, AdmissionMessage, Grant};
use crate::actor::cell::NameCell;
use crate::actor::context::{FleetShared, shown};
use crate::actor::task::Task;
use crate::admission::Want;
use crate::face::error::FleetError;
use crate::face::event::{FleetEvent, PassivatedBy};
use crate::id::PromptId;
use crate::record::PromptRecord;

/// The stage of a name.
#[derive(Debug)]
pub(super) enum Stage {
    /// There is no session, and no slot was asked for.
    Settled,
    /// A slot was asked for.
    Waiting,
    /// A step claims the name and starts its session.
    Activating,
    /// An activation has failed, or a deletion or a quarantine comes first. The slot was given back.
    Backoff,
    /// The session is up, without a turn.
    Idle,
    /// A step runs a turn.
    Running { prompt: PromptId, interrupt: CancellationToken },
    /// A step ends the session and gives the name back.
    Passivating,
}

pub(crate) struct NameState {
    pub(super) myself: ActorRef<NameMessage>,
    pub(super) shared: Arc<FleetShared>,
    pub(super) cell: Arc<NameCell>,
    pub(super) admission: AdmissionLink,
    pub(super) stage: Stage,
    pub(super) since: Instant,
    pub(super) live: Option<Live>,
    /// The prompt that may begin now, as the last look found it.
    pub(super) next: Option<PromptRecord>,
    pub(super) tenant: String,
    /// A look runs; `again`: something has changed since it began.
    pub(super) looking: bool,
    pub(super) again: bool,
    /// A turn or a slot was asked for.
    pub(super) asked: bool,
    /// The place of the prompt for which it was asked.
    pub(super) asked_order: Option<u64>,
    /// The span of the request, until it is granted or withdrawn.
    pub(super) asking: Option<tracing::Span>,
    /// A turn was asked for, with the slot if the name had none.
    pub(super) wants_turn: bool,
    /// Callers that wait for the session to be up.
    pub(super) warm: Vec<oneshot::Sender<Result<(), FleetError>>>,
    /// The session is to end when the running step has.
    pub(super) passivate: Option<PassivatedBy>,
    pub(super) passive: Vec<oneshot::Sender<bool>>,
    /// Deletions and quarantines, which come before the next activation. Each is over when its sender is dropped.
    pub(super) holds: Vec<oneshot::Receiver<()>>,
    /// An interrupt is on its way to the CLI.
    pub(super) interrupting: u32,
    /// The session ends because of a failure, and the next one waits: the failures in a row.
    pub(super) failed: Option<u32>,
    /// Requests that the backend has refused in a row.
    pub(super) errors: u32,
    pub(super) fenced: bool,
    pub(super) draining: bool,
    pub(super) watch: Option<Task>,
    /// Keeps the identity of the session's process, and waits for a fence.
    pub(super) processes: Option<(Task, Task)>,
    pub(super) watches: u64,
}

impl NameState {
    pub(super) fn new(myself: ActorRef<NameMessage>, arguments: NameArguments) -> Self {
        let NameArguments { shared, cell, admission, next: _ } = arguments;
        let draining = shared.draining.is_cancelled();
        Self {
            myself,
            shared,
            cell,
            admission,
            stage: Stage::Settled,
            since: Instant::now(),
            live: None,
            next: None,
            tenant: String::new(),
            looking: false,
            again: false,
            asked: false,
            asked_order: None,
            asking: None,
            wants_turn: false,
            warm: Vec::new(),
            passivate: None,
            passive: Vec::new(),
            holds: Vec::new(),
            interrupting: 0,
            failed: None,
            errors: 0,
            fenced: false,
            draining,
            watch: None,
            processes: None,
            watches: 0,
        }
    }

    pub(super) fn enter(&mut self, stage: Stage) {
        tracing::trace!(?stage, "name");
        if matches!(
            (&self.stage, &stage),
            (Stage::Settled | Stage::Backoff | Stage::Passivating, Stage::Waiting)
        ) {
            let (name, tenant) = (self.cell.name.clone(), self.tenant.clone());
            self.shared.tell(FleetEvent::Waiting { name, tenant });
        }
        (self.stage, self.since, self.watch) = (stage, Instant::now(), None);
        self.watches += 1;
    }

    /// Runs a step. It goes on if the actor fails; its panic is the end of the step.
    pub(super) fn step(&self, step: impl Future<Output = StepEnd> + Send + 'static) {
        let myself = self.myself.clone();
        self.cell.steps.spawn(async move {
            let end = AssertUnwindSafe(step).catch_unwind().await;
            let end = end.unwrap_or_else(|panic| StepEnd::Panicked(steps::panic_text(&*panic).to_owned()));
            // An error: the actor has failed, and its supervisor gives back what the step has got.
            myself.cast(NameMessage::Step(end)).ok();
        });
    }

    /// Goes on with a prompt that may begin, as the keeper has found it: admission is asked before anything else is read, so names
    /// ask in the order in which they are started.
    pub(super) fn begin_with(&mut self, next: PromptRecord) {
        self.cell.look();
        self.tenant.clone_from(&next.tenant);
        self.next = Some(next);
        self.decide();
    }

    /// Looks at what waits for the name, unless the name waits for its slot with this prompt already.
    pub(super) fn woken(&mut self, next: Option<PromptId>) {
        let waits_for = self.next.as_ref().map(|prompt| prompt.id);
        if matches!(self.stage, Stage::Waiting) && next.is_some() && waits_for == next {
            return self.cell.look();
        }
        self.look();
    }

    /// Looks at what waits for the name, once more if a look runs.
    pub(super) fn look(&mut self) {
        if std::mem::replace(&mut self.looking, true) {
            self.again = true;
            return;
        }
        let (shared, cell, warm) = (self.shared.clone(), self.cell.clone(), !self.warm.is_empty());
        self.step(async move {
            let mut looked = steps::look(&shared, &cell).await;
            if let Ok(Look { record: Some(record), next: None, elsewhere }) = &mut looked
                && warm
            {
                *elsewhere = steps::elsewhere(&shared, record).await;
            }
            StepEnd::Looked(looked.map(Box::new).map_err(|not_done| steps::not_looked(&cell, &not_done)))
        });
    }

    /// # Errors
    /// The text of a panic in the step, which is the end of the actor.
    pub(super) fn step_ended(&mut self, end: StepEnd) -> Result<(), ActorProcessingErr> {
        match end {
            StepEnd::Panicked(text) => return Err(format!("a step panicked: {text}").into()),
            StepEnd::Looked(looked) => self.looked(looked),
            StepEnd::Activated(activated) => self.activated(*activated),
            StepEnd::TurnEnded(end) => self.turn_ended(end),
            StepEnd::Interrupted => {
                self.interrupting = self.interrupting.saturating_sub(1);
                self.decide();
            }
            StepEnd::Passivated => self.passivated(),
        }
        Ok(())
    }

    fn looked(&mut self, looked: Result<Box<Look>, String>) {
        self.looking = false;
        if std::mem::take(&mut self.again) {
            return self.look();
        }
        match looked {
            Ok(look) => {
                let Look { record, next, elsewhere } = *look;
                let why = match &record {
                    Some(record) => blocked(record),
                    None => Some("the session is not known: send it a prompt first".to_owned()),
                };
                if let Some(record) = record {
                    self.tenant = record.tenant;
                }
                self.next = next.filter(|_| why.is_none());
                if let Some(why) = why {
                    self.not_warm(&why);
                }
                if let Some(why) = elsewhere {
                    self.tell_warm(&why);
                }
            }
            Err(why) => {
                self.next = None;
                self.not_warm(&why);
            }
        }
        self.decide();
    }

    /// Does what is to be done next, between steps.
    pub(super) fn decide(&mut self) {
        let held = self.is_held();
        match self.stage {
            Stage::Settled | Stage::Waiting if self.fenced || self.draining || !self.wants() => {
                self.withdraw();
                self.enter(Stage::Settled);
                self.rest();
            }
            Stage::Settled | Stage::Waiting if held => self.hold(),
            Stage::Settled => {
                self.enter(Stage::Waiting);
                self.ask();
            }
            Stage::Waiting => self.ask(),
            Stage::Activating if self.next.is_some() && !self.wants_turn => {
                // Comes with the slot.
                self.ask();
                self.asked = false;
            }
            Stage::Idle if self.fenced || self.draining || self.passivate.is_some() => {
                let by = self.passivate.take().unwrap_or(PassivatedBy::Drain);
                self.begin_passivating(by);
            }
            Stage::Idle if self.next.is_some() && self.interrupting == 0 => self.ask(),
            Stage::Idle if self.next.is_none() && self.asked => {
                self.withdraw();
                // The session may have been idle for long meanwhile.
                self.watch_idle();
            }
            _ => {}
        }
    }

    fn wants(&self) -> bool {
        self.next.is_some() || !self.warm.is_empty()
    }

    /// Asks admission for a turn or for a slot, once for each prompt that is the next one.
    pub(super) fn ask(&mut self) {
        let order = self.next.as_ref().map(|prompt| prompt.order);
        if std::mem::replace(&mut self.asked, true) && self.asked_order == order {
            return;
        }
        self.asked_order = order;
        self.wants_turn = self.next.is_some();
        let want = if self.wants_turn { Want::Turn } else { Want::Warm };
        let tenant = self.tenant.clone();
        let (name, turn) = (shown(&self.cell.name), self.wants_turn);
        self.asking = Some(tracing::info_span!("admission", name, tenant, turn, live = self.live.is_some()));
        self.tell_admission(AdmissionMessage::Ask { tenant, want, order, actor: self.myself.clone() });
    }

    /// Takes the request back, if there is one.
    pub(super) fn withdraw(&mut self) {
        if std::mem::take(&mut self.asked) {
            self.asking = None;
            self.tell_admission(AdmissionMessage::Withdraw);
        }
    }

    pub(super) fn tell_admission(&self, message: AdmissionMessage) {
        self.admission.tell(&self.cell.name, message);
    }

    pub(super) fn granted(&mut self, grant: Grant, generation: u64) {
        if !self.admission.is_current(generation) {
            // A later admission does not know of it: the name asks again.
            return;
        }
        self.asking = None;
        match (grant, &self.stage) {
            (Grant::Activate, Stage::Waiting) => {
                if !self.admission.take_slot(&self.cell, &self.tenant, generation) {
                    return;
                }
                self.asked = false;
                self.activate();
            }
            // The name wants nothing any more, and the message that says so is on its way.
            (Grant::Activate, _) => self.tell_admission(AdmissionMessage::Freed),
            (Grant::Turn, Stage::Idle) => {
                self.asked = false;
                self.begin_turn();
            }
            (Grant::Passivate, Stage::Idle) => self.begin_passivating(PassivatedBy::Eviction),
            (Grant::Turn, _) => self.tell_admission(AdmissionMessage::TurnEnded),
            (Grant::Passivate, _) => {}
        }
    }

    /// Waits before the next activation, longer after each failure in a row, and not at once with others.
    pub(super) fn back_off(&mut self, failures: u32) {
        self.free_slot();
        self.enter(Stage::Backoff);
        self.passivate = None;
        self.is_passive(false);
        if self.draining || self.fenced {
            self.enter(Stage::Settled);
            return self.rest();
        }
        let limits = &self.shared.limits;
        let doubled = limits.backoff.saturating_mul(1 << failures.saturating_sub(1).min(16));
        let wait = doubled.min(limits.backoff_max).mul_f64(0.75 + 0.5 * fraction(&self.cell.name, failures));
        let wait = wait.max(Duration::from_millis(1));
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let (name, tenant) = (self.cell.name.clone(), self.tenant.clone());
        self.shared.tell(FleetEvent::BackingOff { name, tenant, millis });
        self.watch = Some(watch::backoff(&self.myself, self.watches, wait));
    }

    pub(super) fn free_slot(&mut self) {
        self.cell.holdings().slot = false;
        self.tell_admission(AdmissionMessage::Freed);
    }

    /// Ends the actor if nothing is left to do.
    pub(super) fn rest(&mut self) {
        if matches!(self.stage, Stage::Settled) && !self.looking {
            self.not_warm("the fleet is draining");
            self.is_passive(false);
            self.myself.stop(None);
        }
    }
}

/// A fraction from 0 to 1 that differs between names and between attempts.
fn fraction(name: &crate::id::Name, failures: u32) -> f64 {
    use std::hash::{BuildHasher, RandomState};
    f64::from((RandomState::new().hash_one((name, failures)) >> 32) as u32) / f64::from(u32::MAX)
}

/// The reason why a name that is known is not activated.
fn blocked(record: &crate::record::NameRecord) -> Option<String> {
    use crate::record::NameState;
    match &record.state {
        NameState::Quarantined { why, .. } => Some(format!("the session is quarantined: {why}")),
        NameState::Deleting { .. } => Some("the session is being deleted".to_owned()),
        NameState::Departing { .. } => Some("the session moves to another backend".to_owned()),
        _ => None,
    }
}
