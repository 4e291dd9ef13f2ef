//! The answer to a permission request.

use serde_json::{Value, json};

use super::{Answers, PermissionRequest, PermissionUpdate};
use crate::control::fields::open_enum;

open_enum! {
    /// How a decision came about, for the CLI's own statistics. Without it the CLI takes what is allowed for
    /// [`UserTemporary`](DecisionClassification::UserTemporary) and what is denied for
    /// [`UserReject`](DecisionClassification::UserReject).
    ///
    /// ```
    /// use greenroom::permission::DecisionClassification;
    ///
    /// assert_eq!(DecisionClassification::UserPermanent.as_str(), "user_permanent");
    /// ```
    DecisionClassification {
        /// The person allowed it this once.
        UserTemporary = "user_temporary",
        /// The person allowed it for good, now or earlier.
        UserPermanent = "user_permanent",
        /// The person denied it.
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
}

/// What the CLI says that it understands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Understands {
    /// `unanswered` in the annotations of a question (`ask_user_question_unanswered_v1`).
    pub(crate) unanswered: bool,
}

impl PermissionDecision {
    fn new(decision: Decision) -> Self {
        Self { decision, classification: None }
    }

    /// It may run, with the arguments that it has.
    pub fn allow() -> Self {
        Self::new(Decision::Allow { input: None, answers: None, updates: Vec::new() })
    }

    /// It may run, with these arguments instead: an object. Anything else is a failure of the handler, and denied.
    pub fn allow_with(input: Value) -> Self {
        Self::new(Decision::Allow { input: Some(input), answers: None, updates: Vec::new() })
    }

    /// It may run, now and from now on: with all that the CLI suggests for that, which may be more than this one call. For
    /// a shell command that writes a file, CLI 2.1.328 was seen to suggest a rule in the settings of the project, its
    /// directory, and the mode [`AcceptEdits`](crate::PermissionMode::AcceptEdits), all three at once. The request says
    /// when this must not be offered ([`suppress_always_allow_rule`](PermissionRequest::suppress_always_allow_rule)).
    pub fn allow_always(request: &PermissionRequest) -> Self {
        Self::allow()
            .updates(request.permission_suggestions.iter().cloned())
            .classified(DecisionClassification::UserPermanent)
    }

    /// What the person answered to the questions of `AskUserQuestion`
    /// ([`PermissionRequest::questions`]).
    pub fn answer_questions(answers: Answers) -> Self {
        Self::new(Decision::Allow { input: None, answers: Some(answers), updates: Vec::new() })
    }

    /// It may not run; the model reads the message.
    pub fn deny(message: impl Into<String>) -> Self {
        Self::new(Decision::Deny { message: message.into(), interrupt: false })
    }

    /// It may not run, and the turn ends.
    pub fn deny_and_interrupt(message: impl Into<String>) -> Self {
        Self::new(Decision::Deny { message: message.into(), interrupt: true })
    }

    /// With a change of the permission rules, such as one of the suggestions. Only an allowed call carries it.
    pub fn update(self, update: PermissionUpdate) -> Self {
        self.updates([update])
    }

    /// With such changes.
    pub fn updates(mut self, changes: impl IntoIterator<Item = PermissionUpdate>) -> Self {
        if let Decision::Allow { updates, .. } = &mut self.decision {
            updates.extend(changes);
        }
        self
    }

    /// With how it came about.
    pub fn classified(mut self, classification: DecisionClassification) -> Self {
        self.classification = Some(classification);
        self
    }

    /// The answer for a handler that gave none.
    pub(crate) fn denied(message: &str) -> Value {
        json!({ "behavior": "deny", "message": message })
    }

    /// The answer on the wire; the text of what is wrong with it otherwise. The input is always sent back, changed or
    /// not.
    pub(crate) fn to_wire(
        &self,
        request: &PermissionRequest,
        understands: Understands,
    ) -> Result<Value, String> {
        let mut answer = self.to_hook();
        if let Decision::Allow { input, answers, .. } = &self.decision {
            let mut input = input.as_ref().unwrap_or(&request.input).clone();
            if let Some(answers) = answers {
                answers.add_to(&mut input, understands.unanswered);
            }
            answer["updatedInput"] = input;
        }
        if answer.get("updatedInput").is_some_and(|input| !input.is_object()) {
            return Err("allowed the call with arguments that are no object".into());
        }
        if let Some(id) = &request.tool_use_id {
            answer["toolUseID"] = json!(id);
        }
        if let Some(classification) = &self.classification {
            answer["decisionClassification"] = json!(classification);
        }
        Ok(answer)
    }

    /// Whether it carries answers to questions, which are sent with the arguments of the call.
    pub(crate) fn answers_questions(&self) -> bool {
        matches!(self.decision, Decision::Allow { answers: Some(_), .. })
    }

    /// The decision as a `PermissionRequest` hook says it.
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission::{PermissionBehavior, PermissionRule};

    #[test]
    fn answers_have_the_shape_of_the_protocol() {
        let request: PermissionRequest = serde_json::from_value(json!({
            "tool_name": "Bash", "input": {"a": 1}, "tool_use_id": "t",
            "permission_suggestions": [{"type": "setMode", "mode": "plan", "destination": "session"}],
        }))
        .unwrap();
        let wire = |decision: PermissionDecision| decision.to_wire(&request, Understands::default()).unwrap();
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
    fn arguments_that_are_no_object_are_never_sent() {
        let request: PermissionRequest =
            serde_json::from_value(json!({"tool_name": "Bash", "input": {}})).unwrap();
        let wire = PermissionDecision::allow_with(json!("ls")).to_wire(&request, Understands::default());
        assert!(wire.unwrap_err().contains("no object"));
    }
}
