//! Report the state of the tree.

use std::sync::Arc;

use futures_util::future::join_all;
use ractor::{ActorRef, RpcReplyPort};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::stopping::StopStep;
use super::{SessionStage, SupervisorState};
use crate::actor::base::deadlines::{after, millis};
use crate::actor::base::reply::respond;
use crate::actor::context::Shared;
use crate::actor::current_cli::Flush;
use crate::actor::messages::children::{CallbacksMessage, ServerMessage};
use crate::actor::messages::conversation::ConversationMessage;
use crate::actor::messages::router::RouterMessage;
use crate::actor::request::pending::PendingRequest;
use crate::error::Result;
use crate::plain::short;
use crate::report::{ConversationSnapshot, Phase, RequestSnapshot, RouterSnapshot, Snapshot};

impl SupervisorState {
    /// Asks all children on a task of its own, at most for `Timeouts::child_stop`, and answers with what came in time.
    pub(super) fn snapshot(&mut self, reply: RpcReplyPort<Result<Snapshot>>) {
        let phase = match &self.stage {
            SessionStage::Starting => Phase::Starting,
            SessionStage::Ready => Phase::Ready,
            SessionStage::Recovering => Phase::Recovering,
            SessionStage::Stopping { step: StopStep::Drain, .. } => Phase::Draining,
            SessionStage::Stopping { .. } => Phase::Stopping,
        };
        let shared = self.shared.clone();
        let limit = shared.options().timeouts.child_stop;
        // All children share one deadline, because the conversation is asked after the flush of its messages.
        let (flushed, deadline) = (after(Instant::now(), limit / 2), after(Instant::now(), limit));
        let cli = self.cli.port.is_up().then(|| shared.cli.snapshot(self.cli.epoch()));
        let (cli, flush) = cli.map_or((None, None), |(cli, flush)| (Some(cli), flush));
        let conversation = self.conversation.actor().cloned();
        let (router, callbacks) = (self.router.actor.actor().cloned(), self.callbacks.actor.actor().cloned());
        let servers: Vec<_> = self
            .servers
            .children
            .iter()
            .map(|server| (server.actor.actor().cloned(), server.absent()))
            .collect();
        self.errand(async move {
            let servers = servers.into_iter().map(|(actor, absent)| async move {
                inspect(deadline, actor, ServerMessage::Snapshot).await.unwrap_or(absent)
            });
            let (conversation, router, callbacks, servers) = tokio::join!(
                flushed_conversation(flush, conversation, flushed, deadline),
                inspect(deadline, router, RouterMessage::Snapshot),
                inspect(deadline, callbacks, CallbacksMessage::Snapshot),
                join_all(servers),
            );
            let router = router.map(|awaited| RouterSnapshot { owed: owed(&shared), awaited });
            let (session_id, resumed) = {
                let facts = shared.facts.borrow();
                (facts.session_id.clone(), facts.resumed)
            };
            let snapshot = Snapshot {
                phase,
                age_ms: millis(shared.started.elapsed()),
                session_id,
                resumed,
                cli,
                conversation,
                router,
                servers,
                callbacks,
                counters: shared.counting.read(),
            };
            respond(reply, Ok(snapshot));
        });
    }
}

/// The open requests of the CLI.
fn owed(shared: &Shared) -> Vec<RequestSnapshot> {
    let now = Instant::now();
    let request = |pending: &Arc<PendingRequest>| RequestSnapshot {
        request_id: short(pending.request_id()),
        kind: pending.kind.as_str(),
        epoch: pending.epoch(),
        age_ms: millis(now.duration_since(pending.received)),
    };
    shared.ledger.open().iter().map(request).collect()
}

/// Asks the conversation when it was told all that was read before.
async fn flushed_conversation(
    flush: Option<Flush>,
    conversation: Option<ActorRef<ConversationMessage>>,
    flushed: Instant,
    deadline: Instant,
) -> Option<ConversationSnapshot> {
    if let Some(flush) = flush {
        let (done, told) = oneshot::channel();
        flush(done);
        // Messages that take longer are missing in the snapshot.
        tokio::time::timeout_at(flushed, told).await.ok();
    }
    inspect(deadline, conversation, ConversationMessage::Snapshot).await
}

/// Asks a child for its snapshot; `None` if the child is down or does not answer in time.
async fn inspect<M: ractor::Message, S>(
    deadline: Instant,
    actor: Option<ActorRef<M>>,
    message: impl FnOnce(oneshot::Sender<S>) -> M,
) -> Option<S> {
    let (reply, answer) = oneshot::channel();
    actor?.cast(message(reply)).ok()?;
    tokio::time::timeout_at(deadline, answer).await.ok()?.ok()
}
