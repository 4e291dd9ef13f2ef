//! Tool calls, from call to result.

use std::collections::HashMap;

use serde_json::Value;

use super::time::millis_of;
use super::{ContentBlock, Message, ToolResultContent, ToolResultMeta, ToolUseMeta};

/// Joins tool calls with their results, over the messages of a turn or of a whole session.
///
/// Feed it every message. Calls stand in the order in which the model made them, those of subagents among them
/// ([`ToolCall::parent_tool_use_id`]). A message that comes twice changes nothing.
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

/// A tool call, and what it came to; made by [`ToolCalls`].
///
/// ```
/// use greenroom::{Message, message::ToolCalls};
///
/// let line = r#"{"type": "assistant", "message": {"content": [
///     {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}]}}"#;
/// let mut calls = ToolCalls::new();
/// let changed = calls.feed(&Message::parse(line)?);
/// assert_eq!(changed, ["toolu_1"]);
/// assert!(calls.calls()[0].is_open());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolCall {
    /// The call's id, `toolu_…`.
    pub id: String,
    /// The tool. One of an MCP server is called `mcp__SERVER__TOOL`.
    pub name: String,
    /// The arguments, an object.
    pub input: Value,
    /// The call under which a subagent made this one; `None` on the main thread.
    pub parent_tool_use_id: Option<String>,
    /// What the tool is called for people.
    pub meta: Option<ToolUseMeta>,
    /// What it came to; `None` as long as it is open.
    pub result: Option<ToolCallResult>,
    /// From the message with the call to the message with the result, in milliseconds, by the CLI's clock; a wait for
    /// a permission counts. `None` if the CLI did not say when they were, as versions before the `timestamp` do.
    pub duration_ms: Option<u64>,
    /// For how long the tool was at work the last time that the CLI told of it
    /// ([`ToolProgress`](super::ToolProgress)), in seconds.
    pub elapsed_time_seconds: Option<f64>,
    begun_at: Option<u64>,
}

/// What a tool call came to.
///
/// ```
/// use greenroom::{Message, message::ToolCalls};
///
/// let line = r#"{"type": "user", "message": {"content": [
///     {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no", "is_error": true}]}}"#;
/// let mut calls = ToolCalls::new();
/// calls.feed(&Message::parse(line)?);
/// let result = calls.get("toolu_1").unwrap().result.as_ref().unwrap();
/// assert!(result.is_error && result.content.text() == "no");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolCallResult {
    /// What the model reads.
    pub content: ToolResultContent,
    /// Whether the call failed, or was refused.
    pub is_error: bool,
    /// How it came to run, or not.
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

    /// Whether the call failed, or was refused.
    pub fn is_error(&self) -> bool {
        self.result.as_ref().is_some_and(|result| result.is_error)
    }

    /// The text that the model reads; `None` as long as the call is open.
    pub fn result_text(&self) -> Option<std::borrow::Cow<'_, str>> {
        self.result.as_ref().map(|result| result.content.text())
    }

    /// The server and the tool, if it is one of an MCP server: `mcp__calc__add` is `("calc", "add")`.
    ///
    /// A server whose name has two underscores in a row cannot be told apart from its tool: it is cut at the first.
    pub fn mcp_tool(&self) -> Option<(&str, &str)> {
        self.name.strip_prefix("mcp__")?.split_once("__")
    }
}

impl ToolCalls {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes note of a message. Returns the ids of the calls that it begins, ends or tells of; empty for most.
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
            // What they hold has the shape of the tool.
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

    /// All calls, in the order in which the model made them. Of a call whose beginning was not fed there is the
    /// result alone, with an empty name.
    pub fn calls(&self) -> &[ToolCall] {
        &self.calls
    }

    /// The call of this id.
    pub fn get(&self, id: &str) -> Option<&ToolCall> {
        self.by_id.get(id).map(|at| &self.calls[*at])
    }

    /// The calls that have no result yet.
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
