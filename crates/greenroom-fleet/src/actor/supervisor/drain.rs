//! The end of a fleet.
//!
//! ```text
//!  Names: idle sessions end at once, running turns may end
//!    │ no name is left ─────────────────────────────┐
//!    ▼ a third of the time is left, at most 5 s     │
//!  Cut: sessions are killed, and turns are cut off  ▼
//!    └─────────────────────────────────────────► Leave: the node leaves its backend ──► the supervisor ends
//! ```

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{FleetMessage, FleetState};
use crate::actor::admitter::AdmitterMessage;
use crate::actor::name::NameMessage;
use crate::actor::retry::{NotDone, repeat};
use crate::actor::task::{Task, spawn};
use crate::backend::Requests;
use crate::event::{FleetEnd, FleetEvent};

/// The time that is kept for sessions whose turn is cut off, at most.
const CUT: Duration = Duration::from_secs(5);

/// A drain in progress.
#[derive(Default)]
pub(super) struct Draining {
    /// `None` until the drain has begun.
    deadline: Option<Instant>,
    done: Vec<oneshot::Sender<()>>,
    timers: Option<Task>,
    /// The node is leaving.
    leaving: Option<Task>,
}

impl FleetState {
    /// Takes no more prompts, and ends all sessions by the deadline. The first deadline counts, unless a later call has an
    /// earlier one.
    pub(super) fn drain(&mut self, deadline: Instant, done: Option<oneshot::Sender<()>>) {
        let draining = self.draining.get_or_insert_default();
        draining.done.extend(done);
        if draining.leaving.is_some() || draining.deadline.is_some_and(|earlier| earlier <= deadline) {
            return;
        }
        let is_new = draining.deadline.replace(deadline).is_none();
        let left = deadline.saturating_duration_since(Instant::now());
        let kept = (left / 3).min(CUT);
        let myself = self.myself.clone();
        draining.timers = Some(spawn(async move {
            let cut = FleetMessage::Cut { grace: kept / 4 };
            for (before, step) in [(kept, cut), (Duration::ZERO, FleetMessage::Over)] {
                tokio::time::sleep_until(deadline - before).await;
                // An error: the fleet has ended.
                myself.cast(step).ok();
            }
        }));
        if is_new {
            self.shared.draining.cancel();
            self.shared.tell(FleetEvent::Draining);
            self.admission.send(AdmitterMessage::Drain);
            self.tell_names(|| NameMessage::End);
        }
        self.check_drained();
    }

    fn tell_drained(&self) {
        let has_lost = self.shared.lost.is_cancelled();
        self.tell_end(if has_lost { FleetEnd::Failed } else { FleetEnd::Drained });
    }

    /// The drain is over.
    pub(super) fn drained(&mut self) {
        self.tell_drained();
        // Dropped: that tells the callers.
        self.draining.iter_mut().for_each(|draining| draining.done.clear());
        self.myself.stop(None);
    }

    /// The node has lost its lease: its sessions end at once, and nothing is written.
    pub(super) fn fence(&mut self) {
        tracing::error!("the fleet's node has lost its lease, and ends its sessions");
        self.shared.tell(FleetEvent::LeaseLost { node: self.shared.node });
        self.names.values().for_each(|child| child.cell.kill().cancel());
        self.tell_names(|| NameMessage::End);
        self.drain(Instant::now() + self.shared.limits.drain, None);
    }

    /// Leaves the backend, once no name is left.
    pub(super) fn check_drained(&mut self) {
        if self.draining.is_none() || !self.names.is_empty() || self.left() {
            return;
        }
        // Before the node leaves: a renewal that comes too late is no loss of the lease.
        self.tell_drained();
        let Some(draining) = &mut self.draining else { return };
        let (shared, myself) = (self.shared.clone(), self.myself.clone());
        draining.leaving = Some(spawn(async move {
            match repeat(&shared, || shared.backend.leave(shared.node)).await {
                Ok(()) => shared.tell(FleetEvent::Left { node: shared.node }),
                // Every session has ended, and nothing is written for it.
                Err(NotDone::Fenced) => super::leave(&shared).await,
                Err(NotDone::Error(error)) => {
                    tracing::warn!(%error, "the fleet's node could not leave; its lease runs out");
                }
            }
            // An error: the fleet has ended.
            myself.cast(FleetMessage::Over).ok();
        }));
    }

    /// Whether the fleet has ended but for its own actors.
    pub(super) fn left(&self) -> bool {
        self.draining.as_ref().is_some_and(|draining| draining.leaving.is_some())
    }
}
