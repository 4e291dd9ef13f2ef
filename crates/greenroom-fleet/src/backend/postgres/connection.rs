//! Connections to the server: those of a lane, and what a pooler does to them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::postgres::PgRow;
use sqlx::{ConnectOptions, Connection, Executor, PgConnection, Row};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::address::Address;
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
    address: Address,
    /// The time for a connection, and for an answer.
    limit: Duration,
    /// Statements for each new connection.
    session: String,
    places: Semaphore,
    idle: Mutex<Vec<PgConnection>>,
    /// The failure of the last attempt to connect, until an attempt succeeds: the cause behind an answer that is late.
    failed: Mutex<Option<String>>,
}

impl Connections {
    /// Up to `most` connections, with settings for each of them. The server gives a statement up after three quarters of the limit, so
    /// mostly its word comes before this end gives up.
    pub(super) fn new(address: &Address, settings: &str, limit: Duration, most: usize) -> Self {
        let on_server = limit.mul_f64(0.75).as_millis().clamp(1, 3_600_000);
        let session = format!(
            "{settings}; SET lock_timeout = {on_server}; SET statement_timeout = {on_server}; \
             SET idle_in_transaction_session_timeout = {on_server}"
        );
        let places = Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS));
        let (idle, failed) = Default::default();
        Self { address: address.clone(), limit, session, places, idle, failed }
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// The rows of a statement. The time for a connection and the time for an answer are counted one after the other, so a statement that
    /// was sent has all of its time.
    pub(super) async fn answer(&self, statement: Statement) -> sqlx::Result<Vec<PgRow>> {
        let place = async { self.places.acquire().await.map_err(|_| sqlx::Error::PoolClosed) };
        let _place = self.by(Instant::now() + self.limit, "no connection was free", place).await?;
        let answer = self.ask(statement, Instant::now() + self.limit).await;
        // After most errors of the server the connection can be used. After another one, or none in time, nobody knows.
        if answer.as_ref().is_err_and(error::ends_connection) {
            self.idle().clear();
        }
        answer
    }

    /// A connection of this future alone: it is closed if the future is dropped.
    async fn ask(&self, statement: Statement, deadline: Instant) -> sqlx::Result<Vec<PgRow>> {
        let kept = self.idle().pop();
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.by(deadline, "no connection was made", self.connect()).await?,
        };
        let answer = self.by(deadline, "no answer came", statement.fetch_all(&mut connection)).await;
        if !self.places.is_closed() && !answer.as_ref().is_err_and(error::ends_connection) {
            self.idle().push(connection);
        }
        answer
    }

    /// A new connection.
    pub(super) fn connect(&self) -> BoxFuture<'_, sqlx::Result<PgConnection>> {
        Box::pin(async {
            let connected = async {
                let mut connection = self.address.options.connect().await?;
                connection.execute(self.session.as_str()).await?;
                Ok(connection)
            };
            let connected = connected.await.map_err(|error| error::at(error, &self.address));
            *locked(&self.failed) = connected.as_ref().err().map(error::text);
            connected
        })
    }

    /// The result by a deadline. A late one is an error with the words for it, and with the failure of the last attempt to connect.
    async fn by<T>(
        &self,
        deadline: Instant,
        late: &str,
        result: impl Future<Output = sqlx::Result<T>>,
    ) -> sqlx::Result<T> {
        tokio::time::timeout_at(deadline, result).await.unwrap_or_else(|_| {
            let cause = locked(&self.failed).clone();
            let cause = cause.map(|cause| format!("; before that: {cause}")).unwrap_or_default();
            Err(error::late(format!("{late} within {:?}{cause}", self.limit)))
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
        locked(&self.idle)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses a pooler that gives each transaction any connection: settings of a session would be those of another one.
///
/// Such a pooler gives a transaction the connection that was given back last. So the connection of another transaction is seen
/// here, unless others use the pooler at this moment; then a further look sees it.
pub(super) async fn refuse_pooler(connection: &mut PgConnection, connections: &Connections) -> Result<()> {
    let mut other =
        connections.connect().await.map_err(|error| error::of_connection(error, connections.address()))?;
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
