//! The answer of a hook.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::EventType;
use crate::wire::words::words;

/// The answer of a hook as JSON, for [`Hook::new`](super::Hook::new). Every [`Output`] converts to one.
#[derive(Clone, Debug, PartialEq)]
pub struct HookOutput(RawOutput);

#[derive(Clone, Debug, PartialEq)]
enum RawOutput {
    Whole(Value),
    /// The fields of `hookSpecificOutput`, and those beside it.
    Specific {
        fields: Value,
        beside: Map<String, Value>,
    },
    /// The answer cannot be sent, for this reason.
    Invalid(String),
}

impl HookOutput {
    /// No opinion.
    pub fn pass() -> Self {
        Self(RawOutput::Whole(json!({})))
    }

    /// For `PreToolUse`: `allow`, `deny` or `ask`, with the reason.
    pub fn permission(decision: &str, reason: impl Into<String>) -> Self {
        Self::specific(json!({ "permissionDecision": decision, "permissionDecisionReason": reason.into() }))
    }

    /// The fields of `hookSpecificOutput`: an object. The event's name is added.
    pub fn specific(fields: Value) -> Self {
        Self(RawOutput::Specific { fields, beside: Map::new() })
    }

    /// The whole answer as sent on the wire: an object. Anything else fails the hook.
    pub fn raw(answer: Value) -> Self {
        Self(RawOutput::Whole(answer))
    }

    /// The answer on the wire, or why it cannot be sent.
    pub(crate) fn to_wire(&self, event: &str) -> Result<Value, String> {
        let answer = self.answer(event)?;
        match misfit(event, &answer["hookSpecificOutput"]) {
            Some(problem) => Err(problem.into()),
            None => Ok(answer),
        }
    }

    fn answer(&self, event: &str) -> Result<Value, String> {
        match &self.0 {
            RawOutput::Whole(answer @ Value::Object(_)) => Ok(answer.clone()),
            // The CLI counts null as a failure, and ignores anything else that is no object.
            RawOutput::Whole(other) => Err(format!("answered with {}, which is no object", kind(other))),
            RawOutput::Specific { fields: Value::Object(fields), beside } => {
                let mut specific = Map::new();
                specific.insert("hookEventName".into(), json!(event));
                specific.extend(fields.clone());
                let mut answer = beside.clone();
                answer.insert("hookSpecificOutput".into(), Value::Object(specific));
                Ok(Value::Object(answer))
            }
            RawOutput::Specific { fields, .. } => {
                Err(format!("answered with the fields {}, which are no object", kind(fields)))
            }
            RawOutput::Invalid(problem) => Err(problem.clone()),
        }
    }
}

/// The reason why the CLI, a tool or a server could not read an answer.
fn misfit(event: &str, specific: &Value) -> Option<&'static str> {
    let no_object = |value: Option<&Value>| value.is_some_and(|value| !value.is_object());
    let decision = specific.get("decision").filter(|_| event == "PermissionRequest");
    let content = specific.get("content").filter(|_| matches!(event, "Elicitation" | "ElicitationResult"));
    if no_object(decision) {
        Some("answered with a decision that is no object")
    } else if no_object(specific.get("updatedInput"))
        || no_object(decision.and_then(|decision| decision.get("updatedInput")))
    {
        Some("answered with arguments that are no object")
    } else if no_object(content) {
        Some("answered with a content that is no object")
    } else {
        None
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

words! {
    /// Decision of a hook at events that have no decision of their own.
    pub enum HookDecision {
        /// Approves the event's subject.
        Approve = "approve",
        /// Blocks the event's subject. At `Stop` and `SubagentStop`: the model must continue.
        Block = "block",
    }
}

/// The answer of a hook at the event `E`, under a name for each event, such as
/// [`PreToolUseOutput`](super::PreToolUseOutput).
///
/// Methods for all events are listed first, then those of each event.
///
/// ```
/// use greenroom::hook::StopOutput;
///
/// // The model must continue, and reads the reason.
/// let answer = StopOutput::block("the tests were not run");
/// # let _ = answer;
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Output<E: EventType> {
    /// The fields that all events share.
    pub common: CommonOutput,
    /// The fields of this event (`hookSpecificOutput`).
    pub fields: E::Fields,
    /// Fields of `hookSpecificOutput` that this library does not know.
    pub extra: Map<String, Value>,
    /// The reason why the answer cannot be sent.
    pub(super) problem: Option<String>,
}

/// The fields that the answers of all events share.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "fields are named as on the wire")]
#[non_exhaustive]
pub struct CommonOutput {
    /// `Some(false)` ends the turn.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    pub goes_on: Option<bool>,
    /// The reason for the end of the turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// Keeps the hook's output out of the transcript.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suppress_output: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<HookDecision>,
    /// The reason for the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Text that the user reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_message: Option<String>,
    /// An escape sequence for the user's terminal: a notification, a title or the bell. The CLI drops any other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal_sequence: Option<String>,
    /// The CLI does not wait for more, at most this long: see [`Output::asynchronous`].
    #[serde(skip)]
    pub asynchronous: Option<Option<Duration>>,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl<E: EventType> Output<E> {
    /// No opinion.
    pub fn pass() -> Self {
        Self {
            common: CommonOutput::default(),
            fields: E::Fields::default(),
            extra: Map::new(),
            problem: None,
        }
    }

    /// Blocks the event's subject (`decision: "block"`). At `Stop` and `SubagentStop` the model must continue, and
    /// reads the reason.
    pub fn block(reason: impl Into<String>) -> Self {
        Self::pass().decision(HookDecision::Block).reason(reason)
    }

    /// Ends the turn (`continue: false`); the user reads the reason.
    pub fn end_turn(reason: impl Into<String>) -> Self {
        let mut output = Self::pass();
        output.common.goes_on = Some(false);
        output.common.stop_reason = Some(reason.into());
        output
    }

    /// The CLI continues at once, as if the hook had no opinion, and counts the hook as running for `limit` (default:
    /// the CLI's own). The CLI reads nothing else of such an answer: one with other fields fails the hook.
    pub fn asynchronous(limit: Option<Duration>) -> Self {
        let mut output = Self::pass();
        output.common.asynchronous = Some(limit);
        output
    }

    /// Sets the decision.
    pub fn decision(mut self, decision: HookDecision) -> Self {
        self.common.decision = Some(decision);
        self
    }

    /// Sets the reason for the decision.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.common.reason = Some(reason.into());
        self
    }

    /// Sets a text that the user reads.
    pub fn system_message(mut self, message: impl Into<String>) -> Self {
        self.common.system_message = Some(message.into());
        self
    }

    /// Adds a field of `hookSpecificOutput` that this library does not know.
    pub fn field(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.extra.insert(name.into(), value.into());
        self
    }
}

impl<E: EventType> From<Output<E>> for HookOutput {
    fn from(output: Output<E>) -> Self {
        if let Some(problem) = output.problem {
            return Self(RawOutput::Invalid(problem));
        }
        let (beside, mut fields) = match (object(&output.common), object(&output.fields)) {
            (Ok(beside), Ok(fields)) => (beside, fields),
            (Err(problem), _) | (_, Err(problem)) => return Self(RawOutput::Invalid(problem)),
        };
        fields.extend(output.extra);
        if let Some(limit) = output.common.asynchronous {
            if !beside.is_empty() || !fields.is_empty() {
                let said: Vec<_> = beside.keys().chain(fields.keys()).map(String::as_str).collect();
                return Self(RawOutput::Invalid(format!(
                    "answered asynchronously, of which the CLI reads no more, and with {}",
                    said.join(", ")
                )));
            }
            let mut answer = json!({ "async": true });
            if let Some(limit) = limit {
                answer["asyncTimeout"] = json!(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
            }
            return Self(RawOutput::Whole(answer));
        }
        Self(if fields.is_empty() {
            RawOutput::Whole(Value::Object(beside))
        } else {
            RawOutput::Specific { fields: Value::Object(fields), beside }
        })
    }
}

fn object(fields: &impl Serialize) -> Result<Map<String, Value>, String> {
    match serde_json::to_value(fields) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(other) => Err(format!("answered with the fields {}, which are no object", kind(&other))),
        Err(error) => Err(format!("answered with what does not serialise: {error}")),
    }
}

#[cfg(test)]
mod tests;
