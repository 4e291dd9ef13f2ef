//! What is said to a session.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What is said to a session: text, or content blocks in the shape of the Messages API.
///
/// ```
/// use greenroom::Prompt;
///
/// let text: Prompt = "What is on this picture?".into();
/// let blocks = Prompt::text("What is on this picture?").image("aGk=", "image/png");
/// # let _ = (text, blocks);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Prompt {
    blocks: Vec<Value>,
}

impl Prompt {
    /// A prompt of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { blocks: vec![json!({ "type": "text", "text": text.into() })] }
    }

    /// A prompt of content blocks in the shape of the Messages API, handed on as they are.
    pub fn blocks(blocks: impl IntoIterator<Item = Value>) -> Self {
        Self { blocks: blocks.into_iter().collect() }
    }

    /// With a picture: its bytes in base64, and its type, such as `image/png`.
    pub fn image(mut self, base64: impl Into<String>, media_type: impl Into<String>) -> Self {
        let source = json!({ "type": "base64", "media_type": media_type.into(), "data": base64.into() });
        self.blocks.push(json!({ "type": "image", "source": source }));
        self
    }

    /// The blocks.
    pub fn content(&self) -> &[Value] {
        &self.blocks
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}
