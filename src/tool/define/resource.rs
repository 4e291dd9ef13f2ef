//! The definition of a resource, and what its handler may return.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};

use super::about::{About, Listable, builder_methods, put};
use super::handler::Json;
use crate::blocking::caught::DropElsewhere;
use crate::error::{Error, Result};
use crate::tool::run::context::ToolContext;
use crate::tool::run::erased::{HandlerFn, rpc_error, typed_state};
use crate::wire::{ResourceContents, RpcError};

/// The request that the handler of a resource gets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadResource {
    /// The requested URI.
    pub uri: String,
    /// The values of the template's variables, percent-decoded. Empty for a resource without a template.
    pub variables: BTreeMap<String, String>,
}

impl ReadResource {
    /// The value of a variable. Every variable of the template has one, and it is not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }
}

/// The contents of a resource, or the JSON-RPC error that the CLI gets instead.
type ContentsResult = Result<Vec<ResourceContents>, RpcError>;

/// The return type of a resource handler.
///
/// | a handler returns | the contents are |
/// |---|---|
/// | `String`, `&'static str`, `Cow` | that text |
/// | `Vec<u8>` | those bytes, sent in base64 |
/// | [`Json<T>`](crate::Json) | the value as JSON text, as `application/json` if the resource has no type of its own |
/// | [`ResourceContents`](crate::mcp::ResourceContents), a `Vec` of it | exactly that |
/// | `Result<T, E>` | `T`, or a JSON-RPC error: an [`RpcError`] as it is, any other as -32603 with its text |
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no contents of a resource",
    label = "the trait `IntoResourceContents` is missing for `{Self}`",
    note = "return a text, a `Vec<u8>`, a `greenroom::Json(value)`, a `ResourceContents`, or a `Result` of these"
)]
pub trait IntoResourceContents {
    /// Converts to the contents of the resource with this URI and media type.
    ///
    /// # Errors
    /// The JSON-RPC error that the CLI gets instead.
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
            fn into_resource_contents(self, uri: &str, mime_type: Option<&str>) -> ContentsResult {
                Ok(with_type(ResourceContents::text(uri, self), mime_type))
            }
        }
    )*};
}

text_contents!(String, &'static str, Cow<'static, str>);

impl IntoResourceContents for Vec<u8> {
    fn into_resource_contents(self, uri: &str, mime_type: Option<&str>) -> ContentsResult {
        Ok(with_type(ResourceContents::blob(uri, STANDARD.encode(self)), mime_type))
    }
}

impl<T: Serialize> IntoResourceContents for Json<T> {
    fn into_resource_contents(self, uri: &str, mime_type: Option<&str>) -> ContentsResult {
        let text = serde_json::to_string(&self.0)
            .map_err(|error| RpcError::internal(format!("the contents do not serialise: {error}")))?;
        Ok(with_type(ResourceContents::text(uri, text), mime_type.or(Some("application/json"))))
    }
}

impl IntoResourceContents for ResourceContents {
    fn into_resource_contents(self, _: &str, _: Option<&str>) -> ContentsResult {
        Ok(vec![self])
    }
}

impl IntoResourceContents for Vec<ResourceContents> {
    fn into_resource_contents(self, _: &str, _: Option<&str>) -> ContentsResult {
        Ok(self)
    }
}

impl<T: IntoResourceContents, E: Display + 'static> IntoResourceContents for Result<T, E> {
    fn into_resource_contents(self, uri: &str, mime_type: Option<&str>) -> ContentsResult {
        self.map_err(rpc_error)?.into_resource_contents(uri, mime_type)
    }
}

/// A handler, which gets the media type of the resource as well.
pub(crate) type ReadFn = HandlerFn<(ReadResource, Option<String>)>;

/// Erases the types of a handler.
pub(super) fn read_fn<S, F, Fut>(handler: F) -> ReadFn
where
    S: Send + Sync + 'static,
    F: Fn(ReadResource, ToolContext<S>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoResourceContents> + Send,
{
    let handler = Arc::new(DropElsewhere::new(handler));
    Arc::new(move |state, call, (request, mime_type)| {
        let handler = handler.clone();
        Box::pin(async move {
            let state = typed_state::<S>(state)?;
            let uri = request.uri.clone();
            let contents = handler(request, ToolContext::new(state, call)).await;
            Ok(json!({ "contents": contents.into_resource_contents(&uri, mime_type.as_deref())? }))
        })
    })
}

/// The definition of a resource, for [`ToolServer::resource`](crate::ToolServer::resource): fixed contents, or a
/// handler that makes them for each read.
///
/// A handler has the promises of a tool call: it runs on a task, has a time limit, and its panic becomes an error answer.
///
/// ```
/// use greenroom::mcp::{ReadResource, ResourceDef};
/// use greenroom::{ToolContext, ToolServer};
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

/// A [`ResourceDef`] without the type of its state.
#[derive(Clone)]
pub(crate) struct ResourceDefinition {
    pub(crate) uri: String,
    name: String,
    pub(crate) about: About,
    pub(crate) mime_type: Option<String>,
    size: Option<u64>,
    pub(crate) source: ResourceSource,
}

/// Where the contents come from.
#[derive(Clone)]
pub(crate) enum ResourceSource {
    Fixed(ResourceContents),
    Handler(ReadFn),
}

impl<S: Send + Sync + 'static> ResourceDef<S> {
    /// A resource whose contents `handler` makes for each read. The name is for programs, [`title`](ResourceDef::title)
    /// for people.
    pub fn new<F, Fut>(uri: impl Into<String>, name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(ReadResource, ToolContext<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoResourceContents> + Send,
    {
        Self::build(uri.into(), name.into(), ResourceSource::Handler(read_fn(handler)))
    }

    /// A resource with this text.
    pub fn text(uri: impl Into<String>, name: impl Into<String>, text: impl Into<String>) -> Self {
        let (uri, text) = (uri.into(), text.into());
        let size = text.len();
        let source = ResourceSource::Fixed(ResourceContents::text(uri.clone(), text));
        Self::build(uri, name.into(), source).size(size as u64)
    }

    /// A resource with these bytes.
    pub fn blob(uri: impl Into<String>, name: impl Into<String>, bytes: impl AsRef<[u8]>) -> Self {
        let (uri, bytes) = (uri.into(), bytes.as_ref());
        let source = ResourceSource::Fixed(ResourceContents::blob(uri.clone(), STANDARD.encode(bytes)));
        Self::build(uri, name.into(), source).size(bytes.len() as u64)
    }
}

impl<S> ResourceDef<S> {
    fn build(uri: String, name: String, source: ResourceSource) -> Self {
        let inner =
            ResourceDefinition { uri, name, about: About::default(), mime_type: None, size: None, source };
        Self { inner, state: PhantomData }
    }

    builder_methods!(inner: title, description, meta, mime_type, timeout);

    /// Sets the size in bytes, before any encoding. Set already for fixed contents.
    pub fn size(mut self, bytes: u64) -> Self {
        self.inner.size = Some(bytes);
        self
    }
}

impl Listable for ResourceDefinition {
    const KIND: &'static str = "resource";
    const FIELD: &'static str = "resources";

    fn key(&self) -> &str {
        &self.uri
    }

    fn listed(&self) -> Value {
        let mut entry = self.about.listed(&self.name);
        entry.insert("uri".into(), json!(self.uri));
        put(&mut entry, "mimeType", self.mime_type.as_ref());
        put(&mut entry, "size", self.size);
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

impl<S> fmt::Debug for ResourceDef<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceDef").field("uri", &self.inner.uri).finish_non_exhaustive()
    }
}
