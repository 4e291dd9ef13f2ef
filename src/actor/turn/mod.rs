//! A turn, as the application sees it: a stream of messages with one outcome.

mod buffer;
pub(crate) mod cli_turns;
pub(crate) mod steering;
#[cfg(test)]
mod tests;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use crate::Options;
use crate::error::{Error, ErrorKind, Result};
use crate::report::Outcome;
use crate::report::counters::Counting;
use crate::wire::Message;
use buffer::{NextItem, TurnBuffer};

/// A turn: a [`Stream`] of the [`Message`]s that answer one prompt, and then the turn's [`outcome`](Turn::outcome).
///
/// You may read as slowly as you like. Unread messages wait in order, in memory up to
/// [`Limits::unread_bytes`](crate::options::Limits::unread_bytes), and hold up nothing else. None is lost unless
/// [`Options::unread_partials`](crate::Options::unread_partials) allows it. Past the bound the turn ends with
/// [`Overflow`](ErrorKind::Overflow), after the messages that were accepted.
///
/// Dropping a turn and ending it are two things:
///
/// | what you do | a turn of a [`Session`](crate::Session) | the turn of [`query`](crate::query()) |
/// |---|---|---|
/// | drop it | goes on; its messages are dropped, and the next prompt waits for its result | the CLI ends, because the turn has the only session |
/// | drop it after [`cancel_on_drop`](Turn::cancel_on_drop) | ends; the session goes on with the next prompt | the CLI ends |
/// | [`cancel`](Turn::cancel) it | ends; the session goes on with the next prompt | ends; call `outcome` or drop it to end the CLI |
/// | wait for its [`outcome`](Turn::outcome) | ends by itself | ends by itself, then the CLI ends |
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
#[must_use = "a dropped turn goes on unread; call `outcome` to wait for its end, or `cancel` to end it"]
pub struct Turn {
    uuid: String,
    buffer: Arc<TurnBuffer>,
    canceller: CancelTurn,
    missed_partials: u64,
    over: bool,
    cancel_on_drop: bool,
    outcome: Option<Outcome>,
    /// The session of a one-shot [`query`](crate::query), stopped when the turn is over.
    owner: Option<FinishSession>,
}

/// Names one turn, whatever prompts stand for it in the CLI.
#[derive(Clone)]
pub(crate) struct TurnKey(Arc<TurnBuffer>);

/// Cancels a turn of a conversation. The sender is dropped when the turn has ended.
pub(crate) type CancelTurn = Arc<dyn Fn(TurnKey, oneshot::Sender<()>) + Send + Sync>;

/// Waits for the end of the run of a session that was started for one turn, which may go on after the turn, then stops
/// the session. Owns the session.
type FinishSession = Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// The conversation's end of a turn.
pub(crate) struct TurnSender {
    pub(super) buffer: Arc<TurnBuffer>,
}

pub(crate) fn turn(
    uuid: String,
    options: &Options,
    counting: Arc<Counting>,
    canceller: CancelTurn,
) -> (TurnSender, Turn) {
    let buffer = Arc::new(TurnBuffer::new(options.limits.unread_bytes, options.unread_partials, counting));
    let sender = TurnSender { buffer: buffer.clone() };
    let turn = Turn {
        uuid,
        buffer,
        canceller,
        missed_partials: 0,
        over: false,
        cancel_on_drop: false,
        outcome: None,
        owner: None,
    };
    (sender, turn)
}

impl TurnSender {
    /// Whether this is the conversation's end of the turn.
    pub(crate) fn is(&self, turn: &TurnKey) -> bool {
        Arc::ptr_eq(&self.buffer, &turn.0)
    }

    pub(crate) fn end(self, outcome: Outcome) {
        self.buffer.end(Some(outcome));
    }
}

impl Drop for TurnSender {
    /// Ends the turn without an outcome if it has not ended yet.
    fn drop(&mut self) {
        self.buffer.end(None);
    }
}

impl Turn {
    /// The uuid of the prompt. The CLI names the uuid in its results.
    pub fn prompt_uuid(&self) -> &str {
        &self.uuid
    }

    /// The next message; `None` when the turn is over.
    ///
    /// Safe to cancel: a message is taken only when it is returned.
    pub async fn next(&mut self) -> Option<Message> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Waits until a message can be read, or the turn is over: before that the prompt waits, or the CLI has sent nothing for it.
    ///
    /// Safe to cancel: no message is taken.
    pub async fn begun(&mut self) {
        if !self.over {
            std::future::poll_fn(|cx| self.buffer.poll_begun(cx)).await;
        }
    }

    /// Number of partial messages (`stream_event`) before the last message that [`next`](Turn::next) returned that were
    /// dropped because they were not read in time. When the number grows, messages are missing before the last one.
    ///
    /// Always 0 unless [`Options::unread_partials`](crate::Options::unread_partials) allows it.
    pub fn missed_partials(&self) -> u64 {
        self.missed_partials
    }

    /// Waits for the end of the turn and returns its outcome. Drops messages that you have not read.
    ///
    /// # Errors
    /// [`SessionFailed`](ErrorKind::SessionFailed), if the session was torn down (killed, or its runtime shut down)
    /// before the turn had an outcome.
    pub async fn outcome(&mut self) -> Result<Outcome> {
        if !self.over {
            self.missed_partials = self.buffer.discard();
        }
        while self.next().await.is_some() {}
        if let Some(owner) = &self.owner {
            owner().await;
            self.owner = None;
        }
        self.outcome.clone().ok_or_else(|| {
            Error::new(ErrorKind::SessionFailed, "the session was torn down in the middle of the turn")
        })
    }

    /// Ends this turn and no other, and returns when the turn has ended. Call [`outcome`](Turn::outcome) to see how:
    ///
    /// | the turn | what `cancel` does | its outcome |
    /// |---|---|---|
    /// | waits, or the CLI has not begun with it | takes the prompt back | [`NotStarted`](Outcome::NotStarted), with the prompt |
    /// | runs | interrupts it; handlers of its tool calls are cancelled | [`Interrupted`](Outcome::Interrupted) by the user |
    /// | waits to be continued after a crash | drops the continuation | [`Interrupted`](Outcome::Interrupted) by the user |
    /// | runs or is being taken back, and its CLI ends | nothing more | [`Interrupted`](Outcome::Interrupted) by the user |
    /// | has ended, or ends at the same moment | nothing | stays as it is |
    ///
    /// The next prompt is sent only after the CLI has acknowledged the cancel, so the cancel cannot hit it. A CLI that does
    /// not end the turn within [`Timeouts::control_request`](crate::options::Timeouts::control_request) is replaced. Messages
    /// that were [steered](crate::Session::steer) into the turn and not read yet stay, and become turns of their own; if
    /// the CLI begins with one at the very moment of the cancel, that turn may be interrupted instead.
    ///
    /// Dropping the future does not withdraw the cancel, once the future was polled.
    ///
    /// ```
    /// use greenroom_testkit::ScriptedCli;
    /// use greenroom::{Outcome, Session};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> greenroom::Result<()> {
    /// # let (transport, mut listener) = ScriptedCli::by_hand();
    /// # let builder = Session::builder().transport(transport);
    /// # let (session, mut cli) = tokio::join!(builder.start(), async {
    /// #     let mut cli = listener.accept().await;
    /// #     cli.handshake().await;
    /// #     cli
    /// # });
    /// # let session = session?;
    /// let first = session.prompt("Count to a million.").await?;
    /// let mut second = session.prompt("Then count back.").await?;
    /// second.cancel().await;
    /// assert!(matches!(second.outcome().await?, Outcome::NotStarted { .. }));
    /// # drop((first, session));
    /// # cli.run_out().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn cancel(&self) {
        if !self.over {
            // Fails when the turn has ended: nothing is ever sent.
            let (ended, receiver) = oneshot::channel();
            (self.canceller)(TurnKey(self.buffer.clone()), ended);
            receiver.await.ok();
        }
    }

    /// Has the turn [cancelled](Turn::cancel) when it is dropped before its end. Without this, a dropped turn goes on.
    ///
    /// For a turn whose reader may go away: the client of a web service that closes its connection drops the stream of
    /// the answer, and with it the turn. The answer would cost money although nobody reads it, and the next prompt would
    /// wait for it. The drop does not wait for the end of the turn.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// /// The answer, or `None` after a minute. The turn does not go on after that.
    /// async fn ask(session: &greenroom::Session, question: &str) -> greenroom::Result<Option<String>> {
    ///     let mut turn = session.prompt(question).await?.cancel_on_drop();
    ///     match tokio::time::timeout(Duration::from_secs(60), turn.outcome()).await {
    ///         Ok(outcome) => Ok(outcome?.text().map(str::to_owned)),
    ///         Err(_) => Ok(None),
    ///     }
    /// }
    /// # let _ = ask;
    /// ```
    pub fn cancel_on_drop(mut self) -> Self {
        self.cancel_on_drop = true;
        self
    }

    /// Has a dropped turn go on.
    pub(crate) fn go_on_when_dropped(mut self) -> Self {
        self.cancel_on_drop = false;
        self
    }

    /// Waits for the end of the turn, like [`outcome`](Turn::outcome), and reads its result as the type that
    /// [`SessionBuilder::output_format`](crate::SessionBuilder::output_format) asked for.
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
    /// The errors of [`outcome`](Turn::outcome) and of [`Outcome::structured`].
    pub async fn structured<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.outcome().await?.structured()
    }

    pub(crate) fn owned_by(
        mut self,
        owner: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        self.owner = Some(Box::new(owner));
        self
    }
}

impl Stream for Turn {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        if self.over {
            return Poll::Ready(None);
        }
        match ready!(self.buffer.poll_take(cx)) {
            NextItem::Message(message, missed) => {
                self.missed_partials += missed;
                Poll::Ready(Some(message))
            }
            NextItem::End(outcome, missed) => {
                self.missed_partials += missed;
                self.over = true;
                self.outcome = outcome;
                Poll::Ready(None)
            }
        }
    }
}

impl Drop for Turn {
    /// Drops the unread messages.
    fn drop(&mut self) {
        if self.cancel_on_drop && !self.over {
            // Nobody waits for the end of the turn.
            (self.canceller)(TurnKey(self.buffer.clone()), oneshot::channel().0);
        }
        self.buffer.close();
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
