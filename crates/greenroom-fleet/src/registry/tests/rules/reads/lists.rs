//! Lists of names, also beside records that cannot be read.

use std::collections::BTreeMap;

use crate::backend::{Commit, Committed, Lane, Requests};
use crate::id::Name;
use crate::query::lists::{NameFilter, NameQuery};
use crate::record::label::Labels;
use crate::registry::tests::counted;
use crate::registry::tests::rules::stage::{
    Checked, Stage, accept, invalid, name, promises, same, tenant, unexpected,
};
use crate::registry::{Key, Table};
use crate::request::{Accept, ActivationFailed, Departure, Marked, Owned, QueueBounds, Withdrawn};

promises! {
    "names that somebody has to look at are listed, and no others" => stuck,
    "a name that was deleted is in no list" => deleted,
    "a name is deleted although a prompt that waits for it cannot be read" => unreadable_prompts,
    "a prompt expires although its name cannot be read, and those after it" => expires,
    "a page passes over names that cannot be read" => unreadable_names,
    "labels of a name that moves or is being deleted are not set" => labels_of_leaving,
}

/// Writes something that is no record in place of rows.
pub(in crate::registry::tests::rules) async fn damage(
    stage: &Stage,
    keys: impl IntoIterator<Item = Key>,
) -> Checked {
    let damaged = |key: Key| (key.bytes().to_vec(), Some(b"{".to_vec()));
    let commit =
        Commit { writes: keys.into_iter().map(damaged).collect::<BTreeMap<_, _>>(), ..Commit::default() };
    same("the answer to the damage", stage.backend.commit(Lane::Requests, commit).await?, Committed::Done)
}

async fn labels_of_leaving(stage: Stage) -> Checked {
    for to in ["a", "b"] {
        let prompt = stage.prompt(to, "hello").await?;
        same("the withdrawal", stage.backend.withdraw(prompt).await?, Withdrawn::Unsent)?;
    }
    let labels = Labels::new().with("plan", "pro");
    let departure = stage.backend.depart(name("a"), uuid::Uuid::new_v4()).await?;
    same("whether it departs", matches!(departure, Departure::Marked(_)), true)?;
    invalid("labels of a name that moves", stage.backend.set_labels(name("a"), labels.clone()).await)?;
    stage.delete("b").await?;
    same("whether they are set", stage.backend.set_labels(name("b"), labels).await?, false)
}

/// The names that somebody has to look at, in pages of one.
async fn listed(stage: &Stage) -> Checked<Vec<Name>> {
    let mut names: Vec<Name> = Vec::new();
    loop {
        let query =
            NameQuery { after: names.last().cloned(), ..NameQuery::new().only(NameFilter::Stuck).limit(1) };
        let Some(record) = stage.backend.names(query).await?.names.pop() else { return Ok(names) };
        names.push(record.name);
    }
}

async fn stuck(stage: Stage) -> Checked {
    for to in ["a", "b", "c", "d"] {
        stage.prompt(to, "hello").await?;
    }
    same("names at first", listed(&stage).await?, vec![])?;
    for to in ["c", "a"] {
        let quarantined = stage.backend.quarantine(name(to), "it loops".into()).await?;
        same("the answer", quarantined, Marked::Done)?;
    }
    let owner = stage.own("d").await?;
    let (why, period) = ("no disk".to_owned(), std::time::Duration::from_secs(60));
    let failed = ActivationFailed { owner, why, counted: counted(period, 3) };
    let after = stage.backend.activation_failed(failed).await?;
    same("what follows a failure", after, Owned::Done(Some(1)))?;
    same("names then", listed(&stage).await?, vec![name("a"), name("c"), name("d")])?;
    same("whether it was quarantined", stage.backend.unquarantine(name("a")).await?, true)?;
    // A turn that completes ends the failures.
    let owner = stage.own("d").await?;
    let Some(prompt) = stage.backend.next_prompt(name("d")).await? else {
        return unexpected("the queue", "d");
    };
    let (attempt, _) = stage.begin(&owner, prompt.id).await?;
    stage.complete(&owner, prompt.id, attempt).await?;
    same("names at last", listed(&stage).await?, vec![name("c")])
}

async fn deleted(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    let quarantined = stage.backend.quarantine(name("a"), "it loops".into()).await?;
    same("the answer", quarantined, Marked::Done)?;
    stage.delete("a").await?;
    same("names meanwhile", listed(&stage).await?, vec![name("a")])?;
    while !stage.deleted("a").await? {}
    let all = stage.backend.names(NameQuery::new().tenant(tenant("acme"))).await?;
    same("names of the tenant", all.names, vec![])?;
    same("names after that", listed(&stage).await?, vec![])
}

async fn unreadable_prompts(stage: Stage) -> Checked {
    let (lost, other) = (stage.prompt("a", "lost").await?, stage.prompt("a", "other").await?);
    let later = stage.backend.now().after(std::time::Duration::from_secs(60));
    let reminder = stage.accepted(Accept { not_before: Some(later), ..accept("a", "later") }).await?;
    damage(&stage, [lost, reminder].map(|id| Key::of(Table::Prompts).prompt(id))).await?;
    let queued = stage.delete("a").await?;
    same("its queue", (queued, stage.backend.queued().await?), (0, 0))?;
    same("whether the other prompt has ended", stage.outcome(other).await?.is_some(), true)?;
    while !stage.deleted("a").await? {}
    let owner = {
        stage.prompt("a", "again").await?;
        stage.own("a").await?
    };
    same("whether a prompt waits", stage.backend.release(owner).await?, Owned::Done(true))
}

async fn expires(stage: Stage) -> Checked {
    let mut prompts = Vec::new();
    for to in ["a", "b"] {
        prompts
            .push(stage.accepted(Accept { wait: std::time::Duration::ZERO, ..accept(to, "hello") }).await?);
    }
    damage(&stage, ["a"].map(|to| Key::of(Table::Names).name(&name(to)))).await?;
    while stage.backend.expire_prompts(1).await? > 0 {}
    for prompt in prompts {
        same("whether it has ended", stage.outcome(prompt).await?.is_some(), true)?;
    }
    Ok(())
}

/// A prompt of a tenant that may have many.
fn roomy(to: &str) -> Accept {
    Accept {
        bounds: QueueBounds { name: 10, tenant: 1000, fleet: 1000, ..Default::default() },
        ..accept(to, "hello")
    }
}

async fn unreadable_names(stage: Stage) -> Checked {
    let mut lost = Vec::new();
    for number in 0..100 {
        let to = format!("lost {number}");
        stage.accepted(roomy(&to)).await?;
        lost.push(Key::of(Table::Names).name(&name(&to)));
    }
    for to in ["z", "zz"] {
        stage.accepted(roomy(to)).await?;
    }
    damage(&stage, lost).await?;
    for limit in [1, 2, 10] {
        let query = NameQuery::new().limit(limit);
        for query in [query.clone(), query.tenant(tenant("acme"))] {
            let names: Vec<_> =
                stage.backend.names(query).await?.names.into_iter().map(|record| record.name).collect();
            same("the page", names, [name("z"), name("zz")].into_iter().take(limit).collect())?;
        }
    }
    Ok(())
}
