//! Arguments, messages and results of prompts.

use std::fmt::Display;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::about::Role;
use crate::error::Result;
use crate::tool::run::erased::rpc_error;
use crate::wire::{Content, RpcError};

/// An argument of a prompt; its value is a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PromptArgument {
    /// Name of the argument.
    pub name: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A description for the model and for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether a request without the argument is refused.
    #[serde(default)]
    pub required: bool,
}

impl PromptArgument {
    /// A required argument.
    pub fn required(name: impl Into<String>) -> Self {
        Self { name: name.into(), required: true, ..Self::default() }
    }

    /// An optional argument.
    pub fn optional(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Sets the description.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}

/// A message of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PromptMessage {
    /// The speaker.
    pub role: Role,
    /// Any kind of content.
    pub content: Content,
}

impl PromptMessage {
    /// A message of the user.
    pub fn user(content: impl Into<Content>) -> Self {
        Self { role: Role::User, content: content.into() }
    }

    /// A message of the model.
    pub fn assistant(content: impl Into<Content>) -> Self {
        Self { role: Role::Assistant, content: content.into() }
    }
}

/// A filled-in prompt: the answer to `prompts/get`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GetPromptResult {
    /// A description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The messages, in order.
    pub messages: Vec<PromptMessage>,
    /// Data for the client; the model does not read it.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

impl GetPromptResult {
    /// A prompt with these messages.
    pub fn new(messages: impl IntoIterator<Item = PromptMessage>) -> Self {
        Self { messages: messages.into_iter().collect(), ..Self::default() }
    }

    /// Sets the description.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}

/// The return type of a prompt handler: a text or a [`Content`] as the user's message, one [`PromptMessage`] or
/// several, a [`GetPromptResult`], or a `Result` of one of these. An error becomes a JSON-RPC error: an [`RpcError`]
/// unchanged, any other -32603 with its text.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no answer of a prompt",
    label = "the trait `IntoPrompt` is missing for `{Self}`",
    note = "return a text, a `Content`, a `PromptMessage` or a `Vec` of it, a `GetPromptResult`, or a `Result` of these"
)]
pub trait IntoPrompt {
    /// Converts to a prompt.
    ///
    /// # Errors
    /// The JSON-RPC error that the CLI gets instead.
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
