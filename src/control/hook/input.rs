//! What every hook is told.

use serde::ser::{self, SerializeMap};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::control::fields::Fields;
use crate::options::PermissionMode;

/// What a hook of any event is told, as JSON: see [`Hook::new`](super::Hook::new).
///
/// ```
/// use greenroom::HookInput;
///
/// let input = HookInput::new(serde_json::json!({ "hook_event_name": "Stop", "stop_hook_active": false }));
/// assert_eq!(input.event(), "Stop");
/// assert_eq!(input.field("stop_hook_active"), false);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct HookInput(Value);

impl HookInput {
    /// An input, for unit tests.
    pub fn new(input: Value) -> Self {
        Self(input)
    }

    /// The event.
    pub fn event(&self) -> &str {
        self.field("hook_event_name").as_str().unwrap_or_default()
    }

    /// A field; JSON null when it is not there.
    pub fn field(&self, name: &str) -> &Value {
        &self.0[name]
    }

    /// What hooks of all events are told.
    pub fn common(&self) -> Common {
        match self.0.clone() {
            Value::Object(fields) => Fields::new(fields).common(),
            _ => Common::default(),
        }
    }

    /// All of it.
    pub fn raw(&self) -> &Value {
        &self.0
    }
}

/// What hooks of all events are told.
///
/// ```
/// let input: greenroom::hook::SetupInput = serde_json::from_value(serde_json::json!({
///     "hook_event_name": "Setup", "session_id": "s1", "transcript_path": "/t.jsonl", "cwd": "/w", "trigger": "init"
/// }))?;
/// assert_eq!(input.common.cwd, "/w");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Common {
    /// The event's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hook_event_name: String,
    /// The conversation's id. Empty if the CLI did not name it; so are the two below.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub session_id: String,
    /// Where the CLI writes the conversation down.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub transcript_path: String,
    /// The working directory.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cwd: String,
    /// Names the prompt that this belongs to, as the CLI's own telemetry does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_id: Option<String>,
    /// The permission mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<PermissionMode>,
    /// The subagent in which it happens; `None` on the main thread. At [`SubagentStart`](super::SubagentStart) and
    /// [`SubagentStop`](super::SubagentStop): the one that begins or ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The kind of that subagent, or of the agent that the session was started as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_type: Option<String>,
    /// How hard the model thinks in this turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
}

/// How hard the model thinks.
///
/// ```
/// let effort: greenroom::hook::Effort = serde_json::from_value(serde_json::json!({ "level": "high" }))?;
/// assert_eq!(effort.level, "high");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Effort {
    /// `low`, `medium`, `high`, `xhigh`, `max`: what the model really does, which may be less than what was asked for.
    pub level: String,
    /// Every other field, as it came.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Common {
    /// Writes what is told, except for what the event wrote as its own.
    pub(super) fn write<M: SerializeMap>(&self, map: &mut M, own: &[&str]) -> Result<(), M::Error> {
        let Value::Object(told) = serde_json::to_value(self).map_err(ser::Error::custom)? else {
            return Ok(());
        };
        for (name, value) in told.iter().filter(|(name, _)| !own.contains(&name.as_str())) {
            map.serialize_entry(name, value)?;
        }
        Ok(())
    }
}

impl Fields {
    /// What hooks of all events are told.
    pub(super) fn common(&mut self) -> Common {
        Common {
            hook_event_name: self.or_default("hook_event_name"),
            session_id: self.or_default("session_id"),
            transcript_path: self.or_default("transcript_path"),
            cwd: self.or_default("cwd"),
            prompt_id: self.may("prompt_id"),
            permission_mode: self.may("permission_mode"),
            agent_id: self.may("agent_id"),
            agent_type: self.may("agent_type"),
            effort: self.may("effort"),
        }
    }
}
