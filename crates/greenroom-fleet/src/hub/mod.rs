//! Live readers of turns.
//!
//! ```text
//!  scribe ─► Feed ──► TurnSlot (a bounded ring) ──► Reader ──► FleetTurn ──► application
//!                         ▲
//!    changes of the backend, and a look each second: "read the records again"
//! ```
//!
//! A prompt has a slot while its turn runs here or somebody reads it. The messages of a turn that nobody reads are not kept.

mod ring;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, broadcast};
use tokio::task::JoinSet;

pub(crate) use self::ring::{Heard, LiveMessage};
use self::ring::{MessageRing, ReaderPlace};
use crate::actor::retry::is_unavailable;
use crate::backend::{Backend, Requests};
use crate::id::PromptId;
use crate::record::{PromptRecord, PromptState};
use crate::request::{Change, Page};

/// The time between two looks at the records of all turns that are read here and not fed: a change may be missed.
const LOOK: Duration = Duration::from_secs(1);

/// The turns that run on this node, for readers that want messages as they come.
#[derive(Debug, Default)]
pub(crate) struct Hub(Arc<Slots>);

/// The place where a running turn shows its messages; dropped at the turn's end.
#[derive(Debug)]
pub(crate) struct Feed(TurnSlot);

/// A reader of a turn.
#[derive(Debug)]
pub(crate) struct Reader {
    slot: TurnSlot,
    place: ReaderPlace,
}

#[derive(Default)]
struct Slots {
    turns: Mutex<HashMap<PromptId, Arc<ShownTurn>>>,
    /// The tasks that hear of the backend's changes and look at the records, from the first reader on. They end with the hub.
    tasks: Mutex<JoinSet<()>>,
}

/// A turn as it is shown to its readers.
#[derive(Default)]
struct ShownTurn {
    ring: Mutex<MessageRing>,
    changed: Notify,
}

/// The slot of a turn, as its feed or one of its readers holds it.
struct TurnSlot {
    slots: Arc<Slots>,
    prompt: PromptId,
    shown: Arc<ShownTurn>,
}

impl Hub {
    /// Opens the feed of a turn.
    pub(crate) fn open(&self, prompt: PromptId) -> Feed {
        let (slot, ()) = self.0.enter(prompt, |ring| ring.feeds += 1);
        slot.shown.changed.notify_waiters();
        Feed(slot)
    }

    /// Reads a turn from now on, whether it runs here already or not.
    pub(crate) fn read(&self, prompt: PromptId, backend: &Arc<dyn Backend>) -> Reader {
        self.join(prompt, backend, true)
    }

    /// Hears when the records of a prompt are to be read again, and of no messages.
    pub(crate) fn watch(&self, prompt: PromptId, backend: &Arc<dyn Backend>) -> Reader {
        self.join(prompt, backend, false)
    }

    fn join(&self, prompt: PromptId, backend: &Arc<dyn Backend>, messages: bool) -> Reader {
        self.0.start(backend);
        let (slot, place) = self.0.enter(prompt, |ring| ring.join(messages));
        Reader { slot, place }
    }

    /// The number of prompts that have a slot.
    #[cfg(test)]
    pub(crate) fn slots(&self) -> usize {
        lock(&self.0.turns).len()
    }
}

impl Feed {
    /// Shows messages to the readers, in order. Nothing is kept without readers.
    pub(crate) fn show(&self, messages: impl IntoIterator<Item = LiveMessage>) {
        let mut ring = lock(&self.0.shown.ring);
        for message in messages {
            ring.push(message);
        }
        drop(ring);
        self.0.shown.changed.notify_waiters();
    }
}

impl Drop for Feed {
    /// Tells the readers that the turn goes on elsewhere, or has its outcome soon.
    fn drop(&mut self) {
        self.0.leave(|ring| {
            ring.feeds -= 1;
            ring.looks += 1;
        });
        self.0.shown.changed.notify_waiters();
    }
}

impl Reader {
    /// The next thing to hear, if it is there.
    pub(crate) fn take(&mut self) -> Option<Heard> {
        lock(&self.slot.shown.ring).take(&mut self.place)
    }

    /// Waits for the next thing to hear. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Heard {
        let shown = self.slot.shown.clone();
        loop {
            // Made before the look, so that a change in between is noticed.
            let changed = shown.changed.notified();
            if let Some(heard) = self.take() {
                return heard;
            }
            changed.await;
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let place = &self.place;
        self.slot.leave(|ring| ring.leave(place));
    }
}

impl Slots {
    fn enter<T>(
        self: &Arc<Self>,
        prompt: PromptId,
        change: impl FnOnce(&mut MessageRing) -> T,
    ) -> (TurnSlot, T) {
        let mut turns = lock(&self.turns);
        let shown = turns.entry(prompt).or_default().clone();
        let answer = change(&mut lock(&shown.ring));
        (TurnSlot { slots: self.clone(), prompt, shown }, answer)
    }

    /// Starts the tasks, unless they run.
    fn start(self: &Arc<Self>, backend: &Arc<dyn Backend>) {
        let mut tasks = lock(&self.tasks);
        // The tasks also end with the runtime that they were started on.
        while tasks.try_join_next().is_some() {}
        if tasks.is_empty() {
            tasks.spawn(pass_on(backend.changes(), Arc::downgrade(self)));
            tasks.spawn(look_each_second(Arc::downgrade(backend), Arc::downgrade(self)));
        }
    }

    /// The turns that do not run here: their readers hear of a change from the backend alone.
    fn not_fed(&self) -> Vec<PromptId> {
        let turns = lock(&self.turns);
        let not_fed = turns.iter().filter(|(_, shown)| lock(&shown.ring).feeds == 0);
        not_fed.map(|(prompt, _)| *prompt).collect()
    }

    /// Tells the readers of those turns to look whose records are others than at the look before.
    fn compare(&self, prompts: &[PromptId], records: &[PromptRecord]) {
        let found = |record: &PromptRecord| {
            (record.id, (record.last_seq, matches!(record.state, PromptState::Ended { .. })))
        };
        let found: HashMap<_, _> = records.iter().map(found).collect();
        for prompt in prompts {
            let Some(shown) = lock(&self.turns).get(prompt).cloned() else { continue };
            if lock(&shown.ring).is_news(found.get(prompt).copied()) {
                shown.changed.notify_waiters();
            }
        }
    }

    /// Tells the readers of a turn to look at its records.
    fn look(&self, prompt: PromptId, change: &Change) {
        let shown = lock(&self.turns).get(&prompt).cloned();
        if let Some(shown) = shown {
            let mut ring = lock(&shown.ring);
            // A feed shows the messages itself.
            if ring.feeds > 0 && matches!(change, Change::Messages(_)) {
                return;
            }
            ring.looks += 1;
            drop(ring);
            shown.changed.notify_waiters();
        }
    }

    /// Tells all readers to look at their records, because changes were missed.
    fn all_look(&self) {
        let all: Vec<_> = lock(&self.turns).values().cloned().collect();
        for shown in all {
            lock(&shown.ring).looks += 1;
            shown.changed.notify_waiters();
        }
    }
}

impl TurnSlot {
    /// Changes the ring, and removes the slot if nobody uses it any more.
    fn leave(&self, change: impl FnOnce(&mut MessageRing)) {
        let mut turns = lock(&self.slots.turns);
        let mut ring = lock(&self.shown.ring);
        change(&mut ring);
        if ring.is_unused() {
            turns.remove(&self.prompt);
        }
    }
}

/// Passes changes of the backend on to the readers of the turns that they are about.
async fn pass_on(mut changes: broadcast::Receiver<Change>, slots: Weak<Slots>) {
    loop {
        let change = changes.recv().await;
        let Some(slots) = slots.upgrade() else { return };
        match change {
            Ok(change @ (Change::Ended(prompt) | Change::Messages(prompt))) => slots.look(prompt, &change),
            Ok(Change::Missed) | Err(RecvError::Lagged(_)) => slots.all_look(),
            Ok(_) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

/// Looks at the records of the turns that are not fed here.
async fn look_each_second(backend: Weak<dyn Backend>, slots: Weak<Slots>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let prompts = slots.upgrade().map(|slots| slots.not_fed());
        let (Some(prompts), Some(backend)) = (prompts, backend.upgrade()) else { return };
        for page in prompts.chunks(Page::MOST) {
            // The hub may end while the backend is asked.
            let records = backend.prompt_records(page.to_vec()).await;
            let Some(slots) = slots.upgrade() else { return };
            match records {
                Ok(records) => slots.compare(page, &records),
                Err(error) if is_unavailable(&error) => break,
                // The readers find the error themselves.
                Err(_) => slots.all_look(),
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code under these locks panics half way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("turns", &lock(&self.turns).len()).finish()
    }
}

impl fmt::Debug for TurnSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TurnSlot").field(&self.prompt).finish()
    }
}
