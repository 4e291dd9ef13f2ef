//! Icons, annotations, and the builder methods that definitions share.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// An icon of a resource. Since MCP 2025-11-25.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Icon {
    /// A URL, or a `data:` URI.
    pub src: String,
    /// The media type, such as `image/png`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Sizes, such as `48x48`, or `any`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<String>,
    /// The background that the icon fits: `light` or `dark`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theme: Option<String>,
}

impl Icon {
    /// An icon at this URL.
    pub fn new(src: impl Into<String>) -> Self {
        Self { src: src.into(), ..Self::default() }
    }

    /// Sets the media type.
    pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
        self.mime_type = Some(mime_type.into());
        self
    }

    /// Adds a size, such as `48x48`.
    pub fn size(mut self, size: impl Into<String>) -> Self {
        self.sizes.push(size.into());
        self
    }
}

/// Audience of an annotated block or resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "variants are named as on the wire")]
#[non_exhaustive]
pub enum Role {
    User,
    Assistant,
}

/// Hints about a resource or a block of content: its audience and its importance.
///
/// ```
/// use greenroom::mcp::{Annotations, Role};
/// use greenroom::tool::Content;
///
/// let minor = Annotations { audience: Some(vec![Role::User]), priority: Some(0.2), ..Default::default() };
/// let block = Content::text("a footnote").with("annotations", minor);
/// # let _ = block;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Annotations {
    /// The intended readers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<Vec<Role>>,
    /// Importance, from 0 (optional) to 1 (required).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<f64>,
    /// Time of the last change, in ISO 8601.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
}

impl From<Annotations> for Value {
    fn from(annotations: Annotations) -> Self {
        json!(annotations)
    }
}

/// The fields that the builder methods of all definitions set.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) icons: Vec<Icon>,
    pub(crate) meta: Map<String, Value>,
    /// Limit of the handler; overrides the session's.
    pub(crate) timeout: Option<Duration>,
}

impl About {
    /// The fields that the entries of all lists share.
    pub(crate) fn listed(&self, name: &str) -> Map<String, Value> {
        let mut entry = Map::new();
        entry.insert("name".into(), json!(name));
        put(&mut entry, "title", self.title.as_ref());
        put(&mut entry, "description", self.description.as_ref());
        if !self.icons.is_empty() {
            entry.insert("icons".into(), json!(self.icons));
        }
        if !self.meta.is_empty() {
            entry.insert("_meta".into(), json!(self.meta));
        }
        entry
    }
}

/// Inserts a field that is set.
pub(crate) fn put(entry: &mut Map<String, Value>, field: &str, value: Option<impl Serialize>) {
    if let Some(value) = value {
        entry.insert(field.into(), json!(value));
    }
}

/// A definition without the type of its state, as one of a server's lists holds it.
pub(crate) trait Listable: Clone {
    /// For errors: `tool`.
    const KIND: &'static str;
    /// The field of the list in its result: `tools`.
    const FIELD: &'static str;

    /// Unique in the list: a name or a URI.
    fn key(&self) -> &str;

    /// The entry in the list.
    fn listed(&self) -> Value;

    /// An error if the definition cannot work.
    fn validate(&self, server: &str) -> crate::error::Result<()>;
}

/// Builder methods that several definitions share, each written once here: `builder_methods!(inner: title, icon)` is
/// used in an `impl` block of a type whose field `inner` has the fields that the methods set.
macro_rules! builder_methods {
    ($inner:ident: $($method:ident),+) => {
        $($crate::tool::define::about::builder_methods! { @$method $inner })+
    };
    (@title $inner:ident) => {
        /// Sets a name for people.
        pub fn title(mut self, title: impl Into<String>) -> Self {
            self.$inner.about.title = Some(title.into());
            self
        }
    };
    (@description $inner:ident) => {
        /// Sets a description for the model and for people.
        pub fn description(mut self, description: impl Into<String>) -> Self {
            self.$inner.about.description = Some(description.into());
            self
        }
    };
    (@icon $inner:ident) => {
        /// Adds an icon.
        pub fn icon(mut self, icon: $crate::tool::Icon) -> Self {
            self.$inner.about.icons.push(icon);
            self
        }
    };
    (@meta $inner:ident) => {
        /// Adds a field of `_meta`.
        pub fn meta(mut self, key: impl Into<String>, value: impl Into<serde_json::Value>) -> Self {
            self.$inner.about.meta.insert(key.into(), value.into());
            self
        }
    };
    (@timeout $inner:ident) => {
        /// Limits how long the handler may take, from the arrival of the request. Overrides
        /// [`Timeouts::tool`](crate::options::Timeouts::tool).
        pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
            self.$inner.about.timeout = Some(timeout);
            self
        }
    };
    (@mime_type $inner:ident) => {
        /// Sets the media type, such as `text/plain`.
        pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
            self.$inner.mime_type = Some(mime_type.into());
            self
        }
    };
    (@annotations $inner:ident) => {
        /// Sets hints about audience and importance.
        pub fn annotations(mut self, annotations: $crate::tool::Annotations) -> Self {
            self.$inner.annotations = Some(annotations);
            self
        }
    };
}
pub(crate) use builder_methods;
