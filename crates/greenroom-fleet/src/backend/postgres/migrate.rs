//! The schema, and its versions.
//!
//! Many nodes may start at once: whoever has the lock of the schema's name brings the schema to this version, the others wait.
//! Nodes of earlier versions go on with a later schema as long as its `min_version` allows them.

use sqlx::{Connection, Executor, PgConnection, Row};
use uuid::Uuid;

use super::error;
use crate::error::{BackendError, BackendErrorKind};
use crate::registry::Result;

/// The statements that make each version of the schema from the one before, and the earliest version of a program that can work with it.
const STEPS: [(&str, i32); 1] = [(include_str!("schema.sql"), 1)];

/// The version of the schema that this code makes.
const VERSION: i32 = STEPS.len() as i32;

/// Brings the schema to this version. `schema` needs no quotes. Answers with the id of the channel for hints.
pub(super) async fn migrate(connection: &mut PgConnection, schema: &str) -> Result<Uuid> {
    let (mut version, mut least) = known(connection, schema).await.map_err(error::of_request)?;
    if version < VERSION {
        make(connection, schema).await.map_err(error::of_request)?;
        (version, least) = known(connection, schema).await.map_err(error::of_request)?;
    }
    if least > VERSION {
        let message = format!(
            "the schema {schema} has version {version} and needs programs of version {least} at least, and this program has \
             version {VERSION}: use a later version of greenroom-fleet"
        );
        return Err(BackendError::new(BackendErrorKind::Version, message));
    }
    // As text: the driver is built without types of ids.
    let channel = format!("SELECT id::text FROM {schema}.hints");
    let channel = sqlx::query_scalar::<_, String>(&channel).fetch_one(connection).await;
    let channel = channel.map_err(error::of_request)?;
    channel.parse().map_err(BackendError::damaged)
}

/// Makes the steps that are missing.
async fn make(connection: &mut PgConnection, schema: &str) -> sqlx::Result<()> {
    let mut transaction = connection.begin().await?;
    let prepare = format!(
        "SET LOCAL lock_timeout = '30s'; SET LOCAL statement_timeout = '30s'; \
         SELECT pg_advisory_xact_lock(hashtextextended('greenroom {schema}', 0)); \
         CREATE SCHEMA IF NOT EXISTS {schema}; \
         CREATE TABLE IF NOT EXISTS {schema}.migrations (version integer PRIMARY KEY, min_version integer NOT NULL); \
         SET LOCAL search_path = {schema}, pg_temp; SET LOCAL check_function_bodies = off"
    );
    transaction.execute(prepare.as_str()).await?;
    let (known, _) = known(&mut transaction, schema).await?;
    for ((statements, least), version) in STEPS.iter().zip(1_i32..).skip(usize::try_from(known).unwrap_or(0))
    {
        transaction.execute(*statements).await?;
        let note = format!("INSERT INTO {schema}.migrations VALUES ({version}, {least})");
        transaction.execute(note.as_str()).await?;
    }
    transaction.commit().await
}

/// The version of the schema that is there, and the earliest version of a program that can work with it. Zero: there is none.
async fn known(connection: &mut PgConnection, schema: &str) -> sqlx::Result<(i32, i32)> {
    let there = sqlx::query("SELECT to_regclass($1) IS NOT NULL").bind(format!("{schema}.migrations"));
    if !there.fetch_one(&mut *connection).await?.try_get::<bool, _>(0)? {
        return Ok((0, 0));
    }
    let newest =
        format!("SELECT version, min_version FROM {schema}.migrations ORDER BY version DESC LIMIT 1");
    let newest = sqlx::query(&newest).fetch_optional(&mut *connection).await?;
    newest.map_or(Ok((0, 0)), |row| Ok((row.try_get(0)?, row.try_get(1)?)))
}
