//! The part of a hook's input that all events share, and an input as plain JSON.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::ser::{self, SerializeMap};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::PermissionMode;
use crate::control::fields::{RequestFields, requests, unparsed};
use crate::control::lazy::LazyValue;

/// The input of a hook as JSON, for [`Hook::new`](super::Hook::new).
///
/// ```
/// use greenroom::hook::HookInput;
///
/// let input = HookInput::new(serde_json::json!({ "hook_event_name": "Stop", "stop_hook_active": false }));
/// assert_eq!(input.event(), "Stop");
/// assert_eq!(input.field("stop_hook_active"), false);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct HookInput {
    json: LazyValue,
    fields: BTreeMap<String, LazyValue>,
}

impl HookInput {
    /// An input, for unit tests.
    pub fn new(input: Value) -> Self {
        let fields = match &input {
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect()
            }
            _ => BTreeMap::new(),
        };
        Self { json: input.into(), fields }
    }

    /// # Errors
    /// As [`LazyValue::check`], and for an object with too many fields.
    pub(super) fn read(json: Box<RawValue>) -> serde_json::Result<Self> {
        let json = LazyValue::unchecked(json);
        json.check()?;
        let fields = match json.is_object() {
            true => unparsed(&mut serde_json::Deserializer::from_str(json.raw().get()))?,
            false => BTreeMap::new(),
        };
        Ok(Self { json, fields })
    }

    /// The event's name.
    pub fn event(&self) -> &str {
        self.field("hook_event_name").as_str().unwrap_or_default()
    }

    /// A field; JSON null when it is missing. Parsed on the first use, as a [`LazyValue`] is.
    pub fn field(&self, name: &str) -> &Value {
        self.fields.get(name).map_or(&Value::Null, |field| &**field)
    }

    /// The fields that all events share.
    pub fn common(&self) -> Common {
        RequestFields::new(self.fields.clone()).common()
    }

    /// The whole input as the CLI wrote it.
    pub fn raw(&self) -> &RawValue {
        self.json.raw()
    }
}

/// The fields that the inputs of all events share. Texts are empty where the CLI sent none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs, reason = "fields are named as on the wire")]
#[non_exhaustive]
pub struct Common {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hook_event_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub session_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub transcript_path: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cwd: String,
    /// The prompt's id in the CLI's own telemetry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<PermissionMode>,
    /// The subagent in which the event happens; `None` on the main thread. At [`SubagentStart`](super::SubagentStart)
    /// and [`SubagentStop`](super::SubagentStop) the subagent that starts or ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The type of that subagent, or of the agent that the session runs as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
}

requests! {
    /// The effort with which the model thinks in this turn: `low`, `medium`, `high`, `xhigh` or `max`. The level may be
    /// lower than the requested one.
    part Effort {
        need level: String,
    }
}

impl Common {
    /// Writes the common fields, except those that the event wrote as its own.
    pub(super) fn write<M: SerializeMap>(&self, map: &mut M, own: &[&str]) -> Result<(), M::Error> {
        let Value::Object(common) = serde_json::to_value(self).map_err(ser::Error::custom)? else {
            return Ok(());
        };
        for (name, value) in common.iter().filter(|(name, _)| !own.contains(&name.as_str())) {
            map.serialize_entry(name, value)?;
        }
        Ok(())
    }
}

impl RequestFields {
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
