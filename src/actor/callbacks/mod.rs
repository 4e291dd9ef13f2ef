//! The application's callbacks: permissions, hooks, elicitations, dialogs, inquiries. Each request runs as a task, like
//! a tool call. The inquiry handler gets what has no handler, and what a handler leaves open (`control::asking`).
//!
//! | request | no handler | the handler fails or panics | the handler times out |
//! |---|---|---|---|
//! | permission, question | an error | a denial with the text | a denial |
//! | hook, [`OnFailure::Block`](crate::hook::OnFailure::Block) | an error (there is no such hook) | a forbidding answer | a forbidding answer |
//! | hook, [`OnFailure::Continue`](crate::hook::OnFailure::Continue) | an error (there is no such hook) | an error | an error |
//! | elicitation | `decline` | `cancel` | `cancel` |
//! | dialog | not answered: the CLI settles it | `cancelled` | `cancelled` |
//!
//! At an event without a forbidding answer, `Block` answers with an error; the CLI then blocks.
//!
//! A handler fails when it returns an error, and when its answer cannot be sent. A request that cannot be read gets an
//! error answer, and is reported like a failure.
//!
//! Restart policy: permanent. When the actor ends, its open requests get an error answer.

pub(crate) mod kind;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::Instrument;

use self::kind::{CallbackKind, HandlerFault, log};
use super::base::reply::{respond, telling};
use super::context::Shared;
use super::request::answer::Answer;
use super::request::handlers::{HandlerEnd, HandlerTasks};
use super::request::pending::{PendingRequest, Settled};
use crate::actor::messages::children::CallbacksMessage;
use crate::blocking::caught::panic_text;
use crate::control::asking::decide;
use crate::control::inquiry::Asked;
use crate::control::{
    CallbackContext, DialogRequest, ElicitationAnswer, ElicitationRequest, Hook, PermissionDecision,
    PermissionRequest, Replied, Wired,
};
use crate::report::{CallbacksSnapshot, Event};
use crate::wire::brief::Short;
use crate::wire::envelope::CallbackRequest;
use crate::wire::rpc::RpcError;

pub(crate) struct Callbacks;

pub(crate) struct CallbacksState {
    shared: Arc<Shared>,
    myself: ActorRef<CallbacksMessage>,
    handlers: HandlerTasks<CallbackKind, HandlerFault>,
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
        let callbacks = myself.clone();
        // Callbacks that have ended keep no list.
        let report = move |end| drop(callbacks.cast(CallbacksMessage::HandlerEnded(end)));
        let grace = shared.options().timeouts.cancel_grace;
        let handlers = HandlerTasks::new(grace, "the host's callbacks have ended".into(), report);
        Ok(CallbacksState { shared, myself, handlers })
    }

    async fn handle(
        &self,
        myself: ActorRef<CallbacksMessage>,
        message: CallbacksMessage,
        state: &mut CallbacksState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            CallbacksMessage::Request { answer, body, permit } => {
                drop(permit);
                state.request(answer, body);
            }
            CallbacksMessage::HandlerEnded(end) => state.handler_ended(end),
            CallbacksMessage::Tick => state.tick(),
            CallbacksMessage::Stop => {
                let limit = state.shared.options().timeouts.child_stop / 2;
                Box::pin(state.handlers.stop(limit, &state.shared.ending.killed)).await;
                myself.stop(None);
            }
            CallbacksMessage::Snapshot(reply) => {
                respond(reply, CallbacksSnapshot { in_flight: state.handlers.table().running().len() });
            }
            #[cfg(feature = "testing")]
            CallbacksMessage::Panic => panic!("a fault was injected into the callbacks"),
        }
        Ok(())
    }
}

impl CallbacksState {
    fn request(&mut self, answer: Answer, body: CallbackRequest) {
        let shared = self.shared.clone();
        let handlers = &shared.spec.handlers;
        let timeouts = &shared.options().timeouts;
        let pending = answer.pending();
        if !pending.is_open() {
            // Withdrawn, or of an incarnation that has ended.
            return;
        }
        match body {
            CallbackRequest::Permission(raw) => {
                let prompt_tool = shared.options().permission_prompt_tool_name.as_deref();
                if !handlers.are_asked(prompt_tool) {
                    return pending.refuse(&RpcError::internal("the host has no permission handler"));
                }
                let Some(request) = self.read::<PermissionRequest>(&answer, CallbackKind::Permission, &raw)
                else {
                    return;
                };
                let (limit, asked) = (timeouts.permission, request.clone());
                let understands = shared.cli.understands();
                let about =
                    About { tool_use_id: request.tool_use_id.clone(), agent_id: request.agent_id.clone() };
                let questions =
                    handlers.question.as_ref().and_then(|handler| Some((handler, request.read_questions()?)));
                if let Some((handler, questions)) = questions {
                    let questions = match questions {
                        Ok(questions) => questions,
                        // The permission handler is not asked: if it allowed the call, the questions had no answers.
                        Err(message) => {
                            let kind = CallbackKind::Question;
                            let instead = kind.instead(&format!("{kind} failed: {message}"));
                            return self.failed(&answer, &kind, message, instead);
                        }
                    };
                    let handler = handler.clone();
                    let run = move |cx| handler(questions, cx);
                    self.start(answer, CallbackKind::Question, about, limit, run, move |answers| {
                        PermissionDecision::answer_questions(answers).to_wire(&asked, understands)
                    });
                } else if handlers.permission.is_some() || handlers.inquiry.is_some() {
                    let (own, inquiry) = (handlers.permission.clone(), handlers.inquiry.clone());
                    let kind = kind_of(&own, CallbackKind::Permission, Asked::Permission);
                    let run = move |cx| decide(own, inquiry, request, cx);
                    self.start(answer, kind, about, limit, run, move |decision| {
                        decision.to_wire(&asked, understands)
                    });
                } else {
                    // The only handler is for questions: deny, so that the CLI continues.
                    pending.success(
                        Settled::Answered,
                        PermissionDecision::denied("the host decides on no permissions"),
                    );
                }
            }
            CallbackRequest::Hook { callback_id, tool_use_id, input } => {
                let Some(hook) = Hook::index(&callback_id).and_then(|index| handlers.hooks.get(index)) else {
                    let text = format!("the host has no hook '{}'", Short(&callback_id));
                    return pending.refuse(&RpcError::internal(text));
                };
                let (event, run) = (hook.event.clone(), hook.run.clone());
                let limit = Some(hook.limit(timeouts.hook));
                let kind = CallbackKind::Hook(event.clone(), hook.on_failure);
                let tool_use_id = tool_use_id.filter(|_| event.is_about_a_call());
                self.start(
                    answer,
                    kind,
                    About { tool_use_id, agent_id: None },
                    limit,
                    move |cx| run(input, cx),
                    move |output| output.to_wire(event.as_str()).map(Wired::from),
                );
            }
            CallbackRequest::Elicitation(raw) => {
                let (own, inquiry) = (handlers.elicitation.clone(), handlers.inquiry.clone());
                if own.is_none() && inquiry.is_none() {
                    return pending.success(Settled::Answered, ElicitationAnswer::decline());
                }
                let kind = kind_of(&own, CallbackKind::Elicitation, Asked::Elicitation);
                let Some(request) = self.read::<ElicitationRequest>(&answer, kind.clone(), &raw) else {
                    return;
                };
                let run = move |cx| decide(own, inquiry, request, cx);
                self.start(answer, kind, About::default(), timeouts.permission, run, |said| {
                    said.to_wire().map(Wired::from)
                });
            }
            CallbackRequest::Dialog { kind, raw } => {
                let (own, inquiry) = handlers.of_dialog(kind.as_deref());
                let kind = kind_of(&own, CallbackKind::Dialog, Asked::Dialog);
                let Some(request) = self.read::<DialogRequest>(&answer, kind.clone(), &raw) else {
                    return;
                };
                let about = About { tool_use_id: request.tool_use_id.clone(), agent_id: None };
                let run = move |cx| decide(own, inquiry, request, cx);
                self.start(answer, kind, about, timeouts.permission, run, |said| Ok(said.to_wire().into()));
            }
        }
    }

    /// Answers a request whose handler cannot be called.
    fn failed(&self, answer: &Answer, kind: &CallbackKind, message: String, instead: Result<Value, String>) {
        answer.pending().span().in_scope(|| log(kind, "failed", &message));
        settle(answer.pending(), instead);
        self.told(kind, answer.pending(), message);
    }

    /// Reads a request as its type. An unreadable request is answered with an error.
    fn read<'de, T: Deserialize<'de>>(
        &self,
        answer: &Answer,
        kind: CallbackKind,
        raw: &'de RawValue,
    ) -> Option<T> {
        let read = serde_json::from_str(raw.get());
        read.map_err(|error| {
            let message = format!("the request cannot be read: {error}");
            self.failed(answer, &kind, message.clone(), Err(message));
        })
        .ok()
    }

    /// Runs a handler. `wire` turns its return value into the answer, or says why it cannot be sent.
    fn start<O, Fut>(
        &mut self,
        answer: Answer,
        kind: CallbackKind,
        About { tool_use_id, agent_id }: About,
        limit: Option<Duration>,
        handler: impl FnOnce(CallbackContext) -> Fut,
        wire: impl FnOnce(O) -> Result<Wired, String> + Send + Sync + 'static,
    ) where
        O: Send + 'static,
        Fut: Future<Output = Replied<O>> + Send + 'static,
    {
        let pending = answer.pending().clone();
        let cx = CallbackContext {
            request_id: pending.request_id().to_owned(),
            tool_use_id,
            agent_id,
            cancel: pending.cancel.token().clone(),
            identity: self.shared.identity.clone(),
        };
        let future = handler(cx);
        let failing = kind.clone();
        let run = async move {
            let outcome = match AssertUnwindSafe(future).catch_unwind().await {
                Ok(output) => {
                    output.and_then(wire).map_err(|message| HandlerFault { panicked: false, message })
                }
                Err(panic) => Err(HandlerFault { panicked: true, message: panic_text(&*panic) }),
            };
            let (said, fault) = match outcome {
                Ok(body) => (Ok(body), None),
                Err(fault) => {
                    log(&failing, fault.how(), &fault.message);
                    (failing.instead(&format!("{failing} {fault}")).map(Wired::from), Some(fault))
                }
            };
            // `answer` stays whole until here, so that its drop answers if the task is aborted.
            settle(answer.pending(), said);
            fault
        };
        let run = run.instrument(pending.span()).boxed();
        self.handlers.start(pending, kind, limit, None, run);
        self.arm();
    }

    fn arm(&mut self) {
        self.handlers.table().arm(telling(&self.myself, || CallbacksMessage::Tick));
    }

    fn handler_ended(&mut self, end: HandlerEnd<HandlerFault>) {
        let Some((handler, fault)) = self.handlers.ended(end) else { return };
        match fault {
            Some(HandlerFault { panicked: false, message }) => {
                self.told(&handler.label, &handler.pending, message);
            }
            Some(HandlerFault { message, .. }) => {
                self.shared.counting.panics.one();
                self.shared.emit(Event::CallbackPanicked {
                    callback: handler.label.name(),
                    hook: handler.label.hook(),
                    request_id: handler.pending.request_id().to_owned(),
                    message,
                });
            }
            None => self.shared.counting.aborted.one(),
        }
    }

    /// Emits the event of a failure.
    fn told(&self, kind: &CallbackKind, pending: &PendingRequest, message: String) {
        self.shared.emit(Event::CallbackFailed {
            callback: kind.name(),
            hook: kind.hook(),
            request_id: pending.request_id().to_owned(),
            message,
        });
    }

    fn tick(&mut self) {
        for handler in self.handlers.table().expired(Instant::now()) {
            let limit = handler.limit.unwrap_or_default();
            match handler.label.instead(&format!("{} did not answer within {limit:?}", handler.label)) {
                Ok(answer) => handler.pending.success(Settled::Cancelled, answer),
                Err(message) => handler.pending.fail(Settled::Cancelled, &RpcError::internal(message)),
            }
            handler.pending.cancel.cancel();
            self.shared.counting.timeouts.one();
            self.shared.emit(Event::CallbackTimedOut {
                callback: handler.label.name(),
                hook: handler.label.hook(),
                request_id: handler.pending.request_id().to_owned(),
                limit,
            });
        }
        self.arm();
    }
}

/// What a request is about, as far as its handler's context says it.
#[derive(Default)]
struct About {
    tool_use_id: Option<String>,
    agent_id: Option<String>,
}

/// The kind of the handler that is asked first: the own one, or the inquiry handler.
fn kind_of<H>(own: &Option<H>, kind: CallbackKind, asked: Asked) -> CallbackKind {
    if own.is_some() { kind } else { CallbackKind::Inquiry(asked) }
}

fn settle(pending: &PendingRequest, answer: Result<impl Serialize, String>) {
    match answer {
        Ok(body) => pending.success(Settled::Answered, body),
        Err(message) => pending.refuse(&RpcError::internal(message)),
    }
}
