//! Live readers of turns.
//!
//! ```text
//!  scribe ─► Feed ──► TurnSlot ──► Reader (a bounded queue) ──► FleetTurn ──► application
//!                         ▲
//!    changes of the backend, and a look each second: "read the records again"
//! ```
//!
//! A prompt has a slot while its turn runs here or somebody reads it. The messages of a turn that nobody reads are not kept.

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

/// The turns that run on this node, for readers that want messages as they come.
pub(crate) struct Hub {
    slots: Arc<Slots>,
    /// The tasks that hear of the backend's changes and look at the records. They end with the hub.
    _tasks: JoinSet<()>,
}

/// The place where a running turn shows its messages; dropped at the turn's end.
pub(crate) struct Feed(TurnSlot);

/// A reader of a turn.
pub(crate) struct Reader {
    slot: TurnSlot,
    number: u64,
}

type Slots = Mutex<HashMap<PromptId, Arc<ShownTurn>>>;

/// A turn as it is shown to its readers.
#[derive(Default)]
struct ShownTurn {
    audience: Mutex<Audience>,
    changed: Notify,
}

/// The slot of a turn, as its feed or one of its readers holds it.
struct TurnSlot {
    slots: Arc<Slots>,
    prompt: PromptId,
    shown: Arc<ShownTurn>,
}

impl Hub {
    /// A hub that has its readers look at their records when these have changed in the backend.
    pub(crate) fn of(backend: &Arc<dyn Backend>) -> Self {
        let (slots, mut tasks) = (Arc::default(), JoinSet::new());
        tasks.spawn(pass_on(backend.changes(), Arc::clone(&slots)));
        tasks.spawn(look_each_second(Arc::downgrade(backend), Arc::clone(&slots)));
        Self { slots, _tasks: tasks }
    }

    /// Opens the feed of a turn.
    pub(crate) fn open(&self, prompt: PromptId) -> Feed {
        let (slot, ()) = self.enter(prompt, |audience| audience.feeds += 1);
        slot.shown.changed.notify_waiters();
        Feed(slot)
    }

    /// Reads a turn from now on, whether it runs here already or not.
    pub(crate) fn read(&self, prompt: PromptId) -> Reader {
        let (slot, number) = self.enter(prompt, |audience| audience.join(true));
        Reader { slot, number }
    }

    /// Hears when the records of a prompt are to be read again, and of no messages.
    pub(crate) fn watch(&self, prompt: PromptId) -> Reader {
        let (slot, number) = self.enter(prompt, |audience| audience.join(false));
        Reader { slot, number }
    }

    fn enter<T>(&self, prompt: PromptId, change: impl FnOnce(&mut Audience) -> T) -> (TurnSlot, T) {
        let mut turns = lock(&self.slots);
        let shown = turns.entry(prompt).or_default().clone();
        let answer = change(&mut lock(&shown.audience));
        (TurnSlot { slots: self.slots.clone(), prompt, shown }, answer)
    }

    /// The number of prompts that have a slot.
    #[cfg(test)]
    pub(crate) fn slots(&self) -> usize {
        lock(&self.slots).len()
    }
}

impl Feed {
    /// Shows messages to the readers, in order. Nothing is kept without readers.
    pub(crate) fn show(&self, messages: impl IntoIterator<Item = LiveMessage>) {
        let mut audience = lock(&self.0.shown.audience);
        messages.into_iter().for_each(|message| audience.show(&message));
        drop(audience);
        self.0.shown.changed.notify_waiters();
    }
}

impl Drop for Feed {
    /// Tells the readers that the turn goes on elsewhere, or has its outcome soon.
    fn drop(&mut self) {
        self.0.leave(|audience| {
            audience.feeds -= 1;
            audience.look();
        });
        self.0.shown.changed.notify_waiters();
    }
}

impl Reader {
    /// The next thing to hear, if it is there.
    pub(crate) fn take(&mut self) -> Option<Heard> {
        lock(&self.slot.shown.audience).take(self.number)
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
        self.slot.leave(|audience| audience.leave(self.number));
    }
}

impl TurnSlot {
    /// Changes the audience, and removes the slot if nobody uses it any more.
    fn leave(&self, change: impl FnOnce(&mut Audience)) {
        let mut turns = lock(&self.slots);
        let mut audience = lock(&self.shown.audience);
        change(&mut audience);
        if audience.is_empty() {
            turns.remove(&self.prompt);
        }
    }
}

/// Passes changes of the backend on to the readers of the turns that they are about.
async fn pass_on(mut changes: broadcast::Receiver<Change>, slots: Arc<Slots>) {
    loop {
        let change = changes.recv().await;
        let shown: Vec<_> = match &change {
            Ok(Change::Ended(prompt) | Change::Messages(prompt)) => {
                lock(&slots).get(prompt).cloned().into_iter().collect()
            }
            // Changes were missed.
            Ok(Change::Missed) | Err(RecvError::Lagged(_)) => lock(&slots).values().cloned().collect(),
            Ok(_) => continue,
            Err(RecvError::Closed) => return,
        };
        for shown in shown {
            let mut audience = lock(&shown.audience);
            // A feed shows the messages itself.
            if audience.feeds > 0 && matches!(change, Ok(Change::Messages(_))) {
                continue;
            }
            audience.look();
            drop(audience);
            shown.changed.notify_waiters();
        }
    }
}

/// Looks at the records of the turns that are read here and not fed, and tells their readers of those that have changed.
async fn look_each_second(backend: Weak<dyn Backend>, slots: Arc<Slots>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let prompts = not_fed(&slots);
        let Some(backend) = backend.upgrade() else { return };
        for page in prompts.chunks(Page::MOST) {
            match timeout(ANSWER, backend.prompt_records(page.to_vec())).await {
                Ok(Ok(records)) => compare(&slots, page, &records),
                // The readers find the error themselves.
                Ok(Err(error)) if !error.is_unavailable() => compare(&slots, page, &[]),
                _ => break,
            }
        }
    }
}

fn not_fed(slots: &Slots) -> Vec<PromptId> {
    let turns = lock(slots);
    let not_fed = turns.iter().filter(|(_, shown)| lock(&shown.audience).feeds == 0);
    not_fed.map(|(prompt, _)| *prompt).collect()
}

/// Tells the readers of those turns to look whose records are others than at the look before.
fn compare(slots: &Slots, prompts: &[PromptId], records: &[PromptRecord]) {
    let found = |record: &PromptRecord| {
        (record.id, (record.last_seq, matches!(record.state, PromptState::Ended { .. })))
    };
    let found: HashMap<_, _> = records.iter().map(found).collect();
    for prompt in prompts {
        let Some(shown) = lock(slots).get(prompt).cloned() else { continue };
        if lock(&shown.audience).is_news(found.get(prompt).copied()) {
            shown.changed.notify_waiters();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code under these locks panics half way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
