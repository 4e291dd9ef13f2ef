//! Requests for the running turn of a session, on any node.

use greenroom::Prompt;

use super::FleetSession;
use super::command::{Commanded, command, owner};
use crate::access::Action;
use crate::actor::name::NameMessage;
use crate::backend::Requests;
use crate::error::FleetError;
use crate::id::PromptId;
use crate::record::CommandKind;
use crate::request::Withdrawn;

impl FleetSession {
    /// Interrupts the running turn, on any node. `false`: no turn runs. Prompts that wait go on waiting.
    ///
    /// A turn that is parked, or waits to go on with the call that it was parked for, ends at once, without a CLI.
    ///
    /// If another node owns the session, the first look at the session's record decides which turn is meant: a later turn is not
    /// interrupted. The owner has ten seconds to take the interrupt, also if this future is dropped meanwhile.
    ///
    /// # Errors
    /// [`FleetError::Session`] or [`FleetError::OwnerFailed`] if the CLI does not take the interrupt; [`FleetError::OwnerSilent`] and
    /// [`FleetError::OutcomeUnknown`] if another node owns the session and does not answer; [`FleetError::Backend`].
    pub async fn interrupt(&self) -> Result<bool, FleetError> {
        self.interrupt_if(None).await
    }

    /// Interrupts the turn of a prompt, if it runs. `false`: it does not run.
    ///
    /// # Errors
    /// As [`interrupt`](Self::interrupt).
    pub async fn interrupt_turn(&self, prompt: PromptId) -> Result<bool, FleetError> {
        self.interrupt_if(Some(prompt)).await
    }

    async fn interrupt_if(&self, prompt: Option<PromptId>) -> Result<bool, FleetError> {
        self.allow(Action::Interrupt).await?;
        let here = |prompt| self.ask(false, move |done| NameMessage::Interrupt { prompt, done });
        if self.in_turn(prompt, here, |prompt| Ok(CommandKind::Interrupt { prompt })).await? {
            return Ok(true);
        }
        self.interrupt_parked(prompt).await
    }

    /// Ends the turn that is parked, or waits to go on with its call.
    async fn interrupt_parked(&self, of: Option<PromptId>) -> Result<bool, FleetError> {
        let shared = self.shared();
        let record = shared.ask(|backend| backend.name_record(self.name.clone())).await?;
        let parked = record.and_then(|record| record.parked.or(record.continues));
        let Some(prompt) = parked.filter(|parked| of.is_none_or(|prompt| prompt == *parked)) else {
            return Ok(false);
        };
        let record = shared.ask(|backend| backend.prompt_record(prompt)).await?;
        if !record.is_some_and(|record| record.goes_on_with_call()) {
            return Ok(false);
        }
        let withdrawn = shared.ask(|backend| backend.withdraw(prompt)).await?;
        shared.tell_transitions();
        Ok(withdrawn == Withdrawn::Interrupted)
    }

    /// Says something in the running turn, on any node: see [`Session::steer`](greenroom::Session::steer). It is not kept like a prompt.
    ///
    /// If another node owns the session, the first look at the session's record decides which turn is meant, so a later turn does not
    /// get the message. The message has up to 16 KiB of JSON then ([`CommandKind::STEER`]), and the owner has ten seconds to take it.
    ///
    /// # Errors
    /// [`FleetError::State`] if no turn runs, or if the message is too long for another node; [`FleetError::Session`] or
    /// [`FleetError::OwnerFailed`] if the CLI does not take the message; [`FleetError::OwnerSilent`] and [`FleetError::OutcomeUnknown`]
    /// if another node owns the session and does not answer; [`FleetError::Backend`].
    pub async fn steer(&self, message: impl Into<Prompt>) -> Result<(), FleetError> {
        self.allow(Action::Steer).await?;
        let message = message.into();
        let here = |prompt| {
            let message = Box::new(message.clone());
            self.ask(false, move |done| NameMessage::Steer { prompt, message, done })
        };
        let steer = |prompt| {
            let message =
                serde_json::to_string(&message).map_err(|error| FleetError::State(error.to_string()))?;
            if message.len() > CommandKind::STEER {
                return Err(FleetError::State(format!(
                    "another node runs the turn, and the message has {} bytes of JSON: send up to {}, or a prompt",
                    message.len(),
                    CommandKind::STEER
                )));
            }
            Ok(CommandKind::Steer { prompt, message })
        };
        if !self.in_turn(None, here, steer).await? {
            return Err(FleetError::State("no turn of the session runs: send a prompt".to_owned()));
        }
        Ok(())
    }

    /// Does something in the running turn, or in that of a prompt: here, or by a command to the owner. `false`: no such turn runs.
    async fn in_turn<F: Future<Output = Option<Result<bool, FleetError>>>>(
        &self,
        prompt: Option<PromptId>,
        here: impl Fn(Option<PromptId>) -> F,
        kind: impl Fn(PromptId) -> Result<CommandKind, FleetError>,
    ) -> Result<bool, FleetError> {
        match here(prompt).await {
            Some(Ok(false)) | None => {}
            Some(done) => return done,
        }
        // The first look decides which turn is meant, so that no later one is hit.
        let running = match prompt {
            Some(prompt) => Some(prompt),
            None => owner(self.shared(), &self.name).await?.and_then(|(_, running)| running),
        };
        let Some(prompt) = running else { return Ok(false) };
        match command(self.shared(), &self.name, kind(prompt)?).await? {
            Commanded::Done => Ok(true),
            Commanded::Nothing => Ok(false),
            Commanded::Here => here(Some(prompt)).await.unwrap_or(Ok(false)),
        }
    }
}
