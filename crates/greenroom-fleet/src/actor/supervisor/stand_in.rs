//! Requests to a name whose actor has failed. Its turn goes on, so the supervisor carries them out by what the name's cell holds.

use greenroom::Session;

use super::NameChild;
use crate::actor::name::NameMessage;
use crate::error::FleetError;
use crate::id::PromptId;

impl NameChild {
    /// Carries a request out in place of the actor. Messages that are no requests are dropped: the next actor looks for itself.
    pub(super) fn stand_in(&mut self, message: NameMessage) {
        match message {
            NameMessage::MakeWay { .. } => self.cell.kill().cancel(),
            // Answered when the session is gone. It ends after its turn in any case.
            NameMessage::Passivate { done, .. } => self.passive.extend(done),
            NameMessage::Interrupt { prompt, done } => {
                let Some(session) = self.running(prompt) else {
                    // An error: the caller waits no more.
                    done.send(Ok(false)).ok();
                    return;
                };
                self.cell.steps.spawn(async move {
                    let interrupted = session.interrupt().await;
                    done.send(interrupted.map(|_| true).map_err(FleetError::Session)).ok();
                });
            }
            NameMessage::Steer { message, done } => {
                // Dropped without a turn: that tells the caller.
                let Some(session) = self.running(None) else { return };
                self.cell.steps.spawn(async move {
                    let steered = session.steer(*message).await;
                    done.send(steered.map(drop).map_err(FleetError::Session)).ok();
                });
            }
            _ => {}
        }
    }

    /// The session, if it runs a turn, and the turn of this prompt if one is given.
    fn running(&self, prompt: Option<PromptId>) -> Option<Session> {
        let holdings = self.cell.holdings();
        let running = holdings.running.get()?;
        holdings.session.clone().filter(|_| prompt.is_none_or(|prompt| prompt == running))
    }
}
