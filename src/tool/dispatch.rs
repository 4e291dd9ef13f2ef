//! Which JSON-RPC message asks for what: the MCP session of one server, without IO and without running a handler.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::context::{LevelFilter, LogLevel};
use super::server::ServerSpec;
use crate::wire::rpc::{
    CallParams, CancelledParams, INVALID_PARAMS, INVALID_REQUEST, InitializeParams, Rpc, RpcError, negotiate,
};

/// What a message asks for.
#[derive(Debug)]
pub(crate) enum Step {
    /// This is the answer.
    Reply { id: Box<RawValue>, outcome: Result<Value, RpcError> },
    /// A tool is called.
    Call { id: Box<RawValue>, params: CallParams },
    /// The request with this id of the newest MCP session is cancelled.
    Cancelled(CancelledParams),
    /// Nothing is to be done; over the control protocol it is acknowledged.
    Ack,
}

/// The MCP session of one server. A new `initialize` begins a new one: ids of requests count anew then.
#[derive(Debug)]
pub(crate) struct McpSession {
    spec: Arc<ServerSpec>,
    log_level: Arc<LevelFilter>,
    /// How many `initialize` requests there were.
    sessions: u64,
}

impl std::fmt::Debug for ServerSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerSpec").field("name", &self.name).finish_non_exhaustive()
    }
}

impl McpSession {
    pub(crate) fn new(spec: Arc<ServerSpec>, log_level: Arc<LevelFilter>) -> Self {
        Self { spec, log_level, sessions: 0 }
    }

    pub(crate) fn log_level(&self) -> &Arc<LevelFilter> {
        &self.log_level
    }

    /// How many MCP sessions were begun with `initialize`.
    pub(crate) fn sessions(&self) -> u64 {
        self.sessions
    }

    /// Tells what a message asks for.
    pub(crate) fn step(&mut self, rpc: Rpc) -> Step {
        match rpc {
            Rpc::Request { id, method, params } => self.request(id, &method, params),
            Rpc::Notification { method, params } => self.notification(&method, params),
            Rpc::Response { error, .. } => {
                if let Some(error) = error {
                    tracing::debug!(
                        server = self.spec.name,
                        error = error.get(),
                        "the CLI refused a request of a server"
                    );
                }
                Step::Ack
            }
            Rpc::Malformed => Step::Reply {
                id: RawValue::NULL.to_owned(),
                outcome: Err(RpcError::new(INVALID_REQUEST, "not a JSON-RPC message")),
            },
        }
    }

    fn request(&mut self, id: Box<RawValue>, method: &str, params: Option<Box<RawValue>>) -> Step {
        let outcome = match method {
            "tools/call" => match parse::<CallParams>(params.as_deref(), method) {
                Ok(params) => return Step::Call { id, params },
                Err(error) => Err(error),
            },
            "initialize" => parse::<InitializeParams>(params.as_deref(), method).map(|params| {
                self.sessions += 1;
                self.spec.initialize_result(negotiate(&params.protocol_version))
            }),
            "ping" => Ok(json!({})),
            "tools/list" => Ok(self.spec.tools_list_result()),
            "logging/setLevel" => parse::<SetLevel>(params.as_deref(), method).map(|params| {
                self.log_level.set(params.level);
                json!({})
            }),
            _ => Err(RpcError::unknown_method(method)),
        };
        Step::Reply { id, outcome }
    }

    fn notification(&mut self, method: &str, params: Option<Box<RawValue>>) -> Step {
        if method != "notifications/cancelled" {
            return Step::Ack;
        }
        match parse::<CancelledParams>(params.as_deref(), method) {
            Ok(params) => Step::Cancelled(params),
            Err(error) => {
                tracing::debug!(
                    server = self.spec.name,
                    error = error.message,
                    "a cancellation that names no request"
                );
                Step::Ack
            }
        }
    }
}

#[derive(serde::Deserialize)]
struct SetLevel {
    level: LogLevel,
}

fn parse<P: DeserializeOwned>(params: Option<&RawValue>, method: &str) -> Result<P, RpcError> {
    serde_json::from_str(params.map_or("{}", RawValue::get)).map_err(|error| {
        RpcError::new(INVALID_PARAMS, format!("the parameters of '{method}' do not fit: {error}"))
    })
}
