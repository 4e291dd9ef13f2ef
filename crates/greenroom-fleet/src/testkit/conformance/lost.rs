//! Promises about what lost owners leave behind: names, and processes.

use serde_json::json;

use super::stage::{Checked, LEASE, Stage, accept_with_continuation, name, promises, same, unexpected};
use crate::id::{NodeId, Term};
use crate::record::{InterruptedBy, NameState, NodeState, PromptOutcome, PromptState};
use crate::request::{ActivationFailed, Change, Claimed, Owned, Ownership};

promises! {
    "names of dead nodes are recovered in batches, and names of living ones are left alone" => batches,
    "a turn that is recovered ends as interrupted, or goes on with its continuation" => turns,
    "a recovery quarantines a name that has lost too many owners in a row" => losses,
    "a lost owner is fenced after its name was recovered" => fenced,
    "a process is recorded by its owner and removed with the release" => recorded,
    "the process of a lost owner stays recorded until it has ended" => left,
    "the process of a living owner is no left one" => living,
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
    let nodes = stage.backend.nodes().await?;
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
        Claimed::Won { record, continues: first } => {
            same("the prompt that goes on", first, Some(continues))?;
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
    ActivationFailed { owner, why: String::new(), period: LEASE, intensity: 9 }
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

async fn living(stage: Stage) -> Checked {
    stage.prompt("a", "hello").await?;
    let owner = stage.own("a").await?;
    record(&stage, &owner, 7).await?;
    same("left processes", stage.backend.left_processes(10).await?, Vec::new())?;
    same("the end of it", stage.backend.process_ended(owner.name.clone(), owner.term).await?, false)?;
    stage.backend.leave(stage.node).await?;
    same("left processes of a node that left", stage.backend.left_processes(10).await?.len(), 1)?;
    let nodes = stage.backend.nodes().await?;
    same("the node's state", nodes.first().map(|node| node.state), Some(NodeState::Dead))
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
