//! The handle of an operator: the public API over all tenants.

use super::fleet::Fleet;
use super::scope::Scope;
use super::session::FleetSession;
use super::turn::FleetTurn;
use crate::access::{Action, Denied};
use crate::admin::Admin;
use crate::backend::Requests;
use crate::error::FleetError;
use crate::event::FleetEvents;
use crate::id::{Name, PromptId, QuestionId, Tenant};
use crate::limits::Quota;
use crate::question::{AnswerError, QuestionAnswer, QuestionQuery};
use crate::record::QuestionRecord;

/// The handle of an operator over all tenants of a fleet that runs in this process.
///
/// Give it to code that looks after the service. Code that serves a customer gets a [`FleetTenant`](crate::FleetTenant).
/// [`Admin`] has the operations that need no running fleet, so that a program of its own can do them.
#[derive(Clone)]
#[must_use = "nothing happens until a method is called"]
pub struct Operator {
    pub(super) fleet: Fleet,
    pub(super) scope: Scope,
}

impl Fleet {
    /// The handle of an operator, who sees all tenants.
    pub fn operator(&self) -> Operator {
        Operator { fleet: self.clone(), scope: Scope::ALL }
    }
}

impl Operator {
    /// A handle that acts for a person: see [`FleetTenant::on_behalf_of`](crate::FleetTenant::on_behalf_of). It is denied
    /// [`admin`](Self::admin), [`events`](Self::events) and `serve`, whatever the authoriser says: they cover all tenants at once.
    pub fn on_behalf_of(mut self, person: impl Into<String>) -> Self {
        self.scope = self.scope.on_behalf_of(person.into());
        self
    }

    /// A session of any tenant. Nothing happens until it is prompted.
    pub fn session(&self, name: Name) -> FleetSession {
        FleetSession::new(self.fleet.clone(), self.scope.clone(), name)
    }

    /// The turn of a prompt of any tenant. An id that is not known is an error of the turn's methods.
    pub fn turn(&self, prompt: PromptId) -> FleetTurn {
        FleetTurn::new(self.fleet.handle.shared.clone(), self.scope.clone(), prompt, false)
    }

    /// Takes back a prompt that no CLI has begun with. `false`: the prompt has begun or ended.
    ///
    /// # Errors
    /// [`FleetError::NotFound`] for a prompt that is not known; [`FleetError::Denied`]; [`FleetError::Backend`].
    pub async fn withdraw(&self, prompt: PromptId) -> Result<bool, FleetError> {
        self.fleet.withdraw(&self.scope, prompt).await
    }

    /// Lists open questions of all tenants, the nearest deadline first: see
    /// [`FleetTenant::questions`](crate::FleetTenant::questions).
    ///
    /// # Errors
    /// [`FleetError::Denied`]; [`FleetError::Backend`].
    pub async fn questions(&self, query: QuestionQuery) -> Result<Vec<QuestionRecord>, FleetError> {
        self.fleet.questions(&self.scope, query).await
    }

    /// Answers a question of any tenant.
    ///
    /// # Errors
    /// As [`FleetTenant::answer`](crate::FleetTenant::answer).
    pub async fn answer(
        &self,
        question: QuestionId,
        answer: impl Into<QuestionAnswer>,
    ) -> Result<(), AnswerError> {
        self.fleet.answer(&self.scope, question, answer.into()).await
    }

    /// The quota of a tenant, as it counts on this node: the one that was set, or that of the builder.
    ///
    /// # Errors
    /// [`FleetError::Denied`]; [`FleetError::Backend`].
    pub async fn quota(&self, tenant: Tenant) -> Result<Quota, FleetError> {
        let shared = &self.fleet.handle.shared;
        self.scope.allow_tenant(shared, Action::Read, &tenant).await?;
        let set = shared.ask(|backend| backend.quota(tenant.clone())).await?;
        Ok(set.unwrap_or_else(|| shared.quotas.given(&tenant).clone()))
    }

    /// Sets the quota of a tenant for all nodes, while they run. The backend keeps it. `None` removes it, so that the builders' quota
    /// counts again.
    ///
    /// It counts for the next prompt, claim and turn on any node; the weight, and the time of turns that begin later, within five seconds. A
    /// budget below the money spent emits no event. A cap that is lower
    /// than before ends no session: fewer get a slot until enough of them sleep.
    ///
    /// ```
    /// use greenroom_fleet::{Fleet, Quota, Tenant};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let fleet = Fleet::builder().start().await?;
    /// let (operator, acme) = (fleet.operator(), Tenant::new("acme")?);
    /// let quota = operator.quota(acme.clone()).await?.live(20).prompts(600, 50);
    /// operator.set_quota(acme.clone(), quota.clone()).await?;
    /// assert_eq!(operator.quota(acme).await?, quota);
    /// # fleet.drain(std::time::Duration::from_secs(5)).await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`FleetError::Denied`]; [`FleetError::Backend`], of the kind [`Invalid`](crate::BackendErrorKind::Invalid) for a quota that cannot work.
    pub async fn set_quota(&self, tenant: Tenant, quota: impl Into<Option<Quota>>) -> Result<(), FleetError> {
        let quota = quota.into();
        self.scope.allow_tenant(&self.fleet.handle.shared, Action::SetQuota, &tenant).await?;
        Ok(self.fleet.handle.shared.ask(|backend| backend.set_quota(tenant.clone(), quota.clone())).await?)
    }

    /// Operations over the fleet's backend: also over a file, which no other process can open meanwhile.
    ///
    /// # Errors
    /// [`Denied`] to a person.
    pub fn admin(&self) -> Result<Admin, Denied> {
        self.scope.allow_service()?;
        Ok(Admin::new(self.fleet.handle.shared.backend.clone()))
    }

    /// Serves the fleet's backend over a Unix socket, so that other programs of this host can look after the fleet, such as
    /// `greenroom --socket PATH nodes` of the crate `greenroom-cli`: also over a file. It ends when the server is dropped, or when the
    /// program ends.
    ///
    /// # Errors
    /// [`FleetError::Denied`] to a person; as [`SocketServer::bind`](crate::backend::SocketServer::bind).
    #[cfg(feature = "socket")]
    pub async fn serve(
        &self,
        path: impl Into<std::path::PathBuf>,
    ) -> Result<crate::backend::SocketServer, FleetError> {
        self.scope.allow_service()?;
        Ok(crate::backend::SocketServer::bind(path, self.fleet.handle.shared.backend.clone()).await?)
    }

    /// Subscribes to the events of all tenants from now on. For events of the opening as well, see
    /// [`FleetBuilder::events`](crate::FleetBuilder::events).
    ///
    /// # Errors
    /// [`Denied`] to a person.
    pub fn events(&self) -> Result<FleetEvents, Denied> {
        self.scope.allow_service()?;
        let shared = &self.fleet.handle.shared;
        Ok(FleetEvents::new(shared.events.subscribe(), shared.ended.clone()))
    }
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").finish_non_exhaustive()
    }
}
