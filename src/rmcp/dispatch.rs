//! The MCP session of a mounted server: hands the messages of the CLI to the handler.

use std::sync::Arc;

use ::rmcp::model::ClientJsonRpcMessage;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Meeting;
use super::instance::Mounted;
use crate::lock::lock;
use crate::tool::registry::Lists;
use crate::tool::run::service::{HandlerRun, Service, ServiceStep};
use crate::wire::lenient::read_object;
use crate::wire::rpc::{CallMeta, CancelledParams, RpcError};

/// The methods named in spans and events. All others share one name, so that a CLI cannot make up names.
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
    /// Empty: the handler has lists of its own.
    lists: Arc<Lists>,
    meeting: Arc<Meeting>,
    sessions: u64,
}

/// The parameters that name the subject of a request.
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
}

impl Service for MountedSession {
    fn request(&mut self, id: Box<RawValue>, method: String, params: Option<Box<RawValue>>) -> ServiceStep {
        self.sessions += u64::from(method == "initialize");
        // The handler refuses parameters that cannot be read.
        let subject: Subject =
            params.as_deref().and_then(|params| read_object(params.get()).ok()).unwrap_or_default();
        let run = HandlerRun {
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
        ServiceStep::Run { id, run }
    }

    fn notification(&mut self, method: &str, params: Option<Box<RawValue>>) -> ServiceStep {
        let params = params.as_deref().map_or("{}", RawValue::get);
        if method == "notifications/cancelled" {
            // A cancellation that cannot be read is dropped.
            return read_object::<CancelledParams>(params).map_or(ServiceStep::Ack, ServiceStep::Cancelled);
        }
        let params = serde_json::from_str::<Value>(params).unwrap_or_default();
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        let door = lock(&self.meeting.door).as_ref().and_then(super::Door::upgrade);
        match (serde_json::from_value::<ClientJsonRpcMessage>(message), door) {
            // If the handler has just ended, the next one gets `initialize` and `initialized` anyway.
            (Ok(message), Some(door)) => drop(door.send(message)),
            (Ok(_), None) => {}
            (Err(error), _) => tracing::debug!(method, %error, "a notification that cannot be read"),
        }
        ServiceStep::Ack
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
