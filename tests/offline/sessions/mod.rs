//! The conversations on disk, and who has them.

mod archive;
mod changes;
mod conversation;
mod fork;
mod in_use;
mod lists;
mod reads;
mod start_or_resume;
mod summary;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use greenroom::sessions::{LocalSessions, SessionInfo, SessionMessages, project_key};
use serde_json::{Value, json};
use tempfile::TempDir;

const A: &str = "aaaaaaaa-0000-4000-8000-000000000001";
const B: &str = "bbbbbbbb-0000-4000-8000-000000000002";
const C: &str = "cccccccc-0000-4000-8000-000000000003";

/// A configuration folder, and the directory of a project.
struct Home {
    config: TempDir,
    work: TempDir,
}

impl Home {
    fn new() -> Self {
        Self { config: tempfile::tempdir().unwrap(), work: tempfile::tempdir().unwrap() }
    }

    fn folder(&self, project: &Path) -> PathBuf {
        let folder = self.config.path().join("projects").join(project_key(project));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Writes a transcript with a modification time of `seconds` after a fixed moment.
    fn write(&self, id: &str, seconds: u64, lines: &[Value]) -> PathBuf {
        self.write_to(self.work.path(), id, seconds, lines)
    }

    fn write_to(&self, project: &Path, id: &str, seconds: u64, lines: &[Value]) -> PathBuf {
        let path = self.folder(project).join(format!("{id}.jsonl"));
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(&path, text).unwrap();
        let moment = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds);
        fs::File::options().write(true).open(&path).unwrap().set_modified(moment).unwrap();
        path
    }

    fn all(&self) -> LocalSessions {
        LocalSessions::at(self.config.path())
    }

    fn here(&self) -> LocalSessions {
        self.all().in_directory(self.work.path())
    }
}

fn user(uuid: &str, parent: Option<&str>, text: &str) -> Value {
    json!({"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": A, "cwd": "/work", "gitBranch": "main",
        "timestamp": "2024-05-01T10:00:00.000Z", "message": {"role": "user", "content": text}})
}

fn assistant(uuid: &str, parent: &str, text: &str) -> Value {
    json!({"type": "assistant", "uuid": uuid, "parentUuid": parent, "sessionId": A,
        "message": {"id": format!("msg_{uuid}"), "role": "assistant", "content": [{"type": "text", "text": text}]}})
}

fn talk() -> Vec<Value> {
    vec![
        json!({"type": "queue-operation", "operation": "enqueue"}),
        user("u1", None, "What is 5 + 3?"),
        assistant("a1", "u1", "8"),
        user("u2", Some("a1"), "And 2 more?"),
        assistant("a2", "u2", "10"),
    ]
}

fn ids(sessions: &[SessionInfo]) -> Vec<&str> {
    sessions.iter().map(|session| session.session_id.as_str()).collect()
}

fn said(messages: &SessionMessages) -> Vec<&str> {
    messages.messages.iter().map(|message| message.uuid.as_str()).collect()
}
