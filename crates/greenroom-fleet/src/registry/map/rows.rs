//! The map of rows under the rules: reads at one moment, and writes that happen only if what was read still stands.
//!
//! ```text
//!  Wanted ──► rows at one moment ──► the request, a pure function of them ──► it writes nothing: its answer
//!    ▲  ▲                              │             │
//!    │  └──── and those that it lacks ─┘             ▼
//!    └──── conflict: a row has changed ◄────────── Commit ──► done: its answer
//! ```
//!
//! A request that lacks rows runs to its end as if they were absent, so that it names as many of them as it can; its answer and its
//! writes are dropped. Many rows are first read in parts, and then again at one moment.
//!
//! # Ranges
//!
//! A commit expects the values of single rows, and none of ranges. So where a request decides on a range as a whole, whoever adds a
//! row to it or removes one also changes a single row that the request reads: the record of the name for `Queue`, `Reminders`,
//! `Waiting` and `Files`, the record of the prompt for its open questions, the counter of a node for the names that it owns. The lists by time
//! (`Due`, `Expiries`, `Deadlines`, `Ended`, `CommandDeadlines`) need no such row: a request acts on each entry by itself, and decides
//! on the record of the entry, which was read at the moment of the list.

use serde::{Deserialize, Serialize};

use super::txn::{Reads, Txn};
use super::{Commit, Committed, MapMut, Rows, Wanted, commit_rows, read_rows};
use crate::error::BackendError;
use crate::id::Timestamp;
use crate::registry::{Result, Step, Told};

/// The longest key, in bytes: a row of an index of PostgreSQL has room for it. Names, keys and tenants are parts of keys.
pub(crate) const LONGEST_KEY: usize = 2_000;

/// The connections that a request uses, so that no flood of requests of one kind keeps another kind waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Lane {
    /// The renewal of a lease.
    Lease,
    /// Requests about nodes.
    Nodes,
    /// Entries of transcripts.
    Transcripts,
    /// Looks of the readers of turns, and the messages that they read; pages of the feed.
    Readers,
    /// Requests about names, prompts, questions, commands and tenants.
    Requests,
}

impl Lane {
    /// The lane of a request, by its name.
    pub(crate) fn of(request: &str) -> Self {
        match request {
            "renew" => Self::Lease,
            "join" | "ask_to_drain" | "leave" | "declare_dead" | "nodes" => Self::Nodes,
            "append_entries" | "entries" | "transcripts" | "delete_transcripts" => Self::Transcripts,
            "prompt_records" | "messages" | "questions_of" | "feed" => Self::Readers,
            _ => Self::Requests,
        }
    }
}

/// A run of a request over rows.
pub(crate) struct Attempt<T> {
    pub(crate) answer: Result<T>,
    /// Its writes. `None`: it writes nothing.
    pub(crate) commit: Option<Commit>,
    /// The rows that it lacks, as far as it knows. The answer and the writes count only if it lacks none.
    pub(crate) lacking: Wanted,
    /// All rows that it has read or lacks.
    pub(crate) all: Wanted,
    /// True for a page: any row of it may have changed by the time that the caller reads it.
    pub(crate) is_page: bool,
}

pub(crate) fn try_on<T>(
    rows: &Rows,
    now: Timestamp,
    request: impl Fn(&mut Step<'_>) -> Result<T>,
) -> Attempt<T> {
    let mut step = Step { txn: Txn::over(rows), now, told: Told::default() };
    let mut answer = request(&mut step);
    let (reads, commit) = step.txn.end(step.told);
    let Reads { lacking, all, only_looks, longest_key, .. } = reads;
    if longest_key > LONGEST_KEY {
        answer = Err(BackendError::too_long(longest_key, LONGEST_KEY));
    }
    let is_page = only_looks && commit.is_none();
    Attempt { answer, commit, lacking, all, is_page }
}

/// Carries out a request in a map that nobody else uses.
pub(crate) fn run_alone<T>(
    map: &mut (impl MapMut + ?Sized),
    now: Timestamp,
    request: impl Fn(&mut Step<'_>) -> Result<T>,
) -> Result<(T, Told)> {
    let mut rows = Rows::default();
    loop {
        let Attempt { answer, commit, lacking, .. } = try_on(&rows, now, &request);
        if lacking != Wanted::default() {
            // Nobody else writes, so all rows are of one moment.
            rows.add(read_rows(map, lacking)?);
            continue;
        }
        let (answer, commit) = (answer?, commit.unwrap_or_default());
        match commit_rows(map, &commit)? {
            Committed::Done => return Ok((answer, commit.told)),
            Committed::Conflict => rows = Rows::default(),
        }
    }
}
