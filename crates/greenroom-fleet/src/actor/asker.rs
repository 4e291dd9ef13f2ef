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

use std::sync::Arc;
use std::time::Duration;

use greenroom::SessionBuilder;
use greenroom::callback::{CallbackContext, Inquiry, InquiryAnswer};
use serde_json::Value;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cell::{NameCell, RunningTurn};
use super::context::FleetShared;
use super::retry::{NotDone, repeat, repeat_owned};
use crate::backend::Requests;
use crate::id::{AttemptId, PromptId, QuestionId};
use crate::question::{StoredAnswer, misfit};
use crate::record::{Decision, QuestionRecord};
use crate::request::{Answered, Ask, Change, Ownership};

/// Time after which a question is read without a hint.
const LOOK: Duration = Duration::from_secs(1);

/// Lets a session ask people, if people are asked in this fleet.
pub(crate) fn attach(shared: &Arc<FleetShared>, cell: &NameCell, builder: SessionBuilder) -> SessionBuilder {
    if shared.limits.question.is_zero() {
        return builder;
    }
    let holdings = cell.holdings();
    let Some(owner) = holdings.owner.clone() else { return builder };
    let (shared, running) = (shared.clone(), holdings.running.clone());
    drop(holdings);
    let asker = Arc::new(Asker { shared, owner, running, kill: cell.kill() });
    builder.on_inquiry(move |inquiry, cx| asker.clone().ask(inquiry, cx))
}

/// Asks people for one activation of a name.
struct Asker {
    shared: Arc<FleetShared>,
    owner: Ownership,
    running: RunningTurn,
    /// Cancelled when the session is to end at once.
    kill: CancellationToken,
}

/// The end of a question.
enum End {
    Decided(Decision),
    /// The turn has ended, and the question with it.
    Gone,
    NotDone(NotDone),
}

impl Asker {
    async fn ask(self: Arc<Self>, inquiry: Inquiry, cx: CallbackContext) -> InquiryAnswer {
        let (reply, answer) = oneshot::channel();
        let shared = self.shared.clone();
        // A task: when the session drops this future, the question still has to be taken back.
        shared.tasks.spawn(async move { self.put(inquiry, reply).await });
        tokio::select! {
            answer = answer => answer.unwrap_or_else(|_| denied("the host failed to put the question")),
            () = cx.cancelled() => InquiryAnswer::Dismissed,
        }
    }

    /// Puts a question to people, and replies with the decision. A dropped receiver takes the question back.
    async fn put(&self, inquiry: Inquiry, mut reply: oneshot::Sender<InquiryAnswer>) {
        let (id, mut changes) = (QuestionId::new(), self.shared.backend.changes());
        let kept = tokio::select! {
            biased;
            () = reply.closed() => return self.take_back(id).await,
            kept = self.keep(id, &inquiry) => kept,
        };
        let answer = match kept {
            Ok(question) => {
                self.shared.tell_transitions();
                let end = tokio::select! {
                    biased;
                    () = reply.closed() => None,
                    end = self.wait(&mut changes, question) => Some(end),
                };
                let answer = match end {
                    Some(end) => self.answer_of(end, &inquiry),
                    None => {
                        self.take_back(id).await;
                        InquiryAnswer::Dismissed
                    }
                };
                self.shared.tell_transitions();
                answer
            }
            Err(why) => denied(why),
        };
        // An error: the CLI does not wait any more.
        reply.send(answer).ok();
    }

    /// Keeps a question in the backend.
    ///
    /// # Errors
    /// The reason why nobody can be asked, for the model.
    async fn keep(&self, id: QuestionId, inquiry: &Inquiry) -> Result<QuestionRecord, String> {
        let Some(prompt) = self.running.get() else { return Err(NO_TURN.to_owned()) };
        let body = serde_json::to_value(inquiry).map_err(|error| refused(&error))?;
        let limit = self.shared.limits.question;
        let Ok(asked) = tokio::time::timeout(limit, self.ask_backend(id, prompt, body)).await else {
            // The backend may carry the request out later.
            self.take_back(id).await;
            return Err(refused(&"the host's backend does not answer"));
        };
        match asked {
            Ok(Some(question)) => Ok(question),
            Ok(None) => Err(NO_TURN.to_owned()),
            Err(NotDone::Fenced) => Err(FENCED.to_owned()),
            Err(NotDone::Error(error)) => Err(refused(&error)),
        }
    }

    async fn ask_backend(
        &self,
        question: QuestionId,
        prompt: PromptId,
        body: Value,
    ) -> Result<Option<QuestionRecord>, NotDone> {
        let (start, limit) = (Instant::now(), self.shared.limits.question);
        repeat_owned(&self.shared, || {
            // Time that the backend was away counts.
            let wait = limit.saturating_sub(start.elapsed());
            let (owner, body) = (self.owner.clone(), body.clone());
            self.shared.backend.ask(Ask { owner, question, prompt, wait, body })
        })
        .await
    }

    /// Waits until the question is decided, by a person or by its deadline, or has ended with its turn.
    async fn wait(&self, changes: &mut broadcast::Receiver<Change>, question: QuestionRecord) -> End {
        let (shared, id) = (&*self.shared, question.id);
        loop {
            let left = question.deadline.since(shared.backend.now());
            if left.is_zero() {
                return self.expire(id).await;
            }
            tokio::select! {
                () = decided(changes, id) => {}
                () = tokio::time::sleep(left.min(LOOK)) => {}
            }
            match repeat(shared, || shared.backend.question(id)).await {
                Ok(Some(QuestionRecord { decision: Some(decision), .. })) => return End::Decided(decision),
                Ok(Some(_)) => {}
                Ok(None) => return End::Gone,
                Err(not_done) => return End::NotDone(not_done),
            }
        }
    }

    /// Ends a question whose deadline has passed. An answer that came just before it counts.
    async fn expire(&self, id: QuestionId) -> End {
        let (attempt, late) = (AttemptId::new(), taken_back());
        let answered = repeat(&self.shared, || self.shared.backend.answer(id, attempt, late.clone())).await;
        match answered {
            Ok(Answered::Decided(question) | Answered::TooLate(question)) => {
                question.decision.map_or(End::Gone, End::Decided)
            }
            Ok(Answered::Gone) => End::Gone,
            Err(not_done) => End::NotDone(not_done),
        }
    }

    /// Ends a question for which the CLI does not wait any more. A few attempts are enough, because the question also
    /// ends with its turn. A session that ends at once may have been fenced, so it writes nothing.
    async fn take_back(&self, id: QuestionId) {
        if self.kill.is_cancelled() || !self.shared.holds_lease() {
            return;
        }
        let (attempt, answer) = (AttemptId::new(), taken_back());
        if let Err(error) = self.shared.ask(|backend| backend.answer(id, attempt, answer.clone())).await {
            tracing::debug!(question = %id, %error, "a question could not be taken back; it ends with its turn");
        }
    }

    fn answer_of(&self, end: End, inquiry: &Inquiry) -> InquiryAnswer {
        let stored = match end {
            End::Decided(Decision::Answered { answer, .. }) => StoredAnswer::read(answer),
            End::Decided(Decision::Expired { .. }) => Some(StoredAnswer::TakenBack),
            End::Gone => return denied("the turn has ended in which this was asked"),
            End::NotDone(NotDone::Fenced) => return denied(FENCED),
            End::NotDone(NotDone::Error(error)) => return denied(refused(&error)),
        };
        match stored {
            Some(StoredAnswer::Person { answer, .. }) => match misfit(inquiry, &answer) {
                None => answer,
                Some(why) => denied(format!("the person's answer cannot be used: {why}")),
            },
            Some(StoredAnswer::TakenBack) => {
                denied(format!("no person has answered within {:?}", self.shared.limits.question))
            }
            None => denied("the person's answer cannot be read by this version of the host"),
        }
    }
}

const NO_TURN: &str = "no person can be asked: the session has no running turn";
const FENCED: &str = "no person can be asked: this process does not own the session any more";

fn denied(why: impl Into<String>) -> InquiryAnswer {
    InquiryAnswer::deny(why)
}

fn refused(error: &dyn std::fmt::Display) -> String {
    format!("no person can be asked: {error}")
}

fn taken_back() -> Value {
    // A plain variant is always JSON.
    serde_json::to_value(StoredAnswer::TakenBack).unwrap_or_default()
}

/// Waits for a hint that a question was decided.
async fn decided(changes: &mut broadcast::Receiver<Change>, question: QuestionId) {
    loop {
        match changes.recv().await {
            Ok(Change::Decided(id)) if id == question => return,
            Ok(Change::Missed) | Err(RecvError::Lagged(_)) => return,
            Ok(_) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
