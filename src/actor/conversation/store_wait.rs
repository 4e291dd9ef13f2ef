//! Results that wait for the session's store.
//!
//! A result, or any other event that ends a turn, waits here until the store has taken what the CLI mirrored before it.
//! Events of the CLI behind it wait too, in order, up to `StoreOptions::held_bytes`; past that bound nothing waits any
//! longer. The conversation goes on meanwhile: it takes prompts, interrupts and questions, and the reader of the pipe
//! is not held up.

use std::collections::VecDeque;

use super::ConversationState;
use crate::actor::base::reply::telling;
use crate::actor::messages::conversation::{CliEvent, ConversationMessage};
use crate::wire::Message;

impl CliEvent {
    fn bytes(&self) -> usize {
        match self {
            CliEvent::Message { message, .. } => message.bytes(),
            CliEvent::Spent(said) => size_of::<CliEvent>() + size_of_val(&**said),
            _ => size_of::<CliEvent>(),
        }
    }
}

/// The events that wait for the store.
#[derive(Default)]
pub(super) struct StoreBarrier {
    /// `None` while nothing waits. The first event waits for the store, the others for the first.
    held: Option<VecDeque<CliEvent>>,
    bytes: usize,
    /// Number of waits so far; tells this wait from the next.
    number: u64,
    /// Set when a limit passes while events are held. Checked again afterwards.
    limit_tick: bool,
}

impl ConversationState {
    /// Whether an event waits for the store.
    pub(super) fn is_held(&self) -> bool {
        self.store_barrier.held.is_some()
    }

    /// Whether a message that waits ends the running turn.
    pub(super) fn holds_end(&self) -> bool {
        let Some(running) = &self.running else { return false };
        self.store_barrier.held.iter().flatten().any(|event| {
            matches!(event, CliEvent::Message { epoch, message } if !self.cli.has_ended(*epoch)
                && running.watch.ends_with(message, self.cli.tells_lifecycle()).is_some())
        })
    }

    /// Whether the end of the CLI waits. The running turn may go on with the next CLI.
    pub(super) fn holds_end_of_cli(&self) -> bool {
        self.store_barrier.held.iter().flatten().any(|event| matches!(event, CliEvent::Ended { .. }))
    }

    /// Handles an event, now or when the store has taken what came before it.
    pub(super) fn cli_event(&mut self, event: CliEvent) {
        if self.shared.ending.is_killed() {
            // A fenced session tells no result: the store lacks what was said last.
            if let CliEvent::Ended { epoch, .. } = event {
                self.drop_held();
                self.cli_ended(epoch, None);
            }
            return;
        }
        if let Some(held) = &mut self.store_barrier.held {
            self.store_barrier.bytes += event.bytes();
            held.push_back(event);
            if self.store_barrier.bytes > self.shared.options().store.held_bytes {
                tracing::warn!(parent: &self.shared.span, "past `store.held_bytes`, an outcome does not wait for the store");
                self.release_all();
            }
        } else if let Some(mirror) = self.shared.mirror().cloned()
            && self.gives_outcome(&event)
            && !mirror.is_settled()
        {
            self.store_barrier.number += 1;
            self.store_barrier.bytes = event.bytes();
            self.store_barrier.held = Some(VecDeque::from([event]));
            let number = self.store_barrier.number;
            mirror.flush(telling(&self.myself, move || ConversationMessage::Mirrored { number }));
        } else {
            self.take(event);
        }
    }

    /// Whether the event ends the running turn. Every result counts: it may end a turn of the CLI's own.
    fn gives_outcome(&self, event: &CliEvent) -> bool {
        match event {
            CliEvent::Message { epoch, .. } if self.cli.has_ended(*epoch) => false,
            CliEvent::Message { message, .. } if message.kind() == "result" => true,
            CliEvent::Message { message: Message::CommandLifecycle(lifecycle), .. } => {
                self.outcome_without_result(lifecycle).is_some()
            }
            CliEvent::Message { message, .. } => self.running.as_ref().is_some_and(|running| {
                running.watch.ends_with(message, self.cli.tells_lifecycle()).is_some()
            }),
            CliEvent::LineLost { .. } | CliEvent::Spent(_) | CliEvent::Ready { .. } => false,
            CliEvent::Ended { cause, .. } => {
                let waited_for = self.running.as_ref().is_some_and(|running| running.turn.is_some());
                waited_for && !(cause.is_some() && self.next_attempt().is_some())
            }
        }
    }

    /// The store has taken everything before the first event that waits.
    pub(super) fn mirrored(&mut self, number: u64) {
        if number != self.store_barrier.number || self.shared.ending.is_killed() {
            return;
        }
        let mut held = self.store_barrier.held.take().unwrap_or_default().into_iter();
        if let Some(result) = held.next() {
            self.take(result);
        }
        // Another result among the events waits again.
        held.for_each(|event| self.cli_event(event));
        self.held_no_more();
    }

    /// Drops all events that wait: the session was killed.
    fn drop_held(&mut self) {
        self.store_barrier =
            StoreBarrier { number: self.store_barrier.number + 1, ..StoreBarrier::default() };
    }

    /// Handles all events that wait, without the store.
    pub(super) fn release_all(&mut self) {
        if self.shared.ending.is_killed() {
            return self.drop_held();
        }
        self.store_barrier.number += 1;
        for event in self.store_barrier.held.take().into_iter().flatten() {
            self.take(event);
        }
        self.held_no_more();
    }

    fn held_no_more(&mut self) {
        if !self.is_held() && std::mem::take(&mut self.store_barrier.limit_tick) {
            self.limit_tick();
        }
    }

    /// Whether the limits wait until the held events are handled.
    pub(super) fn holds_limits(&mut self) -> bool {
        self.store_barrier.limit_tick |= self.is_held();
        self.is_held()
    }

    fn take(&mut self, event: CliEvent) {
        match event {
            CliEvent::Message { epoch, message } => {
                if !self.cli.has_ended(epoch) {
                    self.begin_resumed(epoch, &message);
                    self.message(message);
                }
            }
            CliEvent::LineLost { epoch, reason } => {
                if let Some(running) = self.running.as_mut().filter(|_| !self.cli.has_ended(epoch)) {
                    running.watch.line_lost(reason);
                    self.maybe_taken();
                }
            }
            CliEvent::Spent(said) => self.meter.said(said),
            CliEvent::Ready { epoch } => {
                self.cli.ready(epoch);
                self.run.restarted();
                self.limit_resumed();
                self.next();
                // The limit of an idle session begins with its first CLI.
                let idle = self.shared.facts.borrow().run_ended;
                self.limit_idle(idle);
            }
            CliEvent::Ended { epoch, cause } => self.cli_ended(epoch, cause),
        }
    }
}
