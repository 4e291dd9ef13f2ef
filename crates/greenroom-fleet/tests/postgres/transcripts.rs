//! Transcripts in PostgreSQL.

use std::time::Duration;

use greenroom::sessions::TranscriptEntry;
use greenroom::store::{SessionKey, SessionStore};
use greenroom_fleet::backend::Requests;
use greenroom_fleet::{
    AppendEntries, AttemptId, BackendErrorKind, Fleet, Marked, Owned, Ownership, Transcripts, TranscriptsOf,
};
use greenroom_testkit::store_conformance;
use serde_json::json;

use crate::nodes::{accepted, joined, owner};
use crate::remembering::Remembering;
use crate::wait::in_time;
use crate::{connect, schema, server};

fn entry(uuid: &str) -> TranscriptEntry {
    json!({ "type": "user", "uuid": uuid }).try_into().unwrap()
}

fn append_of(
    owner: &Ownership,
    attempt: AttemptId,
    key: &SessionKey,
    entries: Vec<TranscriptEntry>,
) -> AppendEntries {
    AppendEntries { owner: Some(owner.clone()), attempt, key: key.clone(), entries }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_in_postgres_keeps_the_promises() {
    let Some(address) = server::address() else { return };
    let make = async || Transcripts::of(connect(&address, &schema()).await);
    let kept = store_conformance(make).await.unwrap();
    assert!(kept.contains(&"a session is deleted with its parts, and nothing else"), "{kept:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transcript_of_many_pages_comes_back_whole_and_is_deleted() {
    let Some(address) = server::address() else { return };
    let store = Transcripts::of(connect(&address, &schema()).await);
    let key = SessionKey::new("project", "1cb85d28-3d2d-4b39-bd1c-0f6c0bd52b37");
    let entries: Vec<_> = (0..5_000).map(|number| entry(&number.to_string())).collect();
    store.append(&key, &entries).await.unwrap();
    assert_eq!(store.load(&key).await.unwrap().unwrap(), entries);
    store.delete(&key).await.unwrap();
    assert_eq!(store.load(&key).await.unwrap(), None);
}

/// Large entries are removed in several short requests: a single one would run into the statement timeout.
#[tokio::test(flavor = "multi_thread")]
async fn one_request_of_a_deletion_removes_a_bounded_number_of_bytes() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let backend = connect(&address, &schema).await;
    let key = SessionKey::new("project", "1cb85d28-3d2d-4b39-bd1c-0f6c0bd52b37");
    let text = "x".repeat(3 << 20);
    let entries: Vec<_> = (0..7)
        .map(|number| json!({ "uuid": number.to_string(), "text": text }).try_into().unwrap())
        .collect();
    Transcripts::of(backend.clone()).append(&key, &entries).await.unwrap();
    let mut plain = server::raw(&address).await;
    let mut left: Vec<i64> = Vec::new();
    while left.last() != Some(&0) {
        backend.delete_transcripts(TranscriptsOf::key(&key)).await.unwrap();
        let count = format!("SELECT count(*) FROM {schema}.rows WHERE get_byte(key, 0) = 32");
        left.push(sqlx::query_scalar(&count).fetch_one(&mut plain).await.unwrap());
    }
    assert_eq!(
        left,
        [7, 4, 1, 0],
        "the transcript is taken out of sight, then every third entry reaches 8 MiB"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_of_an_owner_of_an_earlier_term_writes_nothing() {
    let Some(address) = server::address() else { return };
    let backend = connect(&address, &schema()).await;
    let store = Transcripts::of(backend.clone());
    accepted(&backend, "a").await;
    let (first, second) = (joined(&backend).await, joined(&backend).await);
    let earlier = owner(&backend, first, "a").await;
    let conversation = backend.name_record(earlier.name.clone()).await.unwrap().unwrap().conversation;
    let key = SessionKey::new(conversation.to_string(), conversation.to_string());
    let append = async |owner: &Ownership, attempt: AttemptId, uuid: &str| {
        let entries = [entry(uuid), json!({ "type": "tag" }).try_into().unwrap()];
        backend.append_entries(append_of(owner, attempt, &key, entries.into())).await
    };
    let attempt = AttemptId::new();
    assert_eq!(append(&earlier, attempt, "one").await.unwrap(), Owned::Done(()));
    // The reply was lost: the entry without a uuid is not written twice.
    assert_eq!(append(&earlier, attempt, "one").await.unwrap(), Owned::Done(()));
    assert_eq!(store.load(&key).await.unwrap().unwrap().len(), 2);

    backend.leave(first).await.unwrap();
    let later = owner(&backend, second, "a").await;
    assert_eq!(append(&earlier, AttemptId::new(), "two").await.unwrap(), Owned::Fenced);
    assert_eq!(append(&later, AttemptId::new(), "three").await.unwrap(), Owned::Done(()));
    let other = SessionKey::new("another conversation", "s");
    let wrong = append_of(&later, attempt, &other, vec![entry("x")]);
    let error = backend.append_entries(wrong).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Invalid, "{error}");

    backend.release(later.clone()).await.unwrap().done().unwrap();
    assert!(matches!(backend.delete(later.name.clone()).await.unwrap(), Marked::Done));
    let of = TranscriptsOf::project(conversation.to_string());
    for _ in 0..2 {
        while !backend.delete_transcripts(of.clone()).await.unwrap() {}
    }
    assert_eq!(append(&later, AttemptId::new(), "four").await.unwrap(), Owned::Fenced);
    assert_eq!(store.load(&key).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_moves_between_hosts_after_a_drain() {
    let Some(address) = server::address() else { return };
    let (schema, clis) = (schema(), Remembering::default());
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let node = async |host: usize| {
        let (backend, clis) = (connect(&address, &schema).await, clis.clone());
        // Its CLIs are scripted ones in this process.
        let fleet = Fleet::builder()
            .without_watchdog()
            .backend(backend)
            .host(format!("host-{host}"))
            .folder(folders[host].path())
            .profile("default", move |_| clis.session());
        fleet.start().await.unwrap()
    };
    let asks = async |fleet: &Fleet, text: &str| {
        let mut turn = fleet.tenant("default").unwrap().session("a").unwrap().prompt(text).await.unwrap();
        let outcome = in_time("the turn", turn.outcome()).await.unwrap();
        outcome.text().unwrap_or_else(|| panic!("{outcome:?}")).to_owned()
    };
    let (first, second) = (node(0).await, node(1).await);
    assert_eq!(asks(&first, "green").await, "green");
    first.drain(Duration::from_secs(20)).await;
    assert_eq!(asks(&second, "which?").await, "green, which?");
    second.tenant("default").unwrap().session("a").unwrap().delete().await.unwrap();
    assert_eq!(asks(&second, "anew").await, "anew");
    second.drain(Duration::from_secs(20)).await;
}
