//! One in-process MCP server: its MCP session, its state, its calls in flight.
//!
//! ```text
//!   Making the state ──made──► Serving ──panics over intensity──► ended (the supervisor restarts it)
//!        │   calls wait           │
//!        └── failed, too late ────┴── stopped: handlers get their grace time
//! ```
//!
//! Handlers and the factory of the state run as tasks, never in here. Restart policy: transient, with the limits
//! of `Restarts::server`. A server that ends answers for its calls, naming the reason; those that come while it is
//! away wait in the router.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::actor_message;
use super::lane::Lane;
use super::ledger::{Answer, Owed};
use super::message::{Internal, SessionMessage};
use super::restart::{RestartWindow, Verdict};
use super::router::{PUSH_PREFIX, millis};
use super::shared::Shared;
use super::work::{Ending, Job, JobId, NewJob, Task, Work, after};
use crate::report::{CallSnapshot, Event, ServerSnapshot, ServerStatus};
use crate::tool::context::{Call, LevelFilter, NotificationSink};
use crate::tool::def::AnyState;
use crate::tool::dispatch::{McpSession, Step};
use crate::tool::instance::{BlockingLane, Ended, Instance};
use crate::tool::server::ServerSpec;
use crate::wire::CallToolResult;
use crate::wire::envelope::{OutMcp, OutRequest};
use crate::wire::rpc::{CallParams, Notification, Rpc, RpcError};

/// What a tool server understands.
pub(crate) enum ServerMessage {
    /// A message of the CLI.
    Rpc {
        answer: Answer,
        rpc: Rpc,
    },
    /// The state was made.
    StateMade(Result<Vec<AnyState>, String>),
    /// A handler's task has ended; with the text of its panic, if it panicked.
    Finished {
        job: JobId,
        ending: Finish,
    },
    /// A limit may have passed.
    Tick,
    /// Call no more than what is asked, then end.
    Stop,
    Snapshot(oneshot::Sender<ServerSnapshot>),
    #[cfg(feature = "testkit")]
    Panic,
}

actor_message!(ServerMessage);

/// How a handler's task ended, for the books.
#[derive(Debug)]
pub(crate) enum Finish {
    Returned,
    Panicked(String),
    Aborted,
}

pub(crate) struct McpServer;

pub(crate) struct ServerArguments {
    pub(crate) shared: Arc<Shared>,
    pub(crate) spec: Arc<ServerSpec>,
    pub(crate) blocking: Arc<BlockingLane>,
    /// Set by the CLI once, and not again after a restart.
    pub(crate) log_level: Arc<LevelFilter>,
    pub(crate) session: ActorRef<SessionMessage>,
    pub(crate) generation: u32,
}

pub(crate) struct ServerState {
    shared: Arc<Shared>,
    myself: ActorRef<ServerMessage>,
    supervisor: ActorRef<SessionMessage>,
    spec: Arc<ServerSpec>,
    name: Arc<str>,
    blocking: Arc<BlockingLane>,
    generation: u32,
    session: McpSession,
    /// The calls of the newest MCP session by their JSON-RPC id, which repeat from one session to the next.
    by_rpc_id: HashMap<String, JobId>,
    serving: Serving,
    work: Work,
    panics: RestartWindow,
}

enum Serving {
    /// The task that makes the state, and the calls that wait for it.
    Making {
        _task: Task,
        waiting: VecDeque<(Answer, Box<serde_json::value::RawValue>, CallParams)>,
    },
    Ready(Instance),
    Ended,
}

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for McpServer {
    type Msg = ServerMessage;
    type State = ServerState;
    type Arguments = ServerArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<ServerMessage>,
        arguments: ServerArguments,
    ) -> Result<ServerState, ActorProcessingErr> {
        let ServerArguments { shared, spec, blocking, log_level, session: supervisor, generation } =
            arguments;
        let limit = shared.options().timeouts.server_restart;
        let task = Task::spawn(make_state(spec.clone(), myself.clone(), limit));
        let ending = format!("MCP server '{}' has ended", spec.name);
        Ok(ServerState {
            work: Work::new(shared.options().timeouts.cancel_grace, ending),
            panics: RestartWindow::new(shared.options().restarts.panics.clone(), SmallRng::seed_from_u64(0)),
            session: McpSession::new(spec.clone(), log_level),
            name: spec.name.as_str().into(),
            shared,
            myself,
            supervisor,
            spec,
            blocking,
            generation,
            by_rpc_id: HashMap::new(),
            serving: Serving::Making { _task: task, waiting: VecDeque::new() },
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<ServerMessage>,
        message: ServerMessage,
        state: &mut ServerState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ServerMessage::Rpc { answer, rpc } => state.rpc(answer, rpc),
            ServerMessage::Finished { job, ending } => return state.finished(job, ending),
            ServerMessage::StateMade(made) => return state.state_made(made),
            ServerMessage::Tick => state.tick(),
            ServerMessage::Stop => {
                state.stop().await;
                myself.stop(None);
            }
            ServerMessage::Snapshot(reply) => {
                // Whoever asked may have stopped waiting.
                reply.send(state.snapshot()).ok();
            }
            #[cfg(feature = "testkit")]
            ServerMessage::Panic => panic!("a fault was injected into MCP server '{}'", state.name),
        }
        Ok(())
    }
}

async fn make_state(spec: Arc<ServerSpec>, myself: ActorRef<ServerMessage>, limit: Duration) {
    let made = tokio::time::timeout(limit, spec.make_states())
        .await
        .unwrap_or_else(|_| Err(format!("its state was not made within {limit:?}")));
    // A server that has ended wants no state.
    myself.cast(ServerMessage::StateMade(made)).ok();
}

impl ServerState {
    fn rpc(&mut self, answer: Answer, rpc: Rpc) {
        let sessions = self.session.sessions();
        let step = self.session.step(rpc);
        if self.session.sessions() != sessions {
            // Calls of the session before go on; their ids mean nothing in this one.
            self.by_rpc_id.clear();
        }
        match step {
            Step::Reply { outcome: Ok(result), .. } => answer.owed().mcp_result(result),
            Step::Reply { outcome: Err(error), .. } => self.refuse(&answer, &error),
            Step::Ack => answer.owed().mcp_ack(),
            Step::Cancelled(params) => {
                self.cancelled(params.request_id.get(), params.reason);
                answer.owed().mcp_ack();
            }
            Step::Call { id, params } => match &mut self.serving {
                Serving::Making { waiting, .. } => waiting.push_back((answer, id, params)),
                Serving::Ready(_) => self.call(answer, &id, params),
                // The answer is given by its drop.
                Serving::Ended => {}
            },
        }
    }

    fn refuse(&self, answer: &Answer, error: &RpcError) {
        if error.code == crate::wire::rpc::METHOD_NOT_FOUND {
            self.shared.counting.not_found.one();
        }
        answer.owed().refuse(error);
    }

    fn call(&mut self, answer: Answer, rpc_id: &serde_json::value::RawValue, params: CallParams) {
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
            return self.timed_out(answer.owed(), &params.name, limit);
        }
        let meta = params.meta.unwrap_or_default();
        let owed = answer.owed().clone();
        let trace_payloads = self.shared.options().trace_payloads;
        let span = tracing::info_span!(
            parent: &owed.span,
            "tool_call",
            request_id = owed.request_id,
            tool_use_id = meta.tool_use_id,
            server = &*self.name,
            tool = params.name,
            epoch = owed.epoch(),
            outcome = tracing::field::Empty,
            "gen_ai.operation.name" = "execute_tool",
            "gen_ai.tool.name" = params.name,
            "gen_ai.tool.call.id" = meta.tool_use_id,
            "mcp.method.name" = "tools/call",
            "jsonrpc.request.id" = rpc_id.get(),
            "gen_ai.tool.call.arguments" = tracing::field::Empty,
            "gen_ai.tool.call.result" = tracing::field::Empty,
            "error.type" = tracing::field::Empty,
        );
        if trace_payloads {
            span.record(
                "gen_ai.tool.call.arguments",
                params.arguments.as_deref().map_or("{}", |arguments| arguments.get()),
            );
        }
        let call = Arc::new(Call {
            server: self.name.clone(),
            tool: params.name.clone(),
            request_id: owed.request_id.clone(),
            tool_use_id: meta.tool_use_id.clone(),
            progress_token: meta.progress_token,
            deadline: limit.map(|limit| after(owed.received, limit)),
            cancel: owed.cancel.clone(),
            generation: self.generation,
            log_level: self.session.log_level().clone(),
            sink: Arc::new(LaneSink(owed.lane().clone())),
        });
        let Some(run) = instance.run(&params.name, call, params.arguments) else { return };
        let (myself, tool) = (self.myself.clone(), params.name.clone());
        let handler = {
            use tracing::Instrument;
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
        let new = NewJob {
            owed,
            label: params.name,
            tool_use_id: meta.tool_use_id,
            rpc_id: Some(rpc_id.get().to_owned()),
            limit,
        };
        let job = self.work.start(new, handler, move |job, ending| {
            let ending = match ending {
                Ending::Done(None) => Finish::Returned,
                Ending::Done(Some(text)) => Finish::Panicked(text),
                Ending::Aborted => Finish::Aborted,
            };
            // A server that has ended keeps no books.
            myself.cast(ServerMessage::Finished { job, ending }).ok();
        });
        self.by_rpc_id.insert(rpc_id.get().to_owned(), job);
        self.arm();
    }

    /// Ends the handlers, and then the state, whose drop is code of the application.
    async fn stop(&mut self) {
        self.work.set_ending(format!("MCP server '{}' was stopped", self.name));
        self.work.stop(self.shared.options().timeouts.child_stop / 2).await;
        if let Serving::Ready(instance) = std::mem::replace(&mut self.serving, Serving::Ended) {
            instance.end().await;
        }
    }

    fn arm(&mut self) {
        let myself = self.myself.clone();
        self.work.arm(move || {
            myself.cast(ServerMessage::Tick).ok();
        });
    }

    /// The CLI cancels a call of the newest MCP session.
    fn cancelled(&mut self, rpc_id: &str, reason: Option<String>) {
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
        let (answer, _, params) = waiting.iter().rev().find(|(_, id, _)| id.get() == rpc_id)?;
        answer.owed().cancel().then(|| (params.name.clone(), answer.owed().request_id.clone()))
    }

    fn state_made(&mut self, made: Result<Vec<AnyState>, String>) -> Result<(), ActorProcessingErr> {
        let states = match made {
            Ok(states) => states,
            Err(cause) => return Err(self.end(cause)),
        };
        let serves = Internal::ServerServes(self.spec.name.clone());
        // A supervisor that has ended takes the server with it.
        self.supervisor.cast(SessionMessage::Internal(serves)).ok();
        let instance = Instance::new(&self.spec, states, self.blocking.clone());
        if let Serving::Making { waiting, .. } =
            std::mem::replace(&mut self.serving, Serving::Ready(instance))
        {
            for (answer, id, params) in waiting {
                self.call(answer, &id, params);
            }
        }
        Ok(())
    }

    fn finished(&mut self, id: JobId, ending: Finish) -> Result<(), ActorProcessingErr> {
        let Some(job) = self.work.finish(id) else { return Ok(()) };
        if let Some(rpc_id) = &job.rpc_id
            && self.by_rpc_id.get(rpc_id) == Some(&id)
        {
            self.by_rpc_id.remove(rpc_id);
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
        let blocks = matches!(&self.serving, Serving::Ready(instance) if instance.blocks(&job.label));
        if blocks {
            self.shared.emit(Event::HandlerAbandoned {
                server: self.name.to_string(),
                tool: job.label.clone(),
                request_id: job.owed.request_id.clone(),
            });
        }
    }

    /// Answers for everything in flight and gives the reason why the actor ends.
    fn end(&mut self, cause: String) -> ActorProcessingErr {
        let said = format!("MCP server '{}' was restarted: {cause}", self.name);
        if let Serving::Making { waiting, .. } = &mut self.serving {
            for (answer, ..) in waiting.drain(..) {
                answer.owed().refuse(&RpcError::internal(format!(
                    "MCP server '{}' did not start: {cause}",
                    self.name
                )));
            }
        }
        self.work.set_ending(said);
        self.work.settle_all();
        cause.into()
    }

    fn tick(&mut self) {
        for job in self.work.expired(Instant::now()) {
            let Some(job) = self.work.get(job).filter(|job| job.owed.is_open()) else { continue };
            self.timed_out(&job.owed, &job.label, job.limit.unwrap_or_default());
        }
        self.arm();
    }

    fn timed_out(&self, owed: &Owed, tool: &str, limit: Duration) {
        owed.mcp_timed_out(CallToolResult::error(format!(
            "tool '{tool}' did not finish within its limit of {limit:?}"
        )));
        owed.cancel.cancel();
        self.shared.counting.timeouts.one();
        self.shared.emit(Event::CallTimedOut {
            server: self.name.to_string(),
            tool: tool.to_owned(),
            request_id: owed.request_id.clone(),
            limit,
        });
    }

    fn snapshot(&self) -> ServerSnapshot {
        let now = Instant::now();
        let mut calls: Vec<CallSnapshot> = self
            .work
            .jobs()
            .map(|job| CallSnapshot {
                request_id: job.owed.request_id.clone(),
                tool: job.label.clone(),
                tool_use_id: job.tool_use_id.clone(),
                age_ms: millis(now.duration_since(job.owed.received)),
                cancelled: job.owed.cancel.is_cancelled(),
            })
            .collect();
        calls.sort_by_key(|call| std::cmp::Reverse(call.age_ms));
        ServerSnapshot {
            name: self.name.to_string(),
            status: ServerStatus::Up,
            generation: self.generation,
            calls,
            blocking: self.blocking.running(),
            abandoned: self.blocking.abandoned(),
            mcp_sessions: self.session.sessions(),
        }
    }
}

/// Notifications of handlers go to the incarnation that the call came from.
struct LaneSink(Lane);

impl NotificationSink for LaneSink {
    fn notify<'a>(
        &'a self,
        server: &'a str,
        method: &'static str,
        params: Box<serde_json::value::RawValue>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let request_id = format!("{PUSH_PREFIX}{}", uuid::Uuid::new_v4());
            let body = OutMcp::new(server, Notification::new(method, Some(params)));
            match serde_json::to_vec(&OutRequest::new(&request_id, body)) {
                // An incarnation that has ended asks for no progress.
                Ok(json) => drop(self.0.send_with_room(json).await),
                Err(error) => tracing::debug!(%error, "a notification does not serialise"),
            }
        })
    }
}
