//! Stop a session step by step, each step with its limit.

use std::time::Duration;

use ractor::{ActorCell, ActorRef, RpcReplyPort};

use super::{Handled, SessionStage, SupervisorState, later};
use crate::actor::incarnation::run::ExitSignal;
use crate::actor::messages::children::{CallbacksMessage, ServerMessage};
use crate::actor::messages::conversation::ConversationMessage;
use crate::actor::messages::session::Internal;
use crate::error::{Error, Result};
use crate::report::Event;

/// The steps of stopping, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopStep {
    /// The running turn may end.
    Drain,
    /// The CLI ends.
    Cli,
    /// The session's store takes what is left.
    Store,
    /// The tool servers and the callbacks end their handlers.
    Handlers,
    Router,
    Conversation,
    Gone,
}

impl StopStep {
    fn next(self) -> Self {
        match self {
            StopStep::Drain => StopStep::Cli,
            StopStep::Cli => StopStep::Store,
            StopStep::Store => StopStep::Handlers,
            StopStep::Handlers => StopStep::Router,
            StopStep::Router => StopStep::Conversation,
            StopStep::Conversation | StopStep::Gone => StopStep::Gone,
        }
    }
}

impl SupervisorState {
    pub(super) fn stopping(&self) -> bool {
        matches!(self.stage, SessionStage::Stopping { .. })
    }

    pub(super) fn stops_at(&self, at: StopStep) -> bool {
        matches!(self.stage, SessionStage::Stopping { step, .. } if step == at)
    }

    pub(super) async fn stop(&mut self, reply: RpcReplyPort<Result<()>>) -> Handled {
        self.callers.stop.push(reply);
        if self.stopping() { Ok(()) } else { self.begin_stop(StopStep::Drain, None).await }
    }

    pub(super) async fn fail(&mut self, error: Error) -> Handled {
        if self.stopping() {
            return Ok(());
        }
        self.begin_stop(StopStep::Cli, Some(error)).await
    }

    pub(super) async fn begin_stop(&mut self, first: StopStep, failed: Option<Error>) -> Handled {
        (self.cli.timer, self.router.timer, self.callbacks.timer) = (None, None, None);
        // Before anyone hears of the stop: no prompt is accepted after the event.
        self.shared.ending.begin(failed.as_ref());
        self.shared.emit(Event::Stopping);
        self.conversation.tell(ConversationMessage::Drain);
        let killed = self.shared.ending.is_killed();
        // A stop that was asked for before the kill, and comes to this actor after it.
        let first = if killed && first == StopStep::Drain { StopStep::Cli } else { first };
        self.stage = SessionStage::Stopping { step: first, number: 0, limit: None, killed };
        self.enter_step().await
    }

    pub(super) async fn next_step(&mut self) -> Handled {
        if let SessionStage::Stopping { step, .. } = &mut self.stage {
            *step = step.next();
        }
        self.enter_step().await
    }

    /// Starts the work of the step, and goes on at once if there is none.
    async fn enter_step(&mut self) -> Handled {
        let timeouts = self.shared.options().timeouts.clone();
        let SessionStage::Stopping { step, number, killed, .. } = &mut self.stage else { return Ok(()) };
        *number += 1;
        let (step, number, killed) = (*step, *number, *killed);
        let limit = match step {
            StopStep::Drain => timeouts.drain,
            StopStep::Cli => {
                // Handlers of a turn that did not end in time would hold the CLI up.
                self.shared.ledger.open().iter().for_each(|pending| {
                    pending.cancel();
                });
                self.cli.command(ExitSignal::Asked);
                timeouts.exit_after_eof + timeouts.exit_after_term + timeouts.reap + timeouts.child_stop * 2
            }
            StopStep::Store => {
                self.end_mirror();
                self.shared.options().store.stop + timeouts.child_stop
            }
            StopStep::Handlers => {
                for server in &self.servers.children {
                    match server.actor.actor() {
                        Some(actor) => drop(actor.cast(ServerMessage::Stop)),
                        None => server.inside.queue.close(),
                    }
                }
                self.callbacks.actor.tell(CallbacksMessage::Stop);
                timeouts.cancel_grace + timeouts.child_stop
            }
            StopStep::Router => {
                self.router.actor.actor().into_iter().for_each(|router| router.stop(None));
                timeouts.child_stop
            }
            StopStep::Conversation => {
                let failed = self.shared.ending.failed().cloned();
                self.conversation.tell(ConversationMessage::Stop { failed });
                timeouts.child_stop
            }
            StopStep::Gone => return self.gone(),
        };
        self.limit_step(number, if killed { self.kill_limit(step) } else { limit });
        Box::pin(self.check_step()).await
    }

    /// Starts the limit of the step with this number, in place of an earlier one.
    pub(super) fn limit_step(&mut self, number: u32, within: Duration) {
        let timer = later(&self.shared, within, Internal::StopLimit(number));
        if let SessionStage::Stopping { limit, .. } = &mut self.stage {
            *limit = Some(timer);
        }
    }

    /// Lets the store take what is left, then removes the configuration folder that was loaded from the store.
    fn end_mirror(&mut self) {
        let home = self.home.take();
        if self.mirror.is_none() && home.is_none() {
            return;
        }
        self.mirror_ending = true;
        let shared = self.shared.clone();
        let limit = self.shared.options().store.stop;
        let abort_within = self.shared.options().timeouts.child_stop / 2;
        self.errand(async move {
            if let Some(mirror) = shared.mirror() {
                tokio::time::timeout(limit, mirror.flushed()).await.ok();
                if tokio::time::timeout(abort_within, mirror.appends_ended()).await.is_err() {
                    tracing::warn!(
                        "an append that blocks its thread is left behind by a session that was killed"
                    );
                }
            }
            // Removed before the next step begins, not only when this task is dropped.
            if let Some(home) = home {
                home.remove().await;
            }
            shared.tell(Internal::MirrorEnded);
        });
    }

    pub(super) async fn mirror_ended(&mut self) -> Handled {
        if !self.stops_at(StopStep::Store) {
            return Ok(());
        }
        (self.mirror, self.home, self.mirror_ending) = (None, None, false);
        if let Some(mirror) = self.shared.mirror() {
            // Tells what the store has not taken.
            mirror.give_up(&self.shared);
        }
        self.next_step().await
    }

    /// Goes on to the next step of stopping when nothing of this step is left.
    pub(super) async fn check_step(&mut self) -> Handled {
        let SessionStage::Stopping { step, .. } = &self.stage else { return Ok(()) };
        let done = match step {
            // Ends with `Drained`, unless there is no conversation.
            StopStep::Drain => !self.conversation.is_up(),
            StopStep::Cli => !self.cli.port.is_up(),
            // Ends with `MirrorEnded`, unless there is nothing to end.
            StopStep::Store => !self.mirror_ending,
            StopStep::Handlers => {
                !self.callbacks.actor.is_up()
                    && self.servers.leaving.is_empty()
                    && self.servers.actors().next().is_none()
            }
            StopStep::Router => !self.router.actor.is_up(),
            StopStep::Conversation => !self.conversation.is_up(),
            StopStep::Gone => false,
        };
        if done { Box::pin(self.next_step()).await } else { Ok(()) }
    }

    /// A step took too long: kills the actors that are left. Their ends lead to the next step.
    pub(super) async fn step_limit(&mut self, limit_of: u32) -> Handled {
        let step = match &self.stage {
            SessionStage::Stopping { step, number, .. } if *number == limit_of => *step,
            _ => return Ok(()),
        };
        let cells: Vec<ActorCell> = match step {
            StopStep::Drain => return self.next_step().await,
            StopStep::Store => return self.mirror_ended().await,
            StopStep::Cli => self.cli.port.cell().into_iter().collect(),
            StopStep::Handlers => {
                let servers = self.servers.actors().map(ActorRef::get_cell);
                let leaving = self.servers.leaving.iter().map(|leaving| leaving.actor.get_cell());
                servers.chain(leaving).chain(self.callbacks.actor.cell()).collect()
            }
            StopStep::Router => self.router.actor.cell().into_iter().collect(),
            StopStep::Conversation => self.conversation.cell().into_iter().collect(),
            StopStep::Gone => Vec::new(),
        };
        tracing::warn!(parent: &self.shared.span, ?step, "a step of stopping took too long; what is left is killed");
        cells.iter().for_each(ActorCell::kill);
        Ok(())
    }

    /// Nothing is left: tells the end, and ends the actor.
    fn gone(&mut self) -> Handled {
        let SessionStage::Stopping { limit, .. } = &mut self.stage else { return Ok(()) };
        *limit = None;
        let failed = self.shared.ending.failed().cloned();
        self.shared.router.send_replace(None);
        // Before the end is told: whoever waits for it may start a session with the conversation.
        self.shared.claims.release();
        self.shared.emit(match &failed {
            Some(error) => Event::Failed { cause: error.to_string() },
            None => Event::Stopped,
        });
        self.callers.ended(failed.as_ref());
        self.shared.facts.send_modify(|facts| facts.run_ended = true);
        // The drop of the state cancels this too, but maybe after a waiter has gone on.
        self.shared.ending.gone.cancel();
        match failed {
            Some(error) => Err(Box::new(error)),
            None => {
                self.myself.stop(None);
                Ok(())
            }
        }
    }
}
