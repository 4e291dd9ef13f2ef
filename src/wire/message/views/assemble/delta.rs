//! An addition to a message.

use crate::wire::message::ContentBlock;

/// An addition to a message, from an [`Assembler`](crate::message::Assembler) or [`Turn::deltas`](crate::Turn::deltas).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Delta {
    /// The call that started the subagent which writes the message; `None` on the main thread.
    pub parent_tool_use_id: Option<String>,
    /// The API's id of the message, if it is known.
    pub api_message_id: Option<String>,
    /// The addition.
    pub kind: DeltaKind,
}

/// An addition to a message, in a [`Delta`]. `index` is the number of the block in the message, from 0.
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
#[allow(missing_docs, reason = "the variant says what its fields are")]
#[non_exhaustive]
pub enum DeltaKind {
    /// Start of a message.
    MessageStart,
    /// Start of a block.
    #[non_exhaustive]
    BlockStart {
        index: usize,
        /// The type of the block: `text`, `thinking`, `tool_use`, and others.
        kind: String,
    },
    /// Text. All text deltas together are the text of the complete message, with or without gaps.
    #[non_exhaustive]
    Text { index: usize, text: String },
    /// Reasoning.
    #[non_exhaustive]
    Thinking { index: usize, thinking: String },
    /// Part of the JSON text of a call's arguments. [`BlockComplete`](Self::BlockComplete) has the arguments parsed.
    /// None follow after a gap, because the complete message does not have the original JSON text.
    #[non_exhaustive]
    InputJson { index: usize, partial_json: String },
    /// A block is complete.
    #[non_exhaustive]
    BlockComplete { index: usize, block: ContentBlock },
    /// A complete block that contradicts its earlier deltas: discard them.
    #[non_exhaustive]
    BlockReplaced { index: usize, block: ContentBlock },
    /// The message is complete.
    #[non_exhaustive]
    MessageComplete {
        /// `end_turn`, `tool_use`, and others.
        stop_reason: Option<String>,
    },
    /// The stream ended before the message was complete. The CLI may retry the message.
    MessageAborted,
}

impl Delta {
    /// The added text, if the addition is text.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            DeltaKind::Text { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The added reasoning, if the addition is reasoning.
    pub fn thinking(&self) -> Option<&str> {
        match &self.kind {
            DeltaKind::Thinking { thinking, .. } => Some(thinking),
            _ => None,
        }
    }

    /// Whether the main thread wrote the message, not a subagent.
    pub fn is_main_thread(&self) -> bool {
        self.parent_tool_use_id.is_none()
    }
}
