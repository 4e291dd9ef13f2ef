//! The actor of a name that is not passive. `machine` draws its stages.
//!
//! The steps (to look at the queue, to activate, a turn, to passivate) are tasks: the actor handles messages while they
//! run. An activation, a turn and a passivation exclude each other; a look, an interrupt or a message into the turn may
//! run beside them. What a step has got is in the name's cell. If the actor fails, its supervisor waits for the step,
//! gives back what the cell holds, and starts another actor.

mod live;
mod machine;
mod requests;
mod slot;
pub(crate) mod steps;
#[cfg(test)]
mod tests;
mod watch;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use greenroom::Prompt;
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;

use super::admitter::AdmissionLink;
use super::cell::NameCell;
use super::context::FleetShared;
use super::task::panic_text;
use crate::admission::{AdmissionMessage, Grant};
use crate::error::FleetError;
use crate::event::PassivatedBy;
use crate::id::PromptId;
use crate::record::PromptRecord;
use machine::{Ending, NameActorState};
use steps::Activated;
use steps::look::Look;
use steps::turn::TurnEnd;

/// A message to the actor of a name.
pub(crate) enum NameMessage {
    /// Something may have begun to wait. With the prompt that may begin, if it is known.
    Wake(Option<PromptId>),
    /// Start the session, without a prompt.
    Warm(oneshot::Sender<Result<(), FleetError>>),
    /// Admission grants a slot or a turn, or wants the slot back. With the actor of admission.
    Granted(Grant, ActorId),
    /// Admission was restarted, and knows the holders of slots only.
    AskAgain,
    /// End the session after the running turn. Answers whether there was one.
    Passivate { by: PassivatedBy, done: Option<oneshot::Sender<bool>> },
    /// End the session at once, for a deletion or a quarantine. Until the sender of `hold` is dropped the name stays without a
    /// session, for five seconds at most.
    MakeWay { hold: oneshot::Receiver<()>, done: oneshot::Sender<bool> },
    /// Interrupt the running turn, if it is this one. Answers whether it was.
    Interrupt { prompt: Option<PromptId>, done: oneshot::Sender<Result<bool, FleetError>> },
    /// Say something in the running turn.
    Steer { message: Box<Prompt>, done: oneshot::Sender<Result<(), FleetError>> },
    /// The fleet drains: end the session when it is idle.
    Drain,
    /// The drain is almost over: cut the running turn off.
    Cut,
    /// The node has lost its lease: end the session at once, and write nothing.
    Fence,
    /// The end of a step.
    Step(StepEnd),
    /// The session's activity, or a timer. `u64`: the number of the stage, so that an earlier one is told apart.
    Watched(Watched, u64),
    /// Panics, to test that the fleet survives it.
    #[cfg(feature = "testkit")]
    Panic,
}

#[cfg(feature = "cluster")]
impl ractor::Message for NameMessage {}

/// The end of a step.
pub(crate) enum StepEnd {
    Looked(Box<Look>),
    Activated(Box<Activated>),
    TurnEnded(TurnEnd),
    Interrupted,
    Passivated,
    /// The step's code panicked.
    Panicked(String),
}

/// An observation of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// The CLI works in the background, or nothing runs in it any more.
    Busy(bool),
    /// The session was idle or worked in the background for too long, or has ended by itself.
    Over(PassivatedBy),
    /// The wait after a failure, or for a deletion or a quarantine, is over.
    BackoffOver,
}

/// The actor of a name.
pub(crate) struct NameActor;

/// The arguments of a name's actor.
pub(crate) struct NameArguments {
    pub(crate) shared: Arc<FleetShared>,
    pub(crate) cell: Arc<NameCell>,
    pub(crate) admission: AdmissionLink,
    /// The prompt that may begin. `None`: the actor looks for itself.
    pub(crate) next: Option<PromptRecord>,
}

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for NameActor {
    type Msg = NameMessage;
    type State = NameActorState;
    type Arguments = NameArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<NameMessage>,
        arguments: NameArguments,
    ) -> Result<NameActorState, ActorProcessingErr> {
        let NameArguments { shared, cell, admission, next } = arguments;
        let mut state = NameActorState::new(NameContext { myself, shared, cell, admission });
        match next {
            Some(next) => state.begin_with(next),
            None => state.look(),
        }
        Ok(state)
    }

    async fn handle(
        &self,
        _: ActorRef<NameMessage>,
        message: NameMessage,
        state: &mut NameActorState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            NameMessage::Wake(next) => state.woken(next),
            NameMessage::Warm(done) => state.warm(done),
            NameMessage::Granted(grant, admitter) => state.granted(grant, admitter),
            NameMessage::AskAgain => state.ask_again(),
            NameMessage::Passivate { by, done } => state.wish_passive(by, done),
            NameMessage::MakeWay { hold, done } => state.make_way(hold, done),
            NameMessage::Interrupt { prompt, done } => state.interrupt(prompt, done),
            NameMessage::Steer { message, done } => state.steer(*message, done),
            NameMessage::Drain => state.end(Ending::Drained),
            NameMessage::Cut => state.cut(),
            NameMessage::Fence => state.end(Ending::Fenced),
            NameMessage::Step(end) => state.step_ended(end)?,
            NameMessage::Watched(what, number) => state.watched(what, number),
            #[cfg(feature = "testkit")]
            NameMessage::Panic => panic!("told to panic"),
        }
        Ok(())
    }
}

/// The things that a name's actor works with, and that outlast it.
pub(super) struct NameContext {
    pub(super) myself: ActorRef<NameMessage>,
    pub(super) shared: Arc<FleetShared>,
    pub(super) cell: Arc<NameCell>,
    pub(super) admission: AdmissionLink,
}

impl NameContext {
    /// Runs a step. It goes on if the actor fails; its panic is the end of the step.
    pub(super) fn step<F>(&self, step: impl FnOnce(Arc<FleetShared>, Arc<NameCell>) -> F)
    where
        F: Future<Output = StepEnd> + Send + 'static,
    {
        let step = AssertUnwindSafe(step(self.shared.clone(), self.cell.clone())).catch_unwind();
        let myself = self.myself.clone();
        self.cell.steps.spawn(async move {
            let end = step.await.unwrap_or_else(|panic| StepEnd::Panicked(panic_text(&*panic).to_owned()));
            // An error: the actor has failed, and its supervisor gives back what the step has got.
            myself.cast(NameMessage::Step(end)).ok();
        });
    }

    pub(super) fn tell_admission(&self, message: AdmissionMessage) {
        self.admission.tell(&self.cell.name, message, &self.myself);
    }

    pub(super) fn free_slot(&self) {
        self.cell.holdings().slot = false;
        self.tell_admission(AdmissionMessage::Freed);
    }
}
