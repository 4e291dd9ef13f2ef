//! The requests about commands, as calls of the functions in the schema.

use serde_json::{Value, json};

use super::PostgresBackend;
use super::answers::{owned, ownership, record, unknown, variant};
use super::text::{number, time};
use crate::id::{AttemptId, CommandId, NodeId, Timestamp};
use crate::record::{CommandKind, CommandRecord, CommandResult};
use crate::registry::Result;
use crate::request::{CommandPut, Owned, PutCommand, TakeCommand};

impl PostgresBackend {
    pub(in crate::backend) async fn put_command(&self, put: PutCommand) -> Result<CommandPut> {
        let (kind, prompt) = match put.kind {
            CommandKind::Interrupt { prompt } => ("interrupt", Some(prompt)),
            CommandKind::Passivate => ("passivate", None),
            CommandKind::MakeWay => ("make_way", None),
        };
        let request = json!({
            "command": put.command, "name": put.name, "node": put.node, "term": number(put.term.0), "kind": kind,
            "prompt": prompt, "deadline": time(put.deadline), "most_of_name": PutCommand::NAME,
            "most_of_node": PutCommand::NODE,
        });
        match variant(self.call("put_command", request).await?)? {
            (word, command) if word == "put" => Ok(CommandPut::Put(record(command)?)),
            (word, _) if word == "gone" => Ok(CommandPut::Gone),
            (word, _) if word == "full" => Ok(CommandPut::Full),
            (word, _) => unknown(Value::String(word)),
        }
    }

    pub(in crate::backend) async fn commands(
        &self,
        node: NodeId,
        limit: usize,
    ) -> Result<Vec<CommandRecord>> {
        let (limit, most) = (number(limit as u64), PutCommand::NODE);
        let request = json!({ "node": node, "limit": limit, "most_of_node": most });
        let listed: Vec<Value> = record(self.call("commands", request).await?)?;
        // A command of a later version is passed over: its caller learns that nobody has taken it.
        let known = |command| {
            record(command).inspect_err(|error| tracing::warn!(%error, "a command is passed over")).ok()
        };
        Ok(listed.into_iter().filter_map(known).collect())
    }

    pub(in crate::backend) async fn take_command(&self, take: TakeCommand) -> Result<Owned<bool>> {
        let request =
            json!({ "command": take.command, "owner": ownership(&take.owner), "attempt": take.attempt });
        owned(self.call("take_command", request).await?, record)
    }

    pub(in crate::backend) async fn finish_command(
        &self,
        command: CommandId,
        attempt: AttemptId,
        result: CommandResult,
    ) -> Result<bool> {
        let request = json!({ "command": command, "attempt": attempt, "result": result });
        record(self.call("finish_command", request).await?)
    }

    pub(in crate::backend) async fn withdraw_command(
        &self,
        command: CommandId,
    ) -> Result<Option<CommandRecord>> {
        record(self.call("withdraw_command", json!({ "command": command })).await?)
    }

    pub(in crate::backend) async fn command(&self, command: CommandId) -> Result<Option<CommandRecord>> {
        record(self.call("command", json!({ "command": command })).await?)
    }

    pub(in crate::backend) async fn forget_commands(&self, before: Timestamp, limit: usize) -> Result<usize> {
        let request = json!({ "before": time(before), "limit": number(limit as u64) });
        record(self.call("forget_commands", request).await?)
    }
}
