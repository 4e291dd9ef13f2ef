//! Resources: what a server has to be read, under a URI or a template of URIs.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::{Value, json};

use super::about::{About, Annotations, about_methods, put};
use super::completion::{Completers, CompletionRequest, IntoCompletion};
use super::context::{Call, ToolContext};
use super::def::{AnyState, typed_state};
use super::dispatch::Outcome;
use super::registry::Listed;
use super::result::Json;
use super::uri_template::UriTemplate;
use crate::error::{Error, Result};
use crate::wire::{Resource as ResourceContents, RpcError};

/// What a handler of a resource is asked for.
///
/// ```
/// use greenroom::{ResourceTemplateDef, ToolContext, ToolServer};
/// use greenroom::mcp::ReadResource;
///
/// let note = ResourceTemplateDef::new("note://{id}", "note", async |read: ReadResource, _: ToolContext| {
///     format!("note {} under {}", read.variable("id").unwrap_or_default(), read.uri)
/// });
/// let server: ToolServer = ToolServer::new("notes", "1.0.0").resource_template(note);
/// # let _ = server;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadResource {
    /// The URI, as it was asked for.
    pub uri: String,
    /// The variables of the template, percent-decoded. Empty for a resource without a template.
    pub variables: BTreeMap<String, String>,
}

impl ReadResource {
    /// The value of a variable of the template. Each of them is there, and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }
}

/// What becomes the contents of a resource.
///
/// | a handler returns | the contents are |
/// |---|---|
/// | `String`, `&'static str`, `Cow` | that text |
/// | `Vec<u8>` | those bytes, sent in base64 |
/// | [`Json<T>`](crate::Json) | the value as JSON text, as `application/json` if the resource has no type of its own |
/// | [`ResourceContents`](crate::mcp::ResourceContents), a `Vec` of it | exactly that |
/// | `Result<T, E>` | `T`, or a JSON-RPC error: an [`RpcError`] as it is, any other as -32603 with its text |
///
/// ```
/// use greenroom::mcp::IntoResourceContents;
///
/// let contents = "hello".into_resource_contents("note://1", Some("text/plain"))?;
/// assert_eq!(contents[0].text.as_deref(), Some("hello"));
/// # Ok::<(), greenroom::RpcError>(())
/// ```
pub trait IntoResourceContents {
    /// The contents of the resource under this URI, which has this type.
    ///
    /// # Errors
    /// What the CLI is answered instead.
    fn into_resource_contents(
        self,
        uri: &str,
        mime_type: Option<&str>,
    ) -> Result<Vec<ResourceContents>, RpcError>;
}

fn with_type(mut contents: ResourceContents, mime_type: Option<&str>) -> Vec<ResourceContents> {
    contents.mime_type = contents.mime_type.or_else(|| mime_type.map(str::to_owned));
    vec![contents]
}

macro_rules! text_contents {
    ($($type:ty),*) => {$(
        impl IntoResourceContents for $type {
            fn into_resource_contents(self, uri: &str, mime_type: Option<&str>) -> Result<Vec<ResourceContents>, RpcError> {
                Ok(with_type(ResourceContents::text(uri, self), mime_type))
            }
        }
    )*};
}

text_contents!(String, &'static str, Cow<'static, str>);

impl IntoResourceContents for Vec<u8> {
    fn into_resource_contents(
        self,
        uri: &str,
        mime_type: Option<&str>,
    ) -> Result<Vec<ResourceContents>, RpcError> {
        Ok(with_type(ResourceContents::blob(uri, STANDARD.encode(self)), mime_type))
    }
}

impl<T: Serialize> IntoResourceContents for Json<T> {
    fn into_resource_contents(
        self,
        uri: &str,
        mime_type: Option<&str>,
    ) -> Result<Vec<ResourceContents>, RpcError> {
        let text = serde_json::to_string(&self.0)
            .map_err(|error| RpcError::internal(format!("the contents do not serialise: {error}")))?;
        Ok(with_type(ResourceContents::text(uri, text), mime_type.or(Some("application/json"))))
    }
}

impl IntoResourceContents for ResourceContents {
    fn into_resource_contents(self, _: &str, _: Option<&str>) -> Result<Vec<ResourceContents>, RpcError> {
        Ok(vec![self])
    }
}

impl IntoResourceContents for Vec<ResourceContents> {
    fn into_resource_contents(self, _: &str, _: Option<&str>) -> Result<Vec<ResourceContents>, RpcError> {
        Ok(self)
    }
}

impl<T: IntoResourceContents, E: Display + 'static> IntoResourceContents for Result<T, E> {
    fn into_resource_contents(
        self,
        uri: &str,
        mime_type: Option<&str>,
    ) -> Result<Vec<ResourceContents>, RpcError> {
        self.map_err(rpc_error)?.into_resource_contents(uri, mime_type)
    }
}

/// The error of a handler: one that is JSON-RPC's stays as it is.
pub(crate) fn rpc_error<E: Display + 'static>(error: E) -> RpcError {
    match (&error as &dyn Any).downcast_ref::<RpcError>() {
        Some(error) => error.clone(),
        // The alternate form gives the whole chain of an `anyhow::Error`.
        None => RpcError::internal(format!("{error:#}")),
    }
}

/// With the type that the resource says it has.
type Read = Arc<
    dyn Fn(AnyState, Arc<Call>, ReadResource, Option<String>) -> BoxFuture<'static, Outcome> + Send + Sync,
>;

/// A handler, with its types forgotten.
fn read<S, F, Fut>(handler: F) -> Read
where
    S: Send + Sync + 'static,
    F: Fn(ReadResource, ToolContext<S>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoResourceContents> + Send,
{
    let handler = Arc::new(handler);
    Arc::new(move |state, call, request, mime_type| {
        let handler = handler.clone();
        Box::pin(async move {
            let state = typed_state::<S>(state).ok_or_else(wrong_state)?;
            let uri = request.uri.clone();
            let contents = handler(request, ToolContext::new(state, call)).await;
            Ok(json!({ "contents": contents.into_resource_contents(&uri, mime_type.as_deref())? }))
        })
    })
}

/// A server binds each handler to a state of its own type, so this is not reached.
pub(crate) fn wrong_state() -> RpcError {
    RpcError::internal("the server's state has another type than this handler's context")
}

/// One resource, defined but not yet part of a server: under one URI, fixed or made by a handler whenever it is read.
///
/// A handler runs under the promises of a tool call: as a task of its own, under the limit of
/// [`Timeouts::tool`](crate::Timeouts::tool) or its own; a panic is answered with an error.
///
/// ```
/// use greenroom::{ResourceDef, ToolContext, ToolServer};
/// use greenroom::mcp::ReadResource;
///
/// let server: ToolServer = ToolServer::new("shop", "1.0.0")
///     .resource(ResourceDef::text("shop://motto", "motto", "We are open.").mime_type("text/plain"))
///     .resource(ResourceDef::new("shop://stock", "stock", async |_: ReadResource, cx: ToolContext<u32>| {
///         format!("{} left", *cx)
///     }))
///     .state(|| 7);
/// # let _ = server;
/// ```
pub struct ResourceDef<S = ()> {
    pub(crate) inner: ResourceDefinition,
    state: PhantomData<fn(S)>,
}

/// A resource, without the type of its state.
#[derive(Clone)]
pub(crate) struct ResourceDefinition {
    pub(crate) uri: String,
    about: About,
    pub(crate) mime_type: Option<String>,
    size: Option<u64>,
    annotations: Option<Annotations>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) source: Source,
}

/// Where the contents come from.
#[derive(Clone)]
pub(crate) enum Source {
    Fixed(ResourceContents),
    Handler(Read),
}

impl<S: Send + Sync + 'static> ResourceDef<S> {
    /// A resource that `handler` makes whenever it is read. The name is for programs; see
    /// [`title`](ResourceDef::title) for people.
    pub fn new<F, Fut>(uri: impl Into<String>, name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(ReadResource, ToolContext<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoResourceContents> + Send,
    {
        Self::build(uri.into(), name.into(), Source::Handler(read(handler)))
    }

    /// A resource that is always this text.
    pub fn text(uri: impl Into<String>, name: impl Into<String>, text: impl Into<String>) -> Self {
        let (uri, text) = (uri.into(), text.into());
        let size = text.len();
        let source = Source::Fixed(ResourceContents::text(uri.clone(), text));
        Self::build(uri, name.into(), source).size(size as u64)
    }

    /// A resource that is always these bytes.
    pub fn blob(uri: impl Into<String>, name: impl Into<String>, bytes: impl AsRef<[u8]>) -> Self {
        let (uri, bytes) = (uri.into(), bytes.as_ref());
        let source = Source::Fixed(ResourceContents::blob(uri.clone(), STANDARD.encode(bytes)));
        Self::build(uri, name.into(), source).size(bytes.len() as u64)
    }
}

impl<S> ResourceDef<S> {
    fn build(uri: String, name: String, source: Source) -> Self {
        let about = About::new(name);
        let inner = ResourceDefinition {
            uri,
            about,
            mime_type: None,
            size: None,
            annotations: None,
            timeout: None,
            source,
        };
        Self { inner, state: PhantomData }
    }

    about_methods!();

    /// Its type, such as `text/plain`.
    pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
        let mime_type = mime_type.into();
        if let Source::Fixed(contents) = &mut self.inner.source {
            contents.mime_type = Some(mime_type.clone());
        }
        self.inner.mime_type = Some(mime_type);
        self
    }

    /// Its size in bytes, before any encoding. Known for a fixed one.
    pub fn size(mut self, bytes: u64) -> Self {
        self.inner.size = Some(bytes);
        self
    }

    /// For whom it is, and how much it matters.
    pub fn annotations(mut self, annotations: Annotations) -> Self {
        self.inner.annotations = Some(annotations);
        self
    }

    /// How long reading it may take, from the arrival of the request. Goes before
    /// [`Timeouts::tool`](crate::Timeouts::tool).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.inner.timeout = Some(timeout);
        self
    }
}

impl Listed for ResourceDefinition {
    const KIND: &'static str = "resource";
    const FIELD: &'static str = "resources";

    fn key(&self) -> &str {
        &self.uri
    }

    fn listed(&self) -> Value {
        let mut entry = self.about.listed();
        entry.insert("uri".into(), json!(self.uri));
        put(&mut entry, "mimeType", self.mime_type.as_ref());
        put(&mut entry, "size", self.size);
        put(&mut entry, "annotations", self.annotations.as_ref());
        Value::Object(entry)
    }

    fn validate(&self, server: &str) -> Result<()> {
        let scheme = self.uri.split_once(':').map_or("", |(scheme, _)| scheme);
        if scheme.is_empty() || self.uri.contains(char::is_whitespace) {
            let text = format!(
                "resource '{}' of server '{server}': its URI must begin with a scheme and hold no white space",
                self.uri
            );
            return Err(Error::invalid_option(text));
        }
        Ok(())
    }
}

/// Resources under all URIs that a template gives, made by a handler whenever one is read.
///
/// A template may hold `{name}`, whose value ends at `/`, `?` or `#`, and `{+name}`, whose value goes on over them: levels 1
/// and 2 of RFC 6570, without several variables in one pair of braces. Other forms cannot be read backwards and are refused
/// when the session starts. A resource under exactly the URI goes before a template, and of templates the first that fits.
///
/// ```
/// use greenroom::{ResourceTemplateDef, RpcError, ToolContext, ToolServer};
/// use greenroom::mcp::{CompletionRequest, ReadResource};
///
/// let page = ResourceTemplateDef::new("wiki://{page}", "page", async |read: ReadResource, _: ToolContext| {
///     match read.variable("page") {
///         Some("home") => Ok("Welcome."),
///         _ => Err(RpcError::resource_not_found(&read.uri)),
///     }
/// })
/// .complete("page", async |_: CompletionRequest, _: ToolContext| ["home"]);
/// let server: ToolServer = ToolServer::new("wiki", "1.0.0").resource_template(page);
/// # let _ = server;
/// ```
pub struct ResourceTemplateDef<S = ()> {
    pub(crate) inner: TemplateDefinition,
    state: PhantomData<fn(S)>,
}

/// A template, without the type of its state.
#[derive(Clone)]
pub(crate) struct TemplateDefinition {
    text: String,
    template: Result<UriTemplate, String>,
    about: About,
    pub(crate) mime_type: Option<String>,
    annotations: Option<Annotations>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) read: Read,
    pub(crate) completers: Completers,
}

impl<S: Send + Sync + 'static> ResourceTemplateDef<S> {
    /// Resources that `handler` makes whenever one of them is read.
    pub fn new<F, Fut>(uri_template: impl Into<String>, name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(ReadResource, ToolContext<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoResourceContents> + Send,
    {
        let text = uri_template.into();
        let inner = TemplateDefinition {
            template: UriTemplate::parse(&text),
            text,
            about: About::new(name),
            read: read(handler),
            mime_type: None,
            annotations: None,
            timeout: None,
            completers: Completers::default(),
        };
        Self { inner, state: PhantomData }
    }

    /// Suggests values of one of its variables while somebody writes it (`completion/complete`).
    pub fn complete<F, Fut>(mut self, variable: impl Into<String>, handler: F) -> Self
    where
        F: Fn(CompletionRequest, ToolContext<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoCompletion> + Send,
    {
        self.inner.completers.add(variable.into(), handler);
        self
    }
}

impl<S> ResourceTemplateDef<S> {
    about_methods!();

    /// The type of all of them, such as `text/plain`.
    pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
        self.inner.mime_type = Some(mime_type.into());
        self
    }

    /// For whom they are, and how much they matter.
    pub fn annotations(mut self, annotations: Annotations) -> Self {
        self.inner.annotations = Some(annotations);
        self
    }

    /// How long reading one may take, from the arrival of the request. Goes before
    /// [`Timeouts::tool`](crate::Timeouts::tool).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.inner.timeout = Some(timeout);
        self
    }
}

impl TemplateDefinition {
    /// The variables with which it gives this URI.
    pub(crate) fn matches(&self, uri: &str) -> Option<BTreeMap<String, String>> {
        self.template.as_ref().ok()?.matches(uri)
    }
}

impl Listed for TemplateDefinition {
    const KIND: &'static str = "resource template";
    const FIELD: &'static str = "resourceTemplates";

    fn key(&self) -> &str {
        &self.text
    }

    fn listed(&self) -> Value {
        let mut entry = self.about.listed();
        entry.insert("uriTemplate".into(), json!(self.text));
        put(&mut entry, "mimeType", self.mime_type.as_ref());
        put(&mut entry, "annotations", self.annotations.as_ref());
        Value::Object(entry)
    }

    fn validate(&self, server: &str) -> Result<()> {
        let fault = |what: &str| {
            let text = format!("resource template '{}' of server '{server}': {what}", self.text);
            Err(Error::invalid_option(text).with_help("a variable is written `{name}` or `{+name}`"))
        };
        match &self.template {
            Err(what) => fault(what),
            Ok(template) => match self.completers.unknown(|variable| template.has(variable)) {
                Some(variable) => fault(&format!("it has no variable '{variable}' to complete")),
                None => Ok(()),
            },
        }
    }
}

impl<S> fmt::Debug for ResourceDef<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceDef").field("uri", &self.inner.uri).finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for ResourceTemplateDef<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceTemplateDef").field("template", &self.inner.text).finish_non_exhaustive()
    }
}
