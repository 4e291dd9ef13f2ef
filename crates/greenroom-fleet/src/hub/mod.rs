//! Live readers of turns.
//!
//! ```text
//!  scribe ─► Feed ──► Audience ──► Reader (a bounded queue) ──► FleetTurn ──► application
//!                        ▲
//!    changes of the backend, and a look each second: "read the records again"
//! ```
//!
//! A turn has an audience while it runs here or somebody reads it. Messages without a reader are not kept.

#[cfg(test)]
mod tests;
mod unheard;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, broadcast};
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::unheard::Audience;
pub(crate) use self::unheard::{Heard, LiveMessage};
use crate::backend::{Backend, Requests};
use crate::id::PromptId;
use crate::record::{PromptRecord, PromptState};
use crate::request::{Change, Page};

/// The time between two looks at the records of all turns that are read here and not fed: a change may be missed.
const LOOK: Duration = Duration::from_secs(1);
/// The longest wait for such a look.
const ANSWER: Duration = Duration::from_secs(5);

/// The turns that run or are read on this node, for readers that want messages as they come.
pub(crate) struct Hub {
    turns: Arc<Turns>,
    /// The tasks that hear of the backend's changes and look at the records. They end with the hub.
    _tasks: JoinSet<()>,
}

type Turns = Mutex<HashMap<PromptId, Audience>>;

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
    /// A hub that has its readers look at their records when these have changed in the backend.
    pub(crate) fn of(backend: &Arc<dyn Backend>) -> Self {
        let (turns, mut tasks) = (Arc::default(), JoinSet::new());
        tasks.spawn(pass_on(backend.changes(), Arc::clone(&turns)));
        tasks.spawn(look_each_second(Arc::downgrade(backend), Arc::clone(&turns)));
        Self { turns, _tasks: tasks }
    }

    /// Opens the feed of a turn.
    pub(crate) fn open(&self, prompt: PromptId) -> Feed {
        lock(&self.turns).entry(prompt).or_default().feeds += 1;
        Feed { turns: self.turns.clone(), prompt }
    }

    /// Reads a turn from now on, whether it runs here already or not.
    pub(crate) fn read(&self, prompt: PromptId) -> Reader {
        let (number, changed) = lock(&self.turns).entry(prompt).or_default().join();
        Reader { turns: self.turns.clone(), prompt, number, changed }
    }

    /// The number of prompts that have an audience.
    #[cfg(test)]
    pub(crate) fn audiences(&self) -> usize {
        lock(&self.turns).len()
    }
}

impl Feed {
    /// Shows messages to the readers, in order. Nothing is kept without readers.
    pub(crate) fn show(&self, messages: impl IntoIterator<Item = LiveMessage>) {
        let changed = lock(&self.turns).entry(self.prompt).or_default().show(messages);
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
    }
}

impl Reader {
    /// Waits for the next thing to hear. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Heard {
        loop {
            // Made before the look, so that a change in between is noticed.
            let changed = self.changed.notified();
            let heard =
                lock(&self.turns).get_mut(&self.prompt).and_then(|audience| audience.take(self.number));
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
    let mut turns = lock(turns);
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
            Ok(Change::Ended(prompt)) => {
                lock(&turns).get_mut(&prompt).map(Audience::look).into_iter().collect()
            }
            Ok(Change::Asked(prompt, _) | Change::Decided(prompt, _)) => {
                lock(&turns).get_mut(&prompt).map(Audience::questions).into_iter().collect()
            }
            // A feed shows the messages itself.
            Ok(Change::Messages(prompt)) => {
                let mut turns = lock(&turns);
                let not_fed = turns.get_mut(&prompt).filter(|audience| audience.feeds == 0);
                not_fed.map(Audience::look).into_iter().collect()
            }
            // Changes were missed.
            Ok(Change::Missed) | Err(RecvError::Lagged(_)) => {
                lock(&turns).values_mut().map(Audience::look).collect()
            }
            Ok(_) => continue,
            Err(RecvError::Closed) => return,
        };
        changed.iter().for_each(|changed| changed.notify_waiters());
    }
}

/// Looks at the records of the turns that are read here and not fed, and has the readers of those look that have changed.
async fn look_each_second(backend: Weak<dyn Backend>, turns: Arc<Turns>) {
    // The last message of each turn at the look before, and `true` if it had ended; `None` without a record that can be read.
    let mut seen: HashMap<PromptId, Option<(u64, bool)>> = HashMap::new();
    loop {
        tokio::time::sleep(LOOK).await;
        let prompts = not_fed(&turns);
        seen.retain(|prompt, _| lock(&turns).contains_key(prompt));
        let Some(backend) = backend.upgrade() else { return };
        for page in prompts.chunks(Page::MOST) {
            let records = match timeout(ANSWER, backend.prompt_records(page.to_vec())).await {
                Ok(Ok(records)) => records,
                // The readers find the error themselves.
                Ok(Err(error)) if !error.is_unavailable() => Vec::new(),
                _ => break,
            };
            let state = |record: &PromptRecord| {
                (record.id, (record.last_seq, matches!(record.state, PromptState::Ended { .. })))
            };
            let found: HashMap<_, _> = records.iter().map(state).collect();
            for prompt in page {
                let found = found.get(prompt).copied();
                // A turn that nobody has looked at yet may have changed since its reader came.
                if seen.insert(*prompt, found) != Some(found) {
                    let changed = lock(&turns).get_mut(prompt).map(Audience::look);
                    changed.inspect(|changed| changed.notify_waiters());
                }
            }
        }
    }
}

fn not_fed(turns: &Turns) -> Vec<PromptId> {
    let turns = lock(turns);
    let not_fed = turns.iter().filter(|(_, audience)| audience.feeds == 0);
    not_fed.map(|(prompt, _)| *prompt).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code under this lock panics half way through a change: readers are woken after it is released.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
