//! The channels on which a backend tells what it has made durable, and what nodes tell each other.

use tokio::sync::broadcast;

use crate::event::FleetEvent;
use crate::registry::Told;
use crate::request::{Change, NodeMessage};

/// The number of changes or transitions that a slow reader of a [`Channels`] may be behind.
const TOLD: usize = 4096;
/// The number of messages between nodes that a slow reader may be behind.
const NODE_MESSAGES: usize = 256;

/// The channels on which a backend tells what it has made durable. Clones are the same channels.
#[derive(Clone, Debug)]
pub struct Channels {
    pub(super) changes: broadcast::Sender<Change>,
    pub(super) transitions: broadcast::Sender<FleetEvent>,
    pub(super) node_messages: broadcast::Sender<NodeMessage>,
}

impl Channels {
    /// New channels.
    #[allow(clippy::new_without_default, reason = "two new ones would not be equal")]
    pub fn new() -> Self {
        Self {
            changes: broadcast::Sender::new(TOLD),
            transitions: broadcast::Sender::new(TOLD),
            node_messages: broadcast::Sender::new(NODE_MESSAGES),
        }
    }

    /// Channels that carry transitions only.
    #[cfg(feature = "testkit")]
    pub(crate) fn without_changes(&self) -> Self {
        Self { transitions: self.transitions.clone(), ..Self::new() }
    }

    /// Tells what a commit has done, which is durable now.
    pub fn tell(&self, told: Told) {
        for transition in told.transitions {
            // An error: nobody listens.
            self.transitions.send(transition).ok();
        }
        told.changes.into_iter().for_each(|change| self.tell_change(change));
    }

    /// Tells a change that another process has made.
    pub fn tell_change(&self, change: Change) {
        // An error: nobody listens. A change is a hint.
        self.changes.send(change).ok();
    }

    /// Delivers a message of a node to the fleets on this backend: see [`Backend::publish`](super::Backend::publish).
    pub fn deliver(&self, message: NodeMessage) {
        // An error: nobody listens. The message may be lost.
        self.node_messages.send(message).ok();
    }

    /// The messages between nodes, from now on.
    pub(crate) fn node_messages(&self) -> broadcast::Receiver<NodeMessage> {
        self.node_messages.subscribe()
    }
}
