//! Promises about names that change their owner, their state or their failures.

use serde_json::json;

use super::fences::all_fenced;
use super::stage::{
    Checked, LEASE, Stage, accept_with_continuation, claim, completed, finish, name, promises, same,
    unexpected,
};
use crate::backend::Requests;
use crate::id::{NodeId, QuestionId};
use crate::record::{InterruptedBy, NameRecord, NameState, PromptOutcome};
use crate::registry::tests::counted;
use crate::request::{ActivationFailed, Ask, Claim, Claimed, Marked, Owned, Ownership, QuestionsOf};

promises! {
    "an owner of an older term writes nothing, also if its node owns the name again" => same_node,
    "a late release of an older term is fenced" => late_release,
    "a release gives up the running turn, and is no lost owner" => gives_up,
    "a failed activation gives up the running turn" => failure_gives_up,
    "a name that is being deleted is neither claimed nor quarantined" => deleting,
    "a name that is not being deleted is not removed" => not_deleting,
    "a quarantine keeps its first reason" => first_reason,
    "failures count in their period only" => period,
    "a completed turn forgets failed activations, and a failed turn does not" => forgives_failures,
    "a completed turn forgets lost owners, and a failed turn does not" => forgives_losses,
    "a lease that was renewed lasts from the renewal on" => renewed,
    "the questions of a turn whose owner was lost end, also if the turn goes on" => questions_end,
    "the process that was recorded last is the one that is left" => last_process,
}

async fn same_node(stage: Stage) -> Checked {
    let (old, prompt, attempt) = stage.running(stage.node, "a").await?;
    same("the answer to the release", stage.backend.release(old.clone()).await?, Owned::Done(false))?;
    stage.own("a").await?;
    all_fenced(&stage, &old, prompt, attempt).await
}

async fn late_release(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    let old = stage.own("a").await?;
    for what in ["the answer", "the repeated answer"] {
        same(what, stage.backend.release(old.clone()).await?, Owned::Done(true))?;
    }
    let new = stage.own("a").await?;
    same("the answer to the next owner", stage.backend.release(new).await?, Owned::Done(true))?;
    same("the answer to a late release", stage.backend.release(old).await?, Owned::Fenced)
}

async fn gives_up(stage: Stage) -> Checked {
    let (owner, prompt, _) = stage.running(stage.node, "a").await?;
    let lost = PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { term: owner.term }, result: None };
    same("the answer", stage.backend.release(owner).await?, Owned::Done(false))?;
    same("the outcome", stage.outcome(prompt).await?, Some(lost))?;
    let record = record(&stage).await?;
    same("the running turn and the losses", (record.running, record.losses), (None, 0))
}

async fn failure_gives_up(stage: Stage) -> Checked {
    let (owner, prompt, _) = stage.running(stage.node, "a").await?;
    let lost = PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { term: owner.term }, result: None };
    same("the answer", stage.backend.activation_failed(failed(owner)).await?, Owned::Done(Some(1)))?;
    same("the outcome", stage.outcome(prompt).await?, Some(lost))?;
    let record = record(&stage).await?;
    same("the running turn and the losses", (record.running, record.losses), (None, 0))
}

async fn deleting(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    stage.delete("a").await?;
    same("the answer to a claim", stage.claim_by(stage.node, "a").await?, Claimed::Gone)?;
    let quarantined = stage.backend.quarantine(name("a"), "why".into()).await?;
    same("the answer to a quarantine", quarantined, Marked::Gone)?;
    match record(&stage).await?.state {
        NameState::Deleting { .. } => Ok(()),
        other => unexpected("the state", other),
    }
}

async fn not_deleting(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    same("the answer", stage.deleted("a").await?, true)?;
    same("the prompts of the name", record(&stage).await?.queued, 1)
}

async fn first_reason(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    for why in ["first", "second"] {
        let answer = stage.backend.quarantine(name("a"), why.into()).await?;
        same("the answer", answer, Marked::Done)?;
    }
    let claimed = stage.claim_by(stage.node, "a").await?;
    same("the answer to a claim", claimed, Claimed::Quarantined("first".to_owned()))
}

async fn period(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    for what in ["the first failure", "a failure after the period of the first one"] {
        let owner = stage.own("a").await?;
        let failed = ActivationFailed { counted: counted(std::time::Duration::ZERO, 2), ..failed(owner) };
        let answer = stage.backend.activation_failed(failed).await?;
        same(what, answer, Owned::Done(Some(1)))?;
    }
    Ok(())
}

async fn forgives_failures(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    let owner = stage.own("a").await?;
    let answer = stage.backend.activation_failed(failed(owner)).await?;
    same("the answer to the first failed activation", answer, Owned::Done(Some(1)))?;
    for (outcome, expected) in [(completed(), Some(1)), (failed_turn(), None)] {
        let owner = stage.own("a").await?;
        stage.end_turn(&owner, outcome).await?;
        same("the answer to the release", stage.backend.release(owner).await?, Owned::Done(false))?;
        stage.prompt("a", "hello").await?;
        let owner = stage.own("a").await?;
        let answer = stage.backend.activation_failed(failed(owner)).await?;
        same("the answer to a failed activation", answer, Owned::Done(expected))?;
    }
    Ok(())
}

async fn forgives_losses(stage: Stage) -> Checked {
    let lose = async || {
        let node = stage.short_lived_node().await?;
        stage.running(node, "a").await?;
        stage.kill(node).await
    };
    let claim = || Claim { losses: 2, ..claim(stage.node, "a") };
    for outcome in [completed(), failed_turn()] {
        lose().await?;
        let Claimed::Won(record) = stage.backend.claim(claim()).await? else {
            return unexpected("a name that has lost one owner in a row", outcome);
        };
        same("losses", record.losses, 1)?;
        let owner = Ownership { name: record.name, node: stage.node, term: record.term };
        stage.prompt("a", "hello").await?;
        stage.end_turn(&owner, outcome).await?;
        same("the answer to the release", stage.backend.release(owner).await?, Owned::Done(false))?;
    }
    lose().await?;
    match stage.backend.claim(claim()).await? {
        Claimed::Quarantined(_) => Ok(()),
        other => unexpected("a name that has lost two owners, with a failed turn in between", other),
    }
}

async fn renewed(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    match stage.backend.renew(node, LEASE, false).await? {
        Owned::Done(record) => same("its counter", record.renewals, 1)?,
        Owned::Fenced => return unexpected("a node that nobody declared dead", node),
    }
    same("a node whose new lease goes on", stage.backend.declare_dead(node, 1).await?, false)
}

async fn questions_end(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let prompt = stage.accepted(accept_with_continuation("a")).await?;
    let owner = stage.own_by(node, "a").await?;
    stage.begin(&owner, prompt).await?;
    let question = QuestionId::new();
    let ask = Ask { owner, question, prompt, wait: LEASE, call: None, body: json!({}) };
    let asked = stage.backend.ask(ask).await?.done().flatten();
    same("whether the question is kept", asked.is_some(), true)?;
    stage.kill(node).await?;
    stage.own("a").await?;
    same("open questions", stage.backend.open_questions(QuestionsOf::All, 10).await?, Vec::new())?;
    same("the question", stage.backend.question(question).await?, None)
}

async fn last_process(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    let node = NodeId::new();
    stage.join(node, LEASE).await?;
    let owner = stage.own_by(node, "a").await?;
    for pid in [1, 2] {
        let process = Some(json!({ "pid": pid }));
        let answer = stage.backend.record_process(owner.clone(), process).await?;
        same("the answer to a record of a process", answer, Owned::Done(()))?;
    }
    stage.backend.leave(node).await?;
    let left = stage.backend.left_processes(10).await?;
    same("left processes", left.into_iter().map(|left| left.process).collect(), vec![json!({ "pid": 2 })])
}

/// A failed activation; two of them within an hour quarantine.
fn failed(owner: Ownership) -> ActivationFailed {
    ActivationFailed { owner, why: "no CLI".to_owned(), counted: counted(LEASE, 2) }
}

fn failed_turn() -> PromptOutcome {
    PromptOutcome::Failed { kind: "overflow".to_owned(), message: String::new(), result: None }
}

async fn record(stage: &Stage) -> Checked<NameRecord> {
    match stage.backend.name_record(name("a")).await? {
        Some(record) => Ok(record),
        None => unexpected("the name is gone", "a"),
    }
}

impl Stage {
    /// Runs the first prompt that waits for the owner's name to an outcome.
    async fn end_turn(&self, owner: &Ownership, outcome: PromptOutcome) -> Checked {
        let prompt = self.queue(owner.name.session()).await?[0];
        let (attempt, _) = self.begin(owner, prompt).await?;
        let finished = self.backend.finish(finish(owner, prompt, attempt, outcome)).await?;
        same("the answer to a finish", finished, Owned::Done(true))
    }
}
