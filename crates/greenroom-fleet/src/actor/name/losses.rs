//! Entries of a transcript that the store did not get.

use std::sync::{Arc, Mutex, PoisonError};

use greenroom::Event;
use greenroom::report::Events;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::actor::task::Task;

/// Watches an activation for losses of its transcript. Where it cannot tell whether something was lost, it notes a loss.
#[derive(Debug)]
pub(crate) struct Losses {
    asks: mpsc::Sender<oneshot::Sender<()>>,
    first: Arc<Mutex<Option<String>>>,
    _watch: Task,
}

impl Losses {
    /// `kill`: the session is to end at once. Whatever is lost after that is the end of a turn that was cut off, and counts for nothing.
    /// `line_bytes`: the session's limit of a line.
    pub(super) fn watch(mut events: Events, kill: CancellationToken, line_bytes: usize) -> Arc<Self> {
        let (asks, mut asked) = mpsc::channel::<oneshot::Sender<()>>(1);
        let first = Arc::new(Mutex::new(None));
        let found = first.clone();
        let watch = Task::spawn(async move {
            loop {
                tokio::select! {
                    // All events that are there come before the answer.
                    biased;
                    event = events.next() => match event {
                        Some(event) => {
                            if let Some(why) = loss(&event, line_bytes).filter(|_| !kill.is_cancelled()) {
                                found.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
                            }
                        }
                        None => return,
                    },
                    Some(done) = asked.recv() => {
                        // An error: whoever asked waits no more.
                        done.send(()).ok();
                    }
                }
            }
        });
        Arc::new(Self { asks, first, _watch: watch })
    }

    /// The first loss so far, in words. The session's outcome of a turn comes after the losses of the turn.
    pub(crate) async fn so_far(&self) -> Option<String> {
        let (done, seen) = oneshot::channel();
        // An error: the session has ended, and all its losses are noted.
        if self.asks.send(done).await.is_ok() {
            seen.await.ok();
        }
        self.first.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What an event tells of a loss.
fn loss(event: &Event, line_bytes: usize) -> Option<String> {
    match event {
        Event::MirrorFailed { entries, error, .. } => {
            Some(format!("the store of transcripts did not get {entries} entries: {error}"))
        }
        // The CLI reports its entries in lines.
        Event::LineSkipped { bytes, .. } if *bytes > line_bytes => Some(format!(
            "a line of {bytes} bytes from the CLI was skipped, which may have held entries: raise `limits.line_bytes` ({line_bytes})"
        )),
        Event::Missed { count } => Some(format!(
            "{count} events of the session were missed, and one may have told of lost entries: raise `limits.events_kept`"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_told_counts_as_a_loss() {
        let skipped = |bytes| Event::LineSkipped { epoch: 1, reason: String::new(), bytes };
        let failed = Event::MirrorFailed { key: None, entries: 2, error: "no room".into() };
        for (event, counts) in [
            (failed, true),
            (skipped(101), true),
            (skipped(100), false),
            (Event::Missed { count: 1 }, true),
            (Event::Stopping, false),
        ] {
            assert_eq!(loss(&event, 100).is_some(), counts, "{event:?}");
        }
    }
}
