//! A session between two turns: what keeps it awake, and the turns that its CLI begins by itself.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::live::TRIES;
use super::machine::{NameActorState, NameStage};
use super::steps::begun::TurnEnd;
use super::steps::cli_turn::run_cli_turn;
use super::steps::trial::{admit_turn, note_held};
use crate::actor::cli_turns::CliTurnQueue;
use crate::admission::AdmissionMessage;
use crate::event::PassivatedBy;
use crate::id::PromptId;
use crate::record::PromptOrigin;

/// The time in which the CLI says that it is idle after the result of a turn. It counts as busy after that.
const SETTLES: Duration = Duration::from_secs(1);

impl NameActorState {
    /// Asks for the turn of a live session, unless its credential is held: then its prompt waits with the session. The session ends as it does
    /// without a prompt.
    pub(super) fn ask_idle(&mut self) {
        if self.try_watch.is_some() {
            return;
        }
        match admit_turn(&self.cx.shared, &self.cx.cell, &mut self.tries) {
            Ok(()) => {
                if !self.tries.is_empty() {
                    // Its tenant may have no turn left for it: others try.
                    self.try_watch = Some(self.beside(async {
                        sleep(TRIES).await;
                        |state: &mut Self| {
                            state.tries.clear();
                            state.try_watch = None;
                            state.decide();
                        }
                    }));
                }
                self.ask();
            }
            Err(held) => {
                let (shared, name) = (self.cx.shared.clone(), self.cx.cell.name.clone());
                let was_rejected = self.next.as_ref().is_some_and(|next| next.waited.returned.is_some());
                self.try_watch = Some(self.beside(async move {
                    note_held(&shared, &name, &held).await;
                    let turn = shared.health.turn(held, was_rejected).await;
                    move |state: &mut Self| {
                        state.tries.extend(turn);
                        state.try_watch = None;
                        state.look();
                    }
                }));
            }
        }
    }

    /// The CLI has begun a turn by itself: it is written down, and the session stays awake until its end.
    fn begin_cli_turn(&mut self, cli_turns: Arc<CliTurnQueue>) {
        let Some(live) = self.stage.take_live() else { return };
        self.tell_admission(AdmissionMessage::BegunByCli);
        let (prompt, interrupt) = (PromptId::new(), CancellationToken::new());
        self.enter(NameStage::Running { live, prompt, origin: PromptOrigin::Cli, interrupt });
        self.step(async move |shared, cell| {
            let kill = cell.kill();
            let end = match cli_turns.take().await {
                Some(turn) => run_cli_turn(&shared, &cell, &mut Vec::new(), prompt, turn, kill).await,
                None => Ok(TurnEnd::Ended),
            };
            move |state: &mut Self| state.turn_ended(end)
        });
    }

    /// Watches a session between turns: whether the CLI works in the background, how long it was idle, whether the CLI begins a turn by
    /// itself, and its end.
    ///
    /// ```text
    ///              not idle at once         idle                    for `idle_after`
    ///  settles ───────────────────► busy ─────────► idle ───────────────────────────► Idle
    ///     └──────── idle ─────────────│──────────────▲ its time was up in an earlier turn
    ///                                 └ `limits.background` passes ──► Background
    /// ```
    pub(super) fn watch_idle(&mut self) {
        let NameStage::Idle(live) = &self.stage else { return };
        if live.session.works_in_background() {
            return self.is_busy();
        }
        let session = live.session.clone();
        self.watch_between(async move {
            let is_idle = timeout(SETTLES, session.wait_idle()).await.is_ok();
            move |state: &mut Self| if is_idle { state.is_idle(true) } else { state.is_busy() }
        });
    }

    /// Background work keeps the slot until it is over or its time is up.
    fn is_busy(&mut self) {
        let limit = self.cx.shared.limits.background;
        let NameStage::Idle(live) = &mut self.stage else { return };
        let left = limit.saturating_sub(live.background.get_or_insert_with(Instant::now).elapsed());
        if left.is_zero() {
            return self.is_idle(false);
        }
        let session = live.session.clone();
        self.tell_admission(AdmissionMessage::Busy(true));
        self.watch_between(async move {
            let is_idle = timeout(left, session.wait_idle()).await.is_ok();
            move |state: &mut Self| match is_idle {
                true => state.is_idle(true),
                false => state.begin_passivating(PassivatedBy::Background, None),
            }
        });
    }

    /// The session does nothing, or counts as idle because its time for background work is up.
    fn is_idle(&mut self, does_nothing: bool) {
        let idle_after = self.cx.shared.limits.idle_after;
        let NameStage::Idle(live) = &mut self.stage else { return };
        if does_nothing {
            live.background = None;
        }
        let session = live.session.clone();
        // Also if a watch before this one has told that the session is busy.
        self.tell_admission(AdmissionMessage::Busy(false));
        self.watch_between(async move {
            let ends = async {
                session.wait_idle().await;
                if does_nothing {
                    pending().await
                }
            };
            let has_ended = timeout(idle_after, ends).await.is_ok();
            move |state: &mut Self| match has_ended {
                true => state.is_idle(true),
                false if state.asked.is_some() => state.watch_idle(),
                false => state.begin_passivating(PassivatedBy::Idle, None),
            }
        });
    }

    /// Waits beside a session between two turns, unless it ends or its CLI begins a turn by itself before.
    fn watch_between<T>(&mut self, wait: impl Future<Output = T> + Send + 'static)
    where
        T: FnOnce(&mut Self) + Send + 'static,
    {
        let NameStage::Idle(live) = &self.stage else { return };
        let (session, kill) = (live.session.clone(), self.cx.cell.kill());
        let cli_turns = self.cx.cell.holdings().cli_turns.clone();
        self.watch(async move {
            let begun = async {
                match &cli_turns {
                    Some(cli_turns) => cli_turns.begun().await,
                    None => pending().await,
                }
            };
            let between = tokio::select! {
                biased;
                () = session.wait() => Between::Over,
                // For instance because the backend has refused an entry of the transcript.
                () = kill.cancelled() => Between::Killed,
                () = begun => Between::Begun(cli_turns.clone()),
                transition = wait => Between::Waited(transition),
            };
            move |state: &mut Self| match between {
                Between::Over => state.begin_passivating(PassivatedBy::Failure, None),
                Between::Killed => state.decide(),
                Between::Begun(cli_turns) => {
                    cli_turns.into_iter().for_each(|cli_turns| state.begin_cli_turn(cli_turns));
                }
                Between::Waited(transition) => transition(state),
            }
        });
    }
}

/// The event that ends the wait beside a session between two turns.
enum Between<T> {
    Over,
    Killed,
    Begun(Option<Arc<CliTurnQueue>>),
    Waited(T),
}
