//! Completion: values for an argument of a prompt or a variable of a resource template, while somebody writes it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::context::{Call, ToolContext};
use super::def::{AnyState, typed_state};
use super::dispatch::Outcome;
use super::resource::{rpc_error, wrong_state};
use crate::wire::RpcError;

/// What is to be completed.
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
    /// The argument or the variable.
    pub argument: String,
    /// What was written of it so far.
    pub value: String,
    /// The others, as far as they are known.
    pub arguments: BTreeMap<String, String>,
}

/// Suggested values. MCP allows no more than 100; further ones are cut off, and `has_more` says so.
///
/// ```
/// use greenroom::mcp::Completion;
///
/// let completion = Completion::new(["Paris", "Porto"]);
/// assert_eq!(completion.values.len(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Completion {
    /// The values, the best first.
    pub values: Vec<String>,
    /// How many there are in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<usize>,
    /// Whether there are more than these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_more: Option<bool>,
}

impl Completion {
    /// How many values an answer may hold.
    const MOST: usize = 100;

    /// These values, and no others.
    pub fn new(values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { values: values.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Of so many in all.
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

/// What becomes a completion: values as a `Vec` or an array of texts, a [`Completion`], or a `Result` of one of them, whose
/// error is a JSON-RPC error.
///
/// ```
/// use greenroom::mcp::IntoCompletion;
///
/// assert_eq!(["a", "b"].into_completion()?.values, ["a", "b"]);
/// # Ok::<(), greenroom::RpcError>(())
/// ```
pub trait IntoCompletion {
    /// The completion.
    ///
    /// # Errors
    /// What the CLI is answered instead.
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

/// A handler, with its types forgotten.
pub(crate) type Complete =
    Arc<dyn Fn(AnyState, Arc<Call>, CompletionRequest) -> BoxFuture<'static, Outcome> + Send + Sync>;

/// The handlers of one prompt or template, by argument.
#[derive(Clone, Default)]
pub(crate) struct Completers(Vec<(String, Complete)>);

impl Completers {
    pub(crate) fn add<S, F, Fut>(&mut self, argument: String, handler: F)
    where
        S: Send + Sync + 'static,
        F: Fn(CompletionRequest, ToolContext<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoCompletion> + Send,
    {
        let handler = Arc::new(handler);
        let complete: Complete = Arc::new(move |state, call, request| {
            let handler = handler.clone();
            Box::pin(async move {
                let state = typed_state::<S>(state).ok_or_else(wrong_state)?;
                let completion = handler(request, ToolContext::new(state, call)).await.into_completion()?;
                Ok(json!({ "completion": completion.cut() }))
            })
        });
        self.0.push((argument, complete));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, argument: &str) -> Option<&Complete> {
        self.0.iter().rev().find(|(name, _)| name == argument).map(|(_, complete)| complete)
    }

    /// The first that completes what is not there.
    pub(crate) fn unknown(&self, known: impl Fn(&str) -> bool) -> Option<&str> {
        self.0.iter().map(|(name, _)| name.as_str()).find(|name| !known(name))
    }
}
