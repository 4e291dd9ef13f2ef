//! Forks: copies of a conversation up to a message, with a new session id and new entry ids.

use std::collections::HashMap;
use std::time::SystemTime;

use serde_json::{Map, Value, json};

use super::entry::TranscriptEntry;
use super::link::EntryLink;
use crate::error::{Error, ErrorKind, Result};

/// Fields that belong to the original session only.
const LEFT_BEHIND: [&str; 4] = ["teamName", "agentName", "slug", "sourceToolAssistantUUID"];

/// The plan for copying the entries of a session, made from its whole transcript.
pub(crate) struct Fork {
    source: String,
    session_id: String,
    /// New entry ids by old ids.
    uuids: HashMap<String, String>,
    /// Progress entries with their parents. They are not copied; their children get their parent.
    progress: HashMap<String, Option<String>>,
    /// The last entry, which gets the time of the fork, because the CLI continues from the newest entry.
    last: String,
    /// The boundary whose summary is the last entry. The messages that it keeps come later and are not copied.
    without_kept: Option<String>,
    now: String,
}

impl Fork {
    /// # Errors
    /// [`ErrorKind::SessionNotFound`] if there is nothing to copy, or `up_to` is no message of the session.
    pub(crate) fn plan(source: &str, entries: &[TranscriptEntry], up_to: Option<&str>) -> Result<Self> {
        let links = entries.iter().filter_map(|entry| EntryLink::read(entry.raw().get()));
        let mut own: Vec<EntryLink> = links.filter(|link| link.is_linked() && !link.is_sidechain).collect();
        let mut without_kept = None;
        if let Some(up_to) = up_to {
            let Some(at) = own.iter().position(|link| link.uuid == up_to) else {
                let text = format!("the session {source} has no message '{up_to}'");
                return Err(Error::new(ErrorKind::SessionNotFound, text)
                    .with_help("give the `uuid` of one of the session's messages"));
            };
            if own[at].is_compact_summary {
                without_kept = own[at].parent_uuid.clone();
            }
            // A fork that ends with a boundary would be an empty conversation.
            own.truncate(if own[at].is_boundary() { at } else { at + 1 });
        }
        let Some(last) = own.iter().rev().find(|link| link.kind != "progress") else {
            let text = format!("the session {source} has no messages to fork");
            return Err(
                Error::new(ErrorKind::SessionNotFound, text).with_help("run a turn in the session first")
            );
        };
        let new_id = || uuid::Uuid::new_v4().to_string();
        Ok(Self {
            source: source.to_owned(),
            session_id: new_id(),
            last: last.uuid.clone(),
            uuids: own.iter().map(|link| (link.uuid.clone(), new_id())).collect(),
            progress: own
                .iter()
                .filter(|link| link.kind == "progress")
                .map(|link| (link.uuid.clone(), link.parent_uuid.clone()))
                .collect(),
            without_kept,
            now: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
        })
    }

    pub(crate) fn session_id(&self) -> &str {
        &self.session_id
    }

    /// The copy of an entry; `None` if the entry is not part of the fork.
    pub(crate) fn copy(&self, entry: Value) -> Option<Value> {
        let Value::Object(mut entry) = entry else { return None };
        let string = |entry: &Map<String, Value>, name: &str| entry.get(name)?.as_str().map(str::to_owned);
        if entry.get("type").is_some_and(|kind| kind == "content-replacement") {
            // Replaces large tool results. Without this entry the CLI would load them again.
            if string(&entry, "sessionId").as_deref() != Some(&self.source) {
                return None;
            }
            entry.insert("sessionId".into(), json!(self.session_id));
            entry.insert("uuid".into(), json!(uuid::Uuid::new_v4().to_string()));
            return Some(Value::Object(entry));
        }
        let uuid = string(&entry, "uuid")?;
        let new = self.uuids.get(&uuid).filter(|_| !self.progress.contains_key(&uuid))?;
        let parent = string(&entry, "parentUuid").and_then(|parent| self.copied(parent));
        if let Some(logical) = string(&entry, "logicalParentUuid") {
            entry.insert("logicalParentUuid".into(), json!(self.uuids.get(&logical)));
        }
        if let Some(metadata) = entry.get_mut("compactMetadata").and_then(Value::as_object_mut) {
            if self.without_kept.as_deref() == Some(&uuid) {
                metadata.retain(|name, _| !name.starts_with("preserved"));
            }
            metadata.values_mut().for_each(|value| self.rename(value));
        }
        if uuid == self.last || !entry.contains_key("timestamp") {
            entry.insert("timestamp".into(), json!(self.now));
        }
        for name in LEFT_BEHIND {
            entry.remove(name);
        }
        let origin = json!({ "sessionId": self.source, "messageUuid": uuid });
        for (name, value) in [
            ("uuid", json!(new)),
            ("parentUuid", json!(parent)),
            ("sessionId", json!(self.session_id)),
            ("isSidechain", json!(false)),
            ("forkedFrom", origin),
        ] {
            entry.insert(name.into(), value);
        }
        Some(Value::Object(entry))
    }

    /// The new id of the entry, or of its first ancestor that is copied.
    fn copied(&self, uuid: String) -> Option<String> {
        let mut at = uuid;
        // Bounded, because progress entries may name each other in a circle.
        for _ in 0..=self.progress.len() {
            match self.progress.get(&at) {
                Some(parent) => at = parent.clone()?,
                None => return self.uuids.get(&at).cloned(),
            }
        }
        None
    }

    /// Replaces old entry ids anywhere inside a value.
    fn rename(&self, value: &mut Value) {
        match value {
            Value::String(uuid) => {
                if let Some(new) = self.uuids.get(uuid.as_str()) {
                    new.clone_into(uuid);
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.rename(value)),
            Value::Object(fields) => fields.values_mut().for_each(|value| self.rename(value)),
            _ => {}
        }
    }

    /// The entry with the fork's title, to be appended last.
    pub(crate) fn title(&self, title: &str) -> Value {
        json!({
            "type": "custom-title",
            "sessionId": self.session_id,
            "customTitle": title,
            "uuid": uuid::Uuid::new_v4().to_string(),
            "timestamp": self.now,
        })
    }
}

/// The title of a fork that is not given one.
pub(crate) fn derived_title(of: Option<&str>) -> String {
    format!("{} (fork)", of.unwrap_or("Forked session"))
}
