//! A server without a session, for unit tests.

use std::sync::Arc;
use std::sync::Mutex;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::blocking::BlockingLane;
use super::caught::{panicked, run_caught};
use super::context::{CallContext, Named};
use super::dispatch::service;
use super::erased::HandlerResult;
use super::instance::{Instance, Tools};
use super::peer::Alone;
use super::service::{HandlerRun, Service, ServiceStep};
use crate::identity::{Identity, TestSession};
use crate::lock::lock;
use crate::options::Limits;
use crate::tool::spec::ServerSpec;
use crate::tool::state::StateContext;
use crate::wire::CallToolResult;
use crate::wire::rpc::{CallMeta, CallParams, Rpc, RpcError};

/// A server with states of its own and without a session. Calls run on the caller's task.
pub(crate) struct Isolated {
    spec: Arc<ServerSpec>,
    session: Mutex<Box<dyn Service>>,
    instance: Result<Instance, String>,
    identity: Arc<dyn Identity>,
}

impl Isolated {
    pub(crate) async fn start(spec: ServerSpec, test_session: TestSession) -> Self {
        let blocking = BlockingLane::new(Limits::default().blocking_calls);
        let spec = Arc::new(spec);
        let session = service(&spec, &Limits::default());
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
        Self { session: Mutex::new(session), spec, instance, identity }
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> CallToolResult {
        if self.spec.is_mounted() {
            return self.call_mounted(tool, arguments).await;
        }
        let arguments = RawValue::from_string(arguments.to_string()).ok();
        let params = CallParams { name: tool.to_owned(), arguments, meta: None };
        match self.run("isolated".into(), params).await {
            Ok(result) => result,
            Err(error) => CallToolResult::error(error.message),
        }
    }

    /// A call of a mounted server, which runs its tools itself.
    async fn call_mounted(&self, tool: &str, arguments: Value) -> CallToolResult {
        let params = json!({ "name": tool, "arguments": arguments });
        let message = json!({ "jsonrpc": "2.0", "id": 0, "method": "tools/call", "params": params });
        let mut answer = self.handle(message).await.unwrap_or_default();
        match serde_json::from_value(answer["result"].take()) {
            Ok(result) => result,
            Err(_) => CallToolResult::error(answer["error"]["message"].as_str().unwrap_or("no result")),
        }
    }

    pub(crate) async fn handle(&self, message: Value) -> Option<Value> {
        // A `Value` always serialises to JSON.
        let raw = RawValue::from_string(message.to_string()).ok()?;
        let step = {
            let mut session = lock(&self.session);
            session.step(Rpc::parse(&raw))
        };
        let (id, outcome) = match step {
            ServiceStep::Reply { id, outcome } => (id, outcome),
            ServiceStep::Call { id, params } => {
                let outcome = self.run(id.get().to_owned(), params).await;
                (id, outcome.map(|result| json!(result)))
            }
            ServiceStep::Run { id, run } => {
                let outcome = self.run_other(id.get().to_owned(), run).await;
                (id, outcome)
            }
            ServiceStep::Cancelled(_) | ServiceStep::Answered { .. } | ServiceStep::Ack => return None,
        };
        Some(match outcome {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
        })
    }

    async fn run(&self, request_id: String, params: CallParams) -> Result<CallToolResult, RpcError> {
        let instance = self.instance.as_ref().map_err(|cause| RpcError::internal(cause.clone()))?;
        let (name, meta) = (params.name, params.meta.unwrap_or_default());
        let tool = instance.tool(&name).ok_or_else(|| RpcError::unknown_tool(&name))?;
        let call = self.context(request_id, name.clone(), meta);
        Ok(instance.run(tool, call, params.arguments).await.result(&name))
    }

    async fn run_other(&self, request_id: String, run: HandlerRun) -> HandlerResult {
        let instance = self.instance.as_ref().map_err(|cause| RpcError::internal(cause.clone()))?;
        let label = run.label();
        let call = self.context(request_id, run.subject, run.meta);
        let state = instance.state(run.state);
        run_caught(run.start, state, call).await.unwrap_or_else(|panic| Err(panicked(&label, &panic)))
    }

    fn context(&self, request_id: String, subject: String, meta: CallMeta) -> Arc<CallContext> {
        let log_level = self.spec.registry.log_level.clone();
        let caller = Alone::new(&self.spec.name, &request_id, &subject, log_level, self.identity.clone());
        Arc::new(CallContext { named: Some(Named::new(subject, meta)), deadline: None, caller })
    }
}
