//! Transcripts in PostgreSQL.

use greenroom::sessions::TranscriptEntry;
use greenroom::store::SessionKey;
use greenroom::testkit::store_conformance;
use greenroom_fleet::backend::PostgresStore;
use serde_json::json;

use crate::{connect, schema, server};

fn entry(uuid: &str) -> TranscriptEntry {
    json!({ "type": "user", "uuid": uuid }).try_into().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_in_postgres_keeps_the_promises() {
    let Some(address) = server::address() else { return };
    let make = async || PostgresStore::of(&connect(&address, &schema()).await);
    let kept = store_conformance(make).await.unwrap();
    assert!(kept.contains(&"a session is deleted with its parts, and nothing else"), "{kept:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transcript_of_many_pages_comes_back_whole_and_is_deleted() {
    use greenroom::store::SessionStore;
    let Some(address) = server::address() else { return };
    let store = PostgresStore::of(&connect(&address, &schema()).await);
    let key = SessionKey::new("project", "1cb85d28-3d2d-4b39-bd1c-0f6c0bd52b37");
    let entries: Vec<_> = (0..5_000).map(|number| entry(&number.to_string())).collect();
    SessionStore::append(&store, &key, &entries).await.unwrap();
    assert_eq!(SessionStore::load(&store, &key).await.unwrap().unwrap(), entries);
    store.delete(&key).await.unwrap();
    assert_eq!(SessionStore::load(&store, &key).await.unwrap(), None);
}
