//! Who owes the CLI an answer: its open requests, by `request_id`.
//!
//! ```text
//!   reader ── admit ──► open ── settled (owed.rs) ──► swept
//!                        ├─ the incarnation ends: given up
//!                        └─ the router ends: answered with an error, and the ledger is closed for ever
//! ```
//!
//! Each router has a ledger of its own. The reader enters what it reads, many requests at once; the router and the
//! application look things up in it. The duty to answer is not here but in [`Answer`](super::owed::Answer): the ledger is
//! for withdrawing and cancelling, for the snapshot, and for the end of an incarnation or of the router. JSON-RPC ids are
//! no keys here: they repeat.
//!
//! What is settled stays on the list until it is swept, see [`Sweeping`]. So a request costs no message to the router, and
//! the price of sweeping is the same for each, however many are open. The lock is
//! taken once for all requests of one read, and for a few other things that are rare; never by a handler.

use std::borrow::Borrow;
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;

use super::owed::Owed;
use crate::wire::rpc::RpcError;

/// The open requests of the CLI.
#[derive(Default)]
pub(crate) struct Ledger {
    book: Mutex<Book>,
    settling: Sweeping,
}

/// When what is left behind by many is to be swept: once it is half as many as are kept, or [`LEAST`](Sweeping::LEAST).
/// Whoever keeps the list looks when something new comes, which is nearly always soon enough. If nothing comes, he is told
/// when all that were kept are left behind, but not of fewer than [`PATIENCE`](Sweeping::PATIENCE) times the least.
#[derive(Debug)]
pub(crate) struct Sweeping {
    left: AtomicUsize,
    mark: AtomicUsize,
    urgent: AtomicBool,
}

impl Default for Sweeping {
    fn default() -> Self {
        Self {
            left: AtomicUsize::new(0),
            mark: AtomicUsize::new(Self::LEAST),
            urgent: AtomicBool::new(false),
        }
    }
}

impl Sweeping {
    /// How many are left behind at least before they are swept. What a settled request still holds is little more than its
    /// ids.
    pub(crate) const LEAST: usize = 16;

    /// When nothing new comes.
    pub(crate) const PATIENCE: usize = 4;

    /// Whether a list of so many has far more room than it needs.
    pub(crate) fn is_roomy(room: usize, len: usize) -> bool {
        room > 512.max(8 * len)
    }

    /// One more is left behind, which cannot wait if it is `urgent`; true for the one of which has to be told.
    pub(crate) fn leave(&self, urgent: bool) -> bool {
        if urgent {
            self.urgent.store(true, Ordering::Release);
        }
        let left = self.left.fetch_add(1, Ordering::AcqRel) + 1;
        let mark = self.mark.load(Ordering::Acquire);
        // Never more than those that were kept, for no others may follow.
        urgent || left == mark.saturating_mul(2).max(Self::PATIENCE * Self::LEAST)
    }

    /// Whether the mark is reached.
    pub(crate) fn is_due(&self) -> bool {
        self.urgent.load(Ordering::Acquire)
            || self.left.load(Ordering::Acquire) >= self.mark.load(Ordering::Acquire)
    }

    /// It is swept now. What is left behind from here on counts anew.
    pub(crate) fn begin(&self) {
        // Nobody reaches a mark that is out of reach: whoever leaves something behind meanwhile is counted at the end.
        self.mark.store(usize::MAX, Ordering::Release);
        self.left.swap(0, Ordering::AcqRel);
        self.urgent.swap(false, Ordering::AcqRel);
    }

    /// So many were kept. True if the next sweep is due already.
    pub(crate) fn end(&self, kept: usize) -> bool {
        let mark = Self::LEAST.max(kept / 2);
        self.mark.store(mark, Ordering::Release);
        self.urgent.load(Ordering::Acquire) || self.left.load(Ordering::Acquire) >= mark
    }
}

#[derive(Default)]
struct Book {
    open: HashSet<ById, RandomState>,
    /// What the CLI may list as pending though it was settled, because the answer and the list crossed. The oldest go
    /// first.
    settled: VecDeque<String>,
    /// The newest incarnation that has ended.
    ended_epoch: u64,
    /// Whether the router has ended.
    closed: bool,
    /// Wakes the router.
    wake: Option<Box<dyn Fn() + Send>>,
}

/// A request, found by its id.
struct ById(Arc<Owed>);

impl Borrow<str> for ById {
    fn borrow(&self) -> &str {
        self.0.request_id()
    }
}

impl Hash for ById {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.request_id().hash(state);
    }
}

impl PartialEq for ById {
    fn eq(&self, other: &Self) -> bool {
        self.0.request_id() == other.0.request_id()
    }
}

impl Eq for ById {}

/// Whether a request is to be looked after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Fine,
    /// Its incarnation has ended.
    Ended,
    /// One that the CLI lists as pending, and is or was here.
    Known,
    /// A request with this id is in flight already.
    Duplicate,
}

/// The ledger while requests are entered.
pub(crate) struct Admissions<'a> {
    book: MutexGuard<'a, Book>,
    /// What is off the list: with it may go a span, which is a matter of the application and none under the lock.
    swept: Vec<Arc<Owed>>,
}

impl Admissions<'_> {
    /// Enters a request. `replayed` is one that the CLI lists as pending.
    pub(crate) fn admit(&mut self, owed: &Arc<Owed>, replayed: bool) -> Admission {
        let book = &mut *self.book;
        if owed.epoch() <= book.ended_epoch {
            return Admission::Ended;
        }
        if replayed && book.knows(owed.request_id()) {
            return Admission::Known;
        }
        // One with the same id that is settled and not swept yet makes room; one that is open stays.
        match book.open.replace(ById(owed.clone())) {
            Some(other) if other.0.is_open() => {
                book.open.replace(other);
                Admission::Duplicate
            }
            other => {
                self.swept.extend(other.map(|ById(owed)| owed));
                Admission::Fine
            }
        }
    }
}

impl Book {
    fn knows(&self, request_id: &str) -> bool {
        self.open.contains(request_id) || self.settled.iter().any(|settled| settled == request_id)
    }
}

impl Ledger {
    /// A ledger in which nothing is entered of an incarnation up to this one. `wake` is called when it is to be swept.
    pub(crate) fn start(&self, ended_epoch: u64, wake: impl Fn() + Send + 'static) {
        let mut book = self.lock();
        book.ended_epoch = book.ended_epoch.max(ended_epoch);
        book.wake = Some(Box::new(wake));
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        // Nothing panics under the lock.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to enter requests; `None` if the router has ended. Of those that the CLI may list as pending, so many are
    /// `remembered` after they were settled.
    pub(crate) fn admissions(&self, remembered: usize) -> Option<Admissions<'_>> {
        let mut book = self.lock();
        if book.closed {
            return None;
        }
        let swept = self.sweep_book(&mut book, remembered);
        Some(Admissions { book, swept })
    }

    /// Whether the router has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// One of its requests was settled, which has to be swept at once if it is `urgent`.
    pub(super) fn settled(&self, urgent: bool) {
        if self.settling.leave(urgent)
            && let Some(wake) = &self.lock().wake
        {
            wake();
        }
    }

    /// Takes what is settled off the list, if it is time for that.
    pub(crate) fn sweep(&self, remembered: usize) {
        let swept = self.sweep_book(&mut self.lock(), remembered);
        drop(swept);
    }

    /// What it gives is to be dropped without the lock.
    fn sweep_book(&self, book: &mut Book, remembered: usize) -> Vec<Arc<Owed>> {
        let mut swept = Vec::new();
        let mut due = self.settling.is_due();
        while due {
            self.settling.begin();
            let Book { open, settled, .. } = book;
            for ById(owed) in open.extract_if(|owed| !owed.0.is_open()) {
                if ["can_use_tool", "request_user_dialog", "elicitation"].contains(&owed.kind) {
                    settled.push_back(owed.request_id().to_owned());
                }
                swept.push(owed);
            }
            while settled.len() > remembered {
                settled.pop_front();
            }
            // What was needed for ten thousand at once is not kept for the few that follow.
            if Sweeping::is_roomy(open.capacity(), open.len()) {
                open.shrink_to(2 * open.len());
            }
            due = self.settling.end(open.len());
        }
        swept
    }

    /// An open request.
    pub(crate) fn get(&self, request_id: &str) -> Option<Arc<Owed>> {
        self.lock().open.get(request_id).map(|owed| owed.0.clone()).filter(|owed| owed.is_open())
    }

    /// All open requests.
    pub(crate) fn open(&self) -> Vec<Arc<Owed>> {
        self.lock().open.iter().map(|owed| owed.0.clone()).filter(|owed| owed.is_open()).collect()
    }

    /// Gives up what an incarnation asked, and all before it.
    pub(crate) fn end_epoch(&self, epoch: u64) {
        let mut ended = Vec::new();
        {
            let mut book = self.lock();
            book.ended_epoch = book.ended_epoch.max(epoch);
            book.settled.clear();
            ended.extend(book.open.extract_if(|owed| owed.0.epoch() <= epoch));
        }
        for ById(owed) in ended.into_iter().filter(|owed: &ById| owed.0.is_open()) {
            owed.orphan();
        }
    }

    /// The router ends and owes nothing: what is open is answered with an error, and nothing more is entered.
    pub(crate) fn close(&self) {
        let open: Vec<_> = {
            let mut book = self.lock();
            book.closed = true;
            book.wake = None;
            book.open.drain().map(|ById(owed)| owed).collect()
        };
        for owed in open.into_iter().filter(|owed| owed.is_open()) {
            owed.refuse(&RpcError::internal("the control router of the host has ended"));
            owed.cancel.cancel();
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ledger")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::owed::Answer;
    use crate::actor::owed::tests::Desk;

    const LEAST: usize = Sweeping::LEAST;

    fn admit(ledger: &Ledger, answer: &Answer, replayed: bool) -> Admission {
        ledger.admissions(8).unwrap().admit(answer.owed(), replayed)
    }

    #[tokio::test]
    async fn an_id_may_be_used_again_once_it_is_settled_and_not_before() {
        let ledger = Arc::default();
        let desk = Desk::open(1, &ledger);
        let first = desk.asks("a", false);
        assert_eq!(admit(&ledger, &first, false), Admission::Fine);
        let second = desk.asks("a", false);
        assert_eq!(admit(&ledger, &second, false), Admission::Duplicate);
        second.without_answer();
        first.hand_over().success(1);
        let third = desk.asks("a", false);
        assert_eq!(admit(&ledger, &third, false), Admission::Fine);
        // The first is swept, and must not take the third along.
        (0..LEAST).for_each(|_| ledger.settled(false));
        ledger.sweep(8);
        assert!(ledger.get("a").is_some());
        ledger.close();
        assert!(!third.owed().is_open(), "a ledger that ends answers for what is open");
        assert!(ledger.admissions(8).is_none());
        drop(third);
        assert_eq!(desk.written().await.len(), 2);
    }

    #[tokio::test]
    async fn the_end_of_an_incarnation_orphans_its_requests_and_no_younger_ones() {
        let ledger = Arc::default();
        let (old, new) = (Desk::open(1, &ledger), Desk::open(2, &ledger));
        let (first, second) = (old.asks("a", false), new.asks("b", false));
        assert_eq!(admit(&ledger, &first, false), Admission::Fine);
        assert_eq!(admit(&ledger, &second, false), Admission::Fine);
        ledger.end_epoch(1);
        assert!(first.owed().cancel.is_cancelled() && !second.owed().cancel.is_cancelled());
        let late = old.asks("c", false);
        assert_eq!(admit(&ledger, &late, false), Admission::Ended);
        late.without_answer();
        first.hand_over().success(1);
        second.hand_over().success(2);
        assert!(old.written().await.is_empty());
        assert_eq!(new.written().await.len(), 1);
    }

    #[test]
    fn what_is_settled_is_swept_when_as_much_is_settled_as_is_open() {
        let ledger = Arc::new(Ledger::default());
        let woken = Arc::new(AtomicUsize::new(0));
        let wakes = woken.clone();
        ledger.start(0, move || {
            wakes.fetch_add(1, Ordering::Relaxed);
        });
        let desk = Desk::open(1, &ledger);
        let listed = || ledger.lock().open.len();
        let mut answers: Vec<_> = (0..200).map(|n| desk.asks(&n.to_string(), false)).collect();
        answers.iter().for_each(|answer| assert_eq!(admit(&ledger, answer, false), Admission::Fine));
        let settle = |answers: &mut Vec<Answer>, count: usize| {
            answers.drain(..count).for_each(|answer| answer.hand_over().success(1));
        };
        settle(&mut answers, LEAST - 1);
        ledger.sweep(8);
        assert_eq!(listed(), 200, "not yet");
        settle(&mut answers, 1);
        ledger.sweep(8);
        assert_eq!((listed(), woken.load(Ordering::Relaxed)), (184, 0), "whoever looks has not to be told");
        // From now on half of what is open.
        settle(&mut answers, 91);
        ledger.sweep(8);
        assert_eq!(listed(), 184);
        settle(&mut answers, 1);
        ledger.sweep(8);
        assert_eq!(listed(), 92);
        // Nothing else comes: it is told when the last one is settled.
        settle(&mut answers, 91);
        assert_eq!(woken.load(Ordering::Relaxed), 0);
        settle(&mut answers, 1);
        assert_eq!(woken.load(Ordering::Relaxed), 1);
        ledger.sweep(8);
        assert_eq!(listed(), 0);
        // As many at once that nobody has looked at meanwhile.
        let mut answers: Vec<_> = (0..1_000).map(|n| desk.asks(&format!("b{n}"), false)).collect();
        answers.iter().for_each(|answer| assert_eq!(admit(&ledger, answer, false), Admission::Fine));
        for _ in 0..1_000 {
            let before = woken.load(Ordering::Relaxed);
            settle(&mut answers, 1);
            if woken.load(Ordering::Relaxed) > before {
                ledger.sweep(8);
            }
        }
        assert!(listed() <= Sweeping::PATIENCE * LEAST, "{} are left", listed());
        assert!(woken.load(Ordering::Relaxed) <= 8, "it is told seldom");
        assert!(!Sweeping::is_roomy(ledger.lock().open.capacity(), 0));
    }

    #[test]
    fn what_the_cli_may_list_as_pending_is_remembered_up_to_a_bound() {
        let ledger = Arc::new(Ledger::default());
        let desk = Desk::open(1, &ledger);
        for n in 0..LEAST {
            let answer = desk.asks_as("can_use_tool", &n.to_string());
            assert_eq!(admit(&ledger, &answer, false), Admission::Fine);
            answer.hand_over().success(1);
        }
        ledger.sweep(8);
        assert_eq!(ledger.lock().settled.len(), 8);
        let again = ledger.lock().settled[0].clone();
        assert_eq!(admit(&ledger, &desk.asks(&again, false), true), Admission::Known);
        assert_eq!(admit(&ledger, &desk.asks(&again, false), false), Admission::Fine);
        ledger.end_epoch(1);
        assert!(ledger.lock().settled.is_empty(), "the next CLI knows nothing of them");
    }
}
