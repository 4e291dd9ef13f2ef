//! Assembles messages from partial messages, while the model writes.
//!
//! The main thread and each subagent may write at the same time. Partial messages may be missing
//! ([`Turn::missed_partials`](crate::Turn::missed_partials)); complete messages never are. So the assembled text is
//! always a prefix of the real text: after a gap a block stops growing until its complete message arrives, which adds
//! the rest at once.
//!
//! ```text
//!   partial:   start  Hel   lo    ⟨gap⟩   ld            stop
//!   complete:                                 Hello world
//!   deltas:           Hel   lo                 world
//! ```

use std::collections::HashMap;

use crate::wire::message::Message;

mod delta;
mod partial;

pub use delta::{Delta, DeltaKind};
use partial::PartialMessage;

/// Assembles messages from `stream_event`s, one message per thread.
///
/// Feed every message of a turn. Assistant messages fill gaps, and without partial messages they are the only source of
/// deltas. [`Turn::deltas`](crate::Turn::deltas) feeds an assembler for you.
///
/// ```
/// use greenroom::{Message, message::{Assembler, Delta}};
///
/// let mut assembler = Assembler::new();
/// let mut said = String::new();
/// for event in [
///     r#"{"type": "message_start", "message": {"id": "m1", "content": []}}"#,
///     r#"{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}"#,
///     r#"{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}}"#,
///     r#"{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo."}}"#,
/// ] {
///     let message = Message::parse(&format!(r#"{{"type": "stream_event", "event": {event}}}"#))?;
///     for delta in assembler.feed(&message) {
///         said.extend(delta.text());
///     }
/// }
/// assert_eq!(said, "Hello.");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    /// The current or last message of each thread.
    threads: HashMap<Option<String>, PartialMessage>,
}

impl Assembler {
    /// An assembler without messages.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a message. Returns its additions in order.
    pub fn feed(&mut self, message: &Message) -> Vec<Delta> {
        let mut kinds = Vec::new();
        let thread = message.parent_tool_use_id().map(str::to_owned);
        let mut id = None;
        match message {
            Message::StreamEvent(event) => {
                let partial = self.threads.entry(thread.clone()).or_default();
                partial.event(event, &mut kinds);
                id.clone_from(&partial.id);
            }
            Message::Assistant(said) => {
                let partial = self.threads.entry(thread.clone()).or_default();
                partial.said(said, &mut kinds);
                id.clone_from(&partial.id);
            }
            // The turn has ended, so incomplete messages stay incomplete.
            Message::Result(_) => {
                // Background subagents continue.
                if let Some(partial) = self.threads.remove(&None).filter(PartialMessage::is_unfinished) {
                    kinds.push(DeltaKind::MessageAborted);
                    id = partial.id;
                }
                self.threads.retain(|_, partial| !partial.is_complete());
            }
            _ => {}
        }
        let delta = |kind| Delta { parent_tool_use_id: thread.clone(), api_message_id: id.clone(), kind };
        kinds.into_iter().map(delta).collect()
    }

    /// Notes that partial messages are missing, of any thread: incomplete blocks stop growing until their complete
    /// message arrives. Call before feeding the next message.
    pub fn missed(&mut self) {
        for partial in self.threads.values_mut() {
            partial.missed();
        }
        // The main thread may have started a message without our noticing.
        self.threads.entry(None).or_default().missed();
    }
}
