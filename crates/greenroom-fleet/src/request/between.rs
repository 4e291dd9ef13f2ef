//! Messages between nodes, about turns that are read on another node than their owner's.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::id::PromptId;

/// A message between the nodes of a fleet: a node reads turns that run elsewhere, or the owner of such a turn has text that its model
/// is writing. See [`Backend::publish`](crate::backend::Backend::publish).
///
/// A backend passes it on as it is, such as by its JSON. It holds text of a conversation: pass it on to the nodes of the fleet only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMessage {
    /// The sender, which ignores it.
    pub(crate) from: Uuid,
    pub(crate) news: NodeNews,
}

/// The content of a message between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeNews {
    /// The sender reads these turns, which do not run on it.
    Reads(Vec<PromptId>),
    /// The sender owns the turn, and its model is writing.
    Writes(PromptId, Piece),
}

/// Text that the model of a turn is writing on its main thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    /// The number of the piece: the next one has one more, unless pieces are lost or another owner writes.
    pub(crate) number: u64,
    /// The number of a message before the text. Messages of subagents may lie between the two.
    pub(crate) after: u64,
    /// A block begins with the piece.
    pub(crate) starts: bool,
    pub(crate) text: String,
}

impl NodeMessage {
    /// The length of the longest JSON of a message, in bytes.
    pub const MAX_BYTES: usize = 6_500;
    /// Turns in a message.
    pub(crate) const TURNS: usize = 128;
    /// Bytes of the text in a message. A byte of it has up to six in JSON.
    pub(crate) const TEXT: usize = 1_024;
}
