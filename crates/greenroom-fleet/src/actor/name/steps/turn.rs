//! The step of a turn: begins it, sends its prompt, writes its messages down, and gives it its outcome.

use greenroom::Session;
use greenroom::message::UsageTracker;
use greenroom::report::Phase;
use tokio_util::sync::CancellationToken;

use crate::actor::cell::NameCell;
use crate::actor::context::FleetShared;
use crate::actor::retry::{NotDone, cannot_keep, repeat_owned, repeat_sized};
use crate::actor::scribe;
use crate::backend::Requests;
use crate::event::FleetEvent;
use crate::id::AttemptId;
use crate::lock::locked;
use crate::outcome::{outcome_of, snake_case, usage_of};
use crate::record::{InterruptedBy, PromptOutcome, PromptRecord};
use crate::request::{Begin, Finish, Ownership};
use crate::usage::Usage;

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
    let (attempt, reserve) = (AttemptId::new(), shared.reserve(cell.name.tenant(), shared.backend.now()));
    let begin = Begin { owner: owner.clone(), prompt: prompt.id, attempt, reserve };
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
    // Nobody knows what a turn has cost that was cut off: what was set aside for it counts as spent.
    let reserved = begin.reserve.map_or(0, |reserve| reserve.amount);
    let turn = async {
        let (mut outcome, cost, usage) = tokio::select! {
            biased;
            () = shared.lost.cancelled() => return Err(NotDone::Fenced),
            () = kill.cancelled() => {
                let is_cut = cell.holdings().is_cut;
                if shared.is_fenced(cell) {
                    return Err(NotDone::Fenced);
                }
                if is_cut && prompt.continuations > 0 {
                    return Ok(TurnEnd::Cut);
                }
                // Before the outcome is written: afterwards nothing of the turn goes on.
                session.kill().await;
                let cause = "the fleet was drained, and the turn took longer than the drain".to_owned();
                let by = if is_cut { InterruptedBy::Session { cause } } else { InterruptedBy::User };
                (PromptOutcome::Interrupted { by, result: None }, reserved, None)
            }
            ended = run(shared, &owner, &session, meter, prompt, content, interrupt) => ended?,
        };
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
        Ok(if is_lost { TurnEnd::SessionOver } else { TurnEnd::Ended })
    };
    let end = turn.await;
    cell.holdings().running = None;
    end
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
) -> Result<(PromptOutcome, u64, Option<Usage>), NotDone> {
    let content: greenroom::Prompt = match serde_json::from_value(content) {
        Ok(content) => content,
        Err(error) => {
            let message = format!("the prompt cannot be read by this version of greenroom: {error}");
            return Ok((failed_as("malformed".to_owned(), message), 0, Some(Usage::default())));
        }
    };
    if interrupt.is_cancelled() {
        let outcome = PromptOutcome::Interrupted { by: InterruptedBy::User, result: None };
        return Ok((outcome, 0, Some(Usage::default())));
    }
    let outcome = match session.prompt(content).await {
        Ok(mut turn) => {
            // An interrupt that came before the prompt was sent has interrupted nothing.
            if interrupt.is_cancelled()
                && let Err(error) = session.interrupt().await
            {
                tracing::warn!(%error, "a turn could not be interrupted");
            }
            scribe::write_down(shared, owner, prompt.id, prompt.last_seq, &mut turn).await?
        }
        Err(error) => Err(error),
    };
    let usage = usage_of(meter, &outcome);
    Ok((outcome_of(&outcome), usage.map_or(0, |used| used.cost), usage))
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
