//! Commands to the owner of a session, as a backend keeps them.

use serde::{Deserialize, Serialize};

use crate::id::{AttemptId, CommandId, Ownership, PromptId, Timestamp};

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
    /// The owner when the command was put. No other owner of the session takes the command.
    pub owner: Ownership,
    /// The thing to do.
    pub kind: CommandKind,
    /// The moment until which the owner may take the command.
    pub deadline: Timestamp,
    /// The state.
    pub state: CommandState,
}

impl CommandRecord {
    /// The greatest number of commands for a name that have not ended. Nodes that put commands at the same moment may exceed it, by
    /// one each.
    pub const NAME: usize = 16;
    /// The greatest number of commands for a tenant's names on a node that have not ended, in the same way.
    pub const TENANT: usize = 64;
    /// The greatest number of commands for a node that have not ended, in the same way.
    pub const NODE: usize = 256;
    /// The number of commands that a tenant may have on a node, whatever others have.
    pub const SHARE: usize = 4;

    /// A command to be put, with a new id. The owner may take it until the deadline.
    pub fn new(owner: Ownership, kind: CommandKind, deadline: Timestamp) -> Self {
        Self { id: CommandId::new(), owner, kind, deadline, state: CommandState::Waiting }
    }
}

/// The thing that a command tells the owner to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
#[non_exhaustive]
pub enum CommandKind {
    /// Interrupt the turn of this prompt, and no other turn.
    Interrupt {
        /// The prompt.
        prompt: PromptId,
    },
    /// Say something in the turn of this prompt, and in no other turn.
    Steer {
        /// The prompt.
        prompt: PromptId,
        /// The message, as [`greenroom::Prompt`] is serialised: up to [`CommandKind::STEER`] bytes. Empty once the command has ended.
        message: String,
    },
    /// Start the session, if it is asleep.
    Warm,
    /// Put the session to sleep after its running turn.
    Passivate,
    /// End the session at once, and leave it asleep for a moment: a quarantine or a deletion follows.
    MakeWay,
}

impl CommandKind {
    /// The length of the longest message of [`Steer`](Self::Steer), in bytes of its JSON. A node reads up to
    /// [`CommandRecord::NODE`] commands at once.
    pub const STEER: usize = 16 << 10;

    /// The turn that has to run, or the command has nothing to do.
    pub(crate) fn turn(&self) -> Option<PromptId> {
        match self {
            Self::Interrupt { prompt } | Self::Steer { prompt, .. } => Some(*prompt),
            Self::Warm | Self::Passivate | Self::MakeWay => None,
        }
    }

    /// The command without the message, which nobody reads any more.
    pub(crate) fn ended(mut self) -> Self {
        if let Self::Steer { message, .. } = &mut self {
            message.clear();
        }
        self
    }
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
