//! Promises about owners that were lost.

use serde_json::json;

use super::stage::{
    Checked, LEASE, Stage, accept, accept_with_continuation, begin, claim, completed, finish, name, promises,
    same, tenant, unexpected,
};
use crate::backend::Requests;
use crate::id::{AttemptId, QuestionId};
use crate::record::{InterruptedBy, PromptContent, PromptOutcome, Unsent};
use crate::registry::tests::counted;
use crate::request::{
    Accept, ActivationFailed, Append, Ask, Claim, Claimed, Marked, Owned, QuestionsOf, Withdrawn,
};

promises! {
    "an owner of an older term writes nothing" => fenced,
    "an owner whose node is dead writes nothing, before anybody claims its name" => fenced_when_dead,
    "a turn whose owner was lost ends as interrupted, once" => interrupted,
    "a turn with a continuation goes on with it, before all that wait" => continued,
    "a continuation goes before a reminder that was accepted earlier" => before_reminder,
    "a continuation of null is none" => null_continuation,
    "a turn that waits for its continuation is withdrawn, and ends as interrupted" => withdrawn,
    "a prompt that was begun does not end as unsent when its session is deleted" => begun_and_deleted,
    "a dead node does not win a name by a repeated claim" => dead_claim,
    "a prompt that was begun is never sent again" => never_sent_again,
    "too many lost owners in a row quarantine a name" => losses,
    "a finish whose reply was lost is found after the name was lost" => finish_found,
    "the money of a turn whose owner was lost stays reserved" => reservation_stays,
}

async fn fenced(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let (old, prompt, attempt) = stage.running(node, "a").await?;
    stage.kill(node).await?;
    let new = stage.own("a").await?;
    same("whether the term grew", new.term > old.term, true)?;
    all_fenced(&stage, &old, prompt, attempt).await?;
    let record = stage.backend.name_record(name("a")).await?;
    same("the term", record.map(|record| record.term), Some(new.term))
}

async fn fenced_when_dead(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let (owner, prompt, attempt) = stage.running(node, "a").await?;
    stage.kill(node).await?;
    all_fenced(&stage, &owner, prompt, attempt).await
}

/// Checks that each request of an owner that has lost its name is fenced.
pub(super) async fn all_fenced(
    stage: &Stage,
    old: &crate::Ownership,
    prompt: crate::PromptId,
    attempt: AttemptId,
) -> Checked {
    let next = stage.prompt("a", "next").await?;
    same("a begin", stage.backend.begin(begin(old, next, AttemptId::new())).await?, Owned::Fenced)?;
    let append =
        Append { owner: old.clone(), prompt, first_seq: 1, messages: vec!["1".to_owned()], bound: 100 };
    same("an append", stage.backend.append(append).await?, Owned::Fenced)?;
    same("a finish", stage.backend.finish(finish(old, prompt, attempt, completed())).await?, Owned::Fenced)?;
    let ask = Ask {
        owner: old.clone(),
        question: QuestionId::new(),
        prompt,
        wait: LEASE,
        call: None,
        body: json!({}),
    };
    same("a question", stage.backend.ask(ask).await?, Owned::Fenced)?;
    let failed = ActivationFailed { owner: old.clone(), why: String::new(), counted: counted(LEASE, 1) };
    same("a failed activation", stage.backend.activation_failed(failed).await?, Owned::Fenced)?;
    same("a release", stage.backend.release(old.clone()).await?, Owned::Fenced)?;
    let process = stage.backend.record_process(old.clone(), Some(json!({ "pid": 1 }))).await?;
    same("a record of a process", process, Owned::Fenced)?;
    same("the messages", stage.backend.messages(prompt, 0, 10).await?, Vec::new())?;
    same("the questions", stage.backend.open_questions(QuestionsOf::All, 10).await?, Vec::new())?;
    same("the queue", stage.queue("a").await?, vec![next])
}

async fn interrupted(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let (old, prompt, attempt) = stage.running(node, "a").await?;
    stage.kill(node).await?;
    same("the outcome before a claim", stage.outcome(prompt).await?, None)?;
    stage.own("a").await?;
    let lost = PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { term: old.term }, result: None };
    same("the outcome", stage.outcome(prompt).await?, Some(lost.clone()))?;
    same(
        "a late finish",
        stage.backend.finish(finish(&old, prompt, attempt, completed())).await?,
        Owned::Fenced,
    )?;
    same("the outcome after that", stage.outcome(prompt).await?, Some(lost))
}

async fn continued(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let prompt = stage.accepted(accept_with_continuation("a")).await?;
    let waiting = stage.prompt("a", "waits").await?;
    let owner = stage.own_by(node, "a").await?;
    let (_, content) = stage.begin(&owner, prompt).await?;
    same("what is sent first", content, json!("the prompt"))?;
    stage.kill(node).await?;
    let answer = stage.claim_by(stage.node, "a").await?;
    let Claimed::Won(record) = answer else { return unexpected("the name is not won", answer) };
    same("the prompt that goes on", record.continues, Some(prompt))?;
    same("the queue", stage.queue("a").await?, vec![prompt, waiting])?;
    let owner = crate::Ownership { name: record.name, node: stage.node, term: record.term };
    let (attempt, content) = stage.begin(&owner, prompt).await?;
    same("what is sent then", content, json!("go on"))?;
    stage.complete(&owner, prompt, attempt).await?;
    same("the outcome", stage.outcome(prompt).await?, Some(completed()))
}

async fn before_reminder(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let later = stage.backend.now().after(LEASE);
    stage.accepted(Accept { not_before: Some(later), ..accept("a", "later") }).await?;
    let prompt = stage.accepted(accept_with_continuation("a")).await?;
    let owner = stage.own_by(node, "a").await?;
    stage.begin(&owner, prompt).await?;
    stage.kill(node).await?;
    let claim = claim(stage.node, "a");
    for what in ["a claim", "the repeated claim"] {
        match stage.backend.claim(claim.clone()).await? {
            Claimed::Won(record) => same(what, record.continues, Some(prompt))?,
            other => return unexpected("the name is not won", other),
        }
    }
    Ok(())
}

async fn null_continuation(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let content = PromptContent { prompt: json!("hello"), continuation: Some(json!(null)) };
    let prompt = stage.accepted(Accept { content, continuations: 1, ..accept("a", "") }).await?;
    let owner = stage.own_by(node, "a").await?;
    stage.begin(&owner, prompt).await?;
    stage.kill(node).await?;
    stage.own("a").await?;
    let lost = PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { term: owner.term }, result: None };
    same("the outcome", stage.outcome(prompt).await?, Some(lost))
}

async fn withdrawn(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let prompt = stage.accepted(accept_with_continuation("a")).await?;
    let owner = stage.own_by(node, "a").await?;
    stage.begin(&owner, prompt).await?;
    stage.kill(node).await?;
    let quarantined = stage.backend.quarantine(name("a"), "it kills its nodes".into()).await?;
    same("the answer to the quarantine", quarantined, Marked::Done)?;
    for what in ["the answer", "the repeated answer"] {
        same(what, stage.backend.withdraw(prompt).await?, Withdrawn::Interrupted)?;
    }
    let interrupted = PromptOutcome::Interrupted { by: InterruptedBy::User, result: None };
    same("the outcome", stage.outcome(prompt).await?, Some(interrupted))?;
    same("the sum of waiting prompts", stage.backend.queued().await?, 0)?;
    same("the answer to the lift", stage.backend.unquarantine(name("a")).await?, true)?;
    match stage.claim_by(stage.node, "a").await? {
        Claimed::Won(record) => same("the prompt that goes on", record.continues, None),
        other => unexpected("a name that was lifted", other),
    }
}

async fn begun_and_deleted(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let prompt = stage.accepted(accept_with_continuation("a")).await?;
    let waits = stage.prompt("a", "waits").await?;
    let owner = stage.own_by(node, "a").await?;
    stage.begin(&owner, prompt).await?;
    stage.kill(node).await?;
    same("the queue's length", stage.delete("a").await?, 0)?;
    let interrupted = PromptOutcome::Interrupted { by: InterruptedBy::User, result: None };
    same("the outcome of the prompt that was begun", stage.outcome(prompt).await?, Some(interrupted))?;
    let unsent = PromptOutcome::Unsent { why: Unsent::Deleted };
    same("the outcome of the prompt that was not", stage.outcome(waits).await?, Some(unsent))
}

async fn dead_claim(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    let node = stage.short_lived_node().await?;
    let claim = claim(node, "a");
    match stage.backend.claim(claim.clone()).await? {
        Claimed::Won(_) => {}
        other => return unexpected("the name is not won", other),
    }
    stage.kill(node).await?;
    same("the repeated claim", stage.backend.claim(claim).await?, Claimed::NodeDown)
}

async fn never_sent_again(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let prompt = stage.accepted(accept_with_continuation("a")).await?;
    let first = stage.own_by(node, "a").await?;
    stage.begin(&first, prompt).await?;
    stage.kill(node).await?;
    let node = stage.short_lived_node().await?;
    let second = stage.own_by(node, "a").await?;
    stage.begin(&second, prompt).await?;
    stage.kill(node).await?;
    // The continuation may be sent once, so the second loss ends the turn.
    let third = stage.own("a").await?;
    let again = stage.backend.begin(begin(&third, prompt, AttemptId::new())).await?;
    same("a prompt whose continuations are used up", again, Owned::Done(None))?;
    let lost =
        PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { term: second.term }, result: None };
    same("the outcome", stage.outcome(prompt).await?, Some(lost))
}

async fn losses(stage: Stage) -> Checked {
    let claim = || Claim { losses: 2, ..claim(stage.node, "a") };
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let node = stage.short_lived_node().await?;
        stage.running(node, "a").await?;
        stage.kill(node).await?;
        nodes.push(node);
    }
    match stage.backend.claim(claim()).await? {
        Claimed::Quarantined(_) => {}
        other => return unexpected("a name that has lost two owners", other),
    }
    same("the answer to the lift", stage.backend.unquarantine(name("a")).await?, true)?;
    match stage.backend.claim(claim()).await? {
        Claimed::Won(record) => same("losses after the lift", record.losses, 0),
        other => unexpected("a name that was lifted", other),
    }
}

async fn finish_found(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let (old, prompt, attempt) = stage.running(node, "a").await?;
    stage.complete(&old, prompt, attempt).await?;
    stage.kill(node).await?;
    stage.prompt("a", "next").await?;
    stage.own("a").await?;
    let again = stage.backend.finish(finish(&old, prompt, attempt, completed())).await?;
    same("the repeated finish", again, Owned::Done(true))
}

async fn reservation_stays(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let prompt = stage.prompt("a", "hello").await?;
    let owner = stage.own_by(node, "a").await?;
    let period = std::time::Duration::from_secs(40 * 365 * 24 * 3600);
    let budget = Some(crate::Budget { amount: 100, period, reserve: 60 });
    let quota = crate::Quota { budget, ..crate::Quota::default() };
    let begin = crate::Begin { quota, ..begin(&owner, prompt, AttemptId::new()) };
    same("the begin", stage.backend.begin(begin).await?, Owned::Done(Some(json!("hello"))))?;
    stage.kill(node).await?;
    stage.own("a").await?;
    let account = stage.backend.tenant(tenant("acme")).await?;
    same("money spent and reserved", (account.spent, account.reserved), (60, 0))
}
