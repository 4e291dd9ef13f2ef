//! The settings of a session, and how `sandbox` is merged into them.

use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::options::Sandbox;

/// Result of merging `settings` and `sandbox`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Merged {
    /// The path of a file.
    File(String),
    /// Inline settings.
    Inline(Map<String, Value>),
}

/// Merges `sandbox` into `settings`.
///
/// # Errors
/// [`InvalidOption`](crate::ErrorKind::InvalidOption) if `settings` is neither a path nor an object, or a path and there
/// is a sandbox: without the file's content, its restrictions could be lost.
pub(crate) fn merged(settings: Option<&Value>, sandbox: Option<&Sandbox>) -> Result<Option<Merged>> {
    let inline = match settings {
        None => None,
        Some(Value::Object(inline)) => Some(inline.clone()),
        Some(Value::String(text)) if text.trim_start().starts_with('{') => {
            let inline = serde_json::from_str(text).map_err(|error| {
                Error::invalid_option(format!("option `settings` is not valid JSON: {error}"))
                    .with_help("give a JSON object, or the path of a file")
                    .with_source(error)
            })?;
            Some(inline)
        }
        Some(Value::String(path)) if !path.trim().is_empty() => {
            if sandbox.is_some() {
                let text = "option `sandbox` cannot be merged into the file that `settings` names";
                return Err(Error::invalid_option(text).with_help("give the settings inline"));
            }
            return Ok(Some(Merged::File(path.clone())));
        }
        Some(_) => {
            return Err(Error::invalid_option("option `settings` is neither a JSON object nor a path")
                .with_help("give a JSON object, or the path of a file"));
        }
    };
    let Some(sandbox) = sandbox else { return Ok(inline.map(Merged::Inline)) };
    let mut inline = inline.unwrap_or_default();
    let over = serde_json::to_value(sandbox).map_err(|error| {
        Error::invalid_option("option `sandbox` cannot be written as JSON")
            .with_help("remove the value in `extra` that has no JSON form")
            .with_source(error)
    })?;
    let below = inline.remove("sandbox").unwrap_or(Value::Null);
    inline.insert("sandbox".into(), with_sandbox(below, over));
    Ok(Some(Merged::Inline(inline)))
}

/// Merges the sandbox of the option over the sandbox of the settings.
fn with_sandbox(mut below: Value, over: Value) -> Value {
    if !below.is_object() {
        below = json!({});
    }
    // Removes settings that would switch off a restriction of the option.
    let denies_file = items(&over["credentials"]["files"]).any(|file| file["mode"] == "deny");
    if over["filesystem"].is_object() || denies_file {
        remove_if(&mut below, "filesystem", "disabled", |disabled| disabled == &json!(true));
    }
    let network = &over["network"];
    let restricts = !network["allowedDomains"].is_null()
        || items(&network["deniedDomains"]).next().is_some()
        || network["strictAllowlist"] == json!(true);
    if restricts {
        for port in ["httpProxyPort", "socksProxyPort"] {
            remove_if(&mut below, "network", port, |_| true);
        }
    }
    let turns_on = over["enabled"] == json!(true);
    merge(&mut below, over, "");
    if turns_on && below["failIfUnavailable"].is_null() {
        below["failIfUnavailable"] = json!(true);
    }
    below
}

/// Replaced as a whole: parts of two values do not fit together.
const WHOLE: [&str; 2] = ["/ripgrep", "/network/tlsTerminate"];
/// Lists of restrictions: the items of both sides apply.
const RESTRICTIONS: [&str; 3] = ["/filesystem/denyRead", "/filesystem/denyWrite", "/network/deniedDomains"];
/// Lists of credentials with their keys: the items of both sides apply, and for one credential the stricter item.
const CREDENTIALS: [(&str, &str); 2] = [("/credentials/files", "path"), ("/credentials/envVars", "name")];

fn merge(below: &mut Value, over: Value, at: &str) {
    let credential = CREDENTIALS.iter().find(|(path, _)| *path == at);
    match (below, over) {
        (Value::Object(below), Value::Object(over)) if !WHOLE.contains(&at) => {
            for (name, value) in over {
                let at = format!("{at}/{name}");
                merge(below.entry(name).or_insert(Value::Null), value, &at);
            }
        }
        (Value::Array(below), Value::Array(over)) if RESTRICTIONS.contains(&at) => {
            for item in over {
                if !below.contains(&item) {
                    below.push(item);
                }
            }
        }
        (Value::Array(below), Value::Array(over)) if credential.is_some() => {
            let key = credential.map_or("", |(_, key)| key);
            for item in over {
                match below.iter_mut().find(|known| known[key] == item[key]) {
                    Some(known) if known["mode"] == "deny" => {}
                    Some(known) => *known = item,
                    None => below.push(item),
                }
            }
        }
        (below, over) => *below = over,
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn remove_if(object: &mut Value, part: &str, field: &str, fits: impl Fn(&Value) -> bool) {
    if let Some(part) = object.get_mut(part).and_then(Value::as_object_mut)
        && part.get(field).is_some_and(fits)
    {
        part.remove(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(settings: Value, sandbox: Value) -> Value {
        let sandbox: Sandbox = serde_json::from_value(sandbox).unwrap();
        match merged(Some(&settings), Some(&sandbox)).unwrap() {
            Some(Merged::Inline(inline)) => inline.get("sandbox").unwrap().clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_sandbox_is_merged_over_the_settings_field_by_field() {
        let settings = json!({ "sandbox": {
            "enabled": false,
            "excludedCommands": ["git"],
            "network": { "allowLocalBinding": true, "deniedDomains": ["a"], "tlsTerminate": { "caKeyPath": "k" } },
            "filesystem": { "denyRead": ["/a", "/b"], "disabled": true },
            "ripgrep": { "command": "rg", "args": ["-x"] },
            "credentials": { "files": [{ "path": "/k", "mode": "deny" }, { "path": "/l", "mode": "mask" }] },
        }});
        let sandbox = json!({
            "enabled": true,
            "network": { "deniedDomains": ["b"], "tlsTerminate": { "caCertPath": "c" } },
            "filesystem": { "denyRead": ["/b", "/c"] },
            "ripgrep": { "command": "rg2" },
            "credentials": { "files": [{ "path": "/k", "mode": "mask" }, { "path": "/l", "mode": "deny" }] },
        });
        assert_eq!(
            both(settings, sandbox),
            json!({
                "enabled": true,
                "failIfUnavailable": true,
                "excludedCommands": ["git"],
                "network": { "allowLocalBinding": true, "deniedDomains": ["a", "b"], "tlsTerminate": { "caCertPath": "c" } },
                "filesystem": { "denyRead": ["/a", "/b", "/c"] },
                "ripgrep": { "command": "rg2" },
                "credentials": { "files": [{ "path": "/k", "mode": "deny" }, { "path": "/l", "mode": "deny" }] },
            })
        );
    }

    #[test]
    fn a_proxy_in_the_settings_is_removed_if_domains_are_restricted() {
        let settings = json!({ "sandbox": { "network": { "httpProxyPort": 1, "socksProxyPort": 2 } } });
        for network in [
            json!({ "allowedDomains": [] }),
            json!({ "deniedDomains": ["a"] }),
            json!({ "strictAllowlist": true }),
        ] {
            let merged = both(settings.clone(), json!({ "network": network }));
            assert_eq!(merged["network"], network, "the ports are removed");
        }
        let own =
            both(settings.clone(), json!({ "network": { "allowedDomains": ["a"], "httpProxyPort": 3 } }));
        assert_eq!(own["network"], json!({ "allowedDomains": ["a"], "httpProxyPort": 3 }));
        let kept = both(settings, json!({ "network": { "deniedDomains": [], "strictAllowlist": false } }));
        assert_eq!(kept["network"]["httpProxyPort"], 1);
    }

    #[test]
    fn an_enabled_sandbox_is_required_unless_one_side_says_otherwise() {
        let fails = |settings: Value, sandbox: Value| both(settings, sandbox)["failIfUnavailable"].clone();
        assert_eq!(fails(json!({}), json!({ "enabled": true })), json!(true));
        assert_eq!(fails(json!({}), json!({ "enabled": true, "failIfUnavailable": false })), json!(false));
        let settings = json!({ "sandbox": { "failIfUnavailable": false } });
        assert_eq!(fails(settings, json!({ "enabled": true })), json!(false));
        assert_eq!(fails(json!({ "sandbox": { "enabled": true } }), json!({})), Value::Null);
    }

    #[test]
    fn settings_are_a_path_a_json_text_or_an_object() {
        let sandbox = Sandbox::enabled();
        let path = json!("/etc/settings.json");
        let error = merged(Some(&path), Some(&sandbox)).unwrap_err().to_string();
        assert!(error.contains("`sandbox`") && error.contains("`settings`"), "{error}");
        assert_eq!(merged(Some(&path), None).unwrap(), Some(Merged::File("/etc/settings.json".into())));
        let text = json!(r#" {"model": "haiku"}"#);
        let Some(Merged::Inline(inline)) = merged(Some(&text), Some(&sandbox)).unwrap() else { panic!() };
        assert_eq!((&inline["model"], &inline["sandbox"]["enabled"]), (&json!("haiku"), &json!(true)));
        for bad in [json!("{"), json!(3), json!([]), json!(" ")] {
            let error = merged(Some(&bad), None).unwrap_err().to_string();
            assert!(error.contains("`settings`"), "{error}");
        }
    }
}
