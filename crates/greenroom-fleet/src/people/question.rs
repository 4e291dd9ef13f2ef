//! Questions that are open, and which of them are listed.

use greenroom::callback::Inquiry;

use crate::id::{Name, PromptId, QuestionId, Timestamp};
use crate::record::QuestionRecord;

/// A question that waits for the answer of a person.
///
/// Show the [`inquiry`](Self::inquiry), and give the answer to [`Fleet::answer`](crate::Fleet::answer).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PendingQuestion {
    /// The id, by which the question is answered.
    pub id: QuestionId,
    /// The session that asks.
    pub name: Name,
    /// The tenant of the session.
    pub tenant: String,
    /// The prompt of the turn in which it asks. The question ends with that turn.
    pub prompt: PromptId,
    /// When it was asked, on the backend's clock.
    pub asked_at: Timestamp,
    /// When it counts as denied, on the backend's clock: after [`FleetLimits::question`](crate::FleetLimits::question).
    pub deadline: Timestamp,
    /// A permission, questions of the model, an elicitation or a dialog.
    pub inquiry: Inquiry,
}

impl PendingQuestion {
    /// # Errors
    /// The stored question is none that this version can read.
    pub(crate) fn read(record: QuestionRecord) -> Result<Self, serde_json::Error> {
        let QuestionRecord { id, name, tenant, prompt, asked_at, deadline, body, .. } = record;
        Ok(Self { id, name, tenant, prompt, asked_at, deadline, inquiry: serde_json::from_value(body)? })
    }
}

/// The open questions to be listed. Default: the 100 with the nearest deadlines.
///
/// ```
/// use greenroom_fleet::QuestionQuery;
///
/// let query = QuestionQuery::new().tenant("acme").limit(20);
/// # let _ = query;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionQuery {
    tenant: Option<String>,
    name: Option<Name>,
    pub(crate) limit: usize,
}

impl Default for QuestionQuery {
    fn default() -> Self {
        Self { tenant: None, name: None, limit: 100 }
    }
}

impl QuestionQuery {
    /// The 100 questions with the nearest deadlines.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists questions of this tenant only.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// Lists questions of this session only.
    #[must_use]
    pub fn name(mut self, name: Name) -> Self {
        self.name = Some(name);
        self
    }

    /// Lists at most this many questions.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    pub(crate) fn fits(&self, question: &QuestionRecord) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| *tenant == question.tenant)
            && self.name.as_ref().is_none_or(|name| *name == question.name)
    }

    pub(crate) fn is_narrow(&self) -> bool {
        self.tenant.is_some() || self.name.is_some()
    }
}
