//! Promises about questions to people.

pub(super) mod parked;

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use super::stage::{Checked, LEASE, Stage, invalid, promises, same, unexpected};
use crate::backend::Requests;
use crate::id::{AttemptId, PromptId, QuestionId};
use crate::record::Decision;
use crate::request::{Answered, Ask, Change, Owned, Ownership, QuestionsOf};

promises! {
    "of many answers at once one decides a question" => race,
    "an answer that is repeated with its attempt learns that it decided, also after the turn" => repeated,
    "a question whose deadline has passed is denied, and no answer changes it" => deadline,
    "a question ends with its turn" => ends_with_turn,
    "a question is asked only while its turn runs, and once" => asked,
    "the id of a known question is refused for another question" => id_reused,
    "questions are told to whoever listens" => told,
}

async fn race(stage: Stage) -> Checked {
    let (owner, prompt, _) = stage.running(stage.node, "a").await?;
    let question = put(&stage, &owner, prompt, LEASE).await?;
    let answers =
        join_all((0..16).map(|answer| stage.backend.answer(question, AttemptId::new(), json!(answer)))).await;
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
    same("open questions", stage.backend.open_questions(QuestionsOf::All, 10).await?, Vec::new())
}

async fn repeated(stage: Stage) -> Checked {
    let (owner, prompt, turn) = stage.running(stage.node, "a").await?;
    let question = put(&stage, &owner, prompt, LEASE).await?;
    let (first, second) = (AttemptId::new(), AttemptId::new());
    for what in ["while the turn runs", "after the turn"] {
        for _ in 0..2 {
            match stage.backend.answer(question, first, json!("yes")).await? {
                Answered::Decided(record) => match record.decision {
                    Some(Decision::Answered { answer, .. }) => same("the answer", answer, json!("yes"))?,
                    other => return unexpected("the decision", other),
                },
                other => return unexpected(what, other),
            }
        }
        match stage.backend.answer(question, second, json!("no")).await? {
            Answered::TooLate(_) => {}
            other => return unexpected(what, other),
        }
        let ended = stage.backend.outcome(prompt).await?.is_some();
        if !ended {
            stage.complete(&owner, prompt, turn).await?;
        }
    }
    same("the number forgotten", stage.backend.forget(crate::Timestamp(u64::MAX), 10).await?, 1)?;
    let late = stage.backend.answer(question, first, json!("yes")).await?;
    same("the answer after the prompt is forgotten", late, Answered::Gone)
}

async fn deadline(stage: Stage) -> Checked {
    let (owner, prompt, _) = stage.running(stage.node, "a").await?;
    let late = put(&stage, &owner, prompt, Duration::ZERO).await?;
    let open = put(&stage, &owner, prompt, LEASE).await?;
    match stage.backend.answer(late, AttemptId::new(), json!("yes")).await? {
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
    let left = stage.backend.open_questions(QuestionsOf::All, 10).await?;
    same("open questions", left.into_iter().map(|record| record.id).collect(), vec![open])
}

async fn ends_with_turn(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let question = put(&stage, &owner, prompt, LEASE).await?;
    stage.complete(&owner, prompt, attempt).await?;
    same(
        "an answer after the turn",
        stage.backend.answer(question, AttemptId::new(), json!("yes")).await?,
        Answered::Gone,
    )?;
    same("open questions", stage.backend.open_questions(QuestionsOf::All, 10).await?, Vec::new())?;
    same("the next expiry", stage.backend.next_expiry().await?, None)
}

async fn asked(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let ask = ask(&owner, prompt, LEASE);
    let first = stage.backend.ask(ask.clone()).await?;
    same("the repeated answer", stage.backend.ask(ask).await?, first)?;
    same("open questions", stage.backend.open_questions(QuestionsOf::All, 10).await?.len(), 1)?;
    stage.complete(&owner, prompt, attempt).await?;
    let late = stage.backend.ask(self::ask(&owner, prompt, LEASE)).await?;
    same("a question of a turn that ended", late, Owned::Done(None))
}

async fn id_reused(stage: Stage) -> Checked {
    let (owner, prompt, _) = stage.running(stage.node, "a").await?;
    let (other, other_prompt, _) = stage.running(stage.node, "b").await?;
    let first = ask(&owner, prompt, LEASE);
    let _: Owned<_> = stage.backend.ask(first.clone()).await?;
    let body = Ask { body: json!("another"), ..first.clone() };
    invalid("another question with a known id", stage.backend.ask(body).await)?;
    let elsewhere = Ask { owner: other, prompt: other_prompt, ..first };
    invalid("a question of another session with a known id", stage.backend.ask(elsewhere).await)
}

async fn told(stage: Stage) -> Checked {
    let (owner, prompt, _) = stage.running(stage.node, "a").await?;
    let mut changes = stage.backend.changes();
    let question = put(&stage, &owner, prompt, LEASE).await?;
    let _: Answered = stage.backend.answer(question, AttemptId::new(), json!("yes")).await?;
    for expected in [Change::Asked(prompt, question), Change::Decided(prompt, question)] {
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
        call: None,
        body: json!({ "kind": "permission" }),
    }
}

async fn put(stage: &Stage, owner: &Ownership, prompt: PromptId, wait: Duration) -> Checked<QuestionId> {
    match stage.backend.ask(ask(owner, prompt, wait)).await? {
        Owned::Done(Some(question)) => Ok(question.id),
        other => unexpected("a question of a turn that runs", other),
    }
}
