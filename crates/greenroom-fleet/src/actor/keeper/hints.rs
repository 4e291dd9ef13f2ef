//! Hints for duties, and names that were hinted at.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use ractor::ActorRef;

use super::KeeperMessage;
use super::duty::{Duty, locked};
use crate::id::Name;

/// Names that are remembered between two steps. With more of them the next step looks at all that waits.
const NAMES: usize = 256;

/// Duties that were hinted at and have not heard it: a further hint of such a duty is dropped.
#[derive(Default)]
pub(crate) struct HintedDuties([AtomicBool; Duty::ALL.len()]);

impl HintedDuties {
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
        let mut hinted = locked(&self.0);
        if hinted.names.len() < NAMES {
            hinted.names.insert(name);
        } else {
            hinted.all = true;
        }
    }

    /// Says that names are missing.
    pub(super) fn lost(&self) {
        locked(&self.0).all = true;
    }

    pub(super) fn take(&self) -> Hinted {
        std::mem::take(&mut *locked(&self.0))
    }
}
