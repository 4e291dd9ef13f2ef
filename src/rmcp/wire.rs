//! The transport of the service loop: passes on to the CLI what a handler sends with its peer.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use ::rmcp::RoleServer;
use ::rmcp::model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage};
use ::rmcp::transport::Transport;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::Door;
use crate::lock::lock;
use crate::tool::run::context::CallContext;
use crate::tool::spec::ServerSpec;
use crate::wire::rpc::METHOD_NOT_FOUND;

/// The requests that the handler works on, by the ids that it sees.
#[derive(Default)]
pub(super) struct OpenCalls {
    next: AtomicI64,
    calls: Mutex<HashMap<i64, Arc<CallContext>>>,
}

/// Removes its request from the open ones when dropped.
pub(super) struct OpenGuard<'a> {
    open: &'a OpenCalls,
    pub(super) id: i64,
}

impl OpenCalls {
    pub(super) fn next_id(&self) -> i64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn begin(&self, call: Arc<CallContext>) -> OpenGuard<'_> {
        let id = self.next_id();
        lock(&self.calls).insert(id, call);
        OpenGuard { open: self, id }
    }

    /// The call with this progress token.
    fn call(&self, token: &Value) -> Option<Arc<CallContext>> {
        lock(&self.calls).get(&token.as_i64()?).cloned()
    }
}

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        lock(&self.open.calls).remove(&self.id);
    }
}

/// Both directions of the loop.
pub(super) struct LoopTransport {
    pub(super) inbound: mpsc::UnboundedReceiver<ClientJsonRpcMessage>,
    pub(super) outlet: Outlet,
}

/// The way to the CLI.
#[derive(Clone)]
pub(super) struct Outlet {
    spec: Arc<ServerSpec>,
    open: Arc<OpenCalls>,
    door: Door,
}

impl Outlet {
    pub(super) fn new(spec: Arc<ServerSpec>, open: Arc<OpenCalls>, door: Door) -> Self {
        Self { spec, open, door }
    }

    async fn send(self, message: ServerJsonRpcMessage) -> serde_json::Result<()> {
        match message {
            ServerJsonRpcMessage::Notification(notification) => {
                let (method, params) = parts(serde_json::to_value(notification)?);
                self.notify(&method, params).await
            }
            ServerJsonRpcMessage::Request(request) => {
                let id = request.id.clone();
                let (method, _) = parts(serde_json::to_value(request)?);
                self.answer(&id, &method)
            }
            // The loop gets no requests, so it sends no answers.
            ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_) => Ok(()),
        }
    }

    async fn notify(self, method: &str, mut params: Value) -> serde_json::Result<()> {
        match method {
            // Its requests were answered.
            "notifications/cancelled" => {}
            "notifications/progress" => {
                let Some(call) = self.open.call(&params["progressToken"]) else { return Ok(()) };
                if call.cancel().is_cancelled() {
                    return Ok(());
                }
                params["progressToken"] = json!(call.progress_token());
                call.notify(method, to_raw_value(&params)?).await;
            }
            _ => {
                if let Some(peer) = self.spec.registry.peer() {
                    peer.notify(&self.spec.name, method, to_raw_value(&params)?).await;
                }
            }
        }
        Ok(())
    }

    /// Answers a request of the handler, as CLI 2.1.328 was seen to: it answers `ping`, and refuses any other request of an
    /// in-process server.
    fn answer(self, id: &RequestId, method: &str) -> serde_json::Result<()> {
        let answer = match method {
            "ping" => json!({ "jsonrpc": "2.0", "id": id, "result": {} }),
            _ => {
                let text = format!("the CLI takes no request '{method}' of an in-process server");
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": METHOD_NOT_FOUND, "message": text } })
            }
        };
        if let Some(door) = self.door.upgrade() {
            // Fails only if the loop has ended.
            door.send(serde_json::from_value(answer)?).ok();
        }
        Ok(())
    }
}

/// The method and the parameters of a message; an empty object without parameters.
fn parts(mut message: Value) -> (String, Value) {
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    let params = message["params"].take();
    (method, if params.is_null() { json!({}) } else { params })
}

impl Transport<RoleServer> for LoopTransport {
    type Error = Infallible;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        let outlet = self.outlet.clone();
        async move {
            if let Err(error) = outlet.send(message).await {
                tracing::debug!(%error, "a message of an rmcp handler that cannot be passed on");
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.inbound.recv().await
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
