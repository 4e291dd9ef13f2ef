//! Connections: the first one, and how one is used for a request.

use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgPool, PgRow};
use sqlx::{Executor, PgConnection, Postgres, Row};

use super::error;
use crate::error::{BackendError, BackendErrorKind};
use crate::registry::Result;

/// Attempts to see a pooler that shares connections.
const LOOKS: usize = 4;

/// The time for a connection to go back to its pool. A connection that takes longer is closed.
const RETURN: Duration = Duration::from_secs(2);

/// A connection that carries out a statement. It is closed, and not given back, unless the statement has ended: a pool would wait for
/// the answer until the system gives the connection up, which takes a quarter of an hour if the server is gone without a word.
struct Busy(Option<PoolConnection<Postgres>>);

impl Busy {
    /// Gives the connection back as its drop would, within a time: the pool asks the server first whether the connection works.
    #[expect(
        clippy::disallowed_methods,
        reason = "the task ends within its time; the pool's own task has no limit"
    )]
    fn give_back(mut self) {
        if let Some(mut connection) = self.0.take() {
            tokio::spawn(tokio::time::timeout(RETURN, connection.return_to_pool()));
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}

/// The answer of a statement to a request, within a time.
pub(super) async fn answer(pool: &PgPool, limit: Duration, statement: &str, request: &str) -> Result<String> {
    let answering = async {
        let mut busy = Busy(Some(pool.acquire().await?));
        let Some(connection) = &mut busy.0 else { return Err(sqlx::Error::WorkerCrashed) };
        let answer = sqlx::query(statement).bind(request).fetch_one(&mut **connection).await;
        // After an error of the server the connection can be used. After another one nobody knows.
        if answer.as_ref().err().is_none_or(|error| error.as_database_error().is_some()) {
            busy.give_back();
        }
        answer?.try_get::<String, _>(0)
    };
    let answer = tokio::time::timeout(limit, answering).await.map_err(|_| error::late(limit))?;
    answer.map_err(error::of_request)
}

/// A first connection. A server that starts refuses connections for a moment.
pub(super) async fn patiently(pool: &PgPool, limit: Duration) -> Result<PoolConnection<Postgres>> {
    let deadline = tokio::time::Instant::now() + limit.mul_f64(0.8);
    loop {
        match pool.acquire().await {
            Ok(connection) => return Ok(connection),
            Err(error) => {
                let error = error::of_connection(error);
                if error.kind() != BackendErrorKind::Unavailable || tokio::time::Instant::now() >= deadline {
                    return Err(error);
                }
                tokio::time::sleep(spread(Duration::from_millis(200))).await;
            }
        }
    }
}

/// Refuses a pooler that gives each transaction any connection: settings of a session would be those of another one.
///
/// Such a pooler gives a transaction the connection that was given back last. So the connection of another transaction is seen
/// here, unless others use the pooler at this moment; then a further look sees it.
pub(super) async fn refuse_pooler(connection: &mut PgConnection, pool: &PgPool) -> Result<()> {
    let mut other = pool.acquire().await.map_err(error::of_connection)?;
    let first = server_of(connection).await?;
    for _ in 0..LOOKS {
        plainly(connection, "BEGIN").await?;
        let theirs = server_of(&mut other).await;
        plainly(connection, "COMMIT").await?;
        let theirs_later = server_of(&mut other).await?;
        let ours = server_of(connection).await?;
        if theirs? != theirs_later || ours != first || ours == theirs_later {
            return Err(BackendError::new(BackendErrorKind::Invalid, error::POOLER));
        }
    }
    Ok(())
}

/// The process of the server that serves a connection. A pooler in transaction mode takes statements that are not prepared.
async fn server_of(connection: &mut PgConnection) -> Result<i32> {
    let row = plainly(connection, "SELECT pg_backend_pid()").await?;
    row.ok_or(sqlx::Error::RowNotFound).and_then(|row| row.try_get(0)).map_err(error::of_request)
}

/// Carries out a statement without preparing it. The boxed future can be sent to another thread, which the compiler does not see otherwise.
fn plainly<'a>(
    connection: &'a mut PgConnection,
    statement: &'static str,
) -> BoxFuture<'a, Result<Option<PgRow>>> {
    Box::pin(async move { connection.fetch_optional(statement).await.map_err(error::of_request) })
}

/// A random part of a pause, at least half of it, so that many nodes do not come at the same moments.
pub(super) fn spread(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + f64::from(uuid::Uuid::new_v4().as_bytes()[0]) / 512.0)
}
