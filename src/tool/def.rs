//! One tool: what the model is told of it, and what runs when it is called.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::about::Icon;
use super::context::{Call, ToolContext};
use super::handler::ToolHandler;
use super::registry::Listed;
use super::result::IntoToolResult;
use super::schema;
use super::validate::{OutputCheck, Validator};
use crate::error::{Error, Result};
use crate::wire::CallToolResult;
use crate::wire::message::read::mend;

/// The state of a server, its type forgotten.
pub(crate) type AnyState = Arc<dyn Any + Send + Sync>;

pub(crate) type AsyncRun =
    Arc<dyn Fn(AnyState, Arc<Call>, Arguments) -> BoxFuture<'static, Ran> + Send + Sync>;
type BlockingRun = Arc<dyn Fn(AnyState, Arc<Call>, Arguments) -> Ran + Send + Sync>;

/// The arguments of a call, not yet looked at.
pub(crate) type Arguments = Option<Box<RawValue>>;

/// How a handler came to its end when it did not panic.
pub(crate) enum Ran {
    Returned(CallToolResult),
    /// The arguments did not fit; the handler was not called.
    BadArguments(String),
}

/// On which lane a handler runs.
#[derive(Clone)]
pub(crate) enum Lane {
    /// A task of the runtime.
    Async(AsyncRun),
    /// A thread of the runtime's blocking pool.
    Blocking(BlockingRun),
}

/// What MCP lets a server say about a tool. Hints: nothing is enforced by them.
///
/// The CLI runs the calls of one message at the same time only when their tools are read-only.
///
/// ```
/// use greenroom::ToolAnnotations;
///
/// let annotations = ToolAnnotations { read_only_hint: Some(true), ..Default::default() };
/// assert_eq!(serde_json::to_string(&annotations)?, r#"{"readOnlyHint":true}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolAnnotations {
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// It changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// It may destroy something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// Twice is the same as once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// It touches things outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

/// A tool whose definition is a type: an alternative to a closure for tools that carry something of their own.
///
/// ```
/// use greenroom::{Tool, ToolContext, ToolServer};
///
/// struct Dice { sides: u32 }
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Roll { /// How many dice
///     count: u32 }
///
/// impl Tool for Dice {
///     type Args = Roll;
///     type Output = u32;
///
///     fn name(&self) -> String { "roll".into() }
///     fn description(&self) -> String { format!("Roll dice with {} sides", self.sides) }
///     async fn call(&self, args: Roll, _cx: ToolContext) -> u32 { args.count * self.sides }
/// }
///
/// let server: ToolServer = ToolServer::new("game", "1.0.0").add_tool(Dice { sides: 6 });
/// # let _ = server;
/// ```
pub trait Tool<S = ()>: Send + Sync + 'static {
    /// The arguments: their fields, types and doc comments become the schema that the model sees.
    type Args: DeserializeOwned + JsonSchema + Send + 'static;
    /// What it returns.
    type Output: IntoToolResult;

    /// Its name: 1 to 128 characters of `A-Z a-z 0-9 _ . -`, unique in its server.
    fn name(&self) -> String;

    /// What the model is told about it.
    fn description(&self) -> String;

    /// What else is to be set: annotations, limits, `_meta`. The default sets nothing.
    fn define(&self, def: ToolDef<S>) -> ToolDef<S> {
        def
    }

    /// Runs it.
    fn call(&self, args: Self::Args, cx: ToolContext<S>) -> impl Future<Output = Self::Output> + Send;
}

/// One tool, defined but not yet part of a server.
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
/// let server: ToolServer = ToolServer::new("orders", "1.0.0").add(list);
/// # let _ = server;
/// ```
pub struct ToolDef<S = ()> {
    pub(crate) inner: Definition,
    state: PhantomData<fn(S)>,
}

/// A tool, without the type of its state.
#[derive(Clone)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) annotations: ToolAnnotations,
    input_schema: schema::Kept,
    output_schema: Option<schema::Kept>,
    /// Of a schema that was written by hand.
    input_check: Option<Validator>,
    output_check: Option<OutputCheck>,
    icons: Vec<Icon>,
    pub(crate) meta: Map<String, Value>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_concurrency: Option<usize>,
    pub(crate) lane: Lane,
}

impl<S: Send + Sync + 'static> ToolDef<S> {
    /// A tool that runs `handler` as a task.
    pub fn new<M, H: ToolHandler<S, M>>(
        name: impl Into<String>,
        description: impl Into<String>,
        handler: H,
    ) -> Self {
        let handler = Arc::new(handler);
        let run: AsyncRun = Arc::new(move |state, call, arguments| {
            let handler = handler.clone();
            Box::pin(async move {
                match (typed_state::<S>(state), parse::<H::Args>(arguments)) {
                    (Some(state), Ok(args)) => Ran::Returned(
                        handler.call(args, ToolContext::new(state, call)).await.into_tool_result(),
                    ),
                    (None, _) => Ran::Returned(wrong_state()),
                    (_, Err(error)) => Ran::BadArguments(error),
                }
            })
        });
        let schema = schema::of::<H::Args>();
        Self::build(name.into(), description.into(), schema, H::Output::output_schema(), Lane::Async(run))
    }

    /// A tool that blocks its thread: `handler` runs on the runtime's blocking pool, at most
    /// [`Limits::blocking_calls`](crate::Limits::blocking_calls) of a server at once. Nothing can end it from
    /// outside: it should look at [`ToolContext::is_cancelled`] now and then. One that goes on after it was
    /// cancelled or timed out is answered for all the same, and counted as abandoned.
    pub fn blocking<A, R>(
        name: impl Into<String>,
        description: impl Into<String>,
        handler: impl Fn(A, ToolContext<S>) -> R + Send + Sync + 'static,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: IntoToolResult,
    {
        let run: BlockingRun =
            Arc::new(move |state, call, arguments| match (typed_state::<S>(state), parse::<A>(arguments)) {
                (Some(state), Ok(args)) => {
                    Ran::Returned(handler(args, ToolContext::new(state, call)).into_tool_result())
                }
                (None, _) => Ran::Returned(wrong_state()),
                (_, Err(error)) => Ran::BadArguments(error),
            });
        Self::build(
            name.into(),
            description.into(),
            schema::of::<A>(),
            R::output_schema(),
            Lane::Blocking(run),
        )
    }

    /// A tool with a schema written by hand, which must describe an object. With the feature `schema` the arguments are
    /// checked against it before the handler runs: what does not fit is a result with `isError` that names each path, and a
    /// schema that is none is refused before the session starts. Without the feature, the handler gets the arguments as they
    /// come.
    ///
    /// ```
    /// use greenroom::{ToolContext, ToolDef, ToolServer};
    /// use serde_json::{Value, json};
    ///
    /// let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]});
    /// let roll = ToolDef::raw("roll", "Roll dice", schema, async |args: Value, _: ToolContext| args["n"].to_string());
    /// let server: ToolServer = ToolServer::new("game", "1.0.0").add(roll);
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
        let input_schema = match input_schema.into() {
            Value::Object(schema) => schema,
            // It describes no object, and is refused for that.
            _ => Map::new(),
        };
        let validator = Validator::new(&input_schema);
        let check = validator.clone();
        let run: AsyncRun = Arc::new(move |state, call, arguments| {
            let checked = parse::<Value>(arguments)
                .and_then(|args| check.check(&args).map(|()| args).map_err(|what| invalid(&what)));
            let started = match (typed_state::<S>(state), checked) {
                (Some(state), Ok(args)) => Ok(handler(args, ToolContext::new(state, call))),
                (None, _) => Err(Ran::Returned(wrong_state())),
                (_, Err(error)) => Err(Ran::BadArguments(error)),
            };
            Box::pin(async move {
                match started {
                    Ok(future) => Ran::Returned(future.await.into_tool_result()),
                    Err(ran) => ran,
                }
            })
        });
        let mut def =
            Self::build(name.into(), description.into(), input_schema, R::output_schema(), Lane::Async(run));
        def.inner.input_check = Some(validator);
        def
    }

    /// A tool whose definition is a type.
    pub fn from_type<T: Tool<S>>(tool: T) -> Self {
        let (name, description) = (tool.name(), tool.description());
        let tool = Arc::new(tool);
        let shared = tool.clone();
        let handler = move |args: T::Args, cx: ToolContext<S>| {
            let tool = shared.clone();
            async move { tool.call(args, cx).await }
        };
        tool.define(Self::new(name, description, handler))
    }

    fn build(
        name: String,
        description: String,
        input_schema: Map<String, Value>,
        output_schema: Option<Map<String, Value>>,
        lane: Lane,
    ) -> Self {
        let inner = Definition {
            name,
            description,
            annotations: ToolAnnotations::default(),
            input_schema: input_schema.into(),
            output_schema: output_schema.map(Into::into),
            input_check: None,
            output_check: None,
            icons: Vec::new(),
            meta: Map::new(),
            timeout: None,
            max_concurrency: None,
            lane,
        };
        Self { inner, state: PhantomData }
    }
}

impl<S> ToolDef<S> {
    /// All annotations at once.
    pub fn annotations(mut self, annotations: ToolAnnotations) -> Self {
        self.inner.annotations = annotations;
        self
    }

    /// A name for people.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.inner.annotations.title = Some(title.into());
        self
    }

    /// It changes nothing. The CLI runs such calls at the same time; all others one after another.
    pub fn read_only_hint(mut self, hint: bool) -> Self {
        self.inner.annotations.read_only_hint = Some(hint);
        self
    }

    /// It may destroy something.
    pub fn destructive_hint(mut self, hint: bool) -> Self {
        self.inner.annotations.destructive_hint = Some(hint);
        self
    }

    /// Twice is the same as once.
    pub fn idempotent_hint(mut self, hint: bool) -> Self {
        self.inner.annotations.idempotent_hint = Some(hint);
        self
    }

    /// It touches things outside.
    pub fn open_world_hint(mut self, hint: bool) -> Self {
        self.inner.annotations.open_world_hint = Some(hint);
        self
    }

    /// Whether the model sees the tool from the start (`anthropic/alwaysLoad`). Otherwise the CLI may put it
    /// behind its tool search.
    pub fn always_load(self, always: bool) -> Self {
        self.meta("anthropic/alwaysLoad", always)
    }

    /// Words by which the tool search finds it (`anthropic/searchHint`).
    pub fn search_hint(self, hint: impl Into<String>) -> Self {
        self.meta("anthropic/searchHint", hint.into())
    }

    /// Up to how many characters a result is shown in full (`anthropic/maxResultSizeChars`); the CLI saves a longer
    /// one to a file and shows its beginning.
    pub fn max_result_size_chars(self, chars: u64) -> Self {
        self.meta("anthropic/maxResultSizeChars", chars)
    }

    /// One more field of the tool's `_meta`.
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.inner.meta.insert(key.into(), value.into());
        self
    }

    /// With one more picture.
    pub fn icon(mut self, icon: Icon) -> Self {
        self.inner.icons.push(icon);
        self
    }

    /// The schema of the structured content, where it does not follow from what the handler returns: that of a type. A
    /// result without structured content, or with some that is not read as this type, becomes a result with `isError` that
    /// says so.
    ///
    /// ```
    /// use greenroom::{CallToolResult, Content, NoArgs, ToolDef, ToolServer};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Weather { celsius: f64 }
    ///
    /// let weather = ToolDef::new("weather", "The weather", async |_: NoArgs| {
    ///     CallToolResult::new([Content::text("It is mild.")]).structured(serde_json::json!({"celsius": 17.5}))
    /// })
    /// .output::<Weather>();
    /// let server: ToolServer = ToolServer::new("sky", "1.0.0").add(weather);
    /// # let _ = server;
    /// ```
    pub fn output<T: DeserializeOwned + JsonSchema>(self) -> Self {
        self.checked_output(schema::of::<T>(), OutputCheck::of_type::<T>())
    }

    /// The same with a schema written by hand, which must describe an object. Results are checked against it with the
    /// feature `schema` only.
    pub fn output_schema(self, schema: impl Into<Value>) -> Self {
        let schema = match schema.into() {
            Value::Object(schema) => schema,
            // It describes no object, and is refused for that.
            _ => Map::new(),
        };
        let check = OutputCheck::Schema(Validator::new(&schema));
        self.checked_output(schema, check)
    }

    fn checked_output(mut self, schema: Map<String, Value>, check: OutputCheck) -> Self {
        self.inner.output_schema = Some(schema.into());
        self.inner.output_check = Some(check);
        self
    }

    /// How long a call may take, from its arrival. Goes before [`Timeouts::tool`](crate::Timeouts::tool).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.inner.timeout = Some(timeout);
        self
    }

    /// How many calls run at once; further ones wait, and their time limit runs. At least 1. Default: no limit.
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

impl Definition {
    /// What runs when it is called: the handler, and for a tool that promises structured content a look at what it gives.
    pub(crate) fn runs(&self) -> Lane {
        let Some(check) = self.output_check.clone() else { return self.lane.clone() };
        let name: Arc<str> = self.name.as_str().into();
        let checked = move |ran: Ran| match ran {
            Ran::Returned(result) => Ran::Returned(check.apply(&name, result)),
            other => other,
        };
        match self.lane.clone() {
            Lane::Async(run) => Lane::Async(Arc::new(move |state, call, arguments| {
                let (ran, checked) = (run(state, call, arguments), checked.clone());
                Box::pin(async move { checked(ran.await) })
            })),
            Lane::Blocking(run) => {
                Lane::Blocking(Arc::new(move |state, call, arguments| checked(run(state, call, arguments))))
            }
        }
    }
}

impl Listed for Definition {
    const KIND: &'static str = "tool";
    const FIELD: &'static str = "tools";

    fn key(&self) -> &str {
        &self.name
    }

    fn listed(&self) -> Value {
        let mut entry = Map::new();
        entry.insert("name".into(), self.name.clone().into());
        if let Some(title) = &self.annotations.title {
            entry.insert("title".into(), title.clone().into());
        }
        entry.insert("description".into(), self.description.clone().into());
        entry.insert("inputSchema".into(), Value::Object(self.input_schema.tree()));
        if let Some(schema) = &self.output_schema {
            entry.insert("outputSchema".into(), Value::Object(schema.tree()));
        }
        if self.annotations != ToolAnnotations::default()
            && let Ok(annotations) = serde_json::to_value(&self.annotations)
        {
            entry.insert("annotations".into(), annotations);
        }
        if !self.icons.is_empty() {
            entry.insert("icons".into(), serde_json::json!(self.icons));
        }
        if !self.meta.is_empty() {
            entry.insert("_meta".into(), Value::Object(self.meta.clone()));
        }
        Value::Object(entry)
    }

    fn validate(&self, server: &str) -> Result<()> {
        let fault = |what: String| {
            Err(Error::invalid_option(format!("tool '{}' of server '{server}': {what}", self.name)))
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if self.name.is_empty() || self.name.len() > 128 || !self.name.chars().all(allowed) {
            return fault("a name is 1 to 128 characters of A-Z a-z 0-9 _ . -".into());
        }
        if !schema::is_object(&self.input_schema.tree()) {
            return fault("its arguments must be an object: use a struct with named fields".into());
        }
        if self.output_schema.as_ref().is_some_and(|schema| !schema::is_object(&schema.tree())) {
            return fault("its output schema must describe an object".into());
        }
        let checks = [
            ("input", self.input_check.as_ref().and_then(Validator::fault)),
            ("output", self.output_check.as_ref().and_then(OutputCheck::fault)),
        ];
        for (which, wrong) in checks {
            if let Some(wrong) = wrong {
                return fault(format!("its {which} schema is no JSON Schema: {wrong}"));
            }
        }
        if self.max_concurrency == Some(0) {
            return fault("max_concurrency must be at least 1".into());
        }
        Ok(())
    }
}

pub(crate) fn typed_state<S: Send + Sync + 'static>(state: AnyState) -> Option<Arc<S>> {
    state.downcast::<S>().ok()
}

fn wrong_state() -> CallToolResult {
    // `ToolServer` binds each tool to a state of its own type, so this cannot be reached through it.
    CallToolResult::error("the server's state has another type than this tool's context")
}

/// Parses arguments; the error names the field.
fn parse<A: DeserializeOwned>(arguments: Arguments) -> Result<A, String> {
    // The model may write half of a character; that is no reason not to call.
    let text = mend(arguments.as_deref().map_or("{}", RawValue::get));
    // To know the path costs as much as to parse, and only what does not fit needs one.
    serde_json::from_str(&text).or_else(|_| {
        let mut json = serde_json::Deserializer::from_str(&text);
        serde_path_to_error::deserialize(&mut json).map_err(|error| validation_error(&error))
    })
}

/// What does not fit; it names the field.
pub(crate) fn validation_error<E: std::fmt::Display>(error: &serde_path_to_error::Error<E>) -> String {
    invalid(&fault_at(error))
}

/// The same without a word on what it is that does not fit.
pub(crate) fn fault_at<E: std::fmt::Display>(error: &serde_path_to_error::Error<E>) -> String {
    let path = error.path().to_string();
    let error = error.inner().to_string();
    // The position in a line that the model does not see helps nobody.
    let error = error.split(" at line ").next().unwrap_or_default();
    if path == "." { error.to_owned() } else { format!("`{path}`: {error}") }
}

fn invalid(what: &str) -> String {
    format!("Input validation error: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Save {
        path: String,
        #[serde(default)]
        lines: Vec<Line>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Line {
        text: String,
    }

    fn arguments(json: &str) -> Arguments {
        Some(RawValue::from_string(json.to_owned()).unwrap())
    }

    fn save(json: &str) -> Result<Save, String> {
        parse(arguments(json))
    }

    #[test]
    fn half_a_character_is_read_as_the_replacement_of_one_wherever_it_stands() {
        for given in [r#"{"path":"a\ud83d"}"#, r#"{"path":"a\ufffd","\uD83D":1}"#] {
            assert_eq!(save(given), Ok(Save { path: "a\u{fffd}".into(), lines: vec![] }));
        }
        assert_eq!(save(r#"{"path":"\ud83d\ude00 \\ud83d"}"#).unwrap().path, "\u{1f600} \\ud83d");
        let raw: Box<RawValue> = parse(arguments(r#"{"a":"\ud83d"}"#)).unwrap();
        assert_eq!(raw.get(), r#"{"a":"\ufffd"}"#, "what is handed on raw is mended as well");
    }

    #[test]
    fn what_does_not_fit_is_told_with_its_path() {
        assert_eq!(
            save(r#"{"path":"a","lines":[{"text":"\ud83d"},{"text":7}]}"#),
            Err("Input validation error: `lines[1].text`: invalid type: integer `7`, expected a string"
                .into())
        );
        assert_eq!(save("{}"), Err("Input validation error: missing field `path`".into()));
        assert_eq!(
            parse::<Save>(None),
            Err("Input validation error: missing field `path`".into()),
            "no arguments are an empty object"
        );
    }
}
