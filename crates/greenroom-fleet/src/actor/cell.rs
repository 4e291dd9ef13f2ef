//! The holdings of a name (slot, ownership, session) are kept outside of its actor: an actor that fails leaves them to be given back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use greenroom::Session;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::name::steps::losses::Losses;
use crate::id::{AttemptId, Name, PromptId};
use crate::request::Ownership;

/// A name that is not passive.
pub(crate) struct NameCell {
    pub(crate) name: Name,
    holdings: Mutex<Holdings>,
    /// The actor was woken, and has not looked at its queue since.
    dirty: AtomicBool,
    /// The steps that run. A step goes on when the actor fails.
    pub(crate) steps: TaskTracker,
}

/// The slot, the ownership and the session of a name.
#[derive(Default)]
pub(crate) struct Holdings {
    /// The slot of this admission.
    pub(crate) slot: bool,
    pub(crate) tenant: String,
    /// The claim that is under way, or that has made this node the owner.
    pub(crate) claim: Option<AttemptId>,
    pub(crate) owner: Option<Ownership>,
    pub(crate) session: Option<Session>,
    pub(crate) running: RunningTurn,
    /// The stage of the name's actor, and its beginning, for snapshots. `None`: the actor has just started.
    pub(crate) stage: Option<(&'static str, Instant)>,
    /// The losses of the session's transcript, if the backend keeps it.
    pub(crate) losses: Option<Arc<Losses>>,
    /// Cancelled when the backend has refused an entry, because another owner has the name.
    fenced: CancellationToken,
    /// Cancelled when the session is to end at once.
    kill: CancellationToken,
    /// Cancelled when the running turn is to be cut off, because the fleet has no more time.
    cut: CancellationToken,
}

impl NameCell {
    pub(crate) fn new(name: Name) -> Arc<Self> {
        let (holdings, dirty) = (Mutex::default(), AtomicBool::new(true));
        Arc::new(Self { name, holdings, dirty, steps: TaskTracker::new() })
    }

    /// The holdings, locked. Drop the guard before an `await`.
    pub(crate) fn holdings(&self) -> MutexGuard<'_, Holdings> {
        self.holdings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancel this to end the session of the current activation at once.
    pub(crate) fn kill(&self) -> CancellationToken {
        self.holdings().kill.clone()
    }

    /// Cancel this to cut off the running turn.
    pub(crate) fn cut(&self) -> CancellationToken {
        self.holdings().cut.clone()
    }

    /// A new turn begins.
    pub(crate) fn renew_cut(&self) -> CancellationToken {
        let cut = CancellationToken::new();
        self.holdings().cut = cut.clone();
        cut
    }

    /// A new activation begins.
    pub(crate) fn renew_kill(&self) {
        let mut holdings = self.holdings();
        (holdings.kill, holdings.fenced) = (CancellationToken::new(), CancellationToken::new());
        holdings.losses = None;
    }

    /// The name has no owner here any more, and no claim is under way.
    pub(crate) fn disown(&self) {
        let mut holdings = self.holdings();
        (holdings.claim, holdings.owner) = (None, None);
    }

    /// Cancelled when another owner has the name.
    pub(crate) fn fenced(&self) -> CancellationToken {
        self.holdings().fenced.clone()
    }

    /// Another owner has the name: the session is to end at once, and nothing more is written.
    pub(crate) fn fence(&self) {
        let (fenced, kill) = (self.fenced(), self.kill());
        fenced.cancel();
        kill.cancel();
    }

    /// The losses of the session's transcript; `None` if the backend keeps no transcripts.
    pub(crate) fn losses(&self) -> Option<Arc<Losses>> {
        self.holdings().losses.clone()
    }

    /// Notes that there may be something to do. `false`: that was noted before, and the actor has not looked since.
    pub(crate) fn mark(&self) -> bool {
        !self.dirty.swap(true, Ordering::AcqRel)
    }

    /// Notes that the actor looks now.
    pub(crate) fn look(&self) {
        self.dirty.store(false, Ordering::Release);
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }
}

/// The turn that runs in an activation. It is shared with whatever asks people for the session.
#[derive(Clone, Default)]
pub(crate) struct RunningTurn(Arc<Mutex<Option<PromptId>>>);

impl RunningTurn {
    /// The prompt of the running turn.
    pub(crate) fn get(&self) -> Option<PromptId> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, prompt: Option<PromptId>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = prompt;
    }
}
