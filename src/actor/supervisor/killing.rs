//! Kill a session: end it at once, from whatever state it is in.
//!
//! `Ending::killed` is the signal. Each part that waits for something watches it, so that a kill needs no free mailbox:
//! the incarnation kills its processes, the mirror ends its append, and handlers lose their grace time. The supervisor
//! then takes the usual steps of stopping, without the drain and with shorter limits.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ractor::ActorRef;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::stopping::StopStep;
use super::{Handled, SessionStage, SupervisorState};
use crate::actor::context::Shared;
use crate::actor::messages::session::SessionMessage;
use crate::error::{Error, ErrorKind, Result};

/// Kills one session from before its start on: see [`SessionBuilder::kill_switch`](crate::SessionBuilder::kill_switch).
#[derive(Clone)]
pub struct KillSwitch {
    killed: CancellationToken,
    target: Arc<watch::Sender<KillTarget>>,
}

/// The way of a builder to its session.
#[derive(Clone)]
enum KillTarget {
    NotStarted,
    /// `start` has been called, and there is no actor yet.
    Starting,
    /// The session has its actor, which may have ended.
    Started {
        shared: Weak<Shared>,
        actor: ActorRef<SessionMessage>,
    },
    /// The start has failed or was given up.
    Over,
}

impl KillSwitch {
    pub(crate) fn new() -> Self {
        Self { killed: CancellationToken::new(), target: Arc::new(watch::channel(KillTarget::NotStarted).0) }
    }

    /// Kills the session as [`Session::kill`](crate::Session::kill) does, and returns when nothing of it is left. A
    /// start that is under way fails with [`Stopped`](crate::ErrorKind::Stopped), and so does a start that comes later.
    ///
    /// While the start has no CLI yet, for example because it loads the conversation from a store, this waits until the
    /// future of [`start`](crate::SessionBuilder::start) has returned or was dropped: do not await both in turn on one
    /// task.
    pub async fn kill(&self) {
        self.killed.cancel();
        let mut progress = self.target.subscribe();
        // Cannot fail: this switch holds the sender.
        let progress = progress.wait_for(|now| !matches!(now, KillTarget::Starting)).await;
        let Ok(KillTarget::Started { shared, actor }) = progress.map(|progress| progress.clone()) else {
            return;
        };
        if let Some(shared) = shared.upgrade() {
            shared.kill();
        }
        let (reply, _) = oneshot::channel();
        // An actor that has ended needs no message, and without a limit the wait cannot fail.
        actor.cast(SessionMessage::Kill(reply.into())).ok();
        actor.wait(None).await.ok();
    }

    /// Begins the start of the session.
    pub(crate) fn starts(&self) -> StartGuard {
        self.target.send_replace(KillTarget::Starting);
        StartGuard(self.clone())
    }

    pub(crate) fn token(&self) -> CancellationToken {
        self.killed.clone()
    }
}

impl fmt::Debug for KillSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KillSwitch").field("killed", &self.killed.is_cancelled()).finish_non_exhaustive()
    }
}

/// The start of a session, up to its actor. Dropping it tells the switch that there will be no session.
pub(crate) struct StartGuard(KillSwitch);

impl StartGuard {
    /// Runs a step of the start.
    ///
    /// # Errors
    /// [`ErrorKind::Stopped`] as soon as the session is killed; the step is dropped.
    pub(crate) async fn step<T>(&self, step: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            () = self.0.killed.cancelled() => {
                Err(Error::new(ErrorKind::Stopped, "the session was killed while it started"))
            }
            done = step => done,
        }
    }

    /// The session has its actor.
    pub(crate) fn started(self, shared: &Arc<Shared>, actor: &ActorRef<SessionMessage>) {
        let started = KillTarget::Started { shared: Arc::downgrade(shared), actor: actor.clone() };
        self.0.target.send_replace(started);
    }
}

impl Drop for StartGuard {
    fn drop(&mut self) {
        self.0.target.send_if_modified(|progress| {
            let given_up = matches!(progress, KillTarget::Starting);
            if given_up {
                *progress = KillTarget::Over;
            }
            given_up
        });
    }
}

impl Shared {
    /// Fences the session from this moment on: no prompt is accepted, no turn completes, and neither the CLI nor the
    /// store gets anything more. The supervisor ends what is left.
    pub(crate) fn kill(&self) {
        self.ending.refuse_prompts();
        self.ending.killed.cancel();
        if let Some(outbound) = self.cli.outbound() {
            outbound.end();
        }
    }
}

impl SupervisorState {
    /// Ends the session at once. A stop that is under way is shortened.
    pub(super) async fn kill(&mut self) -> Handled {
        // Done already, unless the message came from a program that holds the session's actor alone.
        self.shared.kill();
        let SessionStage::Stopping { killed, step, number, .. } = &mut self.stage else {
            return self.begin_stop(StopStep::Cli, None).await;
        };
        let (step, number) = (*step, *number);
        if std::mem::replace(killed, true) {
            return Ok(());
        }
        if step == StopStep::Drain {
            return self.next_step().await;
        }
        self.limit_step(number, self.kill_limit(step));
        Ok(())
    }

    /// The limit of a step of a session that is killed; `Timeouts::kill_bound` adds the limits up.
    pub(super) fn kill_limit(&self, step: StopStep) -> Duration {
        let timeouts = &self.shared.options().timeouts;
        match step {
            // A process that is on its way is waited for, then its end, and then the answer of what is left.
            StopStep::Cli => timeouts.reap * 2 + timeouts.child_stop * 2,
            _ => timeouts.child_stop,
        }
    }
}
