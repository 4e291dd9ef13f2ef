//! The promises of the library as checkers over a [`Transcript`].
//!
//! | promise | what is checked |
//! |---|---|
//! | answered-once | each control request of the CLI has one answer: none has two, and none is without one while its incarnation lives, unless it was withdrawn, must not be answered, or had an id that was in flight already |
//! | fenced | no answer goes to an incarnation that did not ask |
//! | whole-lines | each line of the host is one JSON object; only the end of an incarnation may cut one |
//! | lossless | the JSON-RPC id of an answer is that of its request, as it was spelled |
//! | ended-once | no prompt is written twice, but for one whose CLI ended before it began with it |
//!
//! Requests that were still open when their incarnation ended are no violation: nobody was left to answer. They are
//! listed in [`Report::open_at_end`].
//!
//! ```
//! use greenroom::testkit::{Transcript, invariants};
//!
//! let transcript: Transcript = r#"
//!     {"epoch":1,"at_us":0,"opened":{"args":[]}}
//!     {"epoch":1,"at_us":1,"cli":"{\"type\":\"control_request\",\"request_id\":\"a\",\"request\":{\"subtype\":\"hook_callback\"}}"}
//! "#.replace("\n    ", "\n").parse()?;
//! let report = invariants::check(&transcript);
//! assert_eq!(report.violations[0].to_string(), "answered-once: request a of incarnation 1 (hook_callback) has no answer");
//! # serde_json::Result::Ok(())
//! ```

mod checker;
mod frame;

use std::fmt;

use serde::Serialize;

pub use checker::Checker;

use super::transcript::Transcript;

/// Checks a whole transcript, taken when nothing was on its way any more.
pub fn check(transcript: &Transcript) -> Report {
    let mut checker = Checker::new();
    for entry in transcript.entries() {
        checker.observe(entry);
    }
    checker.report()
}

/// What came of a check.
///
/// ```
/// use greenroom::testkit::{Transcript, invariants};
///
/// let report = invariants::check(&Transcript::default());
/// assert!(report.is_fine());
/// println!("{report}");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// What was broken, in the order in which it was seen.
    pub violations: Vec<Violation>,
    /// What was counted.
    pub counts: Counts,
    /// Requests that nobody had answered when their incarnation ended: its epoch, and the id. The newest 1,000 of
    /// them; [`Counts::open_at_end`] counts all.
    pub open_at_end: Vec<(u64, String)>,
}

/// What was counted in a transcript.
///
/// ```
/// let counts = greenroom::testkit::invariants::check(&Default::default()).counts;
/// assert_eq!((counts.requests, counts.answers), (0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counts {
    /// Incarnations.
    pub incarnations: u64,
    /// Control requests of the CLI.
    pub requests: u64,
    /// Answers of the host.
    pub answers: u64,
    /// Requests with an id that was in flight already.
    pub duplicates: u64,
    /// Requests that the CLI withdrew while they were in flight.
    pub withdrawn: u64,
    /// Requests that must not be answered.
    pub silent: u64,
    /// Requests that were open when their incarnation ended.
    pub open_at_end: u64,
    /// Prompts that were written.
    pub prompts: u64,
    /// Of these: written again, to a later incarnation.
    pub prompts_again: u64,
    /// Lines of the host that the end of an incarnation cut.
    pub cut: u64,
    /// Lines of the CLI that are no frames.
    pub noise: u64,
}

/// A promise that was broken.
///
/// ```
/// use greenroom::testkit::invariants::Violation;
///
/// let twice = Violation::AnsweredTwice { epoch: 2, request_id: "r7".into() };
/// assert_eq!(twice.to_string(), "answered-once: request r7 of incarnation 2 was answered twice");
/// assert_eq!(twice.promise(), "answered-once");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "violation", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Violation {
    /// A request has no answer, and its incarnation lives.
    Unanswered {
        /// The incarnation.
        epoch: u64,
        /// The request.
        request_id: String,
        /// Its subtype.
        subtype: String,
    },
    /// A request has more answers than it may have.
    AnsweredTwice {
        /// The incarnation.
        epoch: u64,
        /// The request.
        request_id: String,
    },
    /// A request that a host must leave alone was answered.
    AnsweredSilent {
        /// The incarnation.
        epoch: u64,
        /// The request.
        request_id: String,
        /// Its subtype.
        subtype: String,
    },
    /// An answer to something that this incarnation did not ask.
    NotAsked {
        /// The incarnation that got the answer.
        epoch: u64,
        /// The id that it names.
        request_id: String,
        /// The incarnation that did ask, if that is known.
        asked_by: Option<u64>,
    },
    /// The answer to an MCP message names another JSON-RPC id.
    OtherRpcId {
        /// The incarnation.
        epoch: u64,
        /// The request.
        request_id: String,
        /// The id of the JSON-RPC request, as it was spelled; `None` if it has none.
        asked: Option<String>,
        /// The id of the answer, as it was spelled.
        answered: Option<String>,
    },
    /// A line of the host that is not one JSON object, or one that was cut while its incarnation lived.
    TornLine {
        /// The incarnation.
        epoch: u64,
        /// The line, or its beginning.
        line: String,
    },
    /// A prompt was written again to an incarnation that had it, or while the one that had it lived.
    PromptTwice {
        /// The incarnation that got it again.
        epoch: u64,
        /// The prompt.
        uuid: String,
        /// The incarnation that had it.
        first: u64,
    },
    /// A prompt was written again although the CLI that had it had begun with it.
    PromptAgainAfterBegin {
        /// The incarnation that got it again.
        epoch: u64,
        /// The prompt.
        uuid: String,
        /// The incarnation that had begun with it.
        first: u64,
    },
    /// An incarnation was started before the one before it was over.
    TwoAtOnce {
        /// The one that was started.
        epoch: u64,
        /// The one that lived.
        living: u64,
    },
}

impl Violation {
    /// The promise that it breaks, as `architecture.md` calls it.
    pub fn promise(&self) -> &'static str {
        match self {
            Violation::Unanswered { .. }
            | Violation::AnsweredTwice { .. }
            | Violation::AnsweredSilent { .. } => "answered-once",
            Violation::NotAsked { .. } | Violation::TwoAtOnce { .. } => "fenced",
            Violation::OtherRpcId { .. } => "lossless",
            Violation::TornLine { .. } => "whole-lines",
            Violation::PromptTwice { .. } | Violation::PromptAgainAfterBegin { .. } => "ended-once",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.promise())?;
        match self {
            Violation::Unanswered { epoch, request_id, subtype } => {
                write!(f, "request {request_id} of incarnation {epoch} ({subtype}) has no answer")
            }
            Violation::AnsweredTwice { epoch, request_id } => {
                write!(f, "request {request_id} of incarnation {epoch} was answered twice")
            }
            Violation::AnsweredSilent { epoch, request_id, subtype } => {
                write!(
                    f,
                    "request {request_id} of incarnation {epoch} ({subtype}) must not be answered and was"
                )
            }
            Violation::NotAsked { epoch, request_id, asked_by: Some(other) } => {
                write!(f, "incarnation {epoch} got the answer to request {request_id} of incarnation {other}")
            }
            Violation::NotAsked { epoch, request_id, asked_by: None } => {
                write!(f, "incarnation {epoch} got an answer to {request_id}, which nobody asked")
            }
            Violation::OtherRpcId { epoch, request_id, asked, answered } => {
                let say = |id: &Option<String>| id.clone().unwrap_or_else(|| "none".into());
                let (asked, answered) = (say(asked), say(answered));
                write!(
                    f,
                    "request {request_id} of incarnation {epoch} has the JSON-RPC id {asked}, and its answer {answered}"
                )
            }
            Violation::TornLine { epoch, line } => {
                write!(f, "a line to incarnation {epoch} is not one JSON object: {line:?}")
            }
            Violation::PromptTwice { epoch, uuid, first } => {
                write!(f, "prompt {uuid} was written to incarnation {epoch}, and incarnation {first} had it")
            }
            Violation::PromptAgainAfterBegin { epoch, uuid, first } => write!(
                f,
                "prompt {uuid} was written to incarnation {epoch}, and incarnation {first} had begun with it"
            ),
            Violation::TwoAtOnce { epoch, living } => {
                write!(f, "incarnation {epoch} was started while incarnation {living} lived")
            }
        }
    }
}

impl Report {
    /// Whether every promise was kept.
    pub fn is_fine(&self) -> bool {
        self.violations.is_empty()
    }

    /// Panics with what was broken, if anything was.
    ///
    /// # Panics
    /// When there is a violation.
    pub fn assert_fine(&self) {
        assert!(self.is_fine(), "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.counts;
        writeln!(
            f,
            "{} requests of {} incarnations: {} answers, {} open at the end of their incarnation, {} withdrawn, \
             {} with an id in flight, {} to be left alone",
            counts.requests,
            counts.incarnations,
            counts.answers,
            counts.open_at_end,
            counts.withdrawn,
            counts.duplicates,
            counts.silent
        )?;
        writeln!(f, "{} prompts written, {} of them again", counts.prompts, counts.prompts_again)?;
        match self.violations.len() {
            0 => f.write_str("every promise was kept"),
            count => {
                write!(f, "{count} violations:")?;
                self.violations.iter().try_for_each(|violation| write!(f, "\n- {violation}"))
            }
        }
    }
}
