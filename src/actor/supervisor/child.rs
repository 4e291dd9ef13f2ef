//! Children of the supervisor, and their ends.

use std::fmt;

use ractor::{ActorCell, ActorId, ActorProcessingErr, ActorRef, Message};

use crate::actor::base::restart_window::RestartWindow;
use crate::actor::base::task::Task;

/// An actor that the supervisor keeps running.
pub(super) enum ChildActor<M> {
    /// Not started yet, ended, or waiting for its backoff.
    Down,
    /// Starts as soon as the child that it needs is up.
    Waiting,
    Up(ActorRef<M>),
}

impl<M: Message> ChildActor<M> {
    pub(super) fn actor(&self) -> Option<&ActorRef<M>> {
        match self {
            ChildActor::Up(actor) => Some(actor),
            ChildActor::Down | ChildActor::Waiting => None,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.actor().is_some()
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, ChildActor::Waiting)
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
        let ended = self.cell().is_some_and(|cell| cell.get_id() == id);
        if ended {
            *self = ChildActor::Down;
        }
        ended
    }
}

/// The router or the callbacks: a child under `Restarts::control`.
pub(super) struct ControlChild<M> {
    pub(super) actor: ChildActor<M>,
    pub(super) window: RestartWindow,
    /// The backoff timer.
    pub(super) timer: Option<Task>,
}

impl<M> ControlChild<M> {
    pub(super) fn new(window: RestartWindow) -> Self {
        Self { actor: ChildActor::Down, window, timer: None }
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
