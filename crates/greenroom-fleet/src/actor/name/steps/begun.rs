//! A turn that is written down as begun: read to its end, and given its outcome.

use std::pin::{Pin, pin};
use std::time::Duration;

use greenroom::message::ResultMessage;
use greenroom::{Message, Outcome, Session, Turn};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::trial::{Rejection, Trial, learn};
use crate::actor::cell::NameCell;
use crate::actor::context::FleetShared;
use crate::actor::retry::{NotDone, cannot_keep, repeat_owned, repeat_sized};
use crate::actor::scribe::signs::TurnSigns;
use crate::actor::scribe::write_down;
use crate::backend::{Reply, Requests};
use crate::event::FleetEvent;
use crate::health::{Membership, Try};
use crate::id::{AttemptId, PromptId};
use crate::lock::locked;
use crate::outcome::{TOOL_IS_GONE, metered, outcome_of, snake_case};
use crate::record::usage::Usage;
use crate::record::{Cause, InterruptedBy, PromptOutcome};
use crate::request::{Finish, Owned, Ownership, Park, Reject};

/// The time that a CLI has to end a turn that took too long.
const GRACE: Duration = Duration::from_secs(10);

/// The end of a turn in its session.
pub(super) struct Ended {
    pub(super) outcome: PromptOutcome,
    /// Its cost, and what it has used, if the CLI has told it.
    pub(super) cost: Option<u64>,
    pub(super) usage: Option<Usage>,
    /// The API has rejected it.
    pub(super) rejection: Option<Rejection>,
    /// Its session has ended while a person decides on a call. The outcome is that of a turn that cannot be parked.
    pub(super) is_deferred: bool,
}

impl Ended {
    /// The end of a turn that has used nothing.
    pub(super) fn unused(outcome: PromptOutcome) -> Self {
        Self { outcome, cost: Some(0), usage: Some(Usage::default()), rejection: None, is_deferred: false }
    }

    /// The end of a turn that was interrupted, and of which no more is known.
    fn interrupted(by: InterruptedBy) -> Self {
        let outcome = PromptOutcome::Interrupted { by, result: None };
        Self { outcome, cost: None, usage: None, rejection: None, is_deferred: false }
    }
}

/// The end of a turn's step, unless the backend refuses or the owner was fenced.
#[derive(Debug, PartialEq)]
pub(crate) enum TurnEnd {
    /// The prompt has its outcome, or was no longer there to begin.
    Ended,
    /// The session does not go on: it had ended, and the prompt waits for the next one, or the backend did not get all entries of its
    /// transcript.
    SessionOver,
    /// The turn was cut off, and goes on with its continuation when the name is given back.
    Cut,
    /// The turn is parked, and its session has ended.
    Parked,
    /// The credential of the session is held by this cause, so its prompts wait.
    Held(Cause),
}
/// A turn that is written down as begun.
pub(super) struct BegunTurn<'a> {
    pub(super) shared: &'a FleetShared,
    pub(super) cell: &'a NameCell,
    pub(super) owner: Ownership,
    pub(super) session: Session,
    pub(super) of: Membership,
    pub(super) prompt: PromptId,
    pub(super) attempt: AttemptId,
    /// It has perhaps begun although its credential is held.
    pub(super) may_try: bool,
    /// How often it may still go on with its continuation.
    pub(super) continuations: u32,
    /// Cancelled when the session is to end at once.
    pub(super) kill: CancellationToken,
}

/// The longest time for a turn, and the cause with which it ends then.
pub(super) struct Bound {
    pub(super) after: Duration,
    pub(super) cause: String,
}

impl BegunTurn<'_> {
    /// The bound by the tenant's quota.
    pub(super) fn bound(&self) -> Bound {
        let after = self.shared.quotas.of(self.owner.name.tenant()).turn;
        Bound { after, cause: format!("the turn took longer than {after:?}, the tenant's `Quota::turn`") }
    }

    /// Waits until the turn has run, and gives it its outcome. `is_interrupted`: its prompt is not sent again.
    pub(super) async fn to_its_end(
        &self,
        tries: &mut Vec<Try>,
        signs: &TurnSigns,
        is_interrupted: impl Fn() -> bool,
        running: impl Future<Output = Result<Ended, NotDone>>,
    ) -> Result<TurnEnd, NotDone> {
        let trial = Trial::new(&self.of, self.attempt, self.may_try);
        let before = self.cell.holdings().running;
        self.cell.begun(self.prompt);
        let end = async {
            let mut running = pin!(trial.answered(self.shared, signs, tries, running));
            let ended = self.ends(running.as_mut()).await?;
            Ok(match ended {
                Some(ended) => Err(ended),
                None => Ok(TurnEnd::Cut),
            })
        };
        let end = match end.await {
            Ok(Ok(cut)) => Ok(cut),
            Ok(Err(ended)) => self.finish(&trial, tries, signs, is_interrupted, ended).await,
            Err(not_done) => Err(not_done),
        };
        if end.is_ok() {
            trial.end(self.shared, false).await;
        }
        match before {
            Some(_) => self.cell.holdings().running = before,
            None => self.cell.ended(self.prompt),
        }
        end
    }

    /// Waits for the end of the turn. `None`: it was cut off, and goes on with its continuation.
    async fn ends(
        &self,
        mut running: Pin<&mut impl Future<Output = Result<Ended, NotDone>>>,
    ) -> Result<Option<Ended>, NotDone> {
        let Self { shared, cell, session, .. } = self;
        tokio::select! {
            biased;
            () = shared.lost.cancelled() => Err(NotDone::Fenced),
            () = self.kill.cancelled() => {
                let cut = cell.holdings().cut;
                if shared.is_fenced(cell) {
                    return Err(NotDone::Fenced);
                }
                if cut.is_some() && self.continuations > 0 {
                    return Ok(None);
                }
                // A CLI that is interrupted tells what the turn has cost.
                let told = match cut {
                    Some(grace) => interrupted(session, running.as_mut(), grace).await.transpose()?,
                    None => None,
                };
                // Before the outcome is written: afterwards nothing of the turn goes on.
                session.kill().await;
                let cause = "the fleet was drained, and the turn took longer than the drain".to_owned();
                let by = cut.map_or(InterruptedBy::User, |_| InterruptedBy::Session { cause });
                Ok(Some(match told {
                    Some(mut ended) => {
                        // Otherwise it has ended by itself.
                        if let PromptOutcome::Interrupted { by: told, .. } = &mut ended.outcome {
                            *told = by;
                        }
                        ended
                    }
                    None => Ended::interrupted(by),
                }))
            }
            ended = running.as_mut() => ended.map(Some),
        }
    }

    /// Parks the turn. `false`: its question has ended meanwhile.
    async fn park(&self, cost: Option<u64>, usage: Option<Usage>) -> Result<bool, NotDone> {
        let park =
            Park { owner: self.owner.clone(), prompt: self.prompt, attempt: self.attempt, cost, usage };
        let is_parked = repeat_owned(self.shared, || self.shared.backend.park(park.clone())).await?;
        self.shared.tell_transitions();
        if is_parked {
            *locked(&self.shared.used) +=
                Usage { turns: 1, unmetered: u64::from(usage.is_none()), ..usage.unwrap_or_default() };
        }
        Ok(is_parked)
    }

    /// Gives the turn its outcome, or has its prompt wait again.
    async fn finish(
        &self,
        trial: &Trial<'_>,
        tries: &mut Vec<Try>,
        signs: &TurnSigns,
        is_interrupted: impl Fn() -> bool,
        mut ended: Ended,
    ) -> Result<TurnEnd, NotDone> {
        let Self { shared, cell, of, .. } = self;
        if let Some(first) = signs.first_request()
            && std::mem::take(&mut cell.holdings().woken)
            && locked(&shared.wakes).count(first)
        {
            let (cache_read, cache_creation) = first;
            shared.tell_of(cell, |name| FleetEvent::CacheLost { name, cache_read, cache_creation });
        }
        if ended.is_deferred && self.park(ended.cost, ended.usage).await? {
            return Ok(TurnEnd::Parked);
        }
        if signs.has_answered() {
            shared.passed(tries, true);
            trial.end(shared, true).await;
        }
        let loss = cell.loss().await.filter(|loss| loss.counts_for(&ended.outcome));
        let quarantine = loss.map(|loss| loss.why);
        let is_lost = quarantine.is_some();
        if let PromptOutcome::Completed { transcript_lost, .. } = &mut ended.outcome {
            *transcript_lost = is_lost;
        }
        let Ended { outcome, cost, usage, rejection, .. } = ended;
        let is_tool_gone = matches!(&outcome, PromptOutcome::Failed { kind, .. } if kind == TOOL_IS_GONE);
        let cause = rejection.as_ref().map(|rejection| rejection.cause);
        let (owner, prompt, attempt) = (self.owner.clone(), self.prompt, self.attempt);
        let finished = Finish { owner, prompt, attempt, outcome, cost, usage, quarantine };
        let again = match rejection {
            Some(Rejection { cause, why, resets_at, is_repeatable }) => {
                let again = is_repeatable && !is_lost && signs.are_none() && !is_interrupted();
                let (credential, pause) = (of.credential.clone(), shared.limits.pauses());
                let reject = |finish| {
                    let (credential, why) = (credential.clone(), why.clone());
                    let reject = Reject { finish, credential, cause, why, resets_at, pause, again };
                    shared.backend.reject(reject)
                };
                finish(shared, finished, reject).await?;
                // Before the permit to try is given back: the next name sees the new pause.
                learn(shared, &of.credential).await;
                again
            }
            None => {
                finish(shared, finished, |finish| shared.backend.finish(finish)).await?;
                false
            }
        };
        *locked(&shared.used) += Usage {
            turns: u64::from(!again),
            unmetered: u64::from(!again && usage.is_none()),
            ..usage.unwrap_or_default()
        };
        Ok(match cause {
            _ if is_lost => TurnEnd::SessionOver,
            Some(cause) => TurnEnd::Held(cause),
            // This CLI ends all its turns like that. The next one drops the call.
            None if is_tool_gone => TurnEnd::SessionOver,
            None => TurnEnd::Ended,
        })
    }

    /// Reads a turn of the session to its end, and writes down what it says. `read`: what was read of it before.
    pub(super) async fn read_out(
        &self,
        (last_seq, read): (u64, Vec<Message>),
        turn: &mut Turn,
        signs: &TurnSigns,
        bound: Bound,
        rejection: impl Fn(&greenroom::Error, Option<&ResultMessage>) -> Option<Rejection>,
    ) -> Result<Ended, NotDone> {
        let (shared, session) = (self.shared, &self.session);
        let mut is_over = false;
        let outcome = {
            let written = write_down(shared, &self.owner, self.prompt, last_seq, read, turn, signs);
            let mut written = pin!(written);
            tokio::select! {
                biased;
                outcome = written.as_mut() => outcome?,
                () = sleep(bound.after) => {
                    is_over = true;
                    match interrupted(session, written.as_mut(), GRACE).await {
                        Some(outcome) => outcome?,
                        None => {
                            tracing::warn!(prompt = %self.prompt, cause = bound.cause, "a turn has not ended in its time: its CLI is killed");
                            session.kill().await;
                            written.await?
                        }
                    }
                }
            }
        };
        let rejection = match &outcome {
            Ok(Outcome::Failed { error, result, .. }) => {
                rejection(error, result.as_deref().map(|result| &**result))
            }
            _ => None,
        };
        let is_deferred = matches!(outcome, Ok(Outcome::Deferred { .. }));
        let (cost, usage) = metered(&outcome);
        let outcome = match outcome_of(&outcome) {
            PromptOutcome::Interrupted { result, .. } if is_over => {
                PromptOutcome::Interrupted { by: InterruptedBy::Session { cause: bound.cause }, result }
            }
            outcome => outcome,
        };
        Ok(Ended { outcome, cost, usage, rejection, is_deferred })
    }
}

/// Interrupts the turn of a session and gives it a while to end. `None`: it goes on.
async fn interrupted<T>(
    session: &Session,
    ends: Pin<&mut impl Future<Output = T>>,
    grace: Duration,
) -> Option<T> {
    let interrupt = async {
        if let Err(error) = session.interrupt().await {
            tracing::warn!(%error, "a turn could not be interrupted");
        }
        std::future::pending().await
    };
    tokio::select! {
        biased;
        ended = ends => Some(ended),
        () = sleep(grace) => None,
        () = interrupt => None,
    }
}

/// Gives the prompt its outcome, by a request.
async fn finish<'a>(
    shared: &'a FleetShared,
    mut finish: Finish,
    request: impl Fn(Finish) -> Reply<'a, Owned<bool>>,
) -> Result<(), NotDone> {
    let bytes = finish.outcome.json().map_or(0, |result| result.to_string().len());
    let mut finished = repeat_sized(shared, bytes, || request(finish.clone())).await;
    if let Err(NotDone::Error(error)) = &finished
        && cannot_keep(error)
    {
        // The CLI's result cannot be kept. The turn has ended all the same.
        let kind = snake_case(error.kind());
        finish.outcome = failed_as(kind, format!("the outcome of the turn cannot be kept: {error}"));
        finished = repeat_owned(shared, || request(finish.clone())).await;
    }
    finished.map(|_| shared.tell_transitions())
}

pub(super) fn failed_as(kind: String, message: String) -> PromptOutcome {
    PromptOutcome::Failed { kind, message, result: None }
}
