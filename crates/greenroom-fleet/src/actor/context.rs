//! The state that all actors and handles of a fleet share.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use backon::{ConstantBuilder, Retryable};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admitter::AdmissionLink;
use super::cell::NameCell;
use crate::access::Authoriser;
use crate::actor::metrics::Metrics;
use crate::backend::{Backend, Reply, Requests};
use crate::error::{BackendError, BackendErrorKind};
use crate::event::{FleetEnd, FleetEvent};
use crate::fence::Fence;
use crate::files::Folders;
use crate::health::{Failure, Membership, NodeHealth, Try};
use crate::hub::Hub;
use crate::id::{Name, NodeId, Tenant};
use crate::limits::{FleetLimits, Quotas};
use crate::lock::locked;
use crate::pages::{all_holds, all_nodes};
use crate::profile::{CredentialOf, Placement, Profile, key_of};
use crate::record::usage::{Usage, Wakes};
use crate::record::{Cause, Credential, NameState, NodeState, ProcessRecord};
use crate::request::Change;
use crate::users::Users;

/// Attempts to carry out a request of the application, and the pause between them.
pub(crate) const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// The time for which a caller waits for an answer of the backend.
const ANSWER: Duration = Duration::from_secs(10);

/// Gives a request up after a while: a backend that hangs counts as unavailable.
pub(crate) async fn within<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, BackendError>>,
) -> Result<T, BackendError> {
    tokio::time::timeout(limit, request).await.unwrap_or_else(|_| {
        let text = format!("the backend has not answered within {limit:?}");
        Err(BackendError::new(BackendErrorKind::Unavailable, text))
    })
}

/// Waits for a hint that something was changed, or that hints were missed, but no longer than the limit.
pub(crate) async fn hint(changes: &mut broadcast::Receiver<Change>, wanted: Change, limit: Duration) {
    let hinted = async {
        loop {
            match changes.recv().await {
                Ok(Change::Missed) | Err(RecvError::Lagged(_)) => return,
                Ok(change) if change == wanted => return,
                Ok(_) => {}
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    };
    // An error: there was no hint.
    tokio::time::timeout(limit, hinted).await.ok();
}

/// The state that all actors and handles of a fleet share.
pub(crate) struct FleetShared {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) limits: FleetLimits,
    pub(crate) quotas: Arc<Quotas>,
    /// Tenants of which a claim was refused because they are at their caps. Admission grants them no further slots here until some are free.
    pub(crate) at_cap: Mutex<HashSet<Tenant>>,
    /// The way to the actor of admission.
    pub(crate) admission: AdmissionLink,
    /// Decides what people may do. `None`: nothing.
    pub(crate) authoriser: Option<Arc<dyn Authoriser>>,
    pub(crate) profiles: HashMap<String, Profile>,
    /// Names the credentials of profiles.
    pub(crate) credentials: HashMap<String, CredentialOf>,
    /// The times after which questions are deferred, of profiles that have times of their own.
    pub(crate) question_holds: HashMap<String, Duration>,
    pub(crate) folders: Folders,
    /// The users of the system that the CLIs run as. `None`: the user of this process.
    pub(crate) users: Option<Users>,
    pub(crate) node: NodeId,
    /// The name of the host.
    pub(crate) host: String,
    /// The hosts on which sessions may run that are created here.
    pub(crate) placement: Placement,
    /// The backend keeps the transcripts. Otherwise each host keeps those of its sessions as files.
    pub(crate) transcripts: bool,
    /// All hosts share the folder of the fleet.
    pub(crate) shares_folder: bool,
    /// The other living nodes, as the keeper has counted them.
    pub(crate) peers: Arc<AtomicU32>,
    /// The names that have an actor here, with what they hold.
    pub(crate) awake: Mutex<HashMap<Name, Arc<NameCell>>>,
    /// The usage of the turns of this node.
    pub(crate) used: Mutex<Usage>,
    /// The first requests of the sessions that were woken here.
    pub(crate) wakes: Mutex<Wakes>,
    /// The counters of this node.
    pub(crate) metrics: Metrics,
    /// Readers of turns that run on this node.
    pub(crate) hub: Hub,
    pub(crate) events: broadcast::Sender<FleetEvent>,
    /// Transitions that the backend has made and the application has not been told. Whoever tells an event next tells them before, so
    /// events come in the order in which they happened. The keeper hears of each one, so none waits for long.
    pub(crate) transitions: Mutex<broadcast::Receiver<FleetEvent>>,
    /// Cancelled when the fleet takes no more prompts.
    pub(crate) draining: CancellationToken,
    /// Cancelled when an operator has asked the node to drain.
    pub(crate) asked_to_drain: CancellationToken,
    /// Cancelled when the node has lost its lease: nothing may be written to a CLI or to the backend any more.
    pub(crate) lost: CancellationToken,
    /// Cancelled when the fleet has ended.
    pub(crate) ended: CancellationToken,
    /// How the fleet has ended. Set before `ended` is cancelled.
    pub(crate) end: OnceLock<FleetEnd>,
    /// Tasks that give back what failed actors held.
    pub(crate) tasks: TaskTracker,
    /// The moment at which the node gives its lease up unless the lease is renewed before.
    pub(crate) fence: Fence,
    /// The causes that keep sessions from running on this node.
    pub(crate) health: NodeHealth,
    /// Locked from the read of holds until the health has learned them, so that no older rows replace newer ones.
    pub(crate) learning: tokio::sync::Mutex<()>,
}

impl FleetShared {
    /// Asks the backend for a caller. A few attempts, because the caller waits for the answer.
    pub(crate) async fn ask<'a, T>(
        &'a self,
        request: impl Fn(&'a dyn Backend) -> Reply<'a, T>,
    ) -> Result<T, BackendError> {
        let pauses =
            ConstantBuilder::default().with_delay(PAUSE).with_max_times(ATTEMPTS as usize - 1).with_jitter();
        (|| within(ANSWER, request(&*self.backend))).retry(pauses).when(BackendError::is_unavailable).await
    }

    /// Tells an event to whoever listens, after the transitions that were made before it.
    pub(crate) fn tell(&self, event: FleetEvent) {
        self.tell_transitions();
        self.send(event);
    }

    /// Tells an event of a name.
    pub(crate) fn tell_of(&self, cell: &NameCell, event: impl FnOnce(Name) -> FleetEvent) {
        self.tell(event(cell.name.clone()));
    }

    /// True if the name or the node's lease is lost: nothing may be written.
    pub(crate) fn is_fenced(&self, cell: &NameCell) -> bool {
        self.lost.is_cancelled() || cell.is_fenced()
    }

    /// Tells the transitions that requests to the backend have made.
    pub(crate) fn tell_transitions(&self) {
        // A panic in between leaves the rest in the channel.
        let mut transitions = locked(&self.transitions);
        loop {
            match transitions.try_recv() {
                Ok(transition) => self.send(transition),
                Err(TryRecvError::Lagged(missed)) => self.send(FleetEvent::TransitionsMissed { missed }),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    /// The credential of a name's session.
    pub(crate) fn credential(&self, name: &Name, profile: &str) -> Credential {
        match self.credentials.get(profile).and_then(|of| key_of(of, name, profile)) {
            Some(name) => Credential::Key { name },
            None => Credential::OfTenant { tenant: name.tenant().clone(), profile: profile.to_owned() },
        }
    }

    /// The profile, the tenant and the credential of a name's session.
    pub(crate) fn membership(&self, name: &Name, profile: &str) -> Membership {
        let (profile, credential) = (profile.to_owned(), self.credential(name, profile));
        Membership { profile, tenant: name.tenant().clone(), credential }
    }

    /// Reads which credentials are held, or whether one is, and tells what has changed.
    pub(crate) async fn learn_holds(&self, of: Option<&Credential>) -> Result<(), BackendError> {
        let _learning = self.learning.lock().await;
        let holds = match of {
            Some(credential) => self.backend.hold(credential.clone()).await?.into_iter().collect(),
            None => all_holds(&*self.backend).await?,
        };
        let events = self.health.learn(of, holds, self.backend.now(), self.node);
        events.into_iter().for_each(|event| self.tell(event));
        Ok(())
    }

    /// Notes that a session of a name could not be started by a cause that is not its own. `false`: the node has too many causes in mind, so
    /// the name has to back off by itself.
    pub(crate) fn failed_by(&self, cause: Cause, why: String, cell: &NameCell, tries: &mut Vec<Try>) -> bool {
        let of = self.membership(&cell.name, &cell.profile());
        let failed = Failure { cause, of, why, since: self.backend.now() };
        let told = self.health.failed(failed, tries, &self.limits);
        told.map(|told| told.into_iter().for_each(|event| self.tell(event))).is_ok()
    }

    /// Notes that a session is up, or with `by_turn` that the model has answered it, in spite of the causes that it has tried.
    pub(crate) fn passed(&self, tries: &mut Vec<Try>, by_turn: bool) {
        self.health.passed(tries, by_turn).into_iter().for_each(|event| self.tell(event));
    }

    fn send(&self, event: FleetEvent) {
        log(&event);
        self.metrics.event(&event);
        // An error: nobody listens.
        self.events.send(event).ok();
    }

    /// True while the node may act for its names.
    pub(crate) fn holds_lease(&self) -> bool {
        !self.lost.is_cancelled() && (self.fence.is_ahead() || self.backend.is_exclusive())
    }

    /// True if the keeper has seen another node.
    pub(crate) fn has_peers(&self) -> bool {
        self.peers.load(Ordering::Relaxed) > 0
    }

    /// True if the fleet has no such profile and another node may have it, for instance while a new version of a service takes
    /// over. A node that is alone tries, so that the missing profile is told as a failure.
    pub(crate) fn leaves_to_others(&self, profile: &str) -> bool {
        self.has_peers() && !self.profiles.contains_key(profile)
    }

    /// Finds the living node that owns a name in place of this one.
    pub(crate) async fn owner_elsewhere(&self, state: &NameState) -> Result<Option<NodeId>, BackendError> {
        match state {
            NameState::Owned { node, .. } if *node != self.node => {
                Ok(self.is_alive(*node).await?.then_some(*node))
            }
            _ => Ok(None),
        }
    }

    /// True if the backend does not count a node as dead.
    pub(crate) async fn is_alive(&self, node: NodeId) -> Result<bool, BackendError> {
        let nodes = self.ask(|backend| Box::pin(all_nodes(backend))).await?;
        Ok(nodes.iter().any(|found| found.id == node && found.state != NodeState::Dead))
    }

    /// The host to which a session that is created here is bound, if its placement says so.
    pub(crate) fn host_of_new(&self) -> Option<String> {
        (self.placement == Placement::OnHost).then(|| self.host.clone())
    }

    /// True if the fleet takes a prompt for a session: it is open, or it drains and another node can run the session.
    ///
    /// A backend that does not answer counts as no other node: a prompt that is refused can be sent again elsewhere.
    pub(crate) async fn takes_prompt(&self, name: &Name) -> bool {
        if !self.draining.is_cancelled() {
            return true;
        }
        let has_ended = self.ended.is_cancelled() || self.lost.is_cancelled();
        !has_ended && !self.backend.is_exclusive() && self.another_node_runs(name).await.unwrap_or(false)
    }

    /// True if a node other than this one holds its lease, takes names, and is on a host on which the session may run.
    async fn another_node_runs(&self, name: &Name) -> Result<bool, BackendError> {
        let record = self.ask(|backend| backend.name_record(name.clone())).await?;
        let host = record.map_or_else(|| self.host_of_new(), |record| record.host);
        let nodes = self.ask(|backend| Box::pin(all_nodes(backend))).await?;
        let now = self.backend.now();
        Ok(nodes.iter().any(|node| {
            node.id != self.node
                && node.state == NodeState::Up
                && now < node.lease_until
                && host.as_ref().is_none_or(|host| *host == node.host)
        }))
    }

    /// The names that have an actor here, locked. Drop the guard before an `await`.
    pub(crate) fn awake(&self) -> MutexGuard<'_, HashMap<Name, Arc<NameCell>>> {
        locked(&self.awake)
    }

    /// The host whose files this node removes. `None`: those of all hosts, because the files of all names are in its folder.
    pub(crate) fn files_of(&self) -> Option<String> {
        (!self.backend.is_exclusive() && !self.shares_folder).then(|| self.host.clone())
    }

    /// True if this node removes the files of a host.
    pub(crate) fn has_files_of(&self, host: &str) -> bool {
        self.files_of().is_none_or(|own| own == host)
    }

    /// True if a process runs on this host. All processes of a backend that only this process can use do, also those that
    /// were written down before the host got another name.
    pub(crate) fn runs_here(&self, process: &ProcessRecord) -> bool {
        self.backend.is_exclusive() || process.host == self.host
    }
}

/// Writes an event to the log: what somebody has to look at louder than the rest.
fn log(event: &FleetEvent) {
    match event {
        FleetEvent::Quarantined { name, kind, why, .. } => {
            tracing::error!(name = shown(name), ?kind, why, "a session is quarantined");
        }
        FleetEvent::ActivationFailed { name, why, cause: None, .. } => {
            tracing::warn!(name = shown(name), why, "a session could not be started");
        }
        FleetEvent::Degraded { cause, credential: Some(credential), until, why, .. } => {
            let (credential, until) = (credential.to_string(), until.map(|until| until.0));
            let credential = credential.escape_debug().to_string();
            tracing::warn!(%cause, credential, until, why, "the API rejects a credential, whose prompts wait");
        }
        FleetEvent::Degraded { cause, profile, tenant, why, .. } => {
            let tenant = tenant.as_ref().map(Tenant::as_str);
            tracing::warn!(%cause, profile, tenant, why, "sessions cannot run on this node, which tries again");
        }
        FleetEvent::Mended { cause, credential: Some(credential), .. } => {
            let credential = credential.to_string().escape_debug().to_string();
            tracing::info!(%cause, credential, "the prompts of a credential run again");
        }
        FleetEvent::Mended { cause, profile, tenant, .. } => {
            let tenant = tenant.as_ref().map(Tenant::as_str);
            tracing::info!(%cause, profile, tenant, "sessions run on this node again");
        }
        event => tracing::debug!(?event, "fleet"),
    }
}

/// The words in which a name is written to a log: names are the application's own and may hold anything.
pub(crate) fn shown(name: &Name) -> String {
    name.to_string().escape_debug().to_string()
}
