//! Prompts: texts that a server has ready, with arguments to fill in.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::about::{About, Role, about_methods};
use super::completion::{Completers, CompletionRequest, IntoCompletion};
use super::context::{Call, ToolContext};
use super::def::{AnyState, typed_state, validation_error};
use super::dispatch::Outcome;
use super::registry::Listed;
use super::resource::{rpc_error, wrong_state};
use super::schema;
use crate::error::{Error, Result};
use crate::wire::{Content, RpcError};

/// An argument of a prompt. Its value is a text.
///
/// ```
/// use greenroom::mcp::PromptArgument;
///
/// let topic = PromptArgument::required("topic").description("What to write about");
/// assert!(topic.required);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether it must be given.
    #[serde(default)]
    pub required: bool,
}

impl PromptArgument {
    /// An argument that must be given.
    pub fn required(name: impl Into<String>) -> Self {
        Self { name: name.into(), required: true, ..Self::default() }
    }

    /// An argument that may be given.
    pub fn optional(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// With this description.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}

/// One message of a prompt.
///
/// ```
/// use greenroom::Content;
/// use greenroom::mcp::PromptMessage;
///
/// let messages = [PromptMessage::user("Look at this."), PromptMessage::user(Content::image("aGk=", "image/png"))];
/// # let _ = messages;
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PromptMessage {
    /// Who says it.
    pub role: Role,
    /// What is said: any kind of content.
    pub content: Content,
}

impl PromptMessage {
    /// What the person says.
    pub fn user(content: impl Into<Content>) -> Self {
        Self { role: Role::User, content: content.into() }
    }

    /// What the model says.
    pub fn assistant(content: impl Into<Content>) -> Self {
        Self { role: Role::Assistant, content: content.into() }
    }
}

/// A prompt that is filled in: the answer to `prompts/get`.
///
/// ```
/// use greenroom::mcp::{GetPromptResult, PromptMessage};
///
/// let prompt = GetPromptResult::new([PromptMessage::user("Write a haiku.")]).description("A haiku");
/// assert_eq!(prompt.messages.len(), 1);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GetPromptResult {
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its messages.
    pub messages: Vec<PromptMessage>,
    /// What is meant for the client and not for the model.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

impl GetPromptResult {
    /// A prompt of these messages.
    pub fn new(messages: impl IntoIterator<Item = PromptMessage>) -> Self {
        Self { messages: messages.into_iter().collect(), ..Self::default() }
    }

    /// With this description.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}

/// What becomes a prompt: a text or a [`Content`] (what the person says), one [`PromptMessage`] or several, a
/// [`GetPromptResult`], or a `Result` of one of them, whose error is a JSON-RPC error: an [`RpcError`] as it is, any other
/// as -32603 with its text.
///
/// ```
/// use greenroom::mcp::IntoPrompt;
///
/// assert_eq!("Write a haiku.".into_prompt()?.messages.len(), 1);
/// # Ok::<(), greenroom::RpcError>(())
/// ```
pub trait IntoPrompt {
    /// The prompt.
    ///
    /// # Errors
    /// What the CLI is answered instead.
    fn into_prompt(self) -> Result<GetPromptResult, RpcError>;
}

macro_rules! user_says {
    ($($type:ty),*) => {$(
        impl IntoPrompt for $type {
            fn into_prompt(self) -> Result<GetPromptResult, RpcError> {
                Ok(GetPromptResult::new([PromptMessage::user(self)]))
            }
        }
    )*};
}

user_says!(String, &'static str, Content);

impl IntoPrompt for PromptMessage {
    fn into_prompt(self) -> Result<GetPromptResult, RpcError> {
        Ok(GetPromptResult::new([self]))
    }
}

impl IntoPrompt for Vec<PromptMessage> {
    fn into_prompt(self) -> Result<GetPromptResult, RpcError> {
        Ok(GetPromptResult::new(self))
    }
}

impl IntoPrompt for GetPromptResult {
    fn into_prompt(self) -> Result<GetPromptResult, RpcError> {
        Ok(self)
    }
}

impl<T: IntoPrompt, E: Display + 'static> IntoPrompt for Result<T, E> {
    fn into_prompt(self) -> Result<GetPromptResult, RpcError> {
        self.map_err(rpc_error)?.into_prompt()
    }
}

/// The arguments as they come.
pub(crate) type Given = BTreeMap<String, String>;

type Fill = Arc<dyn Fn(AnyState, Arc<Call>, Given) -> BoxFuture<'static, Outcome> + Send + Sync>;

/// One prompt, defined but not yet part of a server.
///
/// CLI 2.1.328 was seen to take no prompts from in-process servers: it never asks for `prompts/list`, and a prompt
/// `/mcp__SERVER__PROMPT` is a text like any other to it. They are served to whoever asks.
///
/// A handler runs under the promises of a tool call: as a task of its own, under the limit of
/// [`Timeouts::tool`](crate::Timeouts::tool) or its own; a panic is answered with an error.
///
/// ```
/// use greenroom::{PromptDef, ToolContext, ToolServer};
/// use greenroom::mcp::CompletionRequest;
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

/// A prompt, without the type of its state.
#[derive(Clone)]
pub(crate) struct PromptDefinition {
    about: About,
    arguments: Vec<PromptArgument>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) fill: Fill,
    pub(crate) completers: Completers,
}

impl<S: Send + Sync + 'static> PromptDef<S> {
    /// A prompt whose arguments are the fields of a struct: those that are required in their order, then the others by
    /// their names ([`arguments`](PromptDef::arguments) sets another order). MCP gives each as a text; for a field that is a
    /// number or a `bool` it is read as one. Arguments that do not fit are answered with -32602, and the field.
    pub fn new<A, F, Fut>(name: impl Into<String>, description: impl Into<String>, handler: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(A, ToolContext<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoPrompt> + Send,
    {
        let schema = Arc::new(schema::of::<A>());
        let arguments = arguments_of(&schema);
        let handler = Arc::new(handler);
        let fill: Fill = Arc::new(move |state, call, given| {
            let (handler, schema) = (handler.clone(), schema.clone());
            Box::pin(async move {
                let state = typed_state::<S>(state).ok_or_else(wrong_state)?;
                let args = serde_path_to_error::deserialize(typed(&schema, given))
                    .map_err(|error| RpcError::invalid_params(validation_error(&error)))?;
                filled(handler(args, ToolContext::new(state, call)).await)
            })
        });
        Self::build(name.into(), description.into(), arguments, fill)
    }

    /// A prompt whose arguments are listed by hand. The handler gets those that were given; a required one that was not is
    /// answered with -32602.
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
        let handler = Arc::new(handler);
        let fill: Fill = Arc::new(move |state, call, given| {
            let handler = handler.clone();
            Box::pin(async move {
                let state = typed_state::<S>(state).ok_or_else(wrong_state)?;
                filled(handler(given, ToolContext::new(state, call)).await)
            })
        });
        Self::build(name.into(), description.into(), arguments.into_iter().collect(), fill)
    }

    /// Suggests values of one of its arguments while somebody writes it (`completion/complete`).
    pub fn complete<F, Fut>(mut self, argument: impl Into<String>, handler: F) -> Self
    where
        F: Fn(CompletionRequest, ToolContext<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoCompletion> + Send,
    {
        self.inner.completers.add(argument.into(), handler);
        self
    }

    fn build(name: String, description: String, arguments: Vec<PromptArgument>, fill: Fill) -> Self {
        let mut about = About::new(name);
        about.description = Some(description).filter(|description| !description.is_empty());
        let inner =
            PromptDefinition { about, arguments, timeout: None, fill, completers: Completers::default() };
        Self { inner, state: PhantomData }
    }
}

impl<S> PromptDef<S> {
    about_methods!();

    /// Its arguments as they are listed: in another order, or with other descriptions.
    pub fn arguments(mut self, arguments: impl IntoIterator<Item = PromptArgument>) -> Self {
        self.inner.arguments = arguments.into_iter().collect();
        self
    }

    /// How long it may take, from the arrival of the request. Goes before [`Timeouts::tool`](crate::Timeouts::tool).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.inner.timeout = Some(timeout);
        self
    }
}

impl<S> fmt::Debug for PromptDef<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptDef").field("name", &self.inner.about.name).finish_non_exhaustive()
    }
}

fn filled(prompt: impl IntoPrompt) -> Outcome {
    Ok(json!(prompt.into_prompt()?))
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

/// The texts as the schema wants them.
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
    pub(crate) fn name(&self) -> &str {
        &self.about.name
    }

    /// The first argument that must be given and is not.
    pub(crate) fn missing(&self, given: &Given) -> Option<&str> {
        let missing = |argument: &&PromptArgument| argument.required && !given.contains_key(&argument.name);
        self.arguments.iter().find(missing).map(|argument| argument.name.as_str())
    }

    fn has(&self, name: &str) -> bool {
        self.arguments.iter().any(|argument| argument.name == name)
    }
}

impl Listed for PromptDefinition {
    const KIND: &'static str = "prompt";
    const FIELD: &'static str = "prompts";

    fn key(&self) -> &str {
        &self.about.name
    }

    fn listed(&self) -> Value {
        let mut entry = self.about.listed();
        entry.insert("arguments".into(), json!(self.arguments));
        Value::Object(entry)
    }

    fn validate(&self, server: &str) -> Result<()> {
        let fault = |what: String| {
            Err(Error::invalid_option(format!("prompt '{}' of server '{server}': {what}", self.name())))
        };
        if self.name().trim().is_empty() {
            return fault("it has no name".into());
        }
        match self.completers.unknown(|argument| self.has(argument)) {
            Some(argument) => fault(format!("it has no argument '{argument}' to complete")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Args {
        /// What it is about
        topic: String,
        lines: Option<u8>,
        author: String,
        #[serde(default)]
        rhymes: bool,
    }

    #[test]
    fn arguments_follow_from_the_type_required_ones_in_their_order_first() {
        let arguments = arguments_of(&schema::of::<Args>());
        let names: Vec<_> = arguments.iter().map(|argument| (&*argument.name, argument.required)).collect();
        assert_eq!(names, [("topic", true), ("author", true), ("lines", false), ("rhymes", false)]);
        assert_eq!(arguments[0].description.as_deref(), Some("What it is about"));
    }

    #[test]
    fn texts_become_what_the_type_wants() {
        let schema = schema::of::<Args>();
        let given = |pairs: &[(&str, &str)]| {
            let given = pairs.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect();
            serde_json::from_value::<Args>(typed(&schema, given))
        };
        let args =
            given(&[("topic", "7"), ("author", "true"), ("lines", " 5 "), ("rhymes", "true")]).unwrap();
        assert_eq!(args, Args { topic: "7".into(), lines: Some(5), author: "true".into(), rhymes: true });
        assert!(given(&[("topic", "7"), ("author", "a"), ("lines", "many")]).is_err());
    }
}
