//! A result, or whatever else ends a turn, that waits until the session's store has what was written before it; and what
//! came after it.
//!
//! The conversation itself goes on: prompts, interrupts and questions are answered meanwhile, and the reader of the pipe is
//! not held up. What comes from the CLI waits in order, up to `StoreOptions::held_bytes`; beyond it nothing waits any
//! longer.

use std::collections::VecDeque;

use super::{ConversationMessage, ConversationState};
use crate::actor::lane::Lane;
use crate::report::ExitCause;
use crate::wire::{Message, SessionState};

/// What comes from the CLI, and of it, in order.
pub(super) enum News {
    Message { epoch: u64, message: Message },
    LineLost { epoch: u64, reason: String },
    Ready(Lane),
    Ended { epoch: u64, cause: Option<ExitCause> },
}

impl News {
    fn bytes(&self) -> usize {
        match self {
            News::Message { message, .. } => message.bytes(),
            News::LineLost { .. } | News::Ready(_) | News::Ended { .. } => size_of::<News>(),
        }
    }
}

/// What waits.
#[derive(Default)]
pub(super) struct Holding {
    held: Option<VecDeque<News>>,
    bytes: usize,
    /// Tells one wait from the next.
    number: u64,
    /// Whether a limit of the turn has passed meanwhile: the turn has its result already.
    limit_tick: bool,
}

impl ConversationState {
    /// Whether something waits, and so does what comes behind it.
    pub(super) fn is_holding(&self) -> bool {
        self.holding.held.is_some()
    }

    pub(super) fn news(&mut self, news: News) {
        if let Some(held) = &mut self.holding.held {
            self.holding.bytes += news.bytes();
            held.push_back(news);
            if self.holding.bytes > self.shared.options().store.held_bytes {
                tracing::warn!(parent: &self.shared.span, "an outcome is given before the store has what it is about");
                self.release_all();
            }
        } else if let Some(mirror) = self.shared.mirror().cloned()
            && self.gives_outcome(&news)
            && !mirror.is_settled()
        {
            self.holding.number += 1;
            self.holding.bytes = news.bytes();
            self.holding.held = Some(VecDeque::from([news]));
            let (myself, number) = (self.myself.clone(), self.holding.number);
            // A conversation that has ended waits for nothing.
            mirror.flush(move || drop(myself.cast(ConversationMessage::Mirrored { number })));
        } else {
            self.take(news);
        }
    }

    /// Whether the running turn has its outcome with this. A result waits in any case: it may be of a turn of the CLI's own.
    fn gives_outcome(&self, news: &News) -> bool {
        match news {
            News::Message { epoch, .. } if *epoch <= self.ended_epoch => false,
            News::Message { message, .. } if message.kind() == "result" => true,
            News::Message { message: Message::CommandLifecycle(lifecycle), .. } => {
                self.is_appended(lifecycle) || self.was_known_already(lifecycle).is_some()
            }
            News::Message { message: Message::System(system), .. } => {
                let lost =
                    self.running.as_ref().is_some_and(|running| running.begun && running.lost.is_some());
                lost && system.session_state() == Some(SessionState::Idle)
            }
            News::Message { .. } | News::LineLost { .. } | News::Ready(_) => false,
            News::Ended { cause, .. } => {
                let waited_for = self.running.as_ref().is_some_and(|running| running.turn.is_some());
                waited_for && !(cause.is_some() && self.goes_on_elsewhere())
            }
        }
    }

    /// The store has what was written before the result that waits.
    pub(super) fn mirrored(&mut self, number: u64) {
        if number != self.holding.number {
            return;
        }
        let mut held = self.holding.held.take().unwrap_or_default().into_iter();
        if let Some(result) = held.next() {
            self.take(result);
        }
        // Among them there may be another result.
        held.for_each(|news| self.news(news));
        self.held_no_more();
    }

    /// Waits no longer.
    pub(super) fn release_all(&mut self) {
        self.holding.number += 1;
        for news in self.holding.held.take().into_iter().flatten() {
            self.take(news);
        }
        self.held_no_more();
    }

    fn held_no_more(&mut self) {
        if self.holding.held.is_none() && std::mem::take(&mut self.holding.limit_tick) {
            self.limit_tick();
        }
    }

    /// Whether a limit of the turn is not to be looked at now.
    pub(super) fn holds_limits(&mut self) -> bool {
        self.holding.limit_tick |= self.holding.held.is_some();
        self.holding.held.is_some()
    }

    fn take(&mut self, news: News) {
        match news {
            News::Message { epoch, message } => {
                if epoch > self.ended_epoch {
                    self.message(message);
                }
            }
            News::LineLost { epoch, reason } => {
                if let Some(running) = self.running.as_mut().filter(|_| epoch > self.ended_epoch) {
                    running.lost = Some(reason);
                }
            }
            News::Ready(lane) => {
                self.lane = Some(lane);
                self.tells_lifecycle = false;
                self.run.restarted();
                self.next();
            }
            News::Ended { epoch, cause } => self.cli_ended(epoch, cause),
        }
    }
}
