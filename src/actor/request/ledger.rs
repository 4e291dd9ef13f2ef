//! The open requests of the CLI, by `request_id`.
//!
//! ```text
//!   reader ── admit ──► open ── settled (pending.rs) ──► swept
//!                        ├─ the incarnation ends: orphaned
//!                        └─ the router ends: answered with an error, and the ledger is closed for good
//! ```
//!
//! Each router has a ledger of its own. The reader admits the requests of one read under one lock. The router looks
//! requests up to withdraw or cancel them, for snapshots, and when an incarnation or the router ends. The duty to
//! answer is not here but in [`Answer`](super::answer::Answer). JSON-RPC ids are no keys: they repeat.
//!
//! A settled request stays in the ledger until the next sweep, see [`SweepMark`]. Handlers never take the lock.

use std::borrow::Borrow;
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

use foldhash::fast::RandomState;

use super::pending::PendingRequest;
use super::sweep_mark::{SweepBell, SweepMark};
use crate::lock::lock;
use crate::wire::rpc::RpcError;

/// The open requests of the CLI.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Nothing may panic under this lock, and no code of the application runs under it.
    book: Mutex<Book>,
    bell: Arc<SweepBell>,
}

#[derive(Default)]
struct Book {
    open: HashSet<ById, RandomState>,
    /// Ids of settled requests that the CLI may still list as pending, because answer and list crossed. Oldest first.
    settled: VecDeque<String>,
    /// The newest incarnation that has ended.
    ended_epoch: u64,
    /// Whether the router has ended.
    closed: bool,
}

/// A request, hashed and compared by its id.
struct ById(Arc<PendingRequest>);

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

/// Whether a request is to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Admitted,
    /// The incarnation of the request has ended.
    Ended,
    /// The CLI lists the request as pending, and it is or was in the ledger.
    Known,
    /// Another request with this id is in flight.
    Duplicate,
}

/// The locked ledger while requests are admitted.
pub(crate) struct Admissions<'a> {
    book: MutexGuard<'a, Book>,
    /// Removed requests. Declared after `book`, and so dropped after the lock is released.
    swept: Vec<Arc<PendingRequest>>,
}

impl Admissions<'_> {
    /// Enters a request. A `replayed` one is listed by the CLI as pending, and may be known.
    pub(crate) fn admit(&mut self, pending: &Arc<PendingRequest>, replayed: bool) -> Admission {
        let book = &mut *self.book;
        if pending.epoch() <= book.ended_epoch {
            return Admission::Ended;
        }
        if replayed && book.knows(pending.request_id()) {
            return Admission::Known;
        }
        // An open request keeps its id; a settled one that is not swept yet makes room.
        match book.open.replace(ById(pending.clone())) {
            Some(other) if other.0.is_open() => {
                book.open.replace(other);
                Admission::Duplicate
            }
            other => {
                self.swept.extend(other.map(|ById(pending)| pending));
                Admission::Admitted
            }
        }
    }
}

impl Book {
    fn knows(&self, request_id: &str) -> bool {
        self.open.contains(request_id) || self.settled.iter().any(|settled| settled == request_id)
    }

    /// Removes settled requests and gives them back, to be dropped after the lock is released. Remembers the ids of at
    /// most `remembered` of those that the CLI may list as pending.
    fn sweep(&mut self, mark: &SweepMark, remembered: usize) -> Vec<Arc<PendingRequest>> {
        let mut swept = Vec::new();
        let mut due = mark.is_due();
        while due {
            mark.begin();
            for ById(pending) in self.open.extract_if(|pending| !pending.0.is_open()) {
                if pending.kind.is_listed() {
                    self.settled.push_back(pending.request_id().to_owned());
                }
                swept.push(pending);
            }
            while self.settled.len() > remembered {
                self.settled.pop_front();
            }
            // The capacity for a burst is not kept for the few requests that follow.
            if SweepMark::is_roomy(self.open.capacity(), self.open.len()) {
                self.open.shrink_to(2 * self.open.len());
            }
            due = mark.end(self.open.len());
        }
        swept
    }
}

impl Ledger {
    /// Opens the ledger of a router: requests of incarnations up to `ended_epoch` are not admitted. `wake` is called
    /// when the ledger has to be swept.
    pub(crate) fn start(&self, ended_epoch: u64, wake: impl Fn() + Send + 'static) {
        let mut book = lock(&self.book);
        book.ended_epoch = book.ended_epoch.max(ended_epoch);
        self.bell.set_wake(Some(Box::new(wake)));
    }

    /// Counts settled requests, and wakes the router for a sweep.
    pub(crate) fn bell(&self) -> &Arc<SweepBell> {
        &self.bell
    }

    /// Locks the ledger to admit requests; `None` if the router has ended. For `remembered` see
    /// [`sweep`](Ledger::sweep).
    pub(crate) fn admissions(&self, remembered: usize) -> Option<Admissions<'_>> {
        let mut book = lock(&self.book);
        if book.closed {
            return None;
        }
        let swept = book.sweep(self.bell.mark(), remembered);
        Some(Admissions { book, swept })
    }

    /// Whether the router has ended.
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.book).closed
    }

    /// Removes settled requests if enough have gathered. Remembers the ids of at most `remembered` of those that the
    /// CLI may still list as pending.
    pub(crate) fn sweep(&self, remembered: usize) {
        let swept = lock(&self.book).sweep(self.bell.mark(), remembered);
        drop(swept);
    }

    pub(crate) fn get(&self, request_id: &str) -> Option<Arc<PendingRequest>> {
        lock(&self.book)
            .open
            .get(request_id)
            .map(|pending| pending.0.clone())
            .filter(|pending| pending.is_open())
    }

    /// All open requests.
    pub(crate) fn open(&self) -> Vec<Arc<PendingRequest>> {
        lock(&self.book)
            .open
            .iter()
            .map(|pending| pending.0.clone())
            .filter(|pending| pending.is_open())
            .collect()
    }

    /// Orphans the requests of an incarnation that has ended, and of all before it.
    pub(crate) fn end_epoch(&self, epoch: u64) {
        let mut ended = Vec::new();
        {
            let mut book = lock(&self.book);
            book.ended_epoch = book.ended_epoch.max(epoch);
            book.settled.clear();
            ended.extend(book.open.extract_if(|pending| pending.0.epoch() <= epoch));
        }
        for ById(pending) in ended.into_iter().filter(|pending: &ById| pending.0.is_open()) {
            pending.orphan();
        }
    }

    /// Answers all open requests with an error, because the router has ended, and admits no more.
    pub(crate) fn close(&self) {
        let open: Vec<_> = {
            let mut book = lock(&self.book);
            book.closed = true;
            self.bell.set_wake(None);
            book.open.drain().map(|ById(pending)| pending).collect()
        };
        for pending in open.into_iter().filter(|pending| pending.is_open()) {
            pending.refuse(&RpcError::internal("the control router of the host has ended"));
            pending.cancel.cancel();
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ledger")
    }
}

#[cfg(test)]
mod tests;
