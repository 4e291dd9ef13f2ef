//! The step of a turn: begins it and sends its prompt.

use greenroom::Prompt;
use greenroom::report::Phase;
use tokio_util::sync::CancellationToken;

use super::begun::{BegunTurn, Ended, TurnEnd, failed_as};
use super::cli_turn;
use super::trial::{Rejection, learn};
use crate::actor::cell::NameCell;
use crate::actor::context::FleetShared;
use crate::actor::retry::{NotDone, repeat_owned};
use crate::actor::scribe::signs::TurnSigns;
use crate::backend::Requests;
use crate::event::FleetEvent;
use crate::health::Try;
use crate::id::AttemptId;
use crate::outcome::failed;
use crate::record::{InterruptedBy, PromptOutcome, PromptRecord};
use crate::request::{Begin, UsedCredential};

/// Runs one turn: begins it, sends its prompt, writes its messages down, and gives it its outcome.
pub(in crate::actor::name) async fn run_turn(
    shared: &FleetShared,
    cell: &NameCell,
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
    let of = cell.membership().unwrap_or_else(|| shared.membership(&cell.name, &cell.profile()));
    if let Some(cause) = shared.health.rejects(tries, &of) {
        return Ok(TurnEnd::Held(cause));
    }
    let (attempt, quota) = (AttemptId::new(), shared.quotas.given(&of.tenant).clone());
    let may_try = shared.health.hold(&of.credential).is_some();
    let credential = Some(UsedCredential { credential: of.credential.clone(), may_try });
    let begin = Begin { owner: owner.clone(), prompt: prompt.id, attempt, quota, credential };
    let Some(content) = repeat_owned(shared, || shared.backend.begin(begin.clone())).await? else {
        // The queue is read again, and says what may begin. Perhaps another node has found a limit.
        learn(shared, &of.credential).await;
        let hold = shared.health.hold(&of.credential);
        // A session that waits to go on with a call has no use then.
        let resumes = cell.holdings().resumes.is_some();
        return Ok(match (hold, resumes) {
            (Some(hold), _) => TurnEnd::Held(hold.cause),
            (None, true) => TurnEnd::SessionOver,
            (None, false) => TurnEnd::Ended,
        });
    };
    // The lease may have passed while the backend was asked: then another node may own the name.
    if !shared.holds_lease() {
        return Err(NotDone::Fenced);
    }
    shared.tell_of(cell, |name| FleetEvent::Begun { name, prompt: prompt.id });
    let (kill, continuations) = (cell.kill(), prompt.continuations);
    let (prompt, last_seq) = (prompt.id, prompt.last_seq);
    let turn = BegunTurn { shared, cell, owner, session, of, prompt, attempt, may_try, continuations, kill };
    let signs = TurnSigns::of(interrupt);
    let running = run(&turn, last_seq, content, &signs);
    turn.to_its_end(tries, &signs, || interrupt.is_cancelled(), running).await
}

/// Sends the prompt and reads its turn to the end.
async fn run(
    turn: &BegunTurn<'_>,
    last_seq: u64,
    content: serde_json::Value,
    signs: &TurnSigns,
) -> Result<Ended, NotDone> {
    // `null`: the turn goes on with its call.
    let content: Option<Prompt> = match serde_json::from_value(content) {
        Ok(content) => content,
        Err(error) => {
            let message = format!("the prompt cannot be read by this version of greenroom: {error}");
            return Ok(Ended::unused(failed_as("malformed".to_owned(), message)));
        }
    };
    if signs.interrupt.is_cancelled() {
        if content.is_none() {
            // The CLI asks for the call by itself, and would go on with the turn.
            turn.session.kill().await;
        }
        let by = InterruptedBy::User;
        return Ok(Ended::unused(PromptOutcome::Interrupted { by, result: None }));
    }
    let rejection = Rejection::of(content.as_ref());
    let is_prompt = content.is_some();
    let sent = match content {
        Some(content) => turn.session.prompt(content).await.map(Some),
        None => turn.session.resumed_turn().await,
    };
    match sent {
        Ok(Some(mut sent)) => {
            // An interrupt that came before the prompt was sent has interrupted nothing.
            if signs.interrupt.is_cancelled()
                && let Err(error) = turn.session.interrupt().await
            {
                tracing::warn!(%error, "a turn could not be interrupted");
            }
            if is_prompt {
                cli_turn::before(turn, &mut sent).await?;
            }
            turn.read_out((last_seq, Vec::new()), &mut sent, signs, turn.bound(), rejection).await
        }
        Ok(None) => {
            let cause = "the session was not started to go on with the call of the turn".to_owned();
            let by = InterruptedBy::Session { cause };
            Ok(Ended::unused(PromptOutcome::Interrupted { by, result: None }))
        }
        // The CLI was sent nothing.
        Err(error) => Ok(Ended { rejection: rejection(&error, None), ..Ended::unused(failed(&error, None)) }),
    }
}
