//! The actor of a name that is not passive.
//!
//! ```text
//!              something waits       a slot            started
//!  Settled ───────────────► Waiting ─────► Activating ────────► Idle ◄────────────┐
//!  (no session)                │               │                 │ a turn         │
//!     ▲  ▲  ▲                  │ nothing       │ failed          ▼                │ outcome
//!     │  │  └──────────────────┘ waits any     ▼               Running ───────────┘
//!     │  └──── the time passes ──────────── Backoff              │
//!     │                                                          │ fenced, cut
//!     │                                                          ▼
//!     └───────────────────────────────────────────────────── Passivating ◄── idle, evicted, asked for, failed, drained
//!
//!  Settled, and nothing waits: the actor ends, and the name is passive.
//! ```
//!
//! The steps (to look at the queue, to activate, a turn, to passivate) are tasks: the actor handles messages while they
//! run. An activation, a turn and a passivation exclude each other; a look, an interrupt or a message into the turn may
//! run beside them. What a step has got is in the name's cell. If the actor fails, its supervisor waits for the step,
//! gives back what the cell holds, and starts another actor.

pub(crate) mod left;
mod live;
pub(crate) mod losses;
mod machine;
mod memory;
pub(crate) mod release;
mod requests;
pub(crate) mod steps;
#[cfg(test)]
mod tests;
mod turn;
mod watch;

use std::sync::Arc;

use greenroom::Prompt;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;

use super::admitter::{AdmissionLink, Grant};
use super::cell::NameCell;
use super::context::{Activation, FleetShared};
use crate::face::error::FleetError;
use crate::face::event::PassivatedBy;
use crate::id::PromptId;
use crate::record::PromptRecord;
use machine::NameState;
use steps::{Activated, Look};
use turn::TurnEnd;

/// A message to the actor of a name.
pub(crate) enum NameMessage {
    /// Something may have begun to wait. With the prompt that may begin, if it is known.
    Wake(Option<PromptId>),
    /// Start the session, without a prompt.
    Warm(oneshot::Sender<Result<(), FleetError>>),
    /// Admission grants a slot or a turn, or wants the slot back. `u64`: the generation of admission.
    Granted(Grant, u64),
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
    /// The state, for a snapshot.
    Report(oneshot::Sender<NameReport>),
    /// The end of a step.
    Step(StepEnd),
    /// The session's activity, or a timer. `u64`: the number of the watch, so that an old one is told apart.
    Watched(Watched, u64),
    /// Panics, to test that the fleet survives it.
    #[cfg(feature = "testkit")]
    Panic,
}

#[cfg(feature = "cluster")]
impl ractor::Message for NameMessage {}

/// The end of a step.
pub(crate) enum StepEnd {
    Looked(Result<Box<Look>, String>),
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
    /// The CLI works in the background.
    Busy,
    /// Nothing runs in the CLI any more.
    Quiet,
    /// The session was idle for `idle_after`.
    IdleOver,
    /// A background task took longer than it may.
    BackgroundOver,
    /// The session has ended by itself.
    SessionEnded,
    /// The wait after a failed activation, or for a deletion or a quarantine, is over.
    BackoffOver,
}

/// The state of a name's actor.
#[derive(Clone, Debug)]
pub(crate) struct NameReport {
    pub(crate) stage: &'static str,
    pub(crate) running: Option<PromptId>,
    pub(crate) since: tokio::time::Instant,
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
    type State = NameState;
    type Arguments = NameArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<NameMessage>,
        mut arguments: NameArguments,
    ) -> Result<NameState, ActorProcessingErr> {
        let next = arguments.next.take();
        let mut state = NameState::new(myself, arguments);
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
        state: &mut NameState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            NameMessage::Wake(next) => state.woken(next),
            NameMessage::Warm(done) => state.warm(done),
            NameMessage::Granted(grant, generation) => state.granted(grant, generation),
            NameMessage::AskAgain => state.ask_again(),
            NameMessage::Passivate { by, done } => state.wish_passive(by, done),
            NameMessage::MakeWay { hold, done } => state.make_way(hold, done),
            NameMessage::Interrupt { prompt, done } => state.interrupt(prompt, done),
            NameMessage::Steer { message, done } => state.steer(*message, done),
            NameMessage::Drain => state.drain(),
            NameMessage::Cut => state.cut(),
            NameMessage::Fence => state.fence(),
            NameMessage::Report(reply) => {
                // An error: nobody waits for the report any more.
                reply.send(state.report()).ok();
            }
            NameMessage::Step(end) => state.step_ended(end)?,
            NameMessage::Watched(what, number) => state.watched(what, number),
            #[cfg(feature = "testkit")]
            NameMessage::Panic => panic!("told to panic"),
        }
        Ok(())
    }
}

/// The live session of a name, and what is counted for it.
pub(crate) type Live = (Activation, Arc<tokio::sync::Mutex<greenroom::message::UsageTracker>>);
