//! Events around what goes in and out of the conversation: prompts, notifications, elicitations, what is shown.

use serde_json::Value;

use super::define::event;
use crate::control::elicitation::{ElicitationAnswer, ElicitationMode};
use crate::control::fields::open_enum;

open_enum! {
    /// Who wrote a prompt.
    ///
    /// ```
    /// assert_eq!(greenroom::hook::PromptSource::Sdk.as_str(), "sdk");
    /// ```
    PromptSource {
        /// The person, at a terminal.
        User = "user",
        /// An application.
        Sdk = "sdk",
        /// The CLI itself: messages of peers, news of tasks, going on by itself.
        System = "system",
        /// The next round of a loop.
        LoopWakeup = "loop_wakeup",
        /// A schedule.
        ScheduleWakeup = "schedule_wakeup",
        /// An event that the host handed in; blocking refuses it.
        PollEvent = "poll_event",
    }
}

event! {
    /// Before a prompt reaches the model. [`block`](super::Output::block) keeps it from the model; the person reads why.
    UserPromptSubmit: UserPromptSubmitInput, UserPromptSubmitOutput, UserPromptSubmitFields;
    sample r#"{"prompt": "hello", "source": "sdk", "session_title": "Greetings"}"#;
    input {
        /// The prompt.
        prompt: String,
    }
    may {
        /// Who wrote it.
        source: PromptSource,
        /// The title of the session.
        session_title: String,
    }
    output {
        /// Something for the model to read beside the prompt.
        additional_context: String,
        /// A title for the session.
        session_title: String,
        /// When the prompt is blocked: whether it is left out of what the person reads.
        suppress_original_prompt: bool,
    }
}

open_enum! {
    /// What becomes a prompt.
    ///
    /// ```
    /// assert_eq!(greenroom::hook::ExpansionType::McpPrompt.as_str(), "mcp_prompt");
    /// ```
    ExpansionType {
        /// A slash command.
        SlashCommand = "slash_command",
        /// A prompt of an MCP server.
        McpPrompt = "mcp_prompt",
    }
}

event! {
    /// Before a slash command becomes a prompt. [`block`](super::Output::block) keeps it from that.
    UserPromptExpansion: UserPromptExpansionInput, UserPromptExpansionOutput, UserPromptExpansionFields;
    sample r#"{"expansion_type": "slash_command", "command_name": "review", "command_args": "all", "command_source": "project", "prompt": "/review all"}"#;
    input {
        /// What becomes a prompt.
        expansion_type: ExpansionType,
        /// The command.
        command_name: String,
        /// What stands behind it.
        command_args: String,
        /// The prompt as it was written.
        prompt: String,
    }
    may {
        /// Where the command comes from.
        command_source: String,
    }
    output {
        /// Something for the model to read beside the prompt.
        additional_context: String,
        /// When the prompt is blocked: whether it is left out of what the person reads.
        suppress_original_prompt: bool,
    }
}

event! {
    /// When the person is notified of something.
    Notification: NotificationInput, NotificationOutput, NotificationFields;
    sample r#"{"message": "Claude needs your permission", "title": "Claude Code", "notification_type": "permission_prompt"}"#;
    input {
        /// What the person reads.
        message: String,
        /// What it is about; an open set.
        notification_type: String,
    }
    may {
        /// A heading.
        title: String,
    }
    output {
        /// Something for the model to read.
        additional_context: String,
    }
}

open_enum! {
    /// How a person reacts to the question of an MCP server.
    ///
    /// ```
    /// assert_eq!(greenroom::hook::ElicitationAction::Decline.as_str(), "decline");
    /// ```
    ElicitationAction {
        /// With an answer.
        Accept = "accept",
        /// By not saying.
        Decline = "decline",
        /// By going away.
        Cancel = "cancel",
    }
}

impl ElicitationAction {
    fn of(answer: ElicitationAnswer) -> (Self, Option<Value>) {
        match answer {
            ElicitationAnswer::Accept(content) => (Self::Accept, Some(content).filter(|it| !it.is_null())),
            ElicitationAnswer::Decline => (Self::Decline, None),
            ElicitationAnswer::Cancel => (Self::Cancel, None),
        }
    }
}

event! {
    /// Before the question of an MCP server reaches the person, or the application's handler.
    Elicitation: ElicitationInput, ElicitationOutput, ElicitationFields;
    sample r#"{"mcp_server_name": "files", "message": "Which folder?", "mode": "form", "requested_schema": {"type": "object"}}"#;
    input {
        /// The server that asks.
        mcp_server_name: String,
        /// What the person is to read.
        message: String,
    }
    may {
        /// How it asks.
        mode: ElicitationMode,
        /// The page to open.
        url: String,
        /// Names an elicitation with a page.
        elicitation_id: String,
        /// The JSON schema of the content.
        requested_schema: Value,
    }
    output {
        /// How the hook reacts in the person's place.
        action: ElicitationAction,
        /// The content, in the shape that was asked for.
        content: Value,
    }
}

impl ElicitationOutput {
    /// The hook answers, and nobody is asked.
    pub fn answer(answer: ElicitationAnswer) -> Self {
        let mut output = Self::pass();
        let (action, content) = ElicitationAction::of(answer);
        (output.fields.action, output.fields.content) = (Some(action), content);
        output
    }
}

event! {
    /// Before the person's answer reaches the MCP server.
    ElicitationResult: ElicitationResultInput, ElicitationResultOutput, ElicitationResultFields;
    sample r#"{"mcp_server_name": "files", "elicitation_id": "e1", "mode": "form", "action": "accept", "content": {"folder": "/w"}}"#;
    input {
        /// The server that asked.
        mcp_server_name: String,
        /// How the person reacted.
        action: ElicitationAction,
    }
    may {
        /// Names an elicitation with a page.
        elicitation_id: String,
        /// How the server asked.
        mode: ElicitationMode,
        /// The content.
        content: Value,
    }
    output {
        /// Another reaction.
        action: ElicitationAction,
        /// Another content.
        content: Value,
    }
}

impl ElicitationResultOutput {
    /// The server gets this answer instead.
    pub fn answer(answer: ElicitationAnswer) -> Self {
        let mut output = Self::pass();
        let (action, content) = ElicitationAction::of(answer);
        (output.fields.action, output.fields.content) = (Some(action), content);
        output
    }
}

event! {
    /// While a message of the model is shown, once for each batch of lines. Only what is shown can be changed: what the
    /// model reads and what is written down stay.
    MessageDisplay: MessageDisplayInput, MessageDisplayOutput, MessageDisplayFields;
    sample r#"{"turn_id": "u1", "message_id": "u2", "index": 0, "final": true, "delta": "Hello."}"#;
    input {
        /// The turn.
        turn_id: String,
        /// The message, by the CLI's own id and not the model's.
        message_id: String,
        /// Which batch of the message it is, counted from 0.
        index: u64,
        /// Whether it is the message's last.
        r#final: bool,
        /// The lines. The last batch may end within a line, or be empty.
        delta: String,
    }
    may {}
    output {
        /// What is shown instead.
        display_content: String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hook::tests::wire;
    use serde_json::json;

    #[test]
    fn elicitations_are_answered_by_hooks_as_by_handlers() {
        let specific = |output: ElicitationOutput| wire(output)["hookSpecificOutput"].clone();
        assert_eq!(
            specific(ElicitationOutput::answer(ElicitationAnswer::Accept(json!({"a": 1})))),
            json!({"hookEventName": "Elicitation", "action": "accept", "content": {"a": 1}})
        );
        assert_eq!(
            specific(ElicitationOutput::answer(ElicitationAnswer::Accept(Value::Null))),
            json!({"hookEventName": "Elicitation", "action": "accept"})
        );
        let output = ElicitationResultOutput::answer(ElicitationAnswer::Cancel);
        assert_eq!(
            wire(output)["hookSpecificOutput"],
            json!({"hookEventName": "ElicitationResult", "action": "cancel"})
        );
    }
}
