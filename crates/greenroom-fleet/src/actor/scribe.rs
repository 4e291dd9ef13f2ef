//! Writes down the messages of a running turn.

#[cfg(test)]
mod tests;

use futures_util::FutureExt;
use greenroom::{Message, Outcome, Turn};

use super::context::{Activation, FleetShared};
use super::retry::{NotDone, repeat_owned};
use crate::error::BackendErrorKind;
use crate::hub::{Feed, LiveMessage};
use crate::id::PromptId;
use crate::request::{Append, Appended};

/// Messages that are written down together.
const BATCH: usize = 256;
/// Bytes of the messages that are written down together. One message may be longer.
const BATCH_BYTES: usize = 1 << 20;

/// The `type` of the JSON that is kept in place of a message that the backend cannot keep.
const NOT_KEPT: &str = "greenroom_fleet_not_kept";

/// Reads a turn to its end: keeps its complete messages in the backend, in order, and shows all messages to the readers on this
/// node. Returns the outcome of the turn.
///
/// Complete messages have consecutive numbers over the whole prompt. `last_seq` is the number of the last one that is kept
/// already: 0, or more when a continuation goes on after a lost owner.
///
/// A slow backend or reader delays nothing in the session: messages that are not read yet wait in the session's own buffer.
pub(crate) async fn write_down(
    shared: &FleetShared,
    activation: &Activation,
    prompt: PromptId,
    last_seq: u64,
    turn: &mut Turn,
) -> Result<greenroom::Result<Outcome>, NotDone> {
    let feed = shared.hub.open(prompt);
    let mut scribe = Scribe { shared, activation, prompt, last_seq, feed };
    loop {
        let first = tokio::select! {
            biased;
            () = shared.lost.cancelled() => return Err(NotDone::Fenced),
            message = turn.next() => message,
        };
        let Some(first) = first else { break };
        scribe.write(ready(first, turn)).await?;
        // Lets readers take the batch before the next one. A backend in memory never waits.
        tokio::task::yield_now().await;
    }
    Ok(turn.outcome().await)
}

/// Whether the text stands in place of a message that the backend could not keep.
pub(crate) fn is_not_kept(message: &Message) -> bool {
    message.kind() == NOT_KEPT
}

/// The messages that are there, up to the bounds of a batch.
fn ready(first: Message, turn: &mut Turn) -> Vec<Message> {
    let mut bytes = first.raw().get().len();
    let mut batch = vec![first];
    while batch.len() < BATCH && bytes < BATCH_BYTES {
        let Some(Some(message)) = turn.next().now_or_never() else { break };
        bytes += message.raw().get().len();
        batch.push(message);
    }
    batch
}

struct Scribe<'a> {
    shared: &'a FleetShared,
    activation: &'a Activation,
    prompt: PromptId,
    /// The number of the last message that is durable.
    last_seq: u64,
    feed: Feed,
}

impl Scribe<'_> {
    /// Keeps the complete messages of a batch, then shows the batch. Partial messages at its start are shown at once.
    async fn write(&mut self, batch: Vec<Message>) -> Result<(), NotDone> {
        let partial = |message: &Message| matches!(message, Message::StreamEvent(_));
        let at_once = batch.iter().take_while(|message| partial(message)).count();
        let mut batch = batch.into_iter();
        self.show(batch.by_ref().take(at_once));
        let rest: Vec<Message> = batch.collect();
        let complete: Vec<&str> =
            rest.iter().filter(|message| !partial(message)).map(|message| message.raw().get()).collect();
        if !complete.is_empty() {
            self.keep(&complete).await?;
            self.show(rest.into_iter());
        }
        Ok(())
    }

    /// Shows messages in the order of the turn, and counts the complete ones.
    fn show(&mut self, messages: impl Iterator<Item = Message>) {
        let last_seq = &mut self.last_seq;
        self.feed.show(messages.map(|message| {
            let complete = !matches!(message, Message::StreamEvent(_));
            let after = *last_seq;
            *last_seq += u64::from(complete);
            LiveMessage { after, complete, message }
        }));
    }

    /// Keeps messages. A message that the backend cannot keep is replaced, so that readers are told of a gap.
    async fn keep(&self, messages: &[&str]) -> Result<(), NotDone> {
        match self.append(self.last_seq + 1, messages).await {
            Err(NotDone::Error(error)) if error.kind() == BackendErrorKind::Invalid => {}
            done => return done,
        }
        for (seq, message) in (self.last_seq + 1..).zip(messages) {
            match self.append(seq, &[message]).await {
                Err(NotDone::Error(error)) if error.kind() == BackendErrorKind::Invalid => {
                    tracing::warn!(prompt = %self.prompt, seq, %error, "a message of a turn cannot be kept");
                    let bytes = message.len();
                    self.append(seq, &[&format!(r#"{{"type":"{NOT_KEPT}","bytes":{bytes}}}"#)]).await?;
                }
                done => done?,
            }
        }
        Ok(())
    }

    async fn append(&self, first_seq: u64, messages: &[&str]) -> Result<(), NotDone> {
        let request = || {
            self.shared.backend.append(Append {
                owner: self.activation.owner.clone(),
                prompt: self.prompt,
                first_seq,
                messages: messages.iter().map(|&message| message.to_owned()).collect(),
                bound: self.shared.limits.turn_bytes,
            })
        };
        match repeat_owned(self.shared, request).await? {
            Appended::Last(_) => Ok(()),
            // Another owner has the turn, or nobody: what this one writes would not follow on what is kept.
            Appended::Gap(_) | Appended::NotRunning => Err(NotDone::Fenced),
        }
    }
}
