//! The questions of a fleet: listed and answered, for the handles.

use super::fleet::Fleet;
use super::scope::Scope;
use crate::access::Action;
use crate::backend::Requests;
use crate::error::FleetError;
use crate::id::QuestionId;
use crate::question::{AnswerError, QuestionAnswer, QuestionQuery, decide};
use crate::record::QuestionRecord;

impl Fleet {
    pub(super) async fn questions(
        &self,
        scope: &Scope,
        query: QuestionQuery,
    ) -> Result<Vec<QuestionRecord>, FleetError> {
        let shared = &self.handle.shared;
        scope.allow(shared, Action::Read, query.name()).await?;
        let Some(of) = query.of() else { return Ok(Vec::new()) };
        Ok(shared.ask(|backend| backend.open_questions(of.clone(), query.most())).await?)
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
        decide(&record, given, |attempt, answer| {
            shared.ask(move |backend| backend.answer(question, attempt, answer.clone()))
        })
        .await
    }
}
