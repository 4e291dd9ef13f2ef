//! Writes down the messages of a running turn.

pub(crate) mod signs;
#[cfg(test)]
mod tests;

use std::mem;
use std::pin::pin;

use futures_util::FutureExt;
use futures_util::future::{Fuse, FusedFuture};
use greenroom::{Message, Outcome, Turn};

use self::signs::TurnSigns;
use super::context::FleetShared;
use super::retry::{NotDone, cannot_keep, repeat_sized};
use crate::backend::Requests;
use crate::hub::{Feed, LiveMessage};
use crate::id::{Ownership, PromptId};
use crate::request::Append;

/// Messages of a batch. A fast turn has some hundred messages in the time of a commit.
const BATCH: usize = 2048;
/// Bytes of the messages of a batch. The last one may be longer.
const BATCH_BYTES: usize = 1 << 20;

/// The `type` of the JSON that is kept in place of a message that the backend cannot keep.
const NOT_KEPT: &str = "greenroom_fleet_not_kept";

/// Reads a turn to its end: keeps its complete messages in the backend, in order, and shows all messages to the readers on this
/// node. Returns the outcome of the turn.
///
/// Complete messages have consecutive numbers over the whole prompt. `last_seq` is the number of the last one that is kept
/// already: 0, or more when a continuation goes on after a lost owner. `read` are the messages that were read of the turn before.
///
/// The next batch is read while a batch is being kept, so at most two times [`BATCH`] messages and [`BATCH_BYTES`] are held. A slow
/// backend or reader delays nothing in the session: messages that are not read yet wait in the session's own buffer. `signs` takes in each
/// message as it is read.
pub(crate) async fn write_down(
    shared: &FleetShared,
    owner: &Ownership,
    prompt: PromptId,
    last_seq: u64,
    read: Vec<Message>,
    turn: &mut Turn,
    signs: &TurnSigns,
) -> Result<greenroom::Result<Outcome>, NotDone> {
    let scribe = Scribe { shared, owner, prompt };
    let mut shown = Shown { last_seq, feed: shared.hub.open(prompt) };
    let mut next = Batch::of(read);
    let mut is_read = false;
    let mut keeping = pin!(Fuse::terminated());
    loop {
        if keeping.is_terminated() {
            shown.show(next.take_partials());
            if !next.messages.is_empty() {
                keeping.set(scribe.keep(shown.last_seq + 1, mem::take(&mut next)).fuse());
            } else if is_read {
                return Ok(turn.outcome().await);
            }
        }
        tokio::select! {
            biased;
            () = shared.lost.cancelled() => return Err(NotDone::Fenced),
            kept = &mut keeping, if !keeping.is_terminated() => {
                shown.show(kept?.messages);
                // Lets readers take the batch before the next one: a request to a backend in memory does not yield.
                tokio::task::yield_now().await;
            }
            message = turn.next(), if !is_read && !next.is_full() => match message {
                Some(message) => next.fill(message, turn, signs),
                None => is_read = true,
            },
        }
    }
}

/// Whether the text stands in place of a message that the backend could not keep.
pub(crate) fn is_not_kept(message: &Message) -> bool {
    message.kind() == NOT_KEPT
}

fn is_partial(message: &Message) -> bool {
    matches!(message, Message::StreamEvent(_))
}

/// Messages that are written down together.
#[derive(Default)]
struct Batch {
    messages: Vec<Message>,
    bytes: usize,
}

impl Batch {
    fn of(messages: Vec<Message>) -> Self {
        let bytes = messages.iter().map(|message| message.raw().get().len()).sum();
        Self { messages, bytes }
    }

    fn is_full(&self) -> bool {
        self.messages.len() >= BATCH || self.bytes >= BATCH_BYTES
    }

    /// Adds a message and the messages of the turn that are there, up to the bounds.
    fn fill(&mut self, first: Message, turn: &mut Turn, signs: &TurnSigns) {
        let mut ready = Some(first);
        while let Some(message) = ready {
            signs.note(&message);
            self.bytes += message.raw().get().len();
            self.messages.push(message);
            ready = if self.is_full() { None } else { turn.next().now_or_never().flatten() };
        }
    }

    /// Removes the partial messages before the first complete one.
    fn take_partials(&mut self) -> Vec<Message> {
        let count = self.messages.iter().take_while(|message| is_partial(message)).count();
        let partials: Vec<_> = self.messages.drain(..count).collect();
        self.bytes -= partials.iter().map(|message| message.raw().get().len()).sum::<usize>();
        partials
    }
}

/// The part of a turn that its readers have been shown.
struct Shown {
    /// The number of the last complete message.
    last_seq: u64,
    feed: Feed,
}

impl Shown {
    /// Shows messages in the order of the turn, and counts the complete ones.
    fn show(&mut self, messages: Vec<Message>) {
        if messages.is_empty() {
            return;
        }
        let last_seq = &mut self.last_seq;
        self.feed.show(messages.into_iter().map(|message| {
            let complete = !is_partial(&message);
            let after = *last_seq;
            *last_seq += u64::from(complete);
            LiveMessage { after, complete, message }
        }));
    }
}

struct Scribe<'a> {
    shared: &'a FleetShared,
    owner: &'a Ownership,
    prompt: PromptId,
}

impl Scribe<'_> {
    /// Keeps the complete messages of a batch, and returns the batch, which may be shown then. A message that the backend cannot
    /// keep is replaced, so that readers are told of a gap.
    async fn keep(&self, first_seq: u64, batch: Batch) -> Result<Batch, NotDone> {
        let complete = batch.messages.iter().filter(|message| !is_partial(message));
        let messages: Vec<&str> = complete.map(|message| message.raw().get()).collect();
        let last_seq = first_seq + (messages.len() as u64).saturating_sub(1);
        match self.append(first_seq, &messages, last_seq).await {
            Err(NotDone::Error(error)) if cannot_keep(&error) => {}
            done => return done.map(|()| batch),
        }
        for (seq, message) in (first_seq..).zip(&messages) {
            match self.append(seq, &[message], last_seq).await {
                Err(NotDone::Error(error)) if cannot_keep(&error) => {
                    tracing::warn!(prompt = %self.prompt, seq, %error, "a message of a turn cannot be kept");
                    let bytes = message.len();
                    self.append(seq, &[&format!(r#"{{"type":"{NOT_KEPT}","bytes":{bytes}}}"#)], last_seq)
                        .await?;
                }
                done => done?,
            }
        }
        Ok(batch)
    }

    /// Appends messages. The backend may have more of the batch, up to `last_seq`: an earlier append whose reply was lost.
    async fn append(&self, first_seq: u64, messages: &[&str], last_seq: u64) -> Result<(), NotDone> {
        let request = || {
            self.shared.backend.append(Append {
                owner: self.owner.clone(),
                prompt: self.prompt,
                first_seq,
                messages: messages.iter().map(|&message| message.to_owned()).collect(),
                bound: self.shared.limits.turn_bytes,
            })
        };
        let bytes = messages.iter().map(|message| message.len()).sum();
        match repeat_sized(self.shared, bytes, request).await? {
            Some(kept) if (first_seq + messages.len() as u64 - 1..=last_seq).contains(&kept) => Ok(()),
            // Another owner has the turn, or nobody: what this one writes would not follow on what is kept.
            _ => Err(NotDone::Fenced),
        }
    }
}
