//! Turns that the CLI begins by itself, on their way to the application.

use std::sync::Mutex;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Turn;
use crate::lock::lock;

/// Turns that wait for their reader. The CLI begins one at a time.
const WAITING: usize = 8;

/// The turns that the CLI of a session begins by itself: a background task has ended and the model goes on, or a
/// schedule of the session's is due. In the order in which they begin. Ends with the session.
///
/// Each is a [`Turn`] with its messages and its outcome; its [`prompt_uuid`](Turn::prompt_uuid) is an id that greenroom has made.
/// Read each as you read the turn of a prompt: what is not read waits in memory, up to
/// [`Limits::unread_bytes`](crate::options::Limits::unread_bytes). Up to 8 turns wait to be taken; a further one goes on unread.
/// A turn of `num_turns` 0 and no text has asked the model nothing: the CLI has told the model of it with the next one.
///
/// While such a turn runs, prompts wait, and [`wait_idle`](crate::Session::wait_idle) and [`stop`](crate::Session::stop) wait for
/// it. The limits of turns ([`Timeouts::turn`](crate::options::Timeouts::turn),
/// [`Timeouts::silence`](crate::options::Timeouts::silence)) end it. If the CLI takes a prompt into the turn that was written
/// as the turn began, the turn ends as [`Joined`](crate::Outcome::Joined), and its rest belongs to the prompt.
///
/// ```
/// async fn watch(session: &greenroom::Session) {
///     let mut turns = session.cli_turns();
///     while let Some(mut turn) = turns.next().await {
///         println!("the CLI has begun a turn: {:?}", turn.outcome().await);
///     }
/// }
/// # let _ = watch;
/// ```
#[derive(Debug)]
pub struct CliTurns {
    turns: mpsc::Receiver<Turn>,
    gone: CancellationToken,
}

impl CliTurns {
    /// The next turn; `None` after the end of the session, or once another [`CliTurns`] of the session was opened.
    /// Cancel-safe.
    pub async fn next(&mut self) -> Option<Turn> {
        tokio::select! {
            biased;
            turn = self.turns.recv() => turn,
            () = self.gone.cancelled() => self.turns.try_recv().ok(),
        }
    }

    /// The next turn, if it has begun.
    pub fn try_next(&mut self) -> Option<Turn> {
        self.turns.try_recv().ok()
    }
}

/// Where the turns are read, if they are.
#[derive(Debug, Default)]
pub(crate) struct CliTurnsFeed {
    reader: Mutex<Option<mpsc::Sender<Turn>>>,
}

impl CliTurnsFeed {
    /// Opens the reader, in place of the one before.
    pub(crate) fn subscribe(&self, gone: CancellationToken) -> CliTurns {
        let (sender, turns) = mpsc::channel(WAITING);
        *lock(&self.reader) = Some(sender);
        CliTurns { turns, gone }
    }

    /// Gives a turn to the reader. `false`: nobody reads it.
    pub(crate) fn offer(&self, turn: Turn) -> bool {
        let mut reader = lock(&self.reader);
        let Some(sender) = &*reader else { return false };
        match sender.try_send(turn) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) => {
                tracing::warn!(
                    "{WAITING} turns that the CLI has begun by itself wait to be read: a further one goes on unread"
                );
                false
            }
            Err(mpsc::error::TrySendError::Closed(_)) => {
                *reader = None;
                false
            }
        }
    }
}
