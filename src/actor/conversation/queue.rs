//! Prompts that wait for their turn, bounded in number and in bytes.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::actor::turn::TurnSender;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Limits;
use crate::prompt::Prompt;
use crate::report::{ExitCause, InterruptedBy, Outcome};

/// A prompt that waits.
pub(super) struct Queued {
    pub(super) prompt: Prompt,
    pub(super) uuid: String,
    pub(super) turn: TurnSender,
    pub(super) history: TurnHistory,
    /// When the turn was first written to a CLI; `None` if it was not written yet.
    pub(super) first_sent: Option<Instant>,
}

impl Queued {
    /// Ends the turn of a prompt that will not be sent any more.
    pub(super) fn give_back(self) {
        self.turn.end(self.history.not_sent(self.prompt, false));
    }
}

/// The history of a turn before its prompt is written, or written again.
#[derive(Clone, Debug)]
pub(super) enum TurnHistory {
    /// The prompt has not been written yet.
    Unsent,
    /// The prompt was written to an incarnation that ended before it began with the prompt.
    NotBegun(ExitCause),
    /// The end of its incarnation cut the turn off; the queued prompt is our continuation of the turn.
    CutOff(ExitCause),
}

impl TurnHistory {
    /// The outcome of a prompt that is not sent: cancelled by the user, or given back.
    pub(super) fn not_sent(self, prompt: Prompt, cancelled: bool) -> Outcome {
        let by = match self {
            TurnHistory::CutOff(_) if cancelled => InterruptedBy::User,
            TurnHistory::CutOff(cause) => InterruptedBy::CliExit { cause },
            TurnHistory::Unsent | TurnHistory::NotBegun(_) => return Outcome::NotStarted { prompt },
        };
        Outcome::interrupted(by, None)
    }
}

/// Prompts in the order in which they are sent, each with its length in bytes.
#[derive(Default)]
pub(super) struct PromptQueue {
    prompts: VecDeque<(Queued, usize)>,
    bytes: usize,
}

impl PromptQueue {
    pub(super) fn len(&self) -> usize {
        self.prompts.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.prompts.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Queued> {
        self.prompts.iter().map(|(queued, _)| queued)
    }

    /// Checks that one more prompt of this length may wait. `beside` are the number and the bytes of prompts that wait
    /// elsewhere. A single prompt may have any length.
    ///
    /// # Errors
    /// `AtCapacity`.
    pub(super) fn admits(&self, bytes: usize, beside: (usize, usize), limits: &Limits) -> Result<()> {
        let (waiting, waiting_bytes) = (self.len() + beside.0, self.bytes.saturating_add(beside.1));
        let message = if waiting >= limits.prompts_queued {
            format!("{waiting} prompts are waiting already (`limits.prompts_queued`)")
        } else if waiting > 0 && waiting_bytes.saturating_add(bytes) > limits.outbound_bytes {
            format!(
                "the prompts that are waiting have {waiting_bytes} bytes already, and this one {bytes} (`limits.outbound_bytes`)"
            )
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::AtCapacity, message).with_help("wait for a turn to end"))
    }

    /// Adds a prompt at the end.
    pub(super) fn push(&mut self, queued: Queued, bytes: usize) {
        self.bytes += bytes;
        self.prompts.push_back((queued, bytes));
    }

    /// Adds a prompt at the front. The prompt was admitted before, so the bounds do not apply.
    pub(super) fn push_front(&mut self, queued: Queued) {
        let bytes = queued.prompt.bytes();
        self.bytes += bytes;
        self.prompts.push_front((queued, bytes));
    }

    pub(super) fn pop(&mut self) -> Option<Queued> {
        let (queued, bytes) = self.prompts.pop_front()?;
        self.bytes -= bytes;
        Some(queued)
    }

    /// Removes the first prompt that fits.
    pub(super) fn take(&mut self, fits: impl Fn(&Queued) -> bool) -> Option<Queued> {
        let at = self.prompts.iter().position(|(queued, _)| fits(queued))?;
        let (queued, bytes) = self.prompts.remove(at)?;
        self.bytes -= bytes;
        Some(queued)
    }

    /// Removes all prompts.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Queued> {
        self.bytes = 0;
        self.prompts.drain(..).map(|(queued, _)| queued)
    }
}
