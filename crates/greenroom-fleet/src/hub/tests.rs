//! Rings, feeds and readers.

use greenroom::Message;
use serde_json::json;

use super::ring::{MOST, MOST_BYTES, MessageRing};
use super::*;
use crate::backend::MemoryBackend;

fn message(text: &str) -> Message {
    Message::parse(&json!({ "type": "later", "text": text }).to_string()).unwrap()
}

fn complete(after: u64) -> LiveMessage {
    LiveMessage { after, complete: true, message: message("") }
}

fn partial(after: u64) -> LiveMessage {
    LiveMessage { after, complete: false, message: message("") }
}

/// In short: `5` for the complete message after 5, `~5` for a partial one, `-3` for 3 that were missed, `look`.
fn heard(heard: Option<Heard>) -> String {
    match heard {
        Some(Heard::Message(live)) if live.complete => format!("{}", live.after),
        Some(Heard::Message(live)) => format!("~{}", live.after),
        Some(Heard::Missed(count)) => format!("-{count}"),
        Some(Heard::Look) => "look".to_owned(),
        None => "nothing".to_owned(),
    }
}

#[test]
fn a_message_is_dropped_when_all_readers_have_read_it() {
    let mut ring = MessageRing::default();
    ring.push(complete(0));
    assert_eq!(ring.len(), 0, "nobody reads");
    let (mut first, mut second) = (ring.join(true), ring.join(true));
    let outcome_only = ring.join(false);
    ring.push(partial(1));
    ring.push(complete(1));
    let mut late = ring.join(true);
    assert_eq!(heard(ring.take(&mut first)), "~1");
    assert_eq!(ring.len(), 2);
    assert_eq!(heard(ring.take(&mut second)), "~1");
    assert_eq!(ring.len(), 1);
    assert_eq!(heard(ring.take(&mut late)), "nothing");
    ring.leave(&first);
    assert_eq!(ring.len(), 1);
    ring.leave(&second);
    assert_eq!((ring.len(), ring.is_unused()), (0, false));
    ring.leave(&late);
    assert!(!ring.is_unused());
    ring.leave(&outcome_only);
    assert!(ring.is_unused());
}

#[test]
fn a_slow_reader_learns_how_many_partial_messages_it_has_missed() {
    let mut ring = MessageRing::default();
    let (mut slow, mut fast) = (ring.join(true), ring.join(true));
    for _ in 0..3 {
        ring.push(partial(0));
    }
    assert_eq!(heard(ring.take(&mut slow)), "~0");
    ring.push(complete(0));
    for pushed in 0..MOST {
        ring.push(partial(1));
        while heard(ring.take(&mut fast)) != "nothing" {}
        assert_eq!(ring.len(), MOST.min(pushed + 4));
    }
    ring.push(complete(1));
    // Two of the first three and one of the last are gone, and so is the complete message, which the backend has.
    assert_eq!(heard(ring.take(&mut slow)), "-3");
    for _ in 1..MOST {
        assert_eq!(heard(ring.take(&mut slow)), "~1");
    }
    assert_eq!(heard(ring.take(&mut slow)), "1");
    assert_eq!(heard(ring.take(&mut slow)), "nothing");
    assert_eq!(heard(ring.take(&mut fast)), "1");
    assert_eq!(ring.len(), 0);
}

#[test]
fn the_bytes_of_unread_messages_are_bounded() {
    let mut ring = MessageRing::default();
    let mut reader = ring.join(true);
    let large = LiveMessage { after: 0, complete: false, message: message(&"x".repeat(MOST_BYTES / 2)) };
    for _ in 0..3 {
        ring.push(large.clone());
    }
    assert_eq!(ring.len(), 1);
    let longer = LiveMessage { message: message(&"x".repeat(MOST_BYTES)), ..large };
    ring.push(longer);
    assert_eq!(ring.len(), 1, "one message may be longer than the bound");
    assert_eq!(heard(ring.take(&mut reader)), "-3");
    assert_eq!(heard(ring.take(&mut reader)), "~0");
    assert_eq!(heard(ring.take(&mut reader)), "nothing");
}

#[tokio::test(start_paused = true)]
async fn a_prompt_has_a_slot_while_it_runs_or_is_read() {
    let (hub, prompt) = (Hub::default(), PromptId::new());
    let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    let mut reader = hub.read(prompt, &backend);
    assert_eq!(hub.0.not_fed(), [prompt]);
    let feed = hub.open(prompt);
    assert_eq!(hub.0.not_fed(), []);
    feed.show([partial(0), complete(0)]);
    assert_eq!(heard(Some(reader.next().await)), "~0");
    drop(feed);
    assert_eq!(heard(Some(reader.next().await)), "0", "unread messages come first");
    assert_eq!(heard(Some(reader.next().await)), "look");
    assert_eq!(hub.slots(), 1);
    drop(reader);
    assert_eq!(hub.slots(), 0);
    let feed = hub.open(prompt);
    assert_eq!(hub.slots(), 1);
    drop(feed);
    assert_eq!(hub.slots(), 0);
}
