//! Promises about credentials that the API rejects.

use std::time::Duration;

use serde_json::json;

use super::stage::{
    Checked, Stage, accept, accept_with_continuation, begin, finish, name, promises, same, unexpected,
};
use crate::backend::Requests;
use crate::id::{AttemptId, PromptId, Timestamp};
use crate::record::{Cause, Credential, Hold, PromptOutcome, PromptState};
use crate::request::{
    Accept, Begin, Change, Owned, Ownership, Pause, Reject, UsedCredential, WaitingPage, Withdrawn,
};

promises! {
    "no prompt of a credential begins while it is held, and others do" => holds,
    "a rejected prompt waits again at its place, as if it had not begun" => again,
    "a rejected continuation waits again, and goes on first" => continuation,
    "a repeated rejection changes nothing" => repeated,
    "a prompt that is rejected after others were answered ends after three returns, and holds nothing" => alone,
    "a rejected turn that has run ends, and holds the credential as well" => ends,
    "the time of a hold does not count for the prompts that wait for it" => counts,
    "one prompt tries when the pause is over, and an answer ends the hold" => tries,
    "a try that ends without an answer, or with its owner, leaves the try to the next" => left,
    "pauses grow, and a reset is within a day and not in the past" => pauses,
    "a turn that began before a hold prolongs it only by a later reset" => late,
    "an operator ends a hold, and the next rejection begins anew" => released,
    "holds are listed, told, and forgotten when nobody tries them" => listed,
}

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// A pause that does not end within a check.
const LONG: Pause = Pause { first: Duration::from_secs(3600), longest: DAY, factor: 1.0 };
/// A pause that is over at once.
const NONE: Pause = Pause { first: Duration::ZERO, longest: Duration::ZERO, factor: 1.0 };

fn key(name: &str) -> Credential {
    Credential::Key { name: name.to_owned() }
}

fn failed() -> PromptOutcome {
    PromptOutcome::Failed { kind: "overloaded".to_owned(), message: "no".to_owned(), result: None }
}

fn with(owner: &Ownership, prompt: PromptId, attempt: AttemptId, name: &str) -> Begin {
    let credential = Some(UsedCredential { credential: key(name), may_try: true });
    Begin { credential, ..begin(owner, prompt, attempt) }
}

fn reject(owner: &Ownership, prompt: PromptId, attempt: AttemptId, pause: Pause) -> Reject {
    Reject {
        finish: finish(owner, prompt, attempt, failed()),
        credential: key("k"),
        cause: Cause::Overloaded,
        why: "no".to_owned(),
        resets_at: None,
        pause,
        again: true,
    }
}

async fn begins(stage: &Stage, owner: &Ownership, prompt: PromptId) -> Checked<Option<AttemptId>> {
    let attempt = AttemptId::new();
    match stage.backend.begin(with(owner, prompt, attempt, "k")).await? {
        Owned::Done(begun) => Ok(begun.map(|_| attempt)),
        fenced => unexpected("a begin", fenced),
    }
}

/// A prompt that has begun with the credential.
async fn begun(stage: &Stage, name: &str) -> Checked<(Ownership, PromptId, AttemptId)> {
    let prompt = stage.prompt(name, "run").await?;
    let owner = stage.own(name).await?;
    match begins(stage, &owner, prompt).await? {
        Some(attempt) => Ok((owner, prompt, attempt)),
        None => unexpected("a prompt does not begin", prompt),
    }
}

async fn rejected(stage: &Stage, reject: Reject) -> Checked {
    same("the answer to a rejection", stage.backend.reject(reject).await?, Owned::Done(true))
}

/// The names that can run on the node, of one name.
fn page(stage: &Stage, of: &str) -> WaitingPage {
    let of = Some(vec![name(of)]);
    WaitingPage { node: stage.node, of, without: Vec::new(), profiles: None, after: None, limit: 10 }
}

/// Ends the hold as an answer of the model to the try does.
async fn end_of_try(stage: &Stage) -> Checked<bool> {
    let Some(trying) = hold(stage).await?.trying else { return unexpected("nobody tries", key("k")) };
    Ok(stage.backend.end_try(key("k"), trying.attempt, true).await?)
}

async fn hold(stage: &Stage) -> Checked<Hold> {
    match stage.backend.hold(key("k")).await? {
        Some(hold) => Ok(hold),
        None => unexpected("it is not held", key("k")),
    }
}

async fn holds(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = begun(&stage, "a").await?;
    rejected(&stage, reject(&owner, prompt, attempt, LONG)).await?;
    same("the prompt again", begins(&stage, &owner, prompt).await?, None)?;
    let other = stage.prompt("b", "other").await?;
    let of_other = stage.own("b").await?;
    same("another name with the credential", begins(&stage, &of_other, other).await?, None)?;
    let begun = stage.backend.begin(with(&of_other, other, AttemptId::new(), "another")).await?;
    same("another credential", begun, Owned::Done(Some(json!("other"))))
}

async fn again(stage: Stage) -> Checked {
    let (owner, first, attempt) = begun(&stage, "a").await?;
    let second = stage.prompt("a", "second").await?;
    let before = stage.backend.prompt_record(first).await?;
    rejected(&stage, reject(&owner, first, attempt, NONE)).await?;
    same("the queue", stage.queue("a").await?, vec![first, second])?;
    let record = stage.backend.prompt_record(first).await?;
    let Some((record, before)) = record.zip(before) else { return unexpected("no record", first) };
    same("the state", (record.state, record.begins), (PromptState::Queued, 0))?;
    same("the place", (record.order, record.expires_at), (before.order, before.expires_at))?;
    same("prompts that wait", stage.backend.queued().await?, 2)?;
    let name = stage.backend.name_record(owner.name.clone()).await?;
    let why = name.and_then(|name| name.last_failure);
    same("the cause", why.as_deref(), Some("the API is overloaded: no"))?;
    let taken = stage.backend.withdraw(first).await?;
    same("a withdrawal", taken, Withdrawn::Unsent)?;
    // A reminder is ready at once, because its moment has passed.
    let soon = Some(stage.backend.now().after(SECOND / 100));
    let reminder = stage.accepted(Accept { not_before: soon, ..accept("r", "remind me") }).await?;
    tokio::time::sleep(SECOND / 20).await;
    let of_reminder = stage.own("r").await?;
    let waiting = async || stage.backend.waiting(page(&stage, "r")).await;
    same("the reminder", waiting().await?.prompts.len(), 1)?;
    if let Some(attempt) = begins(&stage, &of_reminder, reminder).await? {
        rejected(&stage, reject(&of_reminder, reminder, attempt, NONE)).await?;
        same("the reminder again", waiting().await?.prompts.len(), 1)?;
        tokio::time::sleep(SECOND / 100).await;
        same("its begin", begins(&stage, &of_reminder, reminder).await?.is_some(), true)?;
        same("the end of its try", end_of_try(&stage).await?, true)?;
    }
    // It expires like one that has not begun.
    let short = stage.accepted(Accept { wait: SECOND / 10, ..accept("c", "short") }).await?;
    let of_short = stage.own("c").await?;
    if let Some(attempt) = begins(&stage, &of_short, short).await? {
        rejected(&stage, reject(&of_short, short, attempt, LONG)).await?;
        tokio::time::sleep(SECOND / 5).await;
        same("expired prompts", stage.backend.expire_prompts(10).await?, 1)?;
    }
    Ok(())
}

async fn continuation(stage: Stage) -> Checked {
    let prompt = stage.accepted(accept_with_continuation("a")).await?;
    let owner = stage.own("a").await?;
    begins(&stage, &owner, prompt).await?;
    same("the release", stage.backend.release(owner).await?, Owned::Done(true))?;
    let owner = stage.own("a").await?;
    let Some(attempt) = begins(&stage, &owner, prompt).await? else {
        return unexpected("the continuation does not begin", prompt);
    };
    rejected(&stage, reject(&owner, prompt, attempt, NONE)).await?;
    let name = stage.backend.name_record(owner.name.clone()).await?;
    same("the first prompt", name.and_then(|name| name.continues), Some(prompt))?;
    tokio::time::sleep(SECOND / 100).await;
    let content = stage.backend.begin(with(&owner, prompt, AttemptId::new(), "k")).await?;
    same("what is sent", content, Owned::Done(Some(json!("go on"))))
}

async fn repeated(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = begun(&stage, "a").await?;
    let reject = reject(&owner, prompt, attempt, NONE);
    rejected(&stage, reject.clone()).await?;
    let first = (hold(&stage).await?, stage.backend.prompt_record(prompt).await?);
    rejected(&stage, reject.clone()).await?;
    same("the rows", (hold(&stage).await?, stage.backend.prompt_record(prompt).await?), first)?;
    tokio::time::sleep(SECOND / 100).await;
    begins(&stage, &owner, prompt).await?;
    // Its prompt has begun again, and this rejection is not about that turn.
    rejected(&stage, reject).await?;
    let record = stage.backend.prompt_record(prompt).await?;
    same("the number of begins", record.map(|record| record.begins), Some(1))
}

async fn alone(stage: Stage) -> Checked {
    let prompt = stage.prompt("a", "run").await?;
    let owner = stage.own("a").await?;
    for count in 1..=4 {
        let Some(attempt) = begins(&stage, &owner, prompt).await? else {
            return unexpected("no begin", count);
        };
        rejected(&stage, reject(&owner, prompt, attempt, NONE)).await?;
        if count == 1 {
            // A try says nothing about the prompt alone.
            tokio::time::sleep(SECOND / 100).await;
            let Some(attempt) = begins(&stage, &owner, prompt).await? else {
                return unexpected("no try", count);
            };
            rejected(&stage, reject(&owner, prompt, attempt, NONE)).await?;
        }
        let is_held = stage.backend.release_hold(key("k")).await?.is_some();
        same("whether it is held", is_held, count < 4)?;
        same("whether it has ended", stage.outcome(prompt).await?.is_some(), count == 4)?;
    }
    same("the outcome", stage.outcome(prompt).await?, Some(failed()))
}

async fn ends(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = begun(&stage, "a").await?;
    let reject = Reject { again: false, ..reject(&owner, prompt, attempt, LONG) };
    rejected(&stage, reject.clone()).await?;
    rejected(&stage, reject).await?;
    same("the outcome", stage.outcome(prompt).await?, Some(failed()))?;
    same("the number of tries", hold(&stage).await?.tries, 1)
}

async fn counts(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = begun(&stage, "a").await?;
    rejected(&stage, reject(&owner, prompt, attempt, LONG)).await?;
    let (until, wait) = (hold(&stage).await?.until, SECOND / 10);
    let waits = stage.accepted(Accept { wait, ..accept("b", "waits") }).await?;
    let unknown = stage.accepted(Accept { wait, ..accept("c", "unknown") }).await?;
    stage.backend.held_back(name("b"), Some(key("k")), "no".to_owned()).await?;
    let begins_late = stage.accepted(Accept { wait, ..accept("d", "late") }).await?;
    let of_late = stage.own("d").await?;
    tokio::time::sleep(SECOND / 5).await;
    same("the late begin", begins(&stage, &of_late, begins_late).await?, None)?;
    same("prompts of which two are to be looked at", stage.backend.expire_prompts(10).await?, 2)?;
    same("whether nobody's has expired", stage.outcome(unknown).await?.is_some(), true)?;
    for prompt in [waits, begins_late] {
        let record = stage.backend.prompt_record(prompt).await?;
        let moved = record.map(|record| (record.state, record.expires_at));
        same("the expiry", moved, Some((PromptState::Queued, until.after(wait))))?;
    }
    same("prompts after that", stage.backend.expire_prompts(10).await?, 0)
}

async fn tries(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = begun(&stage, "a").await?;
    rejected(&stage, reject(&owner, prompt, attempt, NONE)).await?;
    tokio::time::sleep(SECOND / 100).await;
    let unaware = Some(UsedCredential { credential: key("k"), may_try: false });
    let begin = Begin { credential: unaware, ..with(&owner, prompt, AttemptId::new(), "k") };
    let refused = stage.backend.begin(begin).await?;
    same("a begin of a node that does not know of the hold", refused, Owned::Done(None))?;
    let Some(attempt) = begins(&stage, &owner, prompt).await? else { return unexpected("no try", prompt) };
    same("the try", hold(&stage).await?.trying.map(|trying| trying.attempt), Some(attempt))?;
    let other = stage.prompt("b", "other").await?;
    let of_other = stage.own("b").await?;
    same("another prompt meanwhile", begins(&stage, &of_other, other).await?, None)?;
    same("the end of another try", stage.backend.end_try(key("k"), AttemptId::new(), true).await?, false)?;
    same("the answer", stage.backend.end_try(key("k"), attempt, true).await?, true)?;
    same("the hold", stage.backend.hold(key("k")).await?, None)?;
    same("the repeated end", stage.backend.end_try(key("k"), attempt, true).await?, false)?;
    same("another prompt then", begins(&stage, &of_other, other).await?.is_some(), true)
}

async fn left(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = begun(&stage, "a").await?;
    rejected(&stage, reject(&owner, prompt, attempt, NONE)).await?;
    tokio::time::sleep(SECOND / 100).await;
    let Some(attempt) = begins(&stage, &owner, prompt).await? else { return unexpected("no try", prompt) };
    same("the end", stage.backend.end_try(key("k"), attempt, false).await?, true)?;
    same("the try", hold(&stage).await?.trying, None)?;
    let node = stage.short_lived_node().await?;
    let lost = stage.prompt("lost", "lost").await?;
    let of_lost = stage.own_by(node, "lost").await?;
    same("the next one tries", begins(&stage, &of_lost, lost).await?.is_some(), true)?;
    let other = stage.prompt("b", "other").await?;
    let of_other = stage.own("b").await?;
    same("another prompt meanwhile", begins(&stage, &of_other, other).await?, None)?;
    stage.kill(node).await?;
    stage.backend.recover(10, 3).await?;
    same("another prompt then", begins(&stage, &of_other, other).await?.is_some(), true)
}

async fn pauses(stage: Stage) -> Checked {
    let until = async |pause, resets_at| -> Checked<Duration> {
        let prompt = stage.prompt("a", "run").await?;
        let owner = stage.own("a").await?;
        let Some(attempt) = begins(&stage, &owner, prompt).await? else {
            return unexpected("no begin", prompt);
        };
        let now = stage.backend.now();
        rejected(&stage, Reject { resets_at, again: false, ..reject(&owner, prompt, attempt, pause) })
            .await?;
        same("the release", stage.backend.release(owner).await?, Owned::Done(false))?;
        Ok(hold(&stage).await?.until.since(now))
    };
    let pause = Pause { first: SECOND / 100, longest: SECOND / 10, factor: 1.0 };
    for millis in [10, 20, 40, 80, 100, 100] {
        let least = Duration::from_millis(millis);
        let took = until(pause, None).await?;
        same("the pause", (least..=least + SECOND).contains(&took), true)?;
        // Until the pause is over.
        tokio::time::sleep(took).await;
    }
    let past = Timestamp(stage.backend.now().0 - 1000);
    same("after a past reset", until(pause, Some(past)).await? < SECOND * 2, true)?;
    tokio::time::sleep(SECOND / 5).await;
    let far = stage.backend.now().after(DAY * 40);
    let took = until(pause, Some(far)).await?;
    same("before a far reset", (DAY..=DAY + SECOND * 30).contains(&took), true)?;
    same("the reset", hold(&stage).await?.resets_at, Some(far))
}

async fn late(stage: Stage) -> Checked {
    let mut changes = stage.backend.changes();
    let first = begun(&stage, "a").await?;
    let second = begun(&stage, "b").await?;
    let third = begun(&stage, "c").await?;
    rejected(&stage, reject(&first.0, first.1, first.2, LONG)).await?;
    let before = hold(&stage).await?;
    rejected(&stage, reject(&second.0, second.1, second.2, NONE)).await?;
    same("the hold", hold(&stage).await?, before.clone())?;
    let later = before.until.after(SECOND * 3600);
    let limit = Reject {
        cause: Cause::RateLimited,
        resets_at: Some(later),
        ..reject(&third.0, third.1, third.2, NONE)
    };
    rejected(&stage, limit).await?;
    let hold = hold(&stage).await?;
    same("the later reset", (hold.cause, hold.until, hold.tries), (Cause::RateLimited, later, 1))?;
    let mut told = 0;
    while let Ok(change) = changes.try_recv() {
        told += u32::from(matches!(change, Change::Held(_)));
    }
    same("the changes that are told", told, 2)
}

async fn released(stage: Stage) -> Checked {
    let (owner, prompt, attempt) = begun(&stage, "a").await?;
    rejected(&stage, reject(&owner, prompt, attempt, LONG)).await?;
    let held = hold(&stage).await?;
    same("the release", stage.backend.release_hold(key("k")).await?, Some(held))?;
    same("the repeated release", stage.backend.release_hold(key("k")).await?, None)?;
    let Some(attempt) = begins(&stage, &owner, prompt).await? else { return unexpected("no begin", prompt) };
    rejected(&stage, reject(&owner, prompt, attempt, LONG)).await?;
    same("the number of tries", hold(&stage).await?.tries, 1)
}

async fn listed(stage: Stage) -> Checked {
    let mut changes = stage.backend.changes();
    let (owner, prompt, attempt) = begun(&stage, "a").await?;
    let of_tenant =
        Credential::OfTenant { tenant: owner.name.tenant().clone(), profile: "support".to_owned() };
    rejected(&stage, reject(&owner, prompt, attempt, NONE)).await?;
    let (owner, prompt, attempt) = {
        let prompt = stage.prompt("b", "run").await?;
        let owner = stage.own("b").await?;
        let (attempt, _) = stage.begin(&owner, prompt).await?;
        (owner, prompt, attempt)
    };
    let credential = of_tenant.clone();
    rejected(&stage, Reject { credential, ..reject(&owner, prompt, attempt, LONG) }).await?;
    let first = stage.backend.holds(None, 1).await?;
    same("the first page", first.iter().map(|hold| hold.credential.clone()).collect(), vec![key("k")])?;
    let next = stage.backend.holds(Some(key("k")), 10).await?;
    same(
        "the next page",
        next.iter().map(|hold| hold.credential.clone()).collect(),
        vec![of_tenant.clone()],
    )?;
    same("the last page", stage.backend.holds(Some(of_tenant.clone()), 10).await?, vec![])?;
    let mut told = Vec::new();
    while let Ok(change) = changes.try_recv() {
        told.extend(matches!(change, Change::Held(_)).then_some(change));
    }
    same("the changes", told, vec![Change::Held(key("k")), Change::Held(of_tenant.clone())])?;
    let soon = stage.backend.now().after(SECOND * 60);
    for (credential, is_old) in [(key("k"), true), (key("k"), false), (of_tenant, false)] {
        same("whether it is forgotten", stage.backend.forget_hold(credential, soon).await?, is_old)?;
    }
    same("the hold that is left", stage.backend.holds(None, 10).await?.len(), 1)
}
