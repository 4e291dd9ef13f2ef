//! All messages of a session, including messages outside of turns.

use tokio_util::sync::CancellationToken;

use crate::report::Subscription;
use crate::report::feed::Subscriber;
use crate::wire::Message;

/// A [`Stream`](futures_core::Stream) of all messages of a session, including messages that belong to no turn, such as those of background
/// tasks between prompts. Ends with the session. [`SessionBuilder::messages`](crate::SessionBuilder::messages) also has the
/// messages that the CLI writes while it starts.
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
pub type Messages = Subscription<MessageOrGap>;

/// An item of [`Messages`].
#[derive(Clone, Debug)]
pub enum MessageOrGap {
    /// A message of the CLI.
    Message(Message),
    /// Number of messages that this subscriber has missed before the next one.
    Missed(u64),
}

impl Messages {
    pub(crate) fn of(listener: Subscriber<Message>, gone: CancellationToken) -> Self {
        Self::new(listener, gone, MessageOrGap::Message, MessageOrGap::Missed)
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
