//! One answer of the model, as plain data.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::usage::Usage;

/// One answer of the model: its content in order, or the error that stands in for it.
///
/// ```
/// use std::time::Duration;
/// use greenroom_testkit::{Item, ModelTurn};
/// use serde_json::json;
///
/// let turn = ModelTurn::new()
///     .pause_before(Duration::from_millis(20))
///     .text("Both at once.")
///     .call("mcp__calc__add", json!({"a": 1, "b": 2}))
///     .call_with_id("toolu_mine", "mcp__calc__add", json!({"a": 3, "b": 4}));
///
/// assert!(turn.calls().nth(1).is_some());
/// assert!(matches!(&turn.items[0], Item::Text(text) if text == "Both at once."));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WrittenTurn")]
#[non_exhaustive]
pub struct ModelTurn {
    /// The content in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<Item>,
    /// The error that is sent instead of content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ModelError>,
    /// See [`usage`](Self::usage).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// See [`pause_before`](Self::pause_before).
    #[serde(skip_serializing_if = "Duration::is_zero")]
    pub pause_before: Duration,
    /// See [`pause_between`](Self::pause_between).
    #[serde(skip_serializing_if = "Duration::is_zero")]
    pub pause_between: Duration,
}

impl TryFrom<WrittenTurn> for ModelTurn {
    type Error = &'static str;

    fn try_from(written: WrittenTurn) -> Result<Self, Self::Error> {
        let WrittenTurn { items, error, usage, pause_before, pause_between } = written;
        if error.is_some() && !items.is_empty() {
            return Err("a turn has either `items` or an `error`, not both");
        }
        Ok(Self { items, error, usage, pause_before, pause_between })
    }
}

impl ModelTurn {
    /// An answer without content, sent at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text.
    pub fn text(self, text: impl Into<String>) -> Self {
        self.item(Item::Text(text.into()))
    }

    /// Adds a thinking block.
    pub fn thinking(self, text: impl Into<String>) -> Self {
        self.item(Item::Thinking(text.into()))
    }

    /// Adds a tool call. The name is the one that the CLI gives the tool: `mcp__<server>__<tool>` for a tool
    /// of an MCP server.
    pub fn call(self, name: impl Into<String>, input: Value) -> Self {
        self.item(Item::Call { name: name.into(), input, id: None })
    }

    /// Adds a tool call with an id of your own.
    ///
    /// Nothing keeps you from using an id twice: what the CLI makes of that may be what you want to test.
    pub fn call_with_id(self, id: impl Into<String>, name: impl Into<String>, input: Value) -> Self {
        self.item(Item::Call { name: name.into(), input, id: Some(id.into()) })
    }

    /// Adds a piece of content.
    ///
    /// An answer is either content or an error: adding content takes back an [`error`](ModelTurn::error).
    pub fn item(mut self, item: Item) -> Self {
        self.error = None;
        self.items.push(item);
        self
    }

    /// Answers with an HTTP error instead of content, and drops the content that was added before.
    ///
    /// `kind` is the API's `error.type`, such as `overloaded_error`. A status outside 400–599 is sent as 500.
    ///
    /// The CLI sends most failed requests again, and the new request takes the next turn of the script. Seen
    /// on CLI 2.1.328:
    ///
    /// | status | what the CLI does |
    /// |---|---|
    /// | 403 | gives up at once |
    /// | 401, 429, 500, 529 | tries again after half a second or more, up to ten times |
    /// | 404 | tries again once, without `stream` |
    /// | 400 | tries again at once, up to five times, with less in the request |
    ///
    /// Each delayed attempt is announced with a `system/api_retry` message; `CLAUDE_CODE_MAX_RETRIES` changes
    /// the ten, and nothing else. So to end a turn of the conversation with an error, use 403, or
    /// [`final_error`](ModelTurn::final_error), or [`repeat`](crate::Script::repeat) the turn.
    pub fn error(mut self, status: u16, kind: impl Into<String>, message: impl Into<String>) -> Self {
        self.items.clear();
        self.error = Some(ModelError {
            status,
            kind: kind.into(),
            message: message.into(),
            should_retry: None,
            resets_at: None,
        });
        self
    }

    /// The same as [`error`](ModelTurn::error), with the header `x-should-retry: false`: the CLI does not try
    /// again. For the statuses 400 and 404 CLI 2.1.328 does so all the same.
    pub fn final_error(self, status: u16, kind: impl Into<String>, message: impl Into<String>) -> Self {
        let mut turn = self.error(status, kind, message);
        if let Some(error) = &mut turn.error {
            error.should_retry = Some(false);
        }
        turn
    }

    /// A used-up quota: an [`error`](ModelTurn::error) with the status 429, and the headers that say when the quota is full again, in seconds
    /// since 1970. A CLI with a login (`CLAUDE_CODE_OAUTH_TOKEN`) reads them, does not try again, and tells its host the moment by a
    /// `rate_limit_event`. A CLI with a key ignores them.
    pub fn used_up_until(self, seconds: u64) -> Self {
        let mut turn =
            self.error(429, "rate_limit_error", "This request would exceed your account's rate limit.");
        if let Some(error) = &mut turn.error {
            error.resets_at = Some(seconds);
        }
        turn
    }

    /// Sets the tokens and the cost of the answer. At first: one token of input and one of output, or an estimate
    /// from [`ScriptedModel`](crate::ScriptedModel), and no cost.
    ///
    /// The result of the conversation's turn has the sums, as the CLI writes them: `usage` of this turn,
    /// `total_cost_usd` and `modelUsage` of the conversation so far with all that it has resumed, and
    /// `model_usage_since_last_result`. A real CLI takes the tokens from a `ScriptedModel` and estimates the cost itself.
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Waits before the first byte of the answer. [`Duration::MAX`] is for ever: until the CLI closes the
    /// connection, or the model is dropped.
    pub fn pause_before(mut self, pause: Duration) -> Self {
        self.pause_before = pause;
        self
    }

    /// Waits between the events of a streamed answer, and so makes it trickle. An answer that is not streamed
    /// is sent in one piece, without such pauses.
    pub fn pause_between(mut self, pause: Duration) -> Self {
        self.pause_between = pause;
        self
    }

    /// The tool calls in order.
    pub fn calls(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|item| matches!(item, Item::Call { .. }))
    }

    /// All texts of the content, one after the other, without the thinking.
    pub fn joined_text(&self) -> String {
        self.items
            .iter()
            .filter_map(|item| match item {
                Item::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    /// The API's `stop_reason`: `tool_use` when there is a call, else `end_turn`.
    pub fn stop_reason(&self) -> &'static str {
        if self.calls().next().is_some() { "tool_use" } else { "end_turn" }
    }
}

/// A [`ModelTurn`] as it is written down.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WrittenTurn {
    items: Vec<Item>,
    error: Option<ModelError>,
    usage: Option<Usage>,
    pause_before: Duration,
    pause_between: Duration,
}

/// A piece of what the model says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Item {
    /// Text for the user.
    Text(String),
    /// Thinking. It is sent with a made-up signature.
    Thinking(String),
    /// A tool call.
    Call {
        /// The tool, as the CLI names it: `mcp__<server>__<tool>`.
        name: String,
        /// The arguments, an object.
        #[serde(default = "no_arguments")]
        input: Value,
        /// The id of the call. `None` for one that the script makes up when it plays the turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
}

impl Item {
    /// The content block.
    pub(crate) fn block(&self, signature: &str) -> Value {
        match self {
            Item::Text(text) => json!({ "type": "text", "text": text }),
            Item::Thinking(text) => json!({ "type": "thinking", "thinking": text, "signature": signature }),
            Item::Call { name, input, id } => {
                json!({ "type": "tool_use", "id": id, "name": name, "input": input })
            }
        }
    }

    /// The empty block that a stream begins with, and the deltas that fill the block piece by piece.
    pub(crate) fn streamed(&self) -> (Value, Vec<Value>) {
        let mut empty = self.block("");
        let (field, nothing, delta, part, text) = match self {
            Item::Text(text) => ("text", json!(""), "text_delta", "text", text.clone()),
            Item::Thinking(text) => ("thinking", json!(""), "thinking_delta", "thinking", text.clone()),
            Item::Call { input, .. } => {
                ("input", no_arguments(), "input_json_delta", "partial_json", input.to_string())
            }
        };
        empty[field] = nothing;
        (empty, pieces(&text).map(|piece| json!({ "type": delta, (part): piece })).collect())
    }
}

pub(crate) fn no_arguments() -> Value {
    Value::Object(serde_json::Map::new())
}

/// An HTTP error of the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelError {
    /// The HTTP status.
    pub status: u16,
    /// The API's `error.type`.
    pub kind: String,
    /// The API's `error.message`.
    pub message: String,
    /// The value of the header `x-should-retry`, with which the API tells its client whether to try again. No
    /// header at first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub should_retry: Option<bool>,
    /// When the quota is full again, in seconds since 1970: the header `anthropic-ratelimit-unified-reset`, with those beside it. No headers
    /// at first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<u64>,
}

/// Cuts a text into at most four pieces of whole characters; none for an empty text.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let size = text.len().div_ceil(4).max(1);
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        // `str::ceil_char_boundary` needs Rust 1.91.
        let end = (size..rest.len()).find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
        let (piece, tail) = rest.split_at(end);
        rest = tail;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_keep_characters_whole() {
        for text in ["", "a", "ab", "漢字", "🙂🙂🙂", "a longer text, with é and ü"] {
            let all: Vec<&str> = pieces(text).collect();
            assert_eq!(all.concat(), text);
            assert!(all.len() <= 4 && all.iter().all(|piece| !piece.is_empty()), "{all:?}");
        }
    }
}
