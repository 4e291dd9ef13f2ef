//! Settings made at run time, as the requests that made them: sent again to the next incarnation.
//!
//! Only settings that live in the CLI's process are kept. The CLI itself restores those that it writes to disk: the
//! title, settings files, the list of disabled MCP servers.

use std::path::Path;
use std::sync::Mutex;

use serde_json::Value;

use crate::lock::lock;
use crate::wire::envelope::ControlReply;

/// The settings of a session that were made at run time.
#[derive(Default)]
pub(crate) struct Settings {
    /// The requests that have set something, in order. Sent again to every incarnation.
    made: Mutex<Vec<Value>>,
    /// The requests that the current CLI has not answered, each with its id. The CLI may still apply them when the caller has
    /// stopped waiting or the router has ended. Of withdrawn requests the last is kept for each thing that can be set.
    asked: Mutex<Vec<(String, Value)>>,
}

impl Settings {
    /// The requests that have set something, in order.
    pub(crate) fn made(&self) -> Vec<Value> {
        lock(&self.made).clone()
    }

    /// The CLI is asked to set something.
    pub(super) fn ask(&self, request_id: String, setting: Value) {
        lock(&self.asked).push((request_id, setting));
    }

    /// The request of a setting was not written.
    pub(super) fn not_asked(&self, request_id: &str) {
        lock(&self.asked).retain(|(asked, _)| asked != request_id);
    }

    /// Notes the setting that an answer confirms; false if the answer is to no setting.
    pub(crate) fn answered(&self, reply: &ControlReply) -> bool {
        let setting = {
            let mut asked = lock(&self.asked);
            let Some(at) = asked.iter().position(|(asked, _)| *asked == reply.request_id) else {
                return false;
            };
            asked.remove(at).1
        };
        if let Ok(answer) = &reply.outcome {
            let answer = serde_json::from_str(answer.get()).unwrap_or_default();
            if took_effect(&setting, &answer).is_ok() {
                note(&mut lock(&self.made), &as_taken(&setting, &answer));
            }
        }
        true
    }

    /// A request was withdrawn. The CLI may still answer, and then the setting is in force. Of the withdrawn settings only the
    /// last of each kind is kept.
    pub(super) fn withdrawn(&self, request_id: &str, is_awaited: impl Fn(&str) -> bool) {
        let mut asked = lock(&self.asked);
        if let Some((_, setting)) = asked.iter().find(|(asked, _)| asked == request_id).cloned() {
            asked.retain(|(other, earlier)| {
                other == request_id || is_awaited(other) || !same(earlier, &setting)
            });
        }
    }

    /// The CLI has ended, and answers no more.
    pub(super) fn cli_ended(&self) {
        lock(&self.asked).clear();
    }
}

/// The control requests that set something for the rest of the session.
const SETTINGS: [&str; 8] = [
    "set_model",
    "set_permission_mode",
    "set_max_thinking_tokens",
    "set_mcp_permission_mode_override",
    "apply_flag_settings",
    "set_cwd",
    "register_repo_root",
    "set_has_subscribers",
];

fn subtype(body: &Value) -> &str {
    body["subtype"].as_str().unwrap_or_default()
}

/// Whether a request sets something for the rest of the session.
pub(crate) fn is_setting(body: &Value) -> bool {
    SETTINGS.contains(&subtype(body))
}

/// Whether two requests set the same thing.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    // `serverName` and `directory` tell settings of one subtype apart.
    ["subtype", "serverName", "directory"].iter().all(|field| one[*field] == other[*field])
}

/// Whether a successful answer says that the setting took effect; `Err` is the reason of the CLI.
pub(crate) fn took_effect(body: &Value, answer: &Value) -> Result<(), String> {
    match answer["status"].as_str() {
        // An answer without a status means success.
        Some(status) if subtype(body) == "set_cwd" && status != "ok" => {
            Err(answer["message"].as_str().unwrap_or(status).to_owned())
        }
        _ => Ok(()),
    }
}

/// The request to send again: with the absolute path from the CLI's answer, because the path in the request may be
/// relative to the working directory at that time.
pub(crate) fn as_taken(body: &Value, answer: &Value) -> Value {
    let (given, taken) = match subtype(body) {
        "set_cwd" => ("path", "cwd"),
        "register_repo_root" => ("directory", "directory"),
        _ => return body.clone(),
    };
    let mut body = body.clone();
    if let Some(path) = answer[taken].as_str().filter(|path| Path::new(path).is_absolute()) {
        body[given] = path.into();
    }
    body
}

/// The name of a setting whose refusal ends the session: without it the CLI would do forbidden things, or work
/// elsewhere. `None` for a setting that the session can do without.
pub(crate) fn vital(body: &Value) -> Option<&'static str> {
    let (name, is_vital) = match subtype(body) {
        "set_permission_mode" => ("the permission mode", true),
        "set_cwd" => ("the working directory", true),
        // Other modes let a classifier decide, which is less strict than asking the user.
        "set_mcp_permission_mode_override" => {
            ("the permission mode of an MCP server", body["mode"] == "default")
        }
        "apply_flag_settings" => ("the permission rules", forbids(&body["settings"]["permissions"])),
        _ => return None,
    };
    is_vital.then_some(name)
}

/// Whether the rules do more than allow: deny, make the CLI ask, or set its mode. Unknown keys count as such rules.
fn forbids(permissions: &Value) -> bool {
    let says_something = |value: &Value| match value {
        Value::Null => false,
        Value::Array(rules) => !rules.is_empty(),
        _ => true,
    };
    permissions.as_object().is_some_and(|permissions| {
        let mut others =
            permissions.iter().filter(|(key, _)| !matches!(&***key, "allow" | "additionalDirectories"));
        others.any(|(_, value)| says_something(value))
    })
}

/// Notes a setting. The list has each setting once, in the order in which they were made, so that a setting comes after
/// those that it depends on.
pub(crate) fn note(settings: &mut Vec<Value>, body: &Value) {
    let mut body = body.clone();
    if let Some(at) = settings.iter().rposition(|earlier| same(earlier, &body)) {
        // A root that was registered later may be relative to this working directory, so the entry stays. The CLI
        // registers no root twice, so there are no more such entries than roots.
        let stays = subtype(&body) == "set_cwd"
            && settings[at..].iter().any(|later| subtype(later) == "register_repo_root");
        if !stays {
            merge(&mut body, &settings.remove(at));
        }
    }
    match subtype(&body) {
        // The two ways to set the model replace each other.
        "set_model" => {
            let flags = settings.iter_mut().find(|earlier| subtype(earlier) == "apply_flag_settings");
            if let Some(keys) = flags.and_then(|flags| flags["settings"].as_object_mut()) {
                keys.remove("model");
            }
        }
        "apply_flag_settings" if body["settings"].get("model").is_some_and(|model| !model.is_null()) => {
            settings.retain(|earlier| subtype(earlier) != "set_model");
        }
        // A new process starts without an override.
        "set_mcp_permission_mode_override" if body["mode"].is_null() => return,
        _ => {}
    }
    settings.push(body);
}

/// Merges a request with an earlier one of the same kind, as the CLI does.
fn merge(body: &mut Value, earlier: &Value) {
    match subtype(body) {
        // The CLI merges key by key.
        "apply_flag_settings" => {
            if let (Some(over), Value::Object(mut merged)) =
                (body["settings"].as_object(), earlier["settings"].clone())
            {
                merged.extend(over.clone());
                body["settings"] = Value::Object(merged);
            }
        }
        // The CLI keeps fields that the request leaves out.
        "set_max_thinking_tokens" => {
            for field in ["max_thinking_tokens", "thinking_display"] {
                if body.get(field).is_none()
                    && let Some(value) = earlier.get(field)
                {
                    body[field] = value.clone();
                }
            }
        }
        _ => {}
    }
}
