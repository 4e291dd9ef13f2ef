//! All messages of a session, including messages outside of turns.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::actor::early::Early;
use crate::report::feed::Subscriber;
use crate::report::subscription::{Subscription, subscription};
use crate::wire::Message;

/// A [`Stream`] of all messages of a session, including messages that belong to no turn, such as those of background
/// tasks between prompts. Ends with the session. Messages before the first prompt are kept for the first subscriber of
/// [`Session::messages`](crate::Session::messages).
///
/// A slow subscriber holds nothing up: up to [`Limits::messages_kept`](crate::options::Limits::messages_kept) messages of
/// up to [`Limits::kept_bytes`](crate::options::Limits::kept_bytes) wait for it, and it is told how many more it has
/// missed. A [`Turn`](crate::Turn) misses none.
///
/// ```
/// use greenroom::session::MessageOrGap;
///
/// async fn log(session: &greenroom::Session) {
///     let mut messages = session.messages();
///     while let Some(received) = messages.next().await {
///         match received {
///             MessageOrGap::Message(message) => println!("{}", message.raw()),
///             MessageOrGap::Missed(count) => println!("{count} messages were missed"),
///         }
///     }
/// }
/// # let _ = log;
/// ```
pub struct Messages {
    stream: Subscription<MessageOrGap>,
}

/// An item of [`Messages`].
#[derive(Clone, Debug)]
pub enum MessageOrGap {
    /// A message of the CLI.
    Message(Message),
    /// Number of messages that this subscriber has missed before the next one.
    Missed(u64),
}

impl Messages {
    pub(crate) fn new(early: Early, listener: Subscriber<Message>, gone: CancellationToken) -> Self {
        let stream = subscription(listener, gone, MessageOrGap::Message, MessageOrGap::Missed);
        let missed = (early.missed > 0).then_some(MessageOrGap::Missed(early.missed));
        if early.messages.is_empty() && missed.is_none() {
            return Self { stream };
        }
        let early = early.messages.into_iter().map(MessageOrGap::Message).chain(missed);
        Self { stream: Box::pin(futures_util::stream::iter(early).chain(stream)) }
    }

    /// Waits for the next item; `None` when the session has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<MessageOrGap> {
        std::future::poll_fn(|cx| self.stream.as_mut().poll_next(cx)).await
    }
}

impl Stream for Messages {
    type Item = MessageOrGap;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<MessageOrGap>> {
        self.stream.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Messages")
    }
}

/// A part of one session that was opened before the session starts. A clone of the builder starts another session, with
/// a part of its own.
pub(super) struct Own<T>(pub(super) Option<T>);

impl<T> Default for Own<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Clone for Own<T> {
    fn clone(&self) -> Self {
        Self(None)
    }
}
