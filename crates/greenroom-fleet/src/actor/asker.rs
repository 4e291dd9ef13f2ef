//! Asks people for a session: keeps its questions in the backend, and waits for the decisions.
//!
//! ```text
//!  CLI ──► the profile's handlers ──open──► Asker ──ask──► backend ◄──answer── Fleet::answer, on any handle
//!   ▲                                         │              │
//!   └───────────────── decision ──────────────┴───changes────┘
//! ```
//!
//! | what happens | the question | the CLI is told |
//! |---|---|---|
//! | a person answers | decided | the answer |
//! | the deadline passes | expired | a denial |
//! | the turn ends | removed by the backend | a denial, if it still listens |
//! | the CLI takes its request back | taken back | nothing |
//! | no turn runs, the backend refuses, the owner is fenced | never asked | a denial |
//!
//! Changes of the backend are hints, so the question is read each second as well.

use std::sync::{Arc, Weak};
use std::time::Duration;

use greenroom::SessionBuilder;
use greenroom::callback::{CallbackContext, Inquiry, InquiryAnswer};
use serde_json::Value;
use tokio::sync::{broadcast, oneshot};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::cell::NameCell;
use super::context::{FleetShared, hint};
use super::retry::{NotDone, repeat, repeat_owned};
use super::task;
use crate::backend::Requests;
use crate::id::{AttemptId, QuestionId};
use crate::question::{QuestionAnswer, misfit};
use crate::record::{Decision, QuestionRecord};
use crate::request::{Answered, Ask, Change, Ownership};

/// Time after which a question is read without a hint.
const LOOK: Duration = Duration::from_secs(1);

/// Lets a session ask people, if people are asked in this fleet.
pub(crate) fn attach(
    shared: &Arc<FleetShared>,
    cell: &Arc<NameCell>,
    builder: SessionBuilder,
    owner: &Ownership,
) -> SessionBuilder {
    if shared.limits.question.is_zero() {
        return builder;
    }
    let (shared, cell, owner, kill) = (shared.clone(), Arc::downgrade(cell), owner.clone(), cell.kill());
    let asker = Arc::new(Asker { shared, cell, owner, kill });
    builder.on_inquiry(move |inquiry, cx| asker.clone().ask(inquiry, cx))
}

/// Asks people for one activation of a name.
struct Asker {
    shared: Arc<FleetShared>,
    /// The cell has the session, which has this asker.
    cell: Weak<NameCell>,
    owner: Ownership,
    /// Cancelled when the session is to end at once.
    kill: CancellationToken,
}

impl Asker {
    async fn ask(self: Arc<Self>, inquiry: Inquiry, cx: CallbackContext) -> InquiryAnswer {
        let (reply, answer) = oneshot::channel();
        let shared = self.shared.clone();
        // A task: when the session drops this future, the question still has to be taken back.
        shared.tasks.spawn(async move { self.put(inquiry, reply).await });
        tokio::select! {
            answer = answer => answer.unwrap_or_else(|_| InquiryAnswer::deny("the host failed to put the question")),
            () = cx.cancelled() => InquiryAnswer::Dismissed,
        }
    }

    /// Puts a question to people, and replies with the decision. A dropped receiver takes the question back.
    async fn put(&self, inquiry: Inquiry, mut reply: oneshot::Sender<InquiryAnswer>) {
        let id = QuestionId::new();
        let answer = tokio::select! {
            biased;
            () = reply.closed() => {
                self.take_back(id).await;
                InquiryAnswer::Dismissed
            }
            answer = self.answer(id, &inquiry) => answer.unwrap_or_else(InquiryAnswer::deny),
        };
        self.shared.tell_transitions();
        task::answer(reply, answer);
    }

    /// Keeps a question in the backend, and waits for its decision.
    ///
    /// # Errors
    /// The reason for a denial, for the model.
    async fn answer(&self, id: QuestionId, inquiry: &Inquiry) -> Result<InquiryAnswer, String> {
        let mut changes = self.shared.backend.changes();
        let question = self.keep(id, inquiry).await?;
        self.shared.tell_transitions();
        let stored = match self.decision(&mut changes, question).await.map_err(not_asked)? {
            Some(Decision::Answered { answer: Value::Null, .. } | Decision::Expired { .. }) => {
                return Err(format!("no person has answered within {:?}", self.limit()));
            }
            Some(Decision::Answered { answer, .. }) => answer,
            None => return Err("the turn has ended in which this was asked".to_owned()),
        };
        let QuestionAnswer { answer, .. } = serde_json::from_value(stored)
            .map_err(|_| "the person's answer cannot be read by this version of the host".to_owned())?;
        match misfit(inquiry, &answer) {
            None => Ok(answer),
            Some(why) => Err(format!("the person's answer cannot be used: {why}")),
        }
    }

    /// The time for an answer.
    fn limit(&self) -> Duration {
        let (limit, quota) = (self.shared.limits.question, self.shared.quotas.of(self.owner.name.tenant()));
        quota.question.map_or(limit, |of_tenant| of_tenant.min(limit))
    }

    /// Keeps a question in the backend.
    ///
    /// # Errors
    /// The reason why nobody can be asked, for the model.
    async fn keep(&self, question: QuestionId, inquiry: &Inquiry) -> Result<QuestionRecord, String> {
        let no_turn = || "no person can be asked: the session has no running turn".to_owned();
        let running = self.cell.upgrade().and_then(|cell| cell.holdings().running);
        let prompt = running.ok_or_else(no_turn)?;
        let body = serde_json::to_value(inquiry).map_err(refused)?;
        let (start, limit) = (Instant::now(), self.limit());
        let asked = repeat_owned(&self.shared, || {
            // Time that the backend was away counts.
            let wait = limit.saturating_sub(start.elapsed());
            let (owner, body) = (self.owner.clone(), body.clone());
            self.shared.backend.ask(Ask { owner, question, prompt, wait, body })
        });
        let Ok(asked) = timeout(limit, asked).await else {
            // The backend may carry the request out later.
            self.take_back(question).await;
            return Err(refused("the host's backend does not answer"));
        };
        asked.map_err(not_asked)?.ok_or_else(no_turn)
    }

    /// Waits until the question is decided, by a person or by its deadline. `None`: it has ended with its turn.
    async fn decision(
        &self,
        changes: &mut broadcast::Receiver<Change>,
        question: QuestionRecord,
    ) -> Result<Option<Decision>, NotDone> {
        let (backend, id) = (&self.shared.backend, question.id);
        loop {
            let left = question.deadline.since(backend.now());
            if left.is_zero() {
                return self.expire(id).await;
            }
            hint(changes, Change::Decided(question.prompt, id), left.min(LOOK)).await;
            match repeat(&self.shared, || backend.question(id)).await? {
                Some(QuestionRecord { decision: None, .. }) => {}
                question => return Ok(question.and_then(|question| question.decision)),
            }
        }
    }

    /// Ends a question whose deadline has passed. An answer that came just before it counts.
    async fn expire(&self, id: QuestionId) -> Result<Option<Decision>, NotDone> {
        let attempt = AttemptId::new();
        match repeat(&self.shared, || self.shared.backend.answer(id, attempt, Value::Null)).await? {
            Answered::Decided(question) | Answered::TooLate(question) => Ok(question.decision),
            Answered::Gone => Ok(None),
        }
    }

    /// Ends a question for which the CLI does not wait any more. A few attempts are enough, because the question also
    /// ends with its turn. A session that ends at once may have been fenced, so it writes nothing.
    async fn take_back(&self, id: QuestionId) {
        if self.kill.is_cancelled() || !self.shared.holds_lease() {
            return;
        }
        let attempt = AttemptId::new();
        if let Err(error) = self.shared.ask(|backend| backend.answer(id, attempt, Value::Null)).await {
            tracing::debug!(question = %id, %error, "a question could not be taken back; it ends with its turn");
        }
    }
}

/// The reason why nobody can be asked, for the model.
fn not_asked(not_done: NotDone) -> String {
    match not_done {
        NotDone::Fenced => refused("this process does not own the session any more"),
        NotDone::Error(error) => refused(error),
    }
}

fn refused(why: impl std::fmt::Display) -> String {
    format!("no person can be asked: {why}")
}
