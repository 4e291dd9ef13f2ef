//! May this tool run?

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The CLI asks whether a tool may run: no rule allows it and none denies it (`can_use_tool`).
///
/// ```
/// let request: greenroom::PermissionRequest = serde_json::from_value(serde_json::json!({
///     "tool_name": "Bash", "input": { "command": "ls" }, "tool_use_id": "toolu_1", "title": "List files?"
/// }))?;
/// assert_eq!(request.extra["title"], "List files?");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PermissionRequest {
    /// The tool, by the name that the model sees.
    pub tool_name: String,
    /// Its arguments.
    #[serde(default)]
    pub input: Value,
    /// The id of the model's tool use.
    #[serde(default)]
    pub tool_use_id: Option<String>,
    /// Updates that would keep the CLI from asking again; hand one back with
    /// [`PermissionDecision::update`].
    #[serde(default)]
    pub permission_suggestions: Vec<Value>,
    /// The subagent that asks, if it is one.
    #[serde(default)]
    pub agent_id: Option<String>,
    /// Every other field, as it came: `decision_reason`, `blocked_path`, `title`, `mcp_server` and so on.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The answer to a [`PermissionRequest`].
///
/// ```
/// use greenroom::PermissionDecision;
///
/// let yes = PermissionDecision::allow();
/// let other = PermissionDecision::allow_with(serde_json::json!({ "command": "ls -l" }));
/// let no = PermissionDecision::deny("not on a Sunday");
/// # let _ = (yes, other, no);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PermissionDecision(Decision);

#[derive(Clone, Debug, PartialEq)]
enum Decision {
    Allow { input: Option<Value>, updates: Vec<Value> },
    Deny { message: String, interrupt: bool },
}

impl PermissionDecision {
    /// It may run, with the arguments that it has.
    pub fn allow() -> Self {
        Self(Decision::Allow { input: None, updates: Vec::new() })
    }

    /// It may run, with these arguments instead.
    pub fn allow_with(input: Value) -> Self {
        Self(Decision::Allow { input: Some(input), updates: Vec::new() })
    }

    /// It may not run; the model reads the message.
    pub fn deny(message: impl Into<String>) -> Self {
        Self(Decision::Deny { message: message.into(), interrupt: false })
    }

    /// It may not run, and the turn ends.
    pub fn deny_and_interrupt(message: impl Into<String>) -> Self {
        Self(Decision::Deny { message: message.into(), interrupt: true })
    }

    /// With a change of the permission rules, such as one of the suggestions. Only an allowed call carries it.
    pub fn update(mut self, update: Value) -> Self {
        if let Decision::Allow { updates, .. } = &mut self.0 {
            updates.push(update);
        }
        self
    }

    /// The answer on the wire. The input is always sent back, changed or not.
    pub(crate) fn to_wire(&self, request: &PermissionRequest) -> Value {
        let mut answer = match &self.0 {
            Decision::Allow { input, updates } => {
                let input = input.as_ref().unwrap_or(&request.input);
                let mut answer = json!({ "behavior": "allow", "updatedInput": input });
                if !updates.is_empty() {
                    answer["updatedPermissions"] = json!(updates);
                }
                answer
            }
            Decision::Deny { message, interrupt: false } => json!({ "behavior": "deny", "message": message }),
            Decision::Deny { message, interrupt: true } => {
                json!({ "behavior": "deny", "message": message, "interrupt": true })
            }
        };
        if let Some(id) = &request.tool_use_id {
            answer["toolUseID"] = json!(id);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_shape_of_the_protocol() {
        let request: PermissionRequest =
            serde_json::from_value(json!({"tool_name": "Bash", "input": {"a": 1}, "tool_use_id": "t"}))
                .unwrap();
        let wire = |decision: PermissionDecision| decision.to_wire(&request);
        assert_eq!(
            wire(PermissionDecision::allow()),
            json!({"behavior": "allow", "updatedInput": {"a": 1}, "toolUseID": "t"})
        );
        assert_eq!(
            wire(PermissionDecision::allow_with(json!({"a": 2})).update(json!({"type": "setMode"}))),
            json!({"behavior": "allow", "updatedInput": {"a": 2}, "updatedPermissions": [{"type": "setMode"}], "toolUseID": "t"})
        );
        assert_eq!(
            wire(PermissionDecision::deny_and_interrupt("no")),
            json!({"behavior": "deny", "message": "no", "interrupt": true, "toolUseID": "t"})
        );
    }
}
