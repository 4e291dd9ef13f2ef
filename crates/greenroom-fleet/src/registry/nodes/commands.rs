//! Commands to the owner of a name: each is taken once at most, and only by the owner for which it was put.

use crate::error::{BackendError, BackendErrorKind};
use crate::id::{AttemptId, CommandId, Name, NodeId, Timestamp};
use crate::record::{CommandKind, CommandRecord, CommandResult, CommandState};
use crate::registry::map::key::{Key, Table, last_id};
use crate::registry::{Result, Step};
use crate::request::{Change, CommandPut, Owned, Ownership};

/// Commands of a node that are read at once. There are fewer: each session has few, and a node owns as many sessions as its slots.
const LISTED: usize = 8192;

impl Step<'_> {
    /// Keeps a command, if the node owns the name under the term and the bounds leave room.
    pub(crate) fn put_command(&mut self, put: CommandRecord) -> Result<CommandPut> {
        if let Some(known) = self.command(put.id)? {
            // Of a command that has ended, the message is not kept.
            if known.owner != put.owner || (known.kind != put.kind && known.kind != put.kind.ended()) {
                return Err(BackendError::id_reused("command", known.id));
            }
            return Ok(CommandPut::Put(known));
        }
        let Some(name) = self.owned(&put.owner)? else { return Ok(CommandPut::Gone) };
        if let CommandKind::Steer { message, .. } = &put.kind
            && message.len() > CommandKind::STEER
        {
            let text =
                format!("a message into a turn has up to {} bytes, and this one more", CommandKind::STEER);
            return Err(BackendError::new(BackendErrorKind::Invalid, text));
        }
        let runs = put.kind.turn().is_none_or(|prompt| name.turns().any(|turn| turn == prompt));
        if !runs || put.deadline <= self.now {
            return Ok(CommandPut::Gone);
        }
        let of_node = Key::of(Table::CommandsOfNode).node(put.owner.node);
        let of_name = of_node.clone().name(&put.owner.name);
        let of_tenant = of_node.clone().tenant(put.owner.name.tenant());
        let has = |of: &Key, most| self.txn.under(of, most).len() == most;
        let is_full = match put.kind {
            // An operator ends a session although its tenant has used up its commands.
            CommandKind::MakeWay => has(&of_name, CommandRecord::NAME * 2),
            _ if has(&of_name, CommandRecord::NAME) || has(&of_tenant, CommandRecord::TENANT) => true,
            _ => has(&of_tenant, CommandRecord::SHARE) && has(&of_node, CommandRecord::NODE),
        };
        if is_full {
            return Ok(CommandPut::Full);
        }
        let command = CommandRecord { state: CommandState::Waiting, ..put };
        self.write_command(&command)?;
        self.txn.mark(&of_name.command(command.id));
        self.txn.mark(&commands_of(&command.owner.name).command(command.id));
        self.txn.mark(&Key::of(Table::CommandDeadlines).time(command.deadline).command(command.id));
        self.told.changes.push(Change::Commanded(command.owner.node));
        Ok(CommandPut::Put(command))
    }

    /// Commands that wait for a node, by names.
    pub(crate) fn commands(&self, node: NodeId, limit: usize) -> Result<Vec<CommandRecord>> {
        let mut waiting = Vec::new();
        for (key, _) in self.txn.under(&Key::of(Table::CommandsOfNode).node(node), LISTED) {
            let command = self.readable(self.command(CommandId(last_id(&key)?)))?;
            waiting.extend(command.filter(|command| command.state == CommandState::Waiting));
        }
        waiting.truncate(limit);
        Ok(waiting)
    }

    /// Marks a command as taken, if it waits for this owner and its deadline has not passed.
    pub(crate) fn take_command(
        &mut self,
        id: CommandId,
        owner: Ownership,
        attempt: AttemptId,
    ) -> Result<Owned<bool>> {
        if self.owned(&owner)?.is_none() {
            return Ok(Owned::Fenced);
        }
        let command = self.command(id)?.filter(|command| command.owner == owner);
        let Some(mut command) = command else { return Ok(Owned::Done(false)) };
        match command.state {
            CommandState::Taken { attempt: taken, .. } => Ok(Owned::Done(taken == attempt)),
            CommandState::Waiting if command.deadline > self.now => {
                command.state = CommandState::Taken { attempt, at: self.now };
                self.write_command(&command)?;
                Ok(Owned::Done(true))
            }
            CommandState::Waiting => {
                self.end_command(command, None, CommandResult::Withdrawn)?;
                Ok(Owned::Done(false))
            }
            CommandState::Ended { .. } => Ok(Owned::Done(false)),
        }
    }

    /// Gives a command its result.
    pub(crate) fn finish_command(
        &mut self,
        id: CommandId,
        attempt: AttemptId,
        result: CommandResult,
    ) -> Result<bool> {
        let Some(command) = self.command(id)? else { return Ok(false) };
        match &command.state {
            CommandState::Taken { attempt: taken, .. } if *taken == attempt => {
                self.end_command(command, Some(attempt), result)?;
                Ok(true)
            }
            CommandState::Ended { attempt: ended, result: known, .. } => {
                Ok(*ended == Some(attempt) && *known == result)
            }
            _ => Ok(false),
        }
    }

    /// Ends a command that nobody has taken.
    pub(crate) fn withdraw_command(&mut self, id: CommandId) -> Result<Option<CommandRecord>> {
        let Some(command) = self.command(id)? else { return Ok(None) };
        match command.state {
            CommandState::Waiting => self.end_command(command, None, CommandResult::Withdrawn).map(Some),
            _ => Ok(Some(command)),
        }
    }

    pub(crate) fn command(&self, id: CommandId) -> Result<Option<CommandRecord>> {
        self.txn.read(&Key::of(Table::Commands).command(id))
    }

    /// Removes commands whose deadline was before `before`. Answers with their number.
    pub(crate) fn forget_commands(&mut self, before: Timestamp, limit: usize) -> Result<usize> {
        let over = self.txn.before(Table::CommandDeadlines, before, limit);
        for (key, _) in &over {
            let id = CommandId(last_id(key)?);
            self.forget_command(id)?;
            self.txn.delete(key);
        }
        Ok(over.len())
    }

    /// Removes up to `limit` commands of a name. `false`: there may be more.
    pub(in crate::registry) fn forget_commands_of(&mut self, name: &Name, limit: usize) -> Result<bool> {
        let of_name = commands_of(name);
        let commands = self.txn.under(&of_name, limit);
        for (key, _) in &commands {
            self.forget_command(CommandId(last_id(key)?))?;
            self.txn.remove(&of_name.clone().followed_by(key));
        }
        Ok(commands.len() < limit)
    }

    /// Removes a command. A command that cannot be read stays in the lists of its owner, which pass over it.
    fn forget_command(&mut self, id: CommandId) -> Result<()> {
        if let Some(command) = self.readable(self.command(id))? {
            self.txn.remove(&of_node(&command));
            self.txn.remove(&commands_of(&command.owner.name).command(id));
            self.txn.remove(&Key::of(Table::CommandDeadlines).time(command.deadline).command(id));
        }
        self.txn.remove(&Key::of(Table::Commands).command(id));
        Ok(())
    }

    fn end_command(
        &mut self,
        mut command: CommandRecord,
        attempt: Option<AttemptId>,
        result: CommandResult,
    ) -> Result<CommandRecord> {
        command.state = CommandState::Ended { result, attempt, at: self.now };
        command.kind = command.kind.ended();
        self.write_command(&command)?;
        self.txn.remove(&of_node(&command));
        self.told.changes.push(Change::CommandEnded(command.id));
        Ok(command)
    }

    fn write_command(&mut self, command: &CommandRecord) -> Result<()> {
        self.txn.write(&Key::of(Table::Commands).command(command.id), command)
    }
}

fn commands_of(name: &Name) -> Key {
    Key::of(Table::CommandsOf).name(name)
}

fn of_node(command: &CommandRecord) -> Key {
    Key::of(Table::CommandsOfNode).node(command.owner.node).name(&command.owner.name).command(command.id)
}
