//! What happens to a conversation when its CLI dies.

use serde::{Deserialize, Serialize};

/// What happens to the turn that is running when the CLI dies. What only waits is sent to the next incarnation in any
/// case.
///
/// ```
/// use greenroom::TurnRecovery;
///
/// let keep_going = TurnRecovery::Continue { prompt: "You were interrupted. Go on where you were.".into() };
/// assert_ne!(keep_going, TurnRecovery::default());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnRecovery {
    /// It ends as [`Outcome::Interrupted`](crate::Outcome::Interrupted).
    #[default]
    Interrupt,
    /// It goes on: the next incarnation is given this prompt, whose messages and result are those of the same turn.
    /// The CLI shows the model the tool calls that were cut off as interrupted, with an outcome that is not known;
    /// the prompt should say what to do about them. A turn that dies again is continued again, until the CLI has died
    /// more often than it may. One in a conversation without any result yet, which the CLI may not have written
    /// down, and one that the CLI has not shown to have begun, is not continued: it ends as interrupted,
    /// or is sent again as it was.
    Continue {
        /// The prompt.
        prompt: String,
    },
}

/// How far a session goes to get a CLI again when that refuses to resume the conversation, for instance because its
/// transcript is gone. Each step is an [`Event::ResumeStep`](crate::Event::ResumeStep).
///
/// ```
/// assert_eq!(greenroom::ResumeLadder::default(), greenroom::ResumeLadder::SameId);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ResumeLadder {
    /// The same conversation or none: the session fails. A conversation in which no turn has ended yet, and of which
    /// the CLI has written nothing down before it died, is begun anew under its id: nothing is lost but what the turn
    /// that was cut off had come to.
    #[default]
    SameId,
    /// Then a fork of it, under a new id.
    Fork,
    /// Then, at last, a fresh conversation, which knows nothing of what was said before.
    Fresh,
}
