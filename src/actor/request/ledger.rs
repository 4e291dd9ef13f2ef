//! The open requests of the CLI, by `request_id`.
//!
//! ```text
//!   reader ── enter ──► open ── settled (pending.rs) ──► left
//!                        └─ the incarnation ends: orphaned
//! ```
//!
//! A session has one ledger, which lives as long as the session. The reader enters requests, and looks them up when the
//! CLI withdraws them. A request leaves the ledger when it is settled, on any thread. [`Answer`](super::answer::Answer) holds the
//! duty to answer. JSON-RPC ids are no keys: they repeat.

use std::borrow::Borrow;
use std::collections::{HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

use foldhash::fast::RandomState;

use super::is_roomy;
use super::pending::PendingRequest;
use crate::lock::lock;

/// The open requests of the CLI.
pub(crate) struct Ledger {
    /// Nothing may panic under this lock, and no code of the application runs under it.
    book: Mutex<Book>,
    /// Most ids of settled requests that are remembered.
    remembered: usize,
}

#[derive(Default)]
struct Book {
    open: HashSet<ById, RandomState>,
    /// Ids of settled requests that the CLI may still list as pending, because answer and list crossed. Oldest first.
    settled: VecDeque<String>,
    /// The newest incarnation that has ended.
    ended_epoch: u64,
}

impl Book {
    fn shrink(&mut self) {
        let len = self.open.len();
        if is_roomy(self.open.capacity(), len) {
            self.open.shrink_to(2 * len);
        }
    }
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

/// The result of entering a request.
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

impl Ledger {
    /// An empty ledger that remembers the ids of at most `remembered` settled requests.
    pub(crate) fn new(remembered: usize) -> Self {
        Self { book: Mutex::default(), remembered }
    }

    /// Enters a request. A `replayed` one is listed by the CLI as pending, and may be known.
    pub(crate) fn enter(&self, pending: &Arc<PendingRequest>, replayed: bool) -> Admission {
        let request_id = pending.request_id();
        let mut book = lock(&self.book);
        if pending.epoch() <= book.ended_epoch {
            return Admission::Ended;
        }
        if replayed && book.settled.iter().any(|settled| settled == request_id) {
            return Admission::Known;
        }
        // A settled request that is about to leave makes room.
        if book.open.get(request_id).is_some_and(|ById(other)| other.is_open()) {
            return if replayed { Admission::Known } else { Admission::Duplicate };
        }
        let before = book.open.replace(ById(pending.clone()));
        drop(book);
        drop(before);
        Admission::Admitted
    }

    /// A function that removes a settled request, unless the request was never entered.
    pub(crate) fn leaving(self: &Arc<Self>) -> Box<dyn Fn(&PendingRequest) + Send + Sync> {
        let this = self.clone();
        Box::new(move |pending| this.leave(pending))
    }

    fn leave(&self, pending: &PendingRequest) {
        let request_id = pending.request_id();
        let mut book = lock(&self.book);
        let is_here = |entry: &ById| std::ptr::eq(&raw const *entry.0, pending);
        if !book.open.get(request_id).is_some_and(is_here) {
            return;
        }
        let left = book.open.take(request_id);
        if pending.kind.is_listed() {
            book.settled.push_back(request_id.to_owned());
            if book.settled.len() > self.remembered {
                book.settled.pop_front();
            }
        }
        book.shrink();
        drop(book);
        drop(left);
    }

    pub(crate) fn get(&self, request_id: &str) -> Option<Arc<PendingRequest>> {
        let pending = lock(&self.book).open.get(request_id).map(|pending| pending.0.clone());
        pending.filter(|pending| pending.is_open())
    }

    /// All open requests.
    pub(crate) fn open(&self) -> Vec<Arc<PendingRequest>> {
        let book = lock(&self.book);
        book.open.iter().map(|pending| pending.0.clone()).filter(|pending| pending.is_open()).collect()
    }

    /// Orphans the requests of an incarnation that has ended, and of all before it.
    pub(crate) fn end_epoch(&self, epoch: u64) {
        let ended = {
            let mut book = lock(&self.book);
            book.ended_epoch = book.ended_epoch.max(epoch);
            book.settled = VecDeque::new();
            let ended: Vec<_> = book.open.extract_if(|pending| pending.0.epoch() <= epoch).collect();
            book.shrink();
            ended
        };
        ended.into_iter().for_each(|ById(pending)| pending.orphan());
    }
}

#[cfg(test)]
mod tests;
