//! Tells the application the transitions that requests to the backend have made.

use std::sync::{Mutex, PoisonError};

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::TryRecvError;

use crate::backend::{Backend, Requests};
use crate::event::FleetEvent;

/// The transitions that the backend has made and the application has not been told.
///
/// They are told by whoever tells an event next, before that event, so events come in the order in which they happened. The
/// keeper hears of each one, so none waits for long.
pub(crate) struct Transitions(Mutex<broadcast::Receiver<FleetEvent>>);

impl Transitions {
    /// Takes transitions from now on.
    pub(crate) fn of(backend: &dyn Backend) -> Self {
        Self(Mutex::new(backend.transitions()))
    }

    /// Tells the transitions that were made until now, in their order.
    pub(crate) fn tell(&self, tell: impl Fn(FleetEvent)) {
        // A panic in between leaves the rest in the channel.
        let mut transitions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match transitions.try_recv() {
                Ok(transition) => tell(transition),
                Err(TryRecvError::Lagged(missed)) => tell(FleetEvent::TransitionsMissed { missed }),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }
}
