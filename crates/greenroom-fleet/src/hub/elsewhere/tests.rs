//! Hubs of two nodes on one backend.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use futures_util::FutureExt;
use tokio::sync::broadcast;
use tokio::time::sleep;
use uuid::Uuid;

use super::*;
use crate::backend::{Backend, MemoryBackend};
use crate::hub::{Feed, Heard, Hub, Reader};
use crate::request::NodeNews;
use crate::stage::turn::{part, said};

/// Two nodes: turns run on the first one, and are read on the second one.
struct Nodes {
    owner: Hub,
    readers: Hub,
    prompt: PromptId,
    published: broadcast::Receiver<NodeMessage>,
    _backend: Arc<dyn Backend>,
}

impl Nodes {
    fn new() -> Self {
        let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
        let hub = || Hub::of(&backend, Arc::new(AtomicU32::new(1)));
        let published = backend.channels().node_messages();
        Self { owner: hub(), readers: hub(), prompt: PromptId::new(), published, _backend: backend }
    }

    /// Texts that were published since the last look, each with a star if a block starts with it.
    fn texts(&mut self) -> Vec<String> {
        let published = std::iter::from_fn(|| self.published.try_recv().ok());
        let texts = published.filter_map(|message| match message.news {
            NodeNews::Writes(_, piece) => {
                Some(format!("{}{}", if piece.starts { "*" } else { "" }, piece.text))
            }
            NodeNews::Reads(_) => None,
        });
        texts.collect()
    }
}

fn live(after: u64, complete: bool, message: &serde_json::Value) -> LiveMessage {
    LiveMessage { after, complete, message: Message::parse(&message.to_string()).unwrap() }
}

fn block(after: u64) -> LiveMessage {
    let event =
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } });
    live(after, false, &json!({ "type": "stream_event", "parent_tool_use_id": null, "event": event }))
}

fn text(after: u64, text: &str) -> LiveMessage {
    live(after, false, &part(text))
}

fn complete(feed: &Feed, after: u64, text: &str) {
    feed.show([live(after, true, &said(text))]);
}

/// The text that a reader hears without waiting, with a star for the start of a block.
fn heard(reader: &mut Reader) -> String {
    let mut text = String::new();
    while let Some(heard) = reader.next().now_or_never() {
        let Heard::Message(LiveMessage { message: Message::StreamEvent(event), .. }) = heard else {
            continue;
        };
        text += event.text_delta().unwrap_or("*");
    }
    text
}

async fn millis(millis: u64) {
    sleep(Duration::from_millis(millis)).await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_without_readers_elsewhere_publishes_nothing() {
    let mut nodes = Nodes::new();
    let feed = nodes.owner.open(nodes.prompt);
    let _here = nodes.owner.read(nodes.prompt);
    let _for_its_end = nodes.readers.wait(nodes.prompt);
    for _ in 0..100 {
        feed.show([block(0), text(0, "Hello")]);
        millis(100).await;
    }
    assert!(nodes.published.try_recv().is_err());
    assert!(locked(&nodes.owner.turns.elsewhere.watched).is_empty());
}

#[tokio::test(start_paused = true)]
async fn text_is_put_together_and_comes_to_readers_on_another_node() {
    let mut nodes = Nodes::new();
    // The turn begins after its reader has come.
    let mut reader = nodes.readers.read(nodes.prompt);
    millis(50).await;
    let feed = nodes.owner.open(nodes.prompt);
    feed.show([block(0), text(0, "Hel"), text(0, "lo")]);
    feed.show([text(0, " you")]);
    assert_eq!(heard(&mut reader), "");
    millis(101).await;
    assert_eq!(heard(&mut reader), "*Hello you");
    assert_eq!(nodes.texts(), ["*Hello you"]);
    // A subagent's message does not end the text, and the message itself does.
    let subagents = json!({ "type": "assistant", "parent_tool_use_id": "1", "message": { "content": [] } });
    feed.show([text(0, "."), live(0, true, &subagents), text(1, " And")]);
    millis(101).await;
    assert_eq!(heard(&mut reader), ". And");
    feed.show([text(1, " more.")]);
    complete(&feed, 1, "Hello you. And more.");
    millis(101).await;
    assert_eq!(nodes.texts(), [". And"]);
    // A thinking block has no text.
    feed.show([block(2), block(2), text(2, "Next")]);
    millis(101).await;
    assert_eq!(nodes.texts(), ["*Next"]);
    assert_eq!(heard(&mut reader), "*Next");

    // Nobody reads it any more.
    drop(reader);
    millis(13_000).await;
    feed.show([text(2, " unread")]);
    millis(200).await;
    assert_eq!(nodes.texts(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_comes_in_the_middle_hears_the_text_from_then_on() {
    let nodes = Nodes::new();
    let feed = nodes.owner.open(nodes.prompt);
    feed.show([block(0), text(0, "not heard")]);
    let mut reader = nodes.readers.read(nodes.prompt);
    millis(50).await;
    for word in ["a", "b", "c"] {
        feed.show([text(0, word)]);
        millis(3_000).await;
    }
    assert_eq!(heard(&mut reader), "abc");
}

#[tokio::test(start_paused = true)]
async fn text_behind_a_lost_piece_is_ignored_up_to_the_next_block() {
    let nodes = Nodes::new();
    let mut reader = nodes.readers.read(nodes.prompt);
    let mut hear = |number, starts, text: &str| {
        let piece = Piece { number, after: 0, starts, text: text.to_owned() };
        nodes.readers.turns.hear(nodes.prompt, &piece);
        heard(&mut reader)
    };
    assert_eq!(hear(7, false, "in the middle"), "in the middle");
    assert_eq!(hear(8, false, "b"), "b");
    assert_eq!(hear(10, false, "d"), "");
    assert_eq!(hear(11, false, "e"), "");
    assert_eq!(hear(12, true, "f"), "*f");
    assert_eq!(hear(13, false, "g"), "g");
    // Another owner writes.
    assert_eq!(hear(1, true, "h"), "*h");
    assert_eq!(hear(3, true, "i"), "*i");
    // It runs here now.
    let _feed = nodes.readers.open(nodes.prompt);
    assert_eq!(hear(4, false, "j"), "");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_text_is_bounded_and_holds_up_nobody() {
    let mut nodes = Nodes::new();
    let _reader = nodes.readers.read(nodes.prompt);
    millis(50).await;
    let feed = nodes.owner.open(nodes.prompt);
    feed.show([block(0)]);
    // The worst text for JSON.
    let flood = "\u{1}".repeat(1000);
    (0..1000).for_each(|_| feed.show([text(0, &flood)]));
    let bytes = || locked(&nodes.owner.turns.elsewhere.watched)[&nodes.prompt].outbox.bytes;
    assert_eq!(bytes(), 16_000, "the beginning of the block waits");
    millis(101).await;
    let published: Vec<_> = std::iter::from_fn(|| nodes.published.try_recv().ok()).collect();
    assert!(published.len() <= 20, "{}", published.len());
    for message in &published {
        let json = serde_json::to_string(message).unwrap();
        assert!(json.len() <= NodeMessage::MAX_BYTES, "{}", json.len());
        assert_eq!(&serde_json::from_str::<NodeMessage>(&json).unwrap(), message);
    }
    feed.show([text(0, "left out"), block(0), text(0, "next é")]);
    millis(101).await;
    assert_eq!(nodes.texts(), ["*next é"]);
}

#[test]
fn a_message_about_many_turns_is_short() {
    let prompts = (0..NodeMessage::TURNS).map(|_| PromptId::new()).collect();
    let message = NodeMessage { from: Uuid::new_v4(), news: NodeNews::Reads(prompts) };
    assert!(serde_json::to_string(&message).unwrap().len() <= NodeMessage::MAX_BYTES);
}

#[tokio::test(start_paused = true)]
async fn many_turns_share_the_bytes_of_a_node() {
    let mut nodes = Nodes::new();
    let prompts: Vec<_> = (0..40).map(|_| PromptId::new()).collect();
    let _readers: Vec<_> = prompts.iter().map(|prompt| nodes.readers.read(*prompt)).collect();
    millis(50).await;
    let feeds: Vec<_> = prompts.iter().map(|prompt| nodes.owner.open(*prompt)).collect();
    for feed in &feeds {
        feed.show([block(0), text(0, &"x".repeat(10_000))]);
    }
    nodes.texts();
    for _ in 0..3 {
        millis(101).await;
        let bytes: usize = nodes.texts().iter().map(String::len).sum();
        assert!((BYTES..BYTES + 2 * NodeMessage::TEXT).contains(&bytes), "{bytes}");
    }
}
