//! Operations on a fleet from outside, over its backend.
//!
//! [`Admin`] starts no fleet and joins as no node. It works from a program of its own, such as a command for operators, on a backend
//! that several processes share. A file serves one process: there, [`Operator::admin`](crate::Operator::admin) gives an `Admin`.
//!
//! ```
//! use greenroom_fleet::admin::Admin;
//! use greenroom_fleet::backend::MemoryBackend;
//! use greenroom_fleet::{NameFilter, NameQuery};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), greenroom_fleet::BackendError> {
//! # let backend = MemoryBackend::new();
//! let admin = Admin::new(backend);
//! for node in admin.nodes().await? {
//!     println!("{} on {}: {:?}, {} names", node.record.id, node.record.host, node.record.state, node.record.owns);
//! }
//! for name in admin.names(NameQuery::new().only(NameFilter::Stuck)).await?.names {
//!     println!("{}: {:?}", name.name, name.state);
//! }
//! # Ok(())
//! # }
//! ```

pub(crate) mod hosts;
pub(crate) mod moving;
mod nodes;
mod quarantine;
mod vacuum;

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Backend, Requests};
use crate::error::{BackendError, FleetError};
use crate::id::{Name, NodeId, PromptId, QuestionId, Tenant, Term, Timestamp};
use crate::limits::Quota;
use crate::pages::{all_holds, feed_page, usage_by_period};
use crate::query::feed::{FeedCursor, FeedPage, FeedRetention};
use crate::query::lists::{NamePage, NameQuery, PromptPage, PromptQuery};
use crate::question::{AnswerError, QuestionAnswer, QuestionQuery, decide};
use crate::record::usage::{DAY, UsageEntry, UsageQuery};
use crate::record::{
    Credential, Hold, NameRecord, ProcessRecord, QuarantineKind, QuestionRecord, TenantRecord,
};
use crate::request::Withdrawn;

pub use self::hosts::{ForgottenHost, HostError};
pub use self::moving::{MoveError, MovedTenant};
pub use self::nodes::NodeReport;

/// Operations on a fleet from outside. See the [module](self).
#[derive(Clone)]
pub struct Admin {
    backend: Arc<dyn Backend>,
}

impl Admin {
    /// Operations over a backend, or over an `Arc` of one.
    pub fn new(backend: impl Backend) -> Self {
        Self { backend: Arc::new(backend) }
    }

    /// The moment now on the backend's clock.
    pub fn now(&self) -> Timestamp {
        self.backend.now()
    }

    /// Lists the nodes that are alive, and dead ones that still own names, in the order of their ids.
    ///
    /// # Errors
    /// The backend's.
    pub async fn nodes(&self) -> Result<Vec<NodeReport>, BackendError> {
        nodes::nodes(&*self.backend).await
    }

    /// Asks a node to drain. The node begins when it renews its lease, which takes a sixth of `FleetLimits::lease` at most, and has
    /// `FleetLimits::drain` for it, as when its last handle is dropped. `Fleet::wait` returns in its process when the node has
    /// left. `false`: the node is dead or not known.
    ///
    /// # Errors
    /// The backend's.
    pub async fn drain(&self, node: NodeId) -> Result<bool, BackendError> {
        self.backend.ask_to_drain(node).await
    }

    /// Takes a prompt out of its queue. The prompt ends as [`Unsent::Dropped`](crate::Unsent::Dropped) with the reason, or as
    /// interrupted if a lost owner had begun with it. A prompt that runs goes on: interrupt it on its node.
    ///
    /// # Errors
    /// The backend's.
    pub async fn drop_prompt(
        &self,
        prompt: PromptId,
        why: impl Into<String>,
    ) -> Result<Withdrawn, BackendError> {
        self.backend.drop_prompt(prompt, why.into()).await
    }

    /// Keeps a session from being activated until [`unquarantine`](Self::unquarantine) is called, as
    /// [`FleetSession::quarantine`](crate::FleetSession::quarantine) does. A session that is awake is ended by its node, which has ten
    /// seconds to take the command.
    ///
    /// # Errors
    /// [`FleetError::NotFound`] if the session is not known or is being deleted; [`FleetError::OwnerSilent`] and
    /// [`FleetError::OwnerFailed`] if its node does not end it; [`FleetError::Elsewhere`] if node after node claims it;
    /// [`FleetError::State`] if too many commands wait; [`FleetError::Backend`].
    pub async fn quarantine(&self, name: &Name, why: &str) -> Result<(), FleetError> {
        quarantine::quarantine(&*self.backend, name, why).await
    }

    /// Lets a quarantined session be activated again. `false`: the session is not quarantined.
    ///
    /// # Errors
    /// The backend's.
    pub async fn unquarantine(&self, name: Name) -> Result<bool, BackendError> {
        self.backend.unquarantine(name).await
    }

    /// Lets all quarantined sessions be activated again that were quarantined for a reason, such as one that was mended for all of them.
    /// Returns their number. Reads the names that [somebody has to look at](NameRecord::is_stuck), in pages.
    ///
    /// ```
    /// use greenroom_fleet::admin::Admin;
    /// use greenroom_fleet::{BackendError, QuarantineKind};
    ///
    /// /// After the template of a profile was mended.
    /// async fn mended(admin: &Admin) -> Result<usize, BackendError> {
    ///     let fits = |why: &str| why.contains("no such template");
    ///     admin.unquarantine_all(|_, kind, why| kind == QuarantineKind::Activations && fits(why)).await
    /// }
    /// # let _ = mended;
    /// ```
    ///
    /// # Errors
    /// The backend's. Sessions that were lifted before stay so: call it again for the rest.
    pub async fn unquarantine_all(
        &self,
        fits: impl Fn(&NameRecord, QuarantineKind, &str) -> bool + Send,
    ) -> Result<usize, BackendError> {
        quarantine::unquarantine_all(&*self.backend, fits).await
    }

    /// The record that the fleet keeps of a session. `None`: the name is not known.
    ///
    /// # Errors
    /// The backend's.
    pub async fn name(&self, name: Name) -> Result<Option<NameRecord>, BackendError> {
        self.backend.name_record(name).await
    }

    /// Prompts that wait in the whole fleet.
    ///
    /// # Errors
    /// The backend's.
    pub async fn queued(&self) -> Result<u32, BackendError> {
        self.backend.queued().await
    }

    /// Lists open questions, the nearest deadline first.
    ///
    /// # Errors
    /// The backend's.
    pub async fn questions(&self, query: QuestionQuery) -> Result<Vec<QuestionRecord>, BackendError> {
        let Some(of) = query.of() else { return Ok(Vec::new()) };
        self.backend.open_questions(of, query.most()).await
    }

    /// Answers a question. The first answer before its deadline decides.
    ///
    /// # Errors
    /// As [`FleetTenant::answer`](crate::FleetTenant::answer), of all tenants.
    pub async fn answer(
        &self,
        question: QuestionId,
        answer: impl Into<QuestionAnswer>,
    ) -> Result<(), AnswerError> {
        let record = self.backend.question(question).await.map_err(AnswerError::Backend)?;
        let record = record.ok_or(AnswerError::Gone(question))?;
        decide(&record, answer.into(), |attempt, answer| self.backend.answer(question, attempt, answer)).await
    }

    /// Lists names, of all tenants or of one, such as those that somebody has to look at: [`NameFilter::Stuck`](crate::NameFilter::Stuck).
    ///
    /// # Errors
    /// The backend's.
    pub async fn names(&self, query: NameQuery) -> Result<NamePage, BackendError> {
        self.backend.names(query).await
    }

    /// Lists the prompts of a session, the newest first: see [`FleetSession::prompts`](crate::FleetSession::prompts).
    ///
    /// # Errors
    /// The backend's.
    pub async fn prompts(&self, name: Name, query: PromptQuery) -> Result<PromptPage, BackendError> {
        self.backend.prompts(name, query).await
    }

    /// Keeps a [feed](crate::FleetTenant::feed) from now on, as [`FleetBuilder::feed`](crate::FleetBuilder::feed) does. `None`: keeps none,
    /// and its entries are removed.
    ///
    /// # Errors
    /// The backend's.
    pub async fn set_feed(&self, retention: Option<FeedRetention>) -> Result<(), BackendError> {
        self.backend.set_feed(retention).await
    }

    /// Reads a page of the feed after a cursor, of all tenants or of one. A page whose `next` is that cursor is the last one for now: look
    /// again later. [`FleetTenant::feed`](crate::FleetTenant::feed) says what is in the feed.
    ///
    /// ```
    /// use greenroom_fleet::admin::Admin;
    /// use greenroom_fleet::{BackendError, FeedCursor, FeedPage};
    ///
    /// /// Prints the entries after a cursor, and returns the cursor of the next call.
    /// async fn print_feed(admin: &Admin, mut after: FeedCursor) -> Result<FeedCursor, BackendError> {
    ///     loop {
    ///         match admin.feed(None, after.clone(), 100).await? {
    ///             FeedPage::Entries { next, .. } if next == after => return Ok(next),
    ///             FeedPage::Entries { entries, next } => {
    ///                 entries.iter().for_each(|entry| println!("{}: {:?}", entry.name, entry.event));
    ///                 after = next;
    ///             }
    ///             // Entries were removed before they were read. `next` is before the oldest one that is kept.
    ///             FeedPage::Gap { next } => after = next,
    ///             FeedPage::Off => return Ok(after),
    ///         }
    ///     }
    /// }
    /// # let _ = print_feed;
    /// ```
    ///
    /// # Errors
    /// The backend's.
    pub async fn feed(
        &self,
        tenant: Option<Tenant>,
        after: FeedCursor,
        limit: usize,
    ) -> Result<FeedPage, BackendError> {
        feed_page(&*self.backend, tenant, after, limit).await
    }

    /// Lists the credentials that are held, because the API has rejected them: their prompts wait, on all nodes.
    ///
    /// # Errors
    /// The backend's.
    pub async fn holds(&self) -> Result<Vec<Hold>, BackendError> {
        all_holds(&*self.backend).await
    }

    /// Lets the prompts of a credential begin at once, because its cause is mended: the key was replaced, or the account has credit again. If
    /// the API rejects it again, it is held again. Returns the hold that it had. `None`: it was not held.
    ///
    /// # Errors
    /// The backend's.
    pub async fn release(&self, credential: Credential) -> Result<Option<Hold>, BackendError> {
        self.backend.release_hold(credential).await
    }

    /// Removes prompts that ended longer ago than `age`, with their outcomes, messages and keys: `most` of them at most. Returns
    /// their number. A prompt with thousands of messages counts once for each request that it takes. A number below `most` means that
    /// none is left, besides those that a node removes at this moment.
    ///
    /// Each node does so by itself for prompts older than `FleetLimits::retention`. A fleet that has ended, or a shorter time, needs
    /// this. A key that is forgotten is no duplicate any more when it is sent again.
    ///
    /// # Errors
    /// The backend's. What was removed before stays removed.
    pub async fn vacuum(&self, age: Duration, most: usize) -> Result<usize, BackendError> {
        vacuum::vacuum(&*self.backend, age, most).await
    }

    /// Moves a tenant to another backend, with its sessions, labels, ended prompts, messages, outcomes, keys, transcripts, usage and spent money,
    /// all of them under the same ids. Files stay where they are, and so do entries of the feed.
    ///
    /// The tenant has to be at rest: its sessions sleep, no prompt of it waits, and no process of a lost owner is left. Send its prompts to
    /// neither fleet meanwhile. A session that is on its way refuses them by [`Refused::Moving`](crate::Refused::Moving), and can run there
    /// as soon as it has arrived. A prompt that comes here after that makes a new session.
    ///
    /// A move that failed or was killed goes on when it is called again with the same two backends. It has no way back: a session that has
    /// arrived may have run. A row that cannot be read stays behind.
    ///
    /// # Errors
    /// [`MoveError::SameBackend`]; [`MoveError::NotAtRest`], [`MoveError::Taken`] and [`MoveError::Elsewhere`], mostly before anything was
    /// marked; [`MoveError::Backend`].
    pub async fn move_tenant(&self, tenant: &Tenant, to: &Admin) -> Result<MovedTenant, MoveError> {
        crate::admin::moving::move_tenant(&*self.backend, &*to.backend, tenant).await
    }

    /// The account of a tenant: what it uses of its quota.
    ///
    /// # Errors
    /// The backend's.
    pub async fn tenant(&self, tenant: Tenant) -> Result<TenantRecord, BackendError> {
        self.backend.tenant(tenant).await
    }

    /// The usage of the turns of all tenants, or of one, by days or hours with usage: see [`FleetTenant::usage`](crate::FleetTenant::usage). In
    /// the order of days or hours, then of tenants.
    ///
    /// # Errors
    /// The backend's.
    pub async fn usage(
        &self,
        tenant: Option<Tenant>,
        query: UsageQuery,
    ) -> Result<Vec<UsageEntry>, BackendError> {
        let page = |from, to, after| self.backend.usage(tenant.clone(), from, to, after);
        usage_by_period(query, page).await
    }

    /// The usage of a session's turns, by days with usage: see [`FleetSession::usage`](crate::FleetSession::usage).
    ///
    /// # Errors
    /// The backend's.
    pub async fn session_usage(
        &self,
        name: Name,
        query: UsageQuery,
    ) -> Result<Vec<UsageEntry>, BackendError> {
        let (from, to) = query.span(DAY);
        self.backend.usage_of_name(name, from, to).await
    }

    /// The quota that was set for a tenant. `None`: that of the nodes' builders counts.
    ///
    /// # Errors
    /// The backend's.
    pub async fn quota(&self, tenant: Tenant) -> Result<Option<Quota>, BackendError> {
        self.backend.quota(tenant).await
    }

    /// Sets the quota of a tenant, or removes it: see [`Operator::set_quota`](crate::Operator::set_quota).
    ///
    /// # Errors
    /// The backend's; [`Invalid`](crate::BackendErrorKind::Invalid) for a quota that cannot work.
    pub async fn set_quota(
        &self,
        tenant: Tenant,
        quota: impl Into<Option<Quota>>,
    ) -> Result<(), BackendError> {
        self.backend.set_quota(tenant, quota.into()).await
    }

    /// Binds a session that is bound to a host, by [`Placement::OnHost`](crate::Placement::OnHost), to another one. Its prompts that wait run
    /// there.
    ///
    /// greenroom copies no files. With [`TranscriptsIn::Backend`](crate::TranscriptsIn::Backend) the session keeps its memory, and only its `work`
    /// folder stays behind. Otherwise first copy the folder of the session, which has the id of its
    /// [conversation](NameRecord::conversation), from the [folder](crate::FleetBuilder::folder) of the old host to that of the new one, while
    /// the session sleeps: without it the session begins anew.
    ///
    /// # Errors
    /// [`HostError::NotAtRest`] if the session is awake, is being deleted, or moves to another backend; [`HostError::NoNode`] if no node of the host
    /// is alive; [`HostError::NotBound`]; [`HostError::NotFound`]; [`HostError::Backend`].
    pub async fn move_to_host(&self, name: Name, host: impl Into<String>) -> Result<(), HostError> {
        hosts::move_to_host(&*self.backend, name, host.into()).await
    }

    /// Forgets a host that is gone for ever, with its disk: no deletion reports files there any more, and the records of processes that lost
    /// owners have left there are dropped. Call it also for hosts that come and go, such as pods.
    ///
    /// Sessions that are bound to the host stay so, and the answer lists them: [`move_to_host`](Self::move_to_host) or a deletion is a
    /// decision about their memory. A host that comes back all the same is known again with its first session; files of sessions that were
    /// deleted before stay there. Reads all names.
    ///
    /// # Errors
    /// [`HostError::Alive`] if a node of the host is alive; [`HostError::Backend`]. What was dropped before stays dropped: call it again.
    pub async fn forget_host(&self, host: &str) -> Result<ForgottenHost, HostError> {
        hosts::forget_host(&*self.backend, host).await
    }

    /// Lists processes that lost owners of a session have left, in the order of their terms.
    ///
    /// # Errors
    /// The backend's. A record that cannot be read fails the request, and the error names its term.
    pub async fn left_processes(&self, name: Name) -> Result<Vec<ProcessRecord>, BackendError> {
        self.backend.left_processes_of(name).await
    }

    /// Removes the record of a process that a lost owner of a session has left. `false`: the owner is alive, and its record
    /// stays.
    ///
    /// A session whose activations fail because such a record cannot be read needs this, and then
    /// [`unquarantine`](Self::unquarantine). **End the process first**: with the record gone, the next activation starts a second
    /// CLI on the conversation if the first one still runs.
    ///
    /// # Errors
    /// The backend's.
    pub async fn remove_process(&self, name: Name, term: Term) -> Result<bool, BackendError> {
        self.backend.process_ended(name, term).await
    }
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}
