//! The application's callbacks: permissions, hooks, elicitations, dialogs. A task per request, as for tool calls.
//!
//! | | no handler | it panics | it is too late |
//! |---|---|---|---|
//! | permission | an error | denied, with the text of the panic | denied |
//! | hook | an error (there is no such hook) | an error | an error |
//! | elicitation | declined | cancelled | cancelled |
//! | dialog | no answer: the CLI settles it | cancelled | cancelled |
//!
//! Restart policy: permanent. What they owed when they end is answered with an error.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::actor_message;
use super::ledger::{Answer, Owed};
use super::shared::Shared;
use super::work::{Ending, JobId, NewJob, Work};
use crate::control::{
    CallbackContext, DialogAnswer, ElicitationAnswer, Hook, HookInput, PermissionDecision, PermissionRequest,
};
use crate::report::{CallbacksSnapshot, Event};
use crate::tool::instance::panic_text;
use crate::wire::envelope::Request;
use crate::wire::message::read::mend;
use crate::wire::rpc::RpcError;

/// What the callbacks understand.
pub(crate) enum CallbacksMessage {
    Request {
        answer: Answer,
        body: Request,
    },
    /// A handler's task has ended; with the text of its panic, if it panicked.
    Finished {
        job: JobId,
        panic: Option<String>,
        aborted: bool,
    },
    Tick,
    Stop,
    Snapshot(oneshot::Sender<CallbacksSnapshot>),
    #[cfg(feature = "testkit")]
    Panic,
}

actor_message!(CallbacksMessage);

pub(crate) struct Callbacks;

pub(crate) struct CallbacksState {
    shared: Arc<Shared>,
    myself: ActorRef<CallbacksMessage>,
    work: Work,
}

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for Callbacks {
    type Msg = CallbacksMessage;
    type State = CallbacksState;
    type Arguments = Arc<Shared>;

    async fn pre_start(
        &self,
        myself: ActorRef<CallbacksMessage>,
        shared: Arc<Shared>,
    ) -> Result<CallbacksState, ActorProcessingErr> {
        let work =
            Work::new(shared.options().timeouts.cancel_grace, "the host's callbacks have ended".into());
        Ok(CallbacksState { shared, myself, work })
    }

    async fn handle(
        &self,
        myself: ActorRef<CallbacksMessage>,
        message: CallbacksMessage,
        state: &mut CallbacksState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            CallbacksMessage::Request { answer, body } => state.request(answer, body),
            CallbacksMessage::Finished { job, panic, aborted } => state.finished(job, panic, aborted),
            CallbacksMessage::Tick => state.tick(),
            CallbacksMessage::Stop => {
                state.work.stop(state.shared.options().timeouts.child_stop / 2).await;
                myself.stop(None);
            }
            CallbacksMessage::Snapshot(reply) => {
                // Whoever asked may have stopped waiting.
                reply.send(CallbacksSnapshot { in_flight: state.work.jobs().len() }).ok();
            }
            #[cfg(feature = "testkit")]
            CallbacksMessage::Panic => panic!("a fault was injected into the callbacks"),
        }
        Ok(())
    }
}

impl CallbacksState {
    fn request(&mut self, answer: Answer, body: Request) {
        let handlers = &self.shared.spec.handlers;
        let timeouts = &self.shared.options().timeouts;
        let owed = answer.owed();
        match body {
            Request::CanUseTool(raw) => {
                let Some(handler) = handlers.permission.clone() else {
                    return owed.refuse(&RpcError::internal("the host has no permission handler"));
                };
                let request: PermissionRequest = match serde_json::from_str(&mend(raw.get())) {
                    Ok(request) => request,
                    Err(error) => return owed.refuse(&unreadable(&error)),
                };
                let asked = request.clone();
                self.start(
                    answer,
                    "permission",
                    timeouts.permission,
                    move |cx| handler(request, cx),
                    move |decided| {
                        let decision = decided.unwrap_or_else(|fault| {
                            PermissionDecision::deny(format!("the permission handler {fault}"))
                        });
                        Ok(decision.to_wire(&asked))
                    },
                );
            }
            Request::Hook { callback_id, input } => {
                let Some(hook) =
                    Hook::index(&callback_id).and_then(|index| handlers.hooks.get(index)).cloned()
                else {
                    return owed.refuse(&RpcError::internal(format!("the host has no hook '{callback_id}'")));
                };
                let input = match serde_json::from_str::<Value>(&mend(input.get())) {
                    Ok(input) => HookInput::new(input),
                    Err(error) => return owed.refuse(&unreadable(&error)),
                };
                let (event, run) = (hook.event.clone(), hook.run.clone());
                let limit = hook.timeout.or(timeouts.hook);
                self.start(
                    answer,
                    "hook",
                    limit,
                    move |cx| run(input, cx),
                    move |output| match output {
                        Ok(output) => Ok(output.to_wire(&event)),
                        Err(fault) => Err(format!("the {event} hook {fault}")),
                    },
                );
            }
            Request::Elicitation(raw) => {
                let Some(handler) = handlers.elicitation.clone() else {
                    return owed.success(ElicitationAnswer::Decline.to_wire());
                };
                let Some(request) = self.value(&answer, &raw) else { return };
                self.start(
                    answer,
                    "elicitation",
                    timeouts.permission,
                    move |cx| handler(request, cx),
                    |said| Ok(said.unwrap_or(ElicitationAnswer::Cancel).to_wire()),
                );
            }
            Request::Dialog(raw) => {
                let Some(request) = self.value(&answer, &raw) else { return };
                let kind = request.get("dialog_kind").and_then(Value::as_str).unwrap_or_default();
                let handler = handlers
                    .dialog
                    .clone()
                    .filter(|_| handlers.dialog_kinds.iter().any(|known| known == kind));
                let Some(handler) = handler else {
                    // An answer would count as the person's; the CLI settles it at its own deadline.
                    return answer.without_answer();
                };
                self.start(
                    answer,
                    "dialog",
                    timeouts.permission,
                    move |cx| handler(request, cx),
                    |said| Ok(said.unwrap_or(DialogAnswer::Cancelled).to_wire()),
                );
            }
            // The router sends nothing else here.
            Request::Mcp { .. }
            | Request::Silent { .. }
            | Request::Unknown { .. }
            | Request::Incomplete { .. } => {}
        }
    }

    fn value(&self, answer: &Answer, raw: &RawValue) -> Option<Value> {
        serde_json::from_str(&mend(raw.get())).map_err(|error| answer.owed().refuse(&unreadable(&error))).ok()
    }

    /// Runs a handler; `wire` makes the answer of what it returned, or of what went wrong with it.
    fn start<O, Fut>(
        &mut self,
        answer: Answer,
        label: &'static str,
        limit: Option<Duration>,
        handler: impl FnOnce(CallbackContext) -> Fut,
        wire: impl FnOnce(Result<O, Fault>) -> Result<Value, String> + Send + Sync + Clone + 'static,
    ) where
        O: Send + 'static,
        Fut: Future<Output = O> + Send + 'static,
    {
        let owed = answer.owed().clone();
        let cx = CallbackContext { request_id: owed.request_id.clone(), cancel: owed.cancel.clone() };
        let future = handler(cx);
        let run = async move {
            let (output, panic) = match AssertUnwindSafe(future).catch_unwind().await {
                Ok(output) => (Ok(output), None),
                Err(panic) => {
                    let text = panic_text(&*panic);
                    (Err(Fault::Panicked(text.clone())), Some(text))
                }
            };
            // The duty to answer stays where its drop answers until there is something to say.
            let said = wire(output);
            settle(&answer.hand_over(), said);
            panic
        };
        let myself = self.myself.clone();
        let new = NewJob { owed, label: label.to_owned(), tool_use_id: None, rpc: None, limit };
        self.work.start(new, run, move |job, ending| {
            let (panic, aborted) = match ending {
                Ending::Done(panic) => (panic, false),
                Ending::Aborted => (None, true),
            };
            // Callbacks that have ended keep no books.
            myself.cast(CallbacksMessage::Finished { job, panic, aborted }).ok();
        });
        self.arm();
    }

    fn arm(&mut self) {
        let myself = self.myself.clone();
        self.work.arm(move || {
            myself.cast(CallbacksMessage::Tick).ok();
        });
    }

    fn finished(&mut self, job: JobId, panic: Option<String>, aborted: bool) {
        let Some(job) = self.work.finish(job) else { return };
        if aborted {
            self.shared.counting.aborted.one();
        }
        if let Some(message) = panic {
            self.shared.counting.panics.one();
            tracing::warn!(parent: &job.owed.span, callback = job.label, message, "a callback panicked");
            self.shared.emit(Event::CallPanicked {
                server: "callbacks".into(),
                tool: job.label.clone(),
                request_id: job.owed.request_id.clone(),
                message,
            });
        }
    }

    fn tick(&mut self) {
        for job in self.work.expired(Instant::now()) {
            let Some(job) = self.work.get(job).filter(|job| job.owed.is_open()) else { continue };
            let limit = job.limit.unwrap_or_default();
            let late = format!("the host's {} handler did not answer within {limit:?}", job.label);
            match job.label.as_str() {
                "permission" => job.owed.timed_out(json!({ "behavior": "deny", "message": late })),
                "elicitation" => job.owed.timed_out(ElicitationAnswer::Cancel.to_wire()),
                "dialog" => job.owed.timed_out(DialogAnswer::Cancelled.to_wire()),
                _ => job.owed.refuse(&RpcError::internal(late)),
            }
            job.owed.cancel.cancel();
            self.shared.counting.timeouts.one();
            self.shared.emit(Event::CallTimedOut {
                server: "callbacks".into(),
                tool: job.label.clone(),
                request_id: job.owed.request_id.clone(),
                limit,
            });
        }
        self.arm();
    }
}

/// What went wrong with a handler.
enum Fault {
    Panicked(String),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Panicked(text) => write!(f, "panicked: {text}"),
        }
    }
}

fn settle(owed: &Owed, answer: Result<Value, String>) {
    match answer {
        Ok(body) => owed.success(body),
        Err(message) => owed.refuse(&RpcError::internal(message)),
    }
}

fn unreadable(error: &serde_json::Error) -> RpcError {
    RpcError::internal(format!("the request cannot be read: {error}"))
}
