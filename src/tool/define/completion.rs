//! Completion: suggested values for an argument of a prompt or a variable of a resource template.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::blocking::caught::DropElsewhere;
use crate::tool::run::context::ToolContext;
use crate::tool::run::erased::{HandlerFn, rpc_error, typed_state};
use crate::wire::RpcError;

/// A request to complete an argument or a variable.
///
/// ```
/// use greenroom::mcp::CompletionRequest;
///
/// fn cities(request: &CompletionRequest) -> Vec<&'static str> {
///     let all = match request.arguments.get("country").map(String::as_str) {
///         Some("fr") => vec!["Lyon", "Paris"],
///         _ => vec!["Lyon", "Paris", "Porto"],
///     };
///     all.into_iter().filter(|city| city.starts_with(&request.value)).collect()
/// }
/// # let _ = cities;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompletionRequest {
    /// Name of the argument or variable.
    pub argument: String,
    /// The text typed so far.
    pub value: String,
    /// The other arguments known so far.
    pub arguments: BTreeMap<String, String>,
}

/// Suggested values. MCP allows at most 100: further values are cut off, and `has_more` is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Completion {
    /// The values, best first.
    pub values: Vec<String>,
    /// Number of matching values, including those left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<usize>,
    /// Whether values were left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_more: Option<bool>,
}

impl Completion {
    /// MCP's bound on the values of an answer.
    const MOST: usize = 100;

    /// A completion with these values.
    pub fn new(values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { values: values.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Sets the number of matching values, and `has_more` from it.
    pub fn total(mut self, total: usize) -> Self {
        self.total = Some(total);
        self.has_more = Some(total > self.values.len());
        self
    }

    fn cut(mut self) -> Self {
        if self.values.len() > Self::MOST {
            self.total.get_or_insert(self.values.len());
            self.has_more = Some(true);
            self.values.truncate(Self::MOST);
        }
        self
    }
}

/// The return type of a completion handler: a `Vec` or an array of texts, a [`Completion`], or a `Result` of one of
/// these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no completion",
    label = "the trait `IntoCompletion` is missing for `{Self}`",
    note = "return a `Vec` or an array of texts, a `greenroom::mcp::Completion`, or a `Result` of these"
)]
pub trait IntoCompletion {
    /// Converts to a completion.
    ///
    /// # Errors
    /// The JSON-RPC error that the CLI gets instead.
    fn into_completion(self) -> Result<Completion, RpcError>;
}

impl IntoCompletion for Completion {
    fn into_completion(self) -> Result<Completion, RpcError> {
        Ok(self)
    }
}

impl<T: Into<String>> IntoCompletion for Vec<T> {
    fn into_completion(self) -> Result<Completion, RpcError> {
        Ok(Completion::new(self))
    }
}

impl<T: Into<String>, const N: usize> IntoCompletion for [T; N] {
    fn into_completion(self) -> Result<Completion, RpcError> {
        Ok(Completion::new(self))
    }
}

impl<T: IntoCompletion, E: Display + 'static> IntoCompletion for Result<T, E> {
    fn into_completion(self) -> Result<Completion, RpcError> {
        self.map_err(rpc_error)?.into_completion()
    }
}

/// The handlers of one prompt or template, by argument.
#[derive(Clone, Default)]
pub(crate) struct Completers(Vec<(String, HandlerFn<CompletionRequest>)>);

impl Completers {
    pub(crate) fn add<S, F, Fut>(&mut self, argument: String, handler: F)
    where
        S: Send + Sync + 'static,
        F: Fn(CompletionRequest, ToolContext<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoCompletion> + Send,
    {
        let handler = Arc::new(DropElsewhere::new(handler));
        let complete: HandlerFn<CompletionRequest> = Arc::new(move |state, call, request| {
            let handler = handler.clone();
            Box::pin(async move {
                let state = typed_state::<S>(state)?;
                let completion = handler(request, ToolContext::new(state, call)).await.into_completion()?;
                Ok(json!({ "completion": completion.cut() }))
            })
        });
        self.0.push((argument, complete));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, argument: &str) -> Option<&HandlerFn<CompletionRequest>> {
        self.0.iter().rev().find(|(name, _)| name == argument).map(|(_, complete)| complete)
    }

    /// The first argument with a handler that the prompt or template does not have.
    pub(crate) fn unknown(&self, known: impl Fn(&str) -> bool) -> Option<&str> {
        self.0.iter().map(|(name, _)| name.as_str()).find(|name| !known(name))
    }
}
