//! The answer to a permission request.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use super::{Answers, PermissionRequest, PermissionUpdate};
use crate::control::lazy::LazyValue;
use crate::wire::words::words;

words! {
    /// The way a decision was made, for the CLI's own statistics. The CLI's default for an allowed call is
    /// [`UserTemporary`](DecisionClassification::UserTemporary), for a denied one
    /// [`UserReject`](DecisionClassification::UserReject).
    pub enum DecisionClassification {
        /// The user allowed this one call.
        UserTemporary = "user_temporary",
        /// The user allowed such calls permanently, now or earlier.
        UserPermanent = "user_permanent",
        /// The user denied the call.
        UserReject = "user_reject",
    }
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
pub struct PermissionDecision {
    decision: Decision,
    classification: Option<DecisionClassification>,
}

#[derive(Clone, Debug, PartialEq)]
enum Decision {
    Allow { input: Option<Value>, answers: Option<Answers>, updates: Vec<PermissionUpdate> },
    Deny { message: String, interrupt: bool },
    Undecided,
}

/// The denial of a call that nobody decides.
const UNDECIDED: &str =
    "the host's permission handler left the call undecided, and the host has nobody to ask";

/// Optional parts of the protocol that the CLI announced.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Understands {
    /// `ask_user_question_unanswered_v1`: `unanswered` in the annotations of a question.
    pub(crate) unanswered: bool,
}

impl PermissionDecision {
    fn new(decision: Decision) -> Self {
        Self { decision, classification: None }
    }

    /// Allows the call with its own arguments.
    pub fn allow() -> Self {
        Self::new(Decision::Allow { input: None, answers: None, updates: Vec::new() })
    }

    /// Allows the call with other arguments: an object. Anything else fails the handler and denies the call.
    pub fn allow_with(input: Value) -> Self {
        Self::new(Decision::Allow { input: Some(input), answers: None, updates: Vec::new() })
    }

    /// Allows the call, and applies all [`permission_suggestions`](PermissionRequest::permission_suggestions), which
    /// may allow more than such calls. For a shell command that writes a file, CLI 2.1.328 was seen to suggest a rule
    /// in the project's settings, its directory, and the mode [`AcceptEdits`](crate::PermissionMode::AcceptEdits), all
    /// at once. Do not use it when [`suppress_always_allow_rule`](PermissionRequest::suppress_always_allow_rule) is
    /// set.
    pub fn allow_always(request: &PermissionRequest) -> Self {
        Self::allow()
            .updates(request.permission_suggestions.iter().cloned())
            .classified(DecisionClassification::UserPermanent)
    }

    /// Allows a call of `AskUserQuestion` with the user's answers ([`PermissionRequest::questions`]).
    pub fn answer_questions(answers: Answers) -> Self {
        Self::new(Decision::Allow { input: None, answers: Some(answers), updates: Vec::new() })
    }

    /// Denies the call; the model reads the message.
    pub fn deny(message: impl Into<String>) -> Self {
        Self::new(Decision::Deny { message: message.into(), interrupt: false })
    }

    /// Denies the call and ends the turn.
    pub fn deny_and_interrupt(message: impl Into<String>) -> Self {
        Self::new(Decision::Deny { message: message.into(), interrupt: true })
    }

    /// Leaves the call to the handler of [`on_inquiry`](crate::SessionBuilder::on_inquiry), which asks a person; denies
    /// the call if there is none. In a [`PermissionRequest`](crate::hook::PermissionRequest) hook it lets the CLI ask.
    pub fn undecided() -> Self {
        Self::new(Decision::Undecided)
    }

    /// Adds a change of the permission rules, such as one of the suggestions. Ignored for a denied call.
    pub fn update(self, update: PermissionUpdate) -> Self {
        self.updates([update])
    }

    /// Adds changes of the permission rules.
    pub fn updates(mut self, changes: impl IntoIterator<Item = PermissionUpdate>) -> Self {
        if let Decision::Allow { updates, .. } = &mut self.decision {
            updates.extend(changes.into_iter().map(PermissionUpdate::stored));
        }
        self
    }

    /// Sets the classification for the CLI's statistics.
    pub fn classified(mut self, classification: DecisionClassification) -> Self {
        self.classification = Some(classification);
        self
    }

    /// The answer for a failed handler.
    pub(crate) fn denied(message: &str) -> Value {
        json!({ "behavior": "deny", "message": message })
    }

    /// The answer on the wire, or why it cannot be sent. Arguments are always sent, changed or not.
    pub(crate) fn to_wire(
        &self,
        request: &PermissionRequest,
        understands: Understands,
    ) -> Result<Wired, String> {
        let mut answer = self.to_hook();
        let mut unchanged = None;
        match &self.decision {
            Decision::Allow { input: None, answers: None, .. } => unchanged = Some(request.input.clone()),
            Decision::Allow { input, answers, .. } => {
                let mut input = input.as_ref().unwrap_or(&request.input).clone();
                if let Some(answers) = answers {
                    answers.add_to(&mut input, understands.unanswered);
                }
                answer["updatedInput"] = input;
            }
            Decision::Deny { .. } | Decision::Undecided => {}
        }
        let is_object = match &unchanged {
            Some(input) => input.is_object(),
            None => answer.get("updatedInput").is_none_or(Value::is_object),
        };
        if !is_object {
            return Err("allowed the call with arguments that are no object".into());
        }
        if let Some(id) = &request.tool_use_id {
            answer["toolUseID"] = json!(id);
        }
        if let Some(classification) = &self.classification {
            answer["decisionClassification"] = json!(classification);
        }
        Ok(Wired { answer, input: unchanged })
    }

    /// Whether somebody else has to decide.
    pub(crate) fn is_undecided(&self) -> bool {
        self.decision == Decision::Undecided
    }

    /// Whether the decision has answers to questions, which belong into the arguments of the call.
    pub(crate) fn answers_questions(&self) -> bool {
        matches!(self.decision, Decision::Allow { answers: Some(_), .. })
    }

    /// The decision in the answer of a `PermissionRequest` hook.
    pub(crate) fn to_hook(&self) -> Value {
        match &self.decision {
            Decision::Allow { input, updates, .. } => {
                let mut answer = json!({ "behavior": "allow" });
                if let Some(input) = input {
                    answer["updatedInput"] = input.clone();
                }
                if !updates.is_empty() {
                    answer["updatedPermissions"] = json!(updates);
                }
                answer
            }
            Decision::Deny { message, interrupt: false } => Self::denied(message),
            Decision::Deny { message, interrupt: true } => {
                json!({ "behavior": "deny", "message": message, "interrupt": true })
            }
            Decision::Undecided => Self::denied(UNDECIDED),
        }
    }
}

/// An answer to the CLI. Unchanged arguments are sent as they came, unparsed.
#[derive(Debug)]
pub(crate) struct Wired {
    answer: Value,
    input: Option<LazyValue>,
}

impl From<Value> for Wired {
    fn from(answer: Value) -> Self {
        Self { answer, input: None }
    }
}

impl Serialize for Wired {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (Some(input), Value::Object(fields)) = (&self.input, &self.answer) else {
            return self.answer.serialize(serializer);
        };
        let mut map = serializer.serialize_map(Some(fields.len() + 1))?;
        for (name, value) in fields {
            map.serialize_entry(name, value)?;
        }
        map.serialize_entry("updatedInput", input)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission::{PermissionBehavior, PermissionRule};

    #[test]
    fn decisions_have_the_shape_of_the_wire() {
        let request: PermissionRequest = serde_json::from_value(json!({
            "tool_name": "Bash", "input": {"a": 1}, "tool_use_id": "t",
            "permission_suggestions": [{"type": "setMode", "mode": "plan", "destination": "session"}],
        }))
        .unwrap();
        let wire = |decision: PermissionDecision| {
            serde_json::to_value(decision.to_wire(&request, Understands::default()).unwrap()).unwrap()
        };
        assert_eq!(
            wire(PermissionDecision::allow()),
            json!({"behavior": "allow", "updatedInput": {"a": 1}, "toolUseID": "t"})
        );
        let rule = PermissionUpdate::add_rules(PermissionBehavior::Allow, [PermissionRule::tool("Bash")]);
        assert_eq!(
            wire(PermissionDecision::allow_with(json!({"a": 2})).update(rule)),
            json!({
                "behavior": "allow", "updatedInput": {"a": 2}, "toolUseID": "t",
                "updatedPermissions": [{"type": "addRules", "behavior": "allow", "destination": "session", "rules": [{"toolName": "Bash"}]}],
            })
        );
        assert_eq!(
            wire(PermissionDecision::allow_always(&request)),
            json!({
                "behavior": "allow", "updatedInput": {"a": 1}, "toolUseID": "t",
                "updatedPermissions": [{"type": "setMode", "mode": "plan", "destination": "session"}],
                "decisionClassification": "user_permanent",
            })
        );
        let no = PermissionDecision::deny_and_interrupt("no");
        assert_eq!(
            wire(no.classified(DecisionClassification::UserReject)),
            json!({
                "behavior": "deny", "message": "no", "interrupt": true, "toolUseID": "t",
                "decisionClassification": "user_reject",
            })
        );
    }

    #[test]
    fn arguments_must_be_an_object() {
        let request: PermissionRequest =
            serde_json::from_value(json!({"tool_name": "Bash", "input": {}})).unwrap();
        let wire = PermissionDecision::allow_with(json!("ls")).to_wire(&request, Understands::default());
        assert!(wire.unwrap_err().contains("no object"));
    }
}
