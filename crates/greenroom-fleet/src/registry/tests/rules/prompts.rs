//! Promises about prompts that wait.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use super::stage::{
    CAPACITY, Checked, LEASE, ROOMY, Stage, accept, invalid, name, promises, same, tenant, unexpected,
};
use crate::backend::Requests;
use crate::id::{NodeId, PromptId, Timestamp};
use crate::query::lists::NameQuery;
use crate::record::{PromptOutcome, PromptState, Unsent};
use crate::request::{
    Accept, Accepted, Change, Join, Marked, Owned, QueueBounds, Refused, WaitingPage, Withdrawn,
};

promises! {
    "an accepted prompt is kept, and waits in the order of acceptance" => kept_in_order,
    "an accept that is repeated with its id is one prompt" => repeated_accept,
    "the id of a known prompt is refused for another name, key or content" => id_reused,
    "a key that is used twice is one prompt" => key_twice,
    "a key with another content is refused" => key_reused,
    "sixteen accepts with one key at once are one prompt" => key_race,
    "another profile or tenant for a known name is refused" => mismatches,
    "queues are bounded for the name, the tenant and the fleet" => bounds,
    "a prompt that no CLI has begun with is withdrawn once" => withdrawn,
    "a prompt that an operator drops ends with the reason" => dropped,
    "a prompt that waited too long ends as expired" => expired,
    "a reminder is due at its moment and not before" => reminder,
    "names that can run are listed in pages, by the order in which their prompts were accepted" => waiting,
    "an outcome is forgotten only after its time, with its key" => forgotten,
    "a deleted name ends its prompts, and its name and keys are free again" => deleted,
    "names are listed in pages, in the order of their bytes" => pages,
    "an accepted prompt is told to whoever listens" => told,
}

async fn kept_in_order(stage: Stage) -> Checked {
    let mut prompts = Vec::new();
    for text in ["one", "two", "three"] {
        prompts.push(stage.prompt("a", text).await?);
    }
    same("the queue", stage.queue("a").await?, prompts.clone())?;
    let next = stage.backend.next_prompt(name("a")).await?;
    same("the next prompt", next.map(|prompt| prompt.id), Some(prompts[0]))?;
    same("the queue's length in the name's record", queued_of(&stage, "a").await?, 3)?;
    let content = stage.backend.content(prompts[1]).await?;
    same("the content", content.map(|content| content.prompt), Some(json!("two")))?;
    same("the sum of waiting prompts", stage.backend.queued().await?, 3)?;
    same("the tenant's waiting prompts", stage.backend.tenant(tenant("acme")).await?.queued, 3)
}

async fn repeated_accept(stage: Stage) -> Checked {
    let first = accept("a", "hello");
    let id = stage.accepted(first.clone()).await?;
    same("the prompt of the repeated accept", stage.accepted(first).await?, id)?;
    same("the sum of waiting prompts", stage.backend.queued().await?, 1)
}

async fn id_reused(stage: Stage) -> Checked {
    let first = with_key("k", "hello");
    stage.accepted(first.clone()).await?;
    let content = accept("a", "another").content;
    let others = [
        Accept { name: name("b"), ..first.clone() },
        Accept { key: None, ..first.clone() },
        Accept { content, ..first.clone() },
    ];
    for other in others {
        invalid("another prompt with a known id", stage.backend.accept(other).await)?;
    }
    stage.accepted(first).await?;
    same("the sum of waiting prompts", stage.backend.queued().await?, 1)
}

async fn key_twice(stage: Stage) -> Checked {
    let first = stage.accepted(with_key("k", "hello")).await?;
    match stage.backend.accept(with_key("k", "hello")).await? {
        Accepted::Duplicate(prompt) => same("the prompt of the key", prompt.id, first)?,
        other => return unexpected("a known key", other),
    }
    let elsewhere = Accept { key: Some("k".to_owned()), ..accept("b", "hello") };
    stage.accepted(elsewhere).await?;
    same("the sum of waiting prompts", stage.backend.queued().await?, 2)
}

async fn key_reused(stage: Stage) -> Checked {
    let first = stage.accepted(with_key("k", "hello")).await?;
    let other = stage.backend.accept(with_key("k", "good-bye")).await?;
    same("the answer", other, Accepted::Refused(Refused::KeyReused { prompt: first }))
}

async fn key_race(stage: Stage) -> Checked {
    let answers = join_all((0..16).map(|_| stage.backend.accept(with_key("k", "hello")))).await;
    let mut prompts: Vec<PromptId> = Vec::new();
    for answer in answers {
        match answer? {
            Accepted::New(prompt) | Accepted::Duplicate(prompt) => prompts.push(prompt.id),
            other => return unexpected("an accept of a race", other),
        }
    }
    prompts.dedup();
    same("the number of prompts", prompts.len(), 1)?;
    same("the sum of waiting prompts", stage.backend.queued().await?, 1)
}

async fn mismatches(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    let profile = Accept { profile: "sales".to_owned(), ..accept("a", "hello") };
    let known = Refused::ProfileMismatch { known: "support".to_owned() };
    same("the answer for another profile", stage.backend.accept(profile).await?, Accepted::Refused(known))?;
    // Another tenant has a session of the same name.
    let theirs = Accept { profile: "sales".to_owned(), ..accept("other/a", "hello") };
    stage.accepted(theirs).await.map(drop)
}

async fn bounds(stage: Stage) -> Checked {
    let bounded = |to: &str, bounds| Accept { bounds, ..accept(to, "hello") };
    let one = |bound: fn(&mut QueueBounds) -> &mut u32| {
        let mut bounds = ROOMY;
        *bound(&mut bounds) = 1;
        bounds
    };
    let full = |of| Accepted::Refused(Refused::QueueFull { what: "prompts", of, bound: 1 });
    stage.prompt("a", "hello").await?;
    let by_name = stage.backend.accept(bounded("a", one(|bounds| &mut bounds.name))).await?;
    same("the answer at the bound of the name", by_name, full("for the session"))?;
    let by_tenant = stage.backend.accept(bounded("b", one(|bounds| &mut bounds.tenant))).await?;
    same("the answer at the bound of the tenant", by_tenant, full("for the tenant"))?;
    let by_fleet = stage.backend.accept(bounded("other/c", one(|bounds| &mut bounds.fleet))).await?;
    same("the answer at the bound of the fleet", by_fleet, full("in the fleet"))?;
    same(
        "the record of a name whose prompt was refused",
        stage.backend.name_record(name("other/c")).await?,
        None,
    )?;
    stage.accepted(bounded("other/d", one(|bounds| &mut bounds.tenant))).await.map(drop)
}

async fn dropped(stage: Stage) -> Checked {
    let prompt = stage.prompt("a", "hello").await?;
    for what in ["the answer", "the repeated answer"] {
        let answer = stage.backend.drop_prompt(prompt, "a \"loop\"\0".to_owned()).await?;
        same(what, answer, Withdrawn::Unsent)?;
    }
    let why = Unsent::Dropped { why: "a \"loop\"\0".to_owned() };
    same("the outcome", stage.outcome(prompt).await?, Some(PromptOutcome::Unsent { why }))?;
    let (_, running, _) = stage.running(stage.node, "a").await?;
    match stage.backend.drop_prompt(running, String::new()).await? {
        Withdrawn::TooLate(prompt) => same("the prompt", prompt.id, running),
        other => unexpected("a prompt that runs was dropped", other),
    }
}

async fn withdrawn(stage: Stage) -> Checked {
    let prompt = stage.prompt("a", "hello").await?;
    for what in ["the answer", "the repeated answer"] {
        same(what, stage.backend.withdraw(prompt).await?, Withdrawn::Unsent)?;
    }
    let outcome = PromptOutcome::Unsent { why: Unsent::Withdrawn };
    same("the outcome", stage.outcome(prompt).await?, Some(outcome))?;
    same("the sum of waiting prompts", stage.backend.queued().await?, 0)?;
    same(
        "the answer for an unknown prompt",
        stage.backend.withdraw(PromptId::new()).await?,
        Withdrawn::Gone,
    )?;
    let (_, running, _) = stage.running(stage.node, "a").await?;
    match stage.backend.withdraw(running).await? {
        Withdrawn::TooLate(prompt) => same("the prompt", prompt.id, running),
        other => unexpected("a prompt that runs was withdrawn", other),
    }
}

async fn expired(stage: Stage) -> Checked {
    let short = stage.accepted(Accept { wait: Duration::ZERO, ..accept("a", "short") }).await?;
    let long = stage.prompt("a", "long").await?;
    same("the moment of the next expiry", stage.backend.next_expiry().await?.is_some(), true)?;
    same("the number of expired prompts", stage.backend.expire_prompts(10).await?, 1)?;
    same("the number of expired prompts after that", stage.backend.expire_prompts(10).await?, 0)?;
    let outcome = PromptOutcome::Unsent { why: Unsent::Expired { cause: None } };
    same("the outcome", stage.outcome(short).await?, Some(outcome))?;
    same("the queue", stage.queue("a").await?, vec![long])
}

async fn reminder(stage: Stage) -> Checked {
    let later = stage.backend.now().after(Duration::from_secs(1800));
    let reminder = Accept { not_before: Some(later), wait: Duration::ZERO, ..accept("a", "later") };
    let reminder = stage.accepted(reminder).await?;
    let at_once = stage.prompt("b", "now").await?;
    let now = stage.backend.now();
    let waiting = stage.backend.waiting(page(&stage)).await?.prompts;
    same("the prompts that may begin", waiting.iter().map(|prompt| prompt.id).collect(), vec![at_once])?;
    same("the next moment", stage.backend.next_due(now).await?, Some(later))?;
    same("the moment after that", stage.backend.next_due(later).await?, None)?;
    same("the queue", stage.queue("a").await?, vec![reminder])?;
    same("the number of expired prompts", stage.backend.expire_prompts(10).await?, 0)
}

async fn forgotten(stage: Stage) -> Checked {
    let prompt = stage.accepted(with_key("k", "hello")).await?;
    let owner = stage.own("a").await?;
    let (attempt, _) = stage.begin(&owner, prompt).await?;
    stage.complete(&owner, prompt, attempt).await?;
    let ended = match stage.backend.prompt_record(prompt).await?.map(|prompt| prompt.state) {
        Some(PromptState::Ended { at, .. }) => at,
        other => return unexpected("the state of a finished prompt", other),
    };
    same("the number forgotten before its end", stage.backend.forget(ended, 10).await?, 0)?;
    match stage.backend.accept(with_key("k", "hello")).await? {
        Accepted::Duplicate(known) => same("the prompt of the key", known.id, prompt)?,
        other => return unexpected("a key of a prompt that ended", other),
    }
    same("the number forgotten after its end", stage.backend.forget(Timestamp(ended.0 + 1), 10).await?, 1)?;
    same("the outcome", stage.outcome(prompt).await?, None)?;
    same("the record", stage.backend.prompt_record(prompt).await?, None)?;
    stage.accepted(with_key("k", "another")).await.map(drop)
}

async fn deleted(stage: Stage) -> Checked {
    let prompt = stage.accepted(with_key("k", "hello")).await?;
    let owner = stage.own("a").await?;
    let owned = stage.backend.delete(name("a")).await?;
    same("the answer while a node owns the name", owned, Marked::Owned(stage.node))?;
    same("the answer to the release", stage.backend.release(owner.clone()).await?, Owned::Done(true))?;
    for what in ["the queue's length", "the queue's length after a repeated delete"] {
        same(what, stage.delete("a").await?, 0)?;
    }
    let outcome = PromptOutcome::Unsent { why: Unsent::Deleted };
    same("the outcome", stage.outcome(prompt).await?, Some(outcome))?;
    let refused = Accepted::Refused(Refused::Deleting);
    same("an accept meanwhile", stage.backend.accept(accept("a", "new")).await?, refused)?;
    same("names being deleted", stage.backend.deleting(10).await?, vec![name("a")])?;
    let mut calls = 0;
    while !stage.deleted("a").await? {
        calls += 1;
        same("whether the deletion comes to an end", calls < 1000, true)?;
    }
    same("the repeated answer", stage.deleted("a").await?, true)?;
    same("names being deleted after that", stage.backend.deleting(10).await?, Vec::new())?;
    same("the record", stage.backend.name_record(name("a")).await?, None)?;
    stage.accepted(with_key("k", "another content")).await?;
    let again = stage.own("a").await?;
    same("whether the term grew", again.term > owner.term, true)
}

async fn pages(stage: Stage) -> Checked {
    // NUL and letters of two cases are ordinary bytes of a name.
    let mut names = ["b", "B", "a\0b", "a", "a\0", "..x", "ä", "a\u{1}"];
    for to in names {
        stage.prompt(to, "hello").await?;
    }
    names.sort_unstable();
    let mut seen: Vec<String> = Vec::new();
    loop {
        let query = NameQuery { after: seen.last().map(|last| name(last)), limit: 3, ..NameQuery::new() };
        let page = stage.backend.names(query).await?;
        if page.names.is_empty() {
            break;
        }
        seen.extend(page.names.into_iter().map(|record| record.name.session().to_owned()));
    }
    same("the names", seen, names.map(str::to_owned).to_vec())
}

/// Names whose prompts may begin, and which a node can run.
async fn waiting(stage: Stage) -> Checked {
    let (other, elsewhere) = (NodeId::new(), NodeId::new());
    stage.join(other, LEASE).await?;
    stage
        .backend
        .join(Join { node: elsewhere, host: "there".to_owned(), lease: LEASE, capacity: CAPACITY })
        .await?;
    let of = |tenant: &str, to: &str| accept(&format!("{tenant}/{to}"), "hello");
    let mut ready = Vec::new();
    for (tenant, to) in [("b", "1"), ("b", "2"), ("a", "3"), ("Z", "4"), ("b", "0")] {
        ready.push(stage.accepted(of(tenant, to)).await?);
        stage.next_millisecond().await;
    }
    // The second prompt of a name, and names that cannot run.
    stage.accepted(of("b", "1")).await?;
    stage.accepted(Accept { wait: Duration::ZERO, ..of("b", "expired") }).await?;
    stage.accepted(of("a", "quarantined")).await?;
    same("quarantine", stage.backend.quarantine(name("a/quarantined"), "why".into()).await?, Marked::Done)?;
    stage.running(stage.node, "acme/runs").await?;
    stage.prompt("runs", "the next one").await?;
    let theirs = stage.accepted(of("c", "theirs")).await?;
    stage.own_by(other, "c/theirs").await?;
    let there = stage.accepted(Accept { host: Some("there".to_owned()), ..of("c", "there") }).await?;
    let (first, second, third, fourth, last) = (ready[0], ready[1], ready[2], ready[3], ready[4]);

    let order = vec![fourth, third, first, second, last];
    same("the names that can run here", listed(&stage, page(&stage)).await?, order.clone())?;
    let by_one = WaitingPage { limit: 1, ..page(&stage) };
    same("the names of pages of one", listed(&stage, by_one).await?, order)?;
    let without = WaitingPage { without: vec![tenant("b"), tenant("Z")], limit: 2, ..page(&stage) };
    same("the names without two tenants", listed(&stage, without).await?, vec![third])?;
    let on_other =
        WaitingPage { node: other, of: None, without: vec![tenant("a"), tenant("b")], ..page(&stage) };
    same("the names that the other node can run", listed(&stage, on_other).await?, vec![fourth, theirs])?;
    let there_too =
        WaitingPage { node: elsewhere, of: None, without: vec![tenant("a"), tenant("b")], ..page(&stage) };
    same(
        "the names that a node of the other host can run",
        listed(&stage, there_too).await?,
        vec![fourth, there],
    )?;

    let of = Some(["b/2", "Z/4", "a/quarantined", "runs", "nobody", "a/3"].map(name).to_vec());
    let named = WaitingPage { of, without: vec![tenant("a")], limit: 2, ..page(&stage) };
    same("those of some names that can run here", listed(&stage, named).await?, vec![fourth, second])?;

    // The first prompt is taken back: the name moves to the place of its second one.
    let _: Withdrawn = stage.backend.withdraw(first).await?;
    let queue = stage.queue("b/1").await?;
    let only_b = WaitingPage { without: vec![tenant("a"), tenant("Z"), tenant("c")], ..page(&stage) };
    let moved = vec![second, last, queue[0]];
    same("the names after a withdrawal", listed(&stage, only_b).await?, moved)?;
    stage.backend.unquarantine(name("a/quarantined")).await?;
    for (profiles, names, other) in [(vec![], 0, true), (vec!["support".to_owned()], 6, false)] {
        let of_profiles = WaitingPage { profiles: Some(profiles), ..page(&stage) };
        let waiting = stage.backend.waiting(of_profiles).await?;
        same("names of the profiles", waiting.prompts.len(), names)?;
        same("the profile that is left out", waiting.other_profile, other.then(|| "support".to_owned()))?;
    }
    let only_a = WaitingPage { without: vec![tenant("b"), tenant("Z"), tenant("c")], ..page(&stage) };
    same("the names after the lift", listed(&stage, only_a).await?.len(), 2)
}

fn page(stage: &Stage) -> WaitingPage {
    WaitingPage { node: stage.node, of: None, without: Vec::new(), profiles: None, after: None, limit: 100 }
}

/// The first prompts of the names of all pages.
async fn listed(stage: &Stage, mut page: WaitingPage) -> Checked<Vec<PromptId>> {
    let mut prompts = Vec::new();
    loop {
        let names = stage.backend.waiting(page.clone()).await?;
        same("whether a page is as long as was asked for", names.prompts.len() <= page.limit, true)?;
        prompts.extend(names.prompts.into_iter().map(|prompt| prompt.id));
        if names.next.is_none() {
            return Ok(prompts);
        }
        page.after = names.next;
    }
}

async fn told(stage: Stage) -> Checked {
    let mut changes = stage.backend.changes();
    stage.prompt("a", "hello").await?;
    match changes.recv().await {
        Ok(change) => same("the change", change, Change::Queued(name("a"))),
        Err(error) => unexpected("no change was told", error),
    }
}

fn with_key(key: &str, text: &str) -> Accept {
    Accept { key: Some(key.to_owned()), ..accept("a", text) }
}

async fn queued_of(stage: &Stage, of: &str) -> Checked<u32> {
    Ok(stage.backend.name_record(name(of)).await?.map_or(0, |record| record.queued))
}
