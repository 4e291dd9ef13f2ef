//! Everything the application observes, in the format of `scenario.py`.

use std::sync::{Arc, Mutex};

use greenroom::session::{MessageOrGap, Messages};
use greenroom::{Message, Prompt, Session, SessionBuilder, Turn};
use serde::Serialize;
use serde_json::{Value, json};

use crate::stage::{self, in_time};

/// Observations of a scenario.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Lists>>);

#[derive(Default, Serialize)]
struct Lists {
    /// Assistant messages.
    said: Vec<Value>,
    /// User messages: results of tools among them.
    heard: Vec<Value>,
    /// Outcomes of turns.
    ends: Vec<Value>,
    /// Inputs of callbacks.
    asked: Vec<Value>,
    /// Hooks of the CLI's own settings that ran.
    noticed: Vec<Value>,
}

impl Told {
    /// Prompts, and reads everything up to the end of the turn, as the Python SDK does.
    pub(crate) async fn say(&self, talk: &mut Talk, prompt: impl Into<Prompt>) {
        let turn = in_time("accepting the prompt", talk.session.prompt(prompt)).await.unwrap();
        self.finish(talk, turn).await;
    }

    /// Reads everything up to the end of this turn.
    pub(crate) async fn finish(&self, talk: &mut Talk, mut turn: Turn) {
        loop {
            let Some(MessageOrGap::Message(message)) = in_time("a message", talk.messages.next()).await
            else {
                panic!("a message is missing")
            };
            self.note(&message);
            if let Message::Result(_) = message {
                break;
            }
        }
        in_time("the outcome", turn.outcome()).await.unwrap();
    }

    /// A callback was asked this.
    pub(crate) fn asked(&self, what: Value) {
        self.0.lock().unwrap().asked.push(what);
    }

    pub(crate) fn into_value(self) -> Value {
        serde_json::to_value(&*self.0.lock().unwrap()).unwrap()
    }

    /// Notes a message.
    pub(crate) fn note(&self, message: &Message) {
        let mut lists = self.0.lock().unwrap();
        let raw = message.value();
        let with_blocks = || json!({ "blocks": blocks(&raw), "parent": message.parent_tool_use_id() });
        match message {
            Message::Assistant(_) => lists.said.push(with_blocks()),
            Message::User(_) => lists.heard.push(with_blocks()),
            Message::Result(end) => lists.ends.push(json!({
                "end": end.subtype,
                "is_error": end.is_error,
                "num_turns": end.num_turns,
                "result": end.result,
                "errors": end.errors,
                "stop_reason": end.stop_reason,
                "terminal_reason": end.terminal_reason,
                "structured_output": end.structured_output,
                "denied": end.permission_denials.iter().map(|denial| &denial.tool_name).collect::<Vec<_>>(),
                "usage": raw["usage"],
                "total_cost_usd": end.total_cost_usd,
            })),
            Message::System(_) if message.subtype().is_some_and(|subtype| subtype.starts_with("hook_")) => {
                lists.noticed.push(raw);
            }
            _ => {}
        }
    }
}

/// A session, and all its messages, those between its turns as well.
pub(crate) struct Talk {
    pub(crate) session: Session,
    messages: Messages,
}

impl Talk {
    pub(crate) async fn start(mut builder: SessionBuilder) -> Self {
        let messages = builder.messages();
        Self { messages, session: stage::start(builder).await }
    }

    pub(crate) async fn stop(self) {
        stage::stop(&self.session).await;
    }
}

fn blocks(raw: &Value) -> Value {
    match &raw["message"]["content"] {
        Value::String(text) => json!([{ "text": text }]),
        Value::Array(blocks) => blocks.iter().map(block).collect(),
        other => other.clone(),
    }
}

fn block(block: &Value) -> Value {
    match block["type"].as_str() {
        Some("text") => json!({ "text": block["text"] }),
        Some("thinking") => json!({ "thinking": block["thinking"] }),
        Some("tool_use") => json!({ "call": block["name"], "id": block["id"], "input": block["input"] }),
        Some("tool_result") => {
            let is_error = block["is_error"].as_bool().unwrap_or(false);
            json!({ "result": block["tool_use_id"], "content": block["content"], "is_error": is_error })
        }
        _ => json!({ "other": block["type"] }),
    }
}
