//! The hooks of the host, as the CLI runs them: those of one event all at once, and what they say together.
//!
//! A matcher is a list of tool names with `|` between them, each whole or ending in `.*`; empty and `*` mean all.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{Player, Stop};

/// The hooks of the host, by event.
#[derive(Debug, Default)]
pub(super) struct Hooks(HashMap<String, Vec<Matcher>>);

#[derive(Clone, Debug)]
struct Matcher {
    pattern: String,
    ids: Vec<String>,
    /// Whether a failure forbids what the hook was asked about.
    blocks: bool,
}

impl Hooks {
    /// Hooks named by `initialize`.
    pub(super) fn of(initialize: &Value) -> Self {
        let matchers = |matchers: &Value| {
            matchers
                .as_array()
                .into_iter()
                .flatten()
                .map(|matcher| Matcher {
                    pattern: matcher["matcher"].as_str().unwrap_or_default().to_owned(),
                    ids: strings(&matcher["hookCallbackIds"]),
                    blocks: matcher["onFailure"] == "block",
                })
                .collect()
        };
        let events = initialize["hooks"].as_object().into_iter().flatten();
        Self(events.map(|(event, value)| (event.clone(), matchers(value))).collect())
    }

    fn of_event(&self, event: &str, tool: Option<&str>) -> Vec<(String, bool)> {
        let all = self.0.get(event).into_iter().flatten();
        all.filter(|matcher| tool.is_none_or(|tool| matches(&matcher.pattern, tool)))
            .flat_map(|matcher| matcher.ids.iter().map(|id| (id.clone(), matcher.blocks)))
            .collect()
    }
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn matches(pattern: &str, tool: &str) -> bool {
    matches!(pattern, "" | "*")
        || pattern.split('|').any(|name| match name.strip_suffix(".*") {
            Some(start) => tool.starts_with(start),
            None => tool == name,
        })
}

/// The reason, if a hook blocks.
pub(super) fn blocked(said: &[Value]) -> Option<String> {
    let block = said.iter().find(|said| said["decision"] == "block")?;
    Some(block["reason"].as_str().unwrap_or("no reason given").to_owned())
}

/// The replacement of a tool's result, if a hook has one.
pub(super) fn replaced(said: &[Value]) -> Option<String> {
    let outputs = said.iter().map(|said| &said["hookSpecificOutput"]);
    let output = outputs
        .flat_map(|output| [&output["updatedMCPToolOutput"], &output["updatedToolOutput"]])
        .rfind(|output| !output.is_null())?;
    let blocks = output["content"].as_array().or(output.as_array());
    let text = blocks.map(|blocks| {
        blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
    });
    Some(text.or(output.as_str().map(str::to_owned)).unwrap_or_else(|| output.to_string()))
}

impl Player {
    /// Runs the hooks of an event; what each said. One that failed and must block says `block`, and `deny`.
    pub(super) async fn hook(
        &mut self,
        event: &str,
        tool: Option<&str>,
        mut input: Value,
    ) -> Result<Vec<Value>, Stop> {
        let hooks = self.hooks.of_event(event, tool);
        if hooks.is_empty() {
            return Ok(Vec::new());
        }
        input["hook_event_name"] = json!(event);
        input["session_id"] = json!(self.end.session_id());
        input["transcript_path"] = json!("");
        input["cwd"] = json!("/");
        let mut asked = Vec::new();
        for (id, blocks) in hooks {
            let mut body = json!({ "subtype": "hook_callback", "callback_id": id, "input": input });
            if !input["tool_use_id"].is_null() {
                body["tool_use_id"] = input["tool_use_id"].clone();
            }
            asked.push((self.end.request(body), blocks));
        }
        let mut all = Vec::new();
        for (request, blocks) in asked {
            let answer = self.wait_for(&request).await?;
            if answer["subtype"] == "error" {
                if blocks {
                    let reason = format!("hook failed: {}", answer["error"].as_str().unwrap_or_default());
                    all.push(json!({ "decision": "block", "reason": reason, "hookSpecificOutput": {
                        "permissionDecision": "deny", "permissionDecisionReason": reason } }));
                }
                continue;
            }
            let said = answer["response"].clone();
            if said["continue"] == false {
                let reason = said["stopReason"].as_str().unwrap_or("Execution stopped by hook");
                return Err(Stop::ByHook(reason.to_owned()));
            }
            all.push(said);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matchers_are_names_and_beginnings() {
        assert!(matches("", "Bash") && matches("*", "Bash") && matches("Read|Bash", "Bash"));
        assert!(matches("mcp__calc__.*", "mcp__calc__add") && matches(".*", "Bash"));
        assert!(!matches("Read", "Bash") && !matches("mcp__calc__.*", "mcp__clock__now"));
    }

    #[test]
    fn what_a_hook_puts_in_place_of_a_result_is_text() {
        let said = |output: Value| vec![json!({ "hookSpecificOutput": output })];
        assert_eq!(replaced(&said(json!({ "updatedToolOutput": "a" }))).as_deref(), Some("a"));
        let blocks = json!({ "updatedMCPToolOutput": [{ "type": "text", "text": "b" }] });
        assert_eq!(replaced(&said(blocks)).as_deref(), Some("b"));
        assert_eq!(replaced(&said(json!({}))), None);
    }
}
