//! Permission of a call: hooks first, then rules and mode, then the host.

use serde_json::{Value, json};

use super::{Player, Stop};

/// The tools that may run without asking, and the permission mode.
#[derive(Debug, Default)]
pub(super) struct Rules {
    allowed: Vec<String>,
    /// Rules of `apply_flag_settings`, always set as a whole.
    by_settings: Vec<String>,
    denied: Vec<String>,
    mode: String,
    asks: bool,
}

impl Rules {
    /// Rules of the CLI's arguments.
    pub(super) fn of(args: &[String]) -> Self {
        let list = |flag: &str| -> Vec<String> {
            args.iter()
                .filter_map(|arg| arg.strip_prefix(flag))
                .flat_map(|rules| rules.split(','))
                .map(str::to_owned)
                .collect()
        };
        let mode = args.iter().find_map(|arg| arg.strip_prefix("--permission-mode="));
        Self {
            allowed: list("--allowedTools="),
            by_settings: Vec::new(),
            denied: list("--disallowedTools="),
            mode: mode.unwrap_or("default").to_owned(),
            asks: args.iter().any(|arg| arg == "--permission-prompt-tool=stdio"),
        }
    }

    pub(super) fn set_mode(&mut self, mode: &str) {
        self.mode = mode.to_owned();
    }

    pub(super) fn apply_settings(&mut self, settings: &Value) {
        if let Some(allow) = settings["permissions"]["allow"].as_array() {
            self.by_settings = allow.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        }
    }

    /// Takes over what the host answers with a permission.
    fn update(&mut self, updates: &Value) {
        for update in updates.as_array().into_iter().flatten() {
            match update["type"].as_str() {
                Some("addRules") if update["behavior"] == "allow" => {
                    let rules = update["rules"].as_array().into_iter().flatten();
                    self.allowed
                        .extend(rules.filter_map(|rule| rule["toolName"].as_str()).map(str::to_owned));
                }
                Some("setMode") => self.set_mode(update["mode"].as_str().unwrap_or_default()),
                _ => {}
            }
        }
    }

    fn allows(&self, name: &str) -> bool {
        self.mode == "bypassPermissions"
            || self.allowed.iter().chain(&self.by_settings).any(|rule| fits(rule, name))
    }

    pub(super) fn denies(&self, name: &str) -> bool {
        self.denied.iter().any(|rule| fits(rule, name))
    }
}

/// Whether a rule is for this tool. A star stands for the tools of one server, not for those of all.
fn fits(rule: &str, name: &str) -> bool {
    rule.strip_suffix('*')
        .map_or(rule == name, |start| start.ends_with("__") && start != "mcp__" && name.starts_with(start))
}

impl Player {
    /// Whether a call may run, and with which arguments; if not, what the model reads.
    pub(super) async fn permitted(
        &mut self,
        name: &str,
        input: &Value,
        id: &str,
    ) -> Result<Result<Value, String>, Stop> {
        let told = json!({ "tool_name": name, "tool_input": input, "tool_use_id": id });
        let said = self.hook("PreToolUse", Some(name), told).await?;
        let outputs = || said.iter().map(|said| &said["hookSpecificOutput"]);
        let decides = |decision: &str| outputs().find(|output| output["permissionDecision"] == decision);
        if let Some(deny) = decides("deny") {
            return Ok(Err(deny["permissionDecisionReason"]
                .as_str()
                .unwrap_or("denied by a hook")
                .to_owned()));
        }
        if let Some(reason) = super::hooks::blocked(&said) {
            return Ok(Err(reason));
        }
        let updated = outputs().map(|output| &output["updatedInput"]).rfind(|input| input.is_object());
        let input = updated.unwrap_or(input).clone();
        if self.rules.denies(name) {
            return Ok(Err(format!("Permission to use {name} has been denied.")));
        }
        let must_ask = decides("ask").is_some() || name == "AskUserQuestion";
        let may_run = decides("allow").is_some() || self.rules.allows(name) || self.needs_no_permission(name);
        if may_run && !must_ask {
            return Ok(Ok(input));
        }
        if self.rules.mode == "dontAsk" {
            return Ok(Err(format!(
                "Permission to use {name} has been denied because Claude Code is running in don't ask mode."
            )));
        }
        if !self.rules.asks {
            return Ok(Err(format!(
                "Claude requested permissions to use {name}, but you haven't granted it yet."
            )));
        }
        let rule = json!({ "type": "addRules", "rules": [{ "toolName": name }], "behavior": "allow",
            "destination": "localSettings" });
        let mut body = json!({ "subtype": "can_use_tool", "tool_name": name, "input": input, "tool_use_id": id,
            "permission_suggestions": [rule] });
        if let Some((server, _)) = self.servers.find(name) {
            body["mcp_server"] = json!({ "name": server, "source": "sdk" });
        }
        let request = self.end.request(body);
        let answer = self.wait_for(&request).await?;
        let decision = &answer["response"];
        if decision["behavior"] == "allow" {
            self.rules.update(&decision["updatedPermissions"]);
            return Ok(Ok(decision.get("updatedInput").unwrap_or(&input).clone()));
        }
        if decision["interrupt"] == true {
            return Err(Stop::Interrupted);
        }
        let message = decision["message"].as_str().or(answer["error"].as_str()).unwrap_or("denied");
        Ok(Err(message.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_the_tools_of_one_server() {
        assert!(fits("mcp__calc__*", "mcp__calc__add") && fits("Bash", "Bash"));
        assert!(
            !fits("mcp__*", "mcp__calc__add") && !fits("Ba*", "Bash") && !fits("mcp__calc__*", "mcp__c__d")
        );
    }
}
