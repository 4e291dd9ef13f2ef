//! What happens in a fleet.

use serde::Serialize;
use tokio::sync::broadcast::{
    self,
    error::{RecvError, TryRecvError},
};
use tokio_util::sync::CancellationToken;

use crate::id::{Name, NodeId, PromptId, QuestionId, Term};

/// A transition in a fleet.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[allow(missing_docs, reason = "fields are named by their types")]
#[non_exhaustive]
pub enum FleetEvent {
    /// The fleet has joined its backend.
    Joined { node: NodeId },
    /// A prompt was accepted.
    Accepted { name: Name, prompt: PromptId },
    /// The name has a slot and owns its conversation; its session starts.
    Activating { name: Name, term: Term },
    /// The session has started.
    Activated { name: Name, term: Term, resumed: bool },
    /// The session could not be started.
    ActivationFailed { name: Name, why: String },
    /// The name is not activated until `unquarantine` is called.
    Quarantined { name: Name, why: String },
    /// The name may be activated again.
    Unquarantined { name: Name },
    /// A CLI begins with a prompt.
    Begun { name: Name, prompt: PromptId },
    /// A turn that ran here has its outcome. A prompt that ends without a turn, or with a lost owner, is told by its
    /// [`FleetTurn`](crate::FleetTurn) only. The outcome: `completed`, `interrupted`, `failed` or `unsent`.
    Ended { name: Name, prompt: PromptId, outcome: &'static str },
    /// The session is being put to sleep.
    Passivating { name: Name, why: PassivatedBy },
    /// The session is asleep, and its slot is free.
    Passivated { name: Name },
    /// The owner has lost the name: its session was killed, and nothing was written.
    Fenced { name: Name, term: Term },
    /// A session asks a person.
    Asked { name: Name, question: QuestionId },
    /// A question was decided, or ended with its turn.
    Decided { question: QuestionId },
    /// The name and its files were removed.
    Deleted { name: Name },
    /// Files of a session that is being deleted cannot be removed. The session stays marked, and the fleet tries again.
    DeletionFailed { name: Name, why: String },
    /// A process that an earlier start of the service has left behind still acts for the session. The opening waits for its end.
    ProcessLeft { name: Name },
    /// A process that an earlier start of the service has left behind did not end by itself, and was killed.
    ProcessKilled { name: Name },
    /// An actor of the fleet failed and was restarted.
    ActorRestarted { actor: String, why: String },
    /// A request to the backend fails and is repeated.
    BackendUnavailable { why: String },
    /// The node could not renew its lease in time: it kills its sessions, writes nothing more, and ends.
    LeaseLost { node: NodeId },
    /// An actor of the fleet has failed too often: the fleet kills its sessions, and ends.
    Failed { why: String },
    /// The fleet takes no more prompts, and puts its sessions to sleep.
    Draining,
    /// The fleet has left its backend.
    Left { node: NodeId },
}

/// The reason why a session is put to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PassivatedBy {
    /// It was idle for [`FleetLimits::idle_after`](crate::FleetLimits::idle_after).
    Idle,
    /// Another name needs its slot.
    Eviction,
    /// The application asked for it.
    Request,
    /// A background task took longer than [`FleetLimits::background`](crate::FleetLimits::background).
    Background,
    /// The session failed by itself.
    Failure,
    /// The fleet drains.
    Drain,
}

/// Events of a fleet, from the moment of the subscription.
#[derive(Debug)]
pub struct FleetEvents {
    receiver: broadcast::Receiver<FleetEvent>,
    ended: CancellationToken,
}

impl FleetEvents {
    pub(crate) fn new(receiver: broadcast::Receiver<FleetEvent>, ended: CancellationToken) -> Self {
        Self { receiver, ended }
    }

    /// The next event; `None` after the end of the fleet. Cancel-safe.
    ///
    /// # Errors
    /// The number of events that are missing, because they were not read in time: 1,024 events are kept.
    pub async fn next(&mut self) -> Option<Result<FleetEvent, u64>> {
        let received = tokio::select! {
            biased;
            received = self.receiver.recv() => received.map_err(Some),
            () = self.ended.cancelled() => self.receiver.try_recv().map_err(|error| match error {
                TryRecvError::Lagged(missed) => Some(RecvError::Lagged(missed)),
                TryRecvError::Empty | TryRecvError::Closed => None,
            }),
        };
        match received {
            Ok(event) => Some(Ok(event)),
            Err(Some(RecvError::Lagged(missed))) => Some(Err(missed)),
            Err(_) => None,
        }
    }
}
