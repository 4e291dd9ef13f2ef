//! The questions of a fleet: listed and answered, for the handles.

use super::fleet::Fleet;
use super::scope::Scope;
use crate::access::Action;
use crate::backend::Requests;
use crate::error::{BackendError, BackendErrorKind, FleetError};
use crate::id::QuestionId;
use crate::question::{AnswerError, QuestionAnswer, QuestionQuery, misfit};
use crate::record::QuestionRecord;
use crate::request::Answered;

impl Fleet {
    pub(super) async fn questions(
        &self,
        scope: &Scope,
        query: QuestionQuery,
    ) -> Result<Vec<QuestionRecord>, FleetError> {
        scope.allow(&self.handle.shared, Action::Read, query.name()).await?;
        let Some(of) = query.of() else { return Ok(Vec::new()) };
        let limit = query.limit.unwrap_or(100);
        Ok(self.handle.shared.ask(|backend| backend.open_questions(of.clone(), limit)).await?)
    }

    pub(super) async fn answer(
        &self,
        scope: &Scope,
        question: QuestionId,
        mut given: QuestionAnswer,
    ) -> Result<(), AnswerError> {
        let shared = &self.handle.shared;
        let record = shared.ask(|backend| backend.question(question)).await;
        let record = record.map_err(AnswerError::Backend)?.filter(|record| scope.sees(&record.name));
        let record = record.ok_or(AnswerError::Gone(question))?;
        scope.allow(shared, Action::Answer, Some(&record.name)).await?;
        if let Some(person) = &scope.person {
            given.by = Some(person.to_string());
        }
        // A decided question goes on to the backend, which knows the attempt that has decided it.
        if record.decision.is_none()
            && let Some(inquiry) = record.inquiry()
            && let Some(why) = misfit(&inquiry, &given.answer)
        {
            return Err(AnswerError::Misfit(why));
        }
        let stored = serde_json::to_value(&given).map_err(|error| AnswerError::Misfit(error.to_string()))?;
        let answered = shared.ask(|backend| backend.answer(question, given.attempt, stored.clone())).await;
        match answered.map_err(|error| not_answered(given.attempt, error))? {
            Answered::Decided(_) => Ok(()),
            Answered::TooLate(QuestionRecord { decision: Some(decision), .. }) => {
                Err(AnswerError::TooLate { question, decision })
            }
            Answered::TooLate(_) | Answered::Gone => Err(AnswerError::Gone(question)),
        }
    }
}

fn not_answered(attempt: crate::AttemptId, error: BackendError) -> AnswerError {
    match error.kind() {
        BackendErrorKind::Unavailable => AnswerError::Unknown { attempt, cause: error },
        // The answer itself cannot be kept, so the question stays open.
        BackendErrorKind::Invalid => AnswerError::Misfit(error.to_string()),
        _ => AnswerError::Backend(error),
    }
}
