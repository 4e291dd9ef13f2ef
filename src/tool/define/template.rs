//! The definition of resources under a template of URIs.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde_json::{Value, json};

use super::about::{About, Listable, builder_methods, put};
use super::resource::{IntoResourceContents, ReadFn, ReadResource, read_fn};
use super::uri_template::UriTemplate;
use crate::error::{Error, Result};
use crate::tool::run::context::ToolContext;

/// The definition of all resources whose URI matches a template, for
/// [`ToolServer::resource_template`](crate::ToolServer::resource_template).
///
/// A template may hold `{name}`, whose value ends at `/`, `?` or `#`, and `{+name}`, whose value may contain them:
/// levels 1 and 2 of RFC 6570 with one variable for each pair of braces. Other forms fail `start()`, because a URI
/// cannot be matched against them. A resource with exactly the requested URI takes precedence, then the first template
/// that matches.
///
/// ```
/// use greenroom::mcp::{ReadResource, ResourceTemplateDef, RpcError};
/// use greenroom::{ToolContext, ToolServer};
///
/// let page = ResourceTemplateDef::new("wiki://{page}", "page", async |read: ReadResource, _: ToolContext| {
///     match read.variable("page") {
///         Some("home") => Ok("Welcome."),
///         _ => Err(RpcError::resource_not_found(&read.uri)),
///     }
/// });
/// let server: ToolServer = ToolServer::new("wiki", "1.0.0").resource_template(page);
/// # let _ = server;
/// ```
pub struct ResourceTemplateDef<S = ()> {
    pub(crate) inner: TemplateDefinition,
    state: PhantomData<fn(S)>,
}

/// A [`ResourceTemplateDef`] without the type of its state.
#[derive(Clone)]
pub(crate) struct TemplateDefinition {
    text: String,
    name: String,
    template: Result<UriTemplate, String>,
    pub(crate) about: About,
    pub(crate) mime_type: Option<String>,
    pub(crate) read: ReadFn,
}

impl<S: Send + Sync + 'static> ResourceTemplateDef<S> {
    /// Resources whose contents `handler` makes for each read.
    pub fn new<F, Fut>(uri_template: impl Into<String>, name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(ReadResource, ToolContext<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoResourceContents> + Send,
    {
        let text = uri_template.into();
        let inner = TemplateDefinition {
            template: UriTemplate::parse(&text),
            text,
            name: name.into(),
            about: About::default(),
            read: read_fn(handler),
            mime_type: None,
        };
        Self { inner, state: PhantomData }
    }
}

impl<S> ResourceTemplateDef<S> {
    builder_methods!(inner: title, description, meta, mime_type, timeout);
}

impl TemplateDefinition {
    /// The values of the variables if the URI matches.
    pub(crate) fn matches(&self, uri: &str) -> Option<BTreeMap<String, String>> {
        self.template.as_ref().ok()?.matches(uri)
    }
}

impl Listable for TemplateDefinition {
    const KIND: &'static str = "resource template";
    const FIELD: &'static str = "resourceTemplates";

    fn key(&self) -> &str {
        &self.text
    }

    fn listed(&self) -> Value {
        let mut entry = self.about.listed(&self.name);
        entry.insert("uriTemplate".into(), json!(self.text));
        put(&mut entry, "mimeType", self.mime_type.as_ref());
        Value::Object(entry)
    }

    fn validate(&self, server: &str) -> Result<()> {
        let fault = |what: &str| {
            let text = format!("resource template '{}' of server '{server}': {what}", self.text);
            Err(Error::invalid_option(text).with_help("a variable is written `{name}` or `{+name}`"))
        };
        match &self.template {
            Err(what) => fault(what),
            Ok(_) => Ok(()),
        }
    }
}

impl<S> fmt::Debug for ResourceTemplateDef<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceTemplateDef").field("template", &self.inner.text).finish_non_exhaustive()
    }
}
