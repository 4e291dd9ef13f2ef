//! The step of a turn: begins it, sends its prompt, writes its messages down, and gives it its outcome.

use std::pin::{Pin, pin};
use std::time::Duration;

use greenroom::message::{AssistantMessage, UsageTracker};
use greenroom::report::Phase;
use greenroom::session::MessageOrGap;
use greenroom::{ErrorKind, Message, Session};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::actor::cell::NameCell;
use crate::actor::context::FleetShared;
use crate::actor::retry::{NotDone, cannot_keep, repeat_owned, repeat_sized};
use crate::actor::scribe;
use crate::backend::Requests;
use crate::event::FleetEvent;
use crate::health::Try;
use crate::id::AttemptId;
use crate::lock::locked;
use crate::outcome::{failed, metered, outcome_of, snake_case};
use crate::record::usage::Usage;
use crate::record::{Cause, InterruptedBy, PromptOutcome, PromptRecord};
use crate::request::{Begin, Finish, Ownership};

/// The time that a CLI has to end a turn that took too long.
const GRACE: Duration = Duration::from_secs(10);

/// The outcome of a turn, its cost, and what it has used, if the CLI has told it.
type Ended = Result<(PromptOutcome, Option<u64>, Option<Usage>), NotDone>;

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
}

/// Runs one turn: begins it, sends its prompt, writes its messages down, and gives it its outcome.
pub(in crate::actor::name) async fn run_turn(
    shared: &FleetShared,
    cell: &NameCell,
    meter: &mut UsageTracker,
    tries: &mut Vec<Try>,
    prompt: &PromptRecord,
    interrupt: &CancellationToken,
) -> Result<TurnEnd, NotDone> {
    let (owner, session) = {
        let holdings = cell.holdings();
        (holdings.owner.clone(), holdings.session.clone())
    };
    let (Some(owner), Some(session)) = (owner, session) else { return Ok(TurnEnd::SessionOver) };
    // It may have failed, perhaps by the turn before.
    let phase = session.snapshot().await.map(|snapshot| snapshot.phase);
    if matches!(phase, Err(_) | Ok(Phase::Draining | Phase::Stopping)) {
        return Ok(TurnEnd::SessionOver);
    }
    let (profile, tenant) = (cell.profile(), cell.name.tenant());
    if shared.health.rejects(tries, &profile, tenant) {
        // The next session has the login that the profile gives then.
        return Ok(TurnEnd::SessionOver);
    }
    let (attempt, quota) = (AttemptId::new(), shared.quotas.given(tenant).clone());
    let begin = Begin { owner: owner.clone(), prompt: prompt.id, attempt, quota };
    let Some(content) = repeat_owned(shared, || shared.backend.begin(begin.clone())).await? else {
        // The queue is read again, and says what may begin.
        return Ok(TurnEnd::Ended);
    };
    // The lease may have passed while the backend was asked: then another node may own the name.
    if !shared.holds_lease() {
        return Err(NotDone::Fenced);
    }
    cell.holdings().running = Some(prompt.id);
    shared.tell_of(cell, |name| FleetEvent::Begun { name, prompt: prompt.id });
    let kill = cell.kill();
    let turn = async {
        let (mut outcome, cost, usage) = {
            let mut running = pin!(answered(
                shared,
                &session,
                tries,
                run(shared, &owner, &session, meter, prompt, content, interrupt)
            ));
            tokio::select! {
                biased;
                () = shared.lost.cancelled() => return Err(NotDone::Fenced),
                () = kill.cancelled() => {
                    let cut = cell.holdings().cut;
                    if shared.is_fenced(cell) {
                        return Err(NotDone::Fenced);
                    }
                    if cut.is_some() && prompt.continuations > 0 {
                        return Ok(TurnEnd::Cut);
                    }
                    // A CLI that is interrupted tells what the turn has cost.
                    let told = match cut {
                        Some(grace) => interrupted(&session, running.as_mut(), grace).await.transpose()?,
                        None => None,
                    };
                    // Before the outcome is written: afterwards nothing of the turn goes on.
                    session.kill().await;
                    let cause = "the fleet was drained, and the turn took longer than the drain".to_owned();
                    let by = cut.map_or(InterruptedBy::User, |_| InterruptedBy::Session { cause });
                    match told {
                        Some((PromptOutcome::Interrupted { result, .. }, cost, usage)) => {
                            (PromptOutcome::Interrupted { by, result }, cost, usage)
                        }
                        // It has ended by itself.
                        Some(ended) => ended,
                        None => (PromptOutcome::Interrupted { by, result: None }, None, None),
                    }
                }
                ended = running.as_mut() => ended?,
            }
        };
        let rejected = rejection(&outcome);
        if outcome.is_completed() {
            shared.passed(tries, true);
        }
        let loss = cell.loss().await.filter(|loss| loss.counts_for(&outcome));
        let quarantine = loss.map(|loss| loss.why);
        let is_lost = quarantine.is_some();
        if let PromptOutcome::Completed { transcript_lost, .. } = &mut outcome {
            *transcript_lost = is_lost;
        }
        let owner = owner.clone();
        finish(shared, Finish { owner, prompt: prompt.id, attempt, outcome, cost, usage, quarantine })
            .await?;
        *locked(&shared.used) +=
            Usage { turns: 1, unmetered: u64::from(usage.is_none()), ..usage.unwrap_or_default() };
        if let Some(why) = &rejected {
            // The session keeps its login: the next one gets another, once there is one.
            shared.failed_by(Cause::KeyRejected, why.clone(), cell, tries);
        }
        Ok(if is_lost || rejected.is_some() { TurnEnd::SessionOver } else { TurnEnd::Ended })
    };
    let end = turn.await;
    cell.holdings().running = None;
    end
}

/// Waits for the end of a turn. A turn that tries whether a login is taken has passed with the first answer of the model.
async fn answered<T>(
    shared: &FleetShared,
    session: &Session,
    tries: &mut Vec<Try>,
    turn: impl Future<Output = T>,
) -> T {
    let mut turn = pin!(turn);
    if tries.is_empty() {
        return turn.await;
    }
    let mut messages = session.messages();
    loop {
        tokio::select! {
            biased;
            ended = &mut turn => return ended,
            message = messages.next() => match message {
                Some(MessageOrGap::Message(Message::Assistant(said))) if is_of_model(&said) => break,
                Some(_) => {}
                None => return turn.await,
            },
        }
    }
    shared.passed(tries, true);
    turn.await
}

/// True for an answer of the model, and false for a message in which the CLI tells an error of the API.
fn is_of_model(said: &AssistantMessage) -> bool {
    said.error.is_none() && said.message.model.as_deref() != Some("<synthetic>")
}

/// The error of a turn whose login was rejected.
fn rejection(outcome: &PromptOutcome) -> Option<String> {
    match outcome {
        PromptOutcome::Failed { kind, message, .. } if *kind == snake_case(ErrorKind::Unauthenticated) => {
            Some(message.clone())
        }
        _ => None,
    }
}

/// Sends the prompt and reads its turn to the end.
async fn run(
    shared: &FleetShared,
    owner: &Ownership,
    session: &Session,
    meter: &mut UsageTracker,
    prompt: &PromptRecord,
    content: serde_json::Value,
    interrupt: &CancellationToken,
) -> Ended {
    let content: greenroom::Prompt = match serde_json::from_value(content) {
        Ok(content) => content,
        Err(error) => {
            let message = format!("the prompt cannot be read by this version of greenroom: {error}");
            return Ok((failed_as("malformed".to_owned(), message), Some(0), Some(Usage::default())));
        }
    };
    if interrupt.is_cancelled() {
        return Ok((
            PromptOutcome::Interrupted { by: InterruptedBy::User, result: None },
            Some(0),
            Some(Usage::default()),
        ));
    }
    let limit = shared.quotas.of(prompt.name.tenant()).turn;
    let mut is_over = false;
    let outcome = match session.prompt(content).await {
        Ok(mut turn) => {
            // An interrupt that came before the prompt was sent has interrupted nothing.
            if interrupt.is_cancelled()
                && let Err(error) = session.interrupt().await
            {
                tracing::warn!(%error, "a turn could not be interrupted");
            }
            let mut written = pin!(scribe::write_down(shared, owner, prompt.id, prompt.last_seq, &mut turn));
            tokio::select! {
                biased;
                outcome = written.as_mut() => outcome?,
                () = sleep(limit) => {
                    is_over = true;
                    match interrupted(session, written.as_mut(), GRACE).await {
                        Some(outcome) => outcome?,
                        None => {
                            tracing::warn!(prompt = %prompt.id, ?limit, "a turn has not ended in its time: its CLI is killed");
                            session.kill().await;
                            written.await?
                        }
                    }
                }
            }
        }
        // The CLI was sent nothing.
        Err(error) => return Ok((failed(&error, None), Some(0), Some(Usage::default()))),
    };
    let (cost, usage) = metered(meter, &outcome);
    let outcome = match outcome_of(&outcome) {
        PromptOutcome::Interrupted { result, .. } if is_over => {
            let cause = format!("the turn took longer than {limit:?}, the tenant's `Quota::turn`");
            PromptOutcome::Interrupted { by: InterruptedBy::Session { cause }, result }
        }
        outcome => outcome,
    };
    Ok((outcome, cost, usage))
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

/// Gives the prompt its outcome.
async fn finish(shared: &FleetShared, mut finish: Finish) -> Result<(), NotDone> {
    let bytes = finish.outcome.json().map_or(0, |result| result.to_string().len());
    let mut finished = repeat_sized(shared, bytes, || shared.backend.finish(finish.clone())).await;
    if let Err(NotDone::Error(error)) = &finished
        && cannot_keep(error)
    {
        // The CLI's result cannot be kept. The turn has ended all the same.
        let kind = snake_case(error.kind());
        finish.outcome = failed_as(kind, format!("the outcome of the turn cannot be kept: {error}"));
        finished = repeat_owned(shared, || shared.backend.finish(finish.clone())).await;
    }
    finished.map(|_| shared.tell_transitions())
}

fn failed_as(kind: String, message: String) -> PromptOutcome {
    PromptOutcome::Failed { kind, message, result: None }
}
