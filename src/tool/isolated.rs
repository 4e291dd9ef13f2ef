//! A server without a session, for unit tests.

use std::sync::Arc;
use std::sync::Mutex;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::context::{Call, NoSink};
use super::dispatch::{McpSession, Step};
use super::instance::{BlockingLane, Instance};
use super::server::ServerSpec;
use crate::options::Limits;
use crate::wire::CallToolResult;
use crate::wire::rpc::{CallMeta, CallParams, Rpc, RpcError};

/// A server with a state of its own and no session around it. Calls run on the caller's task.
pub(crate) struct Isolated {
    spec: Arc<ServerSpec>,
    session: Mutex<McpSession>,
    instance: Result<Instance, String>,
}

impl Isolated {
    pub(crate) async fn start(spec: ServerSpec) -> Self {
        let blocking = BlockingLane::new(Limits::default().blocking_calls);
        let instance = spec.make_states().await.map(|states| Instance::new(&spec, states, blocking));
        let spec = Arc::new(spec);
        Self { session: Mutex::new(McpSession::new(spec.clone(), Arc::default())), spec, instance }
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> CallToolResult {
        let arguments = RawValue::from_string(arguments.to_string()).ok();
        let params = CallParams { name: tool.to_owned(), arguments, meta: None };
        match self.run("isolated".into(), params).await {
            Ok(result) => result,
            Err(error) => CallToolResult::error(error.message),
        }
    }

    pub(crate) async fn handle(&self, message: Value) -> Option<Value> {
        // A `Value` is always JSON text.
        let raw = RawValue::from_string(message.to_string()).ok()?;
        let step = {
            let mut session = self.session.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            session.step(Rpc::parse(&raw))
        };
        let (id, outcome) = match step {
            Step::Reply { id, outcome } => (id, outcome),
            Step::Call { id, params } => {
                let outcome = self.run(id.get().to_owned(), params).await;
                (id, outcome.map(|result| json!(result)))
            }
            Step::Cancelled(_) | Step::Ack => return None,
        };
        Some(match outcome {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
        })
    }

    async fn run(&self, request_id: String, params: CallParams) -> Result<CallToolResult, RpcError> {
        let instance = self.instance.as_ref().map_err(|cause| RpcError::internal(cause.clone()))?;
        let CallMeta { tool_use_id, progress_token } = params.meta.unwrap_or_default();
        let log_level = {
            let session = self.session.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            session.log_level().clone()
        };
        let call = Arc::new(Call {
            server: self.spec.name.as_str().into(),
            tool: params.name.clone(),
            request_id,
            tool_use_id,
            progress_token,
            deadline: None,
            cancel: CancellationToken::new(),
            generation: 1,
            log_level,
            sink: Arc::new(NoSink),
        });
        match instance.run(&params.name, call, params.arguments) {
            Some(run) => Ok(run.await.result(&params.name)),
            None => Err(RpcError::unknown_tool(&params.name)),
        }
    }
}
