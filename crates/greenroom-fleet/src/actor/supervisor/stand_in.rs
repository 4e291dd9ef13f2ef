//! Requests to a name whose actor has failed. Its turn goes on, so the supervisor carries them out by what the name's cell holds.

use super::NameChild;
use crate::actor::name::{NameMessage, steer};
use crate::error::FleetError;

impl NameChild {
    /// Carries a request out in place of the actor. Messages that are no requests are dropped: the next actor looks for itself.
    pub(super) fn stand_in(&mut self, message: NameMessage) {
        match message {
            NameMessage::MakeWay { .. } => self.cell.kill().cancel(),
            // Answered when the session is gone. It ends after its turn in any case.
            NameMessage::Passivate(done) => self.passive.push(done),
            NameMessage::Interrupt { prompt, done } => {
                let Some(session) = self.cell.in_turn(prompt) else {
                    // An error: the caller waits no more.
                    done.send(Ok(false)).ok();
                    return;
                };
                self.cell.steps.spawn(async move {
                    let interrupted = session.interrupt().await;
                    done.send(interrupted.map(|_| true).map_err(FleetError::Session)).ok();
                });
            }
            NameMessage::Steer { message, done } => steer(&self.cell, *message, done),
            _ => {}
        }
    }
}
