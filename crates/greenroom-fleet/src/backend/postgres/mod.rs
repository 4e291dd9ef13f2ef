//! The backend in PostgreSQL, for services on several machines.
//!
//! ```text
//!  request ──► read: one statement, one moment ──► the rule ──► commit: one statement, which checks what was read ──► changes, answer
//!                                                                                      │ changes, as hints
//!                                                                                      ▼
//!                              other nodes ◄── LISTEN ◄────────── pg_notify, in a statement of its own, several at once
//! ```
//!
//! `schema.sql` has the table of rows and the function that commits. No lock is held between the two statements, so a node that stops
//! there holds up nobody. A statement whose reply is lost is followed by the request again, which finds its own id.
//!
//! Each [`Lane`] has connections of its own, so nothing keeps a node from renewing its lease. A connection whose answer is late is
//! closed: the server may be gone without a word.

mod address;
mod clock;
mod connection;
mod error;
mod hints;
mod migrate;
mod opening;
mod rows;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use greenroom::guardian::BootTime;
use tokio_util::task::TaskTracker;

use super::{Backend, Channels, Reply};
use crate::error::{BackendError, BackendErrorKind};
use crate::id::Timestamp;
use crate::registry::{Commit, Committed, Lane, Result, Rows, Wanted};
use crate::request::NodeMessage;
use address::Address;
use clock::ServerClock;
use connection::Connections;
use hints::Hints;

/// Connections for transcripts, so that a flood of entries does not keep a prompt waiting.
const TRANSCRIPTS: usize = 4;
/// Connections for the readers of turns, so that many readers do not keep a prompt waiting.
const READERS: usize = 4;

/// Connections for requests about nodes.
const NODES: usize = 2;

/// The time in which a request about nodes is answered.
const CONTROL: Duration = Duration::from_secs(2);

/// The time in which a server makes a database.
#[cfg(feature = "testkit")]
const WAIT_FOR_DATABASE: Duration = Duration::from_secs(30);

/// Options of a [`PostgresBackend`].
///
/// | option | default | |
/// |---|---|---|
/// | `schema` | `greenroom_fleet` | the schema with all tables and functions of the fleet: a fleet each |
/// | `connections` | 16 | connections of this node for its requests; up to five more are for the lease, nodes and hints, four for transcripts, and four for readers of turns |
/// | `statement_timeout` | 2 s | the time after which the server gives a statement up, and a third more the time after which this node does |
/// | `connect_timeout` | 10 s | the time for a first connection and the schema |
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// The address: a URL with one host, such as `postgres://user:password@host/database?sslmode=verify-full`. It has the parameters
    /// that `sqlx` knows, and a list of hosts is none of them. Without `sslmode` the connection may be unencrypted.
    pub url: String,
    /// The schema: 1 to 40 lower-case letters, digits and underscores, no digit first. Default: `greenroom_fleet`.
    pub schema: String,
    /// Connections for requests, at least 1. Default: 16.
    pub connections: u32,
    /// The time for a statement and for the wait for a lock, at least a millisecond. Default: 2 s.
    pub statement_timeout: Duration,
    /// The time for [`connect`](PostgresBackend::connect). Default: 10 s.
    pub connect_timeout: Duration,
}

impl PostgresOptions {
    /// The defaults, with an address.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            schema: "greenroom_fleet".to_owned(),
            connections: 16,
            statement_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// A backend in a database of PostgreSQL 15 or later, which several nodes share.
///
/// Clones share their connections. A node has one backend, and each node of a fleet has a backend with the same database and schema.
/// Changes of other nodes come as notifications; a lost one delays a node until its next look.
/// Transitions of requests that run at once may be told in either order; those of a request are told before its answer. Those of a request
/// whose reply was lost are not told.
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
    /// The connections of each [`Lane`], in the order of the lanes. The lease has one for itself.
    lanes: [Connections; 5],
    channels: Channels,
    hints: Hints,
    clock: ServerClock,
    commits: AtomicU64,
    conflicts: AtomicU64,
    /// Commits on their way. Each ends within the time for a connection and a statement.
    tasks: TaskTracker,
}

impl PostgresBackend {
    /// Connects, and brings the schema to this version. Many nodes may do so at once.
    ///
    /// # Errors
    /// [`Invalid`](BackendErrorKind::Invalid) for an address or an option that cannot be used, and for a server that is no PostgreSQL;
    /// [`Version`](BackendErrorKind::Version) if the schema needs a later version of this crate;
    /// [`Unavailable`](BackendErrorKind::Unavailable) if no server listens at the address or it does not answer in time;
    /// [`Damaged`](BackendErrorKind::Damaged) if it refuses the user, the password or the database.
    ///
    /// The text has the cause, and no password. A server that refuses is told at once; a missing one within two seconds, because it may
    /// be restarting. A server that says that it starts, ends or is full has `connect_timeout`.
    pub async fn connect(options: PostgresOptions) -> Result<Self> {
        let invalid = |text: String| BackendError::new(BackendErrorKind::Invalid, text);
        let PostgresOptions { url, schema, connections, statement_timeout, connect_timeout } = options;
        if !is_schema(&schema) {
            return Err(invalid(format!(
                "`{schema}` is no schema for a fleet: use 1 to 40 lower-case letters, digits and underscores"
            )));
        }
        let address = Address::read(&url)?;
        let (settings, patient) = (settings(&schema), statement_timeout.mul_f64(4.0 / 3.0));
        let lane = |limit, most| Connections::new(&address, &settings, limit, most);
        let most = usize::try_from(connections).unwrap_or(usize::MAX);
        let (lease, nodes) = (lane(CONTROL, 1), lane(CONTROL, NODES));
        let (transcripts, readers) = (lane(patient, TRANSCRIPTS), lane(patient, READERS));
        let lanes = [lease, nodes, transcripts, readers, lane(patient, most)];
        let nodes = &lanes[Lane::Nodes as usize];
        let first = async {
            let mut connection = opening::first(nodes, connect_timeout.mul_f64(0.8)).await?;
            connection::refuse_pooler(&mut connection, nodes).await?;
            Ok(connection)
        };
        let first = error::in_time(connect_timeout, async { Ok(first.await) }).await;
        let mut first = first.map_err(error::of_request)??;
        // It has limits of its own: a node that waits for others to make the schema is not late.
        let channel = migrate::migrate(&mut first, &schema).await?;
        let channels = Channels::new();
        let hints = Hints::start(lane(CONTROL, 1), channel, channels.clone());
        let (clock, commits, conflicts, tasks) = Default::default();
        let backend = Self(Arc::new(Inner { lanes, channels, hints, clock, commits, conflicts, tasks }));
        // Learns the server's clock.
        backend.read(Lane::Nodes, Wanted::default()).await?;
        Ok(backend)
    }

    /// Makes a database at the server of an address. Returns the new one's address.
    #[cfg(feature = "testkit")]
    pub(crate) async fn make_database(url: &str) -> Result<String> {
        let address = Address::read(url)?;
        let connections = Connections::new(&address, "SELECT 1", WAIT_FOR_DATABASE, 1);
        let mut connection = opening::first(&connections, WAIT_FOR_DATABASE).await?;
        let name = format!("greenroom_{}", uuid::Uuid::new_v4().simple());
        // Nobody is connected to this template, which would refuse the copy.
        let make = format!("CREATE DATABASE {name} TEMPLATE template0");
        sqlx::Executor::execute(&mut connection, make.as_str()).await.map_err(error::of_request)?;
        Ok(sqlx::ConnectOptions::to_url_lossy(&address.options.database(&name)).to_string())
    }

    /// Ends the commits that are on their way, and the connections. Requests fail from now on.
    pub async fn close(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
        self.0.hints.end().await;
        for lane in &self.0.lanes {
            lane.close().await;
        }
    }

    /// Commits so far, and those of them that were in conflict with another one, so that their requests were carried out again.
    pub fn commits(&self) -> (u64, u64) {
        (self.0.commits.load(Ordering::Relaxed), self.0.conflicts.load(Ordering::Relaxed))
    }

    async fn commit_and_tell(&self, lane: Lane, mut commit: Commit) -> Result<Committed> {
        let told = std::mem::take(&mut commit.told);
        self.0.commits.fetch_add(1, Ordering::Relaxed);
        let answer = match self.0.lanes[lane as usize].answer(rows::commit(commit)?).await {
            Ok(answer) => answer,
            // Two commits that waited for each other.
            Err(deadlock) if error::is_deadlock(&deadlock) => return Ok(self.conflict()),
            Err(error) => return Err(error::of_request(error)),
        };
        let row = answer.first().ok_or(sqlx::Error::RowNotFound);
        if !row.and_then(|row| sqlx::Row::try_get(row, 0)).map_err(error::of_request)? {
            return Ok(self.conflict());
        }
        self.0.hints.pass_on(&told.changes);
        self.0.channels.tell(told);
        Ok(Committed::Done)
    }

    fn conflict(&self) -> Committed {
        self.0.conflicts.fetch_add(1, Ordering::Relaxed);
        Committed::Conflict
    }
}

/// True for a name that needs no quotes in SQL.
fn is_schema(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|byte| byte == b'_' || byte.is_ascii_lowercase());
    let rest = name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase() || byte.is_ascii_digit());
    first && rest && name.len() <= 40 && !name.starts_with("pg_")
}

/// The settings of each connection. A plan is made once, perhaps for a table that is small, and has to find each row by its key.
fn settings(schema: &str) -> String {
    format!(
        "SET search_path = {schema}, pg_temp; SET synchronous_commit = on; \
         SET default_transaction_isolation = 'read committed'; SET plan_cache_mode = force_generic_plan; SET jit = off; \
         SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off"
    )
}

impl Backend for PostgresBackend {
    fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    fn read(&self, lane: Lane, wanted: Wanted) -> Reply<'_, Rows> {
        Box::pin(async move {
            let asked = BootTime::now();
            let answer = self.0.lanes[lane as usize].answer(rows::read(&wanted)).await;
            let answer = answer.map_err(error::of_request)?;
            let (now, rows) = rows::rows(answer, wanted)?;
            self.0.clock.learn(now, asked);
            Ok(rows)
        })
    }

    /// Carries a commit out, also if the future is dropped: nobody else tells its changes and transitions.
    fn commit(&self, lane: Lane, commit: Commit) -> Reply<'_, Committed> {
        Box::pin(async move {
            if self.0.tasks.is_closed() {
                return Err(error::of_request(sqlx::Error::PoolClosed));
            }
            let backend = self.clone();
            let commit = async move { backend.commit_and_tell(lane, commit).await };
            self.0.tasks.spawn(commit).await.unwrap_or_else(|failed| {
                let text = format!("a request has ended early: {failed}");
                Err(BackendError::new(BackendErrorKind::Unavailable, text))
            })
        })
    }

    fn channels(&self) -> &Channels {
        &self.0.channels
    }

    fn publish(&self, message: NodeMessage) {
        self.0.hints.publish(message.clone());
        self.0.channels.deliver(message);
    }
}

impl fmt::Debug for PostgresBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBackend").finish_non_exhaustive()
    }
}
