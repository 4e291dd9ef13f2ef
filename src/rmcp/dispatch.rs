//! The MCP session of a mounted server: what becomes of the messages of the CLI before the handler sees them.

use std::sync::Arc;

use ::rmcp::model::ClientJsonRpcMessage;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::instance::Mounted;
use super::{Meeting, lock};
use crate::tool::dispatch::{Run, Service, Step};
use crate::tool::registry::Lists;
use crate::wire::rpc::{CallMeta, CancelledParams, INVALID_REQUEST, Rpc, RpcError};

/// The methods that have a name of their own in spans and events.
const METHODS: [&str; 12] = [
    "initialize",
    "ping",
    "tools/call",
    "tools/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/list",
    "prompts/get",
    "completion/complete",
];

pub(super) struct MountedSession {
    /// Empty: the handler has its own.
    lists: Arc<Lists>,
    meeting: Arc<Meeting>,
    sessions: u64,
}

/// What is read of the parameters of any request.
#[derive(Default, Deserialize)]
struct Subject {
    name: Option<String>,
    uri: Option<String>,
    #[serde(rename = "_meta")]
    meta: Option<CallMeta>,
}

impl MountedSession {
    pub(super) fn new(lists: Arc<Lists>, meeting: Arc<Meeting>) -> Self {
        Self { lists, meeting, sessions: 0 }
    }

    fn request(&mut self, id: Box<RawValue>, method: String, params: Option<Box<RawValue>>) -> Step {
        self.sessions += u64::from(method == "initialize");
        // What cannot be read here is the handler's to refuse.
        let subject: Subject =
            params.as_deref().and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default();
        let run = Run {
            method: METHODS.into_iter().find(|known| *known == method).unwrap_or("another method"),
            subject: subject.name.or(subject.uri).unwrap_or_default(),
            meta: subject.meta.unwrap_or_default(),
            state: Some(0),
            timeout: None,
            start: Box::new(move |state, call| {
                Box::pin(async move {
                    match state.downcast::<Mounted>() {
                        Ok(mounted) => mounted.serve(call, &method, params).await,
                        Err(_) => Err(RpcError::internal("the state of the server is not its handler")),
                    }
                })
            }),
        };
        Step::Run { id, run }
    }

    fn notification(&self, method: &str, params: Option<Box<RawValue>>) -> Step {
        let params = params.as_deref().map_or("{}", RawValue::get);
        if method == "notifications/cancelled" {
            // One that names no request cancels none.
            return serde_json::from_str::<CancelledParams>(params).map_or(Step::Ack, Step::Cancelled);
        }
        let params = serde_json::from_str::<Value>(params).unwrap_or_default();
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        let door = lock(&self.meeting.door).as_ref().and_then(super::Door::upgrade);
        match (serde_json::from_value::<ClientJsonRpcMessage>(message), door) {
            // A handler that has just ended is followed by one that is told what matters.
            (Ok(message), Some(door)) => drop(door.send(message)),
            (Ok(_), None) => {}
            (Err(error), _) => tracing::debug!(method, %error, "a notification that cannot be read"),
        }
        Step::Ack
    }
}

impl Service for MountedSession {
    fn step(&mut self, rpc: Rpc) -> Step {
        match rpc {
            Rpc::Request { id, method, params } => self.request(id, method, params),
            Rpc::Notification { method, params } => self.notification(&method, params),
            Rpc::Response { id: Some(id), outcome } => Step::Answered { id, outcome },
            Rpc::Response { id: None, .. } => Step::Ack,
            Rpc::Malformed => Step::Reply {
                id: RawValue::NULL.to_owned(),
                outcome: Err(RpcError::new(INVALID_REQUEST, "not a JSON-RPC message")),
            },
        }
    }

    fn sessions(&self) -> u64 {
        self.sessions
    }

    fn lists(&self) -> &Arc<Lists> {
        &self.lists
    }

    fn opened(&mut self) {}

    fn refresh(&mut self) -> Vec<&'static str> {
        Vec::new()
    }
}
