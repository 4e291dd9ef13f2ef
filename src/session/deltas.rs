//! Read a turn while the model writes it.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use crate::actor::turn::Turn;
use crate::wire::message::{Assembler, Delta};

/// A [`Stream`] of the [`Delta`]s of a turn, while the model writes it. Ends with the turn. Made by [`Turn::deltas`].
///
/// ```
/// use std::io::Write;
///
/// async fn chat(session: &greenroom::Session, line: &str) -> greenroom::Result<()> {
///     let mut turn = session.prompt(line).await?;
///     let mut deltas = turn.deltas();
///     while let Some(text) = deltas.next_text().await {
///         print!("{text}");
///         std::io::stdout().flush().ok();
///     }
///     println!("\n{:?}", turn.outcome().await?);
///     Ok(())
/// }
/// # let _ = chat;
/// ```
pub struct Deltas<'a> {
    turn: &'a mut Turn,
    assembler: Assembler,
    waiting: VecDeque<Delta>,
    missed: u64,
}

impl Turn {
    /// Reads the turn while the model writes it: text, reasoning and arguments of calls, piece by piece with
    /// [`include_partial_messages`](crate::Options::include_partial_messages), block by block without.
    ///
    /// The texts add up to the text of the turn's messages, even if partial messages were dropped
    /// ([`missed_partials`](Turn::missed_partials)). Messages without deltas are skipped; to get them too, read the
    /// turn and feed an [`Assembler`](crate::message::Assembler).
    pub fn deltas(&mut self) -> Deltas<'_> {
        let missed = self.missed_partials();
        Deltas { turn: self, assembler: Assembler::new(), waiting: VecDeque::new(), missed }
    }
}

impl Deltas<'_> {
    /// Waits for the next delta; `None` when the turn is over. Cancel-safe.
    pub async fn next(&mut self) -> Option<Delta> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Waits for the next text of the main thread, and skips other deltas; `None` when the turn is over. Cancel-safe.
    pub async fn next_text(&mut self) -> Option<String> {
        while let Some(delta) = self.next().await {
            if let (true, Some(text)) = (delta.is_main_thread(), delta.text()) {
                return Some(text.to_owned());
            }
        }
        None
    }
}

impl Stream for Deltas<'_> {
    type Item = Delta;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delta>> {
        loop {
            if let Some(delta) = self.waiting.pop_front() {
                return Poll::Ready(Some(delta));
            }
            let Some(message) = ready!(Pin::new(&mut *self.turn).poll_next(cx)) else {
                return Poll::Ready(None);
            };
            let missed = self.turn.missed_partials();
            if std::mem::replace(&mut self.missed, missed) != missed {
                self.assembler.missed();
            }
            let deltas = self.assembler.feed(&message);
            self.waiting.extend(deltas);
        }
    }
}

impl fmt::Debug for Deltas<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deltas").field("turn", &self.turn).finish_non_exhaustive()
    }
}
