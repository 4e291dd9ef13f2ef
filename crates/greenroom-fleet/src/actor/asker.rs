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
//! | `question_holds` passes, or the fleet drains, and the question is about a tool call | stays open: the turn is parked | nothing: it ends |
//! | a session is started to go on with the call | decided before | the decision, when the turn has begun |
//! | the deadline passes | expired | a denial |
//! | the turn ends | removed by the backend | a denial, if it still listens |
//! | the CLI takes its request back | taken back | nothing |
//! | no turn runs, the backend refuses, the owner is fenced | never asked | a denial |
//!
//! Before the CLI gets the decision on a tool call, the hand-over is noted in the backend: afterwards no other owner goes on with the call.
//!
//! Changes of the backend are hints, so the question is read each second as well.

use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use greenroom::SessionBuilder;
use greenroom::callback::{CallbackContext, Inquiry, InquiryAnswer};
use serde_json::Value;
use tokio::sync::{broadcast, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::cell::{NameCell, ResumedCall};
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
/// The longest time between a question and the beginning of its turn.
const BEGINS: Duration = Duration::from_secs(2);
/// The pause before a question is deferred again that could not be deferred. It doubles, unless the fleet drains.
const DEFER_AGAIN: Duration = Duration::from_secs(2);
const DEFER_AGAIN_LATER: Duration = Duration::from_secs(60);
/// The time that a session takes at most to refuse a deferral.
const DEFERRAL: Duration = Duration::from_secs(6);
/// The pauses before the transcript with an open call goes to the backend. The CLI reports the call some 100 ms after it asks.
const FLUSHES: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(8)];

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

/// A request of the CLI that people are asked about.
struct Asked {
    id: QuestionId,
    at: Instant,
    inquiry: Inquiry,
    cx: CallbackContext,
    /// The tool call, if the question can be deferred.
    call: Option<String>,
    /// The session is asked to defer the question: it stays open without a CLI.
    is_deferring: AtomicBool,
}

impl Asker {
    async fn ask(self: Arc<Self>, inquiry: Inquiry, cx: CallbackContext) -> InquiryAnswer {
        let (reply, answer) = oneshot::channel();
        let shared = self.shared.clone();
        let call = self.call_of(&inquiry, &cx);
        let (id, is_deferring) = (QuestionId::new(), AtomicBool::new(false));
        let asked = Asked { id, at: Instant::now(), inquiry, cx: cx.clone(), call, is_deferring };
        // A task: when the session drops this future, the question still has to be taken back.
        shared.tasks.spawn(async move { self.put(asked, reply).await });
        tokio::select! {
            answer = answer => answer.unwrap_or_else(|_| InquiryAnswer::deny("the host failed to put the question")),
            () = cx.cancelled() => InquiryAnswer::Dismissed,
        }
    }

    /// The call of a question that can be deferred: a later CLI asks about it again.
    fn call_of(&self, inquiry: &Inquiry, cx: &CallbackContext) -> Option<String> {
        let is_of_call = matches!(inquiry, Inquiry::Permission { .. } | Inquiry::Questions { .. });
        let may_park = !self.shared.limits.question_parked.is_zero();
        cx.tool_use_id().filter(|_| is_of_call && may_park && cx.agent_id().is_none()).map(str::to_owned)
    }

    /// Puts a question to people, and replies with the decision. A dropped receiver takes the question back, unless it is deferred.
    async fn put(&self, asked: Asked, mut reply: oneshot::Sender<InquiryAnswer>) {
        let answer = tokio::select! {
            biased;
            () = reply.closed() => {
                if !asked.is_deferring.load(Ordering::Acquire) {
                    self.take_back(asked.id).await;
                }
                InquiryAnswer::Dismissed
            }
            answer = self.answer(&asked) => answer.unwrap_or_else(InquiryAnswer::deny),
        };
        self.shared.tell_transitions();
        task::answer(reply, answer);
    }

    /// Keeps a question in the backend, or takes the one for which the session was started, and waits for its decision.
    ///
    /// # Errors
    /// The reason for a denial, for the model.
    async fn answer(&self, asked: &Asked) -> Result<InquiryAnswer, String> {
        let mut changes = self.shared.backend.changes();
        let question = match self.resumed(asked) {
            Some(ResumedCall { question, begun }) => {
                // The turn has not begun before: an owner hands nothing over outside of a turn.
                begun.cancelled().await;
                question
            }
            None => self.keep(asked).await?,
        };
        self.shared.tell_transitions();
        let (id, limit) = (question.id, question.deadline.since(question.asked_at));
        let has_call = question.call.is_some();
        let decision = self.decision_or_deferral(asked, &mut changes, question).await.map_err(not_asked)?;
        let Some(decision) = decision else {
            return Err("the turn has ended in which this was asked".to_owned());
        };
        if has_call {
            self.hand_over(id).await?;
        }
        let stored = match decision {
            Decision::Answered { answer: Value::Null, .. } => return Err(unanswered(self.limit())),
            Decision::Expired { .. } => return Err(unanswered(limit)),
            Decision::Answered { answer, .. } => answer,
        };
        let QuestionAnswer { answer, .. } = serde_json::from_value(stored)
            .map_err(|_| "the person's answer cannot be read by this version of the host".to_owned())?;
        match misfit(&asked.inquiry, &answer) {
            None => Ok(answer),
            Some(why) => Err(format!("the person's answer cannot be used: {why}")),
        }
    }

    /// The question for which the session was started, if the CLI asks about its call.
    fn resumed(&self, asked: &Asked) -> Option<ResumedCall> {
        let resumed = self.cell.upgrade()?.holdings().resumes.clone()?;
        let is_its_call = resumed.question.call.is_some() && resumed.question.call == asked.call;
        is_its_call.then_some(resumed)
    }

    /// The time for an answer while the CLI waits.
    fn limit(&self) -> Duration {
        let (limit, quota) = (self.shared.limits.question, self.shared.quotas.of(self.owner.name.tenant()));
        quota.question.map_or(limit, |of_tenant| of_tenant.min(limit))
    }

    /// The time after which an open question is deferred.
    fn holds(&self) -> Duration {
        let profile = self.cell.upgrade().map(|cell| cell.profile()).unwrap_or_default();
        let of_profile = self.shared.question_holds.get(&profile).copied();
        of_profile.unwrap_or(self.shared.limits.question_holds).min(self.limit())
    }

    /// Keeps a question in the backend.
    ///
    /// # Errors
    /// The reason why nobody can be asked, for the model.
    async fn keep(&self, asked: &Asked) -> Result<QuestionRecord, String> {
        let no_turn = || "no person can be asked: the session has no running turn".to_owned();
        // A CLI that begins a turn by itself may ask before the turn is written down.
        let cell = self.cell.upgrade().ok_or_else(no_turn)?;
        let prompt = timeout(BEGINS, cell.runs()).await.map_err(|_| no_turn())?;
        drop(cell);
        let body = serde_json::to_value(&asked.inquiry).map_err(refused)?;
        let (limit, question) = (self.limit(), asked.id);
        let wait = if asked.call.is_some() { self.shared.limits.question_parked.max(limit) } else { limit };
        let put = repeat_owned(&self.shared, || {
            // Time that the backend was away counts.
            let wait = wait.saturating_sub(asked.at.elapsed());
            let (owner, body, call) = (self.owner.clone(), body.clone(), asked.call.clone());
            self.shared.backend.ask(Ask { owner, question, prompt, wait, call, body })
        });
        let Ok(put) = timeout(limit, put).await else {
            // The backend may carry the request out later.
            self.take_back(question).await;
            return Err(refused("the host's backend does not answer"));
        };
        put.map_err(not_asked)?.ok_or_else(no_turn)
    }

    /// Waits until the question is decided: by a person, by its deadline, or because its CLI has waited for as long as it may. A question that
    /// can be deferred is deferred before that, and the wait ends with the session. `None`: it has ended with its turn.
    async fn decision_or_deferral(
        &self,
        asked: &Asked,
        changes: &mut broadcast::Receiver<Change>,
        question: QuestionRecord,
    ) -> Result<Option<Decision>, NotDone> {
        let (id, has_call) = (question.id, question.call.is_some());
        let mut decision = pin!(self.decision(changes, question));
        if !has_call {
            // Also a question that cannot be deferred because the CLI has begun the turn by itself: its deadline is that of a parked one.
            let decided = timeout_at(asked.at + self.limit(), decision.as_mut()).await;
            return match decided {
                Ok(decided) => decided,
                Err(_) => self.expire(id).await,
            };
        }
        let mut flushes = pin!(self.flush());
        let over = asked.at + self.limit();
        let (mut next, mut pause) = (asked.at + self.holds(), DEFER_AGAIN);
        let mut is_tried = false;
        loop {
            let is_draining = self.shared.draining.is_cancelled();
            tokio::select! {
                biased;
                decision = &mut decision => return decision,
                () = &mut flushes => {}
                () = self.shared.draining.cancelled(), if !is_draining => pause = DEFER_AGAIN,
                () = sleep_until(next) => {}
            }
            // At least once, also if `question_holds` is no less than `question`. The session may take some seconds to refuse it.
            // Not beside the wait for the decision: a question that the session has deferred gets none here.
            if (!is_tried || Instant::now() + DEFERRAL < over) && self.defer(asked).await {
                return pending().await;
            }
            is_tried = true;
            if Instant::now() >= over {
                return self.expire(id).await;
            }
            next = over.min(Instant::now() + pause);
            pause = if is_draining { DEFER_AGAIN } else { (pause * 2).min(DEFER_AGAIN_LATER) };
        }
    }

    /// Gives the backend the transcript with the call while its question is open: another node may have to go on with the call. Never ends.
    async fn flush(&self) {
        for pause in FLUSHES {
            sleep(pause).await;
            let session = self.cell.upgrade().and_then(|cell| cell.holdings().session.clone());
            if let Some(session) = session {
                session.flush_store().await;
            }
        }
        pending().await
    }

    /// Has the session defer a question. `true`: its CLI ends, and the turn is parked.
    async fn defer(&self, asked: &Asked) -> bool {
        let session = self.cell.upgrade().and_then(|cell| cell.holdings().session.clone());
        let Some(session) = session else { return false };
        let tenant = self.owner.name.tenant();
        let bound = self.shared.quotas.of(tenant).parked;
        match self.shared.ask(|backend| backend.tenant(tenant.clone())).await {
            Ok(account) if account.parked < bound => {}
            Ok(_) => {
                tracing::debug!(question = %asked.id, bound, "the tenant has too many parked turns: a question holds its session");
                return false;
            }
            Err(error) => {
                tracing::debug!(question = %asked.id, %error, "a question is not deferred");
                return false;
            }
        }
        asked.is_deferring.store(true, Ordering::Release);
        let deferred = session.defer(&asked.cx).await;
        if let Err(error) = &deferred {
            asked.is_deferring.store(false, Ordering::Release);
            tracing::debug!(question = %asked.id, %error, "a question cannot be deferred now");
        }
        deferred.is_ok()
    }

    /// Notes that the CLI is about to get the decision on a call, so that no other owner goes on with the call.
    ///
    /// # Errors
    /// The reason why the CLI must not get it, for the model.
    async fn hand_over(&self, id: QuestionId) -> Result<(), String> {
        let handed =
            repeat_owned(&self.shared, || self.shared.backend.hand_over(self.owner.clone(), id)).await;
        if !handed.map_err(not_asked)? {
            return Err(refused("another process goes on with the call"));
        }
        if let Some(cell) = self.cell.upgrade() {
            cell.holdings().resumes.take_if(|resumed| resumed.question.id == id);
        }
        Ok(())
    }

    /// Waits until the question is decided, by a person or by its deadline. `None`: it has ended with its turn.
    async fn decision(
        &self,
        changes: &mut broadcast::Receiver<Change>,
        question: QuestionRecord,
    ) -> Result<Option<Decision>, NotDone> {
        let (backend, id) = (&self.shared.backend, question.id);
        if question.decision.is_some() {
            return Ok(question.decision);
        }
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

fn unanswered(limit: Duration) -> String {
    // Kept in milliseconds, less the time for the request to the backend.
    let rounded = Duration::from_secs_f64(limit.as_secs_f64().round());
    format!("no person has answered within {:?}", if rounded.is_zero() { limit } else { rounded })
}
