//! Entries of a transcript that the backend did not get.

use std::sync::{Arc, OnceLock};

use greenroom::Event;
use greenroom::report::Events;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::actor::task::{Task, answer, spawn};
use crate::record::PromptOutcome;

/// Watches an activation for losses of its transcript. A skipped line that was too long, and missed events, count as losses, because
/// they may have been losses.
#[derive(Debug)]
pub(crate) struct Losses {
    asks: mpsc::Sender<oneshot::Sender<()>>,
    first: Arc<OnceLock<Loss>>,
    _watch: Task,
}

/// The first loss of an activation. Later ones change nothing.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    /// The loss in words.
    pub(crate) why: String,
    /// A turn that was killed is cut off anyway.
    pub(crate) is_after_kill: bool,
}

impl Loss {
    /// True unless the loss is the end of a turn that was cut off anyway.
    pub(super) fn counts_for(&self, outcome: &PromptOutcome) -> bool {
        // A kill that comes later cuts off nothing of a completed turn.
        !self.is_after_kill || matches!(outcome, PromptOutcome::Completed { .. })
    }
}

impl Losses {
    /// `kill`: the session is to end at once. What is lost after that is the end of a turn that was cut off.
    /// `line_bytes`: the session's limit of a line.
    pub(super) fn watch(mut events: Events, kill: CancellationToken, line_bytes: usize) -> Arc<Self> {
        let (asks, mut asked) = mpsc::channel::<oneshot::Sender<()>>(1);
        let first = Arc::<OnceLock<Loss>>::default();
        let noted = first.clone();
        let watch = spawn(async move {
            loop {
                tokio::select! {
                    // All events that are there come before the answer.
                    biased;
                    event = events.next() => {
                        let Some(event) = event else { return };
                        if let Some(why) = loss(&event, line_bytes) {
                            noted.get_or_init(|| Loss { why, is_after_kill: kill.is_cancelled() });
                        }
                    }
                    Some(done) = asked.recv() => answer(done, ()),
                }
            }
        });
        Arc::new(Self { asks, first, _watch: watch })
    }

    /// The first loss so far. The session's outcome of a turn comes after the losses of the turn.
    pub(crate) async fn first(&self) -> Option<Loss> {
        let (done, seen) = oneshot::channel();
        // An error: the session has ended, and all its losses are noted.
        if self.asks.send(done).await.is_ok() {
            tokio::select! {
                _ = seen => {}
                // A question that is sent while the watch ends may stay in the channel.
                () = self.asks.closed() => {}
            }
        }
        self.first.get().cloned()
    }
}

/// The loss of which an event tells, or may tell, in words.
fn loss(event: &Event, line_bytes: usize) -> Option<String> {
    match event {
        Event::MirrorFailed { entries, error, .. } => {
            Some(format!("the transcript did not get {entries} entries: {error}"))
        }
        // The CLI reports its entries in lines.
        Event::LineSkipped { bytes, .. } if *bytes > line_bytes => Some(format!(
            "a line of {bytes} bytes from the CLI was skipped, which may have held entries: raise `limits.line_bytes` ({line_bytes})"
        )),
        Event::Missed { count } => Some(format!(
            "{count} events of the session were missed, and one may have told of lost entries: raise `limits.events_kept` and `limits.kept_bytes`"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::InterruptedBy;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_question_to_a_watch_that_ends_is_answered() {
        let ask_while_it_ends = async {
            for _ in 0..20_000 {
                let mut builder = greenroom::Session::builder();
                let losses = Losses::watch(builder.events(), CancellationToken::new(), 100);
                let mut ending = tokio::task::JoinSet::new();
                ending.spawn(async move { drop(builder) });
                assert!(losses.first().await.is_none());
                ending.join_all().await;
            }
        };
        crate::wait::in_time("the answers", ask_while_it_ends).await;
    }

    #[test]
    fn a_loss_after_the_kill_ends_the_transcript_and_does_not_count() {
        let killed = PromptOutcome::Interrupted { by: InterruptedBy::User, result: None };
        let counts = |is_after_kill| Loss { why: "no room".into(), is_after_kill }.counts_for(&killed);
        assert_eq!((counts(false), counts(true)), (true, false));
    }

    /// The watch may see the loss of a completed turn only after a kill.
    #[test]
    fn any_loss_counts_for_a_completed_turn() {
        let completed = PromptOutcome::Completed { result: ().into(), transcript_lost: false };
        for is_after_kill in [false, true] {
            assert!(Loss { why: "no room".into(), is_after_kill }.counts_for(&completed));
        }
    }

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
