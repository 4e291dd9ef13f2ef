//! The result of a tool call: MCP content blocks.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A content block of a tool's result, in the shape of MCP.
///
/// `extra` holds all other fields of the block: `annotations`, `_meta`, and those of newer versions of MCP.
///
/// ```
/// use greenroom::tool::Content;
///
/// let block = Content::text("done");
/// assert_eq!(serde_json::to_value(&block)?, serde_json::json!({"type": "text", "text": "done"}));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(missing_docs, reason = "fields are named as on the wire")]
#[non_exhaustive]
pub enum Content {
    /// Text.
    Text {
        text: String,
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// An image.
    Image {
        /// The bytes in base64.
        data: String,
        /// The MIME type, such as `image/png`.
        #[serde(rename = "mimeType")]
        mime_type: String,
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// Sound.
    Audio {
        /// The bytes in base64.
        data: String,
        /// The MIME type, such as `audio/wav`.
        #[serde(rename = "mimeType")]
        mime_type: String,
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// A resource with its contents.
    Resource {
        resource: ResourceContents,
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// A link to a resource.
    ResourceLink {
        uri: String,
        name: String,
        /// Also `title`, `description`, `mimeType` and `size`.
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
}

/// A resource with its contents, inside a [`Content`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ResourceContents {
    /// The address.
    pub uri: String,
    /// The MIME type, such as `text/plain`.
    #[serde(default, rename = "mimeType", skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Text contents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Binary contents in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
    /// Metadata for the client, hidden from the model.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

impl ResourceContents {
    /// A text resource.
    pub fn text(uri: impl Into<String>, text: impl Into<String>) -> Self {
        Self { uri: uri.into(), mime_type: None, text: Some(text.into()), blob: None, meta: None }
    }

    /// A binary resource, in base64.
    pub fn blob(uri: impl Into<String>, base64: impl Into<String>) -> Self {
        Self { uri: uri.into(), mime_type: None, text: None, blob: Some(base64.into()), meta: None }
    }

    /// Sets the MIME type, such as `text/plain`.
    pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
        self.mime_type = Some(mime_type.into());
        self
    }

    /// Adds a field of `_meta`.
    pub fn with_meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.meta.get_or_insert_default().insert(key.into(), value.into());
        self
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl Content {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), extra: Map::new() }
    }

    /// An image: the bytes in base64, and the MIME type, such as `image/png`.
    pub fn image(base64: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Self::Image { data: base64.into(), mime_type: mime_type.into(), extra: Map::new() }
    }

    /// Sound: the bytes in base64, and the MIME type, such as `audio/wav`.
    pub fn audio(base64: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Self::Audio { data: base64.into(), mime_type: mime_type.into(), extra: Map::new() }
    }

    /// A resource with its contents.
    pub fn resource(resource: ResourceContents) -> Self {
        Self::Resource { resource, extra: Map::new() }
    }

    /// A link to a resource.
    pub fn resource_link(uri: impl Into<String>, name: impl Into<String>) -> Self {
        Self::ResourceLink { uri: uri.into(), name: name.into(), extra: Map::new() }
    }

    /// Adds a field, such as `annotations` or `_meta`.
    pub fn with(mut self, field: impl Into<String>, value: impl Into<Value>) -> Self {
        let extra = match &mut self {
            Content::Text { extra, .. }
            | Content::Image { extra, .. }
            | Content::Audio { extra, .. }
            | Content::Resource { extra, .. }
            | Content::ResourceLink { extra, .. } => extra,
        };
        extra.insert(field.into(), value.into());
        self
    }

    /// The text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Content::Text { text, .. } => Some(text),
            _ => None,
        }
    }
}

/// The result of a tool call, in the shape of MCP.
///
/// Handlers rarely build one: [`IntoToolResult`](crate::IntoToolResult) lists the types that convert.
///
/// ```
/// use greenroom::tool::{CallToolResult, Content};
///
/// let result = CallToolResult::new([Content::text("two blocks"), Content::image("aGk=", "image/png")]);
/// assert!(!result.is_error);
/// assert_eq!(CallToolResult::error("no such file").text(), "no such file");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallToolResult {
    /// The content for the model.
    #[serde(default)]
    pub content: Vec<Content>,
    /// The result as data, an object.
    #[serde(default, rename = "structuredContent", skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// The call failed. The model reads the content either way.
    #[serde(default, rename = "isError", skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// Metadata for the client, hidden from the model.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

impl CallToolResult {
    /// A result with these blocks.
    pub fn new(content: impl IntoIterator<Item = Content>) -> Self {
        Self { content: content.into_iter().collect(), ..Self::default() }
    }

    /// An error, with a text for the model.
    pub fn error(message: impl Into<String>) -> Self {
        Self { content: vec![Content::text(message)], is_error: true, ..Self::default() }
    }

    /// Sets the result as data, which must be a JSON object.
    pub fn structured(mut self, value: Value) -> Self {
        self.structured_content = Some(value);
        self
    }

    /// Adds a field of `_meta`.
    pub fn with_meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.meta.get_or_insert_default().insert(key.into(), value.into());
        self
    }

    /// Ends the turn with this result, unless the result is an error: the model is not called again, and the turn's
    /// outcome has no text. Sent as `claude/endTurn` in the result's `_meta`, as CLI 2.1.328 expects.
    pub fn end_turn(self) -> Self {
        self.with_meta("claude/endTurn", true)
    }

    /// The text blocks, joined with newlines.
    pub fn text(&self) -> String {
        self.content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n")
    }
}
