//! A turn of the script in the shapes of the Messages API: whole, and as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use http_body_util::StreamBody;
use hyper::body::{Body, Bytes, Frame};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::request::ModelRequest;
use crate::cli::model_turn::{Item, ModelTurn};
use crate::cli::usage::Usage;

/// A message of the model that the server sends.
pub(super) struct ModelMessage<'a> {
    pub(super) turn: &'a ModelTurn,
    pub(super) request: &'a ModelRequest,
    pub(super) id: String,
}

impl ModelMessage<'_> {
    /// The message with all of its content, for an answer that is not streamed.
    pub(super) fn whole(&self) -> Value {
        let content: Vec<Value> = self.turn.items.iter().map(|item| item.block(SIGNATURE)).collect();
        self.envelope(content, Some(self.turn.stop_reason()), self.output_tokens())
    }

    /// The events of a streamed answer, each ready to be sent.
    pub(super) fn events(&self) -> Vec<Bytes> {
        let mut events = vec![
            json!({"type": "message_start", "message": self.envelope(Vec::new(), None, 1)}),
            json!({"type": "ping"}),
        ];
        for (index, item) in self.turn.items.iter().enumerate() {
            let (start, mut deltas) = item.streamed();
            if let Item::Thinking(_) = item {
                deltas.push(json!({"type": "signature_delta", "signature": SIGNATURE}));
            }
            events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
            for delta in deltas {
                events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
            }
            events.push(json!({"type": "content_block_stop", "index": index}));
        }
        events.push(json!({
            "type": "message_delta",
            "delta": {"stop_reason": self.turn.stop_reason(), "stop_sequence": null},
            "usage": {"output_tokens": self.output_tokens()},
        }));
        events.push(json!({"type": "message_stop"}));
        events.iter().map(server_sent_event).collect()
    }

    fn envelope(&self, content: Vec<Value>, stop_reason: Option<&str>, output_tokens: u64) -> Value {
        let usage = Usage { output_tokens, ..usage_of(self.turn, self.request) };
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.request.model().unwrap_or("claude-scripted"),
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": null,
            "usage": usage.tokens(),
        })
    }

    fn output_tokens(&self) -> u64 {
        usage_of(self.turn, self.request).output_tokens
    }
}

/// The tokens of the whole answer: those of the script, or an estimate.
pub(super) fn usage_of(turn: &ModelTurn, request: &ModelRequest) -> Usage {
    turn.usage.unwrap_or_else(|| {
        let bytes = turn.items.iter().map(|item| match item {
            Item::Text(text) | Item::Thinking(text) => text.len(),
            Item::Call { name, input, .. } => name.len() + input.to_string().len(),
        });
        let input_tokens = request.messages().len() as u64 * 10;
        Usage { input_tokens, output_tokens: tokens(bytes.sum()) as u64, ..Usage::default() }
    })
}

/// Signature of thinking blocks. Nobody checks it.
const SIGNATURE: &str = "c2NyaXB0ZWQ=";

fn server_sent_event(event: &Value) -> Bytes {
    Bytes::from(format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default()))
}

/// The body of a streamed answer: its events, with a pause between them.
pub(super) fn paced(events: Vec<Bytes>, gap: Duration) -> impl Body<Data = Bytes, Error = Infallible> {
    StreamBody::new(stream::iter(events.into_iter().enumerate()).then(move |(index, event)| async move {
        if index > 0 && !gap.is_zero() {
            sleep(gap).await;
        }
        Ok(Frame::data(event))
    }))
}

/// An estimate of the tokens in `bytes` of JSON; at least 1.
pub(super) fn tokens(bytes: usize) -> usize {
    bytes / 4 + 1
}
