//! Requests about commands to the owner of a name.

use super::Ownership;
use crate::id::{AttemptId, CommandId, Name, NodeId, Term, Timestamp};
use crate::record::{CommandKind, CommandRecord};

/// A command to be put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutCommand {
    /// The id, chosen by the caller.
    pub command: CommandId,
    /// The session.
    pub name: Name,
    /// The owner's node, as the caller has read it.
    pub node: NodeId,
    /// The owner's term, as the caller has read it.
    pub term: Term,
    /// The thing to do.
    pub kind: CommandKind,
    /// The moment until which the owner may take the command.
    pub deadline: Timestamp,
}

impl PutCommand {
    /// The greatest number of commands for a name that have not ended. Nodes that put commands at the same moment may exceed it, by
    /// one each.
    pub const NAME: usize = 16;
    /// The greatest number of commands for a node that have not ended, in the same way.
    pub const NODE: usize = 256;
}

/// The answer to [`PutCommand`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum CommandPut {
    /// The command is kept, now or since it was put before.
    Put(CommandRecord),
    /// The node does not own the name under this term, or is dead, the turn to interrupt does not run, or the deadline has passed.
    Gone,
    /// The name has [`PutCommand::NAME`] commands that have not ended, or the node has [`PutCommand::NODE`].
    Full,
}

/// An owner's request to take a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeCommand {
    /// The command.
    pub command: CommandId,
    /// The owner. Its term has to be that of the command.
    pub owner: Ownership,
    /// The id of this attempt.
    pub attempt: AttemptId,
}
