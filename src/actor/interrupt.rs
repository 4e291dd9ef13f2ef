//! An interrupt: the conversation is told first, then the CLI.

use std::time::Duration;

use ractor::ActorRef;
use serde_json::json;
use tokio::sync::oneshot;

use super::asking::ask;
use super::conversation::{ConversationMessage, Interrupting};
use super::shared::Shared;
use crate::error::{ErrorKind, Result};
use crate::requests::{InterruptReceipt, Reply};
use crate::wire::envelope::empty_object;

/// Interrupts whatever the CLI does.
pub(crate) async fn interrupt(
    shared: &Shared,
    conversation: Option<&ActorRef<ConversationMessage>>,
    cancel_queued: bool,
    limit: Duration,
) -> Result<Reply<InterruptReceipt>> {
    let Some(conversation) = conversation else { return Err(shared.gone()) };
    let (reply, interrupting) = oneshot::channel();
    conversation
        .cast(ConversationMessage::Interrupting { cancel_queued, reply })
        .map_err(|_| shared.gone())?;
    let Interrupting { turn, queued } = interrupting.await.map_err(|_| shared.gone())?;
    let mut body = json!({ "subtype": "interrupt" });
    if cancel_queued {
        body["cancel_queued"] = true.into();
    }
    let asked = ask(shared, body, limit).await;
    if asked.is_err() {
        // A conversation that has ended has no turn.
        conversation.cast(ConversationMessage::NotInterrupted).ok();
    }
    let mut receipt = match asked {
        // Without a turn and without a CLI there is nothing to interrupt.
        Err(error) if error.kind() == ErrorKind::NotReady && !turn => {
            Reply::new(InterruptReceipt::default(), empty_object())
        }
        asked => Reply::read("interrupt", asked?)?,
    };
    let receipt_queue = receipt.view_mut();
    if cancel_queued { &mut receipt_queue.cancelled } else { &mut receipt_queue.still_queued }.extend(queued);
    Ok(receipt)
}
