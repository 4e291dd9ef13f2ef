//! What can be the handler of a tool.

use std::future::Future;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::context::ToolContext;
use super::result::IntoToolResult;

/// What can be the handler of a tool: an async closure or function of the arguments, or of the arguments and the
/// [`ToolContext`]. Nobody has to implement it; `M` only tells the two forms apart.
///
/// A closure written `async move |…|` that uses something it has captured lends it to its future, which Rust does
/// not accept here. Keep what tools share in the server's state; or write a plain closure that returns an
/// `async move` block with clones of its own.
///
/// ```
/// use greenroom::{ToolContext, ToolServer};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Add { a: f64, b: f64 }
///
/// async fn subtract(args: Add, _cx: ToolContext) -> f64 {
///     args.a - args.b
/// }
///
/// let server = ToolServer::new("calc", "1.0.0")
///     .tool("add", "Add two numbers", async |args: Add| args.a + args.b)
///     .tool("subtract", "Subtract two numbers", subtract);
/// # let _: ToolServer = server;
/// ```
pub trait ToolHandler<S, M>: Send + Sync + 'static {
    /// The arguments: their fields, types and doc comments become the schema that the model sees.
    type Args: DeserializeOwned + JsonSchema + Send + 'static;
    /// What it returns.
    type Output: IntoToolResult;

    /// Runs the handler.
    fn call(&self, args: Self::Args, cx: ToolContext<S>) -> impl Future<Output = Self::Output> + Send;
}

impl<F, A, Fut, S> ToolHandler<S, fn(A)> for F
where
    F: Fn(A) -> Fut + Send + Sync + 'static,
    A: DeserializeOwned + JsonSchema + Send + 'static,
    Fut: Future<Output: IntoToolResult> + Send,
{
    type Args = A;
    type Output = Fut::Output;

    fn call(&self, args: A, _: ToolContext<S>) -> impl Future<Output = Fut::Output> + Send {
        self(args)
    }
}

impl<F, A, Fut, S> ToolHandler<S, fn(A, ToolContext<S>)> for F
where
    F: Fn(A, ToolContext<S>) -> Fut + Send + Sync + 'static,
    A: DeserializeOwned + JsonSchema + Send + 'static,
    Fut: Future<Output: IntoToolResult> + Send,
{
    type Args = A;
    type Output = Fut::Output;

    fn call(&self, args: A, cx: ToolContext<S>) -> impl Future<Output = Fut::Output> + Send {
        self(args, cx)
    }
}

/// The arguments of a tool that takes none. Whatever the model sends is ignored.
///
/// ```
/// use greenroom::{NoArgs, ToolServer};
///
/// let server = ToolServer::new("clock", "1.0.0").tool("now", "The time", async |_: NoArgs| "noon");
/// # let _: ToolServer = server;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(description = "")]
pub struct NoArgs {}
