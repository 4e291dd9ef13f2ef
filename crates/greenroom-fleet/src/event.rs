//! The events of a fleet.

use serde::Serialize;
use tokio::sync::broadcast::{
    self,
    error::{RecvError, TryRecvError},
};
use tokio_util::sync::CancellationToken;

use crate::id::{Name, NodeId, PromptId, QuestionId, Tenant, Term, Timestamp};
use crate::record::{Cause, Credential, QuarantineKind};

/// How a fleet has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FleetEnd {
    /// It has drained, as this process or an operator asked.
    Drained,
    /// It has lost its lease, or an actor of it has failed for good: the log says why.
    Failed,
}

/// A transition in a fleet.
///
/// | of | transition | event |
/// |---|---|---|
/// | a prompt | accepted | `Accepted` |
/// | | a CLI begins with it | `Begun` |
/// | | a CLI begins a turn by itself | `BegunByCli` |
/// | | its turn waits for a person without a CLI | `Parked` |
/// | | it waits to go on, with its continuation or with the tool call for which its turn was parked | `Continues` |
/// | | the API has rejected its turn before anything ran, and it waits again | `Held` |
/// | | it has its outcome: by its turn, by a lost owner, in the queue, by a withdrawal or a deletion | `Ended` |
/// | a name | a prompt or a `warm` waits for a slot | `Waiting` |
/// | | it has a slot and an owner, and its session starts | `Activating` |
/// | | its session is up | `Activated` |
/// | | its first request after a wake read less from the prompt cache than it wrote | `CacheLost` |
/// | | its session could not be started | `ActivationFailed` |
/// | | the next activation waits after a failure | `BackingOff` |
/// | | another node has claimed it first | `Elsewhere` |
/// | | its session ends, and has ended | `Passivating`, `Passivated` |
/// | | its owner has lost it | `Fenced` |
/// | | it was taken from an owner that was lost | `Recovered` |
/// | | quarantined, lifted | `Quarantined`, `Unquarantined` |
/// | | marked as being deleted, and removed | `Deleting`, `Deleted` |
/// | a question | asked, decided | `Asked`, `Decided` |
/// | a tenant | four fifths of its budget are spent, all of it is | `BudgetNearlySpent`, `BudgetSpent` |
/// | the node | joined, drains, left, lost its lease, failed | `Joined`, `Draining`, `Left`, `LeaseLost`, `Failed` |
/// | | a cause keeps sessions from running, and does so no more | `Degraded`, `Mended` |
/// | another node | this node has declared it dead | `NodeLost` |
/// | a user of the pool | it cannot be cleaned, and is not lent | `UserSetAside` |
///
/// Transitions of prompts, questions, budgets and quarantines come in the order in which the backend has made them. The process whose
/// request made a transition emits it, once.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[allow(missing_docs, reason = "fields are named by their types")]
#[non_exhaustive]
pub enum FleetEvent {
    /// The fleet has joined its backend.
    Joined { node: NodeId },
    /// A prompt was accepted.
    Accepted { name: Name, prompt: PromptId },
    /// The name has no session, and waits for a slot.
    Waiting { name: Name },
    /// The name has a slot and owns its conversation; its session starts.
    Activating { name: Name, term: Term },
    /// The session has started.
    Activated { name: Name, term: Term, resumed: bool },
    /// The first request to the model after the session was woken wrote more tokens to the prompt cache than it read from it: the session
    /// has slept for longer than the cache lives, or its profile begins requests otherwise than before.
    CacheLost { name: Name, cache_read: u64, cache_creation: u64 },
    /// The session could not be started. With a cause the failure is not the session's, and counts for no quarantine.
    ActivationFailed { name: Name, why: String, cause: Option<Cause> },
    /// The session ended by a failure or could not be started. Its next activation waits for this time, in milliseconds.
    BackingOff { name: Name, millis: u64 },
    /// The name cannot be activated here: another node has claimed it first.
    Elsewhere { name: Name, node: NodeId },
    /// The name is not activated, and takes no new prompts, until `unquarantine` is called.
    Quarantined { name: Name, kind: QuarantineKind, why: String },
    /// The name may be activated again.
    Unquarantined { name: Name },
    /// A CLI begins with a prompt.
    Begun { name: Name, prompt: PromptId },
    /// The CLI has begun a turn by itself: a background task has ended, or a schedule of the session's was due. Its record has
    /// [`PromptOrigin::Cli`](crate::PromptOrigin::Cli).
    BegunByCli { name: Name, prompt: PromptId },
    /// The turn of a prompt is parked: no CLI runs until the question is decided, or its deadline has passed.
    Parked { name: Name, prompt: PromptId, question: QuestionId },
    /// The prompt waits to go on: with its continuation, because the owner that had begun with it was lost or the fleet drained, or with the
    /// tool call for which its turn was parked, because the question is decided.
    Continues { name: Name, prompt: PromptId },
    /// The API has rejected the turn of a prompt before anything ran. Its credential is held, see `Degraded`, and the prompt waits again.
    Held { name: Name, prompt: PromptId },
    /// A prompt has its outcome: `completed`, `interrupted`, `failed` or `unsent`. Also one that ended without a turn, or with a
    /// lost owner.
    Ended { name: Name, prompt: PromptId, outcome: &'static str },
    /// The session is being put to sleep.
    Passivating { name: Name, why: PassivatedBy },
    /// The session is asleep, and its slot is free.
    Passivated { name: Name },
    /// The owner has lost the name: its session was killed, and nothing was written.
    Fenced { name: Name, term: Term },
    /// The name was taken from an owner that was lost, and may be activated again.
    Recovered { name: Name },
    /// A session asks a person.
    Asked { name: Name, prompt: PromptId, question: QuestionId },
    /// A question was decided, or ended with its turn.
    Decided { name: Name, prompt: PromptId, question: QuestionId },
    /// The name takes no more prompts: its files are removed, then the name.
    Deleting { name: Name },
    /// The name was removed. Files on hosts without a living node may be left: see [`Erased::left`](crate::Erased::left).
    Deleted { name: Name },
    /// Files of a session that is being deleted cannot be removed. The session stays marked, and the fleet tries again.
    DeletionFailed { name: Name, why: String },
    /// A process that an earlier start of the service, or a lost node of this host, has left behind still acts for the session. The
    /// opening, or the activation, waits for its end.
    ProcessLeft { name: Name },
    /// A process that an earlier start of the service, or a lost node of this host, has left behind did not end by itself, and was
    /// killed.
    ProcessKilled { name: Name },
    /// A user of the [pool](crate::FleetBuilder::users) is not lent again before it is clean: what a session has left could not be
    /// removed, or a process of the user runs that no session has started. The fleet tries again when no other user is free.
    UserSetAside { uid: u32, why: String },
    /// The tenant has spent four fifths of its budget. Once in a period. Micro-dollars.
    BudgetNearlySpent { tenant: Tenant, spent: u64, budget: u64 },
    /// The rest of the tenant's budget is less than the reserve of a turn: no turn begins until the next period. Once in a
    /// period. Micro-dollars.
    BudgetSpent { tenant: Tenant, spent: u64, budget: u64 },
    /// An actor of the fleet failed and was restarted.
    ActorRestarted { actor: String, why: String },
    /// The cause keeps sessions of this node from running: those of the profile, of the tenant and of the credential, if they are given. One
    /// session at a time tries again, and the others wait, or run on another node. Emitted once until `Mended`, and again for another cause or
    /// another moment of a reset.
    ///
    /// With a credential, it keeps sessions of all nodes from running, and each node emits it. `until` is the moment of the next try then.
    Degraded {
        cause: Cause,
        profile: Option<String>,
        tenant: Option<Tenant>,
        credential: Option<Credential>,
        until: Option<Timestamp>,
        why: String,
    },
    /// A session has run again, or an operator has released the credential: the others that the cause has held back start.
    Mended { cause: Cause, profile: Option<String>, tenant: Option<Tenant>, credential: Option<Credential> },
    /// A request to the backend fails and is repeated.
    BackendUnavailable { why: String },
    /// The backend made transitions faster than the fleet could emit them: so many events are missing.
    TransitionsMissed { missed: u64 },
    /// The node could not renew its lease in time: it kills its sessions, writes nothing more, and ends.
    LeaseLost { node: NodeId },
    /// Another node has not renewed its lease, and this node has declared it dead: its names are recovered. Several
    /// nodes may emit this event.
    NodeLost { node: NodeId },
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
    /// The time of its background tasks, [`FleetLimits::background`](crate::FleetLimits::background), ended while no turn ran.
    Background,
    /// Its [credential](Credential) is held. The next session has the login that the profile gives then.
    Held,
    /// Its turn is parked: it waits for a person.
    Parked,
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
            received = self.receiver.recv() => received,
            () = self.ended.cancelled() => self.receiver.try_recv().map_err(|error| match error {
                TryRecvError::Lagged(missed) => RecvError::Lagged(missed),
                TryRecvError::Empty | TryRecvError::Closed => RecvError::Closed,
            }),
        };
        match received {
            Ok(event) => Some(Ok(event)),
            Err(RecvError::Lagged(missed)) => Some(Err(missed)),
            Err(RecvError::Closed) => None,
        }
    }
}
