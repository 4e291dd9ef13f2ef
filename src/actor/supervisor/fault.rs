//! Break a part of a session on purpose.

use ractor::ActorRef;

use super::SupervisorState;
use crate::actor::messages::children::{CallbacksMessage, PortMessage, ServerMessage};
use crate::actor::messages::conversation::ConversationMessage;
use crate::actor::messages::fault::Fault;
use crate::actor::messages::router::RouterMessage;

impl SupervisorState {
    /// Breaks a child. Does nothing to a child that is not running.
    pub(super) fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::PanicRouter => self.router.actor.tell(RouterMessage::Panic),
            Fault::PanicConversation => self.conversation.tell(ConversationMessage::Panic),
            Fault::PanicCallbacks => self.callbacks.actor.tell(CallbacksMessage::Panic),
            Fault::PanicPort => self.cli.port.tell(PortMessage::Panic),
            Fault::KillPort => self.cli.port.actor().into_iter().for_each(|actor| actor.kill()),
            Fault::PanicServer(name) => {
                self.break_server(&name, |actor| drop(actor.cast(ServerMessage::Panic)))
            }
            Fault::KillServer(name) => self.break_server(&name, |actor| actor.kill()),
            Fault::KillSupervisor => self.myself.kill(),
        }
    }

    fn break_server(&self, name: &str, how: impl FnOnce(&ActorRef<ServerMessage>)) {
        match self.servers.find(name) {
            Some(index) => drop(self.servers.children[index].actor.actor().map(how)),
            None => tracing::warn!(name, "there is no such server to break"),
        }
    }
}
