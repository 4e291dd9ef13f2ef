//! The MCP session of a [`ToolServer`](crate::ToolServer): answers the requests that need no handler, and finds the
//! handler for the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::log_level::LogLevel;
use super::service::{HandlerRun, Service, ServiceStep};
use crate::tool::define::resource::{ReadResource, ResourceSource};
use crate::tool::registry::{Lists, Revisions};
use crate::tool::spec::ServerSpec;
use crate::wire::brief::Short;
use crate::wire::lenient::read_object;
use crate::wire::rpc::{CallMeta, CallParams, CancelledParams, InitializeParams, RpcError, negotiate};

/// Makes what answers for a server: its own MCP session, or what is mounted.
pub(crate) fn service(spec: &Arc<ServerSpec>) -> Box<dyn Service> {
    match &spec.mount {
        Some(mount) => mount.service(spec),
        None => Box::new(McpSession::new(spec.clone())),
    }
}

/// The MCP session of a [`ToolServer`](crate::ToolServer).
pub(crate) struct McpSession {
    spec: Arc<ServerSpec>,
    lists: Arc<Lists>,
    /// The revisions of the lists that the CLI knows.
    known: Revisions,
    /// Number of `initialize` requests so far.
    sessions: u64,
}

/// The answer to a request that is not a tool call, or the handler that gives it.
enum Dispatched {
    Value(Value),
    Run(HandlerRun),
}

impl McpSession {
    pub(crate) fn new(spec: Arc<ServerSpec>) -> Self {
        let lists = spec.registry.look();
        Self { spec, lists, known: Revisions::default(), sessions: 0 }
    }

    fn answer(&mut self, method: &str, params: Option<&RawValue>) -> Result<Dispatched, RpcError> {
        if method.starts_with("resources/") && !self.lists.offers_resources() {
            return Err(RpcError::unknown_method(method));
        }
        Ok(Dispatched::Value(match method {
            "initialize" => {
                let params = parse::<InitializeParams>(params, method)?;
                self.sessions += 1;
                self.known = self.lists.revisions();
                self.spec.registry.announce(&self.lists);
                self.spec.initialize_result(&self.lists, negotiate(&params.protocol_version))
            }
            "ping" => json!({}),
            "tools/list" => self.lists.tools.to_wire(),
            "resources/list" => self.lists.resources.to_wire(),
            "resources/templates/list" => self.lists.templates.to_wire(),
            "resources/read" => return self.read(parse(params, method)?),
            "logging/setLevel" => {
                self.spec.registry.log_level.set(parse::<SetLevelParams>(params, method)?.level);
                json!({})
            }
            _ => return Err(RpcError::unknown_method(method)),
        }))
    }

    fn read(&self, UriParams { uri, meta }: UriParams) -> Result<Dispatched, RpcError> {
        let (read, state, timeout, mime_type, variables) = match self.lists.resources.get(&uri) {
            Some(item) => match &item.definition.source {
                ResourceSource::Fixed(contents) => {
                    let mut contents = contents.clone();
                    contents.mime_type.clone_from(&item.definition.mime_type);
                    return Ok(Dispatched::Value(json!({ "contents": [contents] })));
                }
                ResourceSource::Handler(read) => {
                    let def = &item.definition;
                    (read.clone(), item.state, def.about.timeout, def.mime_type.clone(), BTreeMap::new())
                }
            },
            None => {
                let mut templates = self.lists.templates.enabled();
                let (item, variables) = templates
                    .find_map(|item| Some((item, item.definition.matches(&uri)?)))
                    .ok_or_else(|| RpcError::resource_not_found(&uri))?;
                let def = &item.definition;
                (def.read.clone(), item.state, def.about.timeout, def.mime_type.clone(), variables)
            }
        };
        let request = ReadResource { uri: uri.clone(), variables };
        Ok(Dispatched::Run(HandlerRun {
            method: "resources/read",
            subject: uri,
            meta: meta.unwrap_or_default(),
            state,
            timeout,
            start: Box::new(move |state, call| read(state, call, (request, mime_type))),
        }))
    }
}

impl Service for McpSession {
    fn request(&mut self, id: Box<RawValue>, method: String, params: Option<Box<RawValue>>) -> ServiceStep {
        if method == "tools/call" {
            return match parse::<CallParams>(params.as_deref(), &method) {
                Ok(params) => ServiceStep::Call { id, params },
                Err(error) => ServiceStep::Reply { id, outcome: Err(error) },
            };
        }
        match self.answer(&method, params.as_deref()) {
            Ok(Dispatched::Run(run)) => ServiceStep::Run { id, run },
            Ok(Dispatched::Value(result)) => ServiceStep::Reply { id, outcome: Ok(result) },
            Err(error) => ServiceStep::Reply { id, outcome: Err(error) },
        }
    }

    fn notification(&mut self, method: &str, params: Option<Box<RawValue>>) -> ServiceStep {
        if method != "notifications/cancelled" {
            return ServiceStep::Ack;
        }
        match parse::<CancelledParams>(params.as_deref(), method) {
            Ok(params) => ServiceStep::Cancelled(params),
            Err(error) => {
                let (server, error) = (&self.spec.name, error.message);
                tracing::debug!(server, error, "a cancellation that names no request");
                ServiceStep::Ack
            }
        }
    }

    fn sessions(&self) -> u64 {
        self.sessions
    }

    fn lists(&self) -> &Arc<Lists> {
        &self.lists
    }

    fn opened(&mut self) {
        // A CLI that was told no lists will ask for the current ones.
        self.known = self.spec.registry.announced().unwrap_or_else(|| self.lists.revisions());
    }

    fn refresh(&mut self) -> Vec<&'static str> {
        self.lists = self.spec.registry.look();
        let now = self.lists.revisions();
        let news = now.news_since(&self.known).collect();
        self.known = now;
        news
    }
}

#[derive(Deserialize)]
struct SetLevelParams {
    level: LogLevel,
}

#[derive(Deserialize)]
struct UriParams {
    uri: String,
    #[serde(default, rename = "_meta")]
    meta: Option<CallMeta>,
}

fn parse<'a, P: Deserialize<'a>>(params: Option<&'a RawValue>, method: &str) -> Result<P, RpcError> {
    read_object(params.map_or("{}", RawValue::get)).map_err(|error| {
        // The text may quote a value.
        let error = error.to_string();
        RpcError::invalid_params(format!("the parameters of '{method}' do not fit: {}", Short(&error)))
    })
}
