//! Live readers of turns.
//!
//! ```text
//!  scribe ─► Feed ──► Audience ──► Reader (a bounded queue) ──► FleetTurn ──► application
//!                        ▲
//!    changes of the backend, and a look each second: "read the records again"
//! ```
//!
//! A turn has an audience while it runs here or somebody reads it. Messages without a reader are not kept. `elsewhere` has readers on
//! another node than the owner's.

mod elsewhere;
#[cfg(test)]
mod tests;
mod unheard;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, broadcast};
use tokio::task::JoinSet;
use tokio::time::timeout;
use uuid::Uuid;

use self::elsewhere::{Elsewhere, partials};
pub(crate) use self::elsewhere::{is_said, starts_text};
use self::unheard::{AGAIN, Audience};
pub(crate) use self::unheard::{Heard, LiveMessage};
use crate::backend::{Backend, Requests};
use crate::id::PromptId;
use crate::record::{PromptRecord, PromptState};
use crate::request::{Change, NodeMessage, NodeNews, Page, Piece};

/// The time between two looks at the records of all turns that are read here and not fed: a change may be missed.
const LOOK: Duration = Duration::from_secs(1);
/// The longest wait for such a look.
const ANSWER: Duration = Duration::from_secs(5);
/// The pause after a reader joins, so that one message announces several readers.
const COME: Duration = Duration::from_millis(20);
/// The interval at which text is published to other nodes.
const WRITE: Duration = Duration::from_millis(100);

/// The turns that run or are read on this node, for readers that want messages as they come.
pub(crate) struct Hub {
    turns: Arc<Turns>,
    /// The tasks that hear of the backend's changes and look at the records. They end with the hub.
    _tasks: JoinSet<()>,
}

/// The turns of a hub.
struct Turns {
    audiences: Mutex<HashMap<PromptId, Audience>>,
    elsewhere: Elsewhere,
    /// A turn has its first reader, or does not run here any more.
    joined: Notify,
    /// The other living nodes.
    peers: Arc<AtomicU32>,
}

/// The place where a running turn shows its messages; dropped at the turn's end.
pub(crate) struct Feed {
    turns: Arc<Turns>,
    prompt: PromptId,
}

/// A reader of a turn.
pub(crate) struct Reader {
    turns: Arc<Turns>,
    prompt: PromptId,
    number: u64,
    changed: Arc<Notify>,
}

impl Hub {
    /// A hub that wakes readers when the records of their prompts change in the backend. `peers` counts the other living nodes.
    pub(crate) fn of(backend: &Arc<dyn Backend>, peers: Arc<AtomicU32>) -> Self {
        let (audiences, elsewhere, joined) = Default::default();
        let (turns, me) = (Arc::new(Turns { audiences, elsewhere, joined, peers }), Uuid::new_v4());
        let (mut tasks, weak) = (JoinSet::new(), Arc::downgrade(backend));
        tasks.spawn(pass_on(backend.changes(), turns.clone()));
        tasks.spawn(look_each_second(weak.clone(), turns.clone()));
        if !backend.is_exclusive() {
            tasks.spawn(hear(backend.channels().node_messages(), turns.clone(), me));
            tasks.spawn(ask(weak.clone(), turns.clone(), me));
            tasks.spawn(publish(weak, turns.clone(), me));
        }
        Self { turns, _tasks: tasks }
    }

    /// Opens the feed of a turn.
    pub(crate) fn open(&self, prompt: PromptId) -> Feed {
        lock(&self.turns.audiences).entry(prompt).or_default().feeds += 1;
        Feed { turns: self.turns.clone(), prompt }
    }

    /// Reads a turn from now on, whether it runs here already or not.
    pub(crate) fn read(&self, prompt: PromptId) -> Reader {
        let reader = self.join(prompt, true);
        self.turns.joined.notify_one();
        reader
    }

    /// Waits for the end of a turn: other nodes send no partial messages for this reader.
    pub(crate) fn wait(&self, prompt: PromptId) -> Reader {
        self.join(prompt, false)
    }

    fn join(&self, prompt: PromptId, is_live: bool) -> Reader {
        let (number, changed) = lock(&self.turns.audiences).entry(prompt).or_default().join(is_live);
        Reader { turns: self.turns.clone(), prompt, number, changed }
    }

    /// The number of prompts that have an audience.
    #[cfg(test)]
    pub(crate) fn audiences(&self) -> usize {
        lock(&self.turns.audiences).len()
    }
}

impl Turns {
    /// The turns to announce to the other nodes as read here. Notes the announcement.
    fn to_ask(&self) -> Vec<PromptId> {
        if self.peers.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut audiences = lock(&self.audiences);
        audiences.iter_mut().filter_map(|(prompt, audience)| audience.asks().then_some(*prompt)).collect()
    }

    /// Shows text of a turn that runs on another node.
    fn hear(&self, prompt: PromptId, piece: &Piece) {
        let changed = {
            let mut audiences = lock(&self.audiences);
            audiences.get_mut(&prompt).and_then(|audience| {
                audience.follows(piece.number, piece.starts).then(|| audience.show(partials(piece)))
            })
        };
        changed.inspect(|changed| changed.notify_waiters());
    }
}

impl Feed {
    /// Shows messages to the readers, in order. Nothing is kept without readers.
    pub(crate) fn show(&self, messages: impl IntoIterator<Item = LiveMessage>) {
        let messages: Vec<_> = messages.into_iter().collect();
        self.turns.elsewhere.take(self.prompt, &messages);
        let changed = lock(&self.turns.audiences).entry(self.prompt).or_default().show(messages);
        changed.notify_waiters();
    }
}

impl Drop for Feed {
    /// Tells the readers that the turn goes on elsewhere, or has its outcome soon.
    fn drop(&mut self) {
        let changed = leave(&self.turns, self.prompt, |audience| {
            audience.feeds -= 1;
            audience.look()
        });
        changed.inspect(|changed| changed.notify_waiters());
        self.turns.joined.notify_one();
    }
}

impl Reader {
    /// Waits for the next thing to hear. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Heard {
        loop {
            // Made before the look, so that a change in between is noticed.
            let changed = self.changed.notified();
            let heard = lock(&self.turns.audiences)
                .get_mut(&self.prompt)
                .and_then(|audience| audience.take(self.number));
            match heard {
                Some(heard) => return heard,
                None => changed.await,
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        leave(&self.turns, self.prompt, |audience| audience.leave(self.number));
    }
}

/// Changes an audience, and removes it if nobody is in it any more.
fn leave<T>(turns: &Turns, prompt: PromptId, change: impl FnOnce(&mut Audience) -> T) -> Option<T> {
    let mut turns = lock(&turns.audiences);
    let audience = turns.get_mut(&prompt)?;
    let changed = change(audience);
    if audience.is_empty() {
        turns.remove(&prompt);
    }
    Some(changed)
}

/// Has the readers of a turn look when the backend tells a change of it.
async fn pass_on(mut changes: broadcast::Receiver<Change>, turns: Arc<Turns>) {
    loop {
        let change = changes.recv().await;
        let changed: Vec<_> = match change {
            Ok(Change::Ended(prompt) | Change::Asked(prompt, _) | Change::Decided(prompt, _)) => {
                lock(&turns.audiences).get_mut(&prompt).map(Audience::look).into_iter().collect()
            }
            // A feed shows the messages itself.
            Ok(Change::Messages(prompt)) => {
                let mut turns = lock(&turns.audiences);
                let not_fed = turns.get_mut(&prompt).filter(|audience| audience.feeds == 0);
                not_fed.map(Audience::look).into_iter().collect()
            }
            // Changes were missed.
            Ok(Change::Missed) | Err(RecvError::Lagged(_)) => {
                lock(&turns.audiences).values_mut().map(Audience::look).collect()
            }
            Ok(_) => continue,
            Err(RecvError::Closed) => return,
        };
        changed.iter().for_each(|changed| changed.notify_waiters());
    }
}

/// Looks at the records of the turns that are read here and not fed, and has the readers of those look that have changed.
async fn look_each_second(backend: Weak<dyn Backend>, turns: Arc<Turns>) {
    // The last message and the questions of each turn at the look before, and `true` if it had ended; `None` without a record that can be
    // read.
    let mut seen: HashMap<PromptId, Option<(u64, u32, bool)>> = HashMap::new();
    loop {
        tokio::time::sleep(LOOK).await;
        let prompts = not_fed(&turns);
        seen.retain(|prompt, _| lock(&turns.audiences).contains_key(prompt));
        let Some(backend) = backend.upgrade() else { return };
        for page in prompts.chunks(Page::MOST) {
            let records = match timeout(ANSWER, backend.prompt_records(page.to_vec())).await {
                Ok(Ok(records)) => records,
                // The readers find the error themselves.
                Ok(Err(error)) if !error.is_unavailable() => Vec::new(),
                _ => break,
            };
            let state = |record: &PromptRecord| {
                let is_ended = matches!(record.state, PromptState::Ended { .. });
                (record.id, (record.last_seq, record.asked, is_ended))
            };
            let found: HashMap<_, _> = records.iter().map(state).collect();
            for prompt in page {
                let found = found.get(prompt).copied();
                // A turn that nobody has looked at yet may have changed since its reader came.
                if seen.insert(*prompt, found) != Some(found) {
                    let changed = lock(&turns.audiences).get_mut(prompt).map(Audience::look);
                    changed.inspect(|changed| changed.notify_waiters());
                }
            }
        }
    }
}

/// Announces to the other nodes which turns are read here and run elsewhere.
async fn ask(backend: Weak<dyn Backend>, turns: Arc<Turns>, me: Uuid) {
    loop {
        let Some(backend) = backend.upgrade() else { return };
        for page in turns.to_ask().chunks(NodeMessage::TURNS) {
            backend.publish(NodeMessage { from: me, news: NodeNews::Reads(page.to_vec()) });
        }
        drop(backend);
        // An error: no reader has joined in time.
        timeout(AGAIN, turns.joined.notified()).await.ok();
        tokio::time::sleep(COME).await;
    }
}

/// Publishes the text of turns that run here and are read elsewhere.
async fn publish(backend: Weak<dyn Backend>, turns: Arc<Turns>, me: Uuid) {
    loop {
        turns.elsewhere.written.notified().await;
        tokio::time::sleep(WRITE).await;
        let (pieces, is_more) = turns.elsewhere.pieces();
        let Some(backend) = backend.upgrade() else { return };
        for (prompt, piece) in pieces {
            backend.publish(NodeMessage { from: me, news: NodeNews::Writes(prompt, piece) });
        }
        if is_more {
            turns.elsewhere.written.notify_one();
        }
    }
}

/// Hears the other nodes.
async fn hear(mut messages: broadcast::Receiver<NodeMessage>, turns: Arc<Turns>, me: Uuid) {
    loop {
        match messages.recv().await {
            Ok(NodeMessage { from, .. }) if from == me => {}
            Ok(NodeMessage { news: NodeNews::Reads(prompts), .. }) => turns.elsewhere.watch(&prompts),
            Ok(NodeMessage { news: NodeNews::Writes(prompt, piece), .. }) => turns.hear(prompt, &piece),
            // The numbers of the later pieces show the gap.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

fn not_fed(turns: &Turns) -> Vec<PromptId> {
    let turns = lock(&turns.audiences);
    let not_fed = turns.iter().filter(|(_, audience)| audience.feeds == 0);
    not_fed.map(|(prompt, _)| *prompt).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code under this lock panics half way through a change: readers are woken after it is released.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
