//! Tool calls, matched with their results.

use std::collections::HashMap;

use serde_json::Value;

use crate::wire::message::time::millis_of;
use crate::wire::message::{ContentBlock, Message, ToolResultContent, ToolResultMeta, ToolUseMeta};

/// Matches tool calls with their results, over the messages of a turn or of a whole session.
///
/// Feed every message. Calls are in the order in which the model made them, including calls of subagents
/// ([`ToolCall::parent_tool_use_id`]). Feeding a message twice changes nothing.
///
/// ```
/// use greenroom::{Message, message::ToolCalls};
///
/// let mut calls = ToolCalls::new();
/// for line in [
///     r#"{"type": "assistant", "timestamp": "2026-01-02T03:04:05.000Z", "message": {"content": [
///         {"type": "tool_use", "id": "toolu_1", "name": "mcp__calc__add", "input": {"a": 5, "b": 3}}]}}"#,
///     r#"{"type": "user", "timestamp": "2026-01-02T03:04:05.250Z", "message": {"content": [
///         {"type": "tool_result", "tool_use_id": "toolu_1", "content": "8"}]}}"#,
/// ] {
///     calls.feed(&Message::parse(line)?);
/// }
/// let call = calls.get("toolu_1").unwrap();
/// assert_eq!((call.name.as_str(), call.result_text().as_deref()), ("mcp__calc__add", Some("8")));
/// assert_eq!((call.is_error(), call.duration_ms), (false, Some(250)));
/// assert_eq!(calls.open().count(), 0);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ToolCalls {
    calls: Vec<ToolCall>,
    by_id: HashMap<String, usize>,
}

/// A tool call and its result, from [`ToolCalls`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolCall {
    /// The id of the call, `toolu_…`.
    pub id: String,
    /// The tool. Tools of MCP servers are named `mcp__SERVER__TOOL`.
    pub name: String,
    /// The arguments, an object.
    pub input: Value,
    /// The call that started the subagent which made this call; `None` on the main thread.
    pub parent_tool_use_id: Option<String>,
    /// Titles of the tool, for people.
    pub meta: Option<ToolUseMeta>,
    /// `None` while the call is open.
    pub result: Option<ToolCallResult>,
    /// Milliseconds from the message with the call to the message with the result, by the CLI's clock, including a wait
    /// for a permission. `None` if the messages have no `timestamp`, as in old CLIs.
    pub duration_ms: Option<u64>,
    /// Running time in seconds, from the last [`ToolProgress`](crate::message::ToolProgress).
    pub elapsed_time_seconds: Option<f64>,
    begun_at: Option<u64>,
}

/// The result of a tool call, in a [`ToolCall`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolCallResult {
    /// The content for the model.
    pub content: ToolResultContent,
    /// The call failed or was denied.
    pub is_error: bool,
    /// Why the call ran or did not run.
    pub meta: Option<ToolResultMeta>,
}

impl ToolCall {
    fn new(id: String) -> Self {
        Self {
            id,
            name: String::new(),
            input: Value::Null,
            parent_tool_use_id: None,
            meta: None,
            result: None,
            duration_ms: None,
            elapsed_time_seconds: None,
            begun_at: None,
        }
    }

    /// Whether there is no result yet.
    pub fn is_open(&self) -> bool {
        self.result.is_none()
    }

    /// Whether the call failed or was denied.
    pub fn is_error(&self) -> bool {
        self.result.as_ref().is_some_and(|result| result.is_error)
    }

    /// The text for the model; `None` while the call is open.
    pub fn result_text(&self) -> Option<std::borrow::Cow<'_, str>> {
        self.result.as_ref().map(|result| result.content.text())
    }

    /// The server and the tool of an MCP tool: `mcp__calc__add` is `("calc", "add")`. Wrong for a server whose name
    /// contains `__`: the name is cut there.
    pub fn mcp_tool(&self) -> Option<(&str, &str)> {
        self.name.strip_prefix("mcp__")?.split_once("__")
    }
}

impl ToolCalls {
    /// No calls yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a message. Returns the ids of the calls that changed.
    pub fn feed(&mut self, message: &Message) -> Vec<String> {
        let mut changed = Vec::new();
        match message {
            Message::Assistant(said) => {
                for block in &said.message.content {
                    let (ContentBlock::ToolUse { id, name, input }
                    | ContentBlock::ServerToolUse { id, name, input }
                    | ContentBlock::McpToolUse { id, name, input, .. }) = block
                    else {
                        self.result(block, message, &mut changed);
                        continue;
                    };
                    let call = self.call(id);
                    call.name.clone_from(name);
                    call.input = input.clone();
                    call.parent_tool_use_id = message.parent_tool_use_id().map(str::to_owned);
                    call.meta = said.tool_use_meta.iter().find(|meta| meta.id == *id).cloned();
                    call.begun_at = message.timestamp().and_then(millis_of);
                    changed.push(id.clone());
                }
            }
            Message::User(told) => {
                for block in &told.content {
                    self.result(block, message, &mut changed);
                }
            }
            Message::ToolProgress(progress) if !progress.tool_use_id.is_empty() => {
                let call = self.call(&progress.tool_use_id);
                if call.name.is_empty() {
                    call.name.clone_from(&progress.tool_name);
                }
                call.elapsed_time_seconds = Some(progress.elapsed_time_seconds);
                changed.push(progress.tool_use_id.clone());
            }
            _ => {}
        }
        changed
    }

    fn result(&mut self, block: &ContentBlock, message: &Message, changed: &mut Vec<String>) {
        let (id, content, is_error) = match block {
            ContentBlock::ToolResult { tool_use_id, content, is_error }
            | ContentBlock::McpToolResult { tool_use_id, content, is_error } => {
                (tool_use_id, content.clone(), *is_error)
            }
            // Their content has a shape of its own.
            ContentBlock::WebSearchToolResult { tool_use_id, .. }
            | ContentBlock::ServerToolResult { tool_use_id, .. } => {
                (tool_use_id, ToolResultContent::Blocks(vec![block.clone()]), false)
            }
            _ => return,
        };
        let meta = match message {
            Message::User(told) => told.tool_result_meta.iter().find(|meta| meta.id == *id).cloned(),
            _ => None,
        };
        let ended_at = message.timestamp().and_then(millis_of);
        let call = self.call(id);
        call.duration_ms = ended_at.zip(call.begun_at).map(|(end, begin)| end.saturating_sub(begin));
        call.result = Some(ToolCallResult { content, is_error, meta });
        changed.push(id.clone());
    }

    fn call(&mut self, id: &str) -> &mut ToolCall {
        let at = *self.by_id.entry(id.to_owned()).or_insert_with(|| {
            self.calls.push(ToolCall::new(id.to_owned()));
            self.calls.len() - 1
        });
        &mut self.calls[at]
    }

    /// All calls, in the order in which the model made them. A call whose start was not fed has its result and an empty
    /// name.
    pub fn calls(&self) -> &[ToolCall] {
        &self.calls
    }

    /// The call with this id.
    pub fn get(&self, id: &str) -> Option<&ToolCall> {
        self.by_id.get(id).map(|at| &self.calls[*at])
    }

    /// The calls without a result.
    pub fn open(&self) -> impl Iterator<Item = &ToolCall> {
        self.calls.iter().filter(|call| call.is_open())
    }
}

impl<'a> Extend<&'a Message> for ToolCalls {
    fn extend<I: IntoIterator<Item = &'a Message>>(&mut self, messages: I) {
        for message in messages {
            self.feed(message);
        }
    }
}

impl<'a> FromIterator<&'a Message> for ToolCalls {
    fn from_iter<I: IntoIterator<Item = &'a Message>>(messages: I) -> Self {
        let mut calls = Self::new();
        calls.extend(messages);
        calls
    }
}
