//! One turn, as the application sees it: a stream of messages with one outcome.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tokio::sync::mpsc;

use crate::error::{Error, ErrorKind, Result};
use crate::report::Outcome;
use crate::wire::Message;

enum Item {
    Message(Message, usize),
    End(Outcome),
}

/// A turn: the messages that answer one prompt, and how it ended. A [`Stream`] of [`Message`]s that ends when the
/// turn does.
///
/// Messages that are not read wait, up to [`Limits::unread_bytes`](crate::Limits::unread_bytes); they hold up
/// nothing else. Dropping a turn does not end it: its further messages are dropped, and the next prompt waits for
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
    items: mpsc::UnboundedReceiver<Item>,
    unread: Arc<AtomicUsize>,
    outcome: Option<Outcome>,
    /// For a one-shot query: the session, which is stopped when the turn is over.
    owner: Option<crate::Session>,
}

/// The conversation's end of a turn.
pub(crate) struct TurnSender {
    items: mpsc::UnboundedSender<Item>,
    unread: Arc<AtomicUsize>,
    bound: usize,
}

/// The messages of a turn that nobody read have reached their bound.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overflow;

pub(crate) fn turn(uuid: String, bound: usize) -> (TurnSender, Turn) {
    let (sender, items) = mpsc::unbounded_channel();
    let unread = Arc::new(AtomicUsize::new(0));
    let turn = Turn { uuid, items, unread: unread.clone(), outcome: None, owner: None };
    (TurnSender { items: sender, unread, bound }, turn)
}

impl TurnSender {
    /// Hands a message over; false if nobody reads any more.
    pub(crate) fn send(&self, message: Message) -> std::result::Result<bool, Overflow> {
        if self.items.is_closed() {
            return Ok(false);
        }
        let bytes = message.raw().get().len();
        if self.unread.fetch_add(bytes, Ordering::Relaxed) + bytes > self.bound {
            return Err(Overflow);
        }
        Ok(self.items.send(Item::Message(message, bytes)).is_ok())
    }

    /// Ends the turn.
    pub(crate) fn end(self, outcome: Outcome) {
        // A reader who has gone does not want to know.
        self.items.send(Item::End(outcome)).ok();
    }

    /// Bytes that were not read.
    pub(crate) fn unread(&self) -> usize {
        self.unread.load(Ordering::Relaxed)
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

    /// How the turn ended. Waits for its end; messages that were not read until then are dropped.
    ///
    /// # Errors
    /// [`SessionFailed`](ErrorKind::SessionFailed), when the session was torn down (killed, or its runtime
    /// shut down) without a word about the turn.
    pub async fn outcome(&mut self) -> Result<Outcome> {
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

    pub(crate) fn owning(mut self, session: crate::Session) -> Self {
        self.owner = Some(session);
        self
    }
}

impl Stream for Turn {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        if self.outcome.is_some() {
            return Poll::Ready(None);
        }
        match ready!(self.items.poll_recv(cx)) {
            Some(Item::Message(message, bytes)) => {
                self.unread.fetch_sub(bytes, Ordering::Relaxed);
                Poll::Ready(Some(message))
            }
            Some(Item::End(outcome)) => {
                self.outcome = Some(outcome);
                Poll::Ready(None)
            }
            None => Poll::Ready(None),
        }
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
