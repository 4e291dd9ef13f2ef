//! The fields of an entry that describe its session, and whether the entry is a prompt of a person.

use std::time::SystemTime;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::wire::lenient::{fits, fitting, or_default};

/// The fields of one entry, named as in the CLI's transcripts.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SummaryEntry<'a> {
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    pub(super) kind: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) is_sidechain: Option<bool>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) is_meta: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) is_compact_summary: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) timestamp: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) cwd: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) entrypoint: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) custom_title: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) ai_title: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) last_prompt: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) summary: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) git_branch: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) tag: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) is_visible_in_transcript_only: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) session_kind: Option<String>,
    /// Set for the entries of the conversation.
    #[serde(default, deserialize_with = "or_default")]
    pub(super) uuid: Option<String>,
    #[serde(default, borrow)]
    pub(super) origin: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(super) attachment: Option<&'a RawValue>,
}

/// A prompt that was queued during a turn.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attachment<'a> {
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    kind: String,
    #[serde(default, deserialize_with = "or_default")]
    is_meta: bool,
    #[serde(default, borrow)]
    origin: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt: &'a RawValue,
}

#[derive(Default, Deserialize)]
struct PromptOrigin {
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
struct PromptContent<'a> {
    #[serde(borrow)]
    content: &'a RawValue,
}

#[derive(Deserialize)]
struct PromptBlock {
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    kind: String,
    #[serde(default, deserialize_with = "or_default")]
    text: String,
}

impl SummaryEntry<'_> {
    /// Whether the entry is a prompt of a person.
    pub(super) fn is_prompt(&self) -> bool {
        if self.is_sidechain == Some(true) {
            return false;
        }
        match self.kind.as_str() {
            "user" if self.is_meta || self.is_compact_summary || self.is_visible_in_transcript_only => false,
            "user" => self
                .message
                .and_then(fits::<PromptContent<'_>>)
                .is_some_and(|message| is_from_person(self.origin) && is_prompt(message.content)),
            "attachment" => self.attachment.and_then(fits::<Attachment<'_>>).is_some_and(|added| {
                added.kind == "queued_command"
                    && !added.is_meta
                    && is_from_person(added.origin)
                    && is_prompt(added.prompt)
            }),
            _ => false,
        }
    }

    /// The texts of the message; none for a message with tool results.
    pub(super) fn texts(&self) -> Vec<String> {
        let Some(message) = self.message.and_then(fits::<PromptContent<'_>>) else { return Vec::new() };
        let blocks = blocks(message.content);
        if blocks.iter().any(|block| block.kind == "tool_result") {
            return Vec::new();
        }
        blocks.into_iter().filter(|block| block.kind == "text").map(|block| block.text).collect()
    }

    /// The time of the entry in milliseconds since 1970.
    pub(super) fn time(&self) -> Option<u64> {
        self.timestamp.as_deref().and_then(millis)
    }
}

fn is_from_person(origin: Option<&RawValue>) -> bool {
    origin.is_none_or(|origin| fits::<PromptOrigin>(origin).unwrap_or_default().kind == "human")
}

fn blocks(content: &RawValue) -> Vec<PromptBlock> {
    match fits::<String>(content) {
        Some(text) => vec![PromptBlock { kind: "text".into(), text }],
        None => fitting(content),
    }
}

/// Whether the content is a prompt: text of a person, an image or a document. Commands of the CLI do not count.
fn is_prompt(content: &RawValue) -> bool {
    let blocks = blocks(content);
    let counts = |block: &PromptBlock| match block.kind.as_str() {
        "image" | "document" => true,
        "text" => {
            let text = block.text.trim();
            !text.is_empty() && !text.starts_with("<command-name>") && !is_automatic(text)
        }
        _ => false,
    };
    !blocks.iter().any(|block| block.kind == "tool_result") && blocks.iter().any(counts)
}

/// Whether the CLI, an editor or a hook wrote the text, and not a person.
pub(super) fn is_automatic(text: &str) -> bool {
    const BEGINNINGS: [&str; 4] = ["<local-command-stdout>", "<session-start-hook>", "<tick>", "<goal>"];
    let wraps = |open: &str, close: &str| text.starts_with(open) && text.ends_with(close);
    BEGINNINGS.iter().any(|beginning| text.starts_with(beginning))
        || (text.starts_with("[Request interrupted by user") && text.contains(']'))
        || wraps("<ide_opened_file>", "</ide_opened_file>")
        || wraps("<ide_selection>", "</ide_selection>")
}

/// A timestamp of the CLI (RFC 3339) in milliseconds since 1970.
pub(crate) fn millis(timestamp: &str) -> Option<u64> {
    let moment = humantime::parse_rfc3339_weak(timestamp).ok()?;
    moment.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_millis().try_into().ok()
}
