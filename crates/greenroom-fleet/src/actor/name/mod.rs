//! The actor of a name that is not passive. `machine` draws its stages.
//!
//! The steps (to look at the queue, to activate, a turn, to passivate) are tasks: the actor handles messages while they
//! run. An activation, a turn and a passivation exclude each other; a look, an interrupt or a message into the turn may
//! run beside them. What a step has got is in the name's cell. If the actor fails, its supervisor waits for the step,
//! gives back what the cell holds, and starts another actor.

mod idle;
mod live;
mod machine;
mod requests;
pub(crate) mod steps;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use greenroom::Prompt;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;

use super::admitter::{AdmissionLink, Granted};
use super::cell::NameCell;
use super::context::FleetShared;
use crate::error::FleetError;
use crate::id::PromptId;
use crate::record::PromptRecord;
use machine::NameActorState;
pub(crate) use requests::{interrupt_turn, steer_turn};

/// A message to the actor of a name.
pub(crate) enum NameMessage {
    /// Something may have begun to wait, or may wait for this node no more. With the prompt that may begin, if it is known.
    Wake(Option<PromptId>),
    /// Start the session, without a prompt.
    Warm(oneshot::Sender<Result<(), FleetError>>),
    /// Admission grants a slot or a turn, or wants the slot back.
    Granted(Granted),
    /// Admission was restarted, and knows the holders of slots only.
    AskAgain,
    /// End the session after the running turn. Answers whether there was one. With a `hold`, for a deletion or a quarantine, at once: until
    /// the sender of `hold` is dropped the name stays without a session, for five seconds at most.
    Passivate { hold: Option<oneshot::Receiver<()>>, done: oneshot::Sender<bool> },
    /// Interrupt the running turn, if it is this one. Answers whether it was.
    Interrupt { prompt: Option<PromptId>, done: oneshot::Sender<Result<bool, FleetError>> },
    /// Say something in the running turn, if it is this one. Answers whether it was.
    Steer { prompt: Option<PromptId>, message: Box<Prompt>, done: oneshot::Sender<Result<bool, FleetError>> },
    /// The fleet drains, or has lost its lease: end the session when it is idle.
    End,
    /// The end of a step, or of a watch.
    Step(StepEnd),
}

#[cfg(feature = "cluster")]
impl ractor::Message for NameMessage {}

impl From<Granted> for NameMessage {
    fn from(granted: Granted) -> Self {
        Self::Granted(granted)
    }
}

/// ractor gives a message back that an actor does not take.
impl TryFrom<NameMessage> for Granted {
    type Error = ();

    fn try_from(message: NameMessage) -> Result<Self, ()> {
        match message {
            NameMessage::Granted(granted) => Ok(granted),
            _ => Err(()),
        }
    }
}

/// The end of a step: the transition that follows, or the text of a panic.
pub(crate) type StepEnd = Result<Box<dyn FnOnce(&mut NameActorState) + Send>, String>;

/// The actor of a name.
pub(crate) struct NameActor;

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for NameActor {
    type Msg = NameMessage;
    type State = NameActorState;
    /// With the prompt that may begin. `None`: the actor looks for itself.
    type Arguments = (NameContext, Option<PromptRecord>);

    async fn pre_start(
        &self,
        myself: ActorRef<NameMessage>,
        (cx, next): (NameContext, Option<PromptRecord>),
    ) -> Result<NameActorState, ActorProcessingErr> {
        let mut state = NameActorState::new(myself, cx);
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
            NameMessage::Granted(Granted { grant, by }) => state.granted(grant, by),
            NameMessage::AskAgain => state.ask_again(),
            NameMessage::Passivate { hold, done } => state.wish_passive(hold, done),
            NameMessage::Interrupt { prompt, done } => state.interrupt(prompt, done),
            NameMessage::Steer { prompt, message, done } => state.steer(prompt, *message, done),
            NameMessage::End => state.end(),
            NameMessage::Step(end) => {
                let transition = end.map_err(|text| format!("a step panicked: {text}"))?;
                transition(state);
            }
        }
        Ok(())
    }
}

/// The things that a name's actor works with, and that outlast it.
pub(crate) struct NameContext {
    pub(crate) shared: Arc<FleetShared>,
    pub(crate) cell: Arc<NameCell>,
    pub(crate) admission: AdmissionLink,
}
