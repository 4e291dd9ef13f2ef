//! The feed: complete, in order, and bounded.

use std::time::Duration;

use crate::backend::{Commit, Committed, Lane, Requests};
use crate::id::{Name, QuestionId, Tenant};
use crate::query::feed::{FeedCursor, FeedEntry, FeedEvent, FeedPage, FeedRetention};
use crate::record::usage::Usage;
use crate::registry::tests::rules::stage::{
    Checked, Stage, accept, completed, finish, name, promises, same, tenant, unexpected,
};
use crate::registry::{Rows, Wanted, try_on};
use crate::request::{Accept, Ask, Finish, Marked, Owned, Withdrawn};

promises! {
    "a feed has each transition of a turn once, in order, after it is sealed" => turn,
    "without a feed nothing is written, and it cannot be read" => off,
    "a tenant's feed has its own entries, and goes on at the cursor of any of them" => own,
    "a name that is made anew goes on with its numbers" => anew,
    "the numbers of a tenant tell nothing of another one's names" => apart,
    "a reader behind removed entries has a gap, and goes on with the oldest one" => gap,
    "entries past the number to keep are removed, and none of those that others may still write" => bounded,
    "of two removals at once, one is carried out" => removed_once,
}

async fn on(stage: &Stage) -> Checked {
    Ok(stage.backend.set_feed(Some(FeedRetention::new())).await?)
}

/// Makes what was written readable.
async fn seal(stage: &Stage) -> Checked {
    while !stage.backend.seal_feed().await? {
        stage.next_millisecond().await;
    }
    Ok(())
}

async fn page(
    stage: &Stage,
    of: Option<Tenant>,
    after: &FeedCursor,
    limit: usize,
) -> Checked<(Vec<FeedEntry>, FeedCursor)> {
    match stage.backend.feed(of, after.clone(), limit).await? {
        FeedPage::Entries { entries, next } => Ok((entries, next)),
        page => unexpected("the page", page),
    }
}

/// The entries behind a cursor, in pages of two.
async fn read(stage: &Stage, of: Option<Tenant>, mut after: FeedCursor) -> Checked<Vec<FeedEntry>> {
    let mut all = Vec::new();
    loop {
        let (entries, next) = page(stage, of.clone(), &after, 2).await?;
        all.extend(entries);
        if next == after {
            return Ok(all);
        }
        after = next;
    }
}

fn events(entries: Vec<FeedEntry>) -> Vec<FeedEvent> {
    entries.into_iter().map(|entry| entry.event).collect()
}

async fn turn(stage: Stage) -> Checked {
    on(&stage).await?;
    let (owner, prompt, attempt) = stage.running(stage.node, "a").await?;
    let question = QuestionId::new();
    let ask = Ask {
        owner: owner.clone(),
        question,
        prompt,
        wait: Duration::from_secs(9),
        call: None,
        body: "?".into(),
    };
    stage.backend.ask(ask).await?.done();
    let usage = Usage { cost: 7, ..Usage::default() };
    let ended = Finish { usage: Some(usage), ..finish(&owner, prompt, attempt, completed()) };
    for _ in 0..2 {
        same("the answer", stage.backend.finish(ended.clone()).await?, Owned::Done(true))?;
    }
    same("what can be read before the seal", read(&stage, None, FeedCursor::default()).await?, Vec::new())?;
    seal(&stage).await?;
    let read = read(&stage, None, FeedCursor::default()).await?;
    let numbers: Vec<_> = read.iter().map(|entry| entry.number).collect();
    same("the numbers", numbers, (1..=5).collect())?;
    let outcome = "completed".to_owned();
    let expected = vec![
        FeedEvent::Accepted { prompt },
        FeedEvent::Begun { prompt },
        FeedEvent::Asked { prompt, question },
        // The end of the turn ends its questions.
        FeedEvent::Decided { prompt, question },
        FeedEvent::Ended { prompt, outcome, usage: Usage { turns: 1, ..usage } },
    ];
    same("the entries", events(read), expected)
}

/// The commit of a removal, which is not carried out yet.
async fn removal(stage: &Stage) -> Checked<Commit> {
    let mut rows = Rows::default();
    loop {
        let attempt = try_on(&rows, stage.backend.now(), |step| step.forget_feed());
        if attempt.lacking == Wanted::default() {
            attempt.answer?;
            return Ok(attempt.commit.unwrap_or_default());
        }
        rows.add(stage.backend.read(Lane::Requests, attempt.lacking).await?);
    }
}

async fn removed_once(stage: Stage) -> Checked {
    on(&stage).await?;
    stage.prompt("a", "hello").await?;
    // More entries than one removal removes.
    for _ in 0..130 {
        let quarantined = stage.backend.quarantine(name("a"), "why".into()).await?;
        same("the answer", quarantined, Marked::Done)?;
        stage.backend.unquarantine(name("a")).await?;
    }
    stage.backend.set_feed(Some(FeedRetention::new().entries(0))).await?;
    same("what is removed at first", stage.backend.forget_feed().await?, 256)?;
    let removals = [removal(&stage).await?, removal(&stage).await?];
    let mut committed = Vec::new();
    for removal in removals {
        committed.push(stage.backend.commit(Lane::Requests, removal).await?);
    }
    same("the commits", committed, vec![Committed::Done, Committed::Conflict])
}

async fn off(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    same("the page", stage.backend.feed(None, FeedCursor::default(), 10).await?, FeedPage::Off)?;
    same("whether anything is sealed", stage.backend.seal_feed().await?, false)?;
    on(&stage).await?;
    let prompt = stage.prompt("a", "hello").await?;
    seal(&stage).await?;
    let read = events(read(&stage, None, FeedCursor::default()).await?);
    same("the entries since then", read, vec![FeedEvent::Accepted { prompt }])?;
    stage.backend.set_feed(None).await?;
    stage.prompt("a", "hello").await?;
    same("the entries that are removed", stage.backend.forget_feed().await?, 1)?;
    same("those after them", stage.backend.forget_feed().await?, 0)?;
    same("the page", stage.backend.feed(None, FeedCursor::default(), 10).await?, FeedPage::Off)
}

async fn own(stage: Stage) -> Checked {
    on(&stage).await?;
    for round in 0..3 {
        for of in ["a", "b", "ab"] {
            let name = Name::new(tenant(of), format!("{of}{round}")).unwrap();
            stage.accepted(Accept { name, ..accept("a", "hello") }).await?;
        }
        seal(&stage).await?;
    }
    let all = read(&stage, None, FeedCursor::default()).await?;
    same("the number of all entries", all.len(), 9)?;
    for of in ["a", "b", "ab"] {
        let own: Vec<_> = all.iter().filter(|entry| entry.name.tenant().as_str() == of).cloned().collect();
        same("a tenant's entries", read(&stage, Some(tenant(of)), FeedCursor::default()).await?, own)?;
        // Also at a cursor of the feed of all.
        for (at, entry) in all.iter().enumerate() {
            let rest: Vec<_> =
                all[at + 1..].iter().filter(|entry| entry.name.tenant().as_str() == of).cloned().collect();
            let cursor: FeedCursor = entry.cursor.to_string().parse().unwrap();
            same("the entries behind a cursor", read(&stage, Some(tenant(of)), cursor).await?, rest)?;
        }
    }
    same("those of a stranger", read(&stage, Some(tenant("aa")), FeedCursor::default()).await?, Vec::new())
}

async fn anew(stage: Stage) -> Checked {
    on(&stage).await?;
    for _ in 0..2 {
        stage.prompt("a", "hello").await?;
        stage.delete("a").await?;
        while !stage.deleted("a").await? {}
    }
    seal(&stage).await?;
    let read = read(&stage, None, FeedCursor::default()).await?;
    let numbers: Vec<_> = read.iter().map(|entry| entry.number).collect();
    same("the numbers", numbers, (1..=8).collect())?;
    let accepted = |entry: &FeedEntry| matches!(entry.event, FeedEvent::Accepted { .. });
    same("the order", read.iter().position(|entry| entry.number > 1 && accepted(entry)), Some(4))?;
    same("the last one", read.last().map(|entry| entry.event.clone()), Some(FeedEvent::Deleted))
}

async fn apart(stage: Stage) -> Checked {
    on(&stage).await?;
    stage.prompt("busy/a", "hello").await?;
    stage.delete("busy/a").await?;
    while !stage.deleted("busy/a").await? {}
    stage.prompt("new/a", "hello").await?;
    seal(&stage).await?;
    let read = read(&stage, Some(tenant("new")), FeedCursor::default()).await?;
    same("the numbers", read.iter().map(|entry| entry.number).collect(), vec![1])
}

async fn gap(stage: Stage) -> Checked {
    on(&stage).await?;
    let other = || Accept { name: Name::new(tenant("b"), "x").unwrap(), ..accept("a", "hello") };
    stage.prompt("a", "one").await?;
    seal(&stage).await?;
    let (one, behind) = page(&stage, None, &FeedCursor::default(), 1).await?;
    stage.prompt("a", "two").await?;
    stage.accepted(other()).await?;
    seal(&stage).await?;
    let kept = stage.prompt("a", "three").await?;
    seal(&stage).await?;
    let (_, at_end) = page(&stage, None, &behind, 10).await?;
    // Two epochs with three entries go, and the last one stays.
    stage.backend.set_feed(Some(FeedRetention::new().entries(1))).await?;
    while stage.backend.forget_feed().await? > 0 {}
    let gap =
        async |of: Option<Tenant>, after: &FeedCursor| match stage.backend.feed(of, after.clone(), 10).await?
        {
            FeedPage::Gap { next } => page(&stage, None, &next, 10).await.map(|(entries, _)| events(entries)),
            page => unexpected("no gap", page),
        };
    let expected = vec![FeedEvent::Accepted { prompt: kept }];
    same("what is there after the gap", gap(None, &one[0].cursor).await?, expected.clone())?;
    same("what is there after the gap", gap(Some(tenant("b")), &one[0].cursor).await?, expected.clone())?;
    same("the oldest ones", events(read(&stage, None, FeedCursor::default()).await?), expected)?;
    // Nothing of a tenant without entries was removed, and a reader at the end has missed nothing.
    same(
        "a tenant without entries",
        page(&stage, Some(tenant("c")), &one[0].cursor, 10).await?.0,
        Vec::new(),
    )?;
    same("a reader at the end", page(&stage, None, &at_end, 10).await?.0, Vec::new())?;
    let future = FeedCursor { epoch: 99, after: Vec::new() };
    gap(None, &future).await.map(drop)
}

async fn bounded(stage: Stage) -> Checked {
    stage.backend.set_feed(Some(FeedRetention::new().entries(0).time(Duration::ZERO))).await?;
    let prompt = stage.prompt("a", "hello").await?;
    same("what is removed of the open epoch", stage.backend.forget_feed().await?, 0)?;
    same("the withdrawal", stage.backend.withdraw(prompt).await?, Withdrawn::Unsent)?;
    let quarantined = stage.backend.quarantine(name("a"), "why".into()).await?;
    same("the answer", quarantined, Marked::Done)?;
    seal(&stage).await?;
    same("what is removed then", stage.backend.forget_feed().await?, 3)?;
    same("what is left", stage.backend.forget_feed().await?, 0)?;
    same("the entries", read(&stage, None, FeedCursor::default()).await?, Vec::new())
}
