//! Kill a session: end it at once, from whatever state it is in.
//!
//! `Shared::killed` is the signal. Each part that waits for something watches it, so that a kill needs no free mailbox:
//! the incarnation kills its processes, the mirror ends its append, and handlers lose their grace time. The supervisor
//! then takes the usual steps of stopping, without the drain and with shorter limits.

use std::time::Duration;

use super::stopping::StopStep;
use super::{Handled, SessionStage, SupervisorState};
use crate::actor::context::Shared;

impl Shared {
    /// Fences the session from this moment on: no prompt is accepted, no turn completes, and neither the CLI nor the
    /// store gets anything more. The supervisor ends what is left.
    pub(crate) fn kill(&self) {
        self.refuse_prompts();
        self.killed.cancel();
        if let Some(mirror) = self.mirror() {
            mirror.fence();
        }
        if let Some(outbound) = self.outbound() {
            outbound.end();
        }
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.is_cancelled()
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
            // A process that is on its way is waited for, and then its end.
            StopStep::Cli => timeouts.reap * 2 + timeouts.child_stop,
            _ => timeouts.child_stop,
        }
    }
}
