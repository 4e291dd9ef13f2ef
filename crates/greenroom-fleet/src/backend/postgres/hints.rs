//! Hints between nodes: changes that one node has made durable, and messages of nodes, are told to the others by NOTIFY.
//!
//! ```text
//!  changes ───────► a bounded queue ──┬─► several in one notification, in a statement of its own ──► PostgreSQL ──► listeners of all nodes
//!  node messages ─► a bounded queue ──┘ (behind all changes)
//! ```
//!
//! A notification takes a lock over the whole database when it is committed, so it is never part of a request. Hints may be lost:
//! those that the queue has no room for, those of a notification that fails or of a commit whose reply is lost, and those that are sent while
//! a listener connects. So a listener that is connected
//! tells its node [`Change::Missed`], and every node looks at the records from time to time.
//!
//! Everybody who may connect to the database may listen to any channel and notify it, without a right to the schema. So the name of the
//! channel is a secret: a random id in a table of the schema. Node messages hold text of conversations.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};
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
use crate::request::{Change, NodeMessage};

/// Changes that wait to be told, and messages of this node.
const CHANGES: usize = 4096;
const MESSAGES: usize = 256;
/// Bytes of the items in a notification. PostgreSQL takes less than 8,000 in all. A change has at most some 1.6 KB: a name of 256 bytes, each
/// of them escaped.
const BYTES: usize = 7_500;
const _: () = assert!(NodeMessage::MAX_BYTES < BYTES);
/// A listener that has heard nothing for this time asks whether its connection works.
const QUIET: Duration = Duration::from_secs(10);
/// The time for the answer, and for a notification to be sent.
const ANSWER: Duration = Duration::from_secs(2);
/// The pause after a failure, at most; at least half of it.
const PAUSE: Duration = Duration::from_secs(1);

/// The tasks that tell hints and hear them. They end with it.
pub(super) struct Hints {
    queues: Mutex<Option<Queues>>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Clone)]
struct Queues {
    changes: mpsc::Sender<Change>,
    messages: mpsc::Sender<NodeMessage>,
}

/// The hints that wait to be told.
struct Waiting {
    changes: mpsc::Receiver<Change>,
    messages: mpsc::Receiver<NodeMessage>,
    /// The item that had no room in the last notification.
    left: Option<Item>,
}

/// A hint in a notification.
enum Item {
    Change(String),
    Message(String),
}

impl Hints {
    /// `telling` is for notifications; the listener has a connection of its own to the same address. `channel` is the secret of the schema.
    pub(super) fn start(telling: Connections, channel: Uuid, channels: Channels) -> Self {
        let channel = format!("greenroom_{}", channel.simple());
        let ((changes, waiting), (messages, messages_waiting)) =
            (mpsc::channel(CHANGES), mpsc::channel(MESSAGES));
        let waiting = Waiting { changes: waiting, messages: messages_waiting, left: None };
        let (mut tasks, me) = (JoinSet::new(), Uuid::new_v4());
        tasks.spawn(hear(telling.address().clone(), channel.clone(), me, channels));
        tasks.spawn(tell(telling, channel, me, waiting));
        Self { queues: Mutex::new(Some(Queues { changes, messages })), tasks: Mutex::new(tasks) }
    }

    /// Tells the other nodes of changes, as far as there is room.
    pub(super) fn pass_on(&self, changes: &[Change]) {
        // None: the backend was closed.
        let Some(queues) = locked(&self.queues).clone() else { return };
        for change in changes {
            // Full: a hint is lost.
            queues.changes.try_send(change.clone()).ok();
        }
    }

    /// Tells the other nodes a message of this one, if there is room.
    pub(super) fn publish(&self, message: NodeMessage) {
        // None: the backend was closed. Full: the message is lost.
        let queues = locked(&self.queues).clone();
        queues.inspect(|queues| drop(queues.messages.try_send(message)));
    }

    /// Tells the changes that wait, within the time of a notification, and ends.
    pub(super) async fn end(&self) {
        drop(locked(&self.queues).take());
        let mut tasks = std::mem::take(&mut *locked(&self.tasks));
        // The task that tells has ended, and the other one is aborted. Late: hints are lost.
        tokio::time::timeout(ANSWER, tasks.join_next()).await.ok();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Waiting {
    /// The items of the next notification, changes before messages. `None`: the backend was closed.
    async fn next(&mut self) -> Option<(Vec<String>, Vec<String>)> {
        let first = match self.left.take() {
            Some(left) => left,
            None => tokio::select! {
                biased;
                Some(change) = self.changes.recv() => Item::Change(json(&change)),
                Some(message) = self.messages.recv() => Item::Message(json(&message)),
                else => return None,
            },
        };
        let (mut changes, mut messages, mut bytes, mut next) = (Vec::new(), Vec::new(), 0, Some(first));
        while let Some(item) = next {
            let (list, item) = match item {
                Item::Change(json) => (&mut changes, json),
                Item::Message(json) => (&mut messages, json),
            };
            bytes += item.len() + 1;
            list.push(item);
            let change = self.changes.try_recv().map(|change| Item::Change(json(&change)));
            let item = change
                .or_else(|_| self.messages.try_recv().map(|message| Item::Message(json(&message))))
                .ok();
            (next, self.left) = match item {
                Some(item) if bytes + item.len() > BYTES => (None, Some(item)),
                item => (item, None),
            };
        }
        Some((changes, messages))
    }
}

impl Item {
    fn len(&self) -> usize {
        let (Self::Change(json) | Self::Message(json)) = self;
        json.len()
    }
}

/// The JSON of a hint. NUL is escaped in JSON, and so a payload has none.
fn json(hint: &impl Serialize) -> String {
    serde_json::to_string(hint).unwrap_or_default()
}

async fn tell(connections: Connections, channel: String, me: Uuid, mut waiting: Waiting) {
    while let Some((changes, messages)) = waiting.next().await {
        let (changes, messages) = (changes.join(","), messages.join(","));
        let payload = format!(r#"{{"from":"{me}","changes":[{changes}],"messages":[{messages}]}}"#);
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
    loop {
        // It asks nothing of the schema.
        let options = PgPoolOptions::new().max_connections(1).acquire_timeout(ANSWER);
        let pool = options.connect_lazy_with(address.options.clone());
        let Err(mut error) = listen(&pool, &channel, me, &channels).await;
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
async fn listen(pool: &PgPool, channel: &str, me: Uuid, channels: &Channels) -> sqlx::Result<Infallible> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.eager_reconnect(false);
    in_time(ANSWER, listener.listen(channel)).await?;
    // From here on hints are heard. Those before are lost, also those since the backend was opened.
    channels.tell_change(Change::Missed);
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
            let items = |list: &str| hint[list].as_array().into_iter().flatten();
            items("changes")
                .filter_map(|change| Change::deserialize(change).ok())
                .for_each(|change| channels.tell_change(change));
            items("messages")
                .filter_map(|message| NodeMessage::deserialize(message).ok())
                .for_each(|message| channels.deliver(message));
        }
    }
}
