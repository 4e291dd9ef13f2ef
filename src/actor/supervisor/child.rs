//! Children of the supervisor, and their ends.

use std::fmt;

use ractor::{ActorCell, ActorId, ActorProcessingErr, ActorRef, Message};

use crate::actor::base::restart_window::RestartWindow;
use crate::actor::base::task::Task;

/// An actor that the supervisor keeps running; `None` if it was not started yet, has ended, or waits for its backoff.
pub(super) struct ChildActor<M>(Option<ActorRef<M>>);

impl<M: Message> ChildActor<M> {
    pub(super) fn down() -> Self {
        Self(None)
    }

    pub(super) fn up(actor: ActorRef<M>) -> Self {
        Self(Some(actor))
    }

    pub(super) fn actor(&self) -> Option<&ActorRef<M>> {
        self.0.as_ref()
    }

    pub(super) fn is_up(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn cell(&self) -> Option<ActorCell> {
        self.actor().map(ActorRef::get_cell)
    }

    /// Tells the child, if it is up. A child that has just ended misses the message: its successor starts from the
    /// current state.
    pub(super) fn tell(&self, message: M) {
        if let Some(actor) = self.actor() {
            actor.cast(message).ok();
        }
    }

    /// Notes the end of the child if `id` is its actor.
    pub(super) fn ended(&mut self, id: ActorId) -> bool {
        self.0.take_if(|actor| actor.get_id() == id).is_some()
    }
}

/// The router or the callbacks: a child under `Restarts::control`.
pub(super) struct ControlChild<M> {
    pub(super) actor: ChildActor<M>,
    pub(super) window: RestartWindow,
    /// The backoff timer.
    pub(super) timer: Option<Task>,
}

impl<M: Message> ControlChild<M> {
    pub(super) fn new(window: RestartWindow) -> Self {
        Self { actor: ChildActor::down(), window, timer: None }
    }
}

/// The end of a child.
pub(super) enum ChildEnd {
    Stopped(Option<String>),
    Failed(ActorProcessingErr),
}

impl fmt::Display for ChildEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChildEnd::Stopped(Some(reason)) => f.write_str(reason),
            ChildEnd::Stopped(None) => f.write_str("it stopped"),
            ChildEnd::Failed(error) => error.fmt(f),
        }
    }
}
