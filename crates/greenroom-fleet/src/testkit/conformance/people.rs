//! Promises about questions to people.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use super::stage::{Checked, LEASE, Stage, promises, same, unexpected};
use crate::id::{PromptId, QuestionId};
use crate::record::Decision;
use crate::request::{Answered, Ask, Change, Owned, Ownership};

promises! {
    "of many answers at once one decides a question" => race,
    "a question whose deadline has passed is denied, and no answer changes it" => deadline,
    "a question ends with its turn" => ends_with_turn,
    "a question is asked only while its turn runs, and once" => asked,
    "questions are told to whoever listens" => told,
}

async fn race(stage: Stage) -> Checked {
    let (owner, prompt, _) = stage.running(stage.node, "a").await?;
    let question = put(&stage, &owner, prompt, LEASE).await?;
    let answers = join_all((0..16).map(|answer| stage.backend.answer(question, json!(answer)))).await;
    let mut decided = Vec::new();
    for answer in answers {
        match answer? {
            Answered::Decided(record) => decided.push(record.decision),
            Answered::TooLate(_) => {}
            Answered::Gone => return unexpected("an open question", question),
        }
    }
    same("the number of answers that decided", decided.len(), 1)?;
    let kept = stage.backend.question(question).await?.and_then(|record| record.decision);
    same("the decision", Some(kept), decided.pop())?;
    same("open questions", stage.backend.open_questions(10).await?, Vec::new())
}

async fn deadline(stage: Stage) -> Checked {
    let (owner, prompt, _) = stage.running(stage.node, "a").await?;
    let late = put(&stage, &owner, prompt, Duration::ZERO).await?;
    let open = put(&stage, &owner, prompt, LEASE).await?;
    match stage.backend.answer(late, json!("yes")).await? {
        Answered::TooLate(record) => match record.decision {
            Some(Decision::Expired { .. }) => {}
            other => return unexpected("the decision after the deadline", other),
        },
        other => return unexpected("an answer after the deadline", other),
    }
    let noticed = put(&stage, &owner, prompt, Duration::ZERO).await?;
    let expired = stage.backend.expire_questions(10).await?;
    same("expired questions", expired.into_iter().map(|record| record.id).collect(), vec![noticed])?;
    same("questions that expire after that", stage.backend.expire_questions(10).await?, Vec::new())?;
    let left = stage.backend.open_questions(10).await?;
    same("open questions", left.into_iter().map(|record| record.id).collect(), vec![open])
}

async fn ends_with_turn(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let question = put(&stage, &owner, prompt, LEASE).await?;
    stage.complete(&owner, prompt, attempt).await?;
    same("an answer after the turn", stage.backend.answer(question, json!("yes")).await?, Answered::Gone)?;
    same("open questions", stage.backend.open_questions(10).await?, Vec::new())?;
    same("the next expiry", stage.backend.next_expiry().await?, None)
}

async fn asked(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let ask = ask(&owner, prompt, LEASE);
    let first = stage.backend.ask(ask.clone()).await?;
    same("the repeated answer", stage.backend.ask(ask).await?, first)?;
    same("open questions", stage.backend.open_questions(10).await?.len(), 1)?;
    stage.complete(&owner, prompt, attempt).await?;
    let late = stage.backend.ask(self::ask(&owner, prompt, LEASE)).await?;
    same("a question of a turn that ended", late, Owned::Done(None))
}

async fn told(stage: Stage) -> Checked {
    let (owner, prompt, _) = stage.running(stage.node, "a").await?;
    let mut changes = stage.backend.changes();
    let question = put(&stage, &owner, prompt, LEASE).await?;
    let _: Answered = stage.backend.answer(question, json!("yes")).await?;
    for expected in [Change::Asked(question), Change::Decided(question)] {
        match changes.recv().await {
            Ok(change) => same("the change", change, expected)?,
            Err(error) => return unexpected("no change was told", error),
        }
    }
    Ok(())
}

fn ask(owner: &Ownership, prompt: PromptId, wait: Duration) -> Ask {
    Ask {
        owner: owner.clone(),
        question: QuestionId::new(),
        prompt,
        wait,
        body: json!({ "kind": "permission" }),
    }
}

async fn put(stage: &Stage, owner: &Ownership, prompt: PromptId, wait: Duration) -> Checked<QuestionId> {
    match stage.backend.ask(ask(owner, prompt, wait)).await? {
        Owned::Done(Some(question)) => Ok(question.id),
        other => unexpected("a question of a turn that runs", other),
    }
}
