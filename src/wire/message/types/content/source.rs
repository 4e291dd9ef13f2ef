//! Sources of images, documents and web searches.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::wire::lenient::{JsonSource, Lenient, ListRule, read_object};
use crate::wire::objects::objects;

/// The source of an image or a document.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "fields are named as on the wire")]
#[non_exhaustive]
pub enum MediaSource {
    /// Bytes in the block (`base64`).
    #[non_exhaustive]
    Base64 {
        /// The MIME type, such as `image/png`.
        media_type: String,
        /// The bytes in base64.
        data: String,
    },
    /// Text in the block (`text`).
    #[non_exhaustive]
    Text {
        /// The MIME type, such as `text/plain`.
        media_type: String,
        data: String,
    },
    /// An address (`url`).
    #[non_exhaustive]
    Url { url: String },
    /// A file in the API's store (`file`).
    #[non_exhaustive]
    File { file_id: String },
    /// Any other source, unchanged.
    Other(Value),
}

/// The result of a web search, in a
/// [`ContentBlock::WebSearchToolResult`](crate::message::ContentBlock::WebSearchToolResult).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum WebSearchContent {
    /// The pages that were found.
    Results(Vec<WebSearchResult>),
    /// The API's `error_code`, such as `max_uses_exceeded`.
    Error(String),
    /// Anything else, unchanged.
    Other(Value),
}

objects! {
    /// A page that a web search found, in a [`WebSearchContent`].
    part WebSearchResult {
        url: String,
        title: String,
        /// Age of the page, in words.
        page_age: Option<String>,
        /// The text of the page, encrypted.
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
            let source: Source = read_object(raw.get()).ok()?;
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
            return Lenient::read(JsonSource::Raw(raw), ListRule::Fitting).map(WebSearchContent::Results);
        }
        match read_object::<Failure>(raw.get()) {
            Ok(failure) => Some(WebSearchContent::Error(failure.error_code)),
            Err(_) => serde_json::from_str(raw.get()).ok().map(WebSearchContent::Other),
        }
    }
}
