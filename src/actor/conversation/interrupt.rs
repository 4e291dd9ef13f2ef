//! Interrupts of the application: the conversation takes note first, then the CLI is asked.

use std::time::Duration;

use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::ConversationState;
use crate::actor::base::reply::respond;
use crate::actor::base::task::Task;
use crate::actor::messages::conversation::ConversationMessage;
use crate::actor::router::client::ask;
use crate::error::{ErrorKind, Result};
use crate::requests::{InterruptReceipt, Reply};
use crate::wire::envelope::empty_object;

impl ConversationState {
    /// Asks the CLI to end what it does, on a task of its own: the interrupt goes on when its caller stops waiting.
    pub(super) fn interrupt(
        &mut self,
        cancel_queued: bool,
        limit: Duration,
        reply: oneshot::Sender<Result<Reply<InterruptReceipt>>>,
    ) {
        if let Some(running) = &mut self.running {
            running.interrupting = true;
        }
        let queued = self.queue.iter().map(|queued| queued.uuid.as_str());
        let queued: Vec<_> = self.unwritten_steering().chain(queued).map(str::to_owned).collect();
        if cancel_queued {
            // Before the CLI is asked: the end of the turn would send the next prompt.
            self.give_back_queue();
        }
        let (shared, myself) = (self.shared.clone(), self.myself.clone());
        let turn_runs = self.running.is_some();
        let mut body = json!({ "subtype": "interrupt" });
        if cancel_queued {
            body["cancel_queued"] = true.into();
        }
        self.interrupts.retain(|task| !task.is_finished());
        self.interrupts.push(Task::spawn(Box::pin(async move {
            let asked = ask(&shared, body, limit).await;
            if asked.is_err() {
                // A conversation that has ended has no turn.
                myself.cast(ConversationMessage::NotInterrupted).ok();
            }
            let receipt = read_receipt(asked, turn_runs).map(|mut receipt| {
                let lists = receipt.view_mut();
                let list = if cancel_queued { &mut lists.cancelled } else { &mut lists.still_queued };
                list.extend(queued);
                receipt
            });
            respond(reply, receipt);
        })));
    }
}

fn read_receipt(asked: Result<Box<RawValue>>, turn_runs: bool) -> Result<Reply<InterruptReceipt>> {
    match asked {
        // Without a turn and without a CLI there is nothing to interrupt.
        Err(error) if error.kind() == ErrorKind::NotReady && !turn_runs => {
            Ok(Reply::new(InterruptReceipt::default(), empty_object()))
        }
        asked => Reply::read("interrupt", asked?),
    }
}
