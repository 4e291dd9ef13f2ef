//! Turns that the API rejects, and those that try a credential that is held.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use greenroom::Prompt;
use greenroom::message::ResultMessage;
use serde_json::Value;

use crate::actor::cell::NameCell;
use crate::actor::context::{FleetShared, shown, within};
use crate::actor::retry::repeat;
use crate::actor::scribe::signs::TurnSigns;
use crate::backend::Requests;
use crate::health::{Held, Membership, Try};
use crate::id::{AttemptId, Name, Timestamp};
use crate::record::{Cause, Credential};

/// The time for a read of a hold.
const LEARN: Duration = Duration::from_secs(5);

/// A rejection of a turn by the API.
pub(super) struct Rejection {
    pub(super) cause: Cause,
    pub(super) why: String,
    /// The moment of the reset on the API's clock, if it told one.
    pub(super) resets_at: Option<Timestamp>,
    /// A prompt like this may be sent again if its turn has shown no work.
    pub(super) is_repeatable: bool,
}

impl Rejection {
    /// The rejection of a turn of this prompt by its error and the CLI's result, if that is one. `None`: a turn that goes on with its call,
    /// which may have run.
    pub(super) fn of(
        prompt: Option<&Prompt>,
    ) -> impl Fn(&greenroom::Error, Option<&ResultMessage>) -> Option<Self> + use<> {
        // A command of the CLI may run programs before the CLI asks the model.
        let is_command =
            |block: &Value| block["text"].as_str().is_some_and(|text| text.trim_start().starts_with('/'));
        let is_repeatable = prompt.is_some_and(|prompt| !prompt.content.iter().any(is_command));
        move |error, result| {
            let cause = Cause::of_turn(error, result)?;
            let resets_at = error.resets_at().map(Timestamp::of);
            Some(Self { cause, why: error.to_string(), resets_at, is_repeatable })
        }
    }
}

/// A turn that perhaps tries whether its credential is taken again.
pub(super) struct Trial<'a> {
    of: &'a Membership,
    attempt: AttemptId,
    /// The attempt has begun although the credential was held, and its try has not ended.
    tries: AtomicBool,
}

impl<'a> Trial<'a> {
    pub(super) fn new(of: &'a Membership, attempt: AttemptId, tries: bool) -> Self {
        Self { of, attempt, tries: tries.into() }
    }

    /// Waits for the end of a turn. What it tries has passed with the first answer of the model.
    pub(super) async fn answered<T>(
        &self,
        shared: &FleetShared,
        signs: &TurnSigns,
        tries: &mut Vec<Try>,
        turn: impl Future<Output = T>,
    ) -> T {
        let mend = async {
            signs.answered().await;
            shared.passed(tries, true);
            self.end(shared, true).await;
            pending().await
        };
        tokio::select! {
            biased;
            ended = turn => ended,
            never = mend => never,
        }
    }

    /// Ends the try of the turn, if its credential is held. The prompts of the credential begin if the model has `answered`; otherwise the next
    /// one tries.
    pub(super) async fn end(&self, shared: &FleetShared, answered: bool) {
        if !self.tries.load(Ordering::Relaxed) {
            return;
        }
        let credential = &self.of.credential;
        let end = || shared.backend.end_try(credential.clone(), self.attempt, answered);
        let ended = repeat(shared, end).await;
        // Not before: the request is dropped when the turn ends first.
        self.tries.store(false, Ordering::Relaxed);
        match ended {
            Ok(true) => learn(shared, credential).await,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "the end of a try could not be kept: another prompt tries again")
            }
        }
    }
}

/// Finds out if a cause keeps a live session from a turn.
pub(in crate::actor::name) fn admit_turn(
    shared: &FleetShared,
    cell: &NameCell,
    tries: &mut Vec<Try>,
) -> Result<(), Held> {
    cell.membership().map_or(Ok(()), |of| shared.health.admit_turn(tries, &of))
}

/// Notes the cause that holds a name back, for prompts that expire meanwhile.
pub(in crate::actor::name) async fn note_held(shared: &FleetShared, name: &Name, held: &Held) {
    let (credential, why) = (held.credential(), held.cause.to_string());
    let note = || shared.backend.held_back(name.clone(), credential.clone(), why.clone());
    if let Err(error) = repeat(shared, note).await {
        tracing::debug!(name = shown(name), %error, "the cause for which a session waits could not be kept");
    }
}

/// Reads whether a credential is held. If that fails the keeper reads it later.
pub(super) async fn learn(shared: &FleetShared, credential: &Credential) {
    if let Err(error) = within(LEARN, shared.learn_holds(Some(credential))).await {
        tracing::debug!(%error, "the backend does not say whether a credential is held");
    }
}
