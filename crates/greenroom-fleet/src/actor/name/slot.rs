//! The requests of a name to admission, for a slot and for turns.

use ractor::ActorId;

use super::machine::{NameActorState, NameStage, SlotRequest};
use crate::actor::context::shown;
use crate::admission::{AdmissionMessage, Grant, Want};
use crate::event::PassivatedBy;

impl NameActorState {
    /// Asks admission for the turn of the next prompt, or for a slot alone.
    pub(super) fn ask(&self) -> SlotRequest {
        let order = self.next.as_ref().map(|prompt| prompt.order);
        let (name, tenant, live) =
            (shown(&self.cx.cell.name), self.tenant.clone(), self.stage.live().is_some());
        let span = tracing::info_span!("admission", name, tenant, turn = order.is_some(), live);
        let want = if order.is_some() { Want::Turn } else { Want::Warm };
        self.cx.tell_admission(AdmissionMessage::Ask { tenant, want, order });
        SlotRequest { order, _span: span }
    }

    /// Takes the request back, if there is one.
    pub(super) fn withdraw(&mut self) {
        let asked = match &mut self.stage {
            NameStage::Waiting(_) => true,
            NameStage::Idle { asked, .. } => asked.take().is_some(),
            NameStage::Passivating { asked, .. } => std::mem::take(asked),
            _ => false,
        };
        if asked {
            self.cx.tell_admission(AdmissionMessage::Withdraw);
        }
    }

    pub(super) fn granted(&mut self, grant: Grant, admitter: ActorId) {
        let admission = &self.cx.admission;
        if !admission.is_current(admitter) {
            // A later admission does not know of it: the name asks again.
            return;
        }
        match (grant, &self.stage) {
            (Grant::Activate, NameStage::Waiting(request)) => {
                let turn = request.order.is_some();
                if admission.take_slot(&self.cx.cell, &self.tenant, admitter) {
                    self.activate(turn);
                }
            }
            // The name wants nothing any more, and its `Withdraw` is on its way.
            (Grant::Activate, _) => self.cx.tell_admission(AdmissionMessage::Freed),
            (Grant::Turn, NameStage::Idle { .. }) => {
                if let Some(live) = self.stage.take_live() {
                    self.begin_turn(live);
                }
            }
            (Grant::Passivate, NameStage::Idle { .. }) => {
                self.begin_passivating(PassivatedBy::Eviction, None);
            }
            (Grant::Turn, _) => self.cx.tell_admission(AdmissionMessage::TurnEnded),
            (Grant::Passivate, _) => {}
        }
    }

    /// Admission was restarted: it knows which names hold a slot, and counts each of them as starting or running.
    pub(super) fn ask_again(&mut self) {
        if !self.cx.cell.holdings().slot {
            // Told again: while admission was restarted, nobody may have heard of it.
            self.cx.tell_admission(AdmissionMessage::Freed);
        }
        if self.stage.live().is_some() {
            // Told again: the session may have come up while admission was restarted.
            self.cx.tell_admission(AdmissionMessage::Started);
        }
        match &mut self.stage {
            NameStage::Waiting(_) => self.stage = NameStage::Waiting(self.ask()),
            NameStage::Idle { asked, .. } => {
                *asked = None;
                self.cx.tell_admission(AdmissionMessage::TurnEnded);
                // Tells again if the session is busy.
                self.watch_idle();
                self.decide();
            }
            NameStage::Passivating { asked, .. } => *asked = false,
            _ => {}
        }
    }
}
