//! Where the content of a block comes from: pictures, documents, searches.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::wire::message::read::fits;
use crate::wire::message::view::{Loose, view};

/// Where a picture or a document is.
///
/// ```
/// use greenroom::{ContentBlock, Message, message::MediaSource};
///
/// let line = r#"{"type": "user", "message": {"content": [
///     {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
/// ]}}"#;
/// let message = Message::parse(line)?;
/// let ContentBlock::Image { source, .. } = &message.content()[0] else { unreachable!() };
/// assert!(matches!(source, MediaSource::Base64 { media_type, .. } if media_type == "image/png"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MediaSource {
    /// Here (`base64`).
    #[non_exhaustive]
    Base64 {
        /// Its type, such as `image/png`.
        media_type: String,
        /// Its bytes, in base64.
        data: String,
    },
    /// Here, as text (`text`).
    #[non_exhaustive]
    Text {
        /// Its type, such as `text/plain`.
        media_type: String,
        /// The text.
        data: String,
    },
    /// At an address (`url`).
    #[non_exhaustive]
    Url {
        /// The address.
        url: String,
    },
    /// In the API's store of files (`file`).
    #[non_exhaustive]
    File {
        /// The file.
        file_id: String,
    },
    /// Anywhere else, as it came.
    Other(Value),
}

/// What a web search came to, in a [`ContentBlock::WebSearchToolResult`](crate::ContentBlock::WebSearchToolResult).
///
/// ```
/// use greenroom::{ContentBlock, Message, message::WebSearchContent};
///
/// let line = r#"{"type": "assistant", "message": {"content": [{"type": "web_search_tool_result",
///     "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result", "url": "https://a", "title": "A"}]}]}}"#;
/// let message = Message::parse(line)?;
/// let ContentBlock::WebSearchToolResult { content, .. } = &message.content()[0] else { unreachable!() };
/// let WebSearchContent::Results(found) = content else { unreachable!() };
/// assert_eq!(found[0].url, "https://a");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum WebSearchContent {
    /// What was found.
    Results(Vec<WebSearchResult>),
    /// Why nothing could be: the API's `error_code`, such as `max_uses_exceeded`.
    Error(String),
    /// Something else, as it came.
    Other(Value),
}

view! {
    /// A page that a web search found, in a [`WebSearchContent`].
    part WebSearchResult: r#"{"url": "https://a", "title": "A", "page_age": "2 days"}"# => r#"view.title == "A""# {
        /// Its address.
        url: String,
        /// Its title.
        title: String,
        /// How old it is, in words.
        page_age: Option<String>,
        /// What it says, encrypted.
        encrypted_content: Option<String>,
    }
}

impl MediaSource {
    pub(super) fn read(raw: &RawValue) -> Option<Self> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Source {
            #[serde(rename = "type")]
            kind: String,
            media_type: Option<String>,
            data: Option<String>,
            url: Option<String>,
            file_id: Option<String>,
        }
        let known = || {
            let source: Source = fits(raw)?;
            Some(match source.kind.as_str() {
                "base64" => MediaSource::Base64 { media_type: source.media_type?, data: source.data? },
                "text" => MediaSource::Text { media_type: source.media_type?, data: source.data? },
                "url" => MediaSource::Url { url: source.url? },
                "file" => MediaSource::File { file_id: source.file_id? },
                _ => return None,
            })
        };
        known().or_else(|| serde_json::from_str(raw.get()).ok().map(MediaSource::Other))
    }
}

impl WebSearchContent {
    pub(super) fn read(raw: &RawValue) -> Option<Self> {
        #[derive(Deserialize)]
        struct Failure {
            error_code: String,
        }
        if raw.get().starts_with('[') {
            return Vec::loose(raw).map(WebSearchContent::Results);
        }
        match fits::<Failure>(raw) {
            Some(failure) => Some(WebSearchContent::Error(failure.error_code)),
            None => serde_json::from_str(raw.get()).ok().map(WebSearchContent::Other),
        }
    }
}
