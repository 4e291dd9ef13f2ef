//! The builder of a fleet.

mod profiles;
mod questions;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorCell};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::fleet::{Fleet, Handle, LONGEST};
use crate::access::Authoriser;
use crate::actor::context::FleetShared;
use crate::actor::supervisor::FleetSupervisor;
use crate::backend::{Backend, MemoryBackend, Requests};
use crate::error::FleetError;
use crate::event::{FleetEvent, FleetEvents};
use crate::fence::{self, Fence};
use crate::files::Folders;
use crate::health::NodeHealth;
use crate::hub::Hub;
use crate::id::{NodeId, Tenant};
use crate::limits::{FleetLimits, Quota, Quotas};
use crate::opening;
use crate::profile::{CredentialOf, Placement, Profile, TranscriptsIn};
use crate::query::feed::FeedRetention;
use crate::users::{UserPool, Users};

/// The number of events that a slow reader may be behind.
const EVENTS: usize = 1024;

/// Defines a fleet. See [`Fleet::builder`].
pub struct FleetBuilder {
    pub(crate) backend: Option<Arc<dyn Backend>>,
    limits: FleetLimits,
    quotas: HashMap<String, Quota>,
    default_quota: Quota,
    authoriser: Option<Arc<dyn Authoriser>>,
    profiles: HashMap<String, Profile>,
    credentials: HashMap<String, CredentialOf>,
    question_holds: HashMap<String, Duration>,
    folder: Option<PathBuf>,
    users: Option<UserPool>,
    host: Option<String>,
    placement: Placement,
    transcripts: Option<TranscriptsIn>,
    watchdog: bool,
    feed: Option<FeedRetention>,
    events: broadcast::Sender<FleetEvent>,
    ended: CancellationToken,
}

impl Fleet {
    /// Begins to define a fleet.
    pub fn builder() -> FleetBuilder {
        FleetBuilder {
            backend: None,
            limits: FleetLimits::default(),
            quotas: HashMap::new(),
            default_quota: Quota::default(),
            authoriser: None,
            profiles: HashMap::new(),
            credentials: HashMap::new(),
            question_holds: HashMap::new(),
            folder: None,
            users: None,
            host: None,
            placement: Placement::default(),
            transcripts: None,
            watchdog: true,
            feed: None,
            events: broadcast::Sender::new(EVENTS),
            ended: CancellationToken::new(),
        }
    }
}

impl FleetBuilder {
    /// Sets the backend, by value or as an `Arc`, such as `Arc<dyn Backend>`. Default: a new [`MemoryBackend`], which forgets
    /// everything with the process.
    #[must_use]
    pub fn backend(mut self, backend: impl Backend) -> Self {
        self.backend = Some(Arc::new(backend));
        self
    }

    /// Changes the bounds of the fleet.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut FleetLimits)) -> Self {
        change(&mut self.limits);
        self
    }

    /// Sets the quota of a [tenant](Tenant), for as long as the backend has none: [`Operator::set_quota`](crate::Operator::set_quota) sets
    /// it there. Set it alike on all nodes. A text that is no tenant is an error of the start.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>, quota: Quota) -> Self {
        self.quotas.insert(tenant.into(), quota);
        self
    }

    /// Sets the quota of all other tenants, in the same way.
    #[must_use]
    pub fn default_quota(mut self, quota: Quota) -> Self {
        self.default_quota = quota;
        self
    }

    /// Sets who decides what people may do: see [`FleetTenant::on_behalf_of`](crate::FleetTenant::on_behalf_of). Without it, people
    /// may do nothing.
    #[must_use]
    pub fn authoriser(mut self, authoriser: impl Authoriser) -> Self {
        self.authoriser = Some(Arc::new(authoriser));
        self
    }

    /// Sets the folder for the files of the sessions. Default: [`Backend::default_folder`].
    ///
    /// The transcripts of the sessions are in this folder, unless the [backend](TranscriptsIn::Backend) has them.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Has the CLI of each live session run as a user of the system of its own. Default: all run as the user of this process, and
    /// can read and change each other's files. Needs root, and Linux.
    ///
    /// No two sessions have a user at the same time. When a session ends, its folder is closed, all processes of the user are killed,
    /// and its files in `/tmp` and the like are removed before another session gets the user. The files of a session go with it to its next
    /// user. A user that cannot be cleaned is [set aside](FleetEvent::UserSetAside).
    ///
    /// The fleet sets [`Options::user`](greenroom::Options::user), and `HOME` and `TMPDIR` to folders of the session unless the profile
    /// does. A profile that sets `user` is a failed activation. All users must be able to run the CLI and to reach the
    /// [folder](FleetBuilder::folder) of the sessions. What a profile creates in the session's own folders becomes the user's; folders
    /// elsewhere do not.
    ///
    /// The pool has at least [`FleetLimits::live`] users. Services on one machine may share a pool only if they share the folder, such
    /// as the versions of a service during a deploy. A pool that serves two versions at once has twice as many users.
    ///
    /// ```no_run
    /// use greenroom_fleet::{Fleet, UserPool};
    ///
    /// # async fn start() -> Result<(), greenroom_fleet::FleetError> {
    /// let fleet = Fleet::builder()
    ///     .configure(|limits| limits.live = 40)
    ///     .folder("/var/lib/shop/sessions")
    ///     .users(UserPool::ids(60_000..60_080))
    ///     .start()
    ///     .await?;
    /// # drop(fleet);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn users(mut self, pool: UserPool) -> Self {
        self.users = Some(pool);
        self
    }

    /// Sets the name of this host, stable over restarts. Default: `local`; a fleet on a backend that other services
    /// [share](Backend::is_shared) has to set it.
    ///
    /// Give each machine its own name if several share a backend. In containers give each container its own name, and on one
    /// machine each user: a node ends the processes that lost nodes of its host have left. It looks for them in `/proc`, and a
    /// process that it does not find there counts as ended.
    #[must_use]
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// Sets the hosts on which sessions may run that this fleet creates. Default: [`Placement::Anywhere`].
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Sets where the transcripts of all sessions are kept. Default: [`TranscriptsIn::Backend`] if other services
    /// [share](Backend::is_shared) the backend, and [`TranscriptsIn::Folder`] otherwise.
    ///
    /// Set it alike on all nodes of the fleet. A conversation that began with another setting starts empty.
    #[must_use]
    pub fn transcripts(mut self, place: TranscriptsIn) -> Self {
        self.transcripts = Some(place);
        self
    }

    /// Does without a watchdog on a backend that other services [share](Backend::is_shared). Without this call the fleet has a
    /// [`Watchdog`](greenroom::guardian::Watchdog) there, and needs [`greenroom::guardian::init`] first in `main`,
    /// before the runtime starts.
    ///
    /// Without a watchdog, the CLIs of a service that is stopped (by SIGSTOP, or by a debugger) act on while another node takes over
    /// their sessions. Two CLIs may then write to one conversation. Use it where no session has a process, as in tests on scripted
    /// CLIs.
    #[must_use]
    pub fn without_watchdog(mut self) -> Self {
        self.watchdog = false;
        self
    }

    /// Keeps a [feed](crate::FleetTenant::feed) of what happens. Without this call the fleet leaves the backend's feed as it is: at first
    /// there is none, and one that another node keeps, or an earlier start of the service, goes on.
    /// [`Admin::set_feed`](crate::admin::Admin::set_feed) ends it.
    ///
    /// Each transition then writes three rows and a counter more. The nodes of a fleet share one feed, and the last one that starts sets its
    /// retention.
    #[must_use]
    pub fn feed(mut self, retention: FeedRetention) -> Self {
        self.feed = Some(retention);
        self
    }

    /// Subscribes to the events of the fleet from its opening on: processes of an earlier start that are ended, sessions that are
    /// quarantined for them, and prompts that begin before [`start`](FleetBuilder::start) returns. The events end with the fleet, and
    /// without one if the builder is dropped or the opening fails.
    ///
    /// ```
    /// use greenroom_fleet::{Fleet, FleetEvent};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = Fleet::builder();
    /// let mut events = builder.events();
    /// let fleet = builder.start().await?;
    /// assert!(matches!(events.next().await, Some(Ok(FleetEvent::Joined { .. }))));
    /// # fleet.drain(std::time::Duration::from_secs(5)).await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn events(&self) -> FleetEvents {
        FleetEvents::new(self.events.subscribe(), self.ended.clone())
    }

    /// Opens the fleet. Returns when CLIs that an earlier process has left are gone, and what that process had begun has its
    /// outcome; prompts that wait begin then.
    ///
    /// # Errors
    /// [`FleetError::Invalid`] for limits that cannot work, and on a shared backend without a guardian program or a host's name, or for
    /// [`TranscriptsIn::Folder`] with [`Placement::Anywhere`], for [users](FleetBuilder::users) without root, or with too few of them, and
    /// for a profile that does not fit the fleet, and for credentials of a profile that is not there;
    /// [`FleetError::Session`] if the guardian does not answer; [`FleetError::Files`] if the folder cannot be used;
    /// [`FleetError::Backend`].
    pub async fn start(self) -> Result<Fleet, FleetError> {
        self.open(None).await
    }

    /// [`start`](FleetBuilder::start) as a child of your actor.
    ///
    /// # Errors
    /// Those of [`start`](FleetBuilder::start).
    pub async fn spawn_linked(self, supervisor: ActorCell) -> Result<Fleet, FleetError> {
        self.open(Some(supervisor)).await
    }

    async fn open(self, parent: Option<ActorCell>) -> Result<Fleet, FleetError> {
        self.check()?;
        let feed = self.feed;
        let shared = Arc::new(self.shared()?);
        // Before the opening gives the turns of lost nodes their outcomes.
        if feed.is_some() {
            shared.ask(|backend| backend.set_feed(feed)).await?;
        }
        opening::open(&shared).await?;
        let spawned = match parent {
            Some(parent) => Actor::spawn_linked(None, FleetSupervisor, shared.clone(), parent).await,
            None => Actor::spawn(None, FleetSupervisor, shared.clone()).await,
        };
        let (supervisor, _) = spawned.map_err(|error| FleetError::State(error.to_string()))?;
        Ok(Fleet { handle: Arc::new(Handle { shared, supervisor }) })
    }

    /// The state that all actors of the fleet share.
    pub(crate) fn shared(self) -> Result<FleetShared, FleetError> {
        let backend = self.backend.unwrap_or_else(|| Arc::new(MemoryBackend::new()));
        let Some(folder) = self.folder.or_else(|| backend.default_folder()) else {
            return invalid("the backend names no folder for files: call `FleetBuilder::folder`");
        };
        // The CLI gets paths in variables, and whole ones, because its working directory is another.
        let Some(folder) = std::path::absolute(folder).ok().filter(|folder| folder.to_str().is_some()) else {
            return invalid(
                "the folder for files is no path in UTF-8: name another one with `FleetBuilder::folder`",
            );
        };
        let is_shared = backend.is_shared();
        if is_shared && self.host.is_none() {
            return invalid(
                "other services share the backend: give each host its own name with `FleetBuilder::host`, or two hosts would take \
                 each other's CLIs for ended",
            );
        }
        let default = if is_shared { TranscriptsIn::Backend } else { TranscriptsIn::Folder };
        let transcripts = self.transcripts.unwrap_or(default);
        if is_shared && (transcripts, self.placement) == (TranscriptsIn::Folder, Placement::Anywhere) {
            return invalid(
                "a session would run on any host, and its transcript would stay on one: call `FleetBuilder::transcripts` with \
                 `TranscriptsIn::Backend`, or with `TranscriptsIn::SharedFolder` if all hosts share the folder, or \
                 `FleetBuilder::placement` with `Placement::OnHost`",
            );
        }
        let watchdog =
            (self.watchdog && is_shared).then(|| fence::watchdog(self.limits.lease)).transpose()?;
        let (fence, peers) = (Fence::new(self.limits.lease, watchdog), Arc::default());
        let mut folders = Folders::at(folder, transcripts == TranscriptsIn::Backend);
        let mut users = None;
        if let Some(pool) = &self.users {
            folders = folders.for_users();
            users = Some(Users::new(pool, self.limits.live, folders.clone())?);
        }
        let quotas = self.quotas.into_iter().map(|(id, quota)| Ok((Tenant::new(id)?, quota)));
        let quotas = quotas.collect::<Result<_, FleetError>>()?;
        Ok(FleetShared {
            transitions: backend.transitions().into(),
            hub: Hub::of(&backend, Arc::clone(&peers)),
            backend,
            limits: self.limits,
            quotas: Arc::new(Quotas::new(quotas, self.default_quota)),
            at_cap: Default::default(),
            admission: Default::default(),
            authoriser: self.authoriser,
            profiles: self.profiles,
            credentials: self.credentials,
            question_holds: self.question_holds,
            folders,
            users,
            node: NodeId::new(),
            host: self.host.unwrap_or_else(|| "local".to_owned()),
            placement: self.placement,
            transcripts: transcripts == TranscriptsIn::Backend,
            shares_folder: transcripts == TranscriptsIn::SharedFolder,
            peers,
            awake: Default::default(),
            used: Default::default(),
            wakes: Default::default(),
            metrics: Default::default(),
            events: self.events,
            draining: CancellationToken::new(),
            asked_to_drain: CancellationToken::new(),
            lost: CancellationToken::new(),
            ended: self.ended,
            end: Default::default(),
            tasks: TaskTracker::new(),
            fence,
            health: NodeHealth::new(),
            learning: Default::default(),
        })
    }

    fn check(&self) -> Result<(), FleetError> {
        let limits = &self.limits;
        if limits.live == 0 || limits.activations_at_once == 0 {
            return invalid("`live` and `activations_at_once` are at least 1, or no session could start");
        }
        if limits.durations().into_iter().any(|limit| limit > LONGEST) {
            return invalid("a limit is at most ten years");
        }
        if limits.lease < Duration::from_secs(1) {
            return invalid("`lease` is at least 1 s, or the node would lose its lease to a slow write");
        }
        if let Some(profile) = self.credentials.keys().find(|profile| !self.profiles.contains_key(*profile)) {
            return invalid(&format!(
                "the fleet names credentials of the profile '{profile}', which it does not have"
            ));
        }
        self.check_question_holds()?;
        let quotas = self.quotas.values().chain([&self.default_quota]);
        for quota in quotas {
            quota.check().or_else(invalid)?;
        }
        Ok(())
    }
}

fn invalid<T>(why: &str) -> Result<T, FleetError> {
    Err(FleetError::Invalid(why.to_owned()))
}
