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
//! row to it or removes one also changes a single row that the request reads: the record of the name for `Queue`, `Reminders` and
//! `Waiting`, the record of the prompt for its open questions, the counter of a node for the names that it owns. The lists by time
//! (`Due`, `Expiries`, `Deadlines`, `Ended`, `CommandDeadlines`) need no such row: a request acts on each entry by itself, and decides
//! on the record of the entry, which was read at the moment of the list.

use std::time::Duration;

use super::map::{Commit, Committed, MapMut, Rows, Wanted, commit_rows, read_rows};
use super::txn::Reads;
use super::{Result, Step, Told};
use crate::backend::Backend;
use crate::error::{BackendError, BackendErrorKind};
use crate::id::Timestamp;

/// Conflicts of a request before it pauses between two attempts.
const CONFLICTS_WITHOUT_PAUSE: u32 = 8;

/// Conflicts after which a request is [`Unavailable`](BackendErrorKind::Unavailable).
const CONFLICTS: u32 = 200;

/// Reads of one attempt. A page reads again for rows in place of those that it leaves out.
const ROUNDS: u32 = 10_000;

/// Rows that are read again with those that a request lacks, so that all of them are of one moment.
const FEW: usize = 512;

/// Times that an attempt reads its rows again as a whole. After them, a request for a page answers from rows of several moments, and
/// any other request counts a conflict.
const REREADS: u32 = 3;

/// The longest pause before an attempt.
const PAUSE: Duration = Duration::from_millis(20);

/// The longest key, in bytes: a row of an index of PostgreSQL has room for it. Names, keys and tenants are parts of keys.
pub(crate) const LONGEST_KEY: usize = 2_000;

/// The connections that a request uses, so that no flood of requests of one kind keeps another kind waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lane {
    /// The renewal of a lease.
    Lease,
    /// Requests about nodes.
    Nodes,
    /// Entries of transcripts.
    Transcripts,
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
            _ => Self::Requests,
        }
    }
}

/// Carries out a request. It runs again when it lacks rows, and when a row that it has read has changed.
pub(crate) async fn run<T: Send>(
    store: &(impl Backend + ?Sized),
    lane: Lane,
    request: impl Fn(&mut Step<'_>) -> Result<T> + Send + Sync,
) -> Result<T> {
    let mut known = Wanted::default();
    for conflicts in 0..CONFLICTS {
        if conflicts >= CONFLICTS_WITHOUT_PAUSE {
            tokio::time::sleep(pause()).await;
        }
        // Until its commit, a request has one moment: ranges end there, and would be others at each read.
        let now = store.now();
        let mut rows = Rows::default();
        if known != Wanted::default() {
            rows = store.read(lane, known).await?;
        }
        // False once the rows are of several moments.
        let (mut at_one_moment, mut rereads) = (true, 0);
        known = 'attempt: {
            for _ in 0..ROUNDS {
                let Attempt { answer, commit, lacking, all, is_page } = try_on(&rows, now, &request);
                if lacking != Wanted::default() {
                    at_one_moment = rows.len() <= FEW;
                    match at_one_moment {
                        true => rows = store.read(lane, all).await?,
                        false => rows.add(store.read(lane, lacking).await?),
                    }
                    continue;
                }
                if !at_one_moment && rereads < REREADS {
                    rows = store.read(lane, all).await?;
                    (at_one_moment, rereads) = (true, rereads + 1);
                    continue;
                }
                // Others change its rows all the time.
                if !at_one_moment && !is_page {
                    break 'attempt all;
                }
                let Some(commit) = commit else { return answer };
                let answer = answer?;
                match store.commit(lane, commit).await? {
                    Committed::Done => return Ok(answer),
                    Committed::Conflict => break 'attempt all,
                }
            }
            Wanted::default()
        };
    }
    Err(too_busy())
}

/// A run of a request over rows.
pub(super) struct Attempt<T> {
    pub(super) answer: Result<T>,
    /// Its writes. `None`: it writes nothing.
    pub(super) commit: Option<Commit>,
    /// The rows that it lacks, as far as it knows. The answer and the writes count only if it lacks none.
    pub(super) lacking: Wanted,
    /// All rows that it has read or lacks.
    pub(super) all: Wanted,
    /// True for a page: any row of it may have changed by the time that the caller reads it.
    is_page: bool,
}

pub(super) fn try_on<T>(
    rows: &Rows,
    now: Timestamp,
    request: impl Fn(&mut Step<'_>) -> Result<T>,
) -> Attempt<T> {
    let mut step = Step::over(rows, now);
    let mut answer = request(&mut step);
    let (reads, commit) = step.txn.end(step.told);
    let Reads { lacking, all, only_looks, longest_key, .. } = reads;
    if longest_key > LONGEST_KEY {
        answer = Err(BackendError::too_long(longest_key, LONGEST_KEY));
    }
    let is_page = only_looks && commit.is_none();
    Attempt { answer, commit, lacking, all, is_page }
}

/// Up to the longest pause, by chance: requests that were in each other's way begin at different moments.
fn pause() -> Duration {
    let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
    PAUSE.mul_f64((random >> 32) as f64 / f64::from(u32::MAX))
}

fn too_busy() -> BackendError {
    let message = format!(
        "other requests have changed the rows of this one {CONFLICTS} times in a row: repeat it, with fewer requests at a time"
    );
    BackendError::new(BackendErrorKind::Unavailable, message)
}

/// Carries out a request in a map that nobody else uses.
pub(crate) fn run_alone<T>(
    map: &mut (impl MapMut + ?Sized),
    now: Timestamp,
    request: impl Fn(&mut Step<'_>) -> Result<T>,
) -> Result<(T, Told)> {
    let mut rows = Rows::default();
    for _ in 0..ROUNDS {
        let Attempt { answer, commit, lacking, .. } = try_on(&rows, now, &request);
        if lacking != Wanted::default() {
            // Nobody else writes, so all rows are of one moment.
            rows.add(read_rows(map, lacking)?);
            continue;
        }
        let (answer, commit) = (answer?, commit.unwrap_or_default());
        match commit_rows(map, &commit)? {
            Committed::Done => return Ok((answer, commit.told)),
            Committed::Conflict => break,
        }
    }
    Err(too_busy())
}
