//! A node of a user who does not own the schema, with the statements of the guide.

use std::time::Duration;

use greenroom::store::{SessionKey, SessionStore};
use greenroom_fleet::backend::{PostgresBackend, PostgresOptions};
use greenroom_fleet::{BackendErrorKind, Transcripts};
use serde_json::json;
use sqlx::Executor;

use crate::fleet::{answer, node};
use crate::{connect, schema, server};

/// The statements of the guide, for another database, schema and user.
fn statements(database: &str, schema: &str, user: &str) -> String {
    let guide = include_str!("../../../../docs/fleet-postgres.md");
    let statements = guide.split("```sql\n").nth(1).unwrap().split("```").next().unwrap();
    statements
        .replace("DATABASE fleet ", &format!("DATABASE {database} "))
        .replace("greenroom_fleet", schema)
        .replace("fleet_node", user)
}

/// The address of the same database, for another user.
fn for_user(address: &str, user: &str) -> String {
    let (_, place) = address.split_once('@').unwrap();
    format!("postgres://{user}:secret@{place}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_the_rights_of_the_guide_runs_a_node() {
    let Some(address) = server::address() else { return };
    let (schema, folder) = (schema(), tempfile::tempdir().unwrap());
    let user = format!("node_of_{schema}");
    let theirs = for_user(&address, &user);
    let mut owner = server::raw(&address).await;
    server::run(&mut owner, &format!("CREATE ROLE {user} LOGIN PASSWORD 'secret'")).await;
    let refused = async || {
        let mut options = PostgresOptions::new(&theirs);
        options.connect_timeout = crate::wait::SOON;
        options.schema = schema.clone();
        PostgresBackend::connect(options).await.unwrap_err().kind()
    };
    assert_eq!(refused().await, BackendErrorKind::Damaged, "the user made the schema");
    connect(&address, &schema).await.close().await;
    assert_eq!(refused().await, BackendErrorKind::Damaged, "the user has rights before they are granted");

    // Everybody may call a new routine, unless the owner has other defaults.
    let strict = format!("REVOKE EXECUTE ON ALL ROUTINES IN SCHEMA {schema} FROM PUBLIC");
    server::run(&mut owner, &strict).await;
    let database: String =
        sqlx::query_scalar("SELECT current_database()::text").fetch_one(&mut owner).await.unwrap();
    server::run(&mut owner, &statements(&database, &schema, &user)).await;

    let fleet = node(&theirs, &schema, folder.path(), "done").await;
    assert_eq!(answer(&fleet, "a", "hello").await, "done");
    fleet.tenant("default").unwrap().session("a").unwrap().delete().await.unwrap();
    fleet.drain(Duration::from_secs(20)).await;
    let backend = connect(&theirs, &schema).await;
    let (store, key) = (Transcripts::of(backend.clone()), SessionKey::new("project", "session"));
    let entry = json!({ "type": "user", "uuid": "one" }).try_into().unwrap();
    SessionStore::append(&store, &key, &[entry]).await.unwrap();
    assert_eq!(SessionStore::load(&store, &key).await.unwrap().unwrap().len(), 1);
    store.delete(&key).await.unwrap();
    backend.close().await;

    // A later version of the schema adds to it.
    let later = format!(
        "CREATE TABLE {schema}.later (id bigserial); \
         CREATE FUNCTION {schema}.later() RETURNS integer LANGUAGE sql AS 'SELECT 1'; \
         REVOKE EXECUTE ON FUNCTION {schema}.later() FROM PUBLIC"
    );
    server::run(&mut owner, &later).await;
    let mut theirs = server::raw(&theirs).await;
    let uses = format!(
        "INSERT INTO {schema}.later DEFAULT VALUES; UPDATE {schema}.later SET id = {schema}.later(); DELETE FROM {schema}.later"
    );
    server::run(&mut theirs, &uses).await;
    for forbidden in [
        format!("CREATE TABLE {schema}.forbidden ()"),
        format!("DROP FUNCTION {schema}.later()"),
        format!("DELETE FROM {schema}.migrations"),
    ] {
        let error = theirs.execute(forbidden.as_str()).await.unwrap_err();
        let code = error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned());
        assert_eq!(code.as_deref(), Some("42501"), "{forbidden}: {error}");
    }
    server::run(&mut owner, &format!("DROP OWNED BY {user}; DROP ROLE {user}")).await;
}
