//! The port: the actor of one incarnation of the CLI, from its start to the end of its last process.
//!
//! The actor is a shell around one task ([`run`](super::run)). When the actor ends, the task is aborted, and every
//! process of the incarnation ends with it.
//!
//! Restart policy: permanent, with the limits of `Restarts::cli`. A restart is a new incarnation with the next epoch;
//! router, servers and conversation are told of it and go on.

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::run::IncarnationTask;
use crate::actor::base::task::Task;
use crate::actor::messages::children::PortMessage;

pub(crate) struct CliPort;

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for CliPort {
    type Msg = PortMessage;
    type State = Task;
    type Arguments = IncarnationTask;

    async fn pre_start(
        &self,
        myself: ActorRef<PortMessage>,
        incarnation: IncarnationTask,
    ) -> Result<Task, ActorProcessingErr> {
        Ok(Task::spawn(incarnation.live(myself)))
    }

    async fn handle(
        &self,
        myself: ActorRef<PortMessage>,
        message: PortMessage,
        _: &mut Task,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            PortMessage::Ended => myself.stop(None),
            #[cfg(feature = "testing")]
            PortMessage::Panic => panic!("a fault was injected into the CLI port"),
        }
        Ok(())
    }
}
