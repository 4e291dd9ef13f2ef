//! Changes that the backend tells, as hints for duties.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ractor::ActorRef;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::KeeperMessage;
use super::duty::Duty;
use super::steps::KeeperContext;
use crate::id::Name;
use crate::request::{Change, Transition};

/// Names that are remembered between two steps. With more of them the next step looks at all that waits.
const NAMES: usize = 256;

/// Duties that were hinted at and have not heard it: a further hint of such a duty is dropped.
#[derive(Default)]
pub(crate) struct Hints([AtomicBool; Duty::ALL.len()]);

impl Hints {
    pub(super) fn tell(&self, duty: Duty, keeper: &ActorRef<KeeperMessage>) {
        if !self.0[duty as usize].swap(true, Ordering::AcqRel) {
            // An error: the keeper has ended.
            keeper.cast(KeeperMessage::Due(duty)).ok();
        }
    }

    /// The duty runs from now on, so a further hint is news.
    pub(super) fn heard(&self, duty: Duty) {
        self.0[duty as usize].store(false, Ordering::Release);
    }
}

/// Names for which something may wait.
#[derive(Debug, Default)]
pub(super) struct HintedNames(Mutex<Hinted>);

#[derive(Debug, Default)]
pub(super) struct Hinted {
    pub(super) names: HashSet<Name>,
    /// Names are missing.
    pub(super) all: bool,
}

impl HintedNames {
    pub(super) fn add(&self, name: Name) {
        let mut hinted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if hinted.names.len() < NAMES {
            hinted.names.insert(name);
        } else {
            hinted.all = true;
        }
    }

    /// Says that names are missing.
    pub(super) fn lost(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).all = true;
    }

    pub(super) fn take(&self) -> Hinted {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Turns changes into hints until the backend ends.
pub(super) async fn listen(
    mut changes: broadcast::Receiver<Change>,
    context: Arc<KeeperContext>,
    hints: Arc<Hints>,
    keeper: ActorRef<KeeperMessage>,
) {
    loop {
        let duties: &[Duty] = match changes.recv().await {
            Ok(Change::Queued(name)) => {
                context.hinted.add(name);
                &[Duty::Wake, Duty::Expire]
            }
            Ok(Change::Freed(name)) => {
                context.hinted.add(name);
                &[Duty::Wake]
            }
            Ok(Change::Asked(_)) => &[Duty::Expire],
            Ok(_) => &[],
            Err(RecvError::Lagged(_)) => {
                context.hinted.lost();
                &[Duty::Wake, Duty::Expire]
            }
            Err(RecvError::Closed) => return,
        };
        for duty in duties {
            hints.tell(*duty, &keeper);
        }
    }
}

/// Tells the application each transition soon after it was made, until the backend ends.
pub(super) async fn tell_transitions(mut made: broadcast::Receiver<Transition>, context: Arc<KeeperContext>) {
    while !matches!(made.recv().await, Err(RecvError::Closed)) {
        context.shared.tell_transitions();
    }
}
