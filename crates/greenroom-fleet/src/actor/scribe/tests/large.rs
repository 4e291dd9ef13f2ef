//! Batches that are too large for the backend's time.

use super::*;
use crate::backend::{Channels, Commit, Committed, Lane, Reply, Rows, Wanted};
use crate::error::BackendError;

/// A backend that is up, and never carries out a commit with this many bytes in time.
struct Hasty(MemoryBackend, usize);

impl Backend for Hasty {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn read(&self, lane: Lane, wanted: Wanted) -> Reply<'_, Rows> {
        self.0.read(lane, wanted)
    }

    fn commit(&self, lane: Lane, commit: Commit) -> Reply<'_, Committed> {
        let bytes: usize = commit.writes.values().flatten().map(Vec::len).sum();
        if bytes < self.1 {
            return self.0.commit(lane, commit);
        }
        let error = BackendError::new(BackendErrorKind::Unavailable, "the statement took too long");
        Box::pin(async { Err(error) })
    }

    fn channels(&self) -> &Channels {
        self.0.channels()
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn default_folder(&self) -> Option<std::path::PathBuf> {
        self.0.default_folder()
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_always_takes_too_long_is_a_gap_and_the_turn_goes_on() {
    let shared = fleet_on(Hasty(MemoryBackend::new(), 3 << 20)).await;
    let begun = BegunTurn::new(&shared, "a").await;
    let mut played = Played::start().await;
    let (writing, prompt) = played.run(&begun, 0).await;
    played.say("before");
    played.say(&"x".repeat(4 << 20));
    played.say("after");
    played.cli.finish_turn(&prompt, "done");
    let began = tokio::time::Instant::now();
    let written =
        tokio::time::timeout(shared.limits.lease * 10, writing).await.expect("it is repeated for ever");
    assert_eq!(written.unwrap().text(), Some("done"));
    assert!(began.elapsed() > shared.limits.lease, "a backend that is away for a moment loses no message");
    let kept = begun.kept().await;
    assert_eq!(kept.iter().map(|message| message.number).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let second: Value = serde_json::from_str(&kept[1].json).unwrap();
    assert_eq!(second["type"], NOT_KEPT);
}

#[tokio::test(start_paused = true)]
async fn a_large_batch_that_was_kept_without_a_reply_fences_nobody() {
    let backend = FaultedBackend::new(Hasty(MemoryBackend::new(), usize::MAX));
    let shared = fleet_on(backend.clone()).await;
    let begun = BegunTurn::new(&shared, "a").await;
    let mut played = Played::start().await;
    let (writing, prompt) = played.run(&begun, 0).await;
    let (began, silent) = (tokio::time::Instant::now(), shared.limits.lease * 3);
    backend.plan(move |request| match request.method {
        "append" if began.elapsed() < silent => Fault::LoseReply,
        _ => Fault::Pass,
    });
    played.say("before");
    played.say(&"x".repeat(2 << 20));
    played.say("after");
    played.cli.finish_turn(&prompt, "done");
    assert_eq!(writing.await.unwrap().text(), Some("done"));
    let kept = begun.kept().await;
    assert_eq!(kept.iter().map(|message| message.number).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(kept.iter().all(|message| !message.json.contains(NOT_KEPT)), "a message that was kept is a gap");
}
