//! All messages of a session, also those outside of turns.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio_util::sync::CancellationToken;

use crate::report::feed::Listener;
use crate::report::subscription::{Subscription, subscription};
use crate::wire::Message;

/// All messages of a session from the moment of subscribing on, also those that belong to no turn of the
/// application: what background tasks of the CLI say between prompts. A [`Stream`] that ends with the session.
///
/// A slow subscriber holds nobody up: it is told how many messages it lost
/// ([`Limits::messages_kept`](crate::Limits::messages_kept) are kept for it). A [`Turn`](crate::Turn) loses none.
///
/// ```
/// use greenroom::Received;
///
/// async fn log(session: &greenroom::Session) {
///     let mut messages = session.messages();
///     while let Some(received) = messages.next().await {
///         match received {
///             Received::Message(message) => println!("{}", message.raw()),
///             Received::Missed(count) => println!("{count} messages were missed"),
///         }
///     }
/// }
/// # let _ = log;
/// ```
pub struct Messages {
    stream: Subscription<Received>,
}

/// What a subscriber to all messages gets.
///
/// ```
/// assert!(matches!(greenroom::Received::Missed(3), greenroom::Received::Missed(n) if n > 0));
/// ```
#[derive(Clone, Debug)]
pub enum Received {
    /// A message.
    Message(Message),
    /// So many messages before the next one are lost to this subscriber.
    Missed(u64),
}

impl Messages {
    pub(crate) fn new(listener: Listener<Message>, gone: CancellationToken) -> Self {
        Self { stream: subscription(listener, gone, Received::Message, Received::Missed) }
    }

    /// The next one; `None` when the session is gone.
    pub async fn next(&mut self) -> Option<Received> {
        std::future::poll_fn(|cx| self.stream.as_mut().poll_next(cx)).await
    }
}

impl Stream for Messages {
    type Item = Received;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Received>> {
        self.stream.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Messages")
    }
}
