//! The definition of a prompt: a text with arguments to fill in.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::about::{About, Listable, builder_methods};
use super::completion::Completers;
use super::prompt_message::{IntoPrompt, PromptArgument};
use super::validate::{Validator, parse_value, rules_of};
use crate::blocking::caught::DropElsewhere;
use crate::error::{Error, Result};
use crate::options::schema;
use crate::tool::run::context::ToolContext;
use crate::tool::run::erased::{HandlerFn, typed_state};
use crate::wire::RpcError;

/// The arguments of a request, as texts.
pub(crate) type Given = BTreeMap<String, String>;

/// The definition of a prompt, for [`ToolServer::prompt`](crate::ToolServer::prompt).
///
/// CLI 2.1.328 was seen to use no prompts of in-process servers: it never sends `prompts/list`, and passes
/// `/mcp__SERVER__PROMPT` on as plain text.
///
/// A handler has the promises of a tool call: a task of its own, a time limit, and an error answer if it panics.
///
/// ```
/// use greenroom::mcp::{CompletionRequest, PromptDef};
/// use greenroom::{ToolContext, ToolServer};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Haiku { /// What it is about
///     topic: String, lines: Option<u8> }
///
/// let haiku = PromptDef::new("haiku", "A haiku", async |args: Haiku, _: ToolContext| {
///     format!("Write a haiku of {} lines about {}.", args.lines.unwrap_or(3), args.topic)
/// })
/// .complete("topic", async |_: CompletionRequest, _: ToolContext| ["autumn", "rain"]);
/// let server: ToolServer = ToolServer::new("poet", "1.0.0").prompt(haiku);
/// # let _ = server;
/// ```
pub struct PromptDef<S = ()> {
    pub(crate) inner: PromptDefinition,
    state: PhantomData<fn(S)>,
}

/// A [`PromptDef`] without the type of its state.
#[derive(Clone)]
pub(crate) struct PromptDefinition {
    name: String,
    pub(crate) about: About,
    arguments: Vec<PromptArgument>,
    pub(crate) fill: HandlerFn<Given>,
    pub(crate) completers: Completers,
    /// The rules of the arguments' type that parsing does not enforce.
    rules: Option<Validator>,
}

impl<S: Send + Sync + 'static> PromptDef<S> {
    /// A prompt whose arguments are the fields of a struct: required ones in their order, then the others by name
    /// ([`arguments`](PromptDef::arguments) sets another order). MCP sends every argument as text; numbers and `bool`s
    /// are parsed. Arguments that do not fit are answered with -32602 and the name of the field. With the feature
    /// `schema` they must keep the rules of the type, as [those of a tool](crate::ToolDef::new).
    pub fn new<A, F, Fut>(name: impl Into<String>, description: impl Into<String>, handler: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(A, ToolContext<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoPrompt> + Send,
    {
        let schema = schema::of::<A>();
        let (arguments, rules) = (arguments_of(&schema), rules_of::<A>(&schema));
        let check = rules.clone();
        let mut def = Self::build(name.into(), description.into(), arguments, handler, move |given| {
            parse_value(typed(&schema, given), check.as_ref()).map_err(RpcError::invalid_params)
        });
        def.inner.rules = rules;
        def
    }

    /// A prompt with a hand-written list of arguments. The handler gets the given arguments as texts; a missing
    /// required one is answered with -32602.
    pub fn raw<F, Fut>(
        name: impl Into<String>,
        description: impl Into<String>,
        arguments: impl IntoIterator<Item = PromptArgument>,
        handler: F,
    ) -> Self
    where
        F: Fn(BTreeMap<String, String>, ToolContext<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoPrompt> + Send,
    {
        Self::build(name.into(), description.into(), arguments.into_iter().collect(), handler, Ok)
    }

    fn build<A, F, Fut>(
        name: String,
        description: String,
        arguments: Vec<PromptArgument>,
        handler: F,
        read: impl Fn(Given) -> Result<A, RpcError> + Send + Sync + 'static,
    ) -> Self
    where
        A: Send + 'static,
        F: Fn(A, ToolContext<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoPrompt> + Send,
    {
        let shared = Arc::new((DropElsewhere::new(handler), read));
        let fill: HandlerFn<Given> = Arc::new(move |state, call, given| {
            let shared = shared.clone();
            Box::pin(async move {
                let (handler, read) = &*shared;
                let state = typed_state::<S>(state)?;
                let prompt = handler(read(given)?, ToolContext::new(state, call)).await;
                Ok(json!(prompt.into_prompt()?))
            })
        });
        let description = Some(description).filter(|description| !description.is_empty());
        let about = About { description, ..About::default() };
        let inner =
            PromptDefinition { name, about, arguments, fill, completers: Completers::default(), rules: None };
        Self { inner, state: PhantomData }
    }

    builder_methods!(inner: complete);
}

impl<S> PromptDef<S> {
    builder_methods!(inner: title, description, icon, meta, timeout);

    /// Sets the listed arguments, in another order or with other descriptions.
    pub fn arguments(mut self, arguments: impl IntoIterator<Item = PromptArgument>) -> Self {
        self.inner.arguments = arguments.into_iter().collect();
        self
    }
}

impl<S> fmt::Debug for PromptDef<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptDef").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

/// The arguments that a schema describes.
fn arguments_of(schema: &Map<String, Value>) -> Vec<PromptArgument> {
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|required| required.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let optional = properties.keys().map(String::as_str).filter(|name| !required.contains(name));
    required
        .iter()
        .map(|name| (*name, true))
        .chain(optional.map(|name| (name, false)))
        .map(|(name, required)| PromptArgument {
            name: name.to_owned(),
            title: None,
            description: properties.get(name).and_then(|of| of["description"].as_str()).map(str::to_owned),
            required,
        })
        .collect()
}

/// Parses the texts that the schema declares as numbers or booleans.
fn typed(schema: &Map<String, Value>, given: Given) -> Value {
    let wanted = |name: &str| {
        let types = schema.get("properties").map(|properties| &properties[name]["type"]);
        let is = |wanted: &Value| matches!(wanted.as_str(), Some("integer" | "number" | "boolean"));
        types.is_some_and(|types| is(types) || types.as_array().is_some_and(|types| types.iter().any(is)))
    };
    let value = |(name, text): (String, String)| {
        let read = if wanted(&name) { serde_json::from_str::<Value>(text.trim()).ok() } else { None };
        let read = read.filter(|value| value.is_number() || value.is_boolean());
        (name, read.unwrap_or(Value::String(text)))
    };
    Value::Object(given.into_iter().map(value).collect())
}

impl PromptDefinition {
    /// The first required argument that is missing.
    pub(crate) fn missing(&self, given: &Given) -> Option<&str> {
        let missing = |argument: &&PromptArgument| argument.required && !given.contains_key(&argument.name);
        self.arguments.iter().find(missing).map(|argument| argument.name.as_str())
    }

    fn has(&self, name: &str) -> bool {
        self.arguments.iter().any(|argument| argument.name == name)
    }
}

impl Listable for PromptDefinition {
    const KIND: &'static str = "prompt";
    const FIELD: &'static str = "prompts";

    fn key(&self) -> &str {
        &self.name
    }

    fn listed(&self) -> Value {
        let mut entry = self.about.listed(&self.name);
        entry.insert("arguments".into(), json!(self.arguments));
        Value::Object(entry)
    }

    fn validate(&self, server: &str) -> Result<()> {
        let fault = |what: String| {
            Err(Error::invalid_option(format!("prompt '{}' of server '{server}': {what}", self.name)))
        };
        if self.name.trim().is_empty() {
            return fault("it has no name".into());
        }
        if let Some(what) = self.rules.as_ref().and_then(Validator::fault) {
            return fault(format!(
                "the schema of its arguments is not a valid JSON Schema: {what}; correct the `#[schemars(...)]` attributes of their type"
            ));
        }
        match self.completers.unknown(|argument| self.has(argument)) {
            Some(argument) => fault(format!("it has no argument '{argument}' to complete")),
            None => Ok(()),
        }
    }
}
