//! What a hook answers.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Event;
use crate::control::fields::open_enum;

/// What a hook of any event answers, as JSON: see [`Hook::new`](super::Hook::new). Every [`Output`] is one, too.
///
/// ```
/// use greenroom::HookOutput;
///
/// let said = HookOutput::raw(serde_json::json!({ "systemMessage": "be brief" }));
/// # let _ = said;
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct HookOutput(Reply);

#[derive(Clone, Debug, PartialEq)]
enum Reply {
    Raw(Value),
    /// What goes into `hookSpecificOutput`, and what stands beside it.
    Specific {
        fields: Value,
        beside: Map<String, Value>,
    },
    /// It cannot be sent.
    Broken(String),
}

impl HookOutput {
    /// No opinion.
    pub fn pass() -> Self {
        Self(Reply::Raw(json!({})))
    }

    /// At `PreToolUse`: `allow`, `deny` or `ask`, and why.
    pub fn permission(decision: &str, reason: impl Into<String>) -> Self {
        Self::specific(json!({ "permissionDecision": decision, "permissionDecisionReason": reason.into() }))
    }

    /// The fields of `hookSpecificOutput` for the event that the hook runs at: an object. The name of the event is put
    /// in.
    pub fn specific(fields: Value) -> Self {
        Self(Reply::Specific { fields, beside: Map::new() })
    }

    /// The whole answer, as it goes over the wire: an object. Anything else is a failure of the hook.
    pub fn raw(answer: Value) -> Self {
        Self(Reply::Raw(answer))
    }

    /// The answer on the wire; the text of what is wrong with it otherwise.
    pub(crate) fn to_wire(&self, event: &str) -> Result<Value, String> {
        let answer = self.answer(event)?;
        match misfit(event, &answer["hookSpecificOutput"]) {
            Some(problem) => Err(problem.into()),
            None => Ok(answer),
        }
    }

    fn answer(&self, event: &str) -> Result<Value, String> {
        match &self.0 {
            Reply::Raw(answer @ Value::Object(_)) => Ok(answer.clone()),
            // The CLI would count null as a failure, and nothing else that is no object says anything.
            Reply::Raw(other) => Err(format!("answered with {}, which is no object", kind(other))),
            Reply::Specific { fields: Value::Object(fields), beside } => {
                let mut specific = Map::new();
                specific.insert("hookEventName".into(), json!(event));
                specific.extend(fields.clone());
                let mut answer = beside.clone();
                answer.insert("hookSpecificOutput".into(), Value::Object(specific));
                Ok(Value::Object(answer))
            }
            Reply::Specific { fields, .. } => {
                Err(format!("answered with the fields {}, which are no object", kind(fields)))
            }
            Reply::Broken(problem) => Err(problem.clone()),
        }
    }
}

/// What of this the CLI would not read, or would give to a tool or a server that cannot.
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

open_enum! {
    /// What a hook says of what it was asked about, at events that know nothing finer.
    ///
    /// ```
    /// assert_eq!(greenroom::hook::HookDecision::Block.as_str(), "block");
    /// ```
    HookDecision {
        /// It may be.
        Approve = "approve",
        /// It may not be; at `Stop` and `SubagentStop`: the model has to go on.
        Block = "block",
    }
}

/// What a hook at the event `E` answers.
///
/// Each event has a name for it ([`PreToolUseOutput`](super::PreToolUseOutput)), and methods for what can be said there
/// only. What can be said at all events is here; the event's documentation says what it means there.
///
/// ```
/// use greenroom::hook::StopOutput;
///
/// // The model has to go on, and reads why.
/// let answer = StopOutput::block("the tests were not run");
/// # let _ = answer;
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Output<E: Event> {
    /// What can be said at all events.
    pub common: CommonOutput,
    /// What can be said at this one.
    pub fields: E::Fields,
    /// Fields of `hookSpecificOutput` that this library does not know.
    pub extra: Map<String, Value>,
    /// What is wrong with it, if it cannot be sent.
    pub(super) problem: Option<String>,
}

/// What a hook can say at all events.
///
/// ```
/// let answer = greenroom::hook::StopOutput::pass().system_message("almost there");
/// assert_eq!(answer.common.system_message.as_deref(), Some("almost there"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CommonOutput {
    /// `false`: the turn ends here.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    pub goes_on: Option<bool>,
    /// Why it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// Whether what the hook says is kept out of the transcript.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suppress_output: Option<bool>,
    /// What the hook says of what it was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<HookDecision>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the person is to read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_message: Option<String>,
    /// An escape sequence for the person's terminal: a notification, a title or the bell; the CLI drops any other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal_sequence: Option<String>,
    /// The CLI does not wait for more, at most this long: see [`Output::asynchronous`].
    #[serde(skip)]
    pub asynchronous: Option<Option<Duration>>,
    /// Fields that this library does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl<E: Event> Output<E> {
    /// No opinion.
    pub fn pass() -> Self {
        Self {
            common: CommonOutput::default(),
            fields: E::Fields::default(),
            extra: Map::new(),
            problem: None,
        }
    }

    /// What the hook was asked about may not be (`decision: "block"`). At `Stop` and `SubagentStop` the model has to go
    /// on, and reads the reason.
    pub fn block(reason: impl Into<String>) -> Self {
        Self::pass().decision(HookDecision::Block).reason(reason)
    }

    /// The turn ends here (`continue: false`), and the person reads why.
    pub fn end_turn(reason: impl Into<String>) -> Self {
        let mut output = Self::pass();
        output.common.goes_on = Some(false);
        output.common.stop_reason = Some(reason.into());
        output
    }

    /// The CLI does not wait: it goes on at once, as without an opinion. The time is how long it counts the hook as
    /// running; the CLI's own default without one. The CLI reads nothing else of such an answer, so that one that says more
    /// is a failure of the hook.
    pub fn asynchronous(limit: Option<Duration>) -> Self {
        let mut output = Self::pass();
        output.common.asynchronous = Some(limit);
        output
    }

    /// With this decision.
    pub fn decision(mut self, decision: HookDecision) -> Self {
        self.common.decision = Some(decision);
        self
    }

    /// With the reason for the decision.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.common.reason = Some(reason.into());
        self
    }

    /// With something for the person to read.
    pub fn system_message(mut self, message: impl Into<String>) -> Self {
        self.common.system_message = Some(message.into());
        self
    }

    /// Whether what the hook says is kept out of the transcript.
    pub fn suppress_output(mut self, suppress: bool) -> Self {
        self.common.suppress_output = Some(suppress);
        self
    }

    /// With an escape sequence for the person's terminal.
    pub fn terminal_sequence(mut self, sequence: impl Into<String>) -> Self {
        self.common.terminal_sequence = Some(sequence.into());
        self
    }

    /// With a field of `hookSpecificOutput` that this library does not know.
    pub fn field(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.extra.insert(name.into(), value.into());
        self
    }
}

impl<E: Event> Default for Output<E> {
    fn default() -> Self {
        Self::pass()
    }
}

impl<E: Event> From<Output<E>> for HookOutput {
    fn from(output: Output<E>) -> Self {
        if let Some(problem) = output.problem {
            return Self(Reply::Broken(problem));
        }
        let (beside, mut fields) = match (object(&output.common), object(&output.fields)) {
            (Ok(beside), Ok(fields)) => (beside, fields),
            (Err(problem), _) | (_, Err(problem)) => return Self(Reply::Broken(problem)),
        };
        fields.extend(output.extra);
        if let Some(limit) = output.common.asynchronous {
            if !beside.is_empty() || !fields.is_empty() {
                let said: Vec<_> = beside.keys().chain(fields.keys()).map(String::as_str).collect();
                return Self(Reply::Broken(format!(
                    "answered asynchronously, of which the CLI reads no more, and with {}",
                    said.join(", ")
                )));
            }
            let mut answer = json!({ "async": true });
            if let Some(limit) = limit {
                answer["asyncTimeout"] = json!(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
            }
            return Self(Reply::Raw(answer));
        }
        Self(if fields.is_empty() {
            Reply::Raw(Value::Object(beside))
        } else {
            Reply::Specific { fields: Value::Object(fields), beside }
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
mod tests {
    use super::*;
    use crate::hook::{PreToolUse, PreToolUseOutput, SessionEndOutput};

    fn wire(output: impl Into<HookOutput>) -> Value {
        output.into().to_wire("PreToolUse").unwrap()
    }

    #[test]
    fn a_specific_answer_names_the_event() {
        assert_eq!(
            wire(HookOutput::permission("deny", "no")),
            json!({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "no"}})
        );
        assert_eq!(wire(HookOutput::pass()), json!({}));
    }

    #[test]
    fn what_is_no_object_is_never_sent() {
        for value in [Value::Null, json!([]), json!("x"), json!(true), json!(1)] {
            let raw = HookOutput::raw(value.clone()).to_wire("Stop").unwrap_err();
            assert!(raw.starts_with("answered with") && raw.ends_with("no object"), "{raw}");
            assert!(HookOutput::specific(value.clone()).to_wire("Stop").is_err());
            let input = HookOutput::from(PreToolUseOutput::allow().updated_input(value));
            assert_eq!(
                input.to_wire("PreToolUse").unwrap_err(),
                "answered with arguments that are no object"
            );
        }
    }

    #[test]
    fn what_the_cli_would_not_read_is_never_sent() {
        use crate::hook::{ElicitationOutput, ElicitationResultOutput, PermissionRequestOutput};
        use crate::permission::Answers;
        use crate::{ElicitationAnswer, PermissionDecision};

        let problem = |output: HookOutput, event: &str| output.to_wire(event).unwrap_err();
        let arguments = "answered with arguments that are no object";
        let decided = PermissionRequestOutput::decide(PermissionDecision::allow_with(json!("ls")));
        assert_eq!(problem(decided.into(), "PermissionRequest"), arguments);
        let raw = json!({"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": "ls"}});
        assert_eq!(problem(HookOutput::raw(raw), "PreToolUse"), arguments);
        let decided = PermissionRequestOutput::pass().permission("allow");
        assert_eq!(
            problem(decided.into(), "PermissionRequest"),
            "answered with a decision that is no object"
        );
        let answers = PermissionDecision::answer_questions(Answers::new().answer("Why?", "because"));
        let decided = problem(PermissionRequestOutput::decide(answers).into(), "PermissionRequest");
        assert!(decided.contains("`on_question`"), "{decided}");

        let content = "answered with a content that is no object";
        let said = ElicitationOutput::answer(ElicitationAnswer::Accept(json!("x")));
        assert_eq!(problem(said.into(), "Elicitation"), content);
        let said = ElicitationResultOutput::answer(ElicitationAnswer::Accept(json!(["x"])));
        assert_eq!(problem(said.into(), "ElicitationResult"), content);
    }

    #[test]
    fn an_asynchronous_answer_that_says_more_is_never_sent() {
        let asynchronous = || PreToolUseOutput::asynchronous(None);
        let mut ends = asynchronous();
        ends.common.goes_on = Some(false);
        for (output, said) in [
            (asynchronous().permission_decision("deny"), "permissionDecision"),
            (asynchronous().decision(HookDecision::Block).reason("no"), "decision, reason"),
            (asynchronous().field("new", 1), "new"),
            (ends, "continue"),
        ] {
            let problem = HookOutput::from(output).to_wire("PreToolUse").unwrap_err();
            assert!(problem.ends_with(&format!("and with {said}")), "{problem}");
        }
    }

    #[test]
    fn everything_that_can_be_said_at_all_events_is_on_the_wire() {
        let mut output = Output::<PreToolUse>::block("b")
            .system_message("m")
            .suppress_output(true)
            .terminal_sequence("\u{7}")
            .field("newField", 1);
        output.common.goes_on = Some(false);
        output.common.stop_reason = Some("s".into());
        output.common.extra.insert("new".into(), json!(2));
        assert_eq!(
            wire(output),
            json!({
                "continue": false, "stopReason": "s", "suppressOutput": true, "decision": "block", "reason": "b",
                "systemMessage": "m", "terminalSequence": "\u{7}", "new": 2,
                "hookSpecificOutput": {"hookEventName": "PreToolUse", "newField": 1},
            })
        );
        assert_eq!(wire(SessionEndOutput::pass()), json!({}));
        assert_eq!(
            wire(SessionEndOutput::end_turn("enough")),
            json!({"continue": false, "stopReason": "enough"})
        );
        let limit = Duration::from_millis(1500);
        assert_eq!(
            wire(PreToolUseOutput::asynchronous(Some(limit))),
            json!({"async": true, "asyncTimeout": 1500})
        );
        assert_eq!(wire(PreToolUseOutput::asynchronous(None)), json!({"async": true}));
    }
}
