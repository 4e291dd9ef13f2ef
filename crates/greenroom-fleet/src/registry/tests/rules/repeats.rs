//! Promises about requests that are repeated or late, and about what is left of a prompt.

use super::stage::{
    Checked, LEASE, Stage, accept, completed, finish, invalid, name, promises, same, unexpected,
};
use crate::backend::Requests;
use crate::id::{AttemptId, QuestionId, Timestamp};
use crate::record::{InterruptedBy, PromptOutcome};
use crate::request::{Accept, Accepted, Append, Ask, Change, Owned, Withdrawn};

promises! {
    "the id of a known prompt is refused for another tenant" => other_tenant,
    "a prompt whose moment lies in the past waits from its acceptance on" => past_moment,
    "a key of a session that was made anew outlives the prompts of the old one" => key_outlives,
    "nothing of a forgotten prompt is found" => nothing_left,
    "a prompt that a user interrupted while it ran was not withdrawn" => interrupted,
    "an outcome that another attempt repeats is not its own" => other_attempt,
    "messages that are repeated in part change nothing" => part_repeated,
    "the bound of a turn's messages holds over all its appends" => bound_over_all,
    "the next expiry is that of an open question, too" => question_expiry,
    "a question that ends with its turn is told as decided" => question_told,
}

async fn other_tenant(stage: Stage) -> Checked {
    let first = accept("a", "hello");
    stage.accepted(first.clone()).await?;
    let other = Accept { name: name("other/a"), ..first };
    invalid("another tenant's prompt with a known id", stage.backend.accept(other).await)
}

async fn past_moment(stage: Stage) -> Checked {
    let past = Accept { not_before: Some(Timestamp(0)), ..accept("a", "hello") };
    let prompt = stage.accepted(past).await?;
    same("the number of expired prompts", stage.backend.expire_prompts(10).await?, 0)?;
    let owner = stage.own("a").await?;
    stage.begin(&owner, prompt).await.map(drop)
}

async fn key_outlives(stage: Stage) -> Checked {
    let keyed = || Accept { key: Some("k".to_owned()), ..accept("a", "hello") };
    let first = stage.accepted(keyed()).await?;
    same("the answer to a withdrawal", stage.backend.withdraw(first).await?, Withdrawn::Unsent)?;
    stage.delete("a").await?;
    let mut calls = 0;
    while !stage.deleted("a").await? {
        calls += 1;
        same("whether the deletion comes to an end", calls < 1000, true)?;
    }
    let second = stage.accepted(keyed()).await?;
    // The old prompt went with its session.
    same("the number forgotten", stage.backend.forget(Timestamp(u64::MAX), 10).await?, 0)?;
    match stage.backend.accept(keyed()).await? {
        Accepted::Duplicate(known) => same("the prompt of the key", known.id, second),
        other => unexpected("the key of the new session", other),
    }
}

async fn nothing_left(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let kept = append(&stage, &owner, prompt, 1, &["1"]).await?;
    same("the last number", kept, Owned::Done(Some(1)))?;
    stage.complete(&owner, prompt, attempt).await?;
    while stage.backend.forget(Timestamp(u64::MAX), 10).await? > 0 {}
    same("the record", stage.backend.prompt_record(prompt).await?, None)?;
    same("the content", stage.backend.content(prompt).await?, None)?;
    same("the outcome", stage.outcome(prompt).await?, None)?;
    same("the messages", stage.backend.messages(prompt, 0, 10).await?, Vec::new())
}

async fn interrupted(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let by_user = PromptOutcome::Interrupted { by: InterruptedBy::User, result: None };
    let finished = stage.backend.finish(finish(&owner, prompt, attempt, by_user)).await?;
    same("the answer to a finish", finished, Owned::Done(true))?;
    match stage.backend.withdraw(prompt).await? {
        Withdrawn::TooLate(record) => same("the prompt", record.id, prompt),
        other => unexpected("the answer to a withdrawal", other),
    }
}

async fn other_attempt(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    stage.complete(&owner, prompt, attempt).await?;
    let other = finish(&owner, prompt, AttemptId::new(), completed());
    same("the finish of another attempt", stage.backend.finish(other).await?, Owned::Done(false))
}

async fn part_repeated(stage: Stage) -> Checked {
    let (owner, prompt, _) = stage.running(stage.node, "a").await?;
    for (messages, what) in
        [(&["1", "2", "3"][..], "the last number"), (&["1"], "the number after a part of it")]
    {
        let answer = append(&stage, &owner, prompt, 1, messages).await?;
        same(what, answer, Owned::Done(Some(3)))?;
    }
    let record = stage.backend.prompt_record(prompt).await?;
    same("the last number in the record", record.map(|record| record.last_seq), Some(3))
}

async fn bound_over_all(stage: Stage) -> Checked {
    let (owner, prompt, _) = stage.running(stage.node, "a").await?;
    for seq in 1..=3 {
        let answer = append(&stage, &owner, prompt, seq, &["12345"]).await?;
        same("the last number", answer, Owned::Done(Some(seq)))?;
    }
    let kept = stage.backend.messages(prompt, 0, 10).await?;
    same("the kept messages", kept.len(), 1)?;
    let record = stage.backend.prompt_record(prompt).await?;
    same("the number of dropped messages", record.map(|record| record.dropped), Some(2))
}

async fn question_expiry(stage: Stage) -> Checked {
    let (owner, prompt, _) = stage.running(stage.node, "a").await?;
    let question = ask(&stage, &owner, prompt).await?;
    let deadline = stage.backend.question(question).await?.map(|question| question.deadline);
    same("the next expiry", stage.backend.next_expiry().await?, deadline)
}

async fn question_told(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let question = ask(&stage, &owner, prompt).await?;
    let mut changes = stage.backend.changes();
    stage.complete(&owner, prompt, attempt).await?;
    // The end of the turn is told, too.
    for _ in 0..2 {
        match changes.recv().await {
            Ok(Change::Decided(_, decided)) => return same("the question", decided, question),
            Ok(_) => {}
            Err(error) => return unexpected("no change was told", error),
        }
    }
    unexpected("the question was not told as decided", question)
}

async fn ask(stage: &Stage, owner: &crate::Ownership, prompt: crate::PromptId) -> Checked<QuestionId> {
    let question = QuestionId::new();
    let ask =
        Ask { owner: owner.clone(), question, prompt, wait: LEASE, call: None, body: serde_json::json!({}) };
    let asked = stage.backend.ask(ask).await?.done().flatten();
    same("whether the question is kept", asked.is_some(), true)?;
    Ok(question)
}

/// Appends messages to a turn that may keep 8 bytes.
async fn append(
    stage: &Stage,
    owner: &crate::Ownership,
    prompt: crate::PromptId,
    first_seq: u64,
    messages: &[&str],
) -> Checked<Owned<Option<u64>>> {
    let messages = messages.iter().map(|&message| message.to_owned()).collect();
    let append = Append { owner: owner.clone(), prompt, first_seq, messages, bound: 8 };
    Ok(stage.backend.append(append).await?)
}
