//! Connections to the server: those of a lane, the first one, and what a pooler does to them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{ConnectOptions, Connection, Executor, PgConnection, Row};
use tokio::sync::Semaphore;

use super::error;
use super::rows::Statement;
use crate::error::{BackendError, BackendErrorKind};
use crate::registry::Result;

/// Attempts to see a pooler that shares connections.
const LOOKS: usize = 4;

/// Connections that are made as they are needed, and kept.
///
/// A statement asks the server once: the pool of sqlx would ask it before and after, whether the connection works. A connection whose
/// answer is late or broken is closed, and so are those that wait beside it: the server may be gone without a word.
pub(super) struct Connections {
    options: PgConnectOptions,
    /// The time for a connection, and for an answer.
    limit: Duration,
    /// Statements for each new connection.
    session: String,
    places: Semaphore,
    idle: Mutex<Vec<PgConnection>>,
}

impl Connections {
    /// Up to `most` connections, with settings for each of them. The server gives a statement up after three quarters of the limit, so
    /// mostly its word comes before this end gives up.
    pub(super) fn new(options: &PgConnectOptions, settings: &str, limit: Duration, most: usize) -> Self {
        let on_server = limit.mul_f64(0.75).as_millis().clamp(1, 3_600_000);
        let session = format!(
            "{settings}; SET lock_timeout = {on_server}; SET statement_timeout = {on_server}; \
             SET idle_in_transaction_session_timeout = {on_server}"
        );
        let (places, idle) = (Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS)), Mutex::default());
        Self { options: options.clone(), limit, session, places, idle }
    }

    /// The rows of a statement. The time for a connection and the time for an answer are counted one after the other, so a statement that
    /// was sent has all of its time.
    pub(super) async fn answer(&self, statement: Statement) -> Result<Vec<PgRow>> {
        let late = |_| error::late(self.limit);
        let place = tokio::time::timeout(self.limit, self.places.acquire()).await.map_err(late)?;
        let _place = place.map_err(|_| error::of_request(sqlx::Error::PoolClosed))?;
        match tokio::time::timeout(self.limit, self.ask(statement)).await {
            Ok(answer) => answer.map_err(error::of_request),
            Err(elapsed) => {
                self.idle().clear();
                Err(late(elapsed))
            }
        }
    }

    /// A connection of this future alone: it is closed if the future is dropped.
    async fn ask(&self, statement: Statement) -> sqlx::Result<Vec<PgRow>> {
        let kept = self.idle().pop();
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let answer = statement.fetch_all(&mut connection).await;
        let mut idle = self.idle();
        match &answer {
            // After most errors of the server the connection can be used. After another one nobody knows.
            Err(error) if error::ends_connection(error) => idle.clear(),
            _ if self.places.is_closed() => {}
            _ => idle.push(connection),
        }
        answer
    }

    /// A new connection.
    pub(super) fn connect(&self) -> BoxFuture<'_, sqlx::Result<PgConnection>> {
        Box::pin(async {
            let mut connection = self.options.connect().await?;
            connection.execute(self.session.as_str()).await?;
            Ok(connection)
        })
    }

    /// Closes the connections that wait. Statements fail from now on.
    pub(super) async fn close(&self) {
        self.places.close();
        let idle = std::mem::take(&mut *self.idle());
        for connection in idle {
            // An error: the connection is closed already.
            connection.close().await.ok();
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<PgConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A first connection. A server that starts refuses connections for a moment.
pub(super) async fn patiently(connections: &Connections, limit: Duration) -> Result<PgConnection> {
    let deadline = tokio::time::Instant::now() + limit.mul_f64(0.8);
    loop {
        match connections.connect().await {
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
pub(super) async fn refuse_pooler(connection: &mut PgConnection, connections: &Connections) -> Result<()> {
    let mut other = connections.connect().await.map_err(error::of_connection)?;
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
