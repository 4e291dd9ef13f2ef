//! The definition of a tool: what the model reads about the tool, and the handler that runs.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::about::{About, builder_methods};
use super::definition::{ToolAnnotations, ToolDefinition};
use super::handler::{ArgumentsSchema, IntoToolResult, ReadArguments, ToolHandler};
use super::validate::{OutputCheck, Validator, invalid, parse_arguments, rules_of};
use crate::blocking::caught::DropElsewhere;
use crate::options::schema;
use crate::tool::run::context::{CallContext, ToolContext};
use crate::tool::run::erased::{AnyState, Arguments, AsyncRun, CallEnd, ToolRunner, typed_state};
use crate::wire::CallToolResult;

/// The definition of a tool, for [`ToolServer::add_tool`](crate::ToolServer::add_tool).
///
/// The CLI knows two fields of `_meta` that have no method here: `anthropic/searchHint`, words for the tool search, and
/// `anthropic/maxResultSizeChars`, the longest result that the model reads in full. The CLI saves a longer result to a
/// file and shows its beginning.
///
/// ```
/// use std::time::Duration;
/// use greenroom::{NoArgs, ToolDef, ToolServer};
///
/// let list = ToolDef::new("list", "List the orders", async |_: NoArgs| "none")
///     .read_only_hint(true)
///     .always_load(true)
///     .timeout(Duration::from_secs(10))
///     .max_concurrency(4);
/// let server: ToolServer = ToolServer::new("orders", "1.0.0").add_tool(list);
/// # let _ = server;
/// ```
pub struct ToolDef<S = ()> {
    pub(crate) inner: ToolDefinition,
    state: PhantomData<fn(S)>,
}

impl<S: Send + Sync + 'static> ToolDef<S> {
    /// A tool that runs `handler`, on a task of the session.
    ///
    /// Arguments that do not fit their type never reach the handler: the result has `isError`, and names the path. With
    /// the feature `schema` this includes the rules of the type's schema that `serde` does not enforce, such as
    /// `#[schemars(range(min = 1))]`; arguments of a tool with such a rule must fit the whole schema, so that a
    /// `#[serde(alias)]` is refused. Rules of `format` are not checked. A whole number such as `1.0` is an integer.
    ///
    /// ```
    /// use greenroom::{ToolDef, ToolServer};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Roll {
    ///     #[schemars(range(min = 1, max = 10))]
    ///     count: u32,
    /// }
    ///
    /// let roll = ToolDef::new("roll", "Roll dice", async |args: Roll| args.count * 6);
    /// let game: ToolServer = ToolServer::new("game", "1.0.0").add_tool(roll);
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// // "Input validation error: `count`: 0 is less than the minimum of 1"
    /// assert_eq!(game.call("roll", serde_json::json!({ "count": 0 })).await.is_error, cfg!(feature = "schema"));
    /// # });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new<M, H>(name: impl Into<String>, description: impl Into<String>, handler: H) -> Self
    where
        H: ToolHandler<S, M> + Send + Sync + 'static,
        H::Args: ArgumentsSchema + ReadArguments + Send + 'static,
        H::Future: Future<Output: IntoToolResult> + Send + 'static,
    {
        let (input, output) = (schema::of::<H::Args>(), <H::Future as Future>::Output::output_schema());
        let rules = rules_of::<H::Args>(&input);
        let shared = Arc::new((DropElsewhere::new(handler), rules.clone()));
        let run: AsyncRun = Arc::new(move |state, call, arguments| {
            let shared = shared.clone();
            Box::pin(async move {
                let (handler, rules) = &*shared;
                let arguments = parse_arguments::<H::Args>(arguments, rules.as_ref());
                let (args, cx) = match prepared(state, call, arguments) {
                    Ok(prepared) => prepared,
                    Err(ran) => return ran,
                };
                returned(handler.call(args, cx).await)
            })
        });
        Self::build(name.into(), description.into(), (input, rules), output, ToolRunner::Async(run))
    }

    /// A tool that blocks its thread: `handler` runs on the runtime's blocking pool, at most
    /// [`Limits::blocking_calls`](crate::options::Limits::blocking_calls) of a server at once. Nothing can stop a
    /// blocking handler: it should check [`ToolContext::is_cancelled`] now and then. If it continues after a
    /// cancellation or a timeout, the call is answered, and the handler counts as abandoned.
    pub fn blocking<A, R>(
        name: impl Into<String>,
        description: impl Into<String>,
        handler: impl Fn(A, ToolContext<S>) -> R + Send + Sync + 'static,
    ) -> Self
    where
        A: ArgumentsSchema + ReadArguments + Send + 'static,
        R: IntoToolResult,
    {
        let input = schema::of::<A>();
        let rules = rules_of::<A>(&input);
        let (check, handler) = (rules.clone(), DropElsewhere::new(handler));
        let run = move |state, call, arguments| match prepared(
            state,
            call,
            parse_arguments(arguments, check.as_ref()),
        ) {
            Ok((args, cx)) => returned(handler(args, cx)),
            Err(ran) => ran,
        };
        let runner = ToolRunner::Blocking(Arc::new(run));
        Self::build(name.into(), description.into(), (input, rules), R::output_schema(), runner)
    }

    /// A tool with a hand-written schema, which must describe an object. With the feature `schema` arguments are
    /// checked before the handler runs: arguments that do not fit give a result with `isError` that names each path,
    /// and an invalid schema fails `start()`. Without the feature the handler gets the arguments unchecked.
    ///
    /// ```
    /// use greenroom::{ToolContext, ToolDef, ToolServer};
    /// use serde_json::{Value, json};
    ///
    /// let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]});
    /// let roll = ToolDef::raw("roll", "Roll dice", schema, async |args: Value, _: ToolContext| args["n"].to_string());
    /// let server: ToolServer = ToolServer::new("game", "1.0.0").add_tool(roll);
    /// # let _ = server;
    /// ```
    pub fn raw<R, Fut>(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: impl Into<Value>,
        handler: impl Fn(Value, ToolContext<S>) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        R: IntoToolResult,
        Fut: Future<Output = R> + Send + 'static,
    {
        let input_schema = object_or_empty(input_schema.into());
        let validator = Validator::new(&input_schema);
        let check = validator.clone();
        let parse = move |arguments: Arguments| {
            let args = parse_arguments::<Value>(arguments, None)?;
            check.check(&args).map_err(|what| invalid(&what))?;
            Ok(args)
        };
        let handler = DropElsewhere::new(handler);
        let run: AsyncRun = Arc::new(move |state, call, arguments| {
            let started = prepared(state, call, parse(arguments)).map(|(args, cx)| handler(args, cx));
            Box::pin(async move {
                match started {
                    Ok(future) => returned(future.await),
                    Err(ran) => ran,
                }
            })
        });
        let runner = ToolRunner::Async(run);
        let input = (input_schema, Some(validator));
        Self::build(name.into(), description.into(), input, R::output_schema(), runner)
    }

    fn build(
        name: String,
        description: String,
        (input_schema, input_check): (Map<String, Value>, Option<Validator>),
        output_schema: Option<Map<String, Value>>,
        runner: ToolRunner,
    ) -> Self {
        let inner = ToolDefinition {
            name,
            about: About { description: Some(description), ..About::default() },
            annotations: ToolAnnotations::default(),
            input_schema: input_schema.into(),
            output_schema: output_schema.map(Into::into),
            input_check,
            output_check: None,
            max_concurrency: None,
            runner,
        };
        Self { inner, state: PhantomData }
    }
}

impl<S> ToolDef<S> {
    builder_methods!(inner: meta, timeout);

    /// Sets all annotations at once.
    pub fn annotations(mut self, annotations: ToolAnnotations) -> Self {
        self.inner.annotations = annotations;
        self
    }

    /// Declares that the tool changes nothing. The CLI runs the calls of read-only tools at the same time, and all others
    /// one after another.
    pub fn read_only_hint(mut self, hint: bool) -> Self {
        self.inner.annotations.read_only_hint = Some(hint);
        self
    }

    /// Whether the model sees the tool from the start (`anthropic/alwaysLoad`). Otherwise the CLI may put the tool
    /// behind its tool search.
    pub fn always_load(self, always: bool) -> Self {
        self.meta("anthropic/alwaysLoad", always)
    }

    /// Sets the schema of the structured content from a type, where it does not follow from the handler's return type.
    /// A result whose structured content is missing or does not fit becomes a result with `isError` that says so.
    ///
    /// ```
    /// use greenroom::tool::{CallToolResult, Content};
    /// use greenroom::{NoArgs, ToolDef, ToolServer};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Weather { celsius: f64 }
    ///
    /// let weather = ToolDef::new("weather", "The weather", async |_: NoArgs| {
    ///     CallToolResult::new([Content::text("It is mild.")]).structured(serde_json::json!({"celsius": 17.5}))
    /// })
    /// .output::<Weather>();
    /// let server: ToolServer = ToolServer::new("sky", "1.0.0").add_tool(weather);
    /// # let _ = server;
    /// ```
    pub fn output<T: DeserializeOwned + JsonSchema>(self) -> Self {
        self.checked_output(schema::of::<T>(), OutputCheck::of_type::<T>())
    }

    /// Sets a hand-written schema of the structured content, which must describe an object. Results are checked against
    /// it with the feature `schema` only.
    pub fn output_schema(self, schema: impl Into<Value>) -> Self {
        let schema = object_or_empty(schema.into());
        let check = OutputCheck::Schema(Validator::new(&schema));
        self.checked_output(schema, check)
    }

    fn checked_output(mut self, schema: Map<String, Value>, check: OutputCheck) -> Self {
        self.inner.output_schema = Some(schema.into());
        self.inner.output_check = Some(check);
        self
    }

    /// Limits how many calls run at once, at least 1; further calls wait, and their time limit runs. Default: no limit.
    pub fn max_concurrency(mut self, calls: usize) -> Self {
        self.inner.max_concurrency = Some(calls);
        self
    }
}

impl<S> fmt::Debug for ToolDef<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolDef").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

/// A schema that is no object describes no object either: `validate` refuses the empty one.
fn object_or_empty(schema: Value) -> Map<String, Value> {
    match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    }
}

/// The arguments and the context of a call, or the end of a call that cannot begin.
fn prepared<A, S: Send + Sync + 'static>(
    state: AnyState,
    call: Arc<CallContext>,
    arguments: Result<A, String>,
) -> Result<(A, ToolContext<S>), CallEnd> {
    let state =
        typed_state(state).map_err(|error| CallEnd::Returned(CallToolResult::error(error.message)))?;
    Ok((
        arguments.map_err(|what| CallEnd::BadArguments(CallToolResult::error(what)))?,
        ToolContext::new(state, call),
    ))
}

/// The end of a call whose handler has returned.
fn returned(output: impl IntoToolResult) -> CallEnd {
    match output.logged() {
        Some(cause) => CallEnd::Failed { result: output.into_tool_result(), cause },
        None => CallEnd::Returned(output.into_tool_result()),
    }
}
