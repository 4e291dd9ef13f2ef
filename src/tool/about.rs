//! What MCP lets a server say about the things that it offers, beside what they do.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// A picture for people: of a server, a tool, a resource or a prompt. Since MCP 2025-11-25.
///
/// ```
/// use greenroom::mcp::Icon;
///
/// let icon = Icon::new("https://example.org/dice.svg").mime_type("image/svg+xml").size("any");
/// assert_eq!(serde_json::to_value(&icon)?["sizes"], serde_json::json!(["any"]));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Icon {
    /// Where it is: an address, or a `data:` URI.
    pub src: String,
    /// Its type, where the address does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Its sizes, such as `48x48`, or `any`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<String>,
    /// For which background it is made: `light` or `dark`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theme: Option<String>,
}

impl Icon {
    /// The picture at this address.
    pub fn new(src: impl Into<String>) -> Self {
        Self { src: src.into(), ..Self::default() }
    }

    /// With this type, such as `image/png`.
    pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
        self.mime_type = Some(mime_type.into());
        self
    }

    /// With one more size, such as `48x48`.
    pub fn size(mut self, size: impl Into<String>) -> Self {
        self.sizes.push(size.into());
        self
    }

    /// For this background: `light` or `dark`.
    pub fn theme(mut self, theme: impl Into<String>) -> Self {
        self.theme = Some(theme.into());
        self
    }
}

/// Who speaks, or who is spoken to.
///
/// ```
/// assert_eq!(serde_json::to_string(&greenroom::mcp::Role::User).unwrap(), r#""user""#);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// For whom a resource or a block of content is, and how much it matters. Hints.
///
/// ```
/// use greenroom::Content;
/// use greenroom::mcp::{Annotations, Role};
///
/// let minor = Annotations { audience: Some(vec![Role::User]), priority: Some(0.2), ..Default::default() };
/// let block = Content::text("a footnote").with("annotations", minor);
/// # let _ = block;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Annotations {
    /// For whom it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<Vec<Role>>,
    /// How much it matters: 1 is required, 0 is entirely optional.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<f64>,
    /// When it was changed last, as ISO 8601 says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
}

impl From<Annotations> for Value {
    fn from(annotations: Annotations) -> Self {
        json!(annotations)
    }
}

/// What resources, resource templates and prompts say about themselves.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) icons: Vec<Icon>,
    pub(crate) meta: Map<String, Value>,
}

impl About {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The beginning of the entry in the list.
    pub(crate) fn listed(&self) -> Map<String, Value> {
        let mut entry = Map::new();
        entry.insert("name".into(), json!(self.name));
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

/// Puts what is there.
pub(crate) fn put(entry: &mut Map<String, Value>, field: &str, value: Option<impl Serialize>) {
    if let Some(value) = value {
        entry.insert(field.into(), json!(value));
    }
}

/// The methods by which a definition says something about itself. It has `inner.about`.
macro_rules! about_methods {
    () => {
        /// A name for people.
        pub fn title(mut self, title: impl Into<String>) -> Self {
            self.inner.about.title = Some(title.into());
            self
        }

        /// What it is, for the model and for people.
        pub fn description(mut self, description: impl Into<String>) -> Self {
            self.inner.about.description = Some(description.into());
            self
        }

        /// With one more picture.
        pub fn icon(mut self, icon: $crate::mcp::Icon) -> Self {
            self.inner.about.icons.push(icon);
            self
        }

        /// One more field of its `_meta`.
        pub fn meta(mut self, key: impl Into<String>, value: impl Into<serde_json::Value>) -> Self {
            self.inner.about.meta.insert(key.into(), value.into());
            self
        }
    };
}
pub(crate) use about_methods;
