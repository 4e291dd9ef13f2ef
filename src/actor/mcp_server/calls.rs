//! Calls and other requests of one server, from their arrival to their answer.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;
use tracing::Instrument;
use tracing::field::Empty;

use super::span::HandlerSpan;
use super::{HandlerRequest, ServerState, Serving};
use crate::actor::base::deadlines::after;
use crate::actor::base::restart_window::Verdict;
use crate::actor::request::answer::Answer;
use crate::actor::request::handler_table::RunningHandler;
use crate::actor::request::handlers::HandlerEnd;
use crate::actor::request::pending::{PendingRequest, Settled};
use crate::report::Event;
use crate::telemetry::names::*;
use crate::tool::run::context::{CallContext, Named};
use crate::tool::run::erased::{Arguments, CallEnd, CallFailure, panicked, run_caught};
use crate::tool::run::service::{HandlerRun, late_error, late_result};
use crate::wire::rpc::{PROTOCOL_VERSIONS, RpcError};

/// Answers a call whose handler has ended. Returns the failure that the application is told of, if any.
fn answer_call(
    answer: Answer,
    ended: CallEnd,
    call: &CallContext,
    mut span: HandlerSpan,
    trace_payloads: bool,
) -> Option<CallFailure> {
    let (outcome, error_type) = match &ended {
        // Cancelled, and so answered, before the handler began.
        CallEnd::NotBegun => return None,
        CallEnd::Returned(result) if result.is_error => ("error", Some("tool_error")),
        CallEnd::Failed { .. } => ("error", Some("tool_error")),
        CallEnd::Returned(_) => ("ok", None),
        CallEnd::BadArguments(_) => ("bad_arguments", Some("bad_arguments")),
        CallEnd::Panicked(_) => ("panic", Some("panic")),
    };
    span.ends(outcome, error_type);
    let (server, tool) = (&*call.link.server, call.subject());
    let fault = match &ended {
        CallEnd::Panicked(text) => {
            log_panic(server, tool, text);
            Some(CallFailure::Panicked(text.clone()))
        }
        CallEnd::Failed { result, cause } => {
            let message = result.text();
            tracing::warn!(server, tool, error = message, cause, "a tool failed");
            Some(CallFailure::Failed { message, cause: cause.clone() })
        }
        _ => None,
    };
    let result = ended.result(call.subject());
    if trace_payloads {
        span.span().record(TOOL_RESULT, serde_json::to_string(&result).unwrap_or_default());
    }
    answer.pending().mcp_result(Settled::Answered, &result);
    fault
}

/// Logs a panic in the current span, which is that of the call.
fn log_panic(server: &str, tool: &str, message: &str) {
    tracing::warn!(server, tool, message, "a tool panicked");
}

impl ServerState {
    /// Starts the handler of a tool call. `named` is `None` for a call that was read in one pass.
    pub(super) fn call(&mut self, answer: Answer, named: Option<Named>, arguments: Arguments) {
        let Serving::Ready(instance) = &self.serving else { return };
        let pending = answer.pending();
        let name = match &named {
            Some(named) => &*named.subject,
            None => pending.ids().tool().unwrap_or_default(),
        };
        let Some(tool) = instance.tool(name) else {
            let error = RpcError::unknown_tool(name);
            return self.refuse(&answer, &error);
        };
        let Some((parent, limit)) = self.may_begin(pending, name, true, tool.timeout()) else { return };
        let pending = pending.clone();
        let mut call = self.context(&pending, named, limit);
        call.blocks = tool.blocks();
        let call = Arc::new(call);
        let trace_payloads = self.shared.options().trace_payloads;
        let span = self.tool_span(&parent, &pending, call.subject(), call.tool_use_id());
        if trace_payloads {
            let arguments = arguments.as_deref().map_or("{}", |arguments| arguments.get());
            span.record(TOOL_ARGUMENTS, arguments);
        }
        let run = instance.run(tool, call.clone(), arguments);
        let states = instance.states();
        let handled = call.clone();
        let recorded =
            HandlerSpan::new(span.clone(), self.shared.clone(), call.clone(), "tools/call", pending.received);
        let handler = run.map(move |ended| {
            // Dropped last, when nothing of the handler holds the states any more.
            let _states = states;
            answer_call(answer, ended, &handled, recorded, trace_payloads)
        });
        let pace = Some(tool.pace().clone());
        if span.is_none() {
            self.handlers.start(pending, call, limit, pace, handler);
        } else {
            self.handlers.start(pending, call, limit, pace, handler.instrument(span));
        }
    }

    /// Whether the handler of a request may still begin: its span and its time limit.
    fn may_begin(
        &self,
        pending: &PendingRequest,
        label: &str,
        is_tool: bool,
        limit: Option<Duration>,
    ) -> Option<(tracing::Span, Option<Duration>)> {
        // Before the check, because settling a request takes its span.
        let parent = pending.span();
        if !pending.is_open() {
            // Cancelled while it waited.
            return None;
        }
        let limit = limit.or(self.shared.options().timeouts.tool);
        if let Some(limit) = limit.filter(|limit| pending.received.elapsed() >= *limit) {
            // The call waited for a server that was restarting, or for the state.
            self.timed_out(pending, label, is_tool, limit);
            return None;
        }
        Some((parent, limit))
    }

    fn tool_span(
        &self,
        parent: &tracing::Span,
        pending: &PendingRequest,
        tool: &str,
        tool_use_id: Option<&str>,
    ) -> tracing::Span {
        tracing::info_span!(
            parent: parent,
            "tool_call",
            request_id = pending.request_id(),
            tool_use_id,
            server = self.inside.spec.name,
            tool,
            epoch = pending.epoch(),
            outcome = Empty,
            { OTEL_NAME } = format!("tools/call {tool}"),
            { OTEL_KIND } = "server",
            { OTEL_STATUS } = Empty,
            { OPERATION } = "execute_tool",
            { TOOL_NAME } = tool,
            { TOOL_TYPE } = "function",
            { TOOL_CALL_ID } = tool_use_id,
            { MCP_METHOD } = "tools/call",
            { MCP_VERSION } = PROTOCOL_VERSIONS[0],
            { RPC_ID } = pending.ids().rpc_id(),
            { TRANSPORT } = "pipe",
            { TOOL_ARGUMENTS } = Empty,
            { TOOL_RESULT } = Empty,
            { ERROR_TYPE } = Empty,
        )
    }

    /// Starts the handler of a resource, or of a tool that only the server's own dispatch
    /// knows.
    pub(super) fn run(&mut self, answer: Answer, run: HandlerRun) {
        let Serving::Ready(instance) = &self.serving else { return };
        let (label, is_tool) = (run.label(), run.is_tool());
        let Some((parent, limit)) = self.may_begin(answer.pending(), &label, is_tool, run.timeout) else {
            return;
        };
        let pending = answer.pending().clone();
        let (state, states) = (instance.state(run.state), instance.states());
        let mut call = self.context(&pending, Some(Named::new(run.subject, run.meta)), limit);
        (call.is_tool, call.label) = (is_tool, Some(label.clone()));
        let call = Arc::new(call);
        let span = if is_tool {
            self.tool_span(&parent, &pending, call.subject(), call.tool_use_id())
        } else {
            let subject = |of: &str| (run.method == of).then(|| call.subject());
            tracing::info_span!(
                parent: &parent,
                "mcp_request",
                request_id = pending.request_id(),
                server = self.inside.spec.name,
                subject = call.subject(),
                epoch = pending.epoch(),
                outcome = Empty,
                { OTEL_NAME } = run.method,
                { OTEL_KIND } = "server",
                { OTEL_STATUS } = Empty,
                { MCP_METHOD } = run.method,
                { MCP_VERSION } = PROTOCOL_VERSIONS[0],
                { RESOURCE_URI } = subject("resources/read"),
                { PROMPT_NAME } = subject("prompts/get"),
                { RPC_ID } = pending.ids().rpc_id(),
                { TRANSPORT } = "pipe",
                { ERROR_TYPE } = Empty,
            )
        };
        let handler = {
            let mut recorded = HandlerSpan::new(
                span.clone(),
                self.shared.clone(),
                call.clone(),
                run.method,
                pending.received,
            );
            let (server, call) = (self.inside.spec.clone(), call.clone());
            async move {
                // Dropped after the handler and everything that it was given.
                let _states = states;
                let ended = run_caught(run.start, state, call).await;
                let (outcome, error_type) = match &ended {
                    Ok(Ok(result)) if is_tool && result["isError"] == true => ("error", Some("tool_error")),
                    Ok(Ok(_)) => ("ok", None),
                    Ok(Err(_)) => ("error", Some("rpc_error")),
                    Err(_) => ("panic", Some("panic")),
                };
                recorded.ends(outcome, error_type);
                // Before the duty to answer is handed over: the log runs the application's subscriber.
                if let Err(text) = &ended {
                    log_panic(&server.name, &label, text);
                }
                let pending = answer.pending();
                match &ended {
                    Ok(Ok(result)) => pending.mcp_value(result),
                    Ok(Err(error)) => pending.fail(Settled::Answered, error),
                    Err(text) if is_tool => {
                        let result = CallEnd::Panicked(text.clone()).result(&label);
                        pending.mcp_result(Settled::Answered, &result);
                    }
                    Err(text) => pending.fail(Settled::Answered, &panicked(&label, text)),
                }
                ended.err().map(CallFailure::Panicked)
            }
            .instrument(span)
        };
        self.handlers.start(pending, call, limit, None, Box::pin(handler));
    }

    fn context(
        &self,
        pending: &Arc<PendingRequest>,
        named: Option<Named>,
        limit: Option<Duration>,
    ) -> CallContext {
        let deadline = limit.map(|limit| after(pending.received, limit));
        CallContext::new(pending.clone(), self.link.clone(), named, deadline, self.generation)
    }

    /// The CLI cancels a call of the newest MCP session.
    pub(super) fn cancelled(&mut self, rpc_id: &str, reason: Option<String>) {
        let handler = self.handlers.table().find(self.first_of_session, rpc_id);
        let handler = handler.filter(|handler| handler.pending.cancel());
        let cancelled = match handler {
            Some(handler) => {
                Some((handler.label.label().to_owned(), handler.pending.request_id().to_owned()))
            }
            None => self.cancel_waiting(rpc_id),
        };
        let Some((tool, request_id)) = cancelled else { return self.shared.counting.unmatched_cancels.one() };
        self.shared.emit(Event::CallCancelled {
            server: self.inside.spec.name.clone(),
            tool,
            request_id,
            reason,
        });
    }

    /// Cancels a call that waits for the state. Returns its tool and its request id.
    fn cancel_waiting(&mut self, rpc_id: &str) -> Option<(String, String)> {
        let Serving::Making(making) = &self.serving else { return None };
        let (answer, asked) = making.find(rpc_id)?;
        let pending = answer.pending();
        let label = match asked {
            HandlerRequest::Call(Some(named), _) => named.subject.clone(),
            HandlerRequest::Call(None, _) => pending.ids().tool().unwrap_or_default().to_owned(),
            HandlerRequest::Run(run) => run.label(),
        };
        pending.cancel().then(|| (label, pending.request_id().to_owned()))
    }

    pub(super) fn handler_ended(&mut self, end: HandlerEnd<CallFailure>) {
        let Some((handler, fault)) = self.handlers.ended(end) else { return };
        match fault {
            Some(CallFailure::Panicked(message)) => self.panicked(&handler, message),
            Some(CallFailure::Failed { message, cause }) => self.shared.emit(Event::CallFailed {
                server: self.inside.spec.name.clone(),
                tool: handler.label.label().to_owned(),
                request_id: handler.pending.request_id().to_owned(),
                message,
                cause,
            }),
            None => {
                self.shared.counting.aborted.one();
                self.abandoned(&handler);
            }
        }
    }

    fn panicked(&mut self, handler: &RunningHandler<Arc<CallContext>>, message: String) {
        self.shared.counting.panics.one();
        self.shared.emit(Event::CallPanicked {
            server: self.inside.spec.name.clone(),
            tool: handler.label.label().to_owned(),
            request_id: handler.pending.request_id().to_owned(),
            message,
        });
        // A panic on a state that was replaced meanwhile says nothing about the new one.
        let current =
            matches!(self.serving, Serving::Ready(_)) && handler.label.generation == self.generation;
        if current && self.panics.record(Instant::now()) == Verdict::GiveUp {
            let limits = &self.shared.options().restarts.panics;
            let cause =
                format!("more than {} of its calls panicked within {:?}", limits.intensity, limits.period);
            self.renew(cause);
        }
    }

    /// An aborted handler on the blocking lane still occupies its thread.
    fn abandoned(&self, handler: &RunningHandler<Arc<CallContext>>) {
        if handler.label.blocks {
            self.shared.emit(Event::HandlerAbandoned {
                server: self.inside.spec.name.clone(),
                tool: handler.label.label().to_owned(),
                request_id: handler.pending.request_id().to_owned(),
            });
        }
    }

    pub(super) fn tick(&mut self) {
        for handler in self.handlers.table().expired(Instant::now()) {
            let (call, limit) = (&handler.label, handler.limit.unwrap_or_default());
            self.timed_out(&handler.pending, call.label(), call.is_tool, limit);
        }
        self.refuse_late(Instant::now());
        self.arm();
    }

    fn timed_out(&self, pending: &PendingRequest, label: &str, is_tool: bool, limit: Duration) {
        if is_tool {
            pending.mcp_result(Settled::Cancelled, &late_result(label, limit));
        } else {
            pending.fail(Settled::Cancelled, &late_error(label, limit));
        }
        pending.cancel.cancel();
        self.shared.counting.timeouts.one();
        self.shared.emit(Event::CallTimedOut {
            server: self.inside.spec.name.clone(),
            tool: label.to_owned(),
            request_id: pending.request_id().to_owned(),
            limit,
        });
    }
}
