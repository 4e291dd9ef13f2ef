//! Prompts.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::wire::brief::Short;

/// A prompt: text or content blocks of the Messages API, and settings for how the CLI handles them.
///
/// Settings that are not set are left out of the line to the CLI.
///
/// ```
/// use greenroom::Prompt;
/// use greenroom::session::PromptPriority;
/// use serde_json::json;
///
/// let text: Prompt = "What is on this picture?".into();
/// let source = json!({ "type": "base64", "media_type": "image/png", "data": "aGk=" });
/// let mut blocks = Prompt::text("What is on this picture?");
/// blocks.content.push(json!({ "type": "image", "source": source }));
/// let verbatim = Prompt { verbatim: Some(true), ..Prompt::text("/srv/notes and @home are no command and no file") };
/// let note = Prompt {
///     should_query: Some(false),
///     priority: Some(PromptPriority::Later),
///     ..Prompt::text("The build is green.")
/// };
/// # let _ = (text, blocks, verbatim, note);
/// ```
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// Content blocks of the Messages API, passed on unchanged.
    pub content: Vec<Value>,
    /// The priority in the CLI's queue. Default: the CLI decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<PromptPriority>,
    /// Whether the model is asked. Default: true.
    ///
    /// With false the prompt is appended to the conversation, and the model reads it with the next prompt. CLI 2.1.328
    /// was seen to answer at once with a `system/init` and an empty result of 0 turns, so the turn is
    /// [`Completed`](crate::Outcome::Completed). If the CLI gives no result, the turn is
    /// [`Appended`](crate::Outcome::Appended).
    #[serde(rename = "shouldQuery", skip_serializing_if = "Option::is_none")]
    pub should_query: Option<bool>,
    /// Whether the CLI takes the text literally: no `/command`, no `@file`, nothing added at the start of a turn.
    /// Since CLI 2.1.248. Default: [`Options::verbatim_prompts`](crate::Options::verbatim_prompts).
    #[serde(rename = "client_composed", skip_serializing_if = "Option::is_none")]
    pub verbatim: Option<bool>,
    /// Who wrote the prompt. The CLI accepts only `{"kind": "human"}` from its host, and names it in the
    /// [`origin`](crate::message::ResultMessage::origin) of the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Value>,
    /// Whether a program wrote the prompt.
    ///
    /// CLI 2.1.328 was seen to tell the model so in a line before the prompt, and to name the origin
    /// `unclassified`.
    #[serde(default, rename = "isSynthetic", skip_serializing_if = "std::ops::Not::not")]
    pub synthetic: bool,
    /// Pasted contents: each is text, or a list of content blocks.
    ///
    /// CLI 2.1.328 was seen to put them after the text of the prompt, marked as `pasted_content`, so that the model can
    /// tell them from the user's own words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pasted_content: Vec<Value>,
    /// Parts of the text that were pasted, not typed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inline_pastes: Vec<String>,
    /// The tool call that the prompt belongs to. CLI 2.1.328 was seen to give the prompt to the main thread anyway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_tool_use_id: Option<String>,
    /// When the prompt was written (RFC 3339). Default: when the CLI reads it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
}

/// The priority of a prompt in the CLI's queue.
///
/// A session writes one prompt at a time, so only the CLI's own prompts (from background tasks and schedules) and
/// messages into the running turn ([`Session::steer`](crate::Session::steer)) can wait in that queue beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PromptPriority {
    /// Runs at once, before all others.
    Now,
    /// Runs next.
    Next,
    /// Runs after all others.
    Later,
}

impl Prompt {
    /// A prompt of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::blocks([json!({ "type": "text", "text": text.into() })])
    }

    /// A prompt of content blocks of the Messages API.
    pub fn blocks(blocks: impl IntoIterator<Item = Value>) -> Self {
        Self { content: blocks.into_iter().collect(), ..Self::default() }
    }

    /// Whether the model is asked.
    pub fn queries(&self) -> bool {
        self.should_query != Some(false)
    }

    /// The length of the prompt as JSON, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        serde_json::to_vec(self).map_or(0, |json| json.len())
    }

    /// The line for the CLI.
    pub(crate) fn line(&self, uuid: &str, verbatim: bool) -> Value {
        let mut line = match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            // A struct is an object.
            _ => Map::new(),
        };
        let content = line.remove("content");
        // The CLI reads `shouldQuery` only if it is false, and `client_composed` only if it is true.
        if self.queries() {
            line.remove("shouldQuery");
        }
        match self.verbatim.unwrap_or(verbatim) {
            true => line.insert("client_composed".into(), true.into()),
            false => line.remove("client_composed"),
        };
        line.entry("parent_tool_use_id").or_insert(Value::Null);
        line.insert("type".into(), "user".into());
        line.insert("uuid".into(), uuid.into());
        line.insert("session_id".into(), "".into());
        line.insert("message".into(), json!({ "role": "user", "content": content }));
        Value::Object(line)
    }
}

/// Shortened: a prompt may be large, and may be in an outcome that is logged.
impl fmt::Debug for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prompt({})", Short(&serde_json::to_string(self).unwrap_or_default()))
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}
