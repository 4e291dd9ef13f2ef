//! Calls and other requests of one server, from their arrival to their answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ractor::ActorProcessingErr;
use tokio::time::Instant;
use tracing::Instrument;

use super::peer::CallPeer;
use super::{Asked, CallJob, Finish, ServerMessage, ServerState, Serving};
use crate::actor::owed::{Answer, Owed};
use crate::actor::restart::Verdict;
use crate::actor::work::{Ending, Job, NewJob, after};
use crate::report::Event;
use crate::tool::context::{Call, Named};
use crate::tool::def::Arguments;
use crate::tool::dispatch::Run;
use crate::tool::instance::{Ended, panicked, run_caught};
use crate::wire::CallToolResult;
use crate::wire::rpc::RpcError;

/// The handler of a call, and its answer. It gives the text of the panic if there was one.
struct CallTask<R> {
    run: R,
    /// `None` once it is given.
    answer: Option<Answer>,
    call: Arc<Call<CallPeer>>,
    span: tracing::Span,
    trace_payloads: bool,
}

impl<R: Future<Output = Ended> + Unpin> Future for CallTask<R> {
    type Output = Option<String>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<String>> {
        let this = self.get_mut();
        let ended = ready!(Pin::new(&mut this.run).poll(cx));
        Poll::Ready(this.answer.take().and_then(|answer| this.answered(answer, ended)))
    }
}

impl<R> CallTask<R> {
    fn answered(&self, answer: Answer, ended: Ended) -> Option<String> {
        let (outcome, error_type) = match &ended {
            // It was cancelled, and so answered, before it began.
            Ended::NotBegun => return None,
            Ended::Returned(result) if result.is_error => ("error", Some("tool_error")),
            Ended::Returned(_) => ("ok", None),
            Ended::BadArguments(_) => ("bad_arguments", Some("bad_arguments")),
            Ended::Panicked(_) => ("panic", Some("panic")),
        };
        self.span.record("outcome", outcome);
        if let Some(error_type) = error_type {
            self.span.record("error.type", error_type);
        }
        let panic = match &ended {
            Ended::Panicked(text) => Some(text.clone()),
            _ => None,
        };
        let result = ended.result(self.call.subject());
        if self.trace_payloads {
            let text = serde_json::to_string(&result).unwrap_or_default();
            self.span.record("gen_ai.tool.call.result", text);
        }
        answer.hand_over().mcp_result(&result);
        panic
    }
}

impl ServerState {
    pub(super) fn call(&mut self, answer: Answer, named: Option<Named>, arguments: Arguments) {
        let Serving::Ready(instance) = &self.serving else { return };
        let owed = answer.owed();
        let name = match &named {
            Some(named) => &*named.subject,
            None => owed.head().tool().unwrap_or_default(),
        };
        let Some(tool) = instance.tool(name) else {
            let error = RpcError::unknown_tool(name);
            return self.refuse(&answer, &error);
        };
        if !owed.is_open() {
            // Cancelled while it waited.
            return;
        }
        let limit = tool.timeout().or(self.shared.options().timeouts.tool);
        if let Some(limit) = limit.filter(|limit| owed.received.elapsed() >= *limit) {
            // It has waited for a server that was restarting, or for the state.
            return self.timed_out(owed, name, true, limit);
        }
        let owed = owed.clone();
        let call = self.context(&owed, named, limit);
        let trace_payloads = self.shared.options().trace_payloads;
        let span = self.tool_span(&owed, call.subject(), call.tool_use_id());
        if trace_payloads {
            let arguments = arguments.as_deref().map_or("{}", |arguments| arguments.get());
            span.record("gen_ai.tool.call.arguments", arguments);
        }
        // Noted now: the tool may be gone when the handler ends.
        let job = CallJob { call: call.clone(), is_tool: true, blocks: tool.blocks(), label: None };
        let run = instance.run(tool, call.clone(), arguments);
        let handler = CallTask { run, answer: Some(answer), call, span: span.clone(), trace_payloads };
        let new = NewJob { owed, label: job, limit };
        if span.is_none() {
            self.begin(new, handler);
        } else {
            self.begin(new, handler.instrument(span));
        }
    }

    fn tool_span(&self, owed: &Owed, tool: &str, tool_use_id: Option<&str>) -> tracing::Span {
        tracing::info_span!(
            parent: &owed.span,
            "tool_call",
            request_id = owed.request_id(),
            tool_use_id,
            server = self.spec.name,
            tool,
            epoch = owed.epoch(),
            outcome = tracing::field::Empty,
            "gen_ai.operation.name" = "execute_tool",
            "gen_ai.tool.name" = tool,
            "gen_ai.tool.call.id" = tool_use_id,
            "mcp.method.name" = "tools/call",
            "jsonrpc.request.id" = owed.head().rpc_id(),
            "gen_ai.tool.call.arguments" = tracing::field::Empty,
            "gen_ai.tool.call.result" = tracing::field::Empty,
            "error.type" = tracing::field::Empty,
        )
    }

    /// A request that another handler than a tool's answers; or a call of a tool that the server alone knows.
    pub(super) fn run(&mut self, answer: Answer, run: Run) {
        let Serving::Ready(instance) = &self.serving else { return };
        if !answer.owed().is_open() {
            // Cancelled while it waited.
            return;
        }
        let (label, is_tool) = (run.label(), run.is_tool());
        let limit = run.timeout.or(self.shared.options().timeouts.tool);
        if let Some(limit) = limit.filter(|limit| answer.owed().received.elapsed() >= *limit) {
            return self.timed_out(answer.owed(), &label, is_tool, limit);
        }
        let owed = answer.owed().clone();
        let state = instance.state(run.state);
        let call = self.context(&owed, Some(Named::new(run.subject, run.meta)), limit);
        let span = if is_tool {
            self.tool_span(&owed, call.subject(), call.tool_use_id())
        } else {
            tracing::info_span!(
                parent: &owed.span,
                "mcp_request",
                request_id = owed.request_id(),
                server = self.spec.name,
                subject = call.subject(),
                epoch = owed.epoch(),
                outcome = tracing::field::Empty,
                "mcp.method.name" = run.method,
                "jsonrpc.request.id" = owed.head().rpc_id(),
                "error.type" = tracing::field::Empty,
            )
        };
        let job = CallJob { call: call.clone(), is_tool, blocks: false, label: Some(label.clone()) };
        let handler = {
            let recorded = span.clone();
            async move {
                let ended = run_caught(run.start, state, call).await;
                let (outcome, error_type) = match &ended {
                    Ok(Ok(result)) if is_tool && result["isError"] == true => ("error", Some("tool_error")),
                    Ok(Ok(_)) => ("ok", None),
                    Ok(Err(_)) => ("error", Some("rpc_error")),
                    Err(_) => ("panic", Some("panic")),
                };
                recorded.record("outcome", outcome);
                if let Some(error_type) = error_type {
                    recorded.record("error.type", error_type);
                }
                let owed = answer.hand_over();
                match ended {
                    Ok(Ok(result)) => owed.mcp_value(result),
                    Ok(Err(error)) => owed.mcp_error(&error),
                    Err(text) if is_tool => {
                        owed.mcp_result(&Ended::Panicked(text.clone()).result(&label));
                        return Some(text);
                    }
                    Err(text) => {
                        owed.mcp_error(&panicked(&label, &text));
                        return Some(text);
                    }
                }
                None
            }
            .instrument(span)
        };
        self.begin(NewJob { owed, label: job, limit }, Box::pin(handler));
    }

    /// What the handler of a request is given.
    fn context(
        &self,
        owed: &Arc<Owed>,
        named: Option<Named>,
        limit: Option<Duration>,
    ) -> Arc<Call<CallPeer>> {
        Arc::new(Call {
            named,
            deadline: limit.map(|limit| after(owed.received, limit)),
            caller: CallPeer { owed: owed.clone(), link: self.link.0.clone() },
        })
    }

    /// Starts the task of a handler, which gives the text of its panic if there was one.
    fn begin(
        &mut self,
        new: NewJob<CallJob>,
        handler: impl Future<Output = Option<String>> + Send + Unpin + 'static,
    ) {
        let myself = self.myself.clone();
        self.work.start(new, handler, move |ending| {
            let news = match ending {
                Ending::Told(job, text) => ServerMessage::Finished(Finish::Panicked(job, text)),
                Ending::Aborted(job) => ServerMessage::Finished(Finish::Aborted(job)),
                Ending::Sweep => ServerMessage::Sweep,
            };
            // A server that has ended keeps no books.
            myself.cast(news).ok();
        });
    }

    /// Takes those off the books whose handler has returned, if it is time for that.
    pub(super) fn sweep(&mut self) {
        let by_rpc_id = &mut self.by_rpc_id;
        self.work.sweep(|id, job| by_rpc_id.forget(id, job.owed.head().rpc_id()));
    }

    /// The CLI cancels a call of the newest MCP session.
    pub(super) fn cancelled(&mut self, rpc_id: &str, reason: Option<String>) {
        let job = self.by_rpc_id.find(rpc_id, &self.work).and_then(|job| self.work.get(job));
        let cancelled = match job.filter(|job| job.owed.cancel()) {
            Some(job) => Some((job.label.label().to_owned(), job.owed.request_id().to_owned())),
            None => self.cancel_waiting(rpc_id),
        };
        let Some((tool, request_id)) = cancelled else { return self.shared.counting.unmatched_cancels.one() };
        self.shared.emit(Event::CallCancelled { server: self.spec.name.clone(), tool, request_id, reason });
    }

    /// A call may be cancelled before the state is there. Its tool and its request, if there is one.
    fn cancel_waiting(&mut self, rpc_id: &str) -> Option<(String, String)> {
        let Serving::Making { waiting, .. } = &mut self.serving else { return None };
        // The newest one: older ones with the same id are of older MCP sessions.
        let (answer, asked) =
            waiting.iter().rev().find(|(answer, _)| answer.owed().head().rpc_id() == Some(rpc_id))?;
        let owed = answer.owed();
        let label = match asked {
            Asked::Call(Some(named), _) => named.subject.clone(),
            Asked::Call(None, _) => owed.head().tool().unwrap_or_default().to_owned(),
            Asked::Run(run) => run.label(),
        };
        owed.cancel().then(|| (label, owed.request_id().to_owned()))
    }

    pub(super) fn finished(&mut self, ending: Finish) -> Result<(), ActorProcessingErr> {
        let (Finish::Panicked(id, _) | Finish::Aborted(id)) = ending;
        let Some(job) = self.work.finish(id) else { return Ok(()) };
        self.by_rpc_id.forget(id, job.owed.head().rpc_id());
        match ending {
            Finish::Aborted(_) => {
                self.shared.counting.aborted.one();
                self.abandoned(&job);
            }
            Finish::Panicked(_, message) => {
                self.shared.counting.panics.one();
                let tool = job.label.label().to_owned();
                tracing::warn!(parent: &job.owed.span, server = self.spec.name, tool, message, "a tool panicked");
                self.shared.emit(Event::CallPanicked {
                    server: self.spec.name.clone(),
                    tool,
                    request_id: job.owed.request_id().to_owned(),
                    message,
                });
                if self.panics.record(Instant::now()) == Verdict::GiveUp {
                    let limits = &self.shared.options().restarts.panics;
                    let cause = format!(
                        "more than {} of its calls panicked within {:?}",
                        limits.intensity, limits.period
                    );
                    return Err(self.end(cause));
                }
            }
        }
        Ok(())
    }

    /// An aborted handler on the blocking lane is still on its thread.
    fn abandoned(&self, job: &Job<CallJob>) {
        if job.label.blocks {
            self.shared.emit(Event::HandlerAbandoned {
                server: self.spec.name.clone(),
                tool: job.label.label().to_owned(),
                request_id: job.owed.request_id().to_owned(),
            });
        }
    }

    pub(super) fn tick(&mut self) {
        for job in self.work.expired(Instant::now()) {
            let Some(job) = self.work.get(job).filter(|job| job.owed.is_open()) else { continue };
            self.timed_out(&job.owed, job.label.label(), job.label.is_tool, job.limit.unwrap_or_default());
        }
        self.arm();
    }

    fn timed_out(&self, owed: &Owed, label: &str, is_tool: bool, limit: Duration) {
        let late = format!("'{label}' did not finish within its limit of {limit:?}");
        if is_tool {
            owed.mcp_timed_out(&CallToolResult::error(format!("tool {late}")));
        } else {
            owed.mcp_timed_out_error(&RpcError::internal(late));
        }
        owed.cancel.cancel();
        self.shared.counting.timeouts.one();
        self.shared.emit(Event::CallTimedOut {
            server: self.spec.name.clone(),
            tool: label.to_owned(),
            request_id: owed.request_id().to_owned(),
            limit,
        });
    }
}
