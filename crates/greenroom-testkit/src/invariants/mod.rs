//! Checks the promises of the library in a [`Transcript`].
//!
//! | promise | check |
//! |---|---|
//! | answered-once | each control request of the CLI has exactly one answer while its incarnation runs; no answer is needed for a request that was withdrawn, must not be answered, or reused an id in flight |
//! | fenced | an answer goes only to the incarnation that sent the request |
//! | whole-lines | each line of the host is one JSON object; only the end of an incarnation may cut one |
//! | lossless | an answer has the exact JSON-RPC id of its request |
//! | ended-once | a prompt is written twice only if its first CLI ended before it started the turn |
//!
//! Requests that are open when their incarnation ends are no violation, because no CLI is left to answer. They are
//! listed in [`Report::open_at_end`].
//!
//! ```
//! use std::time::Duration;
//! use greenroom_testkit::{Entry, Line, Transcript, Wire, invariants};
//!
//! let asked = r#"{"type":"control_request","request_id":"a","request":{"subtype":"hook_callback"}}"#;
//! let wires = [Wire::Opened { args: Vec::new() }, Wire::Cli(Line::new(asked))];
//! let entries = wires.map(|wire| Entry { epoch: 1, at: Duration::ZERO, wire }).into();
//! let transcript = Transcript { entries };
//! let report = invariants::check(&transcript);
//! assert_eq!(report.violations[0].to_string(), "answered-once: request a of incarnation 1 (hook_callback) has no answer");
//! ```

mod checker;
mod frame;

use std::fmt;

use serde::Serialize;

use super::wire::transcript::{Transcript, readable};

pub use checker::Checker;

/// Checks a whole transcript that was taken when no request was in flight.
pub fn check(transcript: &Transcript) -> Report {
    let mut checker = Checker::new();
    for entry in &transcript.entries {
        checker.observe(entry);
    }
    checker.report()
}

/// The result of a check; print it with `{}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Broken promises, in the order in which they were found.
    pub violations: Vec<Violation>,
    /// Numbers of requests, answers, prompts and so on.
    pub counts: Counts,
    /// Requests without an answer at the end of their incarnation: its epoch, and the request id. The newest 1,000;
    /// [`Counts::open_at_end`] counts all.
    pub open_at_end: Vec<(u64, String)>,
}

/// Counts of a transcript.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counts {
    /// Incarnations.
    pub incarnations: u64,
    /// Control requests of the CLI.
    pub requests: u64,
    /// Answers of the host.
    pub answers: u64,
    /// Requests with an id that was in flight.
    pub duplicates: u64,
    /// Requests that the CLI withdrew while they were in flight.
    pub withdrawn: u64,
    /// Requests that must not be answered.
    pub silent: u64,
    /// Requests without an answer at the end of their incarnation.
    pub open_at_end: u64,
    /// Prompts.
    pub prompts: u64,
    /// Prompts that were written again, to a later incarnation.
    pub prompts_again: u64,
    /// Lines of the host that the end of an incarnation cut.
    pub cut: u64,
    /// Lines of the CLI that are no frames.
    pub noise: u64,
}

/// A broken promise; its text begins with the name of the promise in the table above. `epoch` is the incarnation in which it was
/// broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "violation", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs, reason = "the variants say what the fields are")]
pub enum Violation {
    /// A request of a running incarnation has no answer.
    #[error("answered-once: request {request_id} of incarnation {epoch} ({subtype}) has no answer")]
    Unanswered { epoch: u64, request_id: String, subtype: String },
    /// A request has too many answers.
    #[error("answered-once: request {request_id} of incarnation {epoch} was answered twice")]
    AnsweredTwice { epoch: u64, request_id: String },
    /// A request that a host must not answer was answered.
    #[error(
        "answered-once: request {request_id} of incarnation {epoch} ({subtype}) must not be answered and was"
    )]
    AnsweredSilent { epoch: u64, request_id: String, subtype: String },
    /// An incarnation got an answer to a request that it had not sent. `asked_by` is the incarnation that had sent the
    /// request, if that is known.
    #[error("fenced: incarnation {epoch} got an answer to request {request_id}, which {} had asked", asker(*asked_by))]
    NotAsked { epoch: u64, request_id: String, asked_by: Option<u64> },
    /// The answer to an MCP message has another JSON-RPC id than the request. Ids are compared as they are spelled;
    /// `asked` is `None` if the request has no id.
    #[error(
        "lossless: request {request_id} of incarnation {epoch} has the JSON-RPC id {}, and its answer {}",
        asked.as_deref().unwrap_or("none"), answered.as_deref().unwrap_or("none")
    )]
    OtherRpcId { epoch: u64, request_id: String, asked: Option<String>, answered: Option<String> },
    /// A line of the host is not one JSON object, or was cut while its incarnation ran.
    #[error("whole-lines: a line to incarnation {epoch} is not one JSON object: {}", readable(line))]
    TornLine { epoch: u64, line: String },
    /// A prompt was written again while the incarnation `first`, which had the prompt, still ran.
    #[error("ended-once: prompt {uuid} was written to incarnation {epoch}, and incarnation {first} had it")]
    PromptTwice { epoch: u64, uuid: String, first: u64 },
    /// A prompt was written again although the incarnation `first` had started its turn.
    #[error(
        "ended-once: prompt {uuid} was written to incarnation {epoch}, and incarnation {first} had begun with it"
    )]
    PromptAgainAfterBegin { epoch: u64, uuid: String, first: u64 },
    /// An incarnation was started while the incarnation `living` still ran.
    #[error("fenced: incarnation {epoch} was started while incarnation {living} lived")]
    TwoAtOnce { epoch: u64, living: u64 },
}

fn asker(epoch: Option<u64>) -> String {
    epoch.map_or_else(|| "nobody".to_owned(), |epoch| format!("incarnation {epoch}"))
}

impl Report {
    /// Whether every promise was kept.
    pub fn is_fine(&self) -> bool {
        self.violations.is_empty()
    }

    /// # Panics
    /// If a promise was broken, with all violations.
    pub fn assert_fine(&self) {
        assert!(self.is_fine(), "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.counts)?;
        match self.violations.len() {
            0 => f.write_str("every promise was kept"),
            count => {
                write!(f, "{count} violations:")?;
                self.violations.iter().try_for_each(|violation| write!(f, "\n- {violation}"))
            }
        }
    }
}

impl fmt::Display for Counts {
    /// Two lines: requests and prompts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} requests of {} incarnations: {} answers, {} open at the end of their incarnation, {} withdrawn, \
             {} with an id in flight, {} to be left alone",
            self.requests,
            self.incarnations,
            self.answers,
            self.open_at_end,
            self.withdrawn,
            self.duplicates,
            self.silent
        )?;
        write!(f, "{} prompts written, {} of them again", self.prompts, self.prompts_again)
    }
}
