//! Feeds, readers, and what they have not heard.

use greenroom::Message;
use serde_json::json;

use super::unheard::{MOST, MOST_BYTES};
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
    let mut turn = Audience::default();
    turn.show([complete(0)]).notify_waiters();
    assert_eq!(turn.behind(), 0, "nobody reads");
    let (first, second) = (turn.join(true).0, turn.join(true).0);
    turn.show([partial(1)]).notify_waiters();
    turn.show([complete(1)]).notify_waiters();
    let late = turn.join(true).0;
    assert_eq!(heard(turn.take(first)), "~1");
    assert_eq!(turn.behind(), 2);
    assert_eq!(heard(turn.take(second)), "~1");
    assert_eq!(turn.behind(), 1);
    assert_eq!(heard(turn.take(late)), "nothing");
    turn.leave(first);
    assert_eq!(turn.behind(), 1);
    turn.leave(second);
    assert_eq!((turn.behind(), turn.is_empty()), (0, false));
    turn.leave(late);
    assert!(turn.is_empty());
}

#[test]
fn a_slow_reader_learns_how_many_partial_messages_it_has_missed() {
    let mut turn = Audience::default();
    let (slow, fast) = (turn.join(true).0, turn.join(true).0);
    for _ in 0..3 {
        turn.show([partial(0)]).notify_waiters();
    }
    assert_eq!(heard(turn.take(slow)), "~0");
    turn.show([complete(0)]).notify_waiters();
    for pushed in 0..MOST {
        turn.show([partial(1)]).notify_waiters();
        while heard(turn.take(fast)) != "nothing" {}
        assert_eq!(turn.behind(), MOST.min(pushed + 4));
    }
    turn.show([complete(1)]).notify_waiters();
    // Two of the first three and one of the last are gone, and so is the complete message, which the backend has.
    assert_eq!(heard(turn.take(slow)), "-3");
    for _ in 1..MOST {
        assert_eq!(heard(turn.take(slow)), "~1");
    }
    assert_eq!(heard(turn.take(slow)), "1");
    assert_eq!(heard(turn.take(slow)), "nothing");
    assert_eq!(heard(turn.take(fast)), "1");
    assert_eq!(turn.behind(), 0);
}

#[test]
fn the_bytes_of_unread_messages_are_bounded() {
    let mut turn = Audience::default();
    let reader = turn.join(true).0;
    let large = LiveMessage { after: 0, complete: false, message: message(&"x".repeat(MOST_BYTES / 2)) };
    for _ in 0..3 {
        turn.show([large.clone()]).notify_waiters();
    }
    assert_eq!(turn.behind(), 1);
    let longer = LiveMessage { message: message(&"x".repeat(MOST_BYTES)), ..large };
    turn.show([longer]).notify_waiters();
    assert_eq!(turn.behind(), 1, "one message may be longer than the bound");
    assert_eq!(heard(turn.take(reader)), "-3");
    assert_eq!(heard(turn.take(reader)), "~0");
    assert_eq!(heard(turn.take(reader)), "nothing");
}

#[tokio::test(start_paused = true)]
async fn a_turn_has_an_audience_while_it_runs_or_is_read() {
    let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    let (hub, prompt) = (Hub::of(&backend, Arc::default()), PromptId::new());
    let mut reader = hub.read(prompt);
    assert_eq!(not_fed(&hub.turns), [prompt]);
    let feed = hub.open(prompt);
    assert_eq!(not_fed(&hub.turns), []);
    feed.show([partial(0), complete(0)]);
    assert_eq!(heard(Some(reader.next().await)), "~0");
    drop(feed);
    assert_eq!(heard(Some(reader.next().await)), "0", "unread messages come first");
    assert_eq!(heard(Some(reader.next().await)), "look");
    assert_eq!(hub.audiences(), 1);
    drop(reader);
    assert_eq!(hub.audiences(), 0);
    let feed = hub.open(prompt);
    assert_eq!(hub.audiences(), 1);
    drop(feed);
    assert_eq!(hub.audiences(), 0);
}
