//! Interrupts, withdrawn prompts, side questions, titles.

use serde_json::Value;

use crate::wire::objects::objects;

objects! {
    /// Answer to an interrupt. Names prompts by their [uuid](crate::Turn::prompt_uuid).
    answer InterruptReceipt {
        /// Prompts that still wait and will run, in the CLI and in this session. A CLI without the capability
        /// `interrupt_receipt_v1` names none of its own.
        still_queued: Vec<String>,
        /// Prompts that waited and will not run.
        cancelled: Vec<String>,
    }

    /// Answer to [`Session::cancel_async_message`](crate::Session::cancel_async_message).
    answer CancelledMessage {
        /// False if the prompt has started or is unknown.
        cancelled: bool,
    }

    /// The answer to a side question.
    answer SideAnswer {
        /// The model's answer; `None` if the model gave none.
        response: Option<String>,
        /// The CLI made the answer itself, for example because the model failed.
        synthetic: Option<bool>,
        /// Set if another model answered after a refusal.
        refusal_fallback: Option<Value>,
    }

    /// A title for the conversation.
    answer SessionTitle {
        /// `None` if the model gave no usable title.
        title: Option<String>,
    }
}

/// A question beside the conversation: the model answers from the conversation so far, without tools. Neither the
/// question nor the answer becomes part of the conversation.
///
/// ```
/// use greenroom::requests::SideQuestion;
///
/// let question = SideQuestion::new("Which file was that?").history([("Which one?", "The first.")]);
/// # let _ = question;
/// ```
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each field has a method of its name")]
#[non_exhaustive]
pub struct SideQuestion {
    pub question: String,
    pub history: Vec<(String, String)>,
}

impl SideQuestion {
    /// A question without a history.
    pub fn new(question: impl Into<String>) -> Self {
        Self { question: question.into(), history: Vec::new() }
    }

    /// Sets earlier side questions with their answers, oldest first.
    pub fn history<Q: Into<String>, A: Into<String>>(
        mut self,
        history: impl IntoIterator<Item = (Q, A)>,
    ) -> Self {
        self.history = history.into_iter().map(|(q, a)| (q.into(), a.into())).collect();
        self
    }
}

super::convert_from!(SideQuestion: &str, String);
