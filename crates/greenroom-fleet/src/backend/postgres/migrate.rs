//! The schema, and its versions.
//!
//! Many nodes may start at once: whoever has the lock on the table `migrations` brings the schema to this version, the others wait.
//! Nodes of earlier versions go on with a later schema as long as its `min_version` allows them.

use std::time::Duration;

use sqlx::{Connection, Executor, PgConnection, Row};

use super::error;
use crate::error::{BackendError, BackendErrorKind};
use crate::registry::Result;

/// The statements that make each version of the schema from the one before, and the earliest version of a program that can work with it.
const STEPS: [(&str, i32); 1] = [(include_str!("schema.sql"), 1)];

/// The version of the schema that this code makes.
const VERSION: i32 = STEPS.len() as i32;

/// Attempts to make the schema while other nodes make it, and the pause between them.
const ATTEMPTS: u32 = 40;
const PAUSE: Duration = Duration::from_millis(250);

/// Brings the schema to this version. `schema` is quoted.
pub(super) async fn migrate(connection: &mut PgConnection, schema: &str) -> Result<()> {
    let mut attempts = 1;
    loop {
        match attempt(connection, schema).await {
            Ok(done) => return done,
            Err(error) if error::is_race(&error) && attempts < ATTEMPTS => {
                attempts += 1;
                tokio::time::sleep(super::connection::spread(PAUSE)).await;
            }
            Err(error) => return Err(error::of_request(error)),
        }
    }
}

async fn attempt(connection: &mut PgConnection, schema: &str) -> sqlx::Result<Result<()>> {
    if let Some(known) = known(connection, schema).await? {
        return Ok(known);
    }
    let mut transaction = connection.begin().await?;
    let prepare = format!(
        "SET LOCAL lock_timeout = '1s'; SET LOCAL statement_timeout = '30s'; \
         CREATE SCHEMA IF NOT EXISTS {schema}; \
         CREATE TABLE IF NOT EXISTS {schema}.migrations (version integer PRIMARY KEY, min_version integer NOT NULL); \
         LOCK TABLE {schema}.migrations IN ACCESS EXCLUSIVE MODE"
    );
    transaction.execute(prepare.as_str()).await?;
    let version = format!("SELECT coalesce(max(version), 0) FROM {schema}.migrations");
    let known_version: i32 = sqlx::query(&version).fetch_one(&mut *transaction).await?.try_get(0)?;
    let begin = format!("SET LOCAL search_path = {schema}, pg_temp; SET LOCAL check_function_bodies = off");
    transaction.execute(begin.as_str()).await?;
    for ((statements, least), version) in
        STEPS.iter().zip(1..).filter(|(_, version)| *version > known_version)
    {
        transaction.execute(*statements).await?;
        let note = format!("INSERT INTO {schema}.migrations VALUES ({version}, {least})");
        transaction.execute(note.as_str()).await?;
    }
    transaction.commit().await?;
    Ok(known(connection, schema).await?.unwrap_or(Ok(())))
}

/// Whether this code can work with the schema that is there. `None`: there is none, or an older one.
async fn known(connection: &mut PgConnection, schema: &str) -> sqlx::Result<Option<Result<()>>> {
    let there = "SELECT to_regclass($1) IS NOT NULL";
    let there: bool = sqlx::query(there)
        .bind(format!("{schema}.migrations"))
        .fetch_one(&mut *connection)
        .await?
        .try_get(0)?;
    if !there {
        return Ok(None);
    }
    let newest =
        format!("SELECT version, min_version FROM {schema}.migrations ORDER BY version DESC LIMIT 1");
    let Some(row) = sqlx::query(&newest).fetch_optional(&mut *connection).await? else { return Ok(None) };
    let (version, least): (i32, i32) = (row.try_get(0)?, row.try_get(1)?);
    Ok(match () {
        () if least > VERSION => Some(Err(BackendError::new(
            BackendErrorKind::Version,
            format!(
                "the schema {schema} has version {version} and needs programs of version {least} at least, and this program has \
                 version {VERSION}: use a later version of greenroom-fleet"
            ),
        ))),
        () if version < VERSION => None,
        () => Some(Ok(())),
    })
}
