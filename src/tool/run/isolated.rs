//! A server without a session, for unit tests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::blocking::BlockingLane;
use super::context::{CallContext, Link, Named};
use super::dispatch::service;
use super::erased::{HandlerResult, panicked, run_caught};
use super::instance::{Instance, Tools};
use super::peer::Alone;
use super::service::{HandlerRun, Service, ServiceStep, late_error, late_result};
use crate::identity::{Identity, TestSession};
use crate::lock::lock;
use crate::options::{FOREVER, Limits, Timeouts};
use crate::tool::spec::ServerSpec;
use crate::tool::state::StateContext;
use crate::wire::CallToolResult;
use crate::wire::rpc::{CallParams, Rpc, RpcError};

/// A server with states of its own and without a session. Handlers run on the caller's task.
pub(crate) struct Isolated {
    session: Mutex<Box<dyn Service>>,
    instance: Result<Instance, String>,
    link: Arc<Link>,
}

impl Isolated {
    pub(crate) async fn start(spec: ServerSpec, test_session: TestSession) -> Self {
        let blocking = BlockingLane::new(Limits::default().blocking_calls);
        let spec = Arc::new(spec);
        let session = service(&spec);
        let identity: Arc<dyn Identity> = Arc::new(test_session);
        let cx = StateContext {
            identity: identity.clone(),
            server: spec.name.as_str().into(),
            generation: 1,
            restart_cause: None,
        };
        let instance = spec
            .make_states(cx)
            .await
            .map(|states| Instance::new(Tools::default(), session.lists(), states, blocking));
        let (server, log_level) = (spec.name.clone(), spec.registry.log_level.clone());
        let link = Arc::new(Link { server, log_level, identity, handle: None });
        Self { session: Mutex::new(session), link, instance }
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value, arrived: Instant) -> CallToolResult {
        let params = json!({ "name": tool, "arguments": arguments });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let mut answer = self.handle(message, arrived).await.unwrap_or_default();
        match serde_json::from_value(answer["result"].take()) {
            Ok(result) => result,
            Err(_) => CallToolResult::error(answer["error"]["message"].as_str().unwrap_or("no result")),
        }
    }

    pub(crate) async fn handle(&self, message: Value, arrived: Instant) -> Option<Value> {
        // A `Value` always serialises to JSON.
        let raw = RawValue::from_string(message.to_string()).ok()?;
        let step = {
            let mut session = lock(&self.session);
            session.step(Rpc::parse(&raw))
        };
        let (id, outcome) = match step {
            ServiceStep::Reply { id, outcome } => (id, outcome),
            ServiceStep::Call { id, params } => {
                let outcome = self.run(id.get().to_owned(), params, arrived).await;
                (id, outcome.map(|result| json!(result)))
            }
            ServiceStep::Run { id, run } => {
                let outcome = self.run_other(id.get().to_owned(), run, arrived).await;
                (id, outcome)
            }
            ServiceStep::Cancelled(_) | ServiceStep::Unasked | ServiceStep::Ack => return None,
        };
        Some(match outcome {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
        })
    }

    async fn run(
        &self,
        request_id: String,
        params: CallParams,
        arrived: Instant,
    ) -> Result<CallToolResult, RpcError> {
        let instance = self.instance.as_ref().map_err(|cause| RpcError::internal(cause.clone()))?;
        let (name, meta) = (params.name, params.meta.unwrap_or_default());
        let tool = instance.tool(&name).ok_or_else(|| RpcError::unknown_tool(&name))?;
        let limit = tool.timeout();
        let call = self.context(request_id, Named::new(name.clone(), meta), arrived, limit);
        let handler = instance.run(tool, call.clone(), params.arguments);
        match self.within(call, limit, handler).await {
            Ok(ended) => Ok(ended.result(&name)),
            Err(limit) => Ok(late_result(&name, limit)),
        }
    }

    async fn run_other(&self, request_id: String, run: HandlerRun, arrived: Instant) -> HandlerResult {
        let instance = self.instance.as_ref().map_err(|cause| RpcError::internal(cause.clone()))?;
        let (label, is_tool, limit) = (run.label(), run.is_tool(), run.timeout);
        let call = self.context(request_id, Named::new(run.subject, run.meta), arrived, limit);
        let handler = Box::pin(run_caught(run.start, instance.state(run.state), call.clone()));
        match self.within(call, limit, handler).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => Err(panicked(&label, &panic)),
            Err(limit) if is_tool => Ok(json!(late_result(&label, limit))),
            Err(limit) => Err(late_error(&label, limit)),
        }
    }

    /// Runs a handler up to its limit, which `Err` returns, and then for its grace time. A session answers before the
    /// grace time; here nothing of the handler is left when the caller gets the answer.
    async fn within<T>(
        &self,
        call: Arc<CallContext>,
        limit: Option<Duration>,
        mut handler: impl Future<Output = T> + Unpin,
    ) -> Result<T, Duration> {
        let late = limit.unwrap_or_default();
        if call.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            // The limit has passed while the state was made.
            return Err(late);
        }
        let mut running = Running { call: call.clone(), returned: false };
        let expired = async {
            match call.deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = &mut handler => {
                running.returned = true;
                return Ok(ended);
            }
            () = expired => {}
        }
        call.cancel().cancel();
        tokio::select! {
            biased;
            _ = handler => {}
            () = sleep(Timeouts::default().cancel_grace) => {}
        }
        Err(late)
    }

    fn context(
        &self,
        request_id: String,
        named: Named,
        arrived: Instant,
        limit: Option<Duration>,
    ) -> Arc<CallContext> {
        let request = Arc::new(Alone::new(&request_id, &named.subject));
        let deadline = limit.map(|limit| arrived + limit.min(FOREVER));
        Arc::new(CallContext::new(request, self.link.clone(), Some(named), deadline, 1))
    }
}

/// A handler. If dropped before the handler has returned, cancels its token.
struct Running {
    call: Arc<CallContext>,
    returned: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.returned {
            self.call.cancel().cancel();
        }
    }
}
