//! The port: the actor of one incarnation of the CLI, from its start to the end of its last process.
//!
//! The actor is a shell around one task ([`run`](super::run)). When the actor ends, the task is aborted, and every
//! process of the incarnation ends with it.
//!
//! Restart policy: permanent, with the limits of `Restarts::cli`. A restart is a new incarnation with the next epoch;
//! router, servers and conversation are told of it and go on.

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::watch;

pub(crate) use super::run::PortArguments;
use super::run::{Command, IncarnationTask};
use crate::actor::base::reply::respond;
use crate::actor::base::task::Task;
use crate::actor::messages::port::{OpenCli, PortMessage};
use crate::report::CliSnapshot;

pub(crate) struct CliPort;

pub(crate) struct PortState {
    epoch: u64,
    progress: StartProgress,
    command: watch::Sender<Command>,
    _task: Task,
}

/// The progress of the start of the CLI.
enum StartProgress {
    Starting,
    Open(OpenCli),
    Ready { cli: OpenCli, version: Option<String> },
}

impl StartProgress {
    fn ready(self, version: Option<String>) -> Self {
        match self {
            StartProgress::Open(cli) => StartProgress::Ready { cli, version },
            other => other,
        }
    }

    fn cli(&self) -> Option<&OpenCli> {
        match self {
            StartProgress::Starting => None,
            StartProgress::Open(cli) | StartProgress::Ready { cli, .. } => Some(cli),
        }
    }
}

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for CliPort {
    type Msg = PortMessage;
    type State = PortState;
    type Arguments = PortArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<PortMessage>,
        arguments: PortArguments,
    ) -> Result<PortState, ActorProcessingErr> {
        let epoch = arguments.epoch;
        let (command, commands) = watch::channel(Command::Run);
        let task = IncarnationTask::new(arguments, myself, commands);
        let task = Task::spawn(task.live());
        Ok(PortState { epoch, progress: StartProgress::Starting, command, _task: task })
    }

    async fn handle(
        &self,
        myself: ActorRef<PortMessage>,
        message: PortMessage,
        state: &mut PortState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            PortMessage::Opened(cli) => state.progress = StartProgress::Open(cli),
            PortMessage::Ready { version } => {
                let progress = std::mem::replace(&mut state.progress, StartProgress::Starting);
                state.progress = progress.ready(version);
            }
            PortMessage::Shutdown => drop(state.command.send_replace(Command::ShutDown)),
            PortMessage::GiveUp(reason) => drop(state.command.send_replace(Command::GiveUp(reason))),
            PortMessage::Ended => myself.stop(None),
            PortMessage::Snapshot(reply) => {
                let messages = state.progress.cli().map(|cli| cli.messages.clone());
                respond(reply, (state.snapshot(), messages));
            }
            #[cfg(feature = "testing")]
            PortMessage::Panic => panic!("a fault was injected into the CLI port"),
        }
        Ok(())
    }
}

impl PortState {
    fn snapshot(&self) -> CliSnapshot {
        let cli = self.progress.cli();
        let (ready, version) = match &self.progress {
            StartProgress::Ready { version, .. } => (true, version.clone()),
            StartProgress::Starting | StartProgress::Open(_) => (false, None),
        };
        CliSnapshot {
            epoch: self.epoch,
            pid: cli.and_then(|cli| cli.pid),
            contained_by: cli.and_then(|cli| cli.contained_by),
            ready,
            version,
            lines_queued: cli.map_or(0, |cli| cli.outbound.queued()),
            outbound_bytes: cli.map_or(0, |cli| cli.outbound.bytes().queued()),
        }
    }
}
