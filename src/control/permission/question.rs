//! What the model asks the person with `AskUserQuestion`, and what the person answers.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::control::fields::{Fields, open_enum};

/// The tool with which the model asks.
pub(crate) const TOOL: &str = "AskUserQuestion";

/// A question of the model, with choices. The person may say something else as well.
///
/// ```
/// let question: greenroom::permission::Question = serde_json::from_value(serde_json::json!({
///     "question": "Which port?", "header": "Port", "multiSelect": false,
///     "options": [{ "label": "80", "description": "The usual one" }],
/// }))?;
/// assert_eq!(question.options[0].label, "80");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Question {
    /// The question, by which it is answered.
    pub question: String,
    /// A label of a word or two; empty if there is none.
    pub header: String,
    /// The choices. Empty, too, if one of them cannot be read: they are in `extra` then.
    pub options: Vec<QuestionOption>,
    /// Whether more than one may be chosen.
    pub multi_select: bool,
    /// Every other field, as it came.
    pub extra: Map<String, Value>,
}

impl<'de> Deserialize<'de> for Question {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut fields = Fields::read(from)?;
        Ok(Self {
            question: fields.need("question")?,
            header: fields.may("header").unwrap_or_default(),
            options: fields.may("options").unwrap_or_default(),
            multi_select: fields.may("multiSelect").unwrap_or_default(),
            extra: fields.rest(),
        })
    }
}

impl Serialize for Question {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { question, header, options, multi_select, extra } = self;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("question", question)?;
        // What could not be read is written as it came.
        if !extra.contains_key("header") {
            map.serialize_entry("header", header)?;
        }
        if !extra.contains_key("options") {
            map.serialize_entry("options", options)?;
        }
        if !extra.contains_key("multiSelect") {
            map.serialize_entry("multiSelect", multi_select)?;
        }
        for (name, value) in extra {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// A choice of a [`Question`].
///
/// ```
/// let option: greenroom::permission::QuestionOption =
///     serde_json::from_value(serde_json::json!({ "label": "80", "description": "The usual one" }))?;
/// assert_eq!(option.preview, None);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QuestionOption {
    /// What it is called, and what the answer says when it is chosen.
    pub label: String,
    /// What it means; empty if it does not say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// What it would look like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    /// Every other field, as it came.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl<'de> Deserialize<'de> for QuestionOption {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut fields = Fields::read(from)?;
        Ok(Self {
            label: fields.need("label")?,
            description: fields.or_default("description"),
            preview: fields.may("preview"),
            extra: fields.rest(),
        })
    }
}

open_enum! {
    /// Why a question has no answer.
    ///
    /// ```
    /// assert_eq!(greenroom::permission::Unanswered::RepliedInChat.as_str(), "replied_in_chat");
    /// ```
    Unanswered {
        /// The person passed over it.
        Skipped = "skipped",
        /// The person said something else instead.
        RepliedInChat = "replied_in_chat",
        /// The person closed it.
        Dismissed = "dismissed",
    }
}

/// What the person answered, question by question. A question is named by its text.
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    answers: BTreeMap<String, String>,
    annotations: BTreeMap<String, Annotation>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Annotation {
    #[serde(skip_serializing_if = "Option::is_none")]
    preview: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unanswered: Option<Unanswered>,
}

impl Annotation {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Answers {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// An answer: the label of a choice, or the person's own words.
    pub fn answer(mut self, question: impl Into<String>, answer: impl Into<String>) -> Self {
        self.answers.insert(question.into(), answer.into());
        self
    }

    /// Several choices, for a question with [`multi_select`](Question::multi_select). They are sent as one text, with
    /// commas in between.
    pub fn choose(
        self,
        question: impl Into<String>,
        labels: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let labels: Vec<String> = labels.into_iter().map(Into::into).collect();
        self.answer(question, labels.join(", "))
    }

    /// The preview of the choice that was made.
    pub fn preview(mut self, question: impl Into<String>, preview: impl Into<String>) -> Self {
        self.annotation(question).preview = Some(preview.into());
        self
    }

    /// What the person added.
    pub fn notes(mut self, question: impl Into<String>, notes: impl Into<String>) -> Self {
        self.annotation(question).notes = Some(notes.into());
        self
    }

    /// Why there is no answer. Programs that follow the session read it; the model reads
    /// [`answer`](Answers::answer)s alone. It is sent to a CLI that says that it understands it
    /// (`ask_user_question_unanswered_v1`), and left out for any other, which would refuse all answers.
    pub fn unanswered(mut self, question: impl Into<String>, why: Unanswered) -> Self {
        self.annotation(question).unanswered = Some(why);
        self
    }

    fn annotation(&mut self, question: impl Into<String>) -> &mut Annotation {
        self.annotations.entry(question.into()).or_default()
    }

    /// Adds the answers to the arguments of the call.
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
    fn questions_are_read_from_their_tool_alone() {
        let mut request = request();
        let questions = request.questions().unwrap();
        assert!(questions[0].multi_select && questions[1].options.is_empty());
        assert_eq!(questions[0].options[0].preview.as_deref(), Some("p"));
        assert_eq!(questions[1].extra["new"], 1);
        request.tool_name = "Bash".into();
        assert_eq!(request.questions(), None);
    }

    #[test]
    fn a_question_is_read_as_far_as_it_fits_and_written_as_it_came() {
        let asked = json!([
            {"question": "A?", "header": null, "options": [{"label": "a", "description": null, "preview": null}], "multiSelect": false},
            {"question": "B?", "header": "B", "options": [{"label": "b"}, {"description": "no name"}], "multiSelect": 1},
        ]);
        let mut request = request();
        request.input = json!({"questions": asked});
        let questions = request.questions().unwrap();
        assert_eq!((questions[0].header.as_str(), questions[0].options[0].label.as_str()), ("", "a"));
        assert!(questions[1].options.is_empty() && !questions[1].multi_select);
        assert_eq!(
            questions[1].extra["options"], asked[1]["options"],
            "half a list would look like a whole one"
        );
        assert_eq!(serde_json::to_value(&questions).unwrap(), asked);
        let text = serde_json::to_string(&questions[1]).unwrap();
        assert_eq!(text.matches("\"options\"").count(), 1, "{text}");

        for unreadable in [json!({}), json!({"questions": null}), json!({"questions": [{"header": "A"}]})] {
            request.input = unreadable;
            assert_eq!(request.questions(), None);
            let problem = request.read_questions().unwrap().unwrap_err();
            assert!(problem.starts_with("the questions cannot be read"), "{problem}");
        }
    }

    #[test]
    fn answers_are_added_to_the_questions() {
        let request = request();
        let answers = Answers::new()
            .choose("A?", ["a", "b"])
            .preview("A?", "p")
            .notes("A?", "n")
            .unanswered("B?", Unanswered::Skipped);
        let wire = |unanswered| {
            PermissionDecision::answer_questions(answers.clone())
                .to_wire(&request, Understands { unanswered })
                .unwrap()["updatedInput"]
                .clone()
        };
        let mut expected = request.input.clone();
        expected["answers"] = json!({"A?": "a, b"});
        expected["annotations"] = json!({"A?": {"preview": "p", "notes": "n"}});
        assert_eq!(wire(false), expected, "a CLI that does not say so would refuse all of it");
        expected["annotations"]["B?"] = json!({"unanswered": "skipped"});
        assert_eq!(wire(true), expected);
    }
}
