//! Calls and other requests of one server, from their arrival to their answer.

use std::sync::Arc;
use std::time::Duration;

use ractor::ActorProcessingErr;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::Instrument;

use super::peer::CallPeer;
use super::{Asked, Finish, ServerMessage, ServerState, Serving};
use crate::actor::ledger::{Answer, Owed};
use crate::actor::restart::Verdict;
use crate::actor::work::{Ending, Job, JobId, NewJob, RpcJob, after};
use crate::report::Event;
use crate::tool::context::Call;
use crate::tool::dispatch::Run;
use crate::tool::instance::{Ended, panicked, run_caught};
use crate::wire::CallToolResult;
use crate::wire::rpc::{CallMeta, CallParams, RpcError};

impl ServerState {
    pub(super) fn call(&mut self, answer: Answer, rpc_id: &RawValue, params: CallParams) {
        let Serving::Ready(instance) = &self.serving else { return };
        let Some(tool) = instance.tool(&params.name) else {
            return self.refuse(&answer, &RpcError::unknown_tool(&params.name));
        };
        if !answer.owed().is_open() {
            // Cancelled while it waited.
            return;
        }
        let limit = tool.timeout.or(self.shared.options().timeouts.tool);
        if let Some(limit) = limit.filter(|limit| answer.owed().received.elapsed() >= *limit) {
            // It has waited for a server that was restarting, or for the state.
            return self.timed_out(answer.owed(), &params.name, true, limit);
        }
        let meta = params.meta.unwrap_or_default();
        let owed = answer.owed().clone();
        let trace_payloads = self.shared.options().trace_payloads;
        let span = self.tool_span(&owed, &params.name, meta.tool_use_id.as_deref(), rpc_id);
        if trace_payloads {
            span.record(
                "gen_ai.tool.call.arguments",
                params.arguments.as_deref().map_or("{}", |arguments| arguments.get()),
            );
        }
        let tool_use_id = meta.tool_use_id.clone();
        let call = self.context(&owed, params.name.clone(), meta, limit);
        // Noted now: the tool may be gone when the handler ends.
        let blocks = instance.blocks(&params.name);
        let Some(run) = instance.run(&params.name, call, params.arguments) else { return };
        let tool = params.name.clone();
        let handler = {
            let recorded = span.clone();
            async move {
                let ended = run.await;
                let panic = match &ended {
                    Ended::Panicked(text) => Some(text.clone()),
                    _ => None,
                };
                let (outcome, error_type) = match &ended {
                    // It was cancelled, and so answered, before it began.
                    Ended::NotBegun => return None,
                    Ended::Returned(result) if result.is_error => ("error", Some("tool_error")),
                    Ended::Returned(_) => ("ok", None),
                    Ended::BadArguments(_) => ("bad_arguments", Some("bad_arguments")),
                    Ended::Panicked(_) => ("panic", Some("panic")),
                };
                recorded.record("outcome", outcome);
                if let Some(error_type) = error_type {
                    recorded.record("error.type", error_type);
                }
                let result = ended.result(&tool);
                if trace_payloads {
                    recorded.record(
                        "gen_ai.tool.call.result",
                        serde_json::to_string(&result).unwrap_or_default(),
                    );
                }
                answer.hand_over().mcp_result(result);
                panic
            }
            .instrument(span)
        };
        let rpc = RpcJob { id: rpc_id.get().to_owned(), is_tool: true, blocks };
        self.begin(NewJob { owed, label: params.name, tool_use_id, rpc: Some(rpc), limit }, handler);
    }

    fn tool_span(
        &self,
        owed: &Owed,
        tool: &str,
        tool_use_id: Option<&str>,
        rpc_id: &RawValue,
    ) -> tracing::Span {
        tracing::info_span!(
            parent: &owed.span,
            "tool_call",
            request_id = owed.request_id,
            tool_use_id,
            server = &*self.name,
            tool,
            epoch = owed.epoch(),
            outcome = tracing::field::Empty,
            "gen_ai.operation.name" = "execute_tool",
            "gen_ai.tool.name" = tool,
            "gen_ai.tool.call.id" = tool_use_id,
            "mcp.method.name" = "tools/call",
            "jsonrpc.request.id" = rpc_id.get(),
            "gen_ai.tool.call.arguments" = tracing::field::Empty,
            "gen_ai.tool.call.result" = tracing::field::Empty,
            "error.type" = tracing::field::Empty,
        )
    }

    /// A request that another handler than a tool's answers; or a call of a tool that the server alone knows.
    pub(super) fn run(&mut self, answer: Answer, rpc_id: &RawValue, run: Run) {
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
        let tool_use_id = run.meta.tool_use_id.clone().filter(|_| is_tool);
        let span = if is_tool {
            self.tool_span(&owed, &run.subject, tool_use_id.as_deref(), rpc_id)
        } else {
            tracing::info_span!(
                parent: &owed.span,
                "mcp_request",
                request_id = owed.request_id,
                server = &*self.name,
                subject = run.subject,
                epoch = owed.epoch(),
                outcome = tracing::field::Empty,
                "mcp.method.name" = run.method,
                "jsonrpc.request.id" = rpc_id.get(),
                "error.type" = tracing::field::Empty,
            )
        };
        let state = instance.state(run.state);
        let call = self.context(&owed, run.subject, run.meta, limit);
        let handler = {
            let (recorded, label) = (span.clone(), label.clone());
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
                    Ok(Ok(result)) => owed.mcp_result(result),
                    Ok(Err(error)) => owed.mcp_error(&error),
                    Err(text) if is_tool => {
                        owed.mcp_result(Ended::Panicked(text.clone()).result(&label));
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
        let rpc = RpcJob { id: rpc_id.get().to_owned(), is_tool, blocks: false };
        self.begin(NewJob { owed, label, tool_use_id, rpc: Some(rpc), limit }, handler);
    }

    /// What the handler of a request is given.
    fn context(
        &self,
        owed: &Arc<Owed>,
        subject: String,
        meta: CallMeta,
        limit: Option<Duration>,
    ) -> Arc<Call> {
        Arc::new(Call {
            server: self.name.clone(),
            tool: subject,
            request_id: owed.request_id.clone(),
            tool_use_id: meta.tool_use_id,
            progress_token: meta.progress_token,
            deadline: limit.map(|limit| after(owed.received, limit)),
            cancel: owed.cancel.clone(),
            generation: self.generation,
            log_level: self.spec.registry.log_level.clone(),
            peer: Arc::new(CallPeer { owed: owed.clone(), link: self.link.0.clone() }),
        })
    }

    /// Starts the task of a handler, which gives the text of its panic if there was one.
    fn begin(&mut self, new: NewJob, handler: impl Future<Output = Option<String>> + Send + 'static) {
        let rpc_id = new.rpc.as_ref().map(|rpc| rpc.id.clone());
        let myself = self.myself.clone();
        let job = self.work.start(new, handler, move |job, ending| {
            let ending = match ending {
                Ending::Done(None) => Finish::Returned,
                Ending::Done(Some(text)) => Finish::Panicked(text),
                Ending::Aborted => Finish::Aborted,
            };
            // A server that has ended keeps no books.
            myself.cast(ServerMessage::Finished { job, ending }).ok();
        });
        self.by_rpc_id.extend(rpc_id.map(|rpc_id| (rpc_id, job)));
        self.arm();
    }

    /// The CLI cancels a call of the newest MCP session.
    pub(super) fn cancelled(&mut self, rpc_id: &str, reason: Option<String>) {
        let job = self.by_rpc_id.get(rpc_id).and_then(|job| self.work.get(*job));
        let cancelled = match job.filter(|job| job.owed.cancel()) {
            Some(job) => Some((job.label.clone(), job.owed.request_id.clone())),
            None => self.cancel_waiting(rpc_id),
        };
        let Some((tool, request_id)) = cancelled else { return self.shared.counting.unmatched_cancels.one() };
        self.shared.emit(Event::CallCancelled { server: self.name.to_string(), tool, request_id, reason });
    }

    /// A call may be cancelled before the state is there. Its tool and its request, if there is one.
    fn cancel_waiting(&mut self, rpc_id: &str) -> Option<(String, String)> {
        let Serving::Making { waiting, .. } = &mut self.serving else { return None };
        // The newest one: older ones with the same id are of older MCP sessions.
        let (answer, _, asked) = waiting.iter().rev().find(|(_, id, _)| id.get() == rpc_id)?;
        let label = match asked {
            Asked::Call(params) => params.name.clone(),
            Asked::Run(run) => run.label(),
        };
        answer.owed().cancel().then(|| (label, answer.owed().request_id.clone()))
    }

    pub(super) fn finished(&mut self, id: JobId, ending: Finish) -> Result<(), ActorProcessingErr> {
        let Some(job) = self.work.finish(id) else { return Ok(()) };
        if let Some(rpc) = &job.rpc
            && self.by_rpc_id.get(&rpc.id) == Some(&id)
        {
            self.by_rpc_id.remove(&rpc.id);
        }
        match ending {
            Finish::Returned => {}
            Finish::Aborted => {
                self.shared.counting.aborted.one();
                self.abandoned(&job);
            }
            Finish::Panicked(message) => {
                self.shared.counting.panics.one();
                let tool = job.label.clone();
                tracing::warn!(parent: &job.owed.span, server = &*self.name, tool, message, "a tool panicked");
                self.shared.emit(Event::CallPanicked {
                    server: self.name.to_string(),
                    tool,
                    request_id: job.owed.request_id.clone(),
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
    fn abandoned(&self, job: &Job) {
        if job.rpc.as_ref().is_some_and(|rpc| rpc.blocks) {
            self.shared.emit(Event::HandlerAbandoned {
                server: self.name.to_string(),
                tool: job.label.clone(),
                request_id: job.owed.request_id.clone(),
            });
        }
    }

    pub(super) fn tick(&mut self) {
        for job in self.work.expired(Instant::now()) {
            let Some(job) = self.work.get(job).filter(|job| job.owed.is_open()) else { continue };
            let is_tool = job.rpc.as_ref().is_some_and(|rpc| rpc.is_tool);
            self.timed_out(&job.owed, &job.label, is_tool, job.limit.unwrap_or_default());
        }
        self.arm();
    }

    fn timed_out(&self, owed: &Owed, label: &str, is_tool: bool, limit: Duration) {
        let late = format!("'{label}' did not finish within its limit of {limit:?}");
        if is_tool {
            owed.mcp_timed_out(CallToolResult::error(format!("tool {late}")));
        } else {
            owed.mcp_timed_out_error(&RpcError::internal(late));
        }
        owed.cancel.cancel();
        self.shared.counting.timeouts.one();
        self.shared.emit(Event::CallTimedOut {
            server: self.name.to_string(),
            tool: label.to_owned(),
            request_id: owed.request_id.clone(),
            limit,
        });
    }
}
