//! A tenant moves to another database, with the statements of the guide.

#![allow(clippy::disallowed_methods, reason = "psql is no CLI of a session")]

use std::process::{Command, Stdio};

use greenroom_fleet::backend::Backend;
use greenroom_fleet::{
    Accept, Accepted, Append, AttemptId, Begin, Begun, Claim, Claimed, Finish, Join, Name, NodeId, Owned,
    Ownership, PromptContent, PromptId, PromptOutcome, QueueBounds,
};
use serde_json::json;

use crate::{connect, schema, server};

const HOUR: std::time::Duration = std::time::Duration::from_secs(3600);

/// Copies a tenant from one schema to another one of a database.
fn copy(address: &str, from: &str, to: &str) -> bool {
    run(address, 1, &[("moved.", from), ("greenroom_fleet.", to)])
}

/// Removes a tenant from a schema.
fn remove(address: &str, from: &str) -> bool {
    run(address, 2, &[("greenroom_fleet.", from)])
}

/// Runs statements of the guide for the tenant `acme`.
fn run(address: &str, block: usize, schemas: &[(&str, &str)]) -> bool {
    let guide = include_str!("../../../../docs/fleet-sharding.md");
    let statements = guide.split("```sql\n").nth(block).unwrap();
    let mut statements = statements.split("```").next().unwrap().to_owned();
    for (named, schema) in schemas {
        statements = statements.replace(named, &format!("{schema}."));
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, statements).unwrap();
    Command::new(server::program("psql"))
        .args(["-X", "-q", "-v", "tenant=acme", "-f"])
        .arg(file.path())
        .arg(address)
        .stdout(Stdio::null())
        .status()
        .unwrap()
        .success()
}

fn accept(name: &str, tenant: &str) -> Accept {
    Accept {
        prompt: PromptId::new(),
        name: Name::new(name).unwrap(),
        profile: "support".into(),
        tenant: tenant.into(),
        conversation: uuid::Uuid::new_v4(),
        host: None,
        key: Some("key".into()),
        content: PromptContent { prompt: json!("hello"), continuation: None },
        continuations: 0,
        not_before: None,
        wait: HOUR,
        bounds: QueueBounds { name: 10, tenant: 10, fleet: 10 },
        budget: None,
    }
}

async fn own(backend: &impl Backend, node: NodeId, name: &str) -> Ownership {
    let name = Name::new(name).unwrap();
    let claim = Claim { name: name.clone(), node, attempt: AttemptId::new(), losses: 3 };
    let Claimed::Won { record, .. } = backend.claim(claim).await.unwrap() else { panic!("not won") };
    Ownership { name, node, term: record.term }
}

/// Runs a turn, and returns its owner, who owns the name still.
async fn turn(backend: &impl Backend, node: NodeId, accept: Accept) -> Ownership {
    let (prompt, name) = (accept.prompt, accept.name.to_string());
    assert!(matches!(backend.accept(accept).await.unwrap(), Accepted::New(_)));
    let (owner, attempt) = (own(backend, node, &name).await, AttemptId::new());
    let begin = Begin { owner: owner.clone(), prompt, attempt, reserve: None };
    assert!(matches!(backend.begin(begin).await.unwrap(), Owned::Done(Begun::Send(_))));
    let messages = vec!["1".to_owned(), "2".to_owned()];
    let append = Append { owner: owner.clone(), prompt, first_seq: 1, messages, bound: 1000 };
    assert!(backend.append(append).await.unwrap().done().is_some());
    let outcome = PromptOutcome::Completed { result: json!("done"), transcript_lost: false };
    let finish = Finish { owner: owner.clone(), prompt, attempt, outcome, cost: 0, quarantine: None };
    assert!(backend.finish(finish).await.unwrap().done().is_some());
    owner
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_moves_to_another_database_by_the_statements_of_the_guide() {
    let Some(address) = server::address() else { return };
    let (from, to) = (schema(), schema());
    let (old, new) = (connect(&address, &from).await, connect(&address, &to).await);
    let node = NodeId::new();
    for backend in [&old, &new] {
        backend.join(Join { node, host: "here".into(), lease: HOUR, capacity: 8 }).await.unwrap();
    }
    // The old fleet has used many terms.
    for _ in 0..5 {
        let accept = Accept { key: None, ..accept("stays", "other") };
        let owner = turn(&old, node, accept).await;
        assert!(old.release(owner).await.unwrap().done().is_some());
    }
    let moves = accept("moves", "acme");
    let owner = turn(&old, node, moves.clone()).await;
    assert!(!copy(&address, &from, &to), "a session that is awake has moved");
    assert!(new.names(Default::default()).await.unwrap().is_empty());
    assert!(old.release(owner.clone()).await.unwrap().done().is_some());
    assert!(copy(&address, &from, &to));

    let (before, after) = (old.name_record(owner.name.clone()), new.name_record(owner.name.clone()));
    assert_eq!(after.await.unwrap(), before.await.unwrap());
    assert_eq!(new.name_record(Name::new("stays").unwrap()).await.unwrap(), None);
    assert_eq!(new.messages(moves.prompt, 0, 10).await.unwrap().len(), 2);
    assert_eq!(new.outcome(moves.prompt).await.unwrap(), old.outcome(moves.prompt).await.unwrap());
    let again = Accept { prompt: PromptId::new(), ..moves.clone() };
    let Accepted::Duplicate(found) = new.accept(again).await.unwrap() else { panic!("the key is lost") };
    assert_eq!(found.id, moves.prompt);
    let next = turn(&new, node, Accept { prompt: PromptId::new(), key: None, ..moves }).await;
    assert!(next.term > owner.term, "{} is no later term than {}", next.term, owner.term);

    assert!(remove(&address, &from));
    assert_eq!(old.name_record(owner.name).await.unwrap(), None);
    assert_eq!(old.prompt_record(found.id).await.unwrap(), None);
    assert!(old.name_record(Name::new("stays").unwrap()).await.unwrap().is_some());
    old.close().await;
    new.close().await;
}
