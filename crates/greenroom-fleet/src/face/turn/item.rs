//! The items of a turn: messages, partial messages and gaps.

use greenroom::Message;

use crate::error::FleetError;

/// The next thing in a turn, for its readers in this crate.
pub(super) enum Next {
    Item(Result<TurnItem, FleetError>),
    /// The questions of the turn may have changed.
    Questions,
    /// No news has come for a while.
    Silent,
    Over,
}

/// The next step of a turn of a fleet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TurnItem {
    /// A complete message of the CLI.
    Message {
        /// Its number in the turn, from 1. Numbers grow by 1 from message to message, except over a gap. A turn that goes on with
        /// its continuation after its owner was lost goes on with its numbers.
        seq: u64,
        /// The message.
        message: Message,
    },
    /// A partial message, while the model is writing. Partial messages come only from a turn that runs, and only if the profile
    /// asks for them. Of a turn that runs on another node they have the text of the main thread only, put together for a tenth of a
    /// second, and may be missing.
    Partial(Message),
    /// Complete messages are missing: the turn was over its bound
    /// ([`FleetLimits::turn_bytes`](crate::FleetLimits::turn_bytes)), or the backend could not keep them.
    Gap {
        /// The number of the first missing message.
        from: u64,
        /// The number of the last missing message.
        to: u64,
    },
    /// Partial messages are missing, because they were not read in time. The complete messages are not affected.
    MissedPartials {
        /// Their number.
        count: u64,
    },
}

impl TurnItem {
    /// The message, if it is one.
    pub fn message(&self) -> Option<&Message> {
        match self {
            TurnItem::Message { message, .. } | TurnItem::Partial(message) => Some(message),
            TurnItem::Gap { .. } | TurnItem::MissedPartials { .. } => None,
        }
    }

    /// The text blocks of a complete assistant message, joined. `None` without a text block, and for everything else.
    pub fn text(&self) -> Option<String> {
        self.message()?.text()
    }

    /// The number of a complete message, and of the last message of a gap: a reader that has handled the item goes on from the
    /// next number. `None` for what is not kept.
    pub fn seq(&self) -> Option<u64> {
        match self {
            TurnItem::Message { seq, .. } | TurnItem::Gap { to: seq, .. } => Some(*seq),
            TurnItem::Partial(_) | TurnItem::MissedPartials { .. } => None,
        }
    }
}
