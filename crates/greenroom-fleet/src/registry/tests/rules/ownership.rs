//! Promises about owners of names, and about nodes.

use std::time::Duration;

use futures_util::future::join_all;

use super::stage::{
    CAPACITY, Checked, LEASE, Stage, accept, claim, completed, finish, invalid, name, promises, same,
    unexpected,
};
use crate::backend::Requests;
use crate::id::{NodeId, PromptId};
use crate::record::{NameState, NodeState};
use crate::registry::tests::counted;
use crate::request::{
    Accept, Accepted, ActivationFailed, Change, Claimed, Finish, Join, Marked, Owned, Ownership, Page,
    Refused,
};

promises! {
    "of many nodes that race for a name one wins" => race,
    "a claim that is repeated with its id gives the same term" => repeated_claim,
    "a living node keeps its name, and each next owner has a higher term" => terms,
    "a release says whether a prompt waits, and can be repeated" => release,
    "a node is declared dead only if its counter stood still for its lease" => dead,
    "a dead node renews no lease and claims no name" => dead_is_final,
    "the id of a dead node, or of a node of another host, does not join" => dead_join,
    "a node that dies tells of its names whose prompts wait or run" => freed,
    "a draining node keeps its names and claims no others" => draining,
    "a name that its owner left with a reason is quarantined as soon as the owner is gone" => left_with_a_reason,
    "a node that is asked to drain finds the mark with its next renewal" => asked_to_drain,
    "a name that is bound to a host is claimed by nodes of the host" => bound_to_host,
    "an unknown name is not claimed" => unknown,
    "nodes and the names of a node are listed in pages" => pages,
    "failed activations quarantine a name until somebody lifts it" => quarantine,
    "a quarantined name keeps its prompts" => quarantine_keeps,
    "a quarantined name takes no new prompts" => quarantine_refuses,
}

async fn race(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    let nodes: Vec<NodeId> = (0..16).map(|_| NodeId::new()).collect();
    for node in &nodes {
        stage.join(*node, LEASE).await?;
    }
    let mut winners = Vec::new();
    let mut told = Vec::new();
    for (node, answer) in
        nodes.iter().zip(join_all(nodes.iter().map(|node| stage.claim_by(*node, "a"))).await)
    {
        match answer? {
            Claimed::Won(_) => winners.push(*node),
            Claimed::Elsewhere(owner) => told.push(owner),
            other => return unexpected("a claim of a race", other),
        }
    }
    same("the number of winners", winners.len(), 1)?;
    same("whether the others were told the winner", told.iter().all(|owner| *owner == winners[0]), true)
}

async fn repeated_claim(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    let claim = claim(stage.node, "a");
    let first = stage.backend.claim(claim.clone()).await?;
    same("the repeated answer", stage.backend.claim(claim).await?, first)?;
    let owned = stage.backend.owned_names(stage.node, all()).await?;
    same("the number of owned names", owned.len(), 1)
}

async fn terms(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    let other = NodeId::new();
    stage.join(other, LEASE).await?;
    let first = stage.own("a").await?;
    same("the answer to the other node", stage.claim_by(other, "a").await?, Claimed::Elsewhere(stage.node))?;
    // A second claim of the owner is another session of the name on the same node.
    same(
        "a second claim of the node",
        stage.claim_by(stage.node, "a").await?,
        Claimed::Elsewhere(stage.node),
    )?;
    same("the answer to the release", stage.backend.release(first.clone()).await?, Owned::Done(true))?;
    let second = stage.own_by(other, "a").await?;
    same("whether the term grew", second.term > first.term, true)?;
    same("names of the first node", stage.backend.owned_names(stage.node, all()).await?.len(), 0)?;
    same("names of the second node", stage.backend.owned_names(other, all()).await?.len(), 1)
}

async fn release(stage: Stage) -> Checked {
    let prompt = stage.prompt("a", "hello").await?;
    let owner = stage.own("a").await?;
    let (attempt, _) = stage.begin(&owner, prompt).await?;
    stage.complete(&owner, prompt, attempt).await?;
    for what in ["the answer", "the repeated answer"] {
        same(what, stage.backend.release(owner.clone()).await?, Owned::Done(false))?;
    }
    stage.prompt("a", "hello").await?;
    let owner = stage.own("a").await?;
    same("the answer with a prompt that waits", stage.backend.release(owner).await?, Owned::Done(true))?;
    let record = stage.backend.name_record(name("a")).await?;
    same("the state", record.map(|record| record.state), Some(NameState::Free))
}

async fn dead(stage: Stage) -> Checked {
    same("a node whose lease goes on", stage.backend.declare_dead(stage.node, 0).await?, false)?;
    let node = stage.short_lived_node().await?;
    let Owned::Done(record) = stage.backend.renew(node, Duration::ZERO, false).await? else {
        return unexpected("a node that nobody declared dead", node);
    };
    same("its counter", record.renewals, 1)?;
    same("a node that has renewed since", stage.backend.declare_dead(node, 0).await?, false)?;
    same("a node that has not", stage.backend.declare_dead(node, 1).await?, true)?;
    same("the repeated answer", stage.backend.declare_dead(node, 1).await?, true)
}

async fn dead_is_final(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    let node = stage.short_lived_node().await?;
    stage.own_by(node, "a").await?;
    stage.kill(node).await?;
    same("the answer to its renewal", stage.backend.renew(node, LEASE, false).await?, Owned::Fenced)?;
    stage.prompt("b", "hello").await?;
    same("the answer to its claim", stage.claim_by(node, "b").await?, Claimed::NodeDown)?;
    let states = stage.backend.nodes(None, 10).await?.into_iter().filter(|record| record.id == node);
    same("its state", states.map(|record| record.state).collect(), vec![NodeState::Dead])?;
    stage.own("a").await?;
    let left = stage.backend.nodes(None, 10).await?.into_iter().filter(|record| record.id == node).count();
    same("the records of a dead node that owns nothing", left, 0)
}

async fn dead_join(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    let node = stage.short_lived_node().await?;
    stage.own_by(node, "a").await?;
    let join = Join { node, host: "here".to_owned(), lease: LEASE, capacity: CAPACITY };
    let known = stage.backend.join(join.clone()).await?;
    same(
        "the state and the capacity after the repeated join",
        (known.state, known.capacity),
        (NodeState::Up, CAPACITY),
    )?;
    let elsewhere = Join { host: "there".to_owned(), ..join.clone() };
    invalid("a node of another host with a known id", stage.backend.join(elsewhere).await)?;
    stage.kill(node).await?;
    invalid("a dead node that joins", stage.backend.join(join).await)
}

async fn freed(stage: Stage) -> Checked {
    for leaves in [true, false] {
        let node = stage.short_lived_node().await?;
        let (waits, runs) = (format!("waits {leaves}"), format!("runs {leaves}"));
        stage.prompt(&waits, "hello").await?;
        stage.own_by(node, &waits).await?;
        stage.running(node, &runs).await?;
        let (idle, prompt, attempt) = stage.running(node, &format!("idle {leaves}")).await?;
        stage.complete(&idle, prompt, attempt).await?;
        let mut changes = stage.backend.changes();
        if leaves {
            stage.backend.leave(node).await?;
        } else {
            stage.kill(node).await?;
        }
        let mut freed = Vec::new();
        while freed.len() < 2 {
            match changes.recv().await {
                Ok(Change::Freed(name)) => freed.push(name),
                // A change of an earlier request may come late.
                Ok(_) => {}
                Err(error) => return unexpected("no change was told", error),
            }
        }
        freed.sort();
        same("the names", freed, vec![name(&runs), name(&waits)])?;
    }
    Ok(())
}

async fn draining(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    stage.prompt("b", "hello").await?;
    let owner = stage.own("a").await?;
    match stage.backend.renew(stage.node, LEASE, true).await? {
        Owned::Done(record) => same("the state", record.state, NodeState::Draining)?,
        Owned::Fenced => return unexpected("a living node", stage.node),
    }
    same("the answer to its claim", stage.claim_by(stage.node, "b").await?, Claimed::NodeDown)?;
    let prompt = stage.queue("a").await?[0];
    let (attempt, _) = stage.begin(&owner, prompt).await?;
    stage.complete(&owner, prompt, attempt).await
}

async fn asked_to_drain(stage: Stage) -> Checked {
    let other = NodeId::new();
    stage.join(other, LEASE).await?;
    for what in ["the answer", "the repeated answer"] {
        same(what, stage.backend.ask_to_drain(stage.node).await?, true)?;
    }
    for (node, asked) in [(stage.node, true), (other, false)] {
        match stage.backend.renew(node, LEASE, false).await? {
            Owned::Done(record) => same("the mark", record.asked_to_drain, asked)?,
            Owned::Fenced => return unexpected("a living node", node),
        }
    }
    stage.backend.leave(other).await?;
    for (what, node) in [("the answer for a dead node", other), ("for an unknown one", NodeId::new())] {
        same(what, stage.backend.ask_to_drain(node).await?, false)?;
    }
    let nodes = stage.backend.nodes(None, 10).await?;
    same("nodes", nodes.iter().map(|node| (node.id, node.asked_to_drain)).collect(), vec![(stage.node, true)])
}

async fn left_with_a_reason(stage: Stage) -> Checked {
    let why = "the transcript has a gap";
    for gone in ["releases", "fails", "dies", "dies and is recovered"] {
        let node = stage.short_lived_node().await?;
        let (owner, prompt, attempt) = stage.running(node, gone).await?;
        let finish =
            Finish { quarantine: Some(why.to_owned()), ..finish(&owner, prompt, attempt, completed()) };
        same("the finish", stage.backend.finish(finish.clone()).await?, Owned::Done(true))?;
        same("the repeated finish", stage.backend.finish(finish).await?, Owned::Done(true))?;
        // Another turn of the owner changes nothing.
        let next = stage.prompt(gone, "next").await?;
        let (attempt, _) = stage.begin(&owner, next).await?;
        stage.complete(&owner, next, attempt).await?;
        match gone {
            "releases" => same("the release", stage.backend.release(owner).await?, Owned::Done(false))?,
            "fails" => {
                let failed = ActivationFailed { owner, why: "another".into(), counted: counted(LEASE, 3) };
                let after = stage.backend.activation_failed(failed).await?;
                same("the failure", after, Owned::Done(None))?;
            }
            "dies" => stage.kill(node).await?,
            _ => {
                stage.kill(node).await?;
                same("the recovered names", stage.backend.recover(10, 3).await?, vec![name(gone)])?;
            }
        }
        let claimed = stage.claim_by(stage.node, gone).await?;
        same("the claim", claimed, Claimed::Quarantined(why.to_owned()))?;
        same("the release from quarantine", stage.backend.unquarantine(name(gone)).await?, true)?;
        let owner = stage.own(gone).await?;
        same("the release of the next owner", stage.backend.release(owner).await?, Owned::Done(false))?;
        stage.own(gone).await?;
    }
    Ok(())
}

async fn bound_to_host(stage: Stage) -> Checked {
    stage.accepted(Accept { host: Some("there".to_owned()), ..accept("a", "hello") }).await?;
    let other = Claimed::OtherHost("there".to_owned());
    same("the answer to a node of another host", stage.claim_by(stage.node, "a").await?, other)?;
    let node = NodeId::new();
    stage.backend.join(Join { node, host: "there".to_owned(), lease: LEASE, capacity: CAPACITY }).await?;
    stage.own_by(node, "a").await.map(drop)
}

/// A page that holds all names of a check.
fn all() -> Page {
    Page { after: None, limit: 10 }
}

async fn pages(stage: Stage) -> Checked {
    let (other, mut nodes) = (NodeId::new(), vec![stage.node]);
    stage.join(other, LEASE).await?;
    nodes.push(other);
    for _ in 0..3 {
        let node = NodeId::new();
        stage.join(node, LEASE).await?;
        nodes.push(node);
    }
    nodes.sort_unstable();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = stage.backend.nodes(after, 2).await?;
        let Some(last) = page.last() else { break };
        same("whether a page of nodes is as long as was asked for", page.len() <= 2, true)?;
        after = Some(last.id);
        seen.extend(page.into_iter().map(|record| record.id));
    }
    same("the nodes of all pages", seen, nodes)?;

    // The bytes decide, not a language.
    let names = ["B", "a", "a b", "b", "ä"];
    for (at, to) in names.into_iter().enumerate() {
        stage.prompt(to, "hello").await?;
        stage.prompt(&format!("{to} of the other"), "hello").await?;
        stage.own_by(stage.node, to).await?;
        if at % 2 == 0 {
            stage.own_by(other, &format!("{to} of the other")).await?;
        }
    }
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = Page { after, limit: 2 };
        let owned = stage.backend.owned_names(stage.node, page).await?;
        let Some((last, _, _)) = owned.last() else { break };
        same("whether a page of names is as long as was asked for", owned.len() <= 2, true)?;
        after = Some(last.clone());
        seen.extend(owned.into_iter().map(|(name, _, _)| name));
    }
    same("the names of all pages", seen, names.map(name).to_vec())?;
    let nothing = Page { after: None, limit: 0 };
    same("an empty page", stage.backend.owned_names(stage.node, nothing).await?.len(), 0)?;
    same("an empty page of nodes", stage.backend.nodes(None, 0).await?.len(), 0)
}

async fn unknown(stage: Stage) -> Checked {
    same("the answer", stage.claim_by(stage.node, "nobody").await?, Claimed::Gone)
}

async fn quarantine(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    let failed =
        |owner: Ownership| ActivationFailed { owner, why: "no CLI".to_owned(), counted: counted(LEASE, 2) };
    let owner = stage.own("a").await?;
    for what in ["the first failure", "the repeated answer"] {
        let answer = stage.backend.activation_failed(failed(owner.clone())).await?;
        same(what, answer, Owned::Done(Some(1)))?;
    }
    let owner = stage.own("a").await?;
    for what in ["the second failure", "the repeated answer"] {
        let answer = stage.backend.activation_failed(failed(owner.clone())).await?;
        same(what, answer, Owned::Done(None))?;
    }
    match stage.claim_by(stage.node, "a").await? {
        Claimed::Quarantined(why) => {
            same("whether the reason names the cause", why.contains("no CLI"), true)?
        }
        other => return unexpected("a claim of a quarantined name", other),
    }
    same("the answer to the lift", stage.backend.unquarantine(name("a")).await?, true)?;
    same("the repeated answer", stage.backend.unquarantine(name("a")).await?, false)?;
    let owner = stage.own("a").await?;
    let answer = stage.backend.activation_failed(failed(owner)).await?;
    same("the first failure after the lift", answer, Owned::Done(Some(1)))
}

async fn quarantine_refuses(stage: Stage) -> Checked {
    let keyed = Accept { key: Some("key".to_owned()), ..accept("a", "hello") };
    let known = stage.accepted(keyed.clone()).await?;
    let quarantined = stage.backend.quarantine(name("a"), "by hand".into()).await?;
    same("the answer to the quarantine", quarantined, Marked::Done)?;
    let refused = Accepted::Refused(Refused::Quarantined { why: "by hand".to_owned() });
    same("the answer to a new prompt", stage.backend.accept(accept("a", "one more")).await?, refused)?;
    match stage.backend.accept(Accept { prompt: PromptId::new(), ..keyed }).await? {
        Accepted::Duplicate(record) => same("the prompt that is sent again", record.id, known)?,
        other => return unexpected("a prompt that is sent again with its key", other),
    }
    same("the answer to the lift", stage.backend.unquarantine(name("a")).await?, true)?;
    stage.prompt("a", "one more").await.map(drop)
}

async fn quarantine_keeps(stage: Stage) -> Checked {
    let prompt = stage.prompt("a", "hello").await?;
    let owner = stage.own("a").await?;
    let owned = stage.backend.quarantine(name("a"), "by hand".into()).await?;
    same("the owner that has to give the name back", owned, Marked::Owned(stage.node))?;
    same("the answer to the release", stage.backend.release(owner).await?, Owned::Done(true))?;
    for what in ["the answer", "the repeated answer"] {
        same(what, stage.backend.quarantine(name("a"), "by hand".into()).await?, Marked::Done)?;
    }
    let nobody = stage.backend.quarantine(name("nobody"), "by hand".into()).await?;
    same("the answer for an unknown name", nobody, Marked::Gone)?;
    let claimed = stage.claim_by(stage.node, "a").await?;
    same("the answer to a claim", claimed, Claimed::Quarantined("by hand".to_owned()))?;
    same("the queue", stage.queue("a").await?, vec![prompt])
}
