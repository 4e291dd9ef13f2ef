//! The turns that the CLI of an activation begins by itself, until a step writes them down.

use std::future::pending;

use greenroom::Turn;
use greenroom::session::CliTurns;
use tokio::sync::Mutex;

/// The turns, in the order in which the CLI has begun them. A wait that is dropped loses none.
#[derive(Debug)]
pub(crate) struct CliTurnQueue(Mutex<Waiting>);

#[derive(Debug)]
struct Waiting {
    turns: CliTurns,
    first: Option<Turn>,
}

impl CliTurnQueue {
    pub(crate) fn new(turns: CliTurns) -> Self {
        Self(Mutex::new(Waiting { turns, first: None }))
    }

    /// Waits until a turn has begun that nobody has taken: for ever, once the session has ended.
    pub(crate) async fn begun(&self) {
        let mut waiting = self.0.lock().await;
        if waiting.first.is_none() {
            waiting.first = match waiting.turns.next().await {
                Some(turn) => Some(turn),
                None => return pending().await,
            };
        }
    }

    /// Takes the first turn, if one has begun.
    pub(crate) async fn take(&self) -> Option<Turn> {
        let mut waiting = self.0.lock().await;
        waiting.first.take().or_else(|| waiting.turns.try_next())
    }
}
