//! Promises about turns that run.

use std::time::Duration;

use serde_json::json;

use super::stage::{
    Checked, LEASE, Stage, accept, accept_with_continuation, begin, completed, finish, promises, same,
    tenant, unexpected,
};
use crate::backend::Requests;
use crate::id::{AttemptId, PromptId};
use crate::limits::{Budget, Quota};
use crate::record::{InterruptedBy, PromptContent, PromptOrigin, PromptOutcome, Unsent};
use crate::request::{Accept, Accepted, Append, Begin, Change, Finish, Owned, Ownership, StoredText};

promises! {
    "a prompt begins once, and a repeated begin gives its content again" => begins_once,
    "one turn of a name runs at a time" => one_turn,
    "a turn that the CLI begins by itself runs beside a prompt, and ends alone" => cli_turn,
    "a turn that the CLI has begun by itself ends with its owner" => lost_cli_turn,
    "a turn that the CLI begins by itself without money for it is written down, and nothing is set aside" => poor_cli_turn,
    "a prompt that waited too long does not begin, and ends as expired" => expired,
    "a reminder does not begin before its moment" => not_due,
    "no prompt begins before the one that goes on with its continuation" => not_its_turn,
    "a turn ends once, and its outcome is kept" => ends_once,
    "a repeated request is recognised whatever its numbers are" => numbers,
    "what was accepted can begin, however deeply its JSON is nested" => nested,
    "messages are kept in order, and repeated ones are passed over" => messages,
    "messages with a gap before them are refused, and the missing number is told" => gap,
    "messages past the bound of a turn are counted and not kept" => bounded_messages,
    "money is reserved at the begin and settled at the end" => budget,
    "messages and outcomes are told to whoever listens" => told,
}

async fn begins_once(stage: Stage) -> Checked {
    let prompt = stage.prompt("a", "hello").await?;
    let owner = stage.own("a").await?;
    let (attempt, content) = stage.begin(&owner, prompt).await?;
    same("the content", content, json!("hello"))?;
    let again = stage.backend.begin(begin(&owner, prompt, attempt)).await?;
    same("the repeated answer", again, Owned::Done(Some(json!("hello"))))?;
    let other = stage.backend.begin(begin(&owner, prompt, AttemptId::new())).await?;
    same("another attempt at a prompt that runs", other, Owned::Done(None))?;
    let record = stage.backend.prompt_record(prompt).await?;
    same("the number of begins", record.map(|record| record.begins), Some(1))?;
    same("the sum of waiting prompts", stage.backend.queued().await?, 0)?;
    stage.complete(&owner, prompt, attempt).await?;
    let late = stage.backend.begin(begin(&owner, prompt, attempt)).await?;
    same("an attempt at a prompt that ended", late, Owned::Done(None))
}

async fn one_turn(stage: Stage) -> Checked {
    let (owner, first, attempt) = stage.running(stage.node, "a").await?;
    let second = stage.prompt("a", "second").await?;
    let busy = stage.backend.begin(begin(&owner, second, AttemptId::new())).await?;
    same("the answer meanwhile", busy, Owned::Done(None))?;
    let other = stage.prompt("b", "another name").await?;
    let wrong = stage.backend.begin(begin(&owner, other, AttemptId::new())).await?;
    same("the answer for a prompt of another name", wrong, Owned::Done(None))?;
    stage.complete(&owner, first, attempt).await?;
    stage.begin(&owner, second).await.map(drop)
}

async fn expired(stage: Stage) -> Checked {
    let prompt = stage.accepted(Accept { wait: Duration::ZERO, ..accept("a", "late") }).await?;
    let owner = stage.own("a").await?;
    for what in ["the begin", "another begin"] {
        let late = stage.backend.begin(begin(&owner, prompt, AttemptId::new())).await?;
        same(what, late, Owned::Done(None))?;
    }
    same(
        "the outcome",
        stage.outcome(prompt).await?,
        Some(PromptOutcome::Unsent { why: Unsent::Expired { cause: None } }),
    )?;
    same("the sum of waiting prompts", stage.backend.queued().await?, 0)
}

async fn not_due(stage: Stage) -> Checked {
    let later = stage.backend.now().after(LEASE);
    let reminder = stage.accepted(Accept { not_before: Some(later), ..accept("a", "later") }).await?;
    let past = stage.backend.now();
    let due = stage.accepted(Accept { not_before: Some(past), ..accept("a", "now") }).await?;
    let owner = stage.own("a").await?;
    let early = stage.backend.begin(begin(&owner, reminder, AttemptId::new())).await?;
    same("the begin of a reminder", early, Owned::Done(None))?;
    stage.begin(&owner, due).await.map(drop)
}

async fn not_its_turn(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let waits = stage.prompt("a", "waits").await?;
    let continues = stage.accepted(accept_with_continuation("a")).await?;
    let owner = stage.own_by(node, "a").await?;
    stage.begin(&owner, continues).await?;
    stage.kill(node).await?;
    let owner = stage.own("a").await?;
    let before = stage.backend.begin(begin(&owner, waits, AttemptId::new())).await?;
    same("the begin of another prompt", before, Owned::Done(None))?;
    let (attempt, _) = stage.begin(&owner, continues).await?;
    stage.complete(&owner, continues, attempt).await?;
    stage.begin(&owner, waits).await.map(drop)
}

async fn ends_once(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let stranger = finish(&owner, prompt, AttemptId::new(), completed());
    same(
        "the finish of an attempt that never began",
        stage.backend.finish(stranger).await?,
        Owned::Done(false),
    )?;
    stage.complete(&owner, prompt, attempt).await?;
    stage.complete(&owner, prompt, attempt).await?;
    let failed = PromptOutcome::Failed { kind: "overflow".to_owned(), message: String::new(), result: None };
    same(
        "a second outcome",
        stage.backend.finish(finish(&owner, prompt, attempt, failed)).await?,
        Owned::Done(false),
    )?;
    same("the outcome", stage.outcome(prompt).await?, Some(completed()))?;
    same(
        "the finish of an unknown prompt",
        stage.backend.finish(finish(&owner, PromptId::new(), attempt, completed())).await?,
        Owned::Done(false),
    )
}

async fn numbers(stage: Stage) -> Checked {
    // Among these are numbers that a fast parser of JSON reads in another last digit.
    let numbers: Vec<f64> = (1..2000_u32).map(|n| f64::from(n).sqrt() / 1e4).collect();
    let content = PromptContent { prompt: json!(numbers), continuation: None };
    let first = Accept { key: Some("k".to_owned()), content, ..accept("a", "") };
    let again = Accept { prompt: PromptId::new(), ..first.clone() };
    let prompt = stage.accepted(first).await?;
    match stage.backend.accept(again).await? {
        Accepted::Duplicate(known) => same("the prompt of the key", known.id, prompt)?,
        other => return unexpected("the same content", other),
    }
    let owner = stage.own("a").await?;
    let (attempt, _) = stage.begin(&owner, prompt).await?;
    let outcome = PromptOutcome::Completed { result: json!(numbers), transcript_lost: false };
    for what in ["the finish", "the repeated finish"] {
        let answer = stage.backend.finish(finish(&owner, prompt, attempt, outcome.clone())).await?;
        same(what, answer, Owned::Done(true))?;
    }
    Ok(())
}

async fn nested(stage: Stage) -> Checked {
    for depth in [100, 126, 127, 128, 200] {
        let prompt = (0..depth).fold(json!(1), |inner, _| json!([inner]));
        let content = PromptContent { prompt: prompt.clone(), continuation: None };
        let to = format!("nested {depth}");
        let accept = Accept { content, ..accept(&to, "") };
        // A backend may refuse it.
        let Ok(answer) = stage.backend.accept(accept.clone()).await else { continue };
        same("the answer", matches!(answer, Accepted::New(_)), true)?;
        let owner = stage.own(&to).await?;
        let (_, content) = stage.begin(&owner, accept.prompt).await?;
        same("the content", content, prompt)?;
    }
    Ok(())
}

async fn cli_turn(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let (own, of_own) = (PromptId::new(), AttemptId::new());
    for what in ["the answer", "the repeated answer"] {
        same(what, stage.backend.begin_cli_turn(begin(&owner, own, of_own)).await?, Owned::Done(true))?;
    }
    let record = stage.backend.prompt_record(own).await?;
    same("its origin", record.map(|record| record.origin), Some(PromptOrigin::Cli))?;
    let turns = async || {
        let record = stage.backend.name_record(owner.name.clone()).await?;
        let turns: Checked<_> = Ok(record.map(|record| (record.cli_turn, record.running)));
        turns
    };
    same("the turns", turns().await?, Some((Some(own), Some(prompt))))?;
    let kept = stage.backend.append(append(&owner, own, 1, &["1"], 1 << 20)).await?;
    same("the number of its message", kept, Owned::Done(Some(1)))?;
    let ended = stage.backend.finish(finish(&owner, own, of_own, completed())).await?;
    same("its end", ended, Owned::Done(true))?;
    same("the turns after its end", turns().await?, Some((None, Some(prompt))))?;
    stage.complete(&owner, prompt, attempt).await?;
    same("the turns after both", turns().await?, Some((None, None)))
}

async fn lost_cli_turn(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    let owner = stage.own("a").await?;
    let own = PromptId::new();
    same(
        "the answer",
        stage.backend.begin_cli_turn(begin(&owner, own, AttemptId::new())).await?,
        Owned::Done(true),
    )?;
    same("the release", stage.backend.release(owner.clone()).await?, Owned::Done(true))?;
    let by = InterruptedBy::OwnerLost { term: owner.term };
    same(
        "its outcome",
        stage.backend.outcome(own).await?,
        Some(PromptOutcome::Interrupted { by, result: None }),
    )
}

async fn poor_cli_turn(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    let owner = stage.own("a").await?;
    let budget = Budget { amount: 100, period: Duration::from_secs(3600), reserve: 60 };
    let begin = |prompt, attempt| Begin {
        quota: Quota { budget: Some(budget), ..Quota::default() },
        ..begin(&owner, prompt, attempt)
    };
    let (first, attempt) = (PromptId::new(), AttemptId::new());
    same("the first", stage.backend.begin_cli_turn(begin(first, attempt)).await?, Owned::Done(true))?;
    let cost = Finish { cost: Some(70), ..finish(&owner, first, attempt, completed()) };
    same("its end", stage.backend.finish(cost).await?, Owned::Done(true))?;
    let second = PromptId::new();
    let poor = stage.backend.begin_cli_turn(begin(second, AttemptId::new())).await?;
    same("the second", poor, Owned::Done(false))?;
    let account = stage.backend.tenant(owner.name.tenant().clone()).await?;
    same("the money", (account.spent, account.reserved), (70, 0))
}

async fn messages(stage: Stage) -> Checked {
    let (owner, prompt, _) = stage.running(stage.node, "a").await?;
    let append = |first_seq, messages: &[&str]| append(&owner, prompt, first_seq, messages, 1 << 20);
    same("the last number", stage.backend.append(append(1, &["1", "2"])).await?, Owned::Done(Some(2)))?;
    same("the repeated answer", stage.backend.append(append(1, &["1", "2"])).await?, Owned::Done(Some(2)))?;
    same(
        "the number after an overlap",
        stage.backend.append(append(2, &["2", "3"])).await?,
        Owned::Done(Some(3)),
    )?;
    let message = |seq: u64| StoredText { number: seq, json: seq.to_string() };
    let all = stage.backend.messages(prompt, 0, 10).await?;
    same("all messages", all, vec![message(1), message(2), message(3)])?;
    same("messages after the first", stage.backend.messages(prompt, 1, 1).await?, vec![message(2)])?;
    same("messages after the last", stage.backend.messages(prompt, 3, 10).await?, Vec::new())
}

async fn gap(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let append = async |first| stage.backend.append(append(&owner, prompt, first, &["1"], 100)).await;
    for what in ["messages that begin with the second", "the same messages"] {
        same(what, append(2).await?, Owned::Done(None))?;
    }
    same("the first message", append(1).await?, Owned::Done(Some(1)))?;
    same("a later gap", append(3).await?, Owned::Done(None))?;
    same("the kept messages", stage.backend.messages(prompt, 0, 10).await?.len(), 1)?;
    stage.complete(&owner, prompt, attempt).await?;
    same("a message after the end", append(2).await?, Owned::Done(None))?;
    same("the kept messages after the end", stage.backend.messages(prompt, 0, 10).await?.len(), 1)
}

async fn bounded_messages(stage: Stage) -> Checked {
    let (owner, prompt, _) = stage.running(stage.node, "a").await?;
    let texts = ["\"four\"", "\"a long message\"", "1"];
    let answer = stage.backend.append(append(&owner, prompt, 1, &texts, 8)).await?;
    same("the last number", answer, Owned::Done(Some(3)))?;
    let kept = stage.backend.messages(prompt, 0, 10).await?;
    same("the kept messages", kept, vec![StoredText { number: 1, json: texts[0].to_owned() }])?;
    let record = stage.backend.prompt_record(prompt).await?;
    same("the number of dropped messages", record.map(|record| record.dropped), Some(2))
}

async fn budget(stage: Stage) -> Checked {
    let reserving = |reserve| {
        let period = Duration::from_secs(40 * 365 * 24 * 3600);
        Quota { budget: Some(Budget { amount: 100, period, reserve }), ..Quota::default() }
    };
    let begin = |owner: &Ownership, prompt, attempt, reserve| Begin {
        quota: reserving(reserve),
        ..begin(owner, prompt, attempt)
    };
    let prompts = [stage.prompt("a", "1").await?, stage.prompt("b", "2").await?];
    let owners = [stage.own("a").await?, stage.own("b").await?];
    let attempt = AttemptId::new();
    let begun = stage.backend.begin(begin(&owners[0], prompts[0], attempt, 60)).await?;
    same("the first begin", begun, Owned::Done(Some(json!("1"))))?;
    let over = stage.backend.begin(begin(&owners[1], prompts[1], attempt, 60)).await?;
    same("a begin beyond the budget", over, Owned::Done(None))?;
    let finish = Finish { cost: Some(10), ..finish(&owners[0], prompts[0], attempt, completed()) };
    same("the finish", stage.backend.finish(finish.clone()).await?, Owned::Done(true))?;
    same("the repeated finish", stage.backend.finish(finish).await?, Owned::Done(true))?;
    let account = stage.backend.tenant(tenant("acme")).await?;
    same("money spent and reserved", (account.spent, account.reserved), (10, 0))?;
    let begun = stage.backend.begin(begin(&owners[1], prompts[1], attempt, 60)).await?;
    same("the begin after that", begun, Owned::Done(Some(json!("2"))))
}

async fn told(stage: Stage) -> Checked {
    let accept = Accept { ..accept("a", "hello") };
    let prompt = stage.accepted(accept).await?;
    let owner = stage.own("a").await?;
    let (attempt, _) = stage.begin(&owner, prompt).await?;
    let mut changes = stage.backend.changes();
    same(
        "the last number",
        stage.backend.append(append(&owner, prompt, 1, &["1"], 100)).await?,
        Owned::Done(Some(1)),
    )?;
    stage.complete(&owner, prompt, attempt).await?;
    for expected in [Change::Messages(prompt), Change::Ended(prompt)] {
        match changes.recv().await {
            Ok(change) => same("the change", change, expected)?,
            Err(error) => return unexpected("no change was told", error),
        }
    }
    Ok(())
}

fn append(owner: &Ownership, prompt: PromptId, first_seq: u64, messages: &[&str], bound: u64) -> Append {
    let messages = messages.iter().map(|&message| message.to_owned()).collect();
    Append { owner: owner.clone(), prompt, first_seq, messages, bound }
}
