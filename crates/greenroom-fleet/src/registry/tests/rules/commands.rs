//! Promises about commands to the owner of a name.

use futures_util::future::join_all;

use super::stage::{Checked, LEASE, Stage, invalid, promises, same, unexpected};
use crate::backend::Requests;
use crate::id::{AttemptId, CommandId, PromptId, Timestamp};
use crate::record::{CommandKind, CommandRecord, CommandResult, CommandState};
use crate::request::{Change, CommandPut, Owned, Ownership};

promises! {
    "a command is taken by one attempt, and a repeated attempt learns that it has taken it" => race,
    "a command that is put twice is one command" => repeated,
    "a command is put only for a living owner of that term, and an interrupt for its running turn" => gone,
    "a message for a turn is bounded, put for the running turn only, and removed with the end of its command" => message,
    "an owner of another term takes no command" => other_term,
    "a command that is withdrawn or past its deadline is never taken" => withdrawn,
    "the result of a command is given by the attempt that has taken it, once" => finished,
    "open commands of a name are bounded" => bounded,
    "commands are forgotten after their deadline" => forgotten,
    "commands and their results are told to whoever listens" => told,
}

fn put(stage: &Stage, owner: &Ownership, kind: CommandKind) -> CommandRecord {
    CommandRecord::new(owner.clone(), kind, stage.backend.now().after(LEASE))
}

fn interrupt(stage: &Stage, owner: &Ownership, prompt: PromptId) -> CommandRecord {
    put(stage, owner, CommandKind::Interrupt { prompt })
}

async fn kept(stage: &Stage, put: &CommandRecord) -> Checked<CommandRecord> {
    match stage.backend.put_command(put.clone()).await? {
        CommandPut::Put(command) => Ok(command),
        other => unexpected("a command for a living owner", other),
    }
}

/// An attempt to take a command.
#[derive(Debug, PartialEq)]
struct Take<'a> {
    command: CommandId,
    owner: &'a Ownership,
    attempt: AttemptId,
}

fn take(command: CommandId, owner: &Ownership) -> Take<'_> {
    Take { command, owner, attempt: AttemptId::new() }
}

impl Stage {
    async fn take(&self, take: &Take<'_>) -> Checked<Owned<bool>> {
        Ok(self.backend.take_command(take.command, take.owner.clone(), take.attempt).await?)
    }
}

async fn message(stage: Stage) -> Checked {
    let (owner, prompt, _) = stage.running(stage.node, "a").await?;
    let steer =
        |prompt, bytes| put(&stage, &owner, CommandKind::Steer { prompt, message: "x".repeat(bytes) });
    invalid(
        "a message that is too long",
        stage.backend.put_command(steer(prompt, CommandKind::STEER + 1)).await,
    )?;
    let other = stage.backend.put_command(steer(PromptId::new(), 1)).await?;
    same("a message for another turn", other, CommandPut::Gone)?;
    let steer = steer(prompt, CommandKind::STEER);
    let command = kept(&stage, &steer).await?;
    same("the message", &command.kind, &steer.kind)?;
    let take = take(command.id, &owner);
    same("the take", stage.take(&take).await?, Owned::Done(true))?;
    stage.backend.finish_command(command.id, take.attempt, CommandResult::Done).await?;
    let ended = kept(&stage, &steer).await?;
    same("the kind once it has ended", ended.kind, CommandKind::Steer { prompt, message: String::new() })?;
    let again = CommandRecord { kind: CommandKind::Warm, ..steer };
    invalid("another command with its id", stage.backend.put_command(again).await)
}

async fn race(stage: Stage) -> Checked {
    let (owner, prompt, _) = stage.running(stage.node, "a").await?;
    let command = kept(&stage, &interrupt(&stage, &owner, prompt)).await?;
    same("commands of the node", stage.backend.commands(stage.node, 10).await?, vec![command.clone()])?;
    let takes: Vec<_> = (0..16).map(|_| take(command.id, &owner)).collect();
    let answers = join_all(takes.iter().map(|take| stage.take(take))).await;
    let mut winner = None;
    for (take, answer) in takes.iter().zip(answers) {
        if answer? == Owned::Done(true) {
            same("an earlier attempt that has taken the command", winner.replace(take), None)?;
        }
    }
    let Some(winner) = winner else { return unexpected("nobody has taken the command", command) };
    for take in &takes {
        let answer = stage.take(take).await?;
        same("the repeated answer", answer, Owned::Done(take == winner))?;
    }
    same("commands that wait after that", stage.backend.commands(stage.node, 10).await?, Vec::new())
}

async fn repeated(stage: Stage) -> Checked {
    let (owner, prompt, _) = stage.running(stage.node, "a").await?;
    let first = interrupt(&stage, &owner, prompt);
    let command = kept(&stage, &first).await?;
    same("the repeated answer", kept(&stage, &first).await?, command)?;
    same("commands of the node", stage.backend.commands(stage.node, 10).await?.len(), 1)?;
    let take = take(first.id, &owner);
    same("the take", stage.take(&take).await?, Owned::Done(true))?;
    match kept(&stage, &first).await?.state {
        CommandState::Taken { attempt, .. } => same("the attempt", attempt, take.attempt)?,
        other => return unexpected("a command that is put again after it was taken", other),
    }
    let other = CommandRecord { kind: CommandKind::Passivate, ..first };
    invalid("another command with a known id", stage.backend.put_command(other).await)
}

async fn gone(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let other = stage.short_lived_node().await?;
    let of_other = Ownership { node: other, ..owner.clone() };
    let late = CommandRecord { deadline: stage.backend.now(), ..put(&stage, &owner, CommandKind::Passivate) };
    let wrong_turn = interrupt(&stage, &owner, PromptId::new());
    let puts = [put(&stage, &of_other, CommandKind::Passivate), late, wrong_turn];
    for put in puts {
        same("the answer", stage.backend.put_command(put).await?, CommandPut::Gone)?;
    }
    stage.complete(&owner, prompt, attempt).await?;
    let late = stage.backend.put_command(interrupt(&stage, &owner, prompt)).await?;
    same("an interrupt of a turn that has ended", late, CommandPut::Gone)?;
    let passivate = put(&stage, &owner, CommandKind::Passivate);
    let _: Owned<bool> = stage.backend.release(owner).await?;
    let free = stage.backend.put_command(passivate).await?;
    same("a command to a name without an owner", free, CommandPut::Gone)?;
    let dead = stage.own_by(other, "a").await?;
    stage.kill(other).await?;
    let put = put(&stage, &dead, CommandKind::Passivate);
    same("a command to a dead owner", stage.backend.put_command(put).await?, CommandPut::Gone)
}

async fn other_term(stage: Stage) -> Checked {
    let owner = {
        stage.prompt("a", "run").await?;
        stage.own("a").await?
    };
    let command = kept(&stage, &put(&stage, &owner, CommandKind::Passivate)).await?;
    let _: Owned<bool> = stage.backend.release(owner.clone()).await?;
    let old = stage.take(&take(command.id, &owner)).await?;
    same("the take of an owner that has given the name back", old, Owned::Fenced)?;
    let next = stage.own("a").await?;
    let new = stage.take(&take(command.id, &next)).await?;
    same("the take of the next owner", new, Owned::Done(false))
}

async fn withdrawn(stage: Stage) -> Checked {
    stage.prompt("a", "run").await?;
    let owner = stage.own("a").await?;
    let command = kept(&stage, &put(&stage, &owner, CommandKind::Passivate)).await?;
    for _ in 0..2 {
        match stage.backend.withdraw_command(command.id).await?.map(|command| command.state) {
            Some(CommandState::Ended { result: CommandResult::Withdrawn, attempt: None, .. }) => {}
            other => return unexpected("a command that was withdrawn", other),
        }
    }
    let answer = stage.take(&take(command.id, &owner)).await?;
    same("the take of a withdrawn command", answer, Owned::Done(false))?;
    same("an unknown command", stage.backend.withdraw_command(CommandId::new()).await?, None)?;
    let taken = kept(&stage, &put(&stage, &owner, CommandKind::Passivate)).await?;
    let answer = stage.take(&take(taken.id, &owner)).await?;
    same("the take", answer, Owned::Done(true))?;
    match stage.backend.withdraw_command(taken.id).await?.map(|command| command.state) {
        Some(CommandState::Taken { .. }) => {}
        other => return unexpected("a command that is withdrawn after it was taken", other),
    }
    let mut wait = std::time::Duration::from_millis(50);
    let (late, deadline) = loop {
        let deadline = stage.backend.now().after(wait);
        let put = CommandRecord { deadline, ..put(&stage, &owner, CommandKind::Passivate) };
        match stage.backend.put_command(put).await? {
            CommandPut::Put(command) => break (command, deadline),
            // The deadline passed before the backend had put the command.
            CommandPut::Gone if stage.backend.now() > deadline => wait *= 2,
            other => return unexpected("a command with a deadline", other),
        }
    };
    while stage.backend.now() <= deadline {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let answer = stage.take(&take(late.id, &owner)).await?;
    same("the take after the deadline", answer, Owned::Done(false))?;
    match stage.backend.command(late.id).await?.map(|command| command.state) {
        Some(CommandState::Ended { result: CommandResult::Withdrawn, .. }) => Ok(()),
        other => unexpected("a command whose deadline has passed", other),
    }
}

async fn finished(stage: Stage) -> Checked {
    let (owner, prompt, _) = stage.running(stage.node, "a").await?;
    let command = kept(&stage, &interrupt(&stage, &owner, prompt)).await?;
    let finish = async |attempt, result| stage.backend.finish_command(command.id, attempt, result).await;
    same("a result before the take", finish(AttemptId::new(), CommandResult::Done).await?, false)?;
    let take = take(command.id, &owner);
    same("the take", stage.take(&take).await?, Owned::Done(true))?;
    same("the result of another attempt", finish(AttemptId::new(), CommandResult::Done).await?, false)?;
    // The owner may have given the name back.
    let _: Owned<bool> = stage.backend.release(owner.clone()).await?;
    let result = CommandResult::Failed { why: "it broke\0".to_owned() };
    for _ in 0..2 {
        same("the result", finish(take.attempt, result.clone()).await?, true)?;
    }
    same("another result", finish(take.attempt, CommandResult::Done).await?, false)?;
    match stage.backend.command(command.id).await?.map(|command| command.state) {
        Some(CommandState::Ended { result: kept, attempt, .. }) => {
            same("the kept result", kept, result)?;
            same("the attempt", attempt, Some(take.attempt))
        }
        other => unexpected("a command with a result", other),
    }
}

async fn bounded(stage: Stage) -> Checked {
    stage.prompt("a", "run").await?;
    let owner = stage.own("a").await?;
    for _ in 0..CommandRecord::NAME {
        kept(&stage, &put(&stage, &owner, CommandKind::Passivate)).await?;
    }
    let full = stage.backend.put_command(put(&stage, &owner, CommandKind::Passivate)).await?;
    same("the answer beyond the bound", full, CommandPut::Full)
}

async fn forgotten(stage: Stage) -> Checked {
    stage.prompt("a", "run").await?;
    let owner = stage.own("a").await?;
    let first = kept(&stage, &put(&stage, &owner, CommandKind::Passivate)).await?;
    same("the number before its deadline", stage.backend.forget_commands(first.deadline, 10).await?, 0)?;
    let after = Timestamp(first.deadline.0 + 1);
    same("the number after its deadline", stage.backend.forget_commands(after, 10).await?, 1)?;
    same("the command", stage.backend.command(first.id).await?, None)?;
    same("commands of the node", stage.backend.commands(stage.node, 10).await?, Vec::new())
}

async fn told(stage: Stage) -> Checked {
    stage.prompt("a", "run").await?;
    let owner = stage.own("a").await?;
    let mut changes = stage.backend.changes();
    let command = kept(&stage, &put(&stage, &owner, CommandKind::Passivate)).await?;
    stage.backend.withdraw_command(command.id).await?;
    for expected in [Change::Commanded(stage.node), Change::CommandEnded(command.id)] {
        match changes.recv().await {
            Ok(change) => same("the change", change, expected)?,
            Err(error) => return unexpected("no change was told", error),
        }
    }
    Ok(())
}
