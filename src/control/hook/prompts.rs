//! Events of the conversation's input and output: prompts, notifications, elicitations, display.

use serde_json::Value;

use super::define::event;
use crate::control::elicitation::{ElicitationAnswer, ElicitationMode};
use crate::control::lazy::LazyValue;
use crate::wire::words::words;

event! {
    /// Before a prompt reaches the model. [`block`](super::Output::block) withholds the prompt; the user reads the
    /// reason.
    UserPromptSubmit: UserPromptSubmitInput, UserPromptSubmitOutput, UserPromptSubmitFields;
    input { prompt: String, }
    may {
        /// Who wrote the prompt: `user` (at a terminal), `sdk` (an application), `system` (the CLI itself: messages of
        /// peers, news of tasks, automatic continuation), `loop_wakeup`, `schedule_wakeup`, `poll_event` (an event that
        /// the host handed in; blocking refuses the event), or another word.
        source: String,
        session_title: String,
    }
    output {
        /// Text that the model reads beside the prompt.
        additional_context: String,
        session_title: String,
        /// Hides a blocked prompt from the user as well.
        suppress_original_prompt: bool,
    };

    /// Before a slash command expands to a prompt. [`block`](super::Output::block) prevents the expansion.
    UserPromptExpansion: UserPromptExpansionInput, UserPromptExpansionOutput, UserPromptExpansionFields;
    input {
        /// `slash_command`, `mcp_prompt` or another word.
        expansion_type: String,
        command_name: String,
        command_args: String,
        /// The prompt before the expansion.
        prompt: String,
    }
    may { command_source: String, }
    output {
        /// Text that the model reads beside the prompt.
        additional_context: String,
        /// Hides a blocked prompt from the user as well.
        suppress_original_prompt: bool,
    };

    /// When the user is notified. `notification_type` is an open set.
    Notification: NotificationInput, NotificationOutput, NotificationFields;
    input { message: String, notification_type: String, }
    may { title: String, }
    output {
        /// Text that the model reads.
        additional_context: String,
    }
}

words! {
    /// The user's reaction to the question of an MCP server.
    pub enum ElicitationAction {
        /// The user answered.
        Accept = "accept",
        /// The user refused to answer.
        Decline = "decline",
        /// The user closed the question.
        Cancel = "cancel",
    }
}

event! {
    /// Before the question of an MCP server reaches the user or the application's handler. The input has the fields of
    /// an [`ElicitationRequest`](crate::callback::ElicitationRequest).
    Elicitation: ElicitationInput, ElicitationOutput, ElicitationFields;
    input { mcp_server_name: String, message: String, }
    may { mode: ElicitationMode, url: String, elicitation_id: String, requested_schema: LazyValue, }
    output {
        /// The reaction that replaces the user's.
        action: ElicitationAction,
        /// The content, which must fit the requested schema.
        content: Value,
    };

    /// Before the user's answer reaches the MCP server.
    ElicitationResult: ElicitationResultInput, ElicitationResultOutput, ElicitationResultFields;
    input { mcp_server_name: String, action: ElicitationAction, }
    may { elicitation_id: String, mode: ElicitationMode, content: LazyValue, }
    output {
        /// Replaces the user's reaction.
        action: ElicitationAction,
        /// Replaces the user's content.
        content: Value,
    }
}

/// Both events are answered with an [`ElicitationAnswer`].
macro_rules! answers_elicitation {
    ($($output:ident: $doc:literal,)+) => {$(
        impl $output {
            #[doc = $doc]
            pub fn answer(answer: ElicitationAnswer) -> Self {
                let (action, content) = match answer {
                    ElicitationAnswer::Accept(Value::Null) => (ElicitationAction::Accept, None),
                    ElicitationAnswer::Accept(content) => (ElicitationAction::Accept, Some(content)),
                    ElicitationAnswer::Decline => (ElicitationAction::Decline, None),
                    ElicitationAnswer::Cancel => (ElicitationAction::Cancel, None),
                    // The user is asked, or the user's answer stays.
                    ElicitationAnswer::Undecided => return Self::pass(),
                };
                let mut output = Self::pass();
                (output.fields.action, output.fields.content) = (Some(action), content);
                output
            }
        }
    )+};
}

answers_elicitation! {
    ElicitationOutput: "Answers in place of the user: nobody is asked.",
    ElicitationResultOutput: "Replaces the user's answer.",
}

event! {
    /// While a message of the model is shown, once for each batch of lines. A hook changes only the display: the
    /// model's input and the transcript stay as they are.
    MessageDisplay: MessageDisplayInput, MessageDisplayOutput, MessageDisplayFields;
    input {
        turn_id: String,
        /// The CLI's own id of the message, not the model's.
        message_id: String,
        /// Number of the batch within the message, from 0.
        index: u64,
        /// Whether this is the message's last batch.
        r#final: bool,
        /// The lines. The last batch may end within a line or be empty.
        delta: String,
    }
    output {
        /// Replaces the displayed text.
        display_content: String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hook::tests::wire;
    use serde_json::json;

    #[test]
    fn hooks_answer_elicitations_like_handlers() {
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
