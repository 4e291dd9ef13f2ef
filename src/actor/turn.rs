//! One turn, as the application sees it: a stream of messages with one outcome.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use serde::de::DeserializeOwned;

use super::spill::{Backlog, Bounds, Taken};
use crate::error::{Error, ErrorKind, Result};
use crate::report::Outcome;
use crate::report::counters::Counting;
use crate::wire::Message;

/// A turn: the messages that answer one prompt, and how it ended. A [`Stream`] of [`Message`]s that ends when the
/// turn does.
///
/// Messages that are not read wait in order, in memory up to [`Limits::unread_bytes`](crate::Limits::unread_bytes) and
/// then in a temporary file up to [`Limits::spilled_bytes`](crate::Limits::spilled_bytes); they hold up nothing else, and
/// nothing is lost unless [`Options::unread_partials`](crate::Options::unread_partials) says so. Past both bounds the
/// turn ends with [`Overflow`](ErrorKind::Overflow), after the messages that were accepted. Dropping a turn does not end it: its further messages are dropped, and the next prompt waits for
/// its result all the same. To end it, [`interrupt`](crate::Session::interrupt).
///
/// ```
/// async fn show(session: &greenroom::Session) -> greenroom::Result<()> {
///     let mut turn = session.prompt("What is 5 + 3?").await?;
///     while let Some(message) = turn.next().await {
///         println!("{}: {}", message.kind(), message.raw());
///     }
///     println!("{:?}", turn.outcome().await?.text());
///     Ok(())
/// }
/// # let _ = show;
/// ```
pub struct Turn {
    uuid: String,
    backlog: Arc<Backlog>,
    missed_partials: u64,
    over: bool,
    outcome: Option<Outcome>,
    /// For a one-shot query: the session, which is stopped when the turn is over.
    owner: Option<crate::Session>,
}

/// The conversation's end of a turn.
pub(crate) struct TurnSender {
    backlog: Arc<Backlog>,
}

pub(crate) fn turn(uuid: String, bounds: Bounds, counting: Arc<Counting>) -> (TurnSender, Turn) {
    let backlog = Arc::new(Backlog::new(bounds, counting));
    let turn =
        Turn { uuid, backlog: backlog.clone(), missed_partials: 0, over: false, outcome: None, owner: None };
    (TurnSender { backlog }, turn)
}

impl TurnSender {
    /// Hands a message over; false if nobody reads any more. An error is what the turn has to end with.
    pub(crate) fn send(&self, message: Message) -> Result<bool> {
        let taken = self.backlog.push(message)?;
        self.backlog.start_mover();
        Ok(taken)
    }

    /// Hands messages over, in order, as if one after the other; how many of them nobody took. With an error, how many
    /// came behind the one that was refused.
    pub(crate) fn send_all(&self, messages: Vec<Message>) -> Result<u64, (Error, u64)> {
        let not_taken = self.backlog.push_all(messages);
        self.backlog.start_mover();
        not_taken
    }

    /// Ends the turn.
    pub(crate) fn end(self, outcome: Outcome) {
        self.backlog.end(Some(outcome));
    }

    /// Bytes that were not read and wait in memory.
    pub(crate) fn unread(&self) -> usize {
        self.backlog.in_memory()
    }

    /// Bytes that were not read and wait in a file.
    pub(crate) fn spilled(&self) -> u64 {
        self.backlog.in_file()
    }
}

impl Drop for TurnSender {
    /// Whoever reads learns that nothing more will come.
    fn drop(&mut self) {
        self.backlog.end(None);
    }
}

impl Turn {
    /// The uuid of the prompt, which the CLI names in its results.
    pub fn prompt_uuid(&self) -> &str {
        &self.uuid
    }

    /// The next message; `None` when the turn is over.
    ///
    /// Safe to cancel: a message is taken only when it is returned.
    pub async fn next(&mut self) -> Option<Message> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// How many partial messages (`stream_event`) were dropped so far because nobody read them: those that came before
    /// the message that [`next`](Turn::next) returned last. It grows from one message to the next where there is a gap.
    ///
    /// Always 0 unless [`Options::unread_partials`](crate::Options::unread_partials) allows it.
    pub fn missed_partials(&self) -> u64 {
        self.missed_partials
    }

    /// How the turn ended. Waits for its end; messages that were not read until then are dropped.
    ///
    /// # Errors
    /// [`SessionFailed`](ErrorKind::SessionFailed), when the session was torn down (killed, or its runtime
    /// shut down) without a word about the turn.
    pub async fn outcome(&mut self) -> Result<Outcome> {
        if !self.over {
            self.missed_partials = self.backlog.discard();
        }
        while self.next().await.is_some() {}
        if let Some(owner) = &self.owner {
            // The run may go on after the result; it is over before a one-shot session is.
            owner.run_ended().await;
            if let Err(error) = owner.stop().await {
                // It has failed after the turn, whose outcome stands.
                tracing::warn!(%error, "a one-shot session did not stop in order");
            }
            self.owner = None;
        }
        self.outcome.clone().ok_or_else(|| {
            Error::new(ErrorKind::SessionFailed, "the session was torn down in the middle of the turn")
        })
    }

    /// The turn's result in the form that [`Options::output_format`](crate::Options::output_format) asked for. Waits for
    /// the end of the turn, as [`outcome`](Turn::outcome) does.
    ///
    /// ```
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Sum { sum: f64 }
    ///
    /// async fn add(builder: greenroom::SessionBuilder) -> greenroom::Result<f64> {
    ///     let session = builder.output_format::<Sum>().start().await?;
    ///     let sum: Sum = session.prompt("What is 5 + 3?").await?.structured().await?;
    ///     Ok(sum.sum)
    /// }
    /// # let _ = add;
    /// ```
    ///
    /// # Errors
    /// Those of [`outcome`](Turn::outcome) and of [`Outcome::structured`].
    pub async fn structured<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.outcome().await?.structured()
    }

    pub(crate) fn owning(mut self, session: crate::Session) -> Self {
        self.owner = Some(session);
        self
    }
}

impl Stream for Turn {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        if self.over {
            return Poll::Ready(None);
        }
        match ready!(self.backlog.poll_take(cx)) {
            Taken::Message(message, missed) => {
                self.missed_partials += missed;
                Poll::Ready(Some(message))
            }
            Taken::End(outcome, missed) => {
                self.missed_partials += missed;
                self.over = true;
                self.outcome = outcome;
                Poll::Ready(None)
            }
        }
    }
}

impl Drop for Turn {
    /// Nothing more is kept, and the file is closed.
    fn drop(&mut self) {
        self.backlog.close();
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("prompt_uuid", &self.uuid)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}
