//! Commands to the owner of a session, as a backend keeps them.

use serde::{Deserialize, Serialize};

use crate::id::{AttemptId, CommandId, Name, NodeId, PromptId, Term, Timestamp};

/// A command that another node gives to the owner of a session.
///
/// ```text
///             put_command            take_command          finish_command
///  (no row) ─────────────► Waiting ───────────────► Taken ───────────────► Ended
///                             │ withdraw_command, its deadline               ▲
///                             └──────────────────────────────────────────────┘
/// ```
///
/// The owner takes a command before it carries the command out, so nobody carries it out twice. If the owner is lost after that, the
/// command stays `Taken`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CommandRecord {
    /// The id.
    pub id: CommandId,
    /// The session.
    pub name: Name,
    /// The owner's node when the command was put.
    pub node: NodeId,
    /// The owner's term when the command was put. An owner of another term does not take the command.
    pub term: Term,
    /// The thing to do.
    pub kind: CommandKind,
    /// The moment until which the owner may take the command.
    pub deadline: Timestamp,
    /// The state.
    pub state: CommandState,
}

/// The thing that a command tells the owner to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
#[non_exhaustive]
pub enum CommandKind {
    /// Interrupt the turn of this prompt, and no other turn.
    Interrupt {
        /// The prompt.
        prompt: PromptId,
    },
    /// Put the session to sleep after its running turn.
    Passivate,
    /// End the session at once, and leave it asleep for a moment: a quarantine or a deletion follows.
    MakeWay,
}

/// The state of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
#[non_exhaustive]
pub enum CommandState {
    /// The owner has not taken the command.
    Waiting,
    /// The owner has taken the command, and carries it out.
    Taken {
        /// The owner's attempt to take it.
        attempt: AttemptId,
        /// When it was taken.
        at: Timestamp,
    },
    /// The command has its result.
    Ended {
        /// The result.
        result: CommandResult,
        /// The attempt that has carried it out; `None` if nobody has taken the command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<AttemptId>,
        /// When it ended.
        at: Timestamp,
    },
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
#[non_exhaustive]
pub enum CommandResult {
    /// The owner has carried the command out.
    Done,
    /// There was nothing to do: the turn does not run any more, or the session was asleep.
    Nothing,
    /// The owner could not do it.
    Failed {
        /// The cause, in words.
        why: String,
    },
    /// Nobody has taken the command, and nobody will.
    Withdrawn,
}
