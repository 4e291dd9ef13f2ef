//! Interrupts, messages that are taken back, and questions beside the conversation.

use serde_json::Value;

use super::read::answers;

answers! {
    /// What an interrupt left behind.
    ///
    /// The ids are those of prompts: [`Turn::prompt_uuid`](crate::Turn::prompt_uuid).
    ///
    /// ```
    /// async fn halt(session: &greenroom::Session) -> greenroom::Result<()> {
    ///     let receipt = session.interrupt_cancel_queued().await?;
    ///     println!("{} prompts will not run", receipt.cancelled.len());
    ///     Ok(())
    /// }
    /// # let _ = halt;
    /// ```
    pub struct InterruptReceipt {
        /// The prompts that still wait and will run: those that the CLI names, and those that wait here. A CLI older than
        /// the capability `interrupt_receipt_v1` names none.
        pub still_queued: Vec<String> = "still_queued",
        /// The prompts that waited and will not run, because that was asked for.
        pub cancelled: Vec<String> = "cancelled",
    }

    /// Whether a message that waited was taken back.
    ///
    /// ```
    /// let answer: greenroom::requests::CancelledMessage = serde_json::from_str(r#"{"cancelled": false}"#)?;
    /// assert!(!answer.cancelled);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct CancelledMessage {
        /// Whether it was; not if it has begun, or is not known.
        pub cancelled: bool = "cancelled",
    }

    /// The answer to a side question.
    ///
    /// ```
    /// let answer: greenroom::requests::SideAnswer =
    ///     serde_json::from_str(r#"{"response": "8.", "synthetic": false}"#)?;
    /// assert_eq!(answer.response.as_deref(), Some("8."));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct SideAnswer {
        /// What the model said; `None` if it said nothing.
        pub response: Option<String> = "response",
        /// Whether the CLI made the answer up, for example because the model failed.
        pub synthetic: Option<bool> = "synthetic",
        /// What is said of a fallback to another model after a refusal.
        pub refusal_fallback: Option<Value> = "refusal_fallback",
    }

    /// A title for the conversation.
    ///
    /// ```
    /// let answer: greenroom::requests::SessionTitle = serde_json::from_str(r#"{"title": "Adding numbers"}"#)?;
    /// assert_eq!(answer.title.as_deref(), Some("Adding numbers"));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct SessionTitle {
        /// The title; `None` if the model gave none that the CLI could use.
        pub title: Option<String> = "title",
    }
}

/// A question beside the conversation: the model answers it from what was said so far, without tools, and neither the
/// question nor the answer becomes part of the conversation.
///
/// ```
/// use greenroom::requests::SideQuestion;
///
/// let question = SideQuestion::new("Which file was that?").history([("Which one?", "The first.")]);
/// # let _ = question;
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SideQuestion {
    /// The question.
    pub question: String,
    /// Side questions before it, with their answers.
    pub history: Vec<(String, String)>,
}

impl SideQuestion {
    /// A question.
    pub fn new(question: impl Into<String>) -> Self {
        Self { question: question.into(), history: Vec::new() }
    }

    /// With the side questions before it and their answers, oldest first.
    pub fn history<Q: Into<String>, A: Into<String>>(
        mut self,
        history: impl IntoIterator<Item = (Q, A)>,
    ) -> Self {
        self.history = history.into_iter().map(|(q, a)| (q.into(), a.into())).collect();
        self
    }
}

impl From<&str> for SideQuestion {
    fn from(question: &str) -> Self {
        Self::new(question)
    }
}

impl From<String> for SideQuestion {
    fn from(question: String) -> Self {
        Self::new(question)
    }
}
