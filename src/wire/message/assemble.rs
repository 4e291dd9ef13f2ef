//! Messages put together from their pieces, while the model writes them.
//!
//! Several messages may be written at once, one for each thread: the main one, and each subagent. Pieces may be missing
//! ([`Turn::missed_partials`](crate::Turn::missed_partials)), and the complete messages, which are never missing, say
//! what they held. So what is assembled is always the beginning of the truth: after a gap a block grows no further
//! until its complete message comes, and then by all that was missing at once.
//!
//! ```text
//!   pieces:    start  Hel   lo    ⟨gap⟩   ld            stop
//!   complete:                                 Hello world
//!   deltas:           Hel   lo                 world
//! ```

use std::collections::HashMap;

use super::{ContentBlock, Message};

mod partial;
#[cfg(test)]
mod tests;

pub use partial::{PartialBlock, PartialMessage};

/// Puts messages together from `stream_event`s, one for each thread.
///
/// Feed it every message of a turn, assistant messages too: they complete what pieces were missing of, and without
/// partial messages they are the only deltas there are. [`Turn::deltas`](crate::Turn::deltas) does it for you.
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
/// assert_eq!(assembler.message(None).unwrap().text(), "Hello.");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    /// By thread. One message at most for each: the one that is being written, or was written last.
    threads: HashMap<Option<String>, PartialMessage>,
}

/// Something that was added to a message; given by an [`Assembler`] and by [`Turn::deltas`](crate::Turn::deltas).
///
/// ```
/// use greenroom::{Message, message::Assembler};
///
/// // Without partial messages, a complete one is one delta.
/// let line = r#"{"type": "assistant", "message": {"id": "m1", "content": [{"type": "text", "text": "Hello."}]}}"#;
/// let deltas = Assembler::new().feed(&Message::parse(line)?);
/// assert!(deltas.iter().any(|delta| delta.text() == Some("Hello.") && delta.is_main_thread()));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Delta {
    /// The call under which a subagent writes the message; `None` on the main thread.
    pub parent_tool_use_id: Option<String>,
    /// The API's id of the message, if it is known.
    pub api_message_id: Option<String>,
    /// What was added.
    pub kind: DeltaKind,
}

/// What was added to a message, in a [`Delta`]. An `index` is that of the block in the message, from 0.
///
/// ```
/// use greenroom::message::DeltaKind;
///
/// fn show(kind: &DeltaKind) {
///     match kind {
///         DeltaKind::Text { text, .. } => print!("{text}"),
///         DeltaKind::BlockComplete { block, .. } if block.kind() == "tool_use" => println!("[a call]"),
///         _ => {}
///     }
/// }
/// # let _ = show;
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum DeltaKind {
    /// A message begins.
    MessageStart,
    /// A block begins.
    #[non_exhaustive]
    BlockStart {
        /// Which block.
        index: usize,
        /// What it is: `text`, `thinking`, `tool_use`, and others.
        kind: String,
    },
    /// Text. What all of them add up to is the text of the complete message, with or without gaps.
    #[non_exhaustive]
    Text {
        /// Which block.
        index: usize,
        /// What is added.
        text: String,
    },
    /// Reasoning.
    #[non_exhaustive]
    Thinking {
        /// Which block.
        index: usize,
        /// What is added.
        thinking: String,
    },
    /// A part of the JSON text of a call's arguments. Parsed they are in [`BlockComplete`](Self::BlockComplete). After a
    /// gap nothing more is added to it, for the complete message does not have the same text.
    #[non_exhaustive]
    InputJson {
        /// Which block.
        index: usize,
        /// What is added.
        partial_json: String,
    },
    /// A block is complete.
    #[non_exhaustive]
    BlockComplete {
        /// Which block.
        index: usize,
        /// The block, whole.
        block: ContentBlock,
    },
    /// A block is not what its pieces said: what was told of it does not hold. It is complete.
    #[non_exhaustive]
    BlockReplaced {
        /// Which block.
        index: usize,
        /// The block, whole.
        block: ContentBlock,
    },
    /// The message is complete.
    #[non_exhaustive]
    MessageComplete {
        /// Why the model stopped: `end_turn`, `tool_use`, and others.
        stop_reason: Option<String>,
    },
    /// The message ends before it is complete: the stream was cut off, and what was told of it may be retried.
    MessageAborted,
}

impl Delta {
    /// The text that was added, if it is text.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            DeltaKind::Text { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The reasoning that was added, if it is some.
    pub fn thinking(&self) -> Option<&str> {
        match &self.kind {
            DeltaKind::Thinking { thinking, .. } => Some(thinking),
            _ => None,
        }
    }

    /// Whether it is of the main thread, and not of a subagent.
    pub fn is_main_thread(&self) -> bool {
        self.parent_tool_use_id.is_none()
    }
}

impl Assembler {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes note of a message. Gives what it adds, in order; nothing for most messages that are not of the model.
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
            // A turn ends, and what it has not completed will not be.
            Message::Result(_) => {
                // Subagents in the background go on.
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

    /// Partial messages were missed, of any thread: whatever is not complete grows no further until its complete
    /// message comes. To be called before the next message is fed.
    pub fn missed(&mut self) {
        for partial in self.threads.values_mut() {
            partial.missed();
        }
        // The main thread may have begun a message that nothing is known of.
        self.threads.entry(None).or_default().missed();
    }

    /// The message that a thread is writing, or has written last: of the main thread with `None`, else of the subagent
    /// under this call.
    pub fn message(&self, parent_tool_use_id: Option<&str>) -> Option<&PartialMessage> {
        self.threads.get(&parent_tool_use_id.map(str::to_owned))
    }
}
