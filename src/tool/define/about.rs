//! The builder methods that definitions share.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

/// The fields that the builder methods of all definitions set.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
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

/// Builder methods that several definitions share, each written once here: `builder_methods!(inner: title, meta)` is
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
}
pub(crate) use builder_methods;
