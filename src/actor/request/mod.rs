//! A request of the CLI, from its arrival to its answer.
//!
//! ```text
//!                     Open
//!                       │ settle: the first outcome wins; later ones count as `late_answers` and write nothing
//!      ┌────────────────┼──────────────┬───────────────────┐
//!      ▼                ▼              ▼                   ▼
//!   Answered         Cancelled      Refused             Orphaned
//!   by its handler   by the         with an error:      without an answer: withdrawn, a duplicate,
//!                    session:       no handler can      or its incarnation has ended
//!                    cancelled,     or may answer
//!                    or too late
//! ```
//!
//! - [`pending`]: the request and the ways to answer it
//! - [`answer`]: the duty to answer, which answers with an error when it is dropped
//! - [`ledger`]: all open requests of the session, by id
//! - [`handlers`]: the tasks that work at the requests of one actor, and their [table](handler_table)
//! - [`waiting`]: requests that wait for what serves them

pub(crate) mod answer;
pub(crate) mod handler_table;
pub(crate) mod handlers;
pub(crate) mod ledger;
pub(crate) mod pending;
mod ready;
pub(crate) mod waiting;

/// True if a table of `len` entries should shrink: a burst has left far more capacity than the entries need.
fn is_roomy(capacity: usize, len: usize) -> bool {
    capacity > 512.max(8 * len)
}

#[cfg(test)]
pub(crate) mod tests;
