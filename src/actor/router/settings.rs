//! Settings made at run time, as the requests that made them: sent again to the next incarnation.
//!
//! Only settings that live in the CLI's process are kept. The CLI itself restores those that it writes to disk: the title,
//! settings files, the list of disabled MCP servers.

use std::path::Path;

use serde_json::Value;

use crate::requests::cwd_was_set;

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
    if subtype(body) == "set_cwd" { cwd_was_set(answer) } else { Ok(()) }
}

/// The request to send again: with the absolute path from the CLI's answer, because the path in the request may be relative to
/// the working directory at that time.
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

/// The name of a setting whose refusal ends the session: without it the CLI would do forbidden things, or work elsewhere.
/// `None` for a setting that the session can do without.
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

/// Notes a setting. The list has each setting once, in the order in which they were made, so that a setting comes after those
/// that it depends on.
pub(crate) fn note(settings: &mut Vec<Value>, body: &Value) {
    let mut body = body.clone();
    if let Some(at) = settings.iter().rposition(|earlier| same(earlier, &body)) {
        // A root that was registered later may be relative to this working directory, so the entry stays. The CLI registers no
        // root twice, so there are no more such entries than roots.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn noted(bodies: &[Value]) -> Vec<Value> {
        let mut settings = Vec::new();
        bodies.iter().for_each(|body| note(&mut settings, body));
        settings
    }

    fn model(model: &str) -> Value {
        json!({"subtype": "set_model", "model": model})
    }

    fn flags(settings: Value) -> Value {
        json!({"subtype": "apply_flag_settings", "settings": settings})
    }

    fn cwd(path: &str) -> Value {
        json!({"subtype": "set_cwd", "path": path})
    }

    fn root(directory: &str) -> Value {
        json!({"subtype": "register_repo_root", "directory": directory})
    }

    #[test]
    fn a_repeated_setting_replaces_the_earlier_one_and_moves_to_the_end() {
        let mode = json!({"subtype": "set_permission_mode", "mode": "plan"});
        assert_eq!(noted(&[model("a"), mode.clone(), model("b")]), [mode, model("b")]);
    }

    #[test]
    fn flag_settings_and_thinking_merge_with_earlier_ones() {
        assert_eq!(
            noted(&[flags(json!({"a": 1, "b": 2})), flags(json!({"b": null, "c": 3}))]),
            [flags(json!({"a": 1, "b": null, "c": 3}))]
        );
        let thinking = |fields: Value| {
            let mut body = json!({"subtype": "set_max_thinking_tokens"});
            if let (Some(body), Value::Object(fields)) = (body.as_object_mut(), fields) {
                body.extend(fields);
            }
            body
        };
        assert_eq!(
            noted(&[
                thinking(json!({"max_thinking_tokens": 5})),
                thinking(json!({"thinking_display": "omitted"})),
                thinking(json!({"thinking_display": null})),
            ]),
            [thinking(json!({"max_thinking_tokens": 5, "thinking_display": null}))]
        );
    }

    #[test]
    fn the_later_of_the_two_ways_to_set_the_model_wins() {
        assert_eq!(
            noted(&[flags(json!({"model": "a", "effortLevel": "low"})), model("b")]),
            [flags(json!({"effortLevel": "low"})), model("b")]
        );
        assert_eq!(
            noted(&[model("b"), flags(json!({"effortLevel": "low"})), flags(json!({"model": "a"}))]),
            [flags(json!({"model": "a", "effortLevel": "low"}))]
        );
    }

    #[test]
    fn overrides_are_kept_by_server_and_can_be_removed() {
        let set = |server: &str, mode: Value| json!({"subtype": "set_mcp_permission_mode_override", "serverName": server, "mode": mode});
        let (a, b) = (set("a", json!("default")), set("b", json!("auto")));
        assert_eq!(noted(&[a.clone(), b.clone(), set("a", Value::Null)]), std::slice::from_ref(&b));
        assert!(vital(&a).is_some() && vital(&b).is_none());
    }

    #[test]
    fn settings_that_forbid_are_vital() {
        for permissions in [
            json!({"deny": ["Bash"]}),
            json!({"allow": ["Read"], "ask": ["Bash"]}),
            json!({"defaultMode": "plan"}),
            json!({"disableBypassPermissionsMode": "disable"}),
        ] {
            assert!(vital(&flags(json!({"permissions": permissions}))).is_some(), "{permissions}");
        }
        for permissions in [json!({"allow": ["Bash"]}), json!({"deny": [], "defaultMode": null}), json!(null)]
        {
            assert!(vital(&flags(json!({"permissions": permissions}))).is_none(), "{permissions}");
        }
        assert!(vital(&flags(json!({"model": "a"}))).is_none());
    }

    #[test]
    fn roots_are_registered_again_in_their_working_directory() {
        assert_eq!(noted(&[cwd("/a"), cwd("/b")]), [cwd("/b")]);
        assert_eq!(
            noted(&[cwd("/a"), root("/a/x"), cwd("/b"), root("/b/y"), cwd("/c"), cwd("/a")]),
            [cwd("/a"), root("/a/x"), cwd("/b"), root("/b/y"), cwd("/a")]
        );
    }

    #[test]
    fn a_working_directory_is_set_only_if_the_cli_confirms_it() {
        assert_eq!(took_effect(&cwd("/a"), &json!({"status": "ok", "cwd": "/a"})), Ok(()));
        let rejected = json!({"status": "rejected", "message": "busy with a turn"});
        assert_eq!(took_effect(&cwd("/a"), &rejected), Err("busy with a turn".to_owned()));
        assert_eq!(took_effect(&cwd("/a"), &json!({"status": "needs_trust"})), Err("needs_trust".to_owned()));
        assert_eq!(took_effect(&model("a"), &json!({"status": "x"})), Ok(()));
    }

    #[test]
    fn a_path_is_noted_as_the_cli_resolved_it() {
        assert_eq!(as_taken(&cwd("sub"), &json!({"status": "ok", "cwd": "/a/sub"})), cwd("/a/sub"));
        assert_eq!(as_taken(&root("x"), &json!({"directory": "/a/x"})), root("/a/x"));
        for answer in [json!({}), json!({"cwd": "sub", "directory": null}), Value::Null] {
            assert_eq!(as_taken(&cwd("sub"), &answer), cwd("sub"));
            assert_eq!(as_taken(&root("x"), &answer), root("x"));
        }
        assert_eq!(as_taken(&model("a"), &json!({"cwd": "/a"})), model("a"));
    }
}
