//! The MCP session of a [`ToolServer`](crate::ToolServer): answers the requests that need no handler, and finds the
//! handler for the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::log_level::LogLevel;
use super::service::{HandlerRun, Service, ServiceStep};
use crate::options::Limits;
use crate::tool::define::completion::CompletionRequest;
use crate::tool::define::prompt::Given;
use crate::tool::define::resource::{ReadResource, ResourceSource};
use crate::tool::list::{List, Listable};
use crate::tool::registry::{Lists, Revisions};
use crate::tool::spec::ServerSpec;
use crate::wire::brief::Short;
use crate::wire::lenient::{object, read_object};
use crate::wire::rpc::{CallMeta, CallParams, CancelledParams, InitializeParams, RpcError, negotiate};

/// Longest URI of a subscription, in bytes: with the number of subscriptions, a bound on their memory.
const LONGEST_URI: usize = 8 << 10;

/// Makes what answers for a server: its own MCP session, or what is mounted.
pub(crate) fn service(spec: &Arc<ServerSpec>, limits: &Limits) -> Box<dyn Service> {
    match &spec.mount {
        Some(mount) => mount.service(spec),
        None => Box::new(McpSession::new(spec.clone(), limits.subscriptions_per_server)),
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
    most_subscriptions: usize,
}

/// The answer to a request that is not a tool call, or the handler that gives it.
enum Dispatched {
    Value(Value),
    Run(HandlerRun),
}

impl McpSession {
    pub(crate) fn new(spec: Arc<ServerSpec>, most_subscriptions: usize) -> Self {
        let lists = spec.registry.look();
        Self { spec, lists, known: Revisions::default(), sessions: 0, most_subscriptions }
    }

    fn answer(&mut self, method: &str, params: Option<&RawValue>) -> Result<Dispatched, RpcError> {
        let offers = |prefix: &str| match prefix {
            "resources" => self.lists.offers_resources(),
            "prompts" => self.lists.offers_prompts(),
            "completion" => self.lists.offers_completions(),
            _ => true,
        };
        if !method.split_once('/').is_none_or(|(prefix, _)| offers(prefix)) {
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
            "tools/list" => self.list(params, method, |lists| &lists.tools)?,
            "resources/list" => self.list(params, method, |lists| &lists.resources)?,
            "resources/templates/list" => self.list(params, method, |lists| &lists.templates)?,
            "resources/read" => return self.read(parse(params, method)?),
            "resources/subscribe" => {
                self.subscribe(&parse::<UriParams>(params, method)?.uri)?;
                json!({})
            }
            "resources/unsubscribe" => {
                self.spec.registry.unsubscribe(&parse::<UriParams>(params, method)?.uri);
                json!({})
            }
            "prompts/list" => self.list(params, method, |lists| &lists.prompts)?,
            "prompts/get" => return self.prompt(parse(params, method)?),
            "completion/complete" => return self.completion(parse(params, method)?),
            "logging/setLevel" => {
                self.spec.registry.log_level.set(parse::<SetLevelParams>(params, method)?.level);
                json!({})
            }
            _ => return Err(RpcError::unknown_method(method)),
        }))
    }

    fn list<T: Listable>(
        &self,
        params: Option<&RawValue>,
        method: &str,
        list: impl FnOnce(&Lists) -> &List<T>,
    ) -> Result<Value, RpcError> {
        let cursor = parse::<PageParams>(params, method)?.cursor;
        list(&self.lists).page(cursor.as_deref(), self.spec.page_size)
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

    fn subscribe(&self, uri: &str) -> Result<(), RpcError> {
        if uri.len() > LONGEST_URI {
            let text =
                format!("the URI has {} bytes, and one to subscribe to has at most {LONGEST_URI}", uri.len());
            return Err(RpcError::invalid_params(text));
        }
        let known = self.lists.resources.get(uri).is_some()
            || self.lists.templates.enabled().any(|item| item.definition.matches(uri).is_some());
        if !known {
            return Err(RpcError::resource_not_found(uri));
        }
        let most = self.most_subscriptions;
        if !self.spec.registry.subscribe(uri, most) {
            let server = &self.spec.name;
            let text = format!("at capacity: {most} resources of MCP server '{server}' are subscribed to");
            return Err(RpcError::internal(text));
        }
        Ok(())
    }

    fn prompt(&self, params: GetPromptParams) -> Result<Dispatched, RpcError> {
        let GetPromptParams { name, arguments, meta } = params;
        let item = self.lists.prompts.get(&name).ok_or_else(|| unknown("Prompt", &name))?;
        if let Some(missing) = item.definition.missing(&arguments) {
            let text = format!("prompt '{name}' needs the argument '{missing}'");
            return Err(RpcError::invalid_params(text));
        }
        let fill = item.definition.fill.clone();
        Ok(Dispatched::Run(HandlerRun {
            method: "prompts/get",
            state: item.state,
            timeout: item.definition.about.timeout,
            subject: name,
            meta: meta.unwrap_or_default(),
            start: Box::new(move |state, call| fill(state, call, arguments)),
        }))
    }

    /// An argument or variable without a handler has an empty completion.
    fn completion(&self, params: CompleteParams) -> Result<Dispatched, RpcError> {
        let CompleteParams { reference, argument, context, meta } = params;
        let (completers, state, timeout, subject) = match reference {
            Reference::Prompt { name } => {
                let item = self.lists.prompts.get(&name).ok_or_else(|| unknown("Prompt", &name))?;
                (&item.definition.completers, item.state, item.definition.about.timeout, name)
            }
            Reference::Resource { uri } => {
                let template = self.lists.templates.get(&uri);
                let item = template.ok_or_else(|| unknown("Resource template", &uri))?;
                (&item.definition.completers, item.state, item.definition.about.timeout, uri)
            }
        };
        let Some(complete) = completers.get(&argument.name).cloned() else {
            return Ok(Dispatched::Value(json!({ "completion": { "values": [] } })));
        };
        let request = CompletionRequest {
            argument: argument.name,
            value: argument.value,
            arguments: context.unwrap_or_default().arguments,
        };
        Ok(Dispatched::Run(HandlerRun {
            method: "completion/complete",
            subject,
            meta: meta.unwrap_or_default(),
            state,
            timeout,
            start: Box::new(move |state, call| complete(state, call, request)),
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

#[derive(Deserialize)]
struct GetPromptParams {
    name: String,
    #[serde(default)]
    arguments: Given,
    #[serde(default, rename = "_meta")]
    meta: Option<CallMeta>,
}

#[derive(Deserialize)]
struct CompleteParams {
    #[serde(rename = "ref", deserialize_with = "object")]
    reference: Reference,
    #[serde(deserialize_with = "object")]
    argument: Argument,
    #[serde(default)]
    context: Option<CompletionContext>,
    #[serde(default, rename = "_meta")]
    meta: Option<CallMeta>,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Reference {
    #[serde(rename = "ref/prompt")]
    Prompt { name: String },
    #[serde(rename = "ref/resource")]
    Resource { uri: String },
}

#[derive(Deserialize)]
struct Argument {
    name: String,
    value: String,
}

#[derive(Default, Deserialize)]
struct CompletionContext {
    #[serde(default)]
    arguments: Given,
}

#[derive(Deserialize)]
struct PageParams {
    #[serde(default)]
    cursor: Option<String>,
}

fn parse<'a, P: Deserialize<'a>>(params: Option<&'a RawValue>, method: &str) -> Result<P, RpcError> {
    read_object(params.map_or("{}", RawValue::get)).map_err(|error| {
        // The text may quote a value.
        let error = error.to_string();
        RpcError::invalid_params(format!("the parameters of '{method}' do not fit: {}", Short(&error)))
    })
}

fn unknown(what: &str, name: &str) -> RpcError {
    RpcError::invalid_params(format!("{what} '{}' not found", Short(name)))
}
