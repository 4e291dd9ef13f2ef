//! Making a server's state: the calls that wait for it, and its replacement after too many panics.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use ractor::ActorRef;
use tokio::time::Instant;

use super::{HandlerRequest, ServerState, Serving};
use crate::actor::base::task::Task;
use crate::actor::messages::children::ServerMessage;
use crate::actor::messages::session::Internal;
use crate::actor::request::answer::Answer;
use crate::actor::request::waiting::WaitingRequests;
use crate::blocking::caught::panic_text;
use crate::report::{Event, ServerStatus};
use crate::tool::run::erased::AnyState;
use crate::tool::run::instance::{Instance, Tools};
use crate::tool::spec::ServerSpec;
use crate::tool::state::StateContext;
use crate::wire::rpc::RpcError;

/// A server without a state, and the calls that wait for one.
pub(super) struct Making {
    /// The task that makes the state; `None` until the supervisor asks for another attempt.
    task: Option<Task>,
    waiting: WaitingRequests<HandlerRequest>,
    /// The reason why there is no state; `None` at first.
    cause: Option<String>,
    /// The supervisor has given the server up: calls are refused until there is a state.
    given_up: bool,
    tools: Tools,
}

impl Making {
    /// `limit`: how long calls wait for the state.
    pub(super) fn new(cause: Option<String>, given_up: bool, limit: Duration) -> Self {
        let waiting = WaitingRequests::new(limit);
        Self { task: None, waiting, cause, given_up, tools: Tools::default() }
    }

    /// Arranges that `wake` is called when a call has waited too long.
    pub(super) fn arm(&mut self, wake: impl FnOnce() + Send + 'static) {
        self.waiting.arm(wake);
    }

    fn cause(&self) -> &str {
        self.cause.as_deref().unwrap_or("its state is being made")
    }

    /// The newest waiting call with this JSON-RPC id: older ones belong to older MCP sessions.
    pub(super) fn find(&self, rpc_id: &str) -> Option<(&Answer, &HandlerRequest)> {
        self.waiting.newest_first().find(|(answer, _)| answer.pending().ids().rpc_id() == Some(rpc_id))
    }
}

/// The generation of the next start.
pub(super) fn next_generation(generations: &AtomicU32) -> u32 {
    generations.fetch_add(1, Ordering::AcqRel) + 1
}

async fn make_state(
    spec: Arc<ServerSpec>,
    cx: StateContext,
    myself: ActorRef<ServerMessage>,
    limit: Duration,
) {
    let making = async {
        tokio::time::timeout(limit, spec.make_states(cx))
            .await
            .unwrap_or_else(|_| Err(format!("its state was not made within {limit:?}")))
    };
    // A late or failed factory leaves values of the application to drop here, and their drop may panic.
    let made = AssertUnwindSafe(making).catch_unwind().await.unwrap_or_else(|panic| {
        Err(format!("what its factories left behind panicked when it was dropped: {}", panic_text(&*panic)))
    });
    // Fails only if the actor has ended.
    myself.cast(ServerMessage::StateMade(made)).ok();
}

impl ServerState {
    /// Starts making a state for this generation.
    pub(super) fn make(&mut self) {
        let limit = self.shared.options().timeouts.server_restart;
        let Serving::Making(making) = &mut self.serving else { return };
        let cx = StateContext {
            identity: self.shared.identity.clone(),
            server: self.inside.spec.name.as_str().into(),
            generation: self.generation,
            restart_cause: making.cause.as_deref().map(Arc::from),
        };
        making.task = Some(Task::spawn(make_state(self.inside.spec.clone(), cx, self.myself.clone(), limit)));
        // A server that was given up counts as restarted only when it has a state.
        if let Some(cause) = making.cause.clone().filter(|_| !making.given_up) {
            self.restarted(cause);
        }
    }

    /// Makes the state again, because the supervisor asks for another attempt.
    pub(super) fn make_again(&mut self) {
        if matches!(&self.serving, Serving::Making(Making { task: None, .. })) {
            self.generation = next_generation(&self.inside.generations);
            self.make();
        }
    }

    /// Replaces a state that too many panics may have corrupted. Calls in flight keep their state.
    pub(super) fn renew(&mut self, cause: String) {
        let Serving::Ready(instance) = std::mem::replace(&mut self.serving, Serving::Ended) else { return };
        let mut making = Making::new(Some(cause), false, self.shared.options().timeouts.server_restart);
        making.tools = instance.retire();
        self.serving = Serving::Making(making);
        // Panics of calls on the old state no longer count.
        self.panics.clear();
        self.generation = next_generation(&self.inside.generations);
        self.make();
    }

    fn restarted(&self, cause: String) {
        self.shared.counting.server_restarts.one();
        let (server, generation) = (self.inside.spec.name.clone(), self.generation);
        self.shared.emit(Event::ServerRestarted { server, cause, generation });
    }

    pub(super) fn state_made(&mut self, made: Result<Vec<AnyState>, String>) {
        let Serving::Making(making) = &mut self.serving else { return };
        let (server, generation) = (self.inside.spec.name.clone(), self.generation);
        let states = match made {
            Ok(states) => states,
            Err(cause) => {
                making.task = None;
                making.cause = Some(cause.clone());
                return self.shared.tell(Internal::StateFailed { server, generation, cause });
            }
        };
        let (waiting, tools) = (making.waiting.take(), std::mem::take(&mut making.tools));
        let (cause, given_up) = (making.cause.take(), making.given_up);
        let instance = Instance::new(tools, self.session.lists(), states, self.inside.blocking.clone());
        self.serving = Serving::Ready(instance);
        self.shared.tell(Internal::ServerServes { server, generation });
        if let Some(cause) = cause.filter(|_| given_up) {
            self.restarted(cause);
        }
        for (answer, asked) in waiting {
            match asked {
                HandlerRequest::Call(named, arguments) => self.call(answer, named, arguments),
                HandlerRequest::Run(run) => self.run(answer, run),
            }
        }
        self.handlers.flush();
        self.arm();
    }

    /// Refuses the waiting calls, because the supervisor has given the server up.
    pub(super) fn give_up(&mut self, cause: String) {
        let Serving::Making(making) = &mut self.serving else { return };
        (making.given_up, making.cause) = (true, Some(cause));
        for (answer, _) in making.waiting.take() {
            if answer.pending().is_open() {
                self.refuse_failed(&answer);
            }
        }
    }

    fn refuse_failed(&self, answer: &Answer) {
        let Serving::Making(making) = &self.serving else { return };
        let text = format!("MCP server '{}' has failed: {}", self.inside.spec.name, making.cause());
        answer.pending().refuse(&RpcError::internal(text));
    }

    /// Queues a call until there is a state.
    pub(super) fn not_ready(&mut self, answer: Answer, asked: HandlerRequest) {
        // In an ended server the drop of the answer answers the call.
        let Serving::Making(making) = &mut self.serving else { return };
        if making.given_up {
            return self.refuse_failed(&answer);
        }
        if !answer.pending().is_open() {
            // Cancelled or withdrawn before it arrived here.
            return;
        }
        making.waiting.push(answer, asked);
    }

    /// Refuses the calls that have waited too long for the state.
    pub(super) fn refuse_late(&mut self, now: Instant) {
        let Serving::Making(making) = &mut self.serving else { return };
        let late = making.waiting.take_expired(now);
        let (name, limit, cause) = (&self.inside.spec.name, making.waiting.limit(), making.cause());
        for answer in late.iter().filter(|answer| answer.pending().is_open()) {
            let text = format!("MCP server '{name}' was not ready within {limit:?}: {cause}");
            answer.pending().refuse(&RpcError::internal(text));
        }
    }

    pub(super) fn status(&self) -> ServerStatus {
        match &self.serving {
            Serving::Making(making) if making.given_up => ServerStatus::Failed(making.cause().to_owned()),
            Serving::Making(Making { cause: Some(_), .. }) | Serving::Ended => ServerStatus::Restarting,
            Serving::Making(_) | Serving::Ready(_) => ServerStatus::Up,
        }
    }
}
