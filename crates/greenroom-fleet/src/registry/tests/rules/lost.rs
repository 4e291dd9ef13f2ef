//! Promises about what lost owners leave behind: names, and processes.

use std::time::Duration;

use serde_json::json;

use super::reads::lists::damage;
use super::stage::{
    Checked, LEASE, Stage, accept, accept_with_continuation, name, promises, same, tenant, unexpected,
};
use crate::backend::{Commit, Committed, Lane, Requests};
use crate::event::FleetEvent;
use crate::id::{NodeId, QuestionId, Term};
use crate::record::{InterruptedBy, NameState, NodeState, PromptOutcome, PromptState};
use crate::registry::tests::counted;
use crate::registry::{Key, Table, Wanted};
use crate::request::{Accept, ActivationFailed, Ask, Change, Claimed, Marked, Owned, Ownership, Withdrawn};

promises! {
    "names of dead nodes are recovered in batches, and names of living ones are left alone" => batches,
    "a turn that is recovered ends as interrupted, or goes on with its continuation" => turns,
    "a recovery quarantines a name that has lost too many owners in a row" => losses,
    "names of a dead node are recovered although the prompt of one's turn cannot be read" => unreadable_turn,
    "a name whose record one node could not read is taken from the counts once" => counted_once,
    "a lost owner is fenced after its name was recovered" => fenced,
    "a process is recorded by its owner and removed with the release" => recorded,
    "the process of a lost owner stays recorded until it has ended" => left,
    "the left processes of one name are listed by its name" => left_of,
    "the process of a living owner is no left one" => living,
    "each transition is told once, with its name and its tenant" => transitions,
}

async fn batches(stage: Stage) -> Checked {
    let (first, second) = (stage.short_lived_node().await?, stage.short_lived_node().await?);
    for (node, to) in [(first, "a"), (second, "b"), (second, "c")] {
        stage.prompt(to, "hello").await?;
        stage.own_by(node, to).await?;
    }
    stage.prompt("lives", "hello").await?;
    stage.own("lives").await?;
    same("names that are recovered of living nodes", stage.backend.recover(10, 3).await?, Vec::new())?;
    stage.kill(first).await?;
    stage.kill(second).await?;
    let mut changes = stage.backend.changes();
    let mut names = stage.backend.recover(2, 3).await?;
    same("the length of a full batch", names.len(), 2)?;
    names.extend(stage.backend.recover(2, 3).await?);
    names.sort();
    same("the names", names, vec![name("a"), name("b"), name("c")])?;
    same("names that are left", stage.backend.recover(2, 3).await?, Vec::new())?;
    match changes.recv().await {
        Ok(Change::Freed(_)) => {}
        other => return unexpected("the change", other),
    }
    for to in ["a", "b", "c"] {
        let record = stage.backend.name_record(name(to)).await?;
        same("the state", record.map(|record| record.state), Some(NameState::Free))?;
    }
    let nodes = stage.backend.nodes(None, 10).await?;
    same("nodes", nodes.into_iter().map(|node| (node.id, node.owns)).collect(), vec![(stage.node, 1)])
}

async fn turns(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let (ends, prompt, _) = stage.running(node, "ends").await?;
    let continues = stage.accepted(accept_with_continuation("continues")).await?;
    let owner = stage.own_by(node, "continues").await?;
    stage.begin(&owner, continues).await?;
    stage.kill(node).await?;
    same("the number of recovered names", stage.backend.recover(10, 3).await?.len(), 2)?;
    let lost = PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { term: ends.term }, result: None };
    same("the outcome", stage.outcome(prompt).await?, Some(lost))?;
    let record = stage.backend.prompt_record(continues).await?;
    let state = record.map(|record| (record.state, record.begins));
    same("the prompt with a continuation", state, Some((PromptState::Queued, 1)))?;
    match stage.claim_by(stage.node, "continues").await? {
        Claimed::Won(record) => {
            same("the prompt that goes on", record.continues, Some(continues))?;
            same("losses", record.losses, 1)
        }
        other => unexpected("a recovered name is not won", other),
    }
}

async fn losses(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    stage.running(node, "a").await?;
    stage.kill(node).await?;
    same("the number of recovered names", stage.backend.recover(10, 1).await?.len(), 1)?;
    match stage.backend.name_record(name("a")).await?.map(|record| record.state) {
        Some(NameState::Quarantined { .. }) => Ok(()),
        other => unexpected("the state of a name that has lost one owner of one", other),
    }
}

async fn unreadable_turn(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let (_, prompt, _) = stage.running(node, "a").await?;
    stage.running(node, "b").await?;
    damage(&stage, [Key::of(Table::Prompts).prompt(prompt)]).await?;
    stage.kill(node).await?;
    same("the recovered names", stage.backend.recover(10, 3).await?, vec![name("a"), name("b")])?;
    for to in ["a", "b"] {
        let record = stage.backend.name_record(name(to)).await?;
        let seen = record.map(|record| (record.state, record.running));
        same("the name", seen, Some((NameState::Free, None)))?;
    }
    Ok(())
}

async fn counted_once(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    stage.prompt("a", "hello").await?;
    stage.own_by(node, "a").await?;
    stage.kill(node).await?;
    let key = Key::of(Table::Names).name(&name("a"));
    let wanted = Wanted { keys: [key.bytes().to_vec()].into(), ..Wanted::default() };
    let values = stage.backend.read(Lane::Requests, wanted).await?.values;
    damage(&stage, [key]).await?;
    same("the recovered names", stage.backend.recover(10, 3).await?, vec![name("a")])?;
    // Another node can read the record.
    let mended = Commit { writes: values.into_iter().collect(), ..Commit::default() };
    same("the commit", stage.backend.commit(Lane::Requests, mended).await?, Committed::Done)?;
    stage.own("a").await?;
    same("live sessions", stage.backend.tenant(tenant("acme")).await?.live, 1)?;
    let nodes = stage.backend.nodes(None, 10).await?;
    same("nodes", nodes.into_iter().map(|node| (node.id, node.owns)).collect(), vec![(stage.node, 1)])
}

async fn fenced(stage: Stage) -> Checked {
    let node = stage.short_lived_node().await?;
    let (owner, ..) = stage.running(node, "a").await?;
    stage.kill(node).await?;
    stage.backend.recover(10, 3).await?;
    same(
        "a failed activation",
        stage.backend.activation_failed(failed(owner.clone())).await?,
        Owned::Fenced,
    )?;
    same("a release", stage.backend.release(owner).await?, Owned::Fenced)
}

async fn recorded(stage: Stage) -> Checked {
    for end in ["release", "failed activation", "end of the process"] {
        stage.prompt("a", "hello").await?;
        let owner = stage.own("a").await?;
        record(&stage, &owner, 1).await?;
        record(&stage, &owner, 2).await?;
        match end {
            "release" => drop(stage.backend.release(owner).await?),
            "failed activation" => drop(stage.backend.activation_failed(failed(owner)).await?),
            _ => {
                let none = stage.backend.record_process(owner.clone(), None).await?;
                same("the answer to the end of a process", none, Owned::Done(()))?;
                stage.backend.leave(stage.node).await?;
                let late = stage.backend.record_process(owner, None).await?;
                same("a record of a dead node", late, Owned::Fenced)?;
            }
        }
        same(end, stage.backend.left_processes(10).await?, Vec::new())?;
    }
    Ok(())
}

fn failed(owner: Ownership) -> ActivationFailed {
    ActivationFailed { owner, why: String::new(), counted: counted(LEASE, 9) }
}

async fn left(stage: Stage) -> Checked {
    let mut expected = Vec::new();
    for process in [7, 8] {
        let node = stage.short_lived_node().await?;
        stage.prompt("a", "hello").await?;
        let owner = stage.own_by(node, "a").await?;
        record(&stage, &owner, process).await?;
        stage.kill(node).await?;
        expected.push((owner.term, node, json!({ "pid": process })));
    }
    stage.backend.recover(10, 3).await?;
    let owner = stage.own("a").await?;
    record(&stage, &owner, 9).await?;
    same("a left process", seen(&stage, 1).await?, expected[..1].to_vec())?;
    same("left processes", seen(&stage, 10).await?, expected.clone())?;
    let _: Owned<bool> = stage.backend.release(owner).await?;
    for at in 0..2 {
        same("left processes", seen(&stage, 10).await?, expected[at..].to_vec())?;
        for what in ["the answer", "the repeated answer"] {
            same(what, stage.backend.process_ended(name("a"), expected[at].0).await?, true)?;
        }
    }
    same("left processes at the end", stage.backend.left_processes(10).await?, Vec::new())
}

async fn left_of(stage: Stage) -> Checked {
    let mut expected = Vec::new();
    for (process, to) in [(7, "a"), (8, "a"), (9, "a\0"), (10, "b")] {
        let node = stage.short_lived_node().await?;
        stage.prompt(to, "hello").await?;
        let owner = stage.own_by(node, to).await?;
        record(&stage, &owner, process).await?;
        stage.kill(node).await?;
        expected.push((owner.term, node, json!({ "pid": process })));
    }
    stage.backend.recover(10, 3).await?;
    let owner = stage.own("a").await?;
    record(&stage, &owner, 11).await?;
    for (to, expected) in [("a", &expected[..2]), ("a\0", &expected[2..3]), ("c", &[])] {
        let left = stage.backend.left_processes_of(name(to)).await?;
        let left: Vec<_> = left.into_iter().map(|left| (left.term, left.node, left.process)).collect();
        same(to, left, expected.to_vec())?;
    }
    same("the end", stage.backend.process_ended(name("a"), expected[0].0).await?, true)?;
    same("what is left", stage.backend.left_processes_of(name("a")).await?.len(), 1)
}

async fn living(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    let owner = stage.own("a").await?;
    record(&stage, &owner, 7).await?;
    same("left processes", stage.backend.left_processes(10).await?, Vec::new())?;
    same("the end of it", stage.backend.process_ended(owner.name.clone(), owner.term).await?, false)?;
    stage.backend.leave(stage.node).await?;
    same("left processes of a node that left", stage.backend.left_processes(10).await?.len(), 1)?;
    let nodes = stage.backend.nodes(None, 10).await?;
    same("the node's state", nodes.first().map(|node| node.state), Some(NodeState::Dead))
}

async fn transitions(stage: Stage) -> Checked {
    let mut transitions = stage.backend.transitions();
    let ended = |to: &str, prompt, outcome| FleetEvent::Ended { name: name(to), prompt, outcome };
    let node = stage.short_lived_node().await?;
    let (_, lost_prompt, _) = stage.running(node, "lost").await?;
    let deleted = stage.prompt("lost", "hello").await?;
    let goes_on = stage.accepted(accept_with_continuation("goes on")).await?;
    let first_node = stage.short_lived_node().await?;
    let owner = stage.own_by(first_node, "goes on").await?;
    stage.begin(&owner, goes_on).await?;
    let (fails, done_prompt, attempt) = stage.running(stage.node, "fails").await?;
    let question = QuestionId::new();
    let (owner, body, wait) = (fails.clone(), json!({}), LEASE);
    let ask = Ask { owner, question, prompt: done_prompt, wait, call: None, body };
    let _: Owned<_> = stage.backend.ask(ask).await?;
    stage.complete(&fails, done_prompt, attempt).await?;
    let failed = ActivationFailed { owner: fails, why: "no CLI".to_owned(), counted: counted(LEASE, 1) };
    for _ in 0..2 {
        let _: Owned<_> = stage.backend.activation_failed(failed.clone()).await?;
    }
    for _ in 0..2 {
        stage.backend.unquarantine(name("fails")).await?;
    }
    let withdrawn = stage.prompt("a", "hello").await?;
    for _ in 0..2 {
        let _: Withdrawn = stage.backend.withdraw(withdrawn).await?;
    }
    let expired = stage.accepted(Accept { wait: Duration::ZERO, ..accept("a", "hello") }).await?;
    for _ in 0..2 {
        stage.backend.expire_prompts(10).await?;
    }
    stage.kill(first_node).await?;
    stage.backend.recover(10, 3).await?;
    stage.kill(node).await?;
    stage.backend.recover(10, 1).await?;
    for _ in 0..2 {
        let _: Marked = stage.backend.delete(name("lost")).await?;
        stage.deleted("lost").await?;
    }
    stage.prompt("last", "hello").await?;

    let mut made = Vec::new();
    loop {
        match transitions.recv().await {
            Ok(FleetEvent::Accepted { name: last, .. }) if last == name("last") => break,
            Ok(transition) => made.push(transition),
            Err(error) => return unexpected("a transition is missing", error),
        }
    }
    let mut quarantined = Vec::new();
    // The texts of reasons are the backend's own.
    made.retain(|transition| match transition {
        FleetEvent::Quarantined { name, why, .. } => {
            quarantined.push((name.clone(), why.is_empty()));
            false
        }
        _ => true,
    });
    let accepted = [
        ("lost", lost_prompt),
        ("goes on", goes_on),
        ("fails", done_prompt),
        ("a", withdrawn),
        ("a", expired),
        ("lost", deleted),
    ];
    let mut expected = vec![
        ended("fails", done_prompt, "completed"),
        FleetEvent::Asked { name: name("fails"), prompt: done_prompt, question },
        FleetEvent::Decided { name: name("fails"), prompt: done_prompt, question },
        FleetEvent::Unquarantined { name: name("fails") },
        ended("a", withdrawn, "unsent"),
        ended("a", expired, "unsent"),
        ended("lost", lost_prompt, "interrupted"),
        ended("lost", deleted, "unsent"),
        FleetEvent::Deleting { name: name("lost") },
        FleetEvent::Deleted { name: name("lost") },
        FleetEvent::Continues { name: name("goes on"), prompt: goes_on },
        FleetEvent::Recovered { name: name("goes on") },
    ];
    expected.extend(accepted.map(|(to, prompt)| FleetEvent::Accepted { name: name(to), prompt }));
    for transition in &expected {
        let told = made.iter().filter(|made| *made == transition).count();
        same(&format!("how often this was told: {transition:?}"), told, 1)?;
    }
    same("the number of transitions", made.len(), expected.len())?;
    let both = ["fails", "lost"].map(|to| (name(to), false));
    same("the names that were quarantined", quarantined, both.to_vec())
}

async fn record(stage: &Stage, owner: &Ownership, pid: u32) -> Checked {
    let process = Some(json!({ "pid": pid }));
    let answer = stage.backend.record_process(owner.clone(), process).await?;
    same("the answer to a record of a process", answer, Owned::Done(()))
}

async fn seen(stage: &Stage, limit: usize) -> Checked<Vec<(Term, NodeId, serde_json::Value)>> {
    let left = stage.backend.left_processes(limit).await?;
    Ok(left.into_iter().map(|left| (left.term, left.node, left.process)).collect())
}
