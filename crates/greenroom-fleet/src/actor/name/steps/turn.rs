//! The step of a turn: begins it, sends its prompt, writes its messages down, and gives it its outcome.

use std::sync::Arc;

use greenroom::Session;
use greenroom::message::UsageTracker;
use greenroom::report::Phase;
use tokio_util::sync::CancellationToken;

use crate::actor::cell::NameCell;
use crate::actor::context::{Activation, FleetShared};
use crate::actor::retry::{NotDone, cannot_keep, repeat_owned, repeat_sized};
use crate::actor::scribe;
use crate::backend::Requests;
use crate::event::FleetEvent;
use crate::id::AttemptId;
use crate::outcome::{cost_of, outcome_of, snake_case};
use crate::record::{InterruptedBy, PromptOutcome, PromptRecord};
use crate::request::{Begin, Begun, Finish};

/// The end of a turn's step.
#[derive(Debug, PartialEq)]
pub(crate) enum TurnEnd {
    /// The prompt has its outcome, or was no longer there to begin.
    Ended,
    /// The session had ended, or was ending: the prompt was not begun, and waits for the next one.
    NoSession,
    /// The owner was fenced: the session is to be killed, and nothing is written.
    Fenced,
    /// The prompt has its outcome, and the backend did not get all entries of the transcript.
    TranscriptLost,
    /// The turn was cut off, and goes on with its continuation when the name is given back.
    Cut,
    /// The backend refuses.
    Error(String),
}

/// Runs one turn: begins it, sends its prompt, writes its messages down, and gives it its outcome.
pub(in crate::actor::name) async fn run_turn(
    shared: &Arc<FleetShared>,
    cell: &NameCell,
    activation: &Activation,
    meter: &mut UsageTracker,
    prompt: &PromptRecord,
    cut: &CancellationToken,
    interrupt: &CancellationToken,
) -> TurnEnd {
    if !takes_prompts(&activation.session).await {
        return TurnEnd::NoSession;
    }
    let attempt = AttemptId::new();
    let begin = Begin {
        owner: activation.owner.clone(),
        prompt: prompt.id,
        attempt,
        reserve: shared.reserve(&activation.tenant, shared.backend.now()),
    };
    let content = match repeat_owned(shared, || shared.backend.begin(begin.clone())).await {
        Ok(Begun::Send(content)) => content,
        // The queue is read again, and says what may begin.
        Ok(_) => return TurnEnd::Ended,
        Err(not_done) => return not_done.into(),
    };
    // The lease may have passed while the backend was asked: then another node may own the name.
    if !shared.holds_lease() {
        return TurnEnd::Fenced;
    }
    let (kill, fenced) = (cell.kill(), cell.fenced());
    activation.running.set(Some(prompt.id));
    let (name, tenant) = (cell.name.clone(), activation.tenant.clone());
    shared.tell(FleetEvent::Begun { name, tenant, prompt: prompt.id });
    // Nobody knows what a turn has cost that was cut off: what was set aside for it counts as spent.
    let reserved = begin.reserve.map_or(0, |reserve| reserve.amount);
    let interrupted = |by| Ok((PromptOutcome::Interrupted { by, result: None }, reserved));
    let ending = tokio::select! {
        biased;
        () = shared.lost.cancelled() => Err(NotDone::Fenced),
        () = fenced.cancelled() => Err(NotDone::Fenced),
        // Before a kill: a drain cuts the turn off and then kills the session.
        () = cut.cancelled() => {
            // The session has no time for another turn, nor for the rest of this one.
            kill.cancel();
            if prompt.continuations > 0 {
                activation.running.set(None);
                return TurnEnd::Cut;
            }
            activation.session.kill().await;
            let cause = "the fleet was drained, and the turn took longer than the drain".to_owned();
            interrupted(InterruptedBy::Session { cause })
        }
        () = kill.cancelled() => {
            // Before the outcome is written: afterwards nothing of the turn goes on.
            activation.session.kill().await;
            interrupted(InterruptedBy::User)
        }
        ending = run(shared, activation, meter, prompt, content, interrupt) => ending,
    };
    let end = match ending {
        Ok((mut outcome, cost)) => {
            let quarantine = match cell.losses() {
                Some(losses) => losses.of_turn(&outcome).await,
                None => None,
            };
            let is_lost = quarantine.is_some();
            if let PromptOutcome::Completed { transcript_lost, .. } = &mut outcome {
                *transcript_lost = is_lost;
            }
            let owner = activation.owner.clone();
            match finish(shared, Finish { owner, prompt: prompt.id, attempt, outcome, cost, quarantine })
                .await
            {
                TurnEnd::Ended if is_lost => TurnEnd::TranscriptLost,
                end => end,
            }
        }
        Err(not_done) => not_done.into(),
    };
    activation.running.set(None);
    end
}

/// Whether the session takes prompts: it may have failed, perhaps by the turn before.
async fn takes_prompts(session: &Session) -> bool {
    let phase = session.snapshot().await.map(|snapshot| snapshot.phase);
    matches!(phase, Ok(phase) if !matches!(phase, Phase::Draining | Phase::Stopping))
}

/// Sends the prompt and reads its turn to the end.
async fn run(
    shared: &FleetShared,
    activation: &Activation,
    meter: &mut UsageTracker,
    prompt: &PromptRecord,
    content: serde_json::Value,
    interrupt: &CancellationToken,
) -> Result<(PromptOutcome, u64), NotDone> {
    let content: greenroom::Prompt = match serde_json::from_value(content) {
        Ok(content) => content,
        Err(error) => {
            let message = format!("the prompt cannot be read by this version of greenroom: {error}");
            return Ok((failed_as("malformed".to_owned(), message), 0));
        }
    };
    if interrupt.is_cancelled() {
        return Ok((PromptOutcome::Interrupted { by: InterruptedBy::User, result: None }, 0));
    }
    let outcome = match activation.session.prompt(content).await {
        Ok(mut turn) => {
            // An interrupt that came before the prompt was sent has interrupted nothing.
            if interrupt.is_cancelled()
                && let Err(error) = activation.session.interrupt().await
            {
                tracing::warn!(%error, "a turn could not be interrupted");
            }
            scribe::write_down(shared, activation, prompt.id, prompt.last_seq, &mut turn).await?
        }
        Err(error) => Err(error),
    };
    let cost = cost_of(meter, &outcome);
    Ok((outcome_of(&outcome), cost))
}

async fn finish(shared: &FleetShared, mut finish: Finish) -> TurnEnd {
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
    match finished {
        Ok(_) => {
            shared.tell_transitions();
            TurnEnd::Ended
        }
        Err(not_done) => not_done.into(),
    }
}

fn failed_as(kind: String, message: String) -> PromptOutcome {
    PromptOutcome::Failed { kind, message, result: None }
}

impl From<NotDone> for TurnEnd {
    fn from(not_done: NotDone) -> Self {
        match not_done {
            NotDone::Fenced => TurnEnd::Fenced,
            NotDone::Error(error) => TurnEnd::Error(error.to_string()),
        }
    }
}
