//! A request of the CLI, from its arrival to its answer.
//!
//! ```text
//!   Received ── a handler's task starts ──► Dispatched
//!      │                                        │
//!      └────────────────┬───────────────────────┘
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
//! - [`life`]: the drawing above, as one atomic number
//! - [`ledger`]: all open requests of the session, by id
//! - [`handlers`]: the tasks that work at the requests of one actor
//! - [`sweep_mark`]: when a list drops its settled entries

pub(crate) mod answer;
pub(crate) mod handlers;
pub(crate) mod ledger;
pub(crate) mod life;
pub(crate) mod pending;
pub(crate) mod sweep_mark;

#[cfg(test)]
pub(crate) mod tests;
