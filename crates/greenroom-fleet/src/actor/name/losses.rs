//! Entries of a transcript that the store did not get.

use std::sync::{Arc, Mutex, PoisonError};

use greenroom::Event;
use greenroom::report::Events;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::actor::task::Task;

/// Watches an activation for losses of its transcript.
#[derive(Debug)]
pub(crate) struct Losses {
    asks: mpsc::Sender<oneshot::Sender<()>>,
    first: Arc<Mutex<Option<String>>>,
    _watch: Task,
}

impl Losses {
    /// `kill`: the session is to end at once. Whatever is lost after that is the end of a turn that was cut off, and counts for nothing.
    pub(super) fn watch(mut events: Events, kill: CancellationToken) -> Arc<Self> {
        let (asks, mut asked) = mpsc::channel::<oneshot::Sender<()>>(1);
        let first = Arc::new(Mutex::new(None));
        let found = first.clone();
        let watch = Task::spawn(async move {
            loop {
                tokio::select! {
                    // All events that are there come before the answer.
                    biased;
                    event = events.next() => match event {
                        Some(Event::MirrorFailed { entries, error, .. }) if !kill.is_cancelled() => {
                            let why = format!("the store of transcripts did not get {entries} entries: {error}");
                            found.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
                        }
                        Some(_) => {}
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
