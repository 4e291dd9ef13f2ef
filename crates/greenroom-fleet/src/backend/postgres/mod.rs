//! The backend in PostgreSQL, for services on several machines.
//!
//! ```text
//!  request ──► a task of its own ──► SELECT fleet_…($1), one statement, committed by itself ──► answer, changes, transitions
//!                                                                                      │ changes, as hints
//!                                                                                      ▼
//!                              other nodes ◄── LISTEN ◄────────── pg_notify, in a statement of its own, several at once
//! ```
//!
//! The rules are PL/pgSQL functions in `migrations/`: each is one of the functions in `registry/`, with locks on rows in place of a
//! lock on everything. A statement whose reply is lost is repeated by the caller as it was, and finds its own id.
//!
//! Requests, questions about nodes, hints and the renewal of the lease have pools of their own, so nothing keeps a node from renewing
//! its lease. A connection whose answer is late is closed: the server may be gone without a word.

mod answers;
mod commands;
mod connection;
mod error;
mod hints;
mod migrate;
mod operations;
mod options;
mod requests;
mod text;
mod told;
mod transcripts;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde_json::Value;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Executor};
use tokio_util::task::TaskTracker;

use super::Channels;
use crate::error::{BackendError, BackendErrorKind};
use crate::id::Timestamp;
use crate::registry::Result;
use hints::Hints;
pub use options::PostgresOptions;
pub use transcripts::PostgresStore;

/// Connections for transcripts, so that a flood of entries does not keep a prompt waiting.
const TRANSCRIPTS: u32 = 4;

/// The time in which a request about nodes is answered.
const CONTROL: Duration = Duration::from_secs(2);

/// A backend in a database of PostgreSQL 15 or later, which several nodes share.
///
/// Clones share their connections. A node has one backend, and each node of a fleet has a backend with the same database and schema.
/// Changes of other nodes come as notifications; a lost one delays a node until its next look.
/// Transitions of requests that run at once may be told in either order; those of a request are told before its answer.
///
/// ```no_run
/// use greenroom_fleet::backend::{PostgresBackend, PostgresOptions};
///
/// # async fn open() -> Result<(), greenroom_fleet::BackendError> {
/// let options = PostgresOptions::new("postgres://fleet:secret@db.internal/fleet");
/// let backend = PostgresBackend::connect(options).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PostgresBackend(Arc<Inner>);

struct Inner {
    requests: PgPool,
    control: PgPool,
    transcripts: PgPool,
    /// One connection, for the lease alone.
    lease: PgPool,
    statement_timeout: Duration,
    channels: Channels,
    hints: Hints,
    /// Milliseconds by which the server's clock is ahead of this host's.
    ahead: AtomicI64,
    /// Requests on their way. Each ends within the time for a statement.
    tasks: TaskTracker,
}

impl PostgresBackend {
    /// Connects, and brings the schema to this version. Many nodes may do so at once.
    ///
    /// # Errors
    /// [`Invalid`](BackendErrorKind::Invalid) for an address or an option that cannot be used,
    /// [`Version`](BackendErrorKind::Version) if the schema needs a later version of this crate,
    /// [`Unavailable`](BackendErrorKind::Unavailable) if the server does not answer in time, and
    /// [`Damaged`](BackendErrorKind::Damaged) if it refuses.
    pub async fn connect(options: PostgresOptions) -> Result<Self> {
        let limit = options.connect_timeout;
        match tokio::time::timeout(limit, Self::connect_now(options)).await {
            Ok(backend) => backend,
            Err(_) => Err(error::late(limit)),
        }
    }

    async fn connect_now(options: PostgresOptions) -> Result<Self> {
        let invalid = |text: String| BackendError::new(BackendErrorKind::Invalid, text);
        let PostgresOptions { url, schema, connections, statement_timeout, connect_timeout } = options;
        if !options::is_schema(&schema) {
            return Err(invalid(format!(
                "`{schema}` is no schema for a fleet: use 1 to 40 lower-case letters, digits and underscores"
            )));
        }
        // The address may hold a password: the error's text does not repeat it.
        let address = PgConnectOptions::from_str(&url)
            .map_err(|error| invalid(format!("the address of PostgreSQL cannot be read: {error}")))?
            .application_name("greenroom-fleet")
            // A setting that PgBouncer refuses at the start of a connection. No statement here has a float.
            .extra_float_digits(None)
            .disable_statement_logging();
        let limit = statement_timeout.as_millis().clamp(1, 3_600_000);
        let session = format!(
            "SET search_path = {schema}, pg_temp; SET synchronous_commit = on; SET lock_timeout = {limit}; \
             SET statement_timeout = {limit}; SET idle_in_transaction_session_timeout = {limit}; \
             SET default_transaction_isolation = 'read committed'"
        );
        let pool = move |connections: u32, patience: Duration| {
            let session = session.clone();
            PgPoolOptions::new()
                .max_connections(connections.max(1))
                .acquire_timeout(patience)
                .after_connect(move |connection, _| {
                    let session = session.clone();
                    Box::pin(async move {
                        connection.execute(session.as_str()).await?;
                        Ok(())
                    })
                })
                .connect_lazy_with(address.clone())
        };
        let requests = pool(connections, statement_timeout);
        let (control, lease) = (pool(2, CONTROL), pool(1, CONTROL));
        let transcripts = pool(TRANSCRIPTS, statement_timeout);
        let mut connection = connection::patiently(&control, connect_timeout).await?;
        connection::refuse_pooler(&mut connection, &control).await?;
        migrate::migrate(&mut connection, &schema).await?;
        drop(connection);
        let channels = Channels::new();
        let hints = Hints::start(move || pool(1, CONTROL), &schema, channels.changes.clone());
        let (ahead, tasks) = (AtomicI64::new(0), TaskTracker::new());
        let inner =
            Inner { requests, control, lease, transcripts, statement_timeout, channels, hints, ahead, tasks };
        let backend = Self(Arc::new(inner));
        // Learns the server's clock.
        backend.control("queued", Value::Object(serde_json::Map::new())).await?;
        Ok(backend)
    }

    /// Ends the requests that are on their way, and the connections. Requests fail from now on.
    pub async fn close(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
        self.0.hints.end();
        self.0.requests.close().await;
        self.0.control.close().await;
        self.0.transcripts.close().await;
        self.0.lease.close().await;
    }

    /// The moment now on the server's clock, as far as the last answer tells.
    pub(super) fn server_time(&self) -> Timestamp {
        Timestamp(Timestamp::now().0.saturating_add_signed(self.0.ahead.load(Ordering::Relaxed)))
    }

    pub(super) fn channels(&self) -> &Channels {
        &self.0.channels
    }

    /// A request about names, prompts or questions.
    async fn call(&self, method: &'static str, request: Value) -> Result<Value> {
        self.request(&self.0.requests, self.0.statement_timeout * 2, method, request).await
    }

    /// A request about nodes.
    async fn control(&self, method: &'static str, request: Value) -> Result<Value> {
        self.request(&self.0.control, CONTROL, method, request).await
    }

    /// A request about transcripts.
    async fn transcripts(&self, method: &'static str, request: Value) -> Result<Value> {
        self.request(&self.0.transcripts, self.0.statement_timeout * 2, method, request).await
    }

    /// The renewal of the lease.
    async fn lease(&self, request: Value) -> Result<Value> {
        self.request(&self.0.lease, CONTROL, "renew", request).await
    }

    async fn request(
        &self,
        pool: &PgPool,
        limit: Duration,
        method: &'static str,
        request: Value,
    ) -> Result<Value> {
        let statement = format!("SELECT fleet_{method}($1::jsonb)::text");
        let mut request = request;
        text::escape_all(&mut request);
        let request = request.to_string();
        let answer = connection::answer(pool, limit, &statement, &request).await?;
        self.take_in(&answer)
    }

    /// Tells what a request has told, and returns its answer.
    fn take_in(&self, reply: &str) -> Result<Value> {
        #[derive(serde::Deserialize)]
        struct Reply {
            answer: Value,
            now: i64,
            told: Vec<Value>,
        }
        let mut reply: Value = serde_json::from_str(reply).map_err(BackendError::damaged)?;
        text::unescape_all(&mut reply);
        let Reply { answer, now, told } = serde_json::from_value(reply).map_err(BackendError::damaged)?;
        let here = i64::try_from(Timestamp::now().0).unwrap_or(i64::MAX);
        self.0.ahead.store(now.saturating_sub(here), Ordering::Relaxed);
        let told = told::read(told)?;
        self.0.hints.pass_on(&told.changes);
        self.0.channels.tell(told);
        Ok(answer)
    }

    /// Carries a request out, also if the future is dropped: nobody else tells its changes and transitions.
    pub(super) async fn to_its_end<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        if self.0.tasks.is_closed() {
            return Err(BackendError::new(BackendErrorKind::Closed, "the backend was closed: connect again"));
        }
        self.0.tasks.spawn(request).await.unwrap_or_else(|failed| {
            let text = format!("a request has ended early: {failed}");
            Err(BackendError::new(BackendErrorKind::Unavailable, text))
        })
    }
}

impl fmt::Debug for PostgresBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBackend").finish_non_exhaustive()
    }
}
