//! Messages of the model: partial messages first if the host wants them, then the whole message.

use serde_json::{Value, json};

use super::Player;
use crate::cli::model_turn::{Item, ModelTurn};
use crate::cli::usage::Usage;

impl Player {
    /// Says a model turn: a message for each block, as the CLI does.
    pub(super) fn say(&mut self, turn: &ModelTurn, usage: Usage) {
        let partial = self.end.launch().args.iter().any(|arg| arg == "--include-partial-messages");
        let id = format!("msg_scripted_{}", self.seen.look(|seen| seen.turns));
        let message = |content: Vec<Value>| {
            json!({
                "id": id, "type": "message", "role": "assistant", "model": "scripted", "content": content,
                "stop_reason": null, "usage": usage.tokens(),
            })
        };
        if partial {
            self.piece(json!({ "type": "message_start", "message": message(Vec::new()) }));
        }
        for (index, item) in turn.items.iter().enumerate() {
            self.seen.said(match item {
                Item::Text(text) => format!("assistant: {text}"),
                Item::Thinking(text) => format!("thinking: {text}"),
                Item::Call { name, input, .. } => format!("call: {name} {input}"),
            });
            if partial {
                let (empty, deltas) = item.streamed();
                self.piece(json!({ "type": "content_block_start", "index": index, "content_block": empty }));
                for delta in deltas {
                    self.piece(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
                }
            }
            let message = message(vec![item.block("")]);
            self.write_down("assistant", &message);
            self.end.message(json!({ "type": "assistant", "parent_tool_use_id": null, "message": message }));
            if partial {
                self.piece(json!({ "type": "content_block_stop", "index": index }));
            }
        }
        if partial {
            let delta = json!({ "stop_reason": turn.stop_reason(), "stop_sequence": null });
            self.piece(json!({ "type": "message_delta", "delta": delta, "usage": usage.tokens() }));
            self.piece(json!({ "type": "message_stop" }));
        }
    }

    /// Says the output of a slash command that needs no model: one whole message, without partial messages.
    pub(super) fn say_locally(&mut self, text: &str) {
        self.seen.said(format!("assistant: {text}"));
        let message = json!({
            "id": format!("local_{}", self.turns), "type": "message", "role": "assistant", "model": "<synthetic>",
            "content": [{ "type": "text", "text": text }], "stop_reason": "end_turn",
            "usage": { "input_tokens": 0, "output_tokens": 0 },
        });
        self.end.message(json!({
            "type": "assistant", "parent_tool_use_id": null, "message": message,
            "local_command_source": format!("<local-command-stdout>{text}</local-command-stdout>"),
        }));
    }

    fn piece(&mut self, event: Value) {
        self.end.message(json!({ "type": "stream_event", "parent_tool_use_id": null, "event": event }));
    }

    /// Tells the result of a call, and returns it as a test reads it.
    pub(super) fn result(&mut self, id: &str, text: &str, is_error: bool) -> String {
        let content = json!([{ "type": "text", "text": text }]);
        let message = json!({ "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error },
        ] });
        self.write_down("user", &message);
        self.end.message(json!({ "type": "user", "parent_tool_use_id": null, "message": message }));
        self.seen.said(format!("{}: {text}", if is_error { "error" } else { "result" }));
        if is_error { format!("error: {text}") } else { text.to_owned() }
    }
}
