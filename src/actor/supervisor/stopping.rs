//! How a session stops: step by step, each with its limit.

use std::sync::atomic::Ordering;

use ractor::{ActorCell, ActorRef};

use super::{Handled, State, StopReply, SupervisorState};
use crate::actor::callbacks::CallbacksMessage;
use crate::actor::conversation::ConversationMessage;
use crate::actor::mcp_server::ServerMessage;
use crate::actor::message::{Internal, SessionMessage};
use crate::actor::port::PortMessage;
use crate::actor::router::RouterMessage;
use crate::error::{Error, ErrorKind};
use crate::report::Event;

/// The steps of stopping, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Drain,
    Cli,
    Store,
    Handlers,
    Router,
    Conversation,
    Gone,
}

impl Step {
    fn next(self) -> Self {
        match self {
            Step::Drain => Step::Cli,
            Step::Cli => Step::Store,
            Step::Store => Step::Handlers,
            Step::Handlers => Step::Router,
            Step::Router => Step::Conversation,
            Step::Conversation | Step::Gone => Step::Gone,
        }
    }
}

impl SupervisorState {
    pub(super) fn stopping(&self) -> bool {
        matches!(self.phase, State::Stopping { .. })
    }

    pub(super) async fn stop(&mut self, reply: StopReply) -> Handled {
        self.await_stop.push(reply);
        if self.stopping() { Ok(()) } else { self.begin_stop(Step::Drain, None).await }
    }

    pub(super) async fn fail(&mut self, error: Error) -> Handled {
        if self.stopping() {
            return Ok(());
        }
        self.begin_stop(Step::Cli, Some(error)).await
    }

    pub(super) async fn begin_stop(&mut self, first: Step, failed: Option<Error>) -> Handled {
        self.timers.clear();
        if let Some(error) = &failed {
            // The first failure is the reason; there is no second, for none is looked for any more.
            self.shared.failed.set(error.clone()).ok();
        }
        self.shared.in_order.store(true, Ordering::Release);
        self.shared.emit(Event::Stopping);
        // Whatever comes first: nothing new begins any more.
        self.tell_conversation(ConversationMessage::Drain);
        self.phase = State::Stopping { step: first, number: 0, failed, limit: None };
        self.enter_step().await
    }

    pub(super) async fn next_step(&mut self) -> Handled {
        if let State::Stopping { step, .. } = &mut self.phase {
            *step = step.next();
        }
        self.enter_step().await
    }

    /// Does what belongs to the step, and goes on at once if there is nothing to do.
    pub(super) async fn enter_step(&mut self) -> Handled {
        let timeouts = self.shared.options().timeouts.clone();
        let State::Stopping { step, number, .. } = &mut self.phase else { return Ok(()) };
        *number += 1;
        let (step, number) = (*step, *number);
        let limit = match step {
            Step::Drain => timeouts.drain,
            Step::Cli => {
                // The handlers of a turn that was not finished in time hold the CLI up.
                self.tell_router(RouterMessage::CancelAll);
                if let Some(port) = &self.port {
                    // One that has just ended is noticed below.
                    port.cast(PortMessage::Shutdown).ok();
                }
                timeouts.exit_after_eof + timeouts.exit_after_term + timeouts.reap + timeouts.child_stop * 2
            }
            Step::Store => {
                self.end_mirror();
                let store = &self.shared.options().store;
                store.stop + timeouts.child_stop
            }
            Step::Handlers => {
                for actor in self.servers.iter().filter_map(|server| server.actor.as_ref()) {
                    actor.cast(ServerMessage::Stop).ok();
                }
                if let Some(callbacks) = &self.callbacks {
                    callbacks.cast(CallbacksMessage::Stop).ok();
                }
                timeouts.cancel_grace + timeouts.child_stop
            }
            Step::Router => {
                if let Some(router) = &self.router {
                    router.stop(None);
                }
                timeouts.child_stop
            }
            Step::Conversation => {
                let failed = self.shared.failed.get().cloned();
                self.tell_conversation(ConversationMessage::Stop { failed });
                timeouts.child_stop
            }
            Step::Gone => return self.gone(),
        };
        let timer = self.later(limit, Internal::StopLimit(number));
        if let State::Stopping { limit, .. } = &mut self.phase {
            *limit = Some(timer);
        }
        Box::pin(self.check_step()).await
    }

    /// Lets the store take what is left, then removes what was loaded from it.
    fn end_mirror(&mut self) {
        let (mirror, home, myself) = (self.shared.mirror().cloned(), self.home.take(), self.myself.clone());
        if self.mirror.is_none() && home.is_none() {
            return;
        }
        let limit = self.shared.options().store.stop;
        self.ending_home = home.is_some();
        self.errand(async move {
            if let Some(mirror) = mirror {
                tokio::time::timeout(limit, mirror.flushed()).await.ok();
            }
            // Not only when this task ends: the next step is to find it gone.
            if let Some(home) = home {
                home.remove().await;
            }
            // A supervisor that has ended waits for nothing.
            myself.cast(SessionMessage::Internal(Internal::MirrorEnded)).ok();
        });
    }

    /// Nothing of the mirror goes on; what the store has not taken is told.
    pub(super) fn give_up_mirror(&mut self) {
        (self.mirror, self.ending_home) = (None, false);
        if let Some(mirror) = self.shared.mirror() {
            mirror.give_up(&self.shared, self.conversation.as_ref());
        }
    }

    /// Goes on to the next step when nothing of this one is left.
    pub(super) async fn check_step(&mut self) -> Handled {
        let State::Stopping { step, .. } = &self.phase else { return Ok(()) };
        let done = match step {
            // Ends with a message of the conversation, or when there is none to drain.
            Step::Drain => self.conversation.is_none(),
            Step::Cli => self.port.is_none(),
            // Ends with a message.
            Step::Store => self.mirror.is_none() && !self.ending_home,
            Step::Handlers => {
                self.callbacks.is_none()
                    && self.leaving.is_empty()
                    && self.servers.iter().all(|server| server.actor.is_none())
            }
            Step::Router => self.router.is_none(),
            Step::Conversation => self.conversation.is_none(),
            Step::Gone => false,
        };
        if done { Box::pin(self.next_step()).await } else { Ok(()) }
    }

    /// A step took too long: what is left of it is killed, and its end is noticed like any other.
    pub(super) async fn step_limit(&mut self, limit_of: u32) -> Handled {
        let State::Stopping { step, number, .. } = &self.phase else { return Ok(()) };
        if *number != limit_of {
            return Ok(());
        }
        let step = *step;
        if step == Step::Drain {
            return self.next_step().await;
        }
        if step == Step::Store {
            self.give_up_mirror();
            return self.next_step().await;
        }
        tracing::warn!(parent: &self.shared.span, ?step, "a step of stopping took too long; what is left is killed");
        let cells: Vec<ActorCell> = match step {
            Step::Cli => self.port.iter().map(ActorRef::get_cell).collect(),
            Step::Handlers => {
                let servers =
                    self.servers.iter().filter_map(|server| server.actor.as_ref()).map(ActorRef::get_cell);
                let leaving = self.leaving.iter().map(|leaving| leaving.actor.get_cell());
                servers.chain(leaving).chain(self.callbacks.iter().map(ActorRef::get_cell)).collect()
            }
            Step::Router => self.router.iter().map(ActorRef::get_cell).collect(),
            Step::Conversation => self.conversation.iter().map(ActorRef::get_cell).collect(),
            Step::Drain | Step::Store | Step::Gone => Vec::new(),
        };
        for cell in cells {
            cell.kill();
        }
        Ok(())
    }

    /// Nothing is left: says so, and ends.
    pub(super) fn gone(&mut self) -> Handled {
        let State::Stopping { failed, limit, .. } = &mut self.phase else { return Ok(()) };
        let failed = failed.take();
        *limit = None;
        self.shared.router.send_replace(None);
        let (event, outcome) = match &failed {
            Some(error) => (Event::Failed { cause: error.to_string() }, Err(error.clone())),
            None => (Event::Stopped, Ok(())),
        };
        self.shared.emit(event);
        for waiter in self.await_start.drain(..) {
            let stopped = || Error::new(ErrorKind::Stopped, "the session was stopped while it started");
            // Whoever asked may have stopped waiting.
            waiter.send(Err(failed.clone().unwrap_or_else(stopped))).ok();
        }
        for waiter in self.await_stop.drain(..) {
            waiter(outcome.clone());
        }
        self.shared.vitals.send_modify(|vitals| vitals.run_ended = true);
        // Not only when the state is dropped, which may be after whoever waits has gone on.
        self.shared.gone.cancel();
        match failed {
            Some(error) => Err(Box::new(error)),
            None => {
                self.myself.stop(None);
                Ok(())
            }
        }
    }
}
