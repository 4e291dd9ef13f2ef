//! The signs by which a turn shows how far it has come.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use greenroom::Message;
use greenroom::message::{AssistantMessage, ContentBlock};
use tokio_util::sync::CancellationToken;

/// The signs of a turn that runs.
#[derive(Default)]
pub(crate) struct TurnSigns {
    /// Cancelled when the turn is to be interrupted.
    pub(crate) interrupt: CancellationToken,
    has_run: AtomicBool,
    /// Tokens that the first request of the main thread read from the prompt cache and wrote to it.
    first_request: OnceLock<(u64, u64)>,
    answered: CancellationToken,
}

impl TurnSigns {
    pub(crate) fn of(interrupt: &CancellationToken) -> Self {
        Self { interrupt: interrupt.clone(), ..Self::default() }
    }

    /// Takes in a message of the turn.
    pub(crate) fn note(&self, message: &Message) {
        if let Message::Assistant(said) = message
            && is_of_model(said)
        {
            self.answered.cancel();
            if let Some(usage) =
                said.message.usage.as_ref().filter(|_| message.parent_tool_use_id().is_none())
            {
                // Only the first one counts.
                self.first_request
                    .get_or_init(|| (usage.cache_read_input_tokens, usage.cache_creation_input_tokens));
            }
        }
        if shows_work(message) {
            self.has_run.store(true, Ordering::Relaxed);
        }
    }

    /// True if nobody has interrupted the turn, the model has said nothing, and no tool has run: sending the prompt again repeats nothing.
    pub(crate) fn are_none(&self) -> bool {
        !self.interrupt.is_cancelled() && !self.has_run.load(Ordering::Relaxed)
    }

    /// Tokens that the first request of the main thread read from the prompt cache and wrote to it, if the CLI has told.
    pub(crate) fn first_request(&self) -> Option<(u64, u64)> {
        self.first_request.get().copied()
    }

    /// True if the model has answered.
    pub(crate) fn has_answered(&self) -> bool {
        self.answered.is_cancelled()
    }

    /// Waits for the first answer of the model.
    pub(crate) async fn answered(&self) {
        self.answered.cancelled().await;
    }
}

/// True for an answer of the model, and false for a message in which the CLI tells an error of the API.
fn is_of_model(said: &AssistantMessage) -> bool {
    said.error.is_none() && said.message.model.as_deref() != Some("<synthetic>")
}

/// True for a message that comes only after the API has taken a request of the turn.
fn shows_work(message: &Message) -> bool {
    match message {
        Message::Assistant(said) => is_of_model(said),
        Message::User(_) => {
            message.content().iter().any(|block| matches!(block, ContentBlock::ToolResult { .. }))
        }
        Message::Result(result) => {
            let used = result.model_usage_since_last_result.as_ref();
            result.num_turns > 1 || used.is_some_and(|models| !models.is_empty())
        }
        Message::System(_)
        | Message::RateLimitEvent(_)
        | Message::CommandLifecycle(_)
        | Message::AuthStatus(_) => false,
        // A later version of the CLI may send it.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn signs_of(messages: &[Value]) -> (bool, bool) {
        let signs = TurnSigns::default();
        messages.iter().for_each(|message| signs.note(&Message::parse(&message.to_string()).unwrap()));
        (!signs.are_none(), signs.has_answered())
    }

    #[test]
    fn only_a_turn_of_which_the_cli_has_told_nothing_but_the_failure_has_not_run() {
        let init =
            json!({ "type": "system", "subtype": "init", "session_id": "s", "tools": [], "mcp_servers": [] });
        let again = json!({ "type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 10,
            "retry_delay_ms": 600, "error_status": 529, "error": "overloaded" });
        let limit =
            json!({ "type": "rate_limit_event", "rate_limit_info": { "status": "rejected", "resetsAt": 9 } });
        let failed = json!({ "type": "assistant", "error": "rate_limit", "message": { "model": "<synthetic>",
            "content": [{ "type": "text", "text": "You've hit your limit" }] } });
        let result = json!({ "type": "result", "subtype": "success", "is_error": true, "num_turns": 1,
            "api_error_status": 429, "terminal_reason": "api_error", "model_usage_since_last_result": {} });
        let plain = [init, again, limit, failed, result.clone()];
        assert_eq!(signs_of(&plain), (false, false));

        let said = json!({ "type": "assistant", "message": { "model": "m", "content": [{ "type": "text", "text": "Hm." }] } });
        assert_eq!(signs_of(&[said]), (true, true));
        let read = json!({ "type": "user", "message": { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "t", "content": "done" }] } });
        let part = json!({ "type": "stream_event", "event": { "type": "content_block_stop", "index": 0 } });
        let mut used = result.clone();
        used["model_usage_since_last_result"] = json!({ "m": { "outputTokens": 3 } });
        let mut turns = result;
        turns["num_turns"] = json!(2);
        for message in [read, part, used, turns, json!({ "type": "of_a_later_version" })] {
            assert_eq!(signs_of(std::slice::from_ref(&message)), (true, false), "{message}");
        }
    }
}
