//! What a tool returns: MCP content blocks and the result around them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One block of a tool's result, in MCP's own shape.
///
/// ```
/// use greenroom::Content;
///
/// let block = Content::text("done");
/// assert_eq!(serde_json::to_value(&block)?, serde_json::json!({"type": "text", "text": "done"}));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Content {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// `annotations`, `_meta` and whatever else belongs to the block.
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// A picture.
    Image {
        /// Its bytes, in base64.
        data: String,
        /// Its type, such as `image/png`.
        #[serde(rename = "mimeType")]
        mime_type: String,
        /// `annotations`, `_meta` and whatever else belongs to the block.
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// Sound.
    Audio {
        /// Its bytes, in base64.
        data: String,
        /// Its type, such as `audio/wav`.
        #[serde(rename = "mimeType")]
        mime_type: String,
        /// `annotations`, `_meta` and whatever else belongs to the block.
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// A resource, with its contents.
    Resource {
        /// The resource.
        resource: Resource,
        /// `annotations`, `_meta` and whatever else belongs to the block.
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// The address of a resource.
    ResourceLink {
        /// Its address.
        uri: String,
        /// Its name.
        name: String,
        /// `title`, `description`, `mimeType`, `size`, `annotations`, `_meta` and whatever else belongs to it.
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
}

/// A resource with its contents, inside a [`Content`].
///
/// ```
/// let file = greenroom::Resource::text("file:///notes.txt", "remember the milk");
/// assert_eq!(file.uri, "file:///notes.txt");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Resource {
    /// Its address.
    pub uri: String,
    /// Its type, such as `text/plain`.
    #[serde(default, rename = "mimeType", skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Its contents, if they are text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Its contents in base64, if they are not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
    /// What is meant for the client and not for the model.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

impl Resource {
    /// A resource that is text.
    pub fn text(uri: impl Into<String>, text: impl Into<String>) -> Self {
        Self { uri: uri.into(), mime_type: None, text: Some(text.into()), blob: None, meta: None }
    }

    /// A resource that is bytes, in base64.
    pub fn blob(uri: impl Into<String>, base64: impl Into<String>) -> Self {
        Self { uri: uri.into(), mime_type: None, text: None, blob: Some(base64.into()), meta: None }
    }

    /// With this type, such as `text/plain`.
    pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
        self.mime_type = Some(mime_type.into());
        self
    }

    /// With one more field of `_meta`.
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
    /// A block of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), extra: Map::new() }
    }

    /// A picture: its bytes in base64, and its type, such as `image/png`.
    pub fn image(base64: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Self::Image { data: base64.into(), mime_type: mime_type.into(), extra: Map::new() }
    }

    /// Sound: its bytes in base64, and its type, such as `audio/wav`.
    pub fn audio(base64: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Self::Audio { data: base64.into(), mime_type: mime_type.into(), extra: Map::new() }
    }

    /// A resource, with its contents.
    pub fn resource(resource: Resource) -> Self {
        Self::Resource { resource, extra: Map::new() }
    }

    /// The address of a resource, and its name.
    pub fn resource_link(uri: impl Into<String>, name: impl Into<String>) -> Self {
        Self::ResourceLink { uri: uri.into(), name: name.into(), extra: Map::new() }
    }

    /// With one more field, such as `annotations` or `_meta`.
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

/// The result of a tool call, in MCP's own shape.
///
/// Handlers rarely build it: see [`IntoToolResult`](crate::IntoToolResult) for what becomes one.
///
/// ```
/// use greenroom::{CallToolResult, Content};
///
/// let result = CallToolResult::new([Content::text("two blocks"), Content::image("aGk=", "image/png")]);
/// assert!(!result.is_error);
/// assert_eq!(CallToolResult::error("no such file").text(), "no such file");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallToolResult {
    /// What the model reads.
    #[serde(default)]
    pub content: Vec<Content>,
    /// The same as data, for those who want no text. An object.
    #[serde(default, rename = "structuredContent", skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// Whether the call failed. The model reads the content either way.
    #[serde(default, rename = "isError", skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// What is meant for the client and not for the model.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

impl CallToolResult {
    /// A result of these blocks.
    pub fn new(content: impl IntoIterator<Item = Content>) -> Self {
        Self { content: content.into_iter().collect(), ..Self::default() }
    }

    /// A failure, with the text that the model reads.
    pub fn error(message: impl Into<String>) -> Self {
        Self { content: vec![Content::text(message)], is_error: true, ..Self::default() }
    }

    /// With the same as data: must be a JSON object.
    pub fn structured(mut self, value: Value) -> Self {
        self.structured_content = Some(value);
        self
    }

    /// With one more field of `_meta`.
    pub fn with_meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.meta.get_or_insert_default().insert(key.into(), value.into());
        self
    }

    /// Ends the turn with this result, unless it is an error: the model is not asked once more. CLI 2.1.328 does so for
    /// `claude/endTurn` in the `_meta` of the result (in that of the tool it has no effect); the turn's outcome then has no
    /// text.
    pub fn end_turn(self) -> Self {
        self.with_meta("claude/endTurn", true)
    }

    /// The text blocks, joined with line ends.
    pub fn text(&self) -> String {
        self.content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_block_has_the_shape_of_mcp_and_comes_back() {
        let blocks = [
            (Content::text("hi"), json!({"type": "text", "text": "hi"})),
            (
                Content::image("aGk=", "image/png"),
                json!({"type": "image", "data": "aGk=", "mimeType": "image/png"}),
            ),
            (
                Content::audio("aGk=", "audio/wav"),
                json!({"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}),
            ),
            (
                Content::resource(Resource::text("file:///a", "x").mime_type("text/plain")),
                json!({"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "x"}}),
            ),
            (
                Content::resource(Resource::blob("file:///b", "aGk=")),
                json!({"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}}),
            ),
            (
                Content::resource_link("file:///c", "c").with("mimeType", "text/plain"),
                json!({"type": "resource_link", "uri": "file:///c", "name": "c", "mimeType": "text/plain"}),
            ),
        ];
        for (block, shape) in blocks {
            assert_eq!(serde_json::to_value(&block).unwrap(), shape);
            assert_eq!(serde_json::from_value::<Content>(shape).unwrap(), block);
        }
    }

    #[test]
    fn a_result_says_is_error_only_when_it_is_one() {
        let fine = CallToolResult::new([Content::text("x")]).structured(json!({"a": 1})).with_meta("k", 1);
        assert_eq!(
            serde_json::to_value(&fine).unwrap(),
            json!({"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": 1}, "_meta": {"k": 1}})
        );
        assert_eq!(serde_json::to_value(CallToolResult::error("no")).unwrap()["isError"], true);
    }
}
