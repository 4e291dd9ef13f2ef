//! What happens when the CLI dies, and to messages that nobody reads.

use serde::{Deserialize, Serialize};

/// The fate of the running turn when the CLI dies. Prompts that wait are sent to the next incarnation in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnRecovery {
    /// The turn ends as [`Outcome::Interrupted`](crate::Outcome::Interrupted).
    #[default]
    Interrupt,
    /// The turn goes on: the next incarnation gets this prompt, and its messages and result belong to the interrupted
    /// turn.
    ///
    /// The CLI shows the model each tool call that was cut off as interrupted with an unknown outcome; the prompt
    /// should say what to do about them, for instance `"You were interrupted. Check what was done, and go on."`. If the
    /// CLI dies again, the turn is continued again, as often as the CLI may restart
    /// ([`Restarts::cli`](crate::options::Restarts::cli)).
    ///
    /// Two turns are not continued: a turn that the CLI has not visibly started, whose own prompt is sent again
    /// instead, and a turn in a conversation without any result yet, which the CLI may not have written; that turn ends
    /// as interrupted.
    Continue {
        /// The prompt for the next incarnation.
        prompt: String,
    },
}

/// The steps that a session may take if the CLI refuses to resume the conversation, for instance because its transcript
/// is missing. Each variant allows the steps of the variants before it; each step is reported by
/// [`Event::ResumeStep`](crate::Event::ResumeStep).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ResumeLadder {
    /// Only the same conversation; if the CLI refuses, the session fails. If the conversation has no result yet and the
    /// CLI wrote nothing before it died, it restarts with the same id: only the interrupted turn is lost.
    #[default]
    SameId,
    /// Then a fork of the conversation, with a new id.
    Fork,
    /// Then a new conversation, which knows nothing of the old one.
    Fresh,
}

/// The fate of partial messages that nobody reads (`stream_event`, see
/// [`Options::include_partial_messages`](crate::Options::include_partial_messages)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UnreadPartials {
    /// Partial messages wait like all others.
    #[default]
    Keep,
    /// Partial messages are dropped first when [`Limits::unread_bytes`](crate::options::Limits::unread_bytes) is
    /// reached: a quarter of the bound at a time, oldest first. The complete messages usually wait right behind their
    /// pieces. If few partial messages wait and the new message is partial, the new message is dropped.
    ///
    /// Dropped messages are counted (`dropped_partials`), and [`Turn::missed_partials`](crate::Turn::missed_partials)
    /// says where the gaps are. After a gap, pieces of a message may arrive whose beginning was dropped.
    DropFirst,
}
