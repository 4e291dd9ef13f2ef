//! Readers on another node than the owner's: they get text while the model writes it, by best effort.
//!
//! ```text
//!  the readers' node                                                                     the owner's node
//!   Reader ──► ask: "these turns are read here", at once and each 2 s ──► Backend::publish ──► hear ──► Watched, for 10 s
//!   Audience ◄── hear ◄── Backend::publish ◄── publish: pieces of all watched turns, each 100 ms ◄── Outbox ◄── Feed
//! ```
//!
//! Pieces may be lost, and nothing waits for them: the backend keeps complete messages, which have the whole text.
//!
//! - **The owner pays only while somebody reads elsewhere.** Without readers elsewhere it looks into an empty map for each batch
//!   of messages, and publishes nothing. Otherwise it publishes each tenth of a second, up to 16 KiB for all turns. Up to 16 KiB of a turn
//!   wait; the rest of a longer block is dropped.
//! - **No text comes late.** A piece names a message before it. A reader that has the next message of the main thread ignores the piece.
//! - **No text has a hole.** Pieces are numbered. Behind a missing one the reader's node ignores them up to the next block.
//!
//! Pieces go through the backend, because connections between nodes would need ports, routes and authentication.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use greenroom::Message;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::unheard::LiveMessage;
use crate::id::PromptId;
use crate::lock::locked;
use crate::request::{NodeMessage, Piece};

/// The time for which a [`Reads`](crate::request::NodeNews::Reads) message counts.
const WATCHED: Duration = Duration::from_secs(10);
/// Bytes of text that are published at once.
const BYTES: usize = 16 << 10;
/// Turns whose readers elsewhere are known.
const MOST: usize = 4096;
/// Bytes of the text of a turn that wait to be published.
const WAITING: usize = 16 << 10;

/// The turns that are read on other nodes.
#[derive(Default)]
pub(super) struct Elsewhere {
    watched: Mutex<HashMap<PromptId, Watched>>,
    /// Text waits to be published.
    pub(super) written: Notify,
}

/// A turn that is read on another node, whether it runs here or not: it may begin here.
struct Watched {
    until: Instant,
    outbox: Outbox,
}

/// Text that waits to be published.
#[derive(Default)]
struct Outbox {
    pieces: VecDeque<Piece>,
    bytes: usize,
    published: u64,
    /// The rest of the block is left out: too much text waits.
    is_full: bool,
}

impl Elsewhere {
    /// Notes that other nodes read these turns.
    pub(super) fn watch(&self, prompts: &[PromptId]) {
        let (mut watched, now) = (locked(&self.watched), Instant::now());
        watched.retain(|_, turn| turn.until > now);
        for prompt in prompts {
            if watched.len() < MOST || watched.contains_key(prompt) {
                let turn = watched.entry(*prompt);
                let turn = turn.or_insert_with(|| Watched { until: now, outbox: Outbox::default() });
                turn.until = now + WATCHED;
            }
        }
    }

    /// Takes the text out of messages of a turn that runs here, if the turn is read elsewhere.
    pub(super) fn take(&self, prompt: PromptId, messages: &[LiveMessage]) {
        let mut watched = locked(&self.watched);
        let Some(turn) = watched.get_mut(&prompt).filter(|turn| turn.until > Instant::now()) else { return };
        messages.iter().for_each(|message| turn.outbox.take(message));
        if turn.outbox.bytes > 0 {
            self.written.notify_one();
        }
    }

    /// The next pieces, one from each turn in each round. `true`: more pieces wait.
    pub(super) fn pieces(&self) -> (Vec<(PromptId, Piece)>, bool) {
        let (mut watched, mut pieces, mut bytes) = (locked(&self.watched), Vec::new(), 0);
        let now = Instant::now();
        watched.retain(|_, turn| turn.until > now);
        let mut turns: Vec<_> = watched.iter_mut().filter(|(_, turn)| turn.outbox.bytes > 0).collect();
        fastrand::shuffle(&mut turns);
        while !turns.is_empty() {
            turns.retain_mut(|(prompt, turn)| {
                let next = (bytes < BYTES).then(|| turn.outbox.next());
                let Some(piece) = next.flatten() else { return false };
                bytes += piece.text.len();
                pieces.push((**prompt, piece));
                true
            });
        }
        (pieces, watched.values().any(|turn| turn.outbox.bytes > 0))
    }
}

impl Outbox {
    fn take(&mut self, live: &LiveMessage) {
        if live.complete {
            // Readers get the whole text.
            if is_said(&live.message) {
                (self.pieces, self.bytes, self.is_full) = (VecDeque::new(), 0, false);
            }
            return;
        }
        let Message::StreamEvent(event) = &live.message else { return };
        if !live.message.is_main_thread() {
            return;
        }
        if starts_text(event.event_type()) {
            self.is_full = false;
            self.pieces.retain(|piece| !piece.text.is_empty());
            self.add(live.after, true);
        } else if let Some(text) = event.text_delta().filter(|_| !self.is_full) {
            self.is_full = self.bytes + text.len() > WAITING;
            if !self.is_full {
                self.write(live.after, text);
            }
        }
    }

    fn add(&mut self, after: u64, starts: bool) {
        self.pieces.push_back(Piece { number: 0, after, starts, text: String::new() });
    }

    fn write(&mut self, after: u64, mut text: &str) {
        self.bytes += text.len();
        while !text.is_empty() {
            let room = self.pieces.back().map_or(0, |piece| NodeMessage::TEXT - piece.text.len());
            let most = room.min(text.len());
            let fits = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            let (now, later) = text.split_at(fits);
            match self.pieces.back_mut().filter(|_| fits > 0) {
                Some(piece) => piece.text.push_str(now),
                None => self.add(after, false),
            }
            text = later;
        }
    }

    /// The next piece with text. The start of a block waits for text, because the block may have none.
    fn next(&mut self) -> Option<Piece> {
        self.pieces.front().filter(|piece| !piece.text.is_empty())?;
        let piece = self.pieces.pop_front()?;
        self.bytes -= piece.text.len();
        self.published += 1;
        Some(Piece { number: self.published, ..piece })
    }
}

/// True for a complete message of the model on the main thread: it has the text of the partial messages before it.
pub(crate) fn is_said(message: &Message) -> bool {
    matches!(message, Message::Assistant(_)) && message.is_main_thread()
}

/// True for the type of a partial message that begins a text.
pub(crate) fn starts_text(event_type: &str) -> bool {
    matches!(event_type, "message_start" | "content_block_start")
}

/// The text of a piece as partial messages.
pub(super) fn partials(piece: &Piece) -> Vec<LiveMessage> {
    let start = json!({
        "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" }
    });
    let delta = json!({
        "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": piece.text }
    });
    let events = piece.starts.then_some(start).into_iter().chain([delta]);
    let messages = events.filter_map(|event| {
        let json = json!({ "type": "stream_event", "parent_tool_use_id": null, "event": event });
        Message::parse(&json.to_string()).ok()
    });
    messages.map(|message| LiveMessage { after: piece.after, complete: false, message }).collect()
}
