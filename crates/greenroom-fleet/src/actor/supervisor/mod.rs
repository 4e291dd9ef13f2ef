//! The supervisor of a fleet: starts the actors of names, restarts what fails, and drains.
//!
//! ```text
//!  Open ── drain, the lease is lost, too many restarts ──► Draining: names end their sessions ──► Left ──► (ends)
//! ```
//!
//! | child | when the child ends by itself |
//! |---|---|
//! | actor of a name | it is passive; started again if a message came meanwhile |
//! | actor of a name that failed | its running step is awaited, what it holds is given back, and it is started again |
//! | admission | started again with the names that hold a slot |
//!
//! Admission may fail ten times in a minute; after that the fleet ends. The keeper is no actor: a step of it that fails is repeated.

mod children;
mod drain;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::admitter::{AdmissionLink, AdmitterMessage};
use super::cell::NameCell;
use super::context::FleetShared;
use super::keeper::Keeper;
use super::name::NameMessage;
use super::name::steps::give_back;
use super::task::{Task, spawn};
use crate::admission::Counts;
use crate::backend::Requests;
use crate::event::{FleetEnd, FleetEvent};
use crate::id::Name;
use crate::record::PromptRecord;

/// A message to the supervisor of a fleet.
pub(crate) enum FleetMessage {
    /// Prompts that may begin, one for each name, in the order in which the names are to ask for their slots.
    Wake(Vec<PromptRecord>),
    /// A message for a name. The actor is started for it, if `start`; else the message is dropped with its reply.
    To { name: Name, message: Box<NameMessage>, start: bool },
    /// The holdings of a name whose actor had failed were given back.
    GivenBack(Name),
    /// The counts of admission.
    Counts(oneshot::Sender<Counts>),
    /// Take no more prompts, end all sessions by the deadline, and leave.
    Drain { deadline: Instant, done: oneshot::Sender<()> },
    /// The last handle was dropped, or an operator has asked the node to drain.
    Abandoned,
    /// The node has lost its lease.
    LeaseLost,
    /// The rest of the time to drain is for sessions whose turn is cut off. A CLI has the grace to tell the cost of its turn.
    Cut { grace: Duration },
    /// The deadline of the drain has passed, or the node has left its backend.
    Over,
    /// Panics in an actor, to test that the fleet survives it.
    #[cfg(feature = "testkit")]
    Inject(crate::testkit::FleetFault),
}

#[cfg(feature = "cluster")]
impl ractor::Message for FleetMessage {}

/// The time for which callers wait for the ends of sessions that were killed, after the deadline of a drain for instance.
const ENDS: Duration = Duration::from_secs(5);
/// The time in which a fleet that has failed, or has not opened, leaves its backend.
const LEAVES: Duration = Duration::from_secs(2);

/// The supervisor of a fleet.
pub(crate) struct FleetSupervisor;

/// A name that is not passive.
struct NameChild {
    cell: Arc<NameCell>,
    /// `None`: the actor has failed, and what it held is being given back.
    actor: Option<ActorRef<NameMessage>>,
    /// Callers that wait until the session of an actor that has failed is gone.
    passive: Vec<oneshot::Sender<bool>>,
}

pub(crate) struct FleetState {
    shared: Arc<FleetShared>,
    myself: ActorRef<FleetMessage>,
    admission: AdmissionLink,
    /// `None`: the end was told.
    keeper: Option<Keeper>,
    names: HashMap<Name, NameChild>,
    by_actor: HashMap<ActorId, Name>,
    /// Moments of the latest restarts of admission.
    restarts: Vec<Instant>,
    draining: Option<drain::Draining>,
    /// Tells when the lease is lost, and when an operator asks the node to drain.
    _lease: Task,
}

impl Drop for FleetState {
    fn drop(&mut self) {
        self.end();
    }
}

impl FleetState {
    /// Sets how the fleet ends, unless it was set before.
    fn tell_end(&self, end: FleetEnd) {
        // Ignore the error: the end was set before.
        self.shared.end.set(end).ok();
    }

    /// Tells the end of the fleet, however it ended. After a drain nothing is left; a supervisor that failed or was killed leaves
    /// sessions, which end at once. Does nothing the second time.
    fn end(&mut self) {
        if self.keeper.take().is_none() {
            return;
        }
        self.tell_end(FleetEnd::Failed);
        let shared = self.shared.clone();
        shared.draining.cancel();
        shared.lost.cancel();
        let (left_over, in_time) = (!self.left(), self.draining.is_some());
        shared.awake().clear();
        let cells: Vec<_> = self.names.drain().map(|(_, child)| child.cell).collect();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            // The runtime ends, and the processes with their sessions.
            shared.ended.cancel();
            return;
        };
        cells.iter().for_each(|cell| cell.kill().cancel());
        runtime.spawn(async move { end_sessions(&shared, &cells, in_time, left_over).await });
    }
}

/// Ends the sessions that a fleet leaves, and tells the end of the fleet. `in_time`: the fleet has drained, and its callers do not
/// wait until the node has left its backend. `left_over`: the node has not left yet.
async fn end_sessions(shared: &FleetShared, cells: &[Arc<NameCell>], in_time: bool, left_over: bool) {
    let mut ending = pin!(join_all(cells.iter().map(|cell| end_now(shared, cell))));
    if tokio::time::timeout(ENDS, &mut ending).await.is_err() {
        tracing::error!(
            "sessions of the fleet have not ended {ENDS:?} after they were killed: a profile blocks, or a disk hangs"
        );
        shared.ended.cancel();
        ending.await;
    }
    if in_time {
        // The drain's deadline has passed: its callers wait for nothing more.
        shared.ended.cancel();
    }
    if left_over {
        // Nothing acts for the names any more: whoever opens the backend next may have them at once.
        leave(shared).await;
    }
    shared.ended.cancel();
}

/// Leaves the backend for a node that ends otherwise than by a drain, within a limit.
pub(crate) async fn leave(shared: &FleetShared) {
    let left = tokio::time::timeout(LEAVES, shared.backend.leave(shared.node)).await;
    if !matches!(left, Ok(Ok(()))) {
        tracing::warn!("the fleet's node could not leave its backend; its lease runs out");
    }
}

/// Kills the session of a name whose actor is gone, and writes nothing.
async fn end_now(shared: &FleetShared, cell: &NameCell) {
    cell.steps.close();
    let session = cell.holdings().session.clone();
    if let Some(session) = session {
        session.kill().await;
    }
    cell.steps.wait().await;
    // A step may have started a session.
    cell.kill().cancel();
    give_back(shared, cell).await;
}

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for FleetSupervisor {
    type Msg = FleetMessage;
    type State = FleetState;
    type Arguments = Arc<FleetShared>;

    async fn pre_start(
        &self,
        myself: ActorRef<FleetMessage>,
        shared: Arc<FleetShared>,
    ) -> Result<FleetState, ActorProcessingErr> {
        let (lost, asked, actor) = (shared.lost.clone(), shared.asked_to_drain.clone(), myself.clone());
        let lease = spawn(async move {
            if lost.run_until_cancelled(asked.cancelled()).await.is_some() {
                // An error: the fleet has ended.
                actor.cast(FleetMessage::Abandoned).ok();
            }
            lost.cancelled().await;
            // An error: the fleet has ended.
            actor.cast(FleetMessage::LeaseLost).ok();
        });
        let admission = shared.admission.clone();
        let mut state = FleetState {
            keeper: Some(children::start_keeper(&shared, &myself)),
            shared,
            myself,
            admission,
            names: HashMap::new(),
            by_actor: HashMap::new(),
            restarts: Vec::new(),
            draining: None,
            _lease: lease,
        };
        state.start_admission().await?;
        state.shared.tell(FleetEvent::Joined { node: state.shared.node });
        Ok(state)
    }

    async fn handle(
        &self,
        _: ActorRef<FleetMessage>,
        message: FleetMessage,
        state: &mut FleetState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            FleetMessage::Wake(prompts) => {
                for prompt in prompts {
                    state.wake(prompt).await?;
                }
            }
            FleetMessage::To { name, message, start } => state.send(name, *message, start).await?,
            FleetMessage::GivenBack(name) => state.given_back(name).await?,
            FleetMessage::Counts(reply) => state.admission.send(AdmitterMessage::Counts(reply)),
            FleetMessage::Drain { deadline, done } => state.drain(deadline, Some(done)),
            FleetMessage::Abandoned => state.drain(Instant::now() + state.shared.limits.drain, None),
            FleetMessage::LeaseLost => state.fence(),
            FleetMessage::Cut { grace } => state.names.values().for_each(|child| child.cell.cut(grace)),
            FleetMessage::Over => state.drained(),
            #[cfg(feature = "testkit")]
            FleetMessage::Inject(fault) => state.inject(fault).await?,
        }
        Ok(())
    }

    /// The actor's own supervisor gets the state with the news, and may keep it for as long as it likes.
    async fn post_stop(
        &self,
        _: ActorRef<FleetMessage>,
        state: &mut FleetState,
    ) -> Result<(), ActorProcessingErr> {
        state.end();
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<FleetMessage>,
        event: SupervisionEvent,
        state: &mut FleetState,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(cell, _, _) => state.ended(cell.get_id(), None).await,
            SupervisionEvent::ActorFailed(cell, error) => {
                state.ended(cell.get_id(), Some(error.to_string())).await
            }
            _ => Ok(()),
        }
    }
}
