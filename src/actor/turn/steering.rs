//! A message into a running turn, as the application sees it.

use std::fmt;

use tokio::sync::oneshot;

use super::Turn;
use crate::error::{Error, ErrorKind, Result};
use crate::prompt::Prompt;

/// A message that [`Session::steer`](crate::Session::steer) has sent into the running turn.
///
/// Dropping the handle does not take the message back. If the message becomes a turn, that turn's messages are dropped.
#[must_use = "the outcome says whether the model reads the message"]
pub struct Steering {
    uuid: String,
    outcome: oneshot::Receiver<Steered>,
}

/// The outcome of a message into a running turn. Every accepted message has exactly one outcome.
///
/// ```
/// use greenroom::session::Steered;
///
/// async fn follow(steered: Steered) -> greenroom::Result<()> {
///     match steered {
///         Steered::Joined { prompt_uuid } => println!("the turn of {prompt_uuid} goes on with it"),
///         Steered::Turn(mut turn) => println!("{:?}", turn.outcome().await?.text()),
///         Steered::NotTaken { prompt } => println!("to be sent again, or not: {prompt:?}"),
///         other => println!("{other:?}"),
///     }
///     Ok(())
/// }
/// # let _ = follow;
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Steered {
    /// The message joined a running turn: the model reads it in its next request. Messages and result are part of that
    /// turn.
    Joined {
        /// The [`prompt_uuid`](Turn::prompt_uuid) of the turn.
        prompt_uuid: String,
    },
    /// The message became a turn of its own: it came too late for the running turn, or no turn ran.
    Turn(Turn),
    /// The model does not read the message. It was taken back
    /// ([`cancel_async_message`](crate::Session::cancel_async_message),
    /// [`interrupt_cancel_queued`](crate::Session::interrupt_cancel_queued)), a `UserPromptSubmit` hook blocked it, or
    /// the session ended before.
    NotTaken {
        /// The message, to send again if you like.
        prompt: Prompt,
    },
    /// The CLI or the session ended before it was known whether the model has read the message. greenroom does not send
    /// the message again.
    Unknown {
        /// The message.
        prompt: Prompt,
        /// The end of the CLI or of the session.
        error: Error,
    },
}

/// The conversation's end of a steering message.
pub(crate) type SteeringSender = oneshot::Sender<Steered>;

pub(crate) fn steering(uuid: String) -> (SteeringSender, Steering) {
    let (sender, outcome) = oneshot::channel();
    (sender, Steering { uuid, outcome })
}

impl Steering {
    /// The uuid of the message; also the uuid of its turn, if the message becomes a turn.
    pub fn prompt_uuid(&self) -> &str {
        &self.uuid
    }

    /// Waits for the outcome, which is known when the running turn or its CLI ends, at the latest.
    ///
    /// To wait with a limit, pin the future and poll it again after the limit: dropping the future drops the
    /// `Steering`.
    ///
    /// # Errors
    /// [`SessionFailed`](ErrorKind::SessionFailed), if the session was torn down (killed, or its runtime shut down)
    /// before the message had an outcome.
    pub async fn outcome(self) -> Result<Steered> {
        self.outcome.await.map_err(|_| {
            Error::new(
                ErrorKind::SessionFailed,
                "the session was torn down before the message had an outcome",
            )
        })
    }
}

impl fmt::Debug for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steering").field("prompt_uuid", &self.uuid).finish_non_exhaustive()
    }
}
