//! What a session is about: folded from its entries, one after the other, so that none is read twice.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::entry::TranscriptEntry;
use crate::wire::message::read::{fits, fitting, maybe, mend, or_default};

/// How much of a first prompt is kept, in characters.
const FIRST_PROMPT: usize = 200;

/// What a session is, without its messages.
///
/// ```
/// # fn show(info: &greenroom::sessions::SessionInfo) {
/// println!("{}  {}  {:?}", info.session_id, info.summary, info.git_branch);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The id by which it is resumed.
    pub session_id: String,
    /// What to show in a list: the user's title, else the AI's, else the newest prompt, else a summary, else the first
    /// prompt.
    pub summary: String,
    /// The title that a user gave it.
    pub custom_title: Option<String>,
    /// The title that the CLI has made up.
    pub ai_title: Option<String>,
    /// What was asked first, in one line of at most 200 characters; what the CLI puts in by itself does not count. A
    /// slash command's name, if nothing else was asked.
    pub first_prompt: Option<String>,
    /// What was asked last.
    pub last_prompt: Option<String>,
    /// The git branch at its end.
    pub git_branch: Option<String>,
    /// Its working directory.
    pub cwd: Option<PathBuf>,
    /// What had started the CLI: `cli` for a terminal, `sdk-ts`, `sdk-py` and the like for a program.
    pub entrypoint: Option<String>,
    /// The user's tag.
    pub tag: Option<String>,
    /// When it began: the first time that its entries name.
    pub created: Option<SystemTime>,
    /// When it was last written to.
    pub modified: SystemTime,
    /// The size of its file in bytes; `None` for one in a store.
    pub file_size: Option<u64>,
}

impl SessionInfo {
    /// What a fork of it is called after.
    pub(crate) fn title(&self) -> String {
        let titles = [&self.custom_title, &self.ai_title, &self.first_prompt];
        titles.into_iter().flatten().next().unwrap_or(&self.summary).clone()
    }
}

/// What was folded so far. A store keeps it as the JSON that it serialises to, and does not look inside.
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
    /// A slash command, in case that nothing else was asked.
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
}

/// What an entry has to say about its session.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    kind: String,
    #[serde(default, deserialize_with = "maybe")]
    is_sidechain: Option<bool>,
    #[serde(default, deserialize_with = "or_default")]
    is_meta: bool,
    #[serde(default, deserialize_with = "or_default")]
    is_compact_summary: bool,
    #[serde(default, deserialize_with = "maybe")]
    timestamp: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    cwd: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    entrypoint: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    custom_title: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    ai_title: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    last_prompt: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    summary: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    git_branch: Option<String>,
    #[serde(default, deserialize_with = "maybe")]
    tag: Option<String>,
    #[serde(default, borrow)]
    message: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    content: &'a RawValue,
}

#[derive(Deserialize)]
struct Block {
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    kind: String,
    #[serde(default, deserialize_with = "or_default")]
    text: String,
}

impl Folded {
    /// Takes one line into account; false if it is no entry.
    pub(crate) fn line(&mut self, line: &str) -> bool {
        if !line.trim_start().starts_with('{') {
            return false;
        }
        let mended = mend(line);
        let Ok(told) = serde_json::from_str::<Told<'_>>(&mended) else { return false };
        // What is there first stays.
        self.is_sidechain.get_or_insert(told.is_sidechain.unwrap_or(false));
        self.created_at = self.created_at.or_else(|| millis(told.timestamp.as_deref()?));
        if self.cwd.is_none() {
            self.cwd = given(told.cwd.as_ref());
        }
        if self.entrypoint.is_none() {
            self.entrypoint = given(told.entrypoint.as_ref());
        }
        if self.first_prompt.is_none() && told.kind == "user" && !told.is_meta && !told.is_compact_summary {
            self.prompt(&told);
        }
        // What comes last counts.
        for (place, newer) in [
            (&mut self.custom_title, &told.custom_title),
            (&mut self.ai_title, &told.ai_title),
            (&mut self.last_prompt, &told.last_prompt),
            (&mut self.summary_hint, &told.summary),
            (&mut self.git_branch, &told.git_branch),
        ] {
            if newer.is_some() {
                *place = given(newer.as_ref());
            }
        }
        if told.kind == "tag" {
            // An empty one takes the tag away.
            self.tag = given(told.tag.as_ref());
        }
        true
    }

    fn prompt(&mut self, told: &Told<'_>) {
        let Some(message) = told.message.and_then(fits::<Content<'_>>) else { return };
        let texts: Vec<String> = match fits::<String>(message.content) {
            Some(text) => vec![text],
            None => {
                let blocks: Vec<Block> = fitting(message.content);
                if blocks.iter().any(|block| block.kind == "tool_result") {
                    return;
                }
                blocks.into_iter().filter(|block| block.kind == "text").map(|block| block.text).collect()
            }
        };
        for text in texts {
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

    /// Takes a line into account whose end or beginning is missing, as far as it can be read.
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

    /// What there is to say about the session; `None` if it is a subagent's, or if nothing was said in it.
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

/// A moment as the CLI writes it, in milliseconds since 1970.
fn millis(timestamp: &str) -> Option<u64> {
    let moment = humantime::parse_rfc3339_weak(timestamp).ok()?;
    moment.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_millis().try_into().ok()
}

/// The moment that is so many milliseconds after the beginning of 1970.
pub(crate) fn moment(millis: u64) -> SystemTime {
    let nanos = (millis % 1000) as u32 * 1_000_000;
    SystemTime::UNIX_EPOCH + Duration::new(millis / 1000, nanos)
}

fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let rest = &text[text.find(open)? + open.len()..];
    Some(&rest[..rest.find(close)?])
}

/// Whether the CLI, an editor or a hook has put this in, and not a person.
fn is_automatic(text: &str) -> bool {
    const BEGINNINGS: [&str; 4] = ["<local-command-stdout>", "<session-start-hook>", "<tick>", "<goal>"];
    let wraps = |open: &str, close: &str| text.starts_with(open) && text.ends_with(close);
    BEGINNINGS.iter().any(|beginning| text.starts_with(beginning))
        || (text.starts_with("[Request interrupted by user") && text.contains(']'))
        || wraps("<ide_opened_file>", "</ide_opened_file>")
        || wraps("<ide_selection>", "</ide_selection>")
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(FIRST_PROMPT) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

/// The strings that stand behind this key in a piece of JSON, whole ones only.
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
    use serde_json::{Value, json};

    use super::*;

    fn fold(entries: &[Value]) -> Folded {
        let mut folded = Folded::default();
        for entry in entries {
            assert!(folded.line(&entry.to_string()));
        }
        folded
    }

    fn info(entries: &[Value]) -> Option<SessionInfo> {
        fold(entries).info("s", SystemTime::UNIX_EPOCH, None, Some("/project"))
    }

    fn user(content: Value) -> Value {
        json!({"type": "user", "message": {"role": "user", "content": content}})
    }

    #[test]
    fn the_title_of_a_user_goes_before_all_others() {
        let mut entries = vec![user(json!("First"))];
        let summary = |entries: &[Value]| info(entries).unwrap().summary;
        assert_eq!(summary(&entries), "First");
        entries.push(json!({"type": "summary", "summary": "A summary"}));
        assert_eq!(summary(&entries), "A summary");
        entries.push(json!({"type": "last-prompt", "lastPrompt": "Last"}));
        assert_eq!(summary(&entries), "Last");
        entries.push(json!({"type": "ai-title", "aiTitle": "By AI"}));
        assert_eq!(summary(&entries), "By AI");
        entries.push(json!({"type": "custom-title", "customTitle": "Old"}));
        entries.push(json!({"type": "custom-title", "customTitle": "Mine"}));
        entries.push(json!({"type": "ai-title", "aiTitle": "By AI again"}));
        assert_eq!(summary(&entries), "Mine");
    }

    #[test]
    fn the_first_prompt_is_what_a_person_has_asked() {
        let first = |entries: &[Value]| info(entries).and_then(|info| info.first_prompt);
        let automatic = [
            json!({"type": "user", "isMeta": true, "message": {"content": "meta"}}),
            json!({"type": "user", "isCompactSummary": true, "message": {"content": "summary"}}),
            user(json!([{"type": "tool_result", "tool_use_id": "t"}, {"type": "text", "text": "no"}])),
            user(json!("<local-command-stdout>x</local-command-stdout>")),
            user(json!("[Request interrupted by user for tool use]")),
            user(json!(" <ide_opened_file>a\nb</ide_opened_file> ")),
            user(json!("\n ")),
            user(json!("<command-name>/clear</command-name>")),
            user(json!("<command-name>/model</command-name>")),
        ];
        assert_eq!(first(&automatic).as_deref(), Some("/clear"));
        let asked =
            user(json!([{"type": "text", "text": "<tick>"}, {"type": "text", "text": " Say\nthis "}]));
        let all: Vec<_> = automatic.into_iter().chain([asked, user(json!("and more"))]).collect();
        assert_eq!(first(&all).as_deref(), Some("Say this"));
        let long = first(&[user(json!("é".repeat(300)))]).unwrap();
        assert_eq!(long.chars().count(), 201);
        assert!(long.ends_with("é…"));
    }

    #[test]
    fn a_tag_is_taken_away_by_an_empty_one_and_set_by_no_tool() {
        let tag = |tag: &str| json!({"type": "tag", "tag": tag});
        let with = |more: &[Value]| {
            let entries: Vec<_> = [user(json!("Hi"))].iter().chain(more).cloned().collect();
            info(&entries).unwrap().tag
        };
        assert_eq!(with(&[tag("a"), tag("b")]).as_deref(), Some("b"));
        assert_eq!(with(&[tag("a"), tag("")]), None);
        assert_eq!(with(&[json!({"type": "docker", "tag": "latest"})]), None);
    }

    #[test]
    fn what_is_said_first_or_last_counts() {
        let at = |timestamp: &str, cwd: &str, branch: &str| json!({"timestamp": timestamp, "cwd": cwd, "gitBranch": branch});
        let info = info(&[
            user(json!("Hi")),
            at("2024-01-01T00:00:01.500Z", "/a", "main"),
            at("2025-01-01T00:00:00Z", "/b", "next"),
        ]);
        let info = info.unwrap();
        assert_eq!(info.cwd.unwrap(), PathBuf::from("/a"));
        assert_eq!(info.git_branch.as_deref(), Some("next"));
        let created = SystemTime::UNIX_EPOCH + Duration::from_millis(1_704_067_201_500);
        assert_eq!(info.created, Some(created));
    }

    #[test]
    fn a_subagents_session_and_one_without_a_word_are_none() {
        assert_eq!(info(&[json!({"type": "mode"})]), None);
        assert_eq!(info(&[json!({"isSidechain": true}), user(json!("Hi"))]), None);
        assert!(info(&[json!({"isSidechain": false}), user(json!("Hi"))]).is_some());
    }

    #[test]
    fn a_torn_line_tells_what_is_whole_of_it() {
        let mut folded = Folded::default();
        folded.torn(r#"{"cwd":"/a \"b\"","timestamp": "2024-01-01T00:00:00Z","gitBranch":"mai"#, true);
        assert_eq!((folded.cwd.as_deref(), folded.git_branch), (Some("/a \"b\""), None));
        assert_eq!(folded.created_at, Some(1_704_067_200_000));
        let mut folded = Folded::default();
        folded.torn(r#"{"isSidechain":true,"x":"#, true);
        assert_eq!(folded.is_sidechain, Some(true));
    }

    #[test]
    fn what_was_folded_can_be_put_away_and_gone_on_with() {
        let before = fold(&[user(json!("Hi")), json!({"type": "tag", "tag": "t"})]);
        let mut after: Folded = serde_json::from_value(serde_json::to_value(&before).unwrap()).unwrap();
        assert_eq!(before, after);
        after.line(r#"{"type":"tag","tag":""}"#);
        assert_eq!((after.tag, after.first_prompt.as_deref()), (None, Some("Hi")));
    }
}
