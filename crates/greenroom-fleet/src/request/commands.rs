//! Requests about commands to the owner of a name.

use super::Ownership;
use crate::id::{AttemptId, CommandId};
use crate::record::CommandRecord;

/// The answer to a command that is put.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum CommandPut {
    /// The command is kept, now or since it was put before.
    Put(CommandRecord),
    /// The node does not own the name under this term, or is dead, the turn to interrupt does not run, or the deadline has passed.
    Gone,
    /// The name has [`CommandRecord::NAME`] commands that have not ended, or the node has [`CommandRecord::NODE`].
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
