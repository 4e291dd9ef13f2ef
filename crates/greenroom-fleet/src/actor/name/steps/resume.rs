//! The tool call with which the turn of a name goes on: found before the session starts.

use greenroom::SessionBuilder;
use greenroom::callback::Inquiry;
use greenroom::report::DeferredCall;

use super::{NotStarted, NotUp, failed_by_host};
use crate::actor::cell::{NameCell, ResumedCall};
use crate::actor::context::FleetShared;
use crate::actor::retry::{NotDone, repeat, repeat_owned};
use crate::backend::Requests;
use crate::id::AttemptId;
use crate::record::usage::Usage;
use crate::record::{InterruptedBy, NameRecord, PromptOutcome, QuestionRecord};
use crate::request::{Begin, Finish, Ownership};

/// Has CLI 2.1.330 drop a call that the conversation has as deferred and whose tool is gone. Otherwise each of its turns fails.
const DROP_CALL: &str = "CLAUDE_CODE_DROP_UNAVAILABLE_DEFERRED_TOOL";

/// Has a session go on with the call of the turn that comes first in its name, if it has one.
pub(super) async fn attach(
    shared: &FleetShared,
    cell: &NameCell,
    builder: SessionBuilder,
    record: &NameRecord,
) -> Result<SessionBuilder, NotStarted> {
    let Some(question) = question(shared, record).await? else { return Ok(builder.env(DROP_CALL, "1")) };
    let Some(call) = call(record, &question) else {
        return Err(NotStarted::NoOpenCall("the question about the call cannot be read".to_owned()));
    };
    cell.holdings().resumes = Some(ResumedCall { question, begun: Default::default() });
    Ok(builder.resume_call(call))
}

/// The question about the call with which the turn goes on.
async fn question(shared: &FleetShared, record: &NameRecord) -> Result<Option<QuestionRecord>, NotDone> {
    let Some(prompt) = record.continues else { return Ok(None) };
    let prompt = repeat(shared, || shared.backend.prompt_record(prompt)).await?;
    let Some(prompt) = prompt.filter(|prompt| prompt.goes_on_with_call()) else { return Ok(None) };
    let Some(&question) = prompt.calls.first() else { return Ok(None) };
    repeat(shared, || shared.backend.question(question)).await
}

/// The call that a question is about.
fn call(record: &NameRecord, question: &QuestionRecord) -> Option<DeferredCall> {
    let call = question.call.clone()?;
    let (tool, input) = match question.inquiry()? {
        Inquiry::Permission { request } => (request.tool_name, request.input.into()),
        Inquiry::Questions { questions } => {
            ("AskUserQuestion".to_owned(), serde_json::json!({ "questions": questions }))
        }
        _ => return None,
    };
    Some(DeferredCall::new(record.conversation.to_string(), call, tool, input))
}

/// Ends the turn of a name that cannot go on with its call: the conversation has not the call any more. The next activation begins with the
/// prompt behind it.
pub(super) async fn end_turn(
    shared: &FleetShared,
    cell: &NameCell,
    record: &NameRecord,
    owner: &Ownership,
    why: String,
) -> NotUp {
    let ended = async {
        let Some(prompt) = record.continues else { return Ok(()) };
        let (attempt, quota) = (AttemptId::new(), shared.quotas.given(cell.name.tenant()).clone());
        // Nothing is sent to the API, so no held credential is in the way.
        let begin = Begin { owner: owner.clone(), prompt, attempt, quota, credential: None };
        if repeat_owned(shared, || shared.backend.begin(begin.clone())).await?.is_none() {
            // It was interrupted meanwhile, or its tenant has no money: the next activation tries again.
            return Ok(());
        }
        let cause = format!("the turn cannot go on with the call for which it was parked: {why}");
        let outcome = PromptOutcome::Interrupted { by: InterruptedBy::Session { cause }, result: None };
        let (owner, cost, usage) = (owner.clone(), Some(0), Some(Usage::default()));
        let finish = Finish { owner, prompt, attempt, outcome, cost, usage, quarantine: None };
        repeat_owned(shared, || shared.backend.finish(finish.clone()))
            .await
            .map(|_| shared.tell_transitions())
    };
    match ended.await {
        Err(NotDone::Fenced) => NotUp::Fenced,
        Err(NotDone::Error(error)) => failed_by_host(shared, cell, error.to_string()),
        Ok(()) => failed_by_host(shared, cell, why),
    }
}
