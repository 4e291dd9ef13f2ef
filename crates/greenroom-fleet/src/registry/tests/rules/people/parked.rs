//! Promises about turns that are parked.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::backend::Requests;
use crate::id::{AttemptId, NodeId, PromptId, QuestionId, Timestamp};
use crate::record::{Decision, InterruptedBy, PromptOutcome, PromptState};
use crate::registry::tests::counted;
use crate::registry::tests::rules::stage::{
    Checked, LEASE, Stage, accept_with_continuation, begin, name, promises, same, unexpected,
};
use crate::request::{
    ActivationFailed, Answered, Ask, Claimed, Departure, HostMove, Marked, Owned, Ownership, Park,
    QuestionsOf, Withdrawn,
};

promises! {
    "a parked turn holds its name, and goes on first when its question is answered" => goes_on,
    "a turn is parked once, and a repeated park finds it" => repeated,
    "a parked turn whose question is decided meanwhile goes on at once" => decided_before,
    "a parked turn goes on when its question expires" => expires,
    "of many answers at once to a parked question one decides, and the turn goes on once" => race,
    "only a turn with one open call is parked" => one_call,
    "a lost owner's turn is parked at its open call, and is no loss" => lost,
    "a lost owner's turn goes on with a decided call that no CLI has got" => lost_with_decision,
    "a lost owner's turn whose CLI got the decision ends as interrupted" => lost_after_hand_over,
    "a call is handed to the CLI of one owner" => handed_over,
    "a call that the session took back is not resumed" => taken_back,
    "an owner that gives its name back parks its turn" => given_back,
    "a parked turn that is withdrawn or deleted ends as interrupted" => ended,
    "a parked turn costs what it has used so far, and its tenant counts it" => costs,
    "a name with a parked turn is not claimed, does not depart, and may change its host" => at_rest,
    "a parked question stays in the lists of open questions" => listed,
}

async fn goes_on(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let behind = stage.prompt("a", "behind").await?;
    let question = ask(&stage, &owner, prompt).await?;
    park(&stage, &owner, prompt, attempt).await?;
    same("the answer to a release", stage.backend.release(owner).await?, Owned::Done(true))?;
    let record = stage.backend.name_record(name("a")).await?.unwrap();
    same("the turns of the name", (record.running, record.parked, record.queued), (None, Some(prompt), 1))?;
    same("what may begin", stage.backend.next_prompt(name("a")).await?, None)?;
    answer(&stage, question, "yes").await?;
    let next = stage.backend.next_prompt(name("a")).await?.map(|next| next.id);
    same("what may begin after the answer", next, Some(prompt))?;
    let owner = stage.own("a").await?;
    let early = stage.backend.begin(begin(&owner, behind, AttemptId::new())).await?;
    same("the begin of a prompt behind it", early, Owned::Done(None))?;
    let (attempt, content) = stage.begin(&owner, prompt).await?;
    same("what is sent", content, Value::Null)?;
    hand_over(&stage, &owner, question, true).await?;
    stage.complete(&owner, prompt, attempt).await?;
    let next = stage.backend.next_prompt(name("a")).await?.map(|next| next.id);
    same("what may begin after the turn", next, Some(behind))
}

async fn repeated(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let question = ask(&stage, &owner, prompt).await?;
    for _ in 0..2 {
        park(&stage, &owner, prompt, attempt).await?;
    }
    let other = stage.backend.park(parked(&owner, prompt, AttemptId::new())).await?;
    same("the answer to another attempt", other, Owned::Done(false))?;
    answer(&stage, question, "yes").await?;
    park(&stage, &owner, prompt, attempt).await?;
    let state = stage.backend.prompt_record(prompt).await?.map(|record| record.state);
    same("the state", state, Some(PromptState::Queued))
}

async fn decided_before(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let question = ask(&stage, &owner, prompt).await?;
    answer(&stage, question, "yes").await?;
    park(&stage, &owner, prompt, attempt).await?;
    let record = stage.backend.name_record(name("a")).await?.unwrap();
    same("the turns of the name", (record.parked, record.continues), (None, Some(prompt)))
}

async fn expires(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let question = ask_for(&stage, &owner, prompt, Duration::ZERO).await?;
    park(&stage, &owner, prompt, attempt).await?;
    let expired = stage.backend.expire_questions(10).await?;
    same("expired questions", expired.into_iter().map(|record| record.id).collect(), vec![question])?;
    let record = stage.backend.question(question).await?.unwrap();
    match record.decision {
        Some(Decision::Expired { .. }) => {}
        other => return unexpected("the decision", other),
    }
    let next = stage.backend.next_prompt(name("a")).await?.map(|next| next.id);
    same("what may begin", next, Some(prompt))
}

async fn race(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let question = ask(&stage, &owner, prompt).await?;
    let (parks, answers) = futures_util::join!(
        stage.backend.park(parked(&owner, prompt, attempt)),
        join_all((0..16).map(|answer| stage.backend.answer(question, AttemptId::new(), json!(answer)))),
    );
    same("the answer to a park", parks?, Owned::Done(true))?;
    let mut decided = 0;
    for answer in answers {
        match answer? {
            Answered::Decided(_) => decided += 1,
            Answered::TooLate(_) => {}
            Answered::Gone => return unexpected("an open question", question),
        }
    }
    same("the number of answers that decided", decided, 1)?;
    let record = stage.backend.name_record(name("a")).await?.unwrap();
    same("the turns", (record.parked, record.continues, record.queued), (None, Some(prompt), 1))
}

async fn one_call(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let refused = async |what| {
        let parked = stage.backend.park(parked(&owner, prompt, attempt)).await?;
        same(what, parked, Owned::Done(false))
    };
    refused("a turn without a question").await?;
    let holds = Ask { call: None, ..question(&owner, prompt, LEASE) };
    let holds_id = holds.question;
    let _: Owned<_> = stage.backend.ask(holds).await?;
    refused("a turn with a question that no CLI asks again").await?;
    let first = ask(&stage, &owner, prompt).await?;
    let second = ask(&stage, &owner, prompt).await?;
    refused("a turn with two calls").await?;
    answer(&stage, first, "yes").await?;
    hand_over(&stage, &owner, first, true).await?;
    park(&stage, &owner, prompt, attempt).await?;
    let open = stage.backend.open_questions(QuestionsOf::All, 10).await?;
    same("open questions", open.into_iter().map(|open| open.id).collect(), vec![second])?;
    same("the question that ended with the CLI", stage.backend.question(holds_id).await?, None)
}

async fn lost(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let (owner, prompt) = continuing(&stage, node, "a").await?;
    let question = ask(&stage, &owner, prompt).await?;
    stage.kill(node).await?;
    same("the claim of the lost name", stage.claim_by(stage.node, "a").await?, Claimed::Parked)?;
    let record = stage.backend.name_record(name("a")).await?.unwrap();
    same("the name", (record.parked, record.losses, record.continues), (Some(prompt), 0, None))?;
    same("the late hand-over", stage.backend.hand_over(owner, question).await?, Owned::Fenced)?;
    answer(&stage, question, "yes").await?;
    let owner = stage.own("a").await?;
    let (_, content) = stage.begin(&owner, prompt).await?;
    same("what is sent in place of the continuation", content, Value::Null)
}

async fn lost_with_decision(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let (owner, prompt, _) = stage.running(node, "a").await?;
    let question = ask(&stage, &owner, prompt).await?;
    answer(&stage, question, "yes").await?;
    stage.kill(node).await?;
    stage.backend.recover(10, 3).await?;
    let record = stage.backend.name_record(name("a")).await?.unwrap();
    same("the name", (record.continues, record.losses), (Some(prompt), 1))?;
    let owner = stage.own("a").await?;
    stage.begin(&owner, prompt).await?;
    hand_over(&stage, &owner, question, true).await
}

async fn lost_after_hand_over(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let (owner, prompt, _) = stage.running(node, "a").await?;
    let question = ask(&stage, &owner, prompt).await?;
    answer(&stage, question, "yes").await?;
    hand_over(&stage, &owner, question, true).await?;
    stage.kill(node).await?;
    stage.backend.recover(10, 3).await?;
    let lost = PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { term: owner.term }, result: None };
    same("the outcome", stage.outcome(prompt).await?, Some(lost))
}

async fn handed_over(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let question = ask(&stage, &owner, prompt).await?;
    hand_over(&stage, &owner, question, false).await?;
    park(&stage, &owner, prompt, attempt).await?;
    answer(&stage, question, "yes").await?;
    hand_over(&stage, &owner, question, false).await?;
    same("the answer to a release", stage.backend.release(owner.clone()).await?, Owned::Done(true))?;
    let next = stage.own("a").await?;
    hand_over(&stage, &next, question, false).await?;
    stage.begin(&next, prompt).await?;
    for _ in 0..2 {
        hand_over(&stage, &next, question, true).await?;
    }
    same("the hand-over to the first owner", stage.backend.hand_over(owner, question).await?, Owned::Fenced)
}

async fn taken_back(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let (owner, prompt, _) = stage.running(node, "a").await?;
    let question = ask(&stage, &owner, prompt).await?;
    match stage.backend.answer(question, AttemptId::new(), Value::Null).await? {
        Answered::Decided(_) => {}
        other => return unexpected("a question that is taken back", other),
    }
    stage.kill(node).await?;
    stage.backend.recover(10, 3).await?;
    match stage.outcome(prompt).await? {
        Some(PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { .. }, .. }) => Ok(()),
        other => unexpected("the outcome", other),
    }
}

async fn given_back(stage: Stage) -> Checked {
    for (to, fails) in [("a", false), ("b", true)] {
        let (owner, prompt, _) = stage.running(stage.node, to).await?;
        ask(&stage, &owner, prompt).await?;
        if fails {
            let why = "no".to_owned();
            let failed = ActivationFailed { owner, why, counted: counted(LEASE, 3) };
            same("a failure", stage.backend.activation_failed(failed).await?, Owned::Done(Some(1)))?;
        } else {
            same("a release", stage.backend.release(owner).await?, Owned::Done(false))?;
        }
        let parked = stage.backend.name_record(name(to)).await?.and_then(|record| record.parked);
        same("the parked turn", parked, Some(prompt))?;
    }
    Ok(())
}

async fn ended(stage: Stage) -> Checked {
    for to in ["a", "b"] {
        let (owner, prompt, attempt) = stage.running(stage.node, to).await?;
        let question = ask(&stage, &owner, prompt).await?;
        park(&stage, &owner, prompt, attempt).await?;
        let _: Owned<bool> = stage.backend.release(owner).await?;
        if to == "a" {
            for _ in 0..2 {
                same("the answer", stage.backend.withdraw(prompt).await?, Withdrawn::Interrupted)?;
            }
            let record = stage.backend.name_record(name(to)).await?.unwrap();
            same("the turns", (record.parked, record.continues, record.queued), (None, None, 0))?;
        } else {
            same("the answer", stage.backend.delete(name(to)).await?, Marked::Done)?;
        }
        let by_user = PromptOutcome::Interrupted { by: InterruptedBy::User, result: None };
        same("the outcome", stage.outcome(prompt).await?, Some(by_user))?;
        let late = stage.backend.answer(question, AttemptId::new(), json!("yes")).await?;
        same("a late answer", late, Answered::Gone)?;
        let tenant = stage.backend.tenant(name(to).tenant().clone()).await?;
        same("parked turns of the tenant", tenant.parked, 0)?;
    }
    same("open questions", stage.backend.open_questions(QuestionsOf::All, 10).await?, Vec::new())?;
    same("the next expiry", stage.backend.next_expiry().await?, None)
}

async fn costs(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let question = ask(&stage, &owner, prompt).await?;
    let usage = crate::Usage { cost: 7, input: 3, ..Default::default() };
    let parked = Park { cost: Some(7), usage: Some(usage), ..parked(&owner, prompt, attempt) };
    same("the answer to a park", stage.backend.park(parked).await?, Owned::Done(true))?;
    let record = stage.backend.prompt_record(prompt).await?.unwrap();
    same("the usage", (record.usage.cost, record.usage.input, record.usage.turns), (7, 3, 1))?;
    let of_tenant = async || stage.backend.tenant(name("a").tenant().clone()).await;
    same("parked turns", of_tenant().await?.parked, 1)?;
    answer(&stage, question, "yes").await?;
    same("parked turns after the answer", of_tenant().await?.parked, 0)
}

async fn at_rest(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    ask(&stage, &owner, prompt).await?;
    park(&stage, &owner, prompt, attempt).await?;
    let _: Owned<bool> = stage.backend.release(owner).await?;
    same("the claim", stage.claim_by(stage.node, "a").await?, Claimed::Parked)?;
    let departure = stage.backend.depart(name("a"), uuid::Uuid::new_v4()).await?;
    same("the departure", departure, Departure::NotAtRest)?;
    same("another host", stage.backend.move_to_host(name("a"), "here".to_owned()).await?, HostMove::NotBound)
}

async fn listed(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let question = ask(&stage, &owner, prompt).await?;
    park(&stage, &owner, prompt, attempt).await?;
    for of in
        [QuestionsOf::All, QuestionsOf::Tenant(name("a").tenant().clone()), QuestionsOf::Session(name("a"))]
    {
        let open = stage.backend.open_questions(of, 10).await?;
        let seen = open.into_iter().map(|open| (open.id, open.parked, open.call)).collect();
        same("open questions", seen, vec![(question, true, Some("call".to_owned()))])?;
    }
    same("prompts that are forgotten", stage.backend.forget(Timestamp(u64::MAX), 10).await?, 0)
}

fn question(owner: &Ownership, prompt: PromptId, wait: Duration) -> Ask {
    let (owner, question, call) = (owner.clone(), QuestionId::new(), Some("call".to_owned()));
    Ask { owner, question, prompt, wait, call, body: json!({ "kind": "permission" }) }
}

async fn ask(stage: &Stage, owner: &Ownership, prompt: PromptId) -> Checked<QuestionId> {
    ask_for(stage, owner, prompt, LEASE).await
}

async fn ask_for(stage: &Stage, owner: &Ownership, prompt: PromptId, wait: Duration) -> Checked<QuestionId> {
    match stage.backend.ask(question(owner, prompt, wait)).await? {
        Owned::Done(Some(question)) => Ok(question.id),
        other => unexpected("a question of a turn that runs", other),
    }
}

fn parked(owner: &Ownership, prompt: PromptId, attempt: AttemptId) -> Park {
    Park { owner: owner.clone(), prompt, attempt, cost: Some(0), usage: None }
}

async fn park(stage: &Stage, owner: &Ownership, prompt: PromptId, attempt: AttemptId) -> Checked {
    let answer = stage.backend.park(parked(owner, prompt, attempt)).await?;
    same("the answer to a park", answer, Owned::Done(true))
}

async fn answer(stage: &Stage, question: QuestionId, answer: &str) -> Checked {
    match stage.backend.answer(question, AttemptId::new(), json!(answer)).await? {
        Answered::Decided(_) => Ok(()),
        other => unexpected("an open question is not decided", other),
    }
}

async fn hand_over(stage: &Stage, owner: &Ownership, question: QuestionId, is_done: bool) -> Checked {
    let answer = stage.backend.hand_over(owner.clone(), question).await?;
    same("the answer to a hand-over", answer, Owned::Done(is_done))
}

/// A name that is owned, with a turn that runs and has a continuation.
async fn continuing(stage: &Stage, node: NodeId, to: &str) -> Checked<(Ownership, PromptId)> {
    let prompt = stage.accepted(accept_with_continuation(to)).await?;
    let owner = stage.own_by(node, to).await?;
    stage.begin(&owner, prompt).await?;
    Ok((owner, prompt))
}
