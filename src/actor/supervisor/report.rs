//! What the supervisor tells of the tree, and how parts of it are broken on purpose.

use std::time::Duration;

use futures_util::future::join_all;
use ractor::ActorRef;
use tokio::sync::oneshot;

use super::stopping::Step;
use super::{Server, State, SupervisorState};
use crate::actor::callbacks::CallbacksMessage;
use crate::actor::conversation::ConversationMessage;
use crate::actor::mcp_server::ServerMessage;
use crate::actor::port::PortMessage;
use crate::actor::router::{RouterMessage, millis};
use crate::report::{Phase, ServerSnapshot, ServerStatus, Snapshot};

impl SupervisorState {
    pub(super) fn snapshot(&mut self, answer: impl FnOnce(Snapshot) + Send + 'static) {
        let phase = match &self.phase {
            State::Starting => Phase::Starting,
            State::Ready => Phase::Ready,
            State::Recovering => Phase::Recovering,
            State::Stopping { step: Step::Drain, .. } => Phase::Draining,
            State::Stopping { .. } => Phase::Stopping,
        };
        let shared = self.shared.clone();
        let limit = shared.options().timeouts.child_stop;
        let port = self.port.clone();
        let (conversation, router, callbacks) =
            (self.conversation.clone(), self.router.clone(), self.callbacks.clone());
        let servers: Vec<_> =
            self.servers.iter().map(|server| (server.actor.clone(), server.absent())).collect();
        self.errand(async move {
            let servers = servers.into_iter().map(|(actor, absent)| async move {
                inspect(limit, actor, ServerMessage::Snapshot).await.unwrap_or(absent)
            });
            // The port answers when the conversation was told all that was read.
            let cli_and_conversation = async {
                let cli = inspect(limit, port, PortMessage::Snapshot).await;
                (cli, inspect(limit, conversation, ConversationMessage::Snapshot).await)
            };
            let ((cli, conversation), router, callbacks, servers) = tokio::join!(
                cli_and_conversation,
                inspect(limit, router, RouterMessage::Snapshot),
                inspect(limit, callbacks, CallbacksMessage::Snapshot),
                join_all(servers),
            );
            let session_id = shared.vitals.borrow().session_id.clone();
            answer(Snapshot {
                phase,
                age_ms: millis(shared.started.elapsed()),
                session_id,
                cli,
                conversation,
                router,
                servers,
                callbacks,
                counters: shared.counting.read(),
            });
        });
    }

    #[cfg(feature = "testkit")]
    pub(super) fn inject(&mut self, fault: crate::testkit::Fault) {
        use crate::testkit::Fault;
        // A child that is not there cannot be broken.
        match fault {
            Fault::PanicRouter => self.tell_router(RouterMessage::Panic),
            Fault::PanicConversation => self.tell_conversation(ConversationMessage::Panic),
            Fault::PanicCallbacks => {
                drop(self.callbacks.as_ref().map(|actor| actor.cast(CallbacksMessage::Panic)))
            }
            Fault::PanicPort => drop(self.port.as_ref().map(|actor| actor.cast(PortMessage::Panic))),
            Fault::KillPort => self.port.iter().for_each(|actor| actor.kill()),
            Fault::PanicServer(name) | Fault::KillServer(name)
                if !self.servers.iter().any(|server| server.spec.name == name) =>
            {
                tracing::warn!(name, "there is no such server to break");
            }
            Fault::PanicServer(name) => {
                for server in self.servers.iter().filter(|server| server.spec.name == name) {
                    drop(server.actor.as_ref().map(|actor| actor.cast(ServerMessage::Panic)));
                }
            }
            Fault::KillServer(name) => {
                for server in self.servers.iter().filter(|server| server.spec.name == name) {
                    server.actor.iter().for_each(|actor| actor.kill());
                }
            }
            Fault::KillSupervisor => self.myself.kill(),
        }
    }
}

impl Server {
    /// What is said of it while its actor is not there.
    pub(super) fn absent(&self) -> ServerSnapshot {
        ServerSnapshot {
            name: self.spec.name.clone(),
            status: match &self.status {
                ServerStatus::Up => ServerStatus::Restarting,
                status => status.clone(),
            },
            generation: self.generation,
            calls: Vec::new(),
            blocking: self.blocking.running(),
            abandoned: self.blocking.abandoned(),
            requests: 0,
            mcp_sessions: 0,
        }
    }
}

/// Asks a child how it stands; `None` if it is not there or does not say so in time.
async fn inspect<M: ractor::Message, S>(
    limit: Duration,
    actor: Option<ActorRef<M>>,
    message: impl FnOnce(oneshot::Sender<S>) -> M,
) -> Option<S> {
    let (reply, answer) = oneshot::channel();
    actor?.cast(message(reply)).ok()?;
    tokio::time::timeout(limit, answer).await.ok()?.ok()
}
