//! Questions that sessions ask people, and the answers: what they say, whether they fit, and what becomes of them.
//!
//! A profile's own handlers decide first. What they leave open becomes a question:
//! [`FleetTenant::questions`](crate::FleetTenant::questions) lists it, and
//! [`FleetTenant::answer`](crate::FleetTenant::answer) decides it.

use greenroom::callback::{Inquiry, InquiryAnswer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::access::Denied;
use crate::error::{BackendError, BackendErrorKind, debug_as_report};
use crate::id::{AttemptId, Name, QuestionId, Tenant};
use crate::record::{Decision, QuestionRecord};
use crate::request::{Answered, QuestionsOf};

impl QuestionRecord {
    /// The request that waits for a person: a permission, questions of the model, an elicitation or a dialog. `None`: another
    /// version has kept it, and this one cannot read it.
    pub fn inquiry(&self) -> Option<Inquiry> {
        serde_json::from_value(self.body.clone()).ok()
    }
}

impl Decision {
    /// The answer that decided. `None`: nobody answered, or this version cannot read the answer.
    pub fn answer(&self) -> Option<QuestionAnswer> {
        match self {
            Self::Answered { answer, attempt, .. } => {
                let answer: QuestionAnswer = serde_json::from_value(answer.clone()).ok()?;
                Some(answer.attempt(*attempt))
            }
            Self::Expired { .. } => None,
        }
    }
}

impl std::fmt::Display for Decision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self, self.answer()) {
            (_, Some(QuestionAnswer { by: Some(person), .. })) => write!(f, "by {person}"),
            (Self::Answered { answer: Value::Null, .. }, _) => {
                f.write_str("by the session, which took it back")
            }
            (Self::Answered { .. }, _) => f.write_str("by another answer"),
            (Self::Expired { .. }, _) => f.write_str("by its deadline: it was denied"),
        }
    }
}

/// The open questions to be listed. Default: the 100 with the nearest deadlines.
///
/// ```
/// use greenroom_fleet::QuestionQuery;
///
/// let query = QuestionQuery::new().limit(20);
/// # let _ = query;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuestionQuery {
    tenant: Option<Tenant>,
    name: Option<Name>,
    limit: Option<usize>,
}

impl QuestionQuery {
    /// The 100 questions with the nearest deadlines.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists questions of this tenant only.
    #[must_use]
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Lists questions of this session only.
    #[must_use]
    pub fn session(mut self, name: Name) -> Self {
        self.name = Some(name);
        self
    }

    /// Lists at most this many questions. Default: 100.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    pub(crate) fn name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    /// The most questions that are listed.
    pub(crate) fn most(&self) -> usize {
        self.limit.unwrap_or(100)
    }

    /// The questions that it chooses. `None`: the session is another tenant's, so there are none.
    pub(crate) fn of(&self) -> Option<QuestionsOf> {
        match (self.tenant.clone(), self.name.clone()) {
            (Some(tenant), Some(name)) if tenant != *name.tenant() => None,
            (_, Some(name)) => Some(QuestionsOf::Session(name)),
            (Some(tenant), None) => Some(QuestionsOf::Tenant(tenant)),
            (None, None) => Some(QuestionsOf::All),
        }
    }
}

/// An answer to a question. Wraps an [`InquiryAnswer`] with the name shown to late answerers.
///
/// ```
/// use greenroom::callback::InquiryAnswer;
/// use greenroom_fleet::QuestionAnswer;
///
/// let answer = QuestionAnswer::new(InquiryAnswer::allow()).by("anna@example.com");
/// # let _ = answer;
/// ```
///
/// The backend keeps it as JSON, and `null` in its place if the session has taken the question back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[must_use]
pub struct QuestionAnswer {
    /// The answer.
    pub answer: InquiryAnswer,
    /// The person who gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(skip, default = "AttemptId::new")]
    pub(crate) attempt: AttemptId,
}

impl QuestionAnswer {
    /// An answer without the name of a person.
    pub fn new(answer: InquiryAnswer) -> Self {
        Self { answer, by: None, attempt: AttemptId::new() }
    }

    /// Sets who answers. It is kept with the answer, and means nothing to the fleet.
    pub fn by(mut self, person: impl Into<String>) -> Self {
        self.by = Some(person.into());
        self
    }

    /// Sets the id of the attempt, to repeat an answer after [`AnswerError::Unknown`]: the attempt that decided succeeds again.
    /// Default: a new id.
    pub fn attempt(mut self, attempt: AttemptId) -> Self {
        self.attempt = attempt;
        self
    }
}

impl From<InquiryAnswer> for QuestionAnswer {
    fn from(answer: InquiryAnswer) -> Self {
        Self::new(answer)
    }
}

/// The reason why an answer decided nothing.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The person for whom the handle acts may not answer. The question stays open.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The answer does not fit the question, which stays open: answer it again.
    #[error("{0}")]
    Misfit(String),
    /// The question was decided before.
    #[error("the question {question} was decided before, {decision}")]
    TooLate {
        /// The question.
        question: QuestionId,
        /// The decision.
        decision: Decision,
    },
    /// The question is not known, or has ended with its turn.
    #[error("the question {0} has ended with its turn, or is not known")]
    Gone(QuestionId),
    /// The backend did not say whether the answer decided. Repeat the answer with this attempt to find out:
    /// [`QuestionAnswer::attempt`].
    #[error(
        "it is not known whether the answer decided the question: repeat it with the same attempt. {cause}"
    )]
    Unknown {
        /// The attempt.
        attempt: AttemptId,
        /// The backend's last error.
        #[source]
        cause: BackendError,
    },
    /// The backend cannot be asked about the question. Nothing was answered.
    #[error(transparent)]
    Backend(BackendError),
}

debug_as_report!(AnswerError);

/// Answers a question, if the answer fits it. `answer` gives the backend an attempt and its answer.
pub(crate) async fn decide<F>(
    question: &QuestionRecord,
    given: QuestionAnswer,
    answer: impl FnOnce(AttemptId, Value) -> F,
) -> Result<(), AnswerError>
where
    F: Future<Output = Result<Answered, BackendError>>,
{
    // A decided question goes on to the backend, which knows the attempt that has decided it.
    if question.decision.is_none()
        && let Some(inquiry) = question.inquiry()
        && let Some(why) = misfit(&inquiry, &given.answer)
    {
        return Err(AnswerError::Misfit(why));
    }
    let stored = serde_json::to_value(&given).map_err(|error| AnswerError::Misfit(error.to_string()))?;
    let answered = answer(given.attempt, stored).await;
    match answered.map_err(|error| not_answered(given.attempt, error))? {
        Answered::Decided(_) => Ok(()),
        Answered::TooLate(QuestionRecord { id, decision: Some(decision), .. }) => {
            Err(AnswerError::TooLate { question: id, decision })
        }
        Answered::TooLate(_) | Answered::Gone => Err(AnswerError::Gone(question.id)),
    }
}

fn not_answered(attempt: AttemptId, error: BackendError) -> AnswerError {
    match error.kind() {
        BackendErrorKind::Unavailable => AnswerError::Unknown { attempt, cause: error },
        // The answer itself cannot be kept, so the question stays open.
        BackendErrorKind::Invalid => AnswerError::Misfit(error.to_string()),
        _ => AnswerError::Backend(error),
    }
}

/// Says why an answer does not fit a question.
pub(crate) fn misfit(inquiry: &Inquiry, answer: &InquiryAnswer) -> Option<String> {
    let (said, fits) = match answer {
        InquiryAnswer::Allowed { .. } => ("allowed", "permission"),
        InquiryAnswer::Answered(_) => ("answered", "questions"),
        InquiryAnswer::Accepted { .. } => ("accepted", "elicitation"),
        InquiryAnswer::Completed { .. } => ("completed", "dialog"),
        // `Denied` and `Dismissed` fit every question; the session itself checks later kinds.
        _ => return None,
    };
    let kind = inquiry.kind();
    if kind != fits {
        let deny = "deny it or dismiss it instead";
        return Some(format!("the question is a `{kind}`, and `{said}` answers a `{fits}` only: {deny}"));
    }
    match answer {
        InquiryAnswer::Allowed { input: Some(input), .. } if !input.is_object() => Some(
            "the arguments of a call are an object: allow the call with an object, or with none".to_owned(),
        ),
        InquiryAnswer::Accepted { content } if !content.is_object() && !content.is_null() => {
            Some("the content for an elicitation is an object, or null for consent to open a page".to_owned())
        }
        _ => None,
    }
}
