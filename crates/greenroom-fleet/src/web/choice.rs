//! The decision of a person on a question, as it comes from a page.

use std::collections::BTreeMap;

use greenroom::callback::InquiryAnswer;
use greenroom::permission::Answers;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::question::QuestionAnswer;

/// A person's choice about a question, for the body of a request.
///
/// An [`InquiryAnswer`] can change the arguments of a call and the rules for later calls. A choice cannot, so a service may take it
/// from a browser.
///
/// | choice | JSON | fits |
/// |---|---|---|
/// | [`Allow`](Choice::Allow) | `{"choice":"allow"}` | a permission |
/// | [`Deny`](Choice::Deny) | `{"choice":"deny"}`, with `"message":"…"` for the model if there is one | every question |
/// | [`Answer`](Choice::Answer) | `{"choice":"answer","answers":{"Which port?":"80"}}` | questions of the model |
/// | [`Submit`](Choice::Submit) | `{"choice":"submit","content":{…}}` | an elicitation |
///
/// ```
/// use greenroom::callback::InquiryAnswer;
/// use greenroom_fleet::web::Choice;
///
/// let choice: Choice = serde_json::from_str(r#"{"choice":"allow"}"#)?;
/// assert_eq!(InquiryAnswer::from(choice), InquiryAnswer::allow());
/// // Arguments are the model's alone.
/// assert!(serde_json::from_str::<Choice>(r#"{"choice":"allow","input":{"amount":1}}"#).is_err());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "choice", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Choice {
    /// The call may run, with its own arguments.
    Allow {},
    /// The person refuses.
    Deny {
        /// The reason, for the model.
        #[serde(default)]
        message: Option<String>,
    },
    /// Answers to the model's questions, each by the text of its question. Several labels are separated by commas.
    Answer {
        /// The answers.
        answers: BTreeMap<String, String>,
    },
    /// The filled-in form of an elicitation.
    Submit {
        /// The values by the names of their fields.
        content: Map<String, Value>,
    },
}

/// For [`FleetTenant::answer`](crate::FleetTenant::answer), which adds the person of its handle.
impl From<Choice> for QuestionAnswer {
    fn from(choice: Choice) -> Self {
        Self::new(choice.into())
    }
}

impl From<Choice> for InquiryAnswer {
    fn from(choice: Choice) -> Self {
        match choice {
            Choice::Allow {} => Self::allow(),
            Choice::Deny { message } => {
                Self::deny(message.unwrap_or_else(|| "the person refused".to_owned()))
            }
            Choice::Answer { answers } => {
                let answers = answers.into_iter();
                Self::Answered(
                    answers.fold(Answers::new(), |all, (question, said)| all.answer(question, said)),
                )
            }
            Choice::Submit { content } => Self::Accepted { content: content.into() },
        }
    }
}
