//! Requests of the CLI to the model.

use std::sync::Arc;

use hyper::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AGENT_ID, SESSION_ID};
use crate::cli::usage::Usage;

/// A request that took a turn of the script, as the CLI sent it.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    body: Arc<Value>,
    agent_id: Option<String>,
    session_id: Option<String>,
    answer: Usage,
}

impl ModelRequest {
    pub(super) fn new(headers: &HeaderMap, body: Value) -> Self {
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Self {
            body: Arc::new(body),
            agent_id: header(AGENT_ID),
            session_id: header(SESSION_ID),
            answer: Usage::NOTHING,
        }
    }

    /// The whole JSON body.
    pub fn body(&self) -> &Value {
        &self.body
    }

    /// The id of the subagent that sent it; `None` for the main conversation.
    pub fn agent_id(&self) -> Option<&str> {
        self.agent_id.as_deref()
    }

    /// The session id of the CLI that sent it, where the CLI names one.
    pub fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    /// The tokens that the request was answered with, if the CLI has read the whole answer: an interrupt may come before. An answer that is
    /// an error has none.
    pub fn usage(&self) -> Usage {
        self.answer
    }

    pub(super) fn answered_with(mut self, usage: Usage) -> Self {
        self.answer = usage;
        self
    }

    /// The model that was asked for.
    pub fn model(&self) -> Option<&str> {
        self.body["model"].as_str()
    }

    /// True when the answer is to be streamed.
    pub fn is_streaming(&self) -> bool {
        self.body["stream"].as_bool().unwrap_or(false)
    }

    /// The messages of the conversation so far. Besides `user` and `assistant`, the CLI sends messages with
    /// the role `system`, also after the last user message.
    pub fn messages(&self) -> &[Value] {
        array(&self.body["messages"])
    }

    /// The names of the tools that the model is told of. Deferred tools are not among them.
    pub fn tool_names(&self) -> Vec<&str> {
        array(&self.body["tools"]).iter().filter_map(|tool| tool["name"].as_str()).collect()
    }

    /// The tool results in the last user message, in order. Empty when the user said something else last.
    pub fn tool_results(&self) -> Vec<ToolResultSeen> {
        let last = self.user_messages().next();
        let blocks = last.map(|message| array(&message["content"])).unwrap_or_default();
        blocks.iter().filter(|block| block["type"] == "tool_result").map(ToolResultSeen::new).collect()
    }

    /// The last text of the user: of the newest user message that has one, the last text block. The reminders
    /// that the CLI adds (`<system-reminder>`) do not count.
    ///
    /// A prompt that arrives while a turn is running is no user message: CLI 2.1.328 tells the model of it in
    /// a message with the role `system`.
    pub fn last_user_text(&self) -> Option<&str> {
        self.user_messages().find_map(|message| {
            let texts = match &message["content"] {
                Value::String(text) => vec![text.as_str()],
                content => array(content).iter().filter_map(text_of).collect(),
            };
            texts.into_iter().rev().find(|text| !text.trim_start().starts_with("<system-reminder>"))
        })
    }

    /// The user messages, newest first.
    pub(super) fn user_messages(&self) -> impl Iterator<Item = &Value> {
        self.messages().iter().rev().filter(|message| message["role"] == "user")
    }

    pub(super) fn is_side_call(&self) -> bool {
        let bare = self.tool_names().is_empty()
            && self.body["thinking"].is_null()
            && self.body["context_management"].is_null();
        bare || self.last_user_text().is_some_and(|text| text.starts_with(SUGGESTION))
    }
}

/// The beginning of a request for a prompt suggestion, which else looks like a request of the main conversation (CLI
/// 2.1.330).
const SUGGESTION: &str = "[SUGGESTION MODE:";

/// A tool result as the model sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolResultSeen {
    /// The id of the tool call.
    pub tool_use_id: String,
    /// Whether the tool failed.
    pub is_error: bool,
    /// The texts of the content, with a newline between them.
    pub text: String,
    /// The content as the CLI sent it: a list of blocks, or a string, as it is for errors.
    pub content: Value,
}

impl ToolResultSeen {
    pub(super) fn new(block: &Value) -> Self {
        let content = &block["content"];
        let text = match content {
            Value::String(text) => text.clone(),
            content => array(content).iter().filter_map(text_of).collect::<Vec<_>>().join("\n"),
        };
        Self {
            tool_use_id: block["tool_use_id"].as_str().unwrap_or_default().to_owned(),
            is_error: block["is_error"].as_bool().unwrap_or(false),
            text,
            content: content.clone(),
        }
    }
}

/// The elements of an array; none for anything else.
fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text_of(block: &Value) -> Option<&str> {
    if block["type"] == "text" { block["text"].as_str() } else { None }
}
