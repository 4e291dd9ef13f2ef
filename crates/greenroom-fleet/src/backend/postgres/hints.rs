//! Hints between nodes: changes that one node has made durable are told to the others by NOTIFY.
//!
//! ```text
//!  changes ──► a bounded queue ──► several in one notification, in a statement of its own ──► PostgreSQL ──► listeners of all nodes
//! ```
//!
//! A notification takes a lock over the whole database when it is committed, so it is never part of a request. Hints may be lost:
//! those that the queue has no room for, those of a notification that fails or of a commit whose reply is lost, and those that are sent while
//! a listener connects again. So a listener that is connected
//! again tells its node [`Change::Missed`], and every node looks at the records from time to time.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use sqlx::postgres::{PgListener, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Executor};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::address::Address;
use super::connection::Connections;
use super::error::{self, in_time};
use crate::backend::Channels;
use crate::request::Change;

/// Changes that wait to be told.
const WAITING: usize = 4096;
/// Bytes of a notification. PostgreSQL takes 8,000.
const BYTES: usize = 7000;
/// A listener that has heard nothing for this time asks whether its connection works.
const QUIET: Duration = Duration::from_secs(10);
/// The time for the answer, and for a notification to be sent.
const ANSWER: Duration = Duration::from_secs(2);
/// The pause after a failure, at most; at least half of it.
const PAUSE: Duration = Duration::from_secs(1);

/// The tasks that tell hints and hear them. They end with it.
pub(super) struct Hints {
    queue: Mutex<Option<mpsc::Sender<Change>>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Hints {
    /// `telling` is for notifications; the listener has a connection of its own to the same address.
    pub(super) fn start(telling: Connections, schema: &str, channels: Channels) -> Self {
        let channel = format!("greenroom_{schema}");
        let (queue, waiting) = mpsc::channel(WAITING);
        let (mut tasks, me) = (JoinSet::new(), Uuid::new_v4());
        tasks.spawn(hear(telling.address().clone(), channel.clone(), me, channels));
        tasks.spawn(tell(telling, channel, me, waiting));
        Self { queue: Mutex::new(Some(queue)), tasks: Mutex::new(tasks) }
    }

    /// Tells the other nodes of changes, as far as there is room.
    pub(super) fn pass_on(&self, changes: &[Change]) {
        // None: the backend was closed.
        let Some(queue) = locked(&self.queue).clone() else { return };
        for change in changes {
            // Full: a hint is lost.
            queue.try_send(change.clone()).ok();
        }
    }

    /// Tells the changes that wait, within the time of a notification, and ends.
    pub(super) async fn end(&self) {
        drop(locked(&self.queue).take());
        let mut tasks = std::mem::take(&mut *locked(&self.tasks));
        // The task that tells has ended, and the other one is aborted. Late: hints are lost.
        tokio::time::timeout(ANSWER, tasks.join_next()).await.ok();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

async fn tell(connections: Connections, channel: String, me: Uuid, mut waiting: mpsc::Receiver<Change>) {
    while let Some(first) = waiting.recv().await {
        let (mut items, mut bytes, mut next) = (Vec::new(), 0, Some(first));
        while let Some(change) = next {
            // NUL is escaped in JSON, and so the payload has none.
            let item = json!(change);
            bytes += item.to_string().len() + 1;
            items.push(item);
            // A change has at most some 1.6 KB: a name of 256 bytes, each of them escaped.
            next = if bytes < BYTES - 2048 { waiting.try_recv().ok() } else { None };
        }
        let payload = json!({ "from": me, "changes": items }).to_string();
        let notify = sqlx::query("SELECT pg_notify($1, $2)").bind(channel.clone()).bind(payload);
        if let Err(error) = connections.answer(notify).await {
            let error = error::text(&error);
            tracing::debug!(error, "other nodes could not be told of changes");
            pause().await;
        }
    }
}

/// Waits after a failure, for a time by chance, so that many nodes do not come at the same moments.
async fn pause() {
    tokio::time::sleep(PAUSE.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
}

/// Each listener has a pool of its own: a listener whose server is gone without a word holds its place in the pool until the system
/// gives the connection up.
async fn hear(address: Address, channel: String, me: Uuid, channels: Channels) {
    let mut is_first = true;
    loop {
        // It asks nothing of the schema.
        let options = PgPoolOptions::new().max_connections(1).acquire_timeout(ANSWER);
        let pool = options.connect_lazy_with(address.options.clone());
        let Err(mut error) = listen(&pool, &channel, me, &channels, &mut is_first).await;
        // The pool keeps the cause to itself.
        if matches!(error, sqlx::Error::PoolTimedOut)
            && let Err(cause) = in_time(ANSWER, address.options.connect()).await
        {
            error = error::at(cause, &address);
        }
        let error = error::text(&error);
        tracing::debug!(error, "changes of other nodes are not heard");
        pause().await;
    }
}

/// Hears hints until the connection ends.
async fn listen(
    pool: &PgPool,
    channel: &str,
    me: Uuid,
    channels: &Channels,
    is_first: &mut bool,
) -> sqlx::Result<Infallible> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.eager_reconnect(false);
    in_time(ANSWER, listener.listen(channel)).await?;
    // From here on hints are heard. Those before are lost.
    if !std::mem::take(is_first) {
        channels.tell_change(Change::Missed);
    }
    loop {
        let Ok(notification) = tokio::time::timeout(QUIET, listener.try_recv()).await else {
            in_time(ANSWER, listener.execute("SELECT 1")).await?;
            continue;
        };
        let ended = || sqlx::Error::Io(std::io::ErrorKind::ConnectionAborted.into());
        let notification = notification?.ok_or_else(ended)?;
        // A change of a later version is passed over, and so is what other programs tell.
        let hint: Value = serde_json::from_str(notification.payload()).unwrap_or_default();
        if hint["from"] != json!(me) {
            let changes = hint["changes"].as_array().into_iter().flatten();
            changes
                .filter_map(|change| Change::deserialize(change).ok())
                .for_each(|change| channels.tell_change(change));
        }
    }
}
