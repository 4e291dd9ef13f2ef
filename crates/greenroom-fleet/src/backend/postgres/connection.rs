//! Connections to the server: those of a lane, the first one, and what a pooler does to them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
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
    pub(super) async fn answer(&self, statement: Statement) -> sqlx::Result<Vec<PgRow>> {
        let place = async { self.places.acquire().await.map_err(|_| sqlx::Error::PoolClosed) };
        let _place = error::in_time(self.limit, place).await?;
        let answer = error::in_time(self.limit, self.ask(statement)).await;
        // After most errors of the server the connection can be used. After another one, or none in time, nobody knows.
        if answer.as_ref().is_err_and(error::ends_connection) {
            self.idle().clear();
        }
        answer
    }

    /// A connection of this future alone: it is closed if the future is dropped.
    async fn ask(&self, statement: Statement) -> sqlx::Result<Vec<PgRow>> {
        let kept = self.idle().pop();
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let answer = statement.fetch_all(&mut connection).await;
        if !self.places.is_closed() && !answer.as_ref().is_err_and(error::ends_connection) {
            self.idle().push(connection);
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

/// A first connection. A server that starts refuses connections for a moment. When the time is over, the error is that of the last attempt
/// that has ended.
pub(super) async fn patiently(connections: &Connections, limit: Duration) -> Result<PgConnection> {
    let pauses = ExponentialBuilder::default()
        .with_factor(1.0)
        .with_min_delay(Duration::from_millis(100))
        .with_jitter()
        .without_max_times();
    let connect = || async { connections.connect().await.map_err(error::of_connection) };
    let mut cause = None;
    let attempts = connect
        .retry(pauses)
        .when(BackendError::is_unavailable)
        .notify(|error, _| cause = Some(error.clone()));
    let connected = error::in_time(limit, async { Ok(attempts.await) }).await;
    connected.unwrap_or_else(|late| Err(cause.unwrap_or_else(|| error::of_request(late))))
}

/// Refuses a pooler that gives each transaction any connection: settings of a session would be those of another one.
///
/// Such a pooler gives a transaction the connection that was given back last. So the connection of another transaction is seen
/// here, unless others use the pooler at this moment; then a further look sees it.
pub(super) async fn refuse_pooler(connection: &mut PgConnection, connections: &Connections) -> Result<()> {
    let mut other = connections.connect().await.map_err(error::of_connection)?;
    for _ in 0..LOOKS {
        if is_shared(connection, &mut other).await.map_err(error::of_request)? {
            return Err(BackendError::new(BackendErrorKind::Invalid, error::POOLER));
        }
    }
    Ok(())
}

/// Looks whether a connection has another process of the server in a transaction of the other one.
async fn is_shared(connection: &mut PgConnection, other: &mut PgConnection) -> sqlx::Result<bool> {
    let first = server_of(connection).await?;
    plainly(connection, "BEGIN").await?;
    let theirs = server_of(other).await;
    plainly(connection, "COMMIT").await?;
    let theirs_later = server_of(other).await?;
    let ours = server_of(connection).await?;
    Ok(theirs? != theirs_later || ours != first || ours == theirs_later)
}

/// The process of the server that serves a connection. A pooler in transaction mode takes statements that are not prepared.
async fn server_of(connection: &mut PgConnection) -> sqlx::Result<i32> {
    plainly(connection, "SELECT pg_backend_pid()").await?.ok_or(sqlx::Error::RowNotFound)?.try_get(0)
}

/// Carries out a statement without preparing it. The boxed future can be sent to another thread, which the compiler does not see otherwise.
fn plainly<'a>(
    connection: &'a mut PgConnection,
    statement: &'static str,
) -> BoxFuture<'a, sqlx::Result<Option<PgRow>>> {
    connection.fetch_optional(statement)
}
