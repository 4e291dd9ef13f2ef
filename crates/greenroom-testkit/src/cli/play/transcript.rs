//! The transcript of the conversation, for a session with a store, and the call with which a resumed one goes on.
//!
//! As with CLI 2.1.330: a transcript that ends with a deferred call goes on with that call, under its id, before any prompt.

use std::path::PathBuf;

use greenroom::testing::Delivered;
use greenroom::transport::Launch;
use serde_json::{Value, json};

use super::{Player, Stop};
use crate::cli::model_turn::{Item, ModelTurn};

/// The transcript of one launch.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    /// `None`: nothing is written.
    path: Option<PathBuf>,
    last: Option<String>,
    deferred: Option<Value>,
}

impl Transcript {
    pub(super) fn of(launch: &Launch, session_id: &str) -> Self {
        if !launch.args.iter().any(|arg| arg == "--session-mirror") {
            return Self::default();
        }
        let env = Delivered::launched(launch, Value::Null).env;
        let look_up = |name: &str| env.get(name).cloned().or_else(|| std::env::var(name).ok());
        let config_dir = look_up("CLAUDE_CONFIG_DIR")
            .map(PathBuf::from)
            .unwrap_or_else(|| PathBuf::from(look_up("HOME").unwrap_or_default()).join(".claude"));
        let projects = config_dir.join("projects");
        let name = format!("{session_id}.jsonl");
        let folders = std::fs::read_dir(&projects).into_iter().flatten().flatten();
        let found = folders.map(|folder| folder.path().join(&name)).find(|path| path.is_file());
        let cwd = launch.command.cwd.clone().unwrap_or_else(|| PathBuf::from("."));
        let path = found.unwrap_or_else(|| projects.join(greenroom::sessions::project_key(&cwd)).join(&name));
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let (mut last, mut deferred) = (None, None);
        for entry in entries.filter(|entry| entry["uuid"].is_string()) {
            last = entry["uuid"].as_str().map(str::to_owned);
            let attachment = &entry["attachment"];
            deferred = (attachment["type"] == "hook_deferred_tool").then(|| attachment.clone());
        }
        Self { path: Some(path), last, deferred }
    }
}

impl Player {
    /// Writes an entry, and tells the host.
    pub(super) fn write_down(&mut self, kind: &str, message: &Value) {
        let Some(path) = self.transcript.path.clone() else { return };
        let uuid = uuid::Uuid::new_v4().to_string();
        let entry = json!({
            "type": kind, "uuid": uuid, "parentUuid": self.transcript.last, "isSidechain": false,
            "sessionId": self.end.session_id(), "message": message,
        });
        self.transcript.last = Some(uuid);
        self.end.message(json!({ "type": "transcript_mirror", "filePath": path, "entries": [entry] }));
    }

    /// Goes on with the call that was deferred, if there is one.
    pub(super) async fn go_on(&mut self) -> Result<(), Stop> {
        let Some(call) = self.transcript.deferred.take() else { return Ok(()) };
        let text = |name: &str| call[name].as_str().unwrap_or_default().to_owned();
        let (id, name, input) = (text("toolUseID"), text("toolName"), call["toolInput"].clone());
        self.turns += 1;
        self.end.message(
            json!({ "type": "command_lifecycle", "command_uuid": uuid::Uuid::new_v4().to_string(), "state": "started" }),
        );
        self.settle_servers().await?;
        let is_gone =
            self.rules.denies(&name) || name.starts_with("mcp__") && self.servers.find(&name).is_none();
        if is_gone {
            let fields = self.result_fields();
            self.end.fail_turn_with(
                "tool_deferred_unavailable",
                &format!("the tool {name} is not available"),
                fields,
            );
            return Ok(());
        }
        let turn = ModelTurn::new().item(Item::Call { name, input, id: Some(id) });
        let played = self.deferred_call(&turn).await;
        if matches!(played, Err(Stop::Interrupted)) {
            let fields = self.result_fields();
            self.end.fail_turn_with("aborted_tools", "interrupted", fields);
        }
        played
    }

    async fn deferred_call(&mut self, turn: &ModelTurn) -> Result<(), Stop> {
        self.calls(turn).await?;
        self.end.begin_turn();
        self.take_in().await?;
        self.model_turns(&json!({})).await
    }
}
