//! Interrupts, prompts that are taken back, side questions.

use serde_json::{Value, json};

use super::Body;
use crate::actor::message::Internal;
use crate::error::Result;
use crate::requests::{CancelledMessage, InterruptReceipt, Reply, SideAnswer, SideQuestion};
use crate::session::Session;

impl Session {
    /// Ends what the CLI does, as with the escape key. Returns when the CLI has taken note; the running turn ends with
    /// [`Outcome::Interrupted`](crate::Outcome::Interrupted) soon after, and handlers of its calls are cancelled. Prompts
    /// that wait stay, and are named in the receipt. Without a running turn it ends what the CLI does by itself, such as
    /// a turn that a background task has begun.
    ///
    /// Dropping the future does not take the interrupt back.
    ///
    /// # Errors
    /// Those of [`control`](Session::control); none while there is neither a turn nor a CLI, for then there is nothing to
    /// interrupt.
    pub async fn interrupt(&self) -> Result<Reply<InterruptReceipt>> {
        self.send_interrupt(false).await
    }

    /// Ends what the CLI does, and everything that waits: prompts that were not sent yet come back as
    /// [`Outcome::NotStarted`](crate::Outcome::NotStarted), at once, and the CLI drops what it has queued itself. The
    /// receipt names them.
    ///
    /// # Errors
    /// Those of [`interrupt`](Session::interrupt); [`Unsupported`](crate::ErrorKind::Unsupported), with nothing done, if
    /// the CLI is known to lack `interrupt_cancel_queued_v1`.
    pub async fn interrupt_cancel_queued(&self) -> Result<Reply<InterruptReceipt>> {
        self.require("interrupt_cancel_queued_v1", "an interrupt that cancels what is queued")?;
        self.send_interrupt(true).await
    }

    async fn send_interrupt(&self, cancel_queued: bool) -> Result<Reply<InterruptReceipt>> {
        let limit = self.request_limit().unwrap_or(self.shared().options().timeouts.control_request);
        self.ask(|reply| Internal::Interrupt { cancel_queued, limit, reply }).await?
    }

    /// Takes a prompt back that waits, by its [uuid](crate::Turn::prompt_uuid): its turn ends with
    /// [`Outcome::NotStarted`](crate::Outcome::NotStarted). One that waits here is not known to the CLI, and nothing is
    /// sent. For any other the CLI is asked, which may have queued messages of its own. One that has begun runs on.
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn cancel_async_message(&self, message_uuid: &str) -> Result<Reply<CancelledMessage>> {
        let uuid = message_uuid.to_owned();
        if self.ask(|reply| Internal::TakeBack { uuid, reply }).await? {
            return Reply::of(json!({ "cancelled": true }));
        }
        self.request(Body::new("cancel_async_message").with("message_uuid", message_uuid)).await
    }

    /// Asks the model something beside the conversation, from what was said so far; a running turn goes on meanwhile.
    /// Neither question nor answer becomes part of the conversation. It costs a request to the model, and has the time of
    /// [`Timeouts::long_request`](crate::Timeouts::long_request); dropping the future ends it in the CLI, too.
    ///
    /// No type of this is published: it is what CLI 2.1.328 was seen to do.
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn side_question(&self, question: impl Into<SideQuestion>) -> Result<Reply<SideAnswer>> {
        let SideQuestion { question, history } = question.into();
        let history: Vec<Value> = history
            .into_iter()
            .map(|(question, response)| json!({ "question": question, "response": response }))
            .collect();
        let history = (!history.is_empty()).then_some(history);
        self.long_request(Body::new("side_question").with("question", question).maybe("history", history))
            .await
    }
}
