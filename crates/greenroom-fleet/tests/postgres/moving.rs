//! A tenant moves to another database, with the statements of the guide.

#![allow(clippy::disallowed_methods, reason = "psql is no CLI of a session")]

use std::process::{Command, Stdio};

use greenroom::store::SessionKey;
use greenroom_fleet::backend::{Backend, PostgresBackend, PostgresStore};
use greenroom_fleet::{
    Accept, Accepted, Append, AttemptId, Begin, Begun, Claim, Claimed, Finish, Join, Name, NodeId, Owned,
    Ownership, PromptContent, PromptId, PromptOutcome, QueueBounds, TranscriptStore,
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

/// The transcripts of a conversation: the session's own one, and one of a subagent.
fn keys(conversation: uuid::Uuid) -> [SessionKey; 2] {
    let own = SessionKey::new(conversation.to_string(), conversation.to_string());
    [own.clone(), own.with_subpath("subagents/agent-1")]
}

/// Appends entries with these ids to both transcripts of a conversation.
async fn remember(backend: &PostgresBackend, owner: &Ownership, conversation: uuid::Uuid, uuids: &[&str]) {
    let entry = |uuid: &&str| json!({ "type": "user", "uuid": uuid }).try_into().unwrap();
    let (store, entries) = (PostgresStore::of(backend), uuids.iter().map(entry).collect::<Vec<_>>());
    for key in keys(conversation) {
        let appended = TranscriptStore::append(&store, owner, AttemptId::new(), &key, &entries);
        assert_eq!(appended.await.unwrap(), Owned::Done(()));
    }
}

/// The ids of the entries of both transcripts of a conversation; none for a transcript that is not there.
async fn remembered(backend: &PostgresBackend, conversation: uuid::Uuid) -> [Vec<String>; 2] {
    let (store, mut found) = (PostgresStore::of(backend), [vec![], vec![]]);
    for (key, found) in keys(conversation).iter().zip(&mut found) {
        let entries = TranscriptStore::load(&store, key).await.unwrap().unwrap_or_default();
        found.extend(entries.iter().map(|entry| entry.uuid().unwrap().to_owned()));
    }
    found
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
    let stays = accept("stays", "other");
    for turns in 0..5 {
        let accept = Accept { prompt: PromptId::new(), key: None, ..stays.clone() };
        let owner = turn(&old, node, accept).await;
        if turns == 0 {
            remember(&old, &owner, stays.conversation, &["stays"]).await;
        }
        assert!(old.release(owner).await.unwrap().done().is_some());
    }
    let moves = accept("moves", "acme");
    let owner = turn(&old, node, moves.clone()).await;
    remember(&old, &owner, moves.conversation, &["one", "two"]).await;
    // The new fleet has a transcript with the number of one that moves.
    let known = accept("known", "other");
    let knows = turn(&new, node, known.clone()).await;
    remember(&new, &knows, known.conversation, &["known"]).await;
    assert!(!copy(&address, &from, &to), "a session that is awake has moved");
    assert_eq!(new.name_record(owner.name.clone()).await.unwrap(), None);
    assert_eq!(remembered(&new, moves.conversation).await, [[""; 0]; 2]);
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
    assert_eq!(remembered(&new, moves.conversation).await, [["one", "two"]; 2]);
    let next = turn(&new, node, Accept { prompt: PromptId::new(), key: None, ..moves.clone() }).await;
    assert!(next.term > owner.term, "{} is no later term than {}", next.term, owner.term);
    // An entry that is there already is written once.
    remember(&new, &next, moves.conversation, &["two", "three"]).await;
    assert_eq!(remembered(&new, moves.conversation).await, [["one", "two", "three"]; 2]);
    assert_eq!(remembered(&new, known.conversation).await, [["known"]; 2]);

    assert!(remove(&address, &from));
    assert_eq!(old.name_record(owner.name).await.unwrap(), None);
    assert_eq!(old.prompt_record(found.id).await.unwrap(), None);
    assert!(old.name_record(Name::new("stays").unwrap()).await.unwrap().is_some());
    assert_eq!(remembered(&old, moves.conversation).await, [[""; 0]; 2]);
    assert_eq!(remembered(&old, stays.conversation).await, [["stays"]; 2]);
    old.close().await;
    new.close().await;
}
