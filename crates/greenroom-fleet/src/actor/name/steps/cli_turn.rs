//! The step of a turn that the CLI has begun by itself: writes it down as a turn of its own.
//!
//! ```text
//!              messages of the system         a message of the model, or a result
//!  CLI begins ───────────────────────► reads ─────────────────────────────────────► begun ── as any turn ──► ended
//!                                        │ a result of no turns and no text
//!                                        └► forgotten: the CLI tells the model with its next turn
//! ```
//!
//! A prompt that was sent as the turn began waits in the session for its end, or joins it. So the step of the prompt writes the turn down first.

use greenroom::{Message, Turn};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::begun::{BegunTurn, Bound, TurnEnd};
use super::trial::Rejection;
use crate::actor::cell::NameCell;
use crate::actor::context::FleetShared;
use crate::actor::retry::{NotDone, repeat_owned};
use crate::actor::scribe::signs::TurnSigns;
use crate::backend::Requests;
use crate::health::Try;
use crate::id::{AttemptId, PromptId};
use crate::request::Begin;

/// Writes a turn down, from what was told of it to its outcome. `prompt`: the id that it gets.
pub(in crate::actor::name) async fn run_cli_turn(
    shared: &FleetShared,
    cell: &NameCell,
    tries: &mut Vec<Try>,
    prompt: PromptId,
    mut turn: Turn,
    kill: CancellationToken,
) -> Result<TurnEnd, NotDone> {
    let (owner, session) = {
        let holdings = cell.holdings();
        (holdings.owner.clone(), holdings.session.clone())
    };
    let (Some(owner), Some(session)) = (owner, session) else { return Ok(TurnEnd::SessionOver) };
    let quota = shared.quotas.given(cell.name.tenant()).clone();
    let attempt = AttemptId::new();
    let Some(of) = cell.membership() else { return Ok(TurnEnd::SessionOver) };
    // The CLI asks the model in any case, so the turn expects no row of its credential.
    let begin = Begin { owner: owner.clone(), prompt, attempt, quota, credential: None };
    let begun = BegunTurn {
        shared,
        cell,
        owner,
        session,
        of,
        prompt,
        attempt,
        may_try: false,
        continuations: 0,
        kill,
    };
    let read = tokio::select! {
        biased;
        () = shared.lost.cancelled() => return Err(NotDone::Fenced),
        read = shows_work(&mut turn) => read,
        // It is written down without what it has told.
        () = begun.kill.cancelled() => Some(Vec::new()),
        () = sleep(begun.bound().after) => Some(Vec::new()),
    };
    let Some(read) = read else { return Ok(TurnEnd::Ended) };
    let is_funded = repeat_owned(shared, || shared.backend.begin_cli_turn(begin.clone())).await?;
    if !shared.holds_lease() {
        return Err(NotDone::Fenced);
    }
    shared.tell_transitions();
    let bound = match is_funded {
        true => begun.bound(),
        false => Bound {
            after: std::time::Duration::ZERO,
            cause: "the tenant's budget is spent, and the CLI has begun the turn by itself".to_owned(),
        },
    };
    let signs = TurnSigns::default();
    read.iter().for_each(|message| signs.note(message));
    let rejection = Rejection::of(None);
    let running = begun.read_out((0, read), &mut turn, &signs, bound, rejection);
    // There is no prompt that could be sent again.
    begun.to_its_end(tries, &signs, || true, running).await
}

/// Reads until the turn works at something. `None`: it ends and has asked the model nothing.
async fn shows_work(turn: &mut Turn) -> Option<Vec<Message>> {
    let mut read = Vec::new();
    while let Some(message) = turn.next().await {
        let is_told = matches!(message.kind(), "system" | "command_lifecycle");
        if matches!(&message, Message::Result(result)
            if result.is_success() && result.num_turns == 0 && result.result.as_deref() == Some(""))
        {
            return None;
        }
        read.push(message);
        if !is_told {
            break;
        }
    }
    Some(read)
}

/// Waits until the CLI has begun with a prompt that was sent, and writes down the turns that the CLI has begun by itself before.
pub(super) async fn before(prompt: &BegunTurn<'_>, sent: &mut Turn) -> Result<(), NotDone> {
    let cli_turns = prompt.cell.holdings().cli_turns.clone();
    let Some(cli_turns) = cli_turns else { return Ok(()) };
    loop {
        tokio::select! {
            biased;
            () = sent.begun() => return Ok(()),
            () = cli_turns.begun() => {}
            () = sleep(prompt.bound().after) => return Ok(()),
        }
        if let Some(turn) = cli_turns.take().await {
            let (shared, cell, kill) = (prompt.shared, prompt.cell, prompt.kill.clone());
            run_cli_turn(shared, cell, &mut Vec::new(), PromptId::new(), turn, kill).await?;
        }
    }
}

/// Writes down the turns that nobody has taken by the end of the session.
pub(super) async fn left(shared: &FleetShared, cell: &NameCell) {
    let cli_turns = cell.holdings().cli_turns.clone();
    let Some(cli_turns) = cli_turns else { return };
    while !shared.is_fenced(cell)
        && let Some(turn) = cli_turns.take().await
    {
        // The session has ended: nothing is left to be cut off.
        let kill = CancellationToken::new();
        let ended = run_cli_turn(shared, cell, &mut Vec::new(), PromptId::new(), turn, kill).await;
        if let Err(not_done) = ended {
            return tracing::warn!(?not_done, "a turn that the CLI had begun by itself could not be kept");
        }
    }
}
