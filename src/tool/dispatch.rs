//! Which JSON-RPC message asks for what: the MCP session of one server, without IO and without running a handler.
//!
//! [`Service`] is what the actor of a server drives. [`McpSession`] is the one of a [`ToolServer`](crate::ToolServer).

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::completion::CompletionRequest;
use super::context::{Call, LogLevel};
use super::def::AnyState;
use super::instance::drop_elsewhere;
use super::prompt::Given;
use super::registry::{Entry, List, Listed, Lists, Revisions};
use super::resource::{ReadResource, Source, TemplateDefinition};
use super::server::ServerSpec;
use crate::wire::Resource;
use crate::wire::rpc::{
    CallMeta, CallParams, CancelledParams, INVALID_PARAMS, INVALID_REQUEST, InitializeParams, Rpc, RpcError,
    negotiate,
};

/// What takes the messages that the CLI sends to one MCP server: its MCP session. It lives as long as the server's actor
/// and is called by it alone, in the order in which the messages come. It runs no code of the application itself: what
/// needs some comes back as [`Step::Call`] or [`Step::Run`], and runs as a task under the promises of a tool call.
pub(crate) trait Service: Send {
    /// Tells what a message asks for.
    fn step(&mut self, rpc: Rpc) -> Step;

    /// How many MCP sessions were begun with `initialize`. A new one counts the ids of its requests anew.
    fn sessions(&self) -> u64;

    /// What the server offers at this moment.
    fn lists(&self) -> &Arc<Lists>;

    /// Another CLI is there, or the same one after a restart of the server's actor. It knows what it was told when it met
    /// the server.
    fn opened(&mut self);

    /// What the server offers may have changed: returns the notifications of which the CLI has to be told.
    fn refresh(&mut self) -> Vec<&'static str>;
}

/// What a message asks for.
pub(crate) enum Step {
    /// This is the answer.
    Reply { id: Box<RawValue>, outcome: Result<Value, RpcError> },
    /// A tool is called.
    Call { id: Box<RawValue>, params: CallParams },
    /// Another handler has to run.
    Run { id: Box<RawValue>, run: Run },
    /// The request with this id of the newest MCP session is cancelled.
    Cancelled(CancelledParams),
    /// The CLI answers a request of the server.
    Answered { id: Box<RawValue>, outcome: Result<Box<RawValue>, RpcError> },
    /// Nothing is to be done; over the control protocol it is acknowledged.
    Ack,
}

/// How a handler that is no tool's ends.
pub(crate) type Outcome = Result<Value, RpcError>;

/// A handler to be run for a request, which is no tool call.
pub(crate) struct Run {
    /// The method of the request.
    pub(crate) method: &'static str,
    /// What it asks for: a URI, or a name.
    pub(crate) subject: String,
    pub(crate) meta: CallMeta,
    /// Which of the server's states the handler is given.
    pub(crate) state: Option<usize>,
    /// How long it may take, where that is not the session's limit.
    pub(crate) timeout: Option<std::time::Duration>,
    /// Makes the future that runs it. It may panic, and so may the future.
    pub(crate) start: Start,
}

/// Makes the future of a handler.
pub(crate) type Start = Box<dyn FnOnce(AnyState, Arc<Call>) -> BoxFuture<'static, Outcome> + Send>;

impl Run {
    /// Whether it is a call of a tool, by a server that knows its tools alone.
    pub(crate) fn is_tool(&self) -> bool {
        self.method == "tools/call"
    }

    /// For people: the tool, or the method and what it asks for.
    pub(crate) fn label(&self) -> String {
        match (self.is_tool(), &*self.subject) {
            (true, tool) => tool.to_owned(),
            (false, "") => self.method.to_owned(),
            (false, subject) => format!("{} {subject}", self.method),
        }
    }
}

/// The MCP session of one server. A new `initialize` begins a new one: ids of requests count anew then.
pub(crate) struct McpSession {
    spec: Arc<ServerSpec>,
    lists: Arc<Lists>,
    /// What the CLI knows of the lists.
    known: Revisions,
    /// How many `initialize` requests there were.
    sessions: u64,
    most_subscriptions: usize,
}

impl McpSession {
    pub(crate) fn new(spec: Arc<ServerSpec>, most_subscriptions: usize) -> Self {
        let lists = spec.registry.look();
        Self { spec, lists, known: Revisions::default(), sessions: 0, most_subscriptions }
    }

    fn request(&mut self, id: Box<RawValue>, method: &str, params: Option<Box<RawValue>>) -> Step {
        let outcome = match method {
            "tools/call" => match parse::<CallParams>(params.as_deref(), method) {
                Ok(params) => return Step::Call { id, params },
                Err(error) => Err(error),
            },
            "initialize" => parse::<InitializeParams>(params.as_deref(), method).map(|params| {
                self.sessions += 1;
                self.known = self.lists.revisions();
                self.spec.registry.announce(&self.lists);
                self.spec.initialize_result(&self.lists, negotiate(&params.protocol_version))
            }),
            "ping" => Ok(json!({})),
            "tools/list" => self.list(params.as_deref(), method, |lists| &lists.tools),
            _ if method.starts_with("resources/") && self.lists.offers_resources() => {
                return self.resources(id, method, params.as_deref());
            }
            "prompts/list" if self.lists.offers_prompts() => {
                self.list(params.as_deref(), method, |lists| &lists.prompts)
            }
            "prompts/get" if self.lists.offers_prompts() => match self.prompt(params.as_deref(), method) {
                Ok(run) => return Step::Run { id, run },
                Err(error) => Err(error),
            },
            "completion/complete" if self.lists.offers_completions() => {
                match self.completion(params.as_deref(), method) {
                    Ok(Some(run)) => return Step::Run { id, run },
                    Ok(None) => Ok(json!({ "completion": { "values": [] } })),
                    Err(error) => Err(error),
                }
            }
            "logging/setLevel" => parse::<SetLevel>(params.as_deref(), method).map(|params| {
                self.spec.registry.log_level.set(params.level);
                json!({})
            }),
            _ => Err(RpcError::unknown_method(method)),
        };
        Step::Reply { id, outcome }
    }

    fn list<T: Listed>(
        &self,
        params: Option<&RawValue>,
        method: &str,
        list: impl FnOnce(&Lists) -> &List<T>,
    ) -> Result<Value, RpcError> {
        let cursor = parse::<Page>(params, method)?.cursor;
        list(&self.lists).page(cursor.as_deref(), self.spec.page_size)
    }

    fn resources(&self, id: Box<RawValue>, method: &str, params: Option<&RawValue>) -> Step {
        let outcome = match method {
            "resources/list" => self.list(params, method, |lists| &lists.resources),
            "resources/templates/list" => self.list(params, method, |lists| &lists.templates),
            "resources/read" => match parse::<Uri>(params, method).and_then(|asked| self.read(asked)) {
                Ok(Read::Fixed(contents)) => Ok(json!({ "contents": [contents] })),
                Ok(Read::Run(run)) => return Step::Run { id, run },
                Err(error) => Err(error),
            },
            "resources/subscribe" => {
                parse::<Uri>(params, method).and_then(|asked| self.subscribe(&asked.uri))
            }
            "resources/unsubscribe" => parse::<Uri>(params, method).map(|asked| {
                self.spec.registry.unsubscribe(&asked.uri);
                json!({})
            }),
            _ => Err(RpcError::unknown_method(method)),
        };
        Step::Reply { id, outcome }
    }

    fn read(&self, asked: Uri) -> Result<Read, RpcError> {
        let Uri { uri, meta } = asked;
        let (read, state, timeout, mime_type, variables) = match self.lists.resources.get(&uri) {
            Some(entry) => match &entry.definition.source {
                Source::Fixed(contents) => return Ok(Read::Fixed(contents.clone())),
                Source::Handler(read) => {
                    let def = &entry.definition;
                    (read.clone(), entry.state, def.timeout, def.mime_type.clone(), BTreeMap::new())
                }
            },
            None => {
                let fits = |entry| Self::variables(entry, &uri).map(|variables| (entry, variables));
                let (entry, variables) = self
                    .lists
                    .templates
                    .enabled()
                    .find_map(fits)
                    .ok_or_else(|| RpcError::resource_not_found(&uri))?;
                let def = &entry.definition;
                (def.read.clone(), entry.state, def.timeout, def.mime_type.clone(), variables)
            }
        };
        let request = ReadResource { uri: uri.clone(), variables };
        Ok(Read::Run(Run {
            method: "resources/read",
            subject: uri,
            meta: meta.unwrap_or_default(),
            state,
            timeout,
            start: Box::new(move |state, call| read(state, call, request, mime_type)),
        }))
    }

    fn variables(entry: &Entry<TemplateDefinition>, uri: &str) -> Option<BTreeMap<String, String>> {
        entry.definition.matches(uri)
    }

    fn subscribe(&self, uri: &str) -> Result<Value, RpcError> {
        let known = self.lists.resources.get(uri).is_some()
            || self.lists.templates.enabled().any(|entry| entry.definition.matches(uri).is_some());
        if !known {
            return Err(RpcError::resource_not_found(uri));
        }
        let most = self.most_subscriptions;
        if !self.spec.registry.subscribe(uri, most) {
            let server = &self.spec.name;
            let text = format!("at capacity: {most} resources of MCP server '{server}' are subscribed to");
            return Err(RpcError::internal(text));
        }
        Ok(json!({}))
    }

    fn prompt(&self, params: Option<&RawValue>, method: &str) -> Result<Run, RpcError> {
        let GetPrompt { name, arguments, meta } = parse(params, method)?;
        let unknown = || RpcError::invalid_params(format!("Prompt '{name}' not found"));
        let entry = self.lists.prompts.get(&name).ok_or_else(unknown)?;
        if let Some(missing) = entry.definition.missing(&arguments) {
            let text = format!("prompt '{name}' needs the argument '{missing}'");
            return Err(RpcError::invalid_params(text));
        }
        let fill = entry.definition.fill.clone();
        Ok(Run {
            method: "prompts/get",
            state: entry.state,
            timeout: entry.definition.timeout,
            subject: name,
            meta: meta.unwrap_or_default(),
            start: Box::new(move |state, call| fill(state, call, arguments)),
        })
    }

    /// `None` if there is such a thing, and nothing is suggested for this argument of it.
    fn completion(&self, params: Option<&RawValue>, method: &str) -> Result<Option<Run>, RpcError> {
        let Complete { reference, argument, context, meta } = parse(params, method)?;
        let (found, timeout, subject) = match reference {
            Reference::Prompt { name } => {
                let unknown = || RpcError::invalid_params(format!("Prompt '{name}' not found"));
                let entry = self.lists.prompts.get(&name).ok_or_else(unknown)?;
                let complete = entry.definition.completers.get(&argument.name).cloned();
                (complete.map(|complete| (complete, entry.state)), entry.definition.timeout, name)
            }
            Reference::Resource { uri } => {
                let unknown = || RpcError::invalid_params(format!("Resource template '{uri}' not found"));
                let entry = self.lists.templates.get(&uri).ok_or_else(unknown)?;
                let complete = entry.definition.completers.get(&argument.name).cloned();
                (complete.map(|complete| (complete, entry.state)), entry.definition.timeout, uri)
            }
        };
        let request = CompletionRequest {
            argument: argument.name,
            value: argument.value,
            arguments: context.unwrap_or_default().arguments,
        };
        Ok(found.map(|(complete, state)| Run {
            method: "completion/complete",
            subject,
            meta: meta.unwrap_or_default(),
            state,
            timeout,
            start: Box::new(move |state, call| complete(state, call, request)),
        }))
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

impl Drop for McpSession {
    fn drop(&mut self) {
        drop_elsewhere(std::mem::take(&mut self.lists));
    }
}

impl Service for McpSession {
    fn step(&mut self, rpc: Rpc) -> Step {
        match rpc {
            Rpc::Request { id, method, params } => self.request(id, &method, params),
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

    fn opened(&mut self) {
        // One that has not met the server will ask for its lists.
        self.known = self.spec.registry.announced().unwrap_or_else(|| self.lists.revisions());
    }

    fn refresh(&mut self) -> Vec<&'static str> {
        // What was removed may be in these alone.
        drop_elsewhere(std::mem::replace(&mut self.lists, self.spec.registry.look()));
        let now = self.lists.revisions();
        let news = now.news_since(&self.known).collect();
        self.known = now;
        news
    }
}

#[derive(serde::Deserialize)]
struct SetLevel {
    level: LogLevel,
}

/// What is to be read.
enum Read {
    Fixed(Resource),
    Run(Run),
}

#[derive(serde::Deserialize)]
struct Uri {
    uri: String,
    #[serde(default, rename = "_meta")]
    meta: Option<CallMeta>,
}

#[derive(serde::Deserialize)]
struct GetPrompt {
    name: String,
    #[serde(default)]
    arguments: Given,
    #[serde(default, rename = "_meta")]
    meta: Option<CallMeta>,
}

#[derive(serde::Deserialize)]
struct Complete {
    #[serde(rename = "ref")]
    reference: Reference,
    argument: Argument,
    #[serde(default)]
    context: Option<Context>,
    #[serde(default, rename = "_meta")]
    meta: Option<CallMeta>,
}

#[derive(serde::Deserialize)]
#[serde(tag = "type")]
enum Reference {
    #[serde(rename = "ref/prompt")]
    Prompt { name: String },
    #[serde(rename = "ref/resource")]
    Resource { uri: String },
}

#[derive(serde::Deserialize)]
struct Argument {
    name: String,
    value: String,
}

#[derive(Default, serde::Deserialize)]
struct Context {
    #[serde(default)]
    arguments: Given,
}

#[derive(serde::Deserialize)]
struct Page {
    #[serde(default)]
    cursor: Option<String>,
}

fn parse<P: DeserializeOwned>(params: Option<&RawValue>, method: &str) -> Result<P, RpcError> {
    serde_json::from_str(params.map_or("{}", RawValue::get)).map_err(|error| {
        RpcError::new(INVALID_PARAMS, format!("the parameters of '{method}' do not fit: {error}"))
    })
}
