//! The questions of a fleet: listed, and answered.

use super::fleet::Fleet;
use crate::backend::Requests;
use crate::error::{BackendError, BackendErrorKind, FleetError};
use crate::id::QuestionId;
use crate::question::{AnswerError, QuestionAnswer, QuestionQuery, misfit};
use crate::record::QuestionRecord;
use crate::request::Answered;

/// The fewest questions that are read for a query of a tenant or a session, and twice as many each time that these were too few.
const READ: usize = 256;

impl Fleet {
    /// Lists open questions, the nearest deadline first.
    ///
    /// A question is a request of a session that its profile's handlers leave open: a tool call without a permission,
    /// the model's `AskUserQuestion`, an elicitation of an MCP server, or a dialog. It waits for
    /// [`answer`](Fleet::answer), is denied after [`FleetLimits::question`](crate::FleetLimits::question), and ends with
    /// its turn. An elicitation outside a turn is declined. Each question emits
    /// [`FleetEvent::Asked`](crate::FleetEvent::Asked).
    ///
    /// ```
    /// use greenroom::callback::{Inquiry, InquiryAnswer};
    /// use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
    /// use greenroom::{NoArgs, Session, ToolServer};
    /// use greenroom_fleet::{Fleet, FleetEvent, QuestionAnswer, QuestionQuery};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let refund = ModelTurn::new().call("mcp__shop__refund", serde_json::json!({}));
    /// let cli = ScriptedCli::play(Script::new().turn(refund).turn(ModelTurn::new().text("Done.")));
    /// let transport = cli.transport();
    /// let fleet = Fleet::builder()
    ///     .profile("default", move |_| {
    ///         let shop = ToolServer::new("shop", "1.0.0").tool("refund", "Refund it", async |_: NoArgs| "refunded");
    ///         Session::builder().mcp_server(shop).transport(transport.clone())
    ///     })
    ///     .start()
    ///     .await?;
    /// let mut events = fleet.events();
    /// let mut turn = fleet.session("customer-42")?.tenant("acme").prompt("I want my money back.").await?;
    ///
    /// // On a page, for the people of the tenant: as soon as a session asks.
    /// while !matches!(events.next().await, Some(Ok(FleetEvent::Asked { .. }))) {}
    /// let open = fleet.questions(QuestionQuery::new().tenant("acme")).await?;
    /// let Some(Inquiry::Permission { request }) = open[0].inquiry() else { panic!("{open:?}") };
    /// println!("{} asks to run {}", open[0].name, request.tool_name);
    ///
    /// fleet.answer(open[0].id, QuestionAnswer::new(InquiryAnswer::allow()).by("anna")).await?;
    /// assert_eq!(turn.outcome().await?.text(), Some("Done."));
    /// assert_eq!(cli.tool_results(), ["refunded"]);
    /// fleet.drain(std::time::Duration::from_secs(20)).await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`FleetError::Backend`].
    pub async fn questions(&self, query: QuestionQuery) -> Result<Vec<QuestionRecord>, FleetError> {
        let limit = query.limit.unwrap_or(100);
        // The backend lists the questions of all sessions.
        let mut most = if query.is_narrow() { limit.max(READ) } else { limit };
        loop {
            let records = self.handle.shared.ask(|backend| backend.open_questions(most)).await?;
            let is_all = records.len() < most || !query.is_narrow();
            let found: Vec<_> =
                records.into_iter().filter(|question| query.fits(question)).take(limit).collect();
            if is_all || found.len() == limit {
                return Ok(found);
            }
            most = most.saturating_mul(2);
        }
    }

    /// Answers a question. The first answer before the deadline decides.
    ///
    /// It does not matter on which handle or node the question was asked. When this returns `Ok`, this answer is the
    /// decision, and durable; the session acts on it if its CLI still waits. The fleet does not ask whether the person
    /// may decide: check that before, by the question's [`tenant`](QuestionRecord::tenant).
    ///
    /// Not cancel-safe: if the future is dropped, the answer may still decide.
    ///
    /// # Errors
    /// [`AnswerError::Misfit`] if the answer does not fit the question, which stays open; [`AnswerError::TooLate`];
    /// [`AnswerError::Gone`]; [`AnswerError::Unknown`] if the backend does not say whether the answer decided;
    /// [`AnswerError::Backend`].
    pub async fn answer(
        &self,
        question: QuestionId,
        answer: impl Into<QuestionAnswer>,
    ) -> Result<(), AnswerError> {
        let given = answer.into();
        let shared = &self.handle.shared;
        let record = shared.ask(|backend| backend.question(question)).await;
        let record = record.map_err(AnswerError::Backend)?.ok_or(AnswerError::Gone(question))?;
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
