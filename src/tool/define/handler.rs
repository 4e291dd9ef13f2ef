//! The handler of a tool, and what it may return.

use std::borrow::Cow;
use std::fmt::Display;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::options::schema;
use crate::tool::error::ToolError;
use crate::tool::run::context::ToolContext;
use crate::wire::{CallToolResult, Content};

/// The handler of a tool: an async closure or function of the arguments, or of the arguments and the [`ToolContext`].
/// You need not implement the trait; `M` only tells the two forms apart.
///
/// Rust rejects an `async move |…|` closure here that uses a captured value, because its future borrows from the
/// closure. Keep shared values in the server's state, or write a plain closure that returns an `async move` block with
/// clones.
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
// The implementations ask for the number of arguments and nothing else, because rustc names no inner bound of an
// implementation when there are two. `ToolDef::new` asks for the rest, bound by bound, so that the missing bound is named.
#[diagnostic::on_unimplemented(
    message = "this cannot be the handler of a tool",
    label = "not an async function or closure of `(Args)` or `(Args, ToolContext<{S}>)` that can be called many times",
    note = "a handler takes its arguments as one struct, or as `greenroom::NoArgs`: `async |args: Args| ...`",
    note = "the second argument is `cx: greenroom::ToolContext<State>`: all tools before `.state(...)` have the same \
            `State`, and a tool with another state is added after it",
    note = "an `async move` closure cannot use what it captures, and no handler can change it or use it up; write a plain \
            closure with clones: `move |args: Args| {{ let pool = pool.clone(); async move {{ ... }} }}`"
)]
pub trait ToolHandler<S, M> {
    /// The arguments.
    type Args;
    /// The future of a call, which is `Send` and whose output is an [`IntoToolResult`].
    type Future;

    /// Runs the handler.
    fn call(&self, args: Self::Args, cx: ToolContext<S>) -> Self::Future;
}

#[diagnostic::do_not_recommend]
impl<F: Fn(A) -> R, A, R, S> ToolHandler<S, fn(A)> for F {
    type Args = A;
    type Future = R;

    fn call(&self, args: A, _: ToolContext<S>) -> R {
        self(args)
    }
}

#[diagnostic::do_not_recommend]
impl<F: Fn(A, ToolContext<S>) -> R, A, R, S> ToolHandler<S, fn(A, ToolContext<S>)> for F {
    type Args = A;
    type Future = R;

    fn call(&self, args: A, cx: ToolContext<S>) -> R {
        self(args, cx)
    }
}

/// Types with a JSON Schema, which the model needs of a tool's arguments: all types that implement [`JsonSchema`]. You
/// need not implement this trait; derive `schemars::JsonSchema`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a tool: it does not implement `schemars::JsonSchema`",
    label = "the model needs the JSON Schema of `{Self}`",
    note = "write `#[derive(serde::Deserialize, schemars::JsonSchema)]` above `{Self}`",
    note = "a tool whose schema is written by hand is made with `greenroom::ToolDef::raw`"
)]
pub trait ArgumentsSchema: JsonSchema {}

#[diagnostic::do_not_recommend]
impl<T: JsonSchema> ArgumentsSchema for T {}

/// Types that are read from the JSON of a tool call: all types that implement [`DeserializeOwned`]. You need not
/// implement this trait; derive `serde::Deserialize`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a tool: it does not implement `serde::Deserialize`",
    label = "the model's JSON cannot be read as `{Self}`",
    note = "write `#[derive(serde::Deserialize, schemars::JsonSchema)]` above `{Self}`, whose fields own their values (`String`, not `&str`)"
)]
pub trait ReadArguments: DeserializeOwned {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned> ReadArguments for T {}

/// The arguments of a tool without arguments. Arguments that the model sends are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct NoArgs {}

impl JsonSchema for NoArgs {
    fn schema_name() -> Cow<'static, str> {
        "NoArgs".into()
    }

    fn schema_id() -> Cow<'static, str> {
        concat!(module_path!(), "::NoArgs").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}

/// The return type of a tool handler.
///
/// | a handler returns | the model reads |
/// |---|---|
/// | text (`String`, `&'static str`, `Cow`), a number, a `bool` | that text |
/// | `()` | `done` |
/// | [`Json<T>`] | the value as JSON text, and as structured content with an output schema if it is an object |
/// | `serde_json::Value` | the value as JSON text |
/// | [`Content`], `Vec<Content>` | those blocks |
/// | [`CallToolResult`] | exactly that |
/// | `Result<T, E>` | `T`, or a result with `isError` and the text of `E` |
/// | [`tool::Result<T>`](crate::tool::Result) | `T`, or a result with `isError` and the text for the model; the cause is logged |
///
/// ```
/// use greenroom::tool::CallToolResult;
/// use greenroom::IntoToolResult;
///
/// assert_eq!(8.5.into_tool_result().text(), "8.5");
/// let failed: Result<String, std::num::ParseIntError> = "x".parse::<i32>().map(|n| n.to_string());
/// assert!(failed.into_tool_result().is_error);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no result of a tool",
    label = "the trait `IntoToolResult` is missing for `{Self}`",
    note = "return text, a number, a `bool`, `()`, a `serde_json::Value`, or a `Result` of these whose error implements `Display`",
    note = "return a struct as `greenroom::Json(value)`, with `#[derive(serde::Serialize, schemars::JsonSchema)]` above the struct",
    note = "for anything else, write `impl greenroom::IntoToolResult for {Self}`, or return a `greenroom::tool::CallToolResult`"
)]
pub trait IntoToolResult {
    /// Converts to a result.
    fn into_tool_result(self) -> CallToolResult;

    /// The schema of the structured content, if every result has one.
    #[doc(hidden)]
    fn output_schema() -> Option<Map<String, Value>> {
        None
    }

    /// The text for the log, if the result is an error with one.
    #[doc(hidden)]
    fn logged(&self) -> Option<String> {
        None
    }
}

impl IntoToolResult for CallToolResult {
    fn into_tool_result(self) -> CallToolResult {
        self
    }
}

impl IntoToolResult for Content {
    fn into_tool_result(self) -> CallToolResult {
        CallToolResult::new([self])
    }
}

impl IntoToolResult for Vec<Content> {
    fn into_tool_result(self) -> CallToolResult {
        CallToolResult::new(self)
    }
}

impl IntoToolResult for () {
    fn into_tool_result(self) -> CallToolResult {
        // After an empty result models call the tool again to be sure.
        CallToolResult::new([Content::text("done")])
    }
}

macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl IntoToolResult for $type {
            fn into_tool_result(self) -> CallToolResult {
                CallToolResult::new([Content::text(self.to_string())])
            }
        }
    )*};
}

as_text!(
    &'static str,
    Cow<'static, str>,
    bool,
    char,
    i8,
    i16,
    i32,
    i64,
    i128,
    isize,
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    f32,
    f64
);

impl IntoToolResult for String {
    fn into_tool_result(self) -> CallToolResult {
        CallToolResult::new([Content::text(self)])
    }
}

impl IntoToolResult for Value {
    fn into_tool_result(self) -> CallToolResult {
        CallToolResult::new([Content::text(self.to_string())])
    }
}

impl<T: IntoToolResult, E: Display + 'static> IntoToolResult for Result<T, E> {
    fn into_tool_result(self) -> CallToolResult {
        match self {
            Ok(value) => value.into_tool_result(),
            // The alternate form prints the whole chain of causes of an `anyhow::Error`.
            Err(error) => CallToolResult::error(format!("{error:#}")),
        }
    }

    fn output_schema() -> Option<Map<String, Value>> {
        T::output_schema()
    }

    fn logged(&self) -> Option<String> {
        match self {
            Ok(value) => value.logged(),
            Err(error) => ToolError::logged(error),
        }
    }
}

/// A value to return as JSON: as text for the model, and as structured content with an output schema if it is an
/// object.
///
/// ```
/// use greenroom::{IntoToolResult, Json};
///
/// #[derive(serde::Serialize, schemars::JsonSchema)]
/// struct Sum { value: f64 }
///
/// let result = Json(Sum { value: 8.0 }).into_tool_result();
/// assert_eq!(result.text(), r#"{"value":8.0}"#);
/// assert_eq!(result.structured_content, Some(serde_json::json!({"value": 8.0})));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: Serialize + JsonSchema> IntoToolResult for Json<T> {
    fn into_tool_result(self) -> CallToolResult {
        match serde_json::to_value(&self.0) {
            Ok(value) => {
                // Serialised directly, because a `Value` loses the order of the fields.
                let text = serde_json::to_string(&self.0).unwrap_or_else(|_| value.to_string());
                let result = CallToolResult::new([Content::text(text)]);
                if value.is_object() { result.structured(value) } else { result }
            }
            Err(error) => CallToolResult::error(format!("the result does not serialise: {error}")),
        }
    }

    fn output_schema() -> Option<Map<String, Value>> {
        Some(schema::of::<T>()).filter(schema::is_object)
    }
}
