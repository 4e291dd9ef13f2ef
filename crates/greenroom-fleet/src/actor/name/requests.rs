//! The requests to a name from outside, and its requests to admission, for a slot and for turns.

use greenroom::telemetry::names::QUEUE_WAIT;
use greenroom::{Prompt, Session};
use ractor::ActorId;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::machine::{NameActorState, NameStage, SlotRequest};
use crate::actor::admitter::AdmitterMessage;
use crate::actor::context::shown;
use crate::actor::task::answer;
use crate::admission::{AdmissionMessage, Grant, Want};
use crate::error::FleetError;
use crate::event::PassivatedBy;
use crate::id::PromptId;
use crate::lock::locked;
use crate::record::PromptOrigin;

impl NameActorState {
    pub(super) fn warm(&mut self, done: oneshot::Sender<Result<(), FleetError>>) {
        if self.stage.live().is_some() {
            return answer(done, Ok(()));
        }
        let of = self.cx.cell.membership();
        let cause = of.and_then(|of| self.cx.shared.health.cause(&of));
        if let Some(cause) = cause.filter(|_| matches!(self.stage, NameStage::Held)) {
            // Only a name with a prompt waits until the cause is mended.
            return answer(done, Err(FleetError::State(cause.to_string())));
        }
        self.callers.warm.push(done);
        self.look();
    }

    /// Ends the session after the running turn, or with a `hold` at once. The name is not activated until the sender of `hold` is dropped.
    pub(super) fn wish_passive(&mut self, hold: Option<oneshot::Receiver<()>>, done: oneshot::Sender<bool>) {
        let is_held = hold.is_some();
        if is_held {
            self.cx.cell.kill().cancel();
        }
        self.callers.holds.extend(hold);
        self.callers.passive.push(done);
        // Without a session there is nothing to end. Prompts that wait go on waiting, for their turn.
        use NameStage::{Backoff, Held, Settled, Waiting};
        if matches!(self.stage, Settled | Waiting | Held | Backoff) {
            self.callers.tell_passive(false);
        }
        let is_between = matches!(self.stage, NameStage::Settled | NameStage::Waiting);
        if matches!(self.stage, NameStage::Idle(_)) || (is_between && is_held) {
            self.decide();
        }
    }

    pub(super) fn interrupt(
        &mut self,
        prompt: Option<PromptId>,
        done: oneshot::Sender<Result<bool, FleetError>>,
    ) {
        let NameStage::Running { live, prompt: running, interrupt, .. } = &self.stage else {
            return answer(done, Ok(false));
        };
        if prompt.is_some_and(|prompt| prompt != *running) {
            return answer(done, Ok(false));
        }
        // For a turn whose prompt has not been sent yet.
        interrupt.cancel();
        let (session, on_its_way) = (live.session.clone(), live.for_turn.token());
        self.step(async move |_, _| {
            interrupt_turn(&session, done).await;
            drop(on_its_way);
            Self::decide
        });
    }

    pub(super) fn steer(
        &mut self,
        prompt: Option<PromptId>,
        message: Prompt,
        done: oneshot::Sender<Result<bool, FleetError>>,
    ) {
        let (NameStage::Running { live, origin, .. }, Some(session)) =
            (&self.stage, self.cx.cell.in_turn(prompt))
        else {
            return answer(done, Ok(false));
        };
        if *origin == PromptOrigin::Cli {
            let why = "the CLI has begun the running turn by itself, and it takes no messages: send a prompt";
            return answer(done, Err(FleetError::State(why.to_owned())));
        }
        let on_its_way = live.for_turn.token();
        self.step(async move |_, _| {
            steer_turn(&session, message, done).await;
            drop(on_its_way);
            Self::decide
        });
    }

    /// The name is not activated here any more.
    pub(super) fn end(&mut self) {
        if self.is_ending() && matches!(self.stage, NameStage::Held | NameStage::Backoff) {
            self.enter(NameStage::Settled);
        }
        self.decide();
    }

    /// Tells admission, also from a task.
    pub(super) fn to_admission(&self) -> impl Fn(AdmissionMessage) + use<> {
        let (name, myself) = (self.cx.cell.name.clone(), self.myself.clone());
        let admission = self.cx.admission.clone();
        move |message| admission.send(AdmitterMessage::Of(name.clone(), message, myself.get_derived()))
    }

    pub(super) fn tell_admission(&self, message: AdmissionMessage) {
        self.to_admission()(message);
    }

    pub(super) fn free_slot(&self) {
        self.cx.cell.holdings().slot = false;
        self.tell_admission(AdmissionMessage::Freed);
    }

    /// Asks admission for the turn of the next prompt, or for a slot alone.
    pub(super) fn ask(&mut self) {
        let order = self.next.as_ref().map(|prompt| prompt.order);
        let name = shown(&self.cx.cell.name);
        let live = self.stage.live().is_some();
        let turn = order.is_some();
        let span = tracing::info_span!("admission", name, turn, live, { QUEUE_WAIT } = tracing::field::Empty);
        let want = if order.is_some() { Want::Turn } else { Want::Warm };
        self.tell_admission(AdmissionMessage::Ask { want, order });
        self.asked = Some(SlotRequest { order, since: Instant::now(), span });
    }

    /// Gives the slot back, because the tenant is at its cap on other nodes. The request stands again, at its place.
    pub(super) fn wait_for_cap(&mut self) {
        self.cx.cell.holdings().slot = false;
        // Before the keeper can find the tenant and lift it: a lift that comes first would be lost.
        self.tell_admission(AdmissionMessage::AtCap);
        locked(&self.cx.shared.at_cap).insert(self.cx.cell.name.tenant().clone());
        // They have asked while the session was to start: there is none.
        self.callers.tell_passive(false);
        // Another name may try what a cause has held back.
        self.tries.clear();
        self.enter(NameStage::Waiting);
        self.ask();
        // The prompt may have ended meanwhile.
        self.look();
    }

    /// Takes the request back, if there is one. Admission may have one of the stage before.
    pub(super) fn withdraw(&mut self) {
        self.asked = None;
        self.tell_admission(AdmissionMessage::Withdraw);
    }

    /// Notes how long the request has waited that is granted.
    fn note_wait(&self) {
        let Some(request) = &self.asked else { return };
        let wait = request.since.elapsed();
        request.span.record(QUEUE_WAIT, wait.as_secs_f64());
        self.cx.shared.metrics.waited(wait);
    }

    pub(super) fn granted(&mut self, grant: Grant, admitter: ActorId) {
        let admission = &self.cx.admission;
        if !admission.is_current(admitter) {
            // A later admission does not know of it: the name asks again.
            return;
        }
        match (grant, &self.stage) {
            (Grant::Activate, NameStage::Waiting) => {
                let turn = self.asked.as_ref().is_some_and(|request| request.order.is_some());
                if admission.take_slot(&self.cx.cell, admitter) {
                    self.note_wait();
                    self.activate(turn);
                }
            }
            // Admission was restarted, and has heard the name ask twice: it learns where the name stands.
            (Grant::Activate, _) if self.cx.cell.holdings().slot => self.ask_again(),
            // The name wants nothing any more, and its `Withdraw` is on its way.
            (Grant::Activate, _) => self.tell_admission(AdmissionMessage::Freed),
            (Grant::Turn, NameStage::Idle(live)) if live.for_turn.is_empty() => {
                self.note_wait();
                if let Some(live) = self.stage.take_live() {
                    self.begin_turn(live);
                }
            }
            (Grant::Passivate, NameStage::Idle(_)) => {
                self.begin_passivating(PassivatedBy::Eviction, None);
            }
            // The CLI has begun a turn by itself: the grant counts for that turn, or comes after it.
            (Grant::Turn, NameStage::Running { .. }) => {}
            (Grant::Passivate, NameStage::Running { .. }) => {
                if let NameStage::Running { live, .. } = &mut self.stage {
                    live.is_evicted = true;
                }
            }
            // An interrupt or a message on its way would hit the turn: the name asks again when it has arrived.
            (Grant::Turn, stage) => {
                if matches!(stage, NameStage::Idle(_)) {
                    self.asked = None;
                }
                self.tell_admission(AdmissionMessage::TurnEnded);
            }
            (Grant::Passivate, _) => {}
        }
    }

    /// Admission was restarted: it knows which names hold a slot, and counts each of them as starting or running.
    pub(super) fn ask_again(&mut self) {
        if !self.cx.cell.holdings().slot {
            // Told again: while admission was restarted, nobody may have heard of it.
            self.tell_admission(AdmissionMessage::Freed);
        }
        if self.stage.live().is_some() {
            // Told again: the session may have come up while admission was restarted.
            self.tell_admission(AdmissionMessage::Started);
        }
        match &self.stage {
            NameStage::Waiting => self.ask(),
            // Else its next request, which comes before the slot is free, would count for the session that ends.
            NameStage::Passivating { .. } => self.tell_admission(AdmissionMessage::Leaving),
            NameStage::Idle(_) => {
                self.asked = None;
                self.tell_admission(AdmissionMessage::TurnEnded);
                // Tells again if the session is busy.
                self.watch_idle();
                self.decide();
            }
            _ => {}
        }
    }
}

/// Interrupts the turn of a session.
pub(crate) async fn interrupt_turn(session: &Session, done: oneshot::Sender<Result<bool, FleetError>>) {
    let interrupted = session.interrupt().await;
    answer(done, interrupted.map(|_| true).map_err(FleetError::Session));
}

/// Says something in the turn of a session.
pub(crate) async fn steer_turn(
    session: &Session,
    message: Prompt,
    done: oneshot::Sender<Result<bool, FleetError>>,
) {
    let steered = session.steer(message).await;
    answer(done, steered.map(|_| true).map_err(FleetError::Session));
}
