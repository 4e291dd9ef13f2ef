//! What was set at run time: the requests that set it, to be sent again to the next incarnation.
//!
//! Only what is state of the CLI's process. What the CLI writes down itself (the title, settings files, which MCP servers
//! are switched off) is there again by itself.

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
    // What tells apart those of which there are several.
    ["subtype", "serverName", "directory"].iter().all(|field| one[*field] == other[*field])
}

/// Whether the CLI did what it was told, by a successful answer of it; the error is its reason.
pub(crate) fn took_effect(body: &Value, answer: &Value) -> Result<(), String> {
    if subtype(body) == "set_cwd" { cwd_was_set(answer) } else { Ok(()) }
}

/// The request to be sent again: with the whole path that the CLI says it has made of the one that was given, for that may
/// be relative to where it was then.
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

/// Whether a session must not go on without it: the CLI would do what it was told not to do, or do it elsewhere.
pub(crate) fn is_vital(body: &Value) -> bool {
    match subtype(body) {
        "set_permission_mode" | "set_cwd" => true,
        // To have a classifier decide is less strict than to ask.
        "set_mcp_permission_mode_override" => body["mode"] == "default",
        "apply_flag_settings" => forbids(&body["settings"]["permissions"]),
        _ => false,
    }
}

/// Whether rules are more than permission: they deny, have the CLI ask, or set its mode. One that is not known may, too.
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

/// Notes that a request has set something. The list is in the order in which things were set, so that what depends on
/// something else comes after it; it holds each thing once.
pub(crate) fn note(settings: &mut Vec<Value>, body: &Value) {
    let mut body = body.clone();
    if let Some(at) = settings.iter().rposition(|earlier| same(earlier, &body)) {
        // A root that was registered since may depend on the working directory of then. The CLI registers none twice, so
        // that no more working directories are kept than roots.
        let stays = subtype(&body) == "set_cwd"
            && settings[at..].iter().any(|later| subtype(later) == "register_repo_root");
        if !stays {
            merge(&mut body, &settings.remove(at));
        }
    }
    match subtype(&body) {
        // Either way to set the model takes the place of the other.
        "set_model" => {
            let flags = settings.iter_mut().find(|earlier| subtype(earlier) == "apply_flag_settings");
            if let Some(keys) = flags.and_then(|flags| flags["settings"].as_object_mut()) {
                keys.remove("model");
            }
        }
        "apply_flag_settings" if body["settings"].get("model").is_some_and(|model| !model.is_null()) => {
            settings.retain(|earlier| subtype(earlier) != "set_model");
        }
        // Nothing is overridden in a new process.
        "set_mcp_permission_mode_override" if body["mode"].is_null() => return,
        _ => {}
    }
    settings.push(body);
}

/// Lays a request over an earlier one of the same kind, where the CLI does so too.
fn merge(body: &mut Value, earlier: &Value) {
    match subtype(body) {
        // Key by key.
        "apply_flag_settings" => {
            if let (Some(over), Value::Object(mut merged)) =
                (body["settings"].as_object(), earlier["settings"].clone())
            {
                merged.extend(over.clone());
                body["settings"] = Value::Object(merged);
            }
        }
        // What is left out stays as it was.
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
    fn the_last_of_the_same_thing_counts_and_stands_last() {
        let mode = json!({"subtype": "set_permission_mode", "mode": "plan"});
        assert_eq!(noted(&[model("a"), mode.clone(), model("b")]), [mode, model("b")]);
    }

    #[test]
    fn flag_settings_and_thinking_are_laid_over_what_was_before() {
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
    fn of_the_two_ways_to_set_the_model_the_later_counts() {
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
    fn overrides_are_told_apart_by_server_and_taken_back() {
        let set = |server: &str, mode: Value| json!({"subtype": "set_mcp_permission_mode_override", "serverName": server, "mode": mode});
        let (a, b) = (set("a", json!("default")), set("b", json!("auto")));
        assert_eq!(noted(&[a.clone(), b.clone(), set("a", Value::Null)]), std::slice::from_ref(&b));
        assert!(is_vital(&a) && !is_vital(&b));
    }

    #[test]
    fn rules_that_forbid_are_not_gone_without() {
        for permissions in [
            json!({"deny": ["Bash"]}),
            json!({"allow": ["Read"], "ask": ["Bash"]}),
            json!({"defaultMode": "plan"}),
            json!({"disableBypassPermissionsMode": "disable"}),
        ] {
            assert!(is_vital(&flags(json!({"permissions": permissions}))), "{permissions}");
        }
        for permissions in [json!({"allow": ["Bash"]}), json!({"deny": [], "defaultMode": null}), json!(null)]
        {
            assert!(!is_vital(&flags(json!({"permissions": permissions}))), "{permissions}");
        }
        assert!(!is_vital(&flags(json!({"model": "a"}))));
    }

    #[test]
    fn roots_are_registered_in_the_working_directory_that_they_were_registered_in() {
        assert_eq!(noted(&[cwd("/a"), cwd("/b")]), [cwd("/b")]);
        assert_eq!(
            noted(&[cwd("/a"), root("/a/x"), cwd("/b"), root("/b/y"), cwd("/c"), cwd("/a")]),
            [cwd("/a"), root("/a/x"), cwd("/b"), root("/b/y"), cwd("/a")]
        );
    }

    #[test]
    fn a_working_directory_is_set_only_if_the_cli_says_so() {
        assert_eq!(took_effect(&cwd("/a"), &json!({"status": "ok", "cwd": "/a"})), Ok(()));
        let rejected = json!({"status": "rejected", "message": "busy with a turn"});
        assert_eq!(took_effect(&cwd("/a"), &rejected), Err("busy with a turn".to_owned()));
        assert_eq!(took_effect(&cwd("/a"), &json!({"status": "needs_trust"})), Err("needs_trust".to_owned()));
        assert_eq!(took_effect(&model("a"), &json!({"status": "x"})), Ok(()));
    }

    #[test]
    fn a_path_is_noted_as_the_cli_has_taken_it() {
        assert_eq!(as_taken(&cwd("sub"), &json!({"status": "ok", "cwd": "/a/sub"})), cwd("/a/sub"));
        assert_eq!(as_taken(&root("x"), &json!({"directory": "/a/x"})), root("/a/x"));
        for answer in [json!({}), json!({"cwd": "sub", "directory": null}), Value::Null] {
            assert_eq!(as_taken(&cwd("sub"), &answer), cwd("sub"));
            assert_eq!(as_taken(&root("x"), &answer), root("x"));
        }
        assert_eq!(as_taken(&model("a"), &json!({"cwd": "/a"})), model("a"));
    }
}
