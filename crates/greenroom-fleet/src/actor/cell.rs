//! The holdings of a name (slot, ownership, session, user of the system) are kept outside of its actor: an actor that fails leaves them to be given back.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use greenroom::Session;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::cli_turns::CliTurnQueue;
use super::name::steps::losses::{Loss, Losses};
use crate::health::Membership;
use crate::id::{AttemptId, Name, PromptId};
use crate::lock::locked;
use crate::record::{Credential, QuestionRecord};
use crate::request::Ownership;
use crate::users::HeldUser;

/// A name that is not passive.
pub(crate) struct NameCell {
    pub(crate) name: Name,
    holdings: Mutex<Holdings>,
    /// Tells that a turn has begun.
    begins: Notify,
    /// The steps that run. A step goes on when the actor fails.
    pub(crate) steps: TaskTracker,
}

/// The stage of a name's actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StageKind {
    Settled,
    Waiting,
    Activating,
    Held,
    Backoff,
    Idle,
    Running,
    Passivating,
}

impl StageKind {
    /// The word for the stage in a snapshot.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Waiting => "waiting",
            Self::Activating => "activating",
            Self::Held => "held",
            Self::Backoff => "backoff",
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Passivating => "passivating",
        }
    }
}

/// The slot, the ownership, the session and the user of a name.
#[derive(Default)]
pub(crate) struct Holdings {
    /// The actor was woken, and has not looked at its queue since.
    is_dirty: bool,
    /// The slot of this admission.
    pub(crate) slot: bool,
    /// The profile of the name, once its record was read.
    pub(crate) profile: Option<String>,
    /// The credential of its session, or of the next one, once its record was read.
    pub(crate) credential: Option<Credential>,
    /// The claim that is under way, or that has made this node the owner.
    pub(crate) claim: Option<AttemptId>,
    pub(crate) owner: Option<Ownership>,
    pub(crate) session: Option<Session>,
    /// The turns that the session's CLI has begun by itself.
    pub(crate) cli_turns: Option<Arc<CliTurnQueue>>,
    /// The session has resumed its conversation, and the model has not answered since.
    pub(crate) woken: bool,
    /// The user of the system that the session's CLI runs as, if the fleet has a pool of users.
    pub(crate) user: Option<HeldUser>,
    /// The prompt of the running turn.
    pub(crate) running: Option<PromptId>,
    /// The question about the call with which the session goes on, until its CLI gets the decision.
    pub(crate) resumes: Option<ResumedCall>,
    /// The stage of the name's actor, and its beginning, for snapshots. `None`: the actor has just started.
    pub(crate) stage: Option<(StageKind, Instant)>,
    /// The losses of the session's transcript, if the backend keeps it.
    pub(crate) losses: Option<Arc<Losses>>,
    /// Cancelled when the session is to end at once.
    kill: CancellationToken,
    /// Another owner has the name: nothing more is written.
    is_fenced: bool,
    /// The fleet has no more time: the running turn goes on elsewhere if it can. Otherwise it has this time to tell its cost.
    pub(crate) cut: Option<Duration>,
}

/// The question about a call with which a session goes on.
#[derive(Clone)]
pub(crate) struct ResumedCall {
    pub(crate) question: QuestionRecord,
    /// Cancelled when the turn has begun.
    pub(crate) begun: CancellationToken,
}

impl NameCell {
    pub(crate) fn new(name: Name) -> Arc<Self> {
        let holdings = Holdings { is_dirty: true, ..Holdings::default() };
        Arc::new(Self { name, holdings: holdings.into(), begins: Notify::new(), steps: TaskTracker::new() })
    }

    /// The holdings, locked. Drop the guard before an `await`.
    pub(crate) fn holdings(&self) -> MutexGuard<'_, Holdings> {
        locked(&self.holdings)
    }

    /// The profile of a name whose record was read.
    pub(crate) fn profile(&self) -> String {
        self.holdings().profile.clone().unwrap_or_default()
    }

    /// The profile, the tenant and the credential of a name. `None`: its record was not read.
    pub(crate) fn membership(&self) -> Option<Membership> {
        let holdings = self.holdings();
        let (profile, credential) = holdings.profile.clone().zip(holdings.credential.clone())?;
        Some(Membership { profile, tenant: self.name.tenant().clone(), credential })
    }

    /// Cancel this to end the session of the current activation at once.
    pub(crate) fn kill(&self) -> CancellationToken {
        self.holdings().kill.clone()
    }

    /// A new activation begins.
    pub(crate) fn renew_kill(&self) {
        let mut holdings = self.holdings();
        (holdings.kill, holdings.is_fenced, holdings.losses) = (CancellationToken::new(), false, None);
        (holdings.cli_turns, holdings.resumes) = (None, None);
    }

    /// The name has no owner here any more, and no claim is under way.
    pub(crate) fn disown(&self) {
        let mut holdings = self.holdings();
        (holdings.claim, holdings.owner) = (None, None);
    }

    /// Another owner has the name: the session ends at once, and nothing more is written.
    pub(crate) fn fence(&self) {
        self.holdings().is_fenced = true;
        self.kill().cancel();
    }

    /// The fleet has no more time: the session ends at once, but for the time that a turn has to tell its cost.
    pub(crate) fn cut(&self, grace: Duration) {
        self.holdings().cut = Some(grace);
        self.kill().cancel();
    }

    /// True if another owner has the name.
    pub(crate) fn is_fenced(&self) -> bool {
        self.holdings().is_fenced
    }

    /// True if the name's actor is in this stage.
    pub(crate) fn is_in(&self, stage: StageKind) -> bool {
        self.holdings().stage.is_some_and(|(is, _)| is == stage)
    }

    /// The first loss of the session's transcript, if the backend keeps transcripts.
    pub(crate) async fn loss(&self) -> Option<Loss> {
        let losses = self.holdings().losses.clone()?;
        losses.first().await
    }

    /// The turn of a prompt has begun: a CLI that asks about its call again gets the decision.
    pub(crate) fn begun(&self, prompt: PromptId) {
        let mut holdings = self.holdings();
        holdings.running = Some(prompt);
        let resumed = holdings.resumes.iter().filter(|resumed| resumed.question.prompt == prompt);
        resumed.for_each(|resumed| resumed.begun.cancel());
        drop(holdings);
        self.begins.notify_waiters();
    }

    /// The turn that runs, as soon as one has begun.
    pub(crate) async fn runs(&self) -> PromptId {
        loop {
            let begins = self.begins.notified();
            let running = self.holdings().running;
            match running {
                Some(running) => return running,
                None => begins.await,
            }
        }
    }

    /// The turn of a prompt runs no more. Its CLI may not have asked about its call: the tool may be gone.
    pub(crate) fn ended(&self, prompt: PromptId) {
        let mut holdings = self.holdings();
        holdings.running = None;
        holdings.resumes.take_if(|resumed| resumed.question.prompt == prompt);
    }

    /// The session, if it runs a turn, and the turn of this prompt if one is given.
    pub(crate) fn in_turn(&self, prompt: Option<PromptId>) -> Option<Session> {
        let holdings = self.holdings();
        let running = holdings.running?;
        holdings.session.clone().filter(|_| prompt.is_none_or(|prompt| prompt == running))
    }

    /// Notes that there may be something to do. `false`: that was noted before, and the actor has not looked since.
    pub(crate) fn mark(&self) -> bool {
        !std::mem::replace(&mut self.holdings().is_dirty, true)
    }

    /// Notes that the actor looks now.
    pub(crate) fn look(&self) {
        self.holdings().is_dirty = false;
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.holdings().is_dirty
    }
}
