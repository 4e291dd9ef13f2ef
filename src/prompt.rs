//! Prompts.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

/// A prompt: text or content blocks of the Messages API, and settings for how the CLI handles them.
///
/// Serialised as the list of its blocks; with settings, as an object with the blocks in `content`.
///
/// ```
/// use greenroom::session::PromptPriority;
/// use greenroom::Prompt;
///
/// let text: Prompt = "What is on this picture?".into();
/// let blocks = Prompt::text("What is on this picture?").image("aGk=", "image/png");
/// let verbatim = Prompt::text("/srv/notes and @home are no command and no file").verbatim(true);
/// let note = Prompt::text("The build is green.").should_query(false).priority(PromptPriority::Later);
/// # let _ = (text, blocks, verbatim, note);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    blocks: Vec<Value>,
    settings: PromptSettings,
}

/// The settings of a prompt. Settings that are not set are left out of the line to the CLI.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct PromptSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<PromptPriority>,
    #[serde(rename = "shouldQuery", skip_serializing_if = "Option::is_none")]
    should_query: Option<bool>,
    #[serde(rename = "client_composed", skip_serializing_if = "Option::is_none")]
    verbatim: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<Value>,
    #[serde(rename = "isSynthetic", skip_serializing_if = "std::ops::Not::not")]
    synthetic: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pasted_content: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inline_pastes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_tool_use_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<String>,
}

/// The priority of a prompt in the CLI's queue.
///
/// A session writes one prompt at a time, so only the CLI's own prompts (from background tasks and schedules) and
/// messages into the running turn ([`Session::steer`](crate::Session::steer)) can wait in that queue beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PromptPriority {
    /// Runs at once, before all others.
    Now,
    /// Runs next.
    Next,
    /// Runs after all others.
    Later,
}

impl Prompt {
    /// A prompt of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::blocks([json!({ "type": "text", "text": text.into() })])
    }

    /// A prompt of content blocks of the Messages API, passed on unchanged.
    pub fn blocks(blocks: impl IntoIterator<Item = Value>) -> Self {
        Self { blocks: blocks.into_iter().collect(), settings: PromptSettings::default() }
    }

    /// Adds text, as a block of its own.
    #[must_use]
    pub fn and_text(self, text: impl Into<String>) -> Self {
        self.block(json!({ "type": "text", "text": text.into() }))
    }

    /// Adds a content block of the Messages API, passed on unchanged.
    #[must_use]
    pub fn block(mut self, block: Value) -> Self {
        self.blocks.push(block);
        self
    }

    /// Adds an image: its bytes in base64, and its media type, such as `image/png`.
    #[must_use]
    pub fn image(self, base64: impl Into<String>, media_type: impl Into<String>) -> Self {
        let source = json!({ "type": "base64", "media_type": media_type.into(), "data": base64.into() });
        self.block(json!({ "type": "image", "source": source }))
    }

    /// Adds an image by its URL.
    #[must_use]
    pub fn image_url(self, url: impl Into<String>) -> Self {
        self.block(json!({ "type": "image", "source": { "type": "url", "url": url.into() } }))
    }

    /// Adds a document: its bytes in base64, and its media type, such as `application/pdf`.
    #[must_use]
    pub fn document(self, base64: impl Into<String>, media_type: impl Into<String>) -> Self {
        let source = json!({ "type": "base64", "media_type": media_type.into(), "data": base64.into() });
        self.block(json!({ "type": "document", "source": source }))
    }

    /// Adds a text document with a title.
    #[must_use]
    pub fn text_document(self, title: impl Into<String>, text: impl Into<String>) -> Self {
        let source = json!({ "type": "text", "media_type": "text/plain", "data": text.into() });
        self.block(json!({ "type": "document", "source": source, "title": title.into() }))
    }

    /// Adds a document by its URL.
    #[must_use]
    pub fn document_url(self, url: impl Into<String>) -> Self {
        self.block(json!({ "type": "document", "source": { "type": "url", "url": url.into() } }))
    }

    /// Sets the priority in the CLI's queue. Default: the CLI decides.
    #[must_use]
    pub fn priority(mut self, priority: PromptPriority) -> Self {
        self.settings.priority = Some(priority);
        self
    }

    /// Sets whether the model is asked. Default: true.
    ///
    /// With false the prompt is appended to the conversation, and the model reads it with the next prompt. CLI 2.1.328
    /// was seen to answer at once with a `system/init` and an empty result of 0 turns, so the turn is
    /// [`Completed`](crate::Outcome::Completed). If the CLI gives no result, the turn is
    /// [`Appended`](crate::Outcome::Appended).
    #[must_use]
    pub fn should_query(mut self, should_query: bool) -> Self {
        self.settings.should_query = Some(should_query);
        self
    }

    /// Sets whether the CLI takes the text literally: no `/command`, no `@file`, nothing added at the start of a turn.
    /// Since CLI 2.1.248. Default: [`Options::verbatim_prompts`](crate::Options::verbatim_prompts).
    #[must_use]
    pub fn verbatim(mut self, verbatim: bool) -> Self {
        self.settings.verbatim = Some(verbatim);
        self
    }

    /// Marks the prompt as written by a person. The CLI accepts no other origin from its host, and names it in the
    /// [`origin`](crate::message::ResultMessage::origin) of the result.
    #[must_use]
    pub fn from_human(mut self) -> Self {
        self.settings.origin = Some(json!({ "kind": "human" }));
        self
    }

    /// Sets whether a program wrote the prompt. Default: false.
    ///
    /// CLI 2.1.328 was seen to tell the model so in a line before the prompt, and to name the origin
    /// `unclassified`.
    #[must_use]
    pub fn synthetic(mut self, synthetic: bool) -> Self {
        self.settings.synthetic = synthetic;
        self
    }

    /// Adds pasted content: text, or a list of content blocks. May be called more than once.
    ///
    /// CLI 2.1.328 was seen to put it after the text of the prompt, marked as `pasted_content`, so that the model can
    /// tell it from the user's own words.
    #[must_use]
    pub fn pasted(mut self, content: impl Into<Value>) -> Self {
        self.settings.pasted_content.push(content.into());
        self
    }

    /// Marks a part of the text as pasted, not typed. May be called more than once.
    #[must_use]
    pub fn inline_paste(mut self, part: impl Into<String>) -> Self {
        self.settings.inline_pastes.push(part.into());
        self
    }

    /// Sets the tool call that the prompt belongs to (`parent_tool_use_id`). Default: none. CLI 2.1.328 was seen to
    /// give the prompt to the main thread anyway.
    #[must_use]
    pub fn parent_tool_use_id(mut self, id: impl Into<String>) -> Self {
        self.settings.parent_tool_use_id = Some(id.into());
        self
    }

    /// Sets when the prompt was written (RFC 3339). Default: when the CLI reads it.
    #[must_use]
    pub fn timestamp(mut self, timestamp: impl Into<String>) -> Self {
        self.settings.timestamp = Some(timestamp.into());
        self
    }

    /// The content blocks.
    pub fn content(&self) -> &[Value] {
        &self.blocks
    }

    /// Whether the model is asked.
    pub fn queries(&self) -> bool {
        self.settings.should_query != Some(false)
    }

    /// The length of the prompt as JSON, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        /// Counts what is written.
        struct Count(usize);
        impl std::io::Write for Count {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0 += bytes.len();
                Ok(bytes.len())
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut count = Count(0);
        // Cannot fail: neither the writer nor a `Value` does.
        serde_json::to_writer(&mut count, self).ok();
        count.0
    }

    /// The line for the CLI.
    pub(crate) fn line(&self, uuid: &str, verbatim: bool) -> Value {
        let mut line = json!({
            "type": "user",
            "uuid": uuid,
            "session_id": "",
            "parent_tool_use_id": null,
            "message": { "role": "user", "content": self.blocks },
        });
        let mut settings = self.settings.clone();
        // The CLI reads `true` only.
        settings.verbatim = settings.verbatim.or(Some(verbatim)).filter(|verbatim| *verbatim);
        settings.should_query = settings.should_query.filter(|should_query| !should_query);
        if let (Ok(Value::Object(settings)), Some(line)) =
            (serde_json::to_value(settings), line.as_object_mut())
        {
            line.extend(settings);
        }
        line
    }
}

impl Serialize for Prompt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Whole<'a> {
            content: &'a [Value],
            #[serde(flatten)]
            settings: &'a PromptSettings,
        }
        if self.settings == PromptSettings::default() {
            self.blocks.serialize(serializer)
        } else {
            Whole { content: &self.blocks, settings: &self.settings }.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Prompt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Blocks(Vec<Value>),
            Whole {
                content: Vec<Value>,
                #[serde(flatten)]
                settings: Box<PromptSettings>,
            },
        }
        Ok(match Written::deserialize(deserializer)? {
            Written::Blocks(blocks) => Self::blocks(blocks),
            Written::Whole { content, settings } => Self { blocks: content, settings: *settings },
        })
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
