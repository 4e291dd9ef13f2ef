//! Tells the application the transitions that requests to the backend have made.

use std::sync::{Mutex, PoisonError};

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::TryRecvError;

use crate::backend::{Backend, Requests};
use crate::event::FleetEvent;
use crate::request::Transition;

/// The transitions that the backend has made and the application has not been told.
///
/// They are told by whoever tells an event next, before that event, so events come in the order in which they happened. The
/// keeper hears of each one, so none waits for long.
pub(crate) struct Transitions(Mutex<broadcast::Receiver<Transition>>);

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
                Ok(transition) => tell(event(transition)),
                Err(TryRecvError::Lagged(missed)) => tell(FleetEvent::TransitionsMissed { missed }),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }
}

fn event(transition: Transition) -> FleetEvent {
    match transition {
        Transition::Accepted { name, tenant, prompt } => FleetEvent::Accepted { name, tenant, prompt },
        Transition::Continues { name, tenant, prompt } => FleetEvent::Continues { name, tenant, prompt },
        Transition::Ended { name, tenant, prompt, outcome } => {
            FleetEvent::Ended { name, tenant, prompt, outcome }
        }
        Transition::Asked { name, tenant, prompt, question } => {
            FleetEvent::Asked { name, tenant, prompt, question }
        }
        Transition::Decided { name, tenant, prompt, question } => {
            FleetEvent::Decided { name, tenant, prompt, question }
        }
        Transition::Recovered { name, tenant } => FleetEvent::Recovered { name, tenant },
        Transition::Quarantined { name, tenant, why } => FleetEvent::Quarantined { name, tenant, why },
        Transition::Unquarantined { name, tenant } => FleetEvent::Unquarantined { name, tenant },
        Transition::Deleting { name, tenant } => FleetEvent::Deleting { name, tenant },
        Transition::Deleted { name, tenant } => FleetEvent::Deleted { name, tenant },
    }
}
