//! The application's callbacks: permissions, hooks, elicitations, dialogs. A task per request, as for tool calls.
//!
//! | | no handler | it fails or panics | it is too late |
//! |---|---|---|---|
//! | permission | an error | denied, with the text | denied |
//! | question | as any permission | the same | the same |
//! | hook | an error (there is no such hook) | an error | an error |
//! | elicitation | declined | cancelled | cancelled |
//! | dialog | no answer: the CLI settles it | cancelled | cancelled |
//!
//! A handler fails when it returns an error, and when its answer cannot be sent. A request that cannot be read is an
//! error, and told like a failure.
//!
//! Restart policy: permanent. What they owed when they end is answered with an error.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::actor_message;
use super::owed::{Answer, Owed};
use super::shared::Shared;
use super::work::{Ending, JobId, NewJob, Work};
use crate::control::{
    CallbackContext, DialogAnswer, DialogRequest, ElicitationAnswer, ElicitationRequest, Hook,
    PermissionDecision, PermissionRequest, Replied,
};
use crate::report::{CallbacksSnapshot, Event};
use crate::tool::instance::panic_text;
use crate::wire::envelope::Request;
use crate::wire::rpc::RpcError;

/// What the callbacks understand.
pub(crate) enum CallbacksMessage {
    Request {
        answer: Answer,
        body: Request,
    },
    /// A handler's task has ended as it should not; with what went wrong, unless it was taken away.
    Finished {
        job: JobId,
        fault: Option<Fault>,
    },
    /// So many handlers have ended that it is time to sweep.
    Sweep,
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
    work: Work<Kind>,
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
            CallbacksMessage::Request { answer, body } => {
                state.work.sweep(|_, _| {});
                state.request(answer, body);
            }
            CallbacksMessage::Finished { job, fault } => state.finished(job, fault),
            CallbacksMessage::Sweep => state.work.sweep(|_, _| {}),
            CallbacksMessage::Tick => state.tick(),
            CallbacksMessage::Stop => {
                let limit = state.shared.options().timeouts.child_stop / 2;
                Box::pin(state.work.stop(limit)).await;
                myself.stop(None);
            }
            CallbacksMessage::Snapshot(reply) => {
                // Whoever asked may have stopped waiting.
                reply.send(CallbacksSnapshot { in_flight: state.work.jobs().count() }).ok();
            }
            #[cfg(feature = "testkit")]
            CallbacksMessage::Panic => panic!("a fault was injected into the callbacks"),
        }
        Ok(())
    }
}

impl CallbacksState {
    fn request(&mut self, answer: Answer, body: Request) {
        let shared = self.shared.clone();
        let handlers = &shared.spec.handlers;
        let timeouts = &shared.options().timeouts;
        let owed = answer.owed();
        match body {
            Request::CanUseTool(raw) => {
                if !handlers.decide() {
                    return owed.refuse(&RpcError::internal("the host has no permission handler"));
                }
                let Some(request) = self.read::<PermissionRequest>(&answer, Kind::Permission, &raw) else {
                    return;
                };
                let (limit, asked) = (timeouts.permission, request.clone());
                let understands = shared.understands();
                let tool_use_id = request.tool_use_id.clone();
                let questions =
                    handlers.question.as_ref().and_then(|handler| Some((handler, request.read_questions()?)));
                if let Some((handler, questions)) = questions {
                    let questions = match questions {
                        Ok(questions) => questions,
                        // No other handler is asked: one that allows would approve them without answers.
                        Err(message) => return self.failed(&answer, &Kind::Question, message),
                    };
                    let handler = handler.clone();
                    let run = move |cx| handler(questions, cx);
                    self.start(answer, Kind::Question, tool_use_id, limit, run, move |answers| {
                        PermissionDecision::answer_questions(answers).to_wire(&asked, understands)
                    });
                } else if let Some(handler) = handlers.permission.clone() {
                    let run = move |cx| handler(request, cx);
                    self.start(answer, Kind::Permission, tool_use_id, limit, run, move |decision| {
                        decision.to_wire(&asked, understands)
                    });
                } else {
                    // It has one for questions only, and the CLI is to go on.
                    owed.success(PermissionDecision::denied("the host decides on no permissions"));
                }
            }
            Request::Hook { callback_id, tool_use_id, input } => {
                let Some(hook) = Hook::index(&callback_id).and_then(|index| handlers.hooks.get(index)) else {
                    return owed.refuse(&RpcError::internal(format!("the host has no hook '{callback_id}'")));
                };
                let (event, run) = (hook.event.clone(), hook.run.clone());
                let limit = Some(hook.limit(timeouts.hook));
                let kind = Kind::Hook(event.to_string());
                let tool_use_id = tool_use_id.filter(|_| event.is_about_a_call());
                self.start(
                    answer,
                    kind,
                    tool_use_id,
                    limit,
                    move |cx| run(input, cx),
                    move |output| output.to_wire(event.as_str()),
                );
            }
            Request::Elicitation(raw) => {
                let Some(handler) = handlers.elicitation.clone() else {
                    return owed.success(ElicitationAnswer::decline());
                };
                let Some(request) = self.read::<ElicitationRequest>(&answer, Kind::Elicitation, &raw) else {
                    return;
                };
                let run = move |cx| handler(request, cx);
                self.start(answer, Kind::Elicitation, None, timeouts.permission, run, |said| said.to_wire());
            }
            Request::Dialog { kind, raw } => {
                let handler = handlers.dialog.clone().filter(|_| handlers.declare(kind.as_deref()));
                let Some(handler) = handler else {
                    // An answer would count as the person's; the CLI settles it at its own deadline.
                    return answer.without_answer();
                };
                let Some(request) = self.read::<DialogRequest>(&answer, Kind::Dialog, &raw) else { return };
                let tool_use_id = request.tool_use_id.clone();
                let run = move |cx| handler(request, cx);
                self.start(answer, Kind::Dialog, tool_use_id, timeouts.permission, run, |said| {
                    Ok(said.to_wire())
                });
            }
            // The router sends nothing else here.
            Request::Mcp { .. }
            | Request::Silent { .. }
            | Request::Unknown { .. }
            | Request::Incomplete { .. } => {}
        }
    }

    /// Answers for a handler that could not be asked.
    fn failed(&self, answer: &Answer, kind: &Kind, message: String) {
        settle(answer.owed(), kind.instead(&format!("{kind} failed: {message}")));
        self.told(kind, answer.owed(), message);
    }

    /// The request as its type. One that cannot be read is answered with an error.
    fn read<'de, T: Deserialize<'de>>(&self, answer: &Answer, kind: Kind, raw: &'de RawValue) -> Option<T> {
        let error = match serde_json::from_str(raw.get()) {
            Ok(request) => return Some(request),
            Err(error) => error,
        };
        let owed = answer.owed();
        let message = format!("the request cannot be read: {error}");
        owed.refuse(&RpcError::internal(message.as_str()));
        self.told(&kind, owed, message);
        None
    }

    /// Runs a handler; `wire` makes the answer of what it returned, unless that cannot be sent.
    fn start<O, Fut>(
        &mut self,
        answer: Answer,
        kind: Kind,
        tool_use_id: Option<String>,
        limit: Option<Duration>,
        handler: impl FnOnce(CallbackContext) -> Fut,
        wire: impl FnOnce(O) -> Result<Value, String> + Send + Sync + 'static,
    ) where
        O: Send + 'static,
        Fut: Future<Output = Replied<O>> + Send + 'static,
    {
        let owed = answer.owed().clone();
        let cx = CallbackContext {
            request_id: owed.request_id().to_owned(),
            session_id: self.shared.vitals.borrow().session_id.clone(),
            tool_use_id,
            cancel: owed.cancel.token().clone(),
        };
        let future = handler(cx);
        let failing = kind.clone();
        let run = async move {
            let outcome = match AssertUnwindSafe(future).catch_unwind().await {
                Ok(output) => output.and_then(wire).map_err(Fault::Failed),
                Err(panic) => Err(Fault::Panicked(panic_text(&*panic))),
            };
            let (said, fault) = match outcome {
                Ok(body) => (Ok(body), None),
                Err(fault) => (failing.instead(&format!("{failing} {fault}")), Some(fault)),
            };
            // The duty to answer stays where its drop answers until there is something to say.
            settle(&answer.hand_over(), said);
            fault
        };
        let myself = self.myself.clone();
        let new = NewJob { owed, label: kind, limit };
        self.work.start(new, Box::pin(run), move |ending| {
            let news = match ending {
                Ending::Told(job, fault) => CallbacksMessage::Finished { job, fault: Some(fault) },
                Ending::Aborted(job) => CallbacksMessage::Finished { job, fault: None },
                Ending::Sweep => CallbacksMessage::Sweep,
            };
            // Callbacks that have ended keep no books.
            myself.cast(news).ok();
        });
        self.arm();
    }

    fn arm(&mut self) {
        let myself = self.myself.clone();
        self.work.arm(move || {
            myself.cast(CallbacksMessage::Tick).ok();
        });
    }

    fn finished(&mut self, job: JobId, fault: Option<Fault>) {
        let Some(job) = self.work.finish(job) else { return };
        match fault {
            Some(Fault::Failed(message)) => self.told(&job.label, &job.owed, message),
            Some(Fault::Panicked(message)) => {
                self.shared.counting.panics.one();
                tracing::warn!(parent: &job.owed.span, callback = %job.label, message, "a callback panicked");
                self.shared.emit(Event::CallPanicked {
                    server: "callbacks".into(),
                    tool: job.label.name().into(),
                    request_id: job.owed.request_id().to_owned(),
                    message,
                });
            }
            None => self.shared.counting.aborted.one(),
        }
    }

    /// Tells of a failure.
    fn told(&self, kind: &Kind, owed: &Owed, message: String) {
        tracing::warn!(parent: &owed.span, callback = %kind, message, "a callback failed");
        self.shared.emit(Event::CallbackFailed {
            callback: kind.name(),
            hook: kind.hook().map(str::to_owned),
            request_id: owed.request_id().to_owned(),
            message,
        });
    }

    fn tick(&mut self) {
        for job in self.work.expired(Instant::now()) {
            let Some(job) = self.work.get(job).filter(|job| job.owed.is_open()) else { continue };
            let limit = job.limit.unwrap_or_default();
            match job.label.instead(&format!("{} did not answer within {limit:?}", job.label)) {
                Ok(answer) => job.owed.timed_out(answer),
                Err(message) => job.owed.refuse(&RpcError::internal(message)),
            }
            job.owed.cancel.cancel();
            self.shared.counting.timeouts.one();
            self.shared.emit(Event::CallTimedOut {
                server: "callbacks".into(),
                tool: job.label.name().into(),
                request_id: job.owed.request_id().to_owned(),
                limit,
            });
        }
        self.arm();
    }
}

/// What kind of callback it is.
#[derive(Clone, Debug)]
enum Kind {
    Permission,
    Question,
    /// At this event.
    Hook(String),
    Elicitation,
    Dialog,
}

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Kind::Permission => "permission",
            Kind::Question => "question",
            Kind::Hook(_) => "hook",
            Kind::Elicitation => "elicitation",
            Kind::Dialog => "dialog",
        }
    }

    fn hook(&self) -> Option<&str> {
        match self {
            Kind::Hook(event) => Some(event),
            _ => None,
        }
    }

    /// The answer for a handler that has none: the text is why.
    fn instead(&self, why: &str) -> Result<Value, String> {
        match self {
            Kind::Permission | Kind::Question => Ok(PermissionDecision::denied(why)),
            // What follows from it is `onFailure`, and up to the CLI.
            Kind::Hook(_) => Err(why.to_owned()),
            Kind::Elicitation => Ok(ElicitationAnswer::cancel()),
            Kind::Dialog => Ok(DialogAnswer::Cancelled.to_wire()),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Hook(event) => write!(f, "the {event} hook"),
            kind => write!(f, "the {} handler", kind.name()),
        }
    }
}

/// What went wrong with a handler.
pub(crate) enum Fault {
    /// It returned an error, or what cannot be sent.
    Failed(String),
    Panicked(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Failed(text) => write!(f, "failed: {text}"),
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
