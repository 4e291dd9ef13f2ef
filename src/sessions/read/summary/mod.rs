//! The summary of a session: its titles, prompts and metadata, folded from its entries one by one, so that each entry
//! is read once.

mod entry;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

pub(crate) use entry::millis;
use entry::{SummaryEntry, is_automatic};

use super::TranscriptEntry;
use crate::wire::message::read::mend;

/// Longest first prompt, in characters.
const FIRST_PROMPT: usize = 200;

/// The description of a session, without its messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The id, with which the session is resumed.
    pub session_id: String,
    /// A line for lists: the first of custom title, AI title, last prompt, summary, and first prompt.
    pub summary: String,
    /// The title that a user has set.
    pub custom_title: Option<String>,
    /// The title that the CLI has generated.
    pub ai_title: Option<String>,
    /// The first prompt of a person, in one line of at most 200 characters. The name of a slash command if there is no
    /// other prompt.
    pub first_prompt: Option<String>,
    /// The last prompt.
    pub last_prompt: Option<String>,
    /// The git branch at the end of the session.
    pub git_branch: Option<String>,
    /// The working directory.
    pub cwd: Option<PathBuf>,
    /// The start of the CLI: `cli` in a terminal, `sdk-ts`, `sdk-py` and the like by a program.
    pub entrypoint: Option<String>,
    /// The user's tag.
    pub tag: Option<String>,
    /// The first timestamp in the transcript.
    pub created: Option<SystemTime>,
    /// When the session was last written.
    pub modified: SystemTime,
    /// Size of the transcript in bytes; `None` in a store.
    pub file_size: Option<u64>,
    /// Whether the session is archived ([`LocalSessions::archive`](crate::sessions::LocalSessions::archive)).
    /// `Some(false)` if it was unarchived, or has had a prompt since. `None` if it was never archived, and in a store.
    pub archived: Option<bool>,
}

impl SessionInfo {
    /// The title on which the title of a fork is based.
    pub(crate) fn title(&self) -> String {
        let titles = [&self.custom_title, &self.ai_title, &self.first_prompt];
        titles.into_iter().flatten().next().unwrap_or(&self.summary).clone()
    }
}

/// The state of folding. A store keeps its JSON without reading it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Folded {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) is_sidechain: Option<bool>,
    /// Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cwd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) entrypoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_prompt: Option<String>,
    /// The first slash command, used if there is no other prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command_fallback: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) custom_title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ai_title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) summary_hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) git_branch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tag: Option<String>,
    /// Time of the last prompt of a person, in milliseconds since 1970. Only for archive marks, which stores do not
    /// have.
    #[serde(skip)]
    pub(crate) last_asked: Option<u64>,
    /// `sessionKind` of the first entry of the conversation, which names a daemon.
    #[serde(skip)]
    pub(crate) session_kind: Option<Option<String>>,
}

impl Folded {
    /// Whether a program started the session, or a daemon runs it.
    pub(crate) fn is_programmatic(&self) -> bool {
        matches!(self.entrypoint.as_deref(), Some("sdk-cli" | "sdk-ts" | "sdk-py"))
            || matches!(
                self.session_kind.as_ref().and_then(Option::as_deref),
                Some("daemon" | "daemon-worker")
            )
    }

    /// Folds one line. Returns false if the line is no entry.
    pub(crate) fn line(&mut self, line: &str) -> bool {
        if !line.trim_start().starts_with('{') {
            return false;
        }
        let mended = mend(line);
        let Ok(entry) = serde_json::from_str::<SummaryEntry<'_>>(&mended) else { return false };
        // The first value counts.
        self.is_sidechain.get_or_insert(entry.is_sidechain.unwrap_or(false));
        self.created_at = self.created_at.or_else(|| entry.time());
        if self.cwd.is_none() {
            self.cwd = given(entry.cwd.as_ref());
        }
        if self.entrypoint.is_none() {
            self.entrypoint = given(entry.entrypoint.as_ref());
        }
        if self.first_prompt.is_none() && entry.kind == "user" && !entry.is_meta && !entry.is_compact_summary
        {
            self.fold_first_prompt(&entry);
        }
        if self.session_kind.is_none() && entry.uuid.is_some() {
            self.session_kind = Some(entry.session_kind.clone());
        }
        if entry.is_prompt()
            && let Some(at) = entry.time()
        {
            self.last_asked = self.last_asked.max(Some(at));
        }
        // The last value counts.
        for (field, newer) in [
            (&mut self.custom_title, &entry.custom_title),
            (&mut self.ai_title, &entry.ai_title),
            (&mut self.last_prompt, &entry.last_prompt),
            (&mut self.summary_hint, &entry.summary),
            (&mut self.git_branch, &entry.git_branch),
        ] {
            if newer.is_some() {
                *field = given(newer.as_ref());
            }
        }
        if entry.kind == "tag" {
            // An empty tag removes the tag.
            self.tag = given(entry.tag.as_ref());
        }
        true
    }

    fn fold_first_prompt(&mut self, entry: &SummaryEntry<'_>) {
        for text in entry.texts() {
            let text = text.replace('\n', " ");
            let text = text.trim();
            if let Some(command) = between(text, "<command-name>", "</command-name>") {
                self.command_fallback.get_or_insert_with(|| command.to_owned());
            } else if !text.is_empty() && !is_automatic(text) {
                self.first_prompt = Some(cut(text));
                return;
            }
        }
    }

    /// Folds the readable parts of a line whose start or end is missing.
    pub(crate) fn torn(&mut self, piece: &str, is_first: bool) {
        if is_first {
            self.is_sidechain.get_or_insert(piece.contains(r#""isSidechain":true"#));
        }
        self.created_at =
            self.created_at.or_else(|| millis(&find_strings(piece, "timestamp").into_iter().next()?));
        if self.cwd.is_none() {
            self.cwd = find_strings(piece, "cwd").into_iter().find(|cwd| !cwd.is_empty());
        }
        if let Some(branch) = find_strings(piece, "gitBranch").pop().filter(|branch| !branch.is_empty()) {
            self.git_branch = Some(branch);
        }
    }

    /// The description of the session; `None` for a subagent's transcript and for a transcript without a message.
    pub(crate) fn info(
        &self,
        session_id: &str,
        modified: SystemTime,
        file_size: Option<u64>,
        project: Option<&str>,
    ) -> Option<SessionInfo> {
        if self.is_sidechain == Some(true) {
            return None;
        }
        let first_prompt = self.first_prompt.clone().or_else(|| self.command_fallback.clone());
        let summary =
            [&self.custom_title, &self.ai_title, &self.last_prompt, &self.summary_hint, &first_prompt];
        let summary = summary.into_iter().flatten().next()?.clone();
        Some(SessionInfo {
            session_id: session_id.to_owned(),
            summary,
            custom_title: self.custom_title.clone(),
            ai_title: self.ai_title.clone(),
            first_prompt,
            last_prompt: self.last_prompt.clone(),
            git_branch: self.git_branch.clone(),
            cwd: self.cwd.as_deref().or(project).map(PathBuf::from),
            entrypoint: self.entrypoint.clone(),
            tag: self.tag.clone(),
            created: self.created_at.map(moment),
            modified,
            file_size,
            archived: None,
        })
    }

    pub(crate) fn entries<'a>(&mut self, entries: impl IntoIterator<Item = &'a TranscriptEntry>) {
        for entry in entries {
            self.line(entry.raw().get());
        }
    }
}

fn given(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}

/// The time so many milliseconds after 1970.
pub(crate) fn moment(millis: u64) -> SystemTime {
    let nanos = (millis % 1000) as u32 * 1_000_000;
    SystemTime::UNIX_EPOCH + Duration::new(millis / 1000, nanos)
}

fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let rest = &text[text.find(open)? + open.len()..];
    Some(&rest[..rest.find(close)?])
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(FIRST_PROMPT) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

/// The complete string values of a key in a piece of JSON.
fn find_strings(piece: &str, key: &str) -> Vec<String> {
    let opening = format!(r#""{key}":"#);
    let mut found = Vec::new();
    for (at, _) in piece.match_indices(&opening) {
        let rest = piece[at + opening.len()..].trim_start();
        let mut strings = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        if let Some(Ok(string)) = strings.next() {
            found.push(string);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_gives_its_complete_fields() {
        let mut folded = Folded::default();
        folded.torn(r#"{"cwd":"/a \"b\"","timestamp": "2024-01-01T00:00:00Z","gitBranch":"mai"#, true);
        assert_eq!((folded.cwd.as_deref(), folded.git_branch), (Some("/a \"b\""), None));
        assert_eq!(folded.created_at, Some(1_704_067_200_000));
        let mut folded = Folded::default();
        folded.torn(r#"{"isSidechain":true,"x":"#, true);
        assert_eq!(folded.is_sidechain, Some(true));
    }
}
