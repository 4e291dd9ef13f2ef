//! The model's questions to the user (`AskUserQuestion`), and the user's answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::control::fields::requests;
use crate::wire::words::words;

/// Name of the tool with which the model asks.
pub(crate) const TOOL: &str = "AskUserQuestion";

requests! {
    /// A question of the model to the user, with choices. The user may also answer with a text of their own.
    part Question {
        /// The question's text; answers name the question by it.
        need question: String,
        /// A label of a word or two, or empty.
        or_default header: String,
        /// The choices. Empty if one of them cannot be read: all of them are in `extra` then.
        or_default options: Vec<QuestionOption>,
        /// Whether the user may choose more than one.
        or_default multi_select: bool = "multiSelect",
    }

    /// A choice of a [`Question`].
    part QuestionOption {
        /// The choice's name; answers name the choice by it.
        need label: String,
        or_default description: String,
        may preview: String,
    }
}

words! {
    /// The reason why a question has no answer.
    pub enum Unanswered {
        /// The user skipped the question.
        Skipped = "skipped",
        /// The user wrote a message instead.
        RepliedInChat = "replied_in_chat",
        /// The user closed the question.
        Dismissed = "dismissed",
    }
}

/// The user's answers. Each names its question by the question's text.
///
/// ```
/// use greenroom::permission::{Answers, Unanswered};
///
/// let answers = Answers::new()
///     .answer("Which port?", "8080")
///     .notes("Which port?", "the proxy has 80")
///     .choose("Which hosts?", ["a", "b"])
///     .unanswered("Which colour?", Unanswered::Skipped);
/// # let _ = answers;
/// ```
///
/// As JSON: `{"answers":{"Which port?":"8080"},"annotations":{"Which port?":{"notes":"the proxy has 80"}}}`, without
/// `annotations` if there are none. An annotation has `preview`, `notes` and `unanswered`, each if it is set. An unknown
/// field is an error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answers {
    answers: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, Annotation>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Annotation {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    preview: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    notes: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unanswered: Option<Unanswered>,
}

impl Annotation {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Answers {
    /// No answers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an answer: the label of a choice, or the user's own words.
    pub fn answer(mut self, question: impl Into<String>, answer: impl Into<String>) -> Self {
        self.answers.insert(question.into(), answer.into());
        self
    }

    /// Adds several choices, for a question with [`multi_select`](Question::multi_select). They are sent as one text,
    /// separated by commas.
    pub fn choose(
        self,
        question: impl Into<String>,
        labels: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let labels: Vec<String> = labels.into_iter().map(Into::into).collect();
        self.answer(question, labels.join(", "))
    }

    /// Adds the preview of the chosen option.
    pub fn preview(mut self, question: impl Into<String>, preview: impl Into<String>) -> Self {
        self.annotation(question).preview = Some(preview.into());
        self
    }

    /// Adds the user's notes.
    pub fn notes(mut self, question: impl Into<String>, notes: impl Into<String>) -> Self {
        self.annotation(question).notes = Some(notes.into());
        self
    }

    /// Adds why there is no answer, for programs that follow the session; the model does not read it. Sent only to a
    /// CLI that announces `ask_user_question_unanswered_v1`: another CLI would refuse all answers.
    pub fn unanswered(mut self, question: impl Into<String>, why: Unanswered) -> Self {
        self.annotation(question).unanswered = Some(why);
        self
    }

    fn annotation(&mut self, question: impl Into<String>) -> &mut Annotation {
        self.annotations.entry(question.into()).or_default()
    }

    /// Adds the answers to the call's arguments.
    pub(super) fn add_to(&self, input: &mut Value, unanswered: bool) {
        let annotations: BTreeMap<_, _> = self
            .annotations
            .iter()
            .map(|(question, annotation)| {
                let mut annotation = annotation.clone();
                if !unanswered {
                    annotation.unanswered = None;
                }
                (question, annotation)
            })
            .filter(|(_, annotation)| !annotation.is_empty())
            .collect();
        let Value::Object(input) = input else { return };
        input.insert("answers".into(), json!(self.answers));
        if !annotations.is_empty() {
            input.insert("annotations".into(), json!(annotations));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::permission::decision::Understands;
    use crate::{PermissionDecision, PermissionRequest};

    fn request() -> PermissionRequest {
        serde_json::from_value(json!({
            "tool_name": TOOL,
            "input": {"questions": [
                {"question": "A?", "header": "A", "options": [{"label": "a", "description": "", "preview": "p"}], "multiSelect": true},
                {"question": "B?", "new": 1},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn answers_are_sent_with_the_questions() {
        let request = request();
        let answers = Answers::new()
            .choose("A?", ["a", "b"])
            .preview("A?", "p")
            .notes("A?", "n")
            .unanswered("B?", Unanswered::Skipped);
        let wire = |unanswered| {
            let decision = PermissionDecision::answer_questions(answers.clone());
            let wire = decision.to_wire(&request, Understands { unanswered }).unwrap();
            serde_json::to_value(wire).unwrap()["updatedInput"].clone()
        };
        let mut expected = Value::from(request.input.clone());
        expected["answers"] = json!({"A?": "a, b"});
        expected["annotations"] = json!({"A?": {"preview": "p", "notes": "n"}});
        assert_eq!(wire(false), expected, "a CLI that does not say so would refuse all of it");
        expected["annotations"]["B?"] = json!({"unanswered": "skipped"});
        assert_eq!(wire(true), expected);
    }
}
