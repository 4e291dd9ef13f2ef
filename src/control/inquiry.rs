//! Inquiries: whatever a session asks a person, in one type, for a handler behind all others.

use serde::de::{self, DeserializeOwned};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::elicitation::{DialogRequest, ElicitationRequest};
use super::permission::{Answers, PermissionRequest, PermissionUpdate, Question};

/// A request of the session for a person: whatever its own handlers leave open. See
/// [`SessionBuilder::on_inquiry`](crate::SessionBuilder::on_inquiry).
///
/// As JSON, to be stored and shown elsewhere, for example on a web page; the fields of a request are named as on the
/// wire:
///
/// | inquiry | JSON |
/// |---|---|
/// | [`Permission`](Inquiry::Permission) | `{"kind":"permission","request":{"tool_name":"Bash","input":{"command":"ls"},…}}` |
/// | [`Questions`](Inquiry::Questions) | `{"kind":"questions","questions":[{"question":"Which port?","header":"Port","options":[{"label":"80","description":""}],"multiSelect":false}]}` |
/// | [`Elicitation`](Inquiry::Elicitation) | `{"kind":"elicitation","request":{"mcp_server_name":"crm","message":"Who are you?",…}}` |
/// | [`Dialog`](Inquiry::Dialog) | `{"kind":"dialog","request":{"dialog_kind":"refusal_fallback_prompt","payload":{…}}}` |
///
/// New kinds are added: match with a wildcard arm, and answer [`InquiryAnswer::Dismissed`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "an inquiry is made once and moved to its handler")]
#[non_exhaustive]
pub enum Inquiry {
    /// May this tool run? Mind the fields that restrict a dialog, such as
    /// [`suppress_always_allow_rule`](PermissionRequest::suppress_always_allow_rule).
    Permission {
        /// The tool, its arguments, and the changes of the rules that the CLI suggests.
        #[serde(deserialize_with = "by_value")]
        request: PermissionRequest,
    },
    /// The model asks the user questions (`AskUserQuestion`).
    Questions {
        /// The questions with their choices.
        #[serde(deserialize_with = "by_value")]
        questions: Vec<Question>,
    },
    /// An MCP server asks the user for something.
    Elicitation {
        /// A form, or a page to open.
        #[serde(deserialize_with = "by_value")]
        request: ElicitationRequest,
    },
    /// The CLI shows a dialog, of a kind that
    /// [`SessionBuilder::inquiry_dialogs`](crate::SessionBuilder::inquiry_dialogs) names.
    Dialog {
        /// The dialog; the shape of its payload depends on its kind.
        #[serde(deserialize_with = "by_value")]
        request: DialogRequest,
    },
}

impl Inquiry {
    /// The kind, as in the JSON: `permission`, `questions`, `elicitation` or `dialog`.
    pub fn kind(&self) -> &'static str {
        self.asked().name()
    }

    pub(super) fn asked(&self) -> Asked {
        match self {
            Inquiry::Permission { .. } => Asked::Permission,
            Inquiry::Questions { .. } => Asked::Questions,
            Inquiry::Elicitation { .. } => Asked::Elicitation,
            Inquiry::Dialog { .. } => Asked::Dialog,
        }
    }
}

/// The answer to an [`Inquiry`].
///
/// | answer | fits | JSON |
/// |---|---|---|
/// | [`Allowed`](InquiryAnswer::Allowed) | permission | `{"kind":"allowed"}`, with `"input":{…}` and `"updates":[…]` if there are any |
/// | [`Answered`](InquiryAnswer::Answered) | questions | `{"kind":"answered","answers":{"Which port?":"80"}}`, with `"annotations":{"Which port?":{"notes":"…"}}` if there are any |
/// | [`Accepted`](InquiryAnswer::Accepted) | elicitation | `{"kind":"accepted","content":{…}}` |
/// | [`Completed`](InquiryAnswer::Completed) | dialog | `{"kind":"completed","result":…}` |
/// | [`Denied`](InquiryAnswer::Denied) | every inquiry | `{"kind":"denied","message":"not today"}`, with `"interrupt":true` to end the turn as well |
/// | [`Dismissed`](InquiryAnswer::Dismissed) | every inquiry | `{"kind":"dismissed"}` |
///
/// An answer of a kind that does not fit denies the request with a text that says so, and emits
/// [`Event::CallbackFailed`](crate::Event::CallbackFailed). An unknown field in the JSON is an error, so that a
/// misspelt `input` does not allow the call as it was.
///
/// An answer that allows can change the arguments of a call and the rules for later calls. So do not take such JSON
/// from a browser as it comes: take the person's choice, and make the answer on your side.
///
/// ```
/// use greenroom::callback::InquiryAnswer;
///
/// let answer: InquiryAnswer = serde_json::from_str(r#"{"kind":"denied","message":"not today"}"#)?;
/// assert_eq!(answer, InquiryAnswer::deny("not today"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum InquiryAnswer {
    /// The tool may run.
    Allowed {
        /// Other arguments for the call, an object; `None` for its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Value>,
        /// Changes of the permission rules. With any, the CLI counts the call as allowed permanently.
        #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "by_value")]
        updates: Vec<PermissionUpdate>,
    },
    /// The user's answers to the model's questions.
    Answered(Answers),
    /// The content for the MCP server, an object; null for plain consent to open a page.
    Accepted {
        /// In the requested shape.
        content: Value,
    },
    /// The user's choice in a dialog.
    Completed {
        /// The shape depends on the kind of dialog.
        result: Value,
    },
    /// The person refuses. The model reads the message about a permission and about questions; an elicitation is
    /// declined and a dialog is cancelled, both without it.
    Denied {
        /// The reason, for the model.
        message: String,
        /// Also ends the turn, after a permission or questions.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        interrupt: bool,
    },
    /// Nobody decided, for example because the page was closed or the time is over. Denies a permission and questions,
    /// and cancels an elicitation and a dialog.
    Dismissed,
}

/// Requests and changes of rules are read from raw JSON, which serde's buffer for tagged enums lacks.
fn by_value<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<T, D::Error> {
    serde_json::from_value(Value::deserialize(from)?).map_err(de::Error::custom)
}

impl InquiryAnswer {
    /// Allows the call with its own arguments.
    pub fn allow() -> Self {
        Self::Allowed { input: None, updates: Vec::new() }
    }

    /// Allows the call with other arguments: an object.
    pub fn allow_with(input: Value) -> Self {
        Self::Allowed { input: Some(input), updates: Vec::new() }
    }

    /// Allows the call, and applies all changes of the rules that the CLI suggests, as
    /// [`PermissionDecision::allow_always`](crate::PermissionDecision::allow_always) does; read there what this may
    /// allow.
    pub fn allow_always(request: &PermissionRequest) -> Self {
        Self::Allowed { input: None, updates: request.permission_suggestions.clone() }
    }

    /// Denies, with a reason for the model.
    pub fn deny(message: impl Into<String>) -> Self {
        Self::Denied { message: message.into(), interrupt: false }
    }

    /// Denies, and ends the turn.
    pub fn deny_and_interrupt(message: impl Into<String>) -> Self {
        Self::Denied { message: message.into(), interrupt: true }
    }

    /// The text for an answer that does not fit.
    pub(super) fn misfit(&self, asked: Asked) -> String {
        let (given, fits) = match self {
            InquiryAnswer::Allowed { .. } => ("allowed", Some(Asked::Permission)),
            InquiryAnswer::Answered(_) => ("answered", Some(Asked::Questions)),
            InquiryAnswer::Accepted { .. } => ("accepted", Some(Asked::Elicitation)),
            InquiryAnswer::Completed { .. } => ("completed", Some(Asked::Dialog)),
            InquiryAnswer::Denied { .. } => ("denied", None),
            InquiryAnswer::Dismissed => ("dismissed", None),
        };
        let fits = fits.map_or("any", Asked::name);
        format!("the inquiry `{}` was answered with `{given}`, which answers `{fits}` only", asked.name())
    }
}

/// The kind of an inquiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Permission,
    Questions,
    Elicitation,
    Dialog,
}

impl Asked {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Asked::Permission => "permission",
            Asked::Questions => "questions",
            Asked::Elicitation => "elicitation",
            Asked::Dialog => "dialog",
        }
    }
}
