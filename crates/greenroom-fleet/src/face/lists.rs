//! Lists of what the fleet keeps: names, prompts, labels and usage, for the handles.

use super::fleet::Fleet;
use super::operator::Operator;
use super::scope::Scope;
use super::session::FleetSession;
use super::tenant::FleetTenant;
use crate::access::Action;
use crate::backend::{Reply, Requests};
use crate::error::FleetError;
use crate::pages::usage_by_period;
use crate::query::lists::{NamePage, NameQuery, PromptPage, PromptQuery};
use crate::record::label::Labels;
use crate::record::usage::{DAY, UsageEntry, UsageQuery};

impl FleetTenant {
    /// Lists sessions of the tenant, in the order of their names: asleep or awake, on any node.
    ///
    /// ```
    /// # use greenroom::Session;
    /// # use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
    /// use greenroom_fleet::{Fleet, Labels, NameQuery};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cli = ScriptedCli::play(Script::new().otherwise(ModelTurn::new().text("Hello.")));
    /// # let fleet = Fleet::builder()
    /// #     .profile("default", move |_| Session::builder().transport(cli.transport()))
    /// #     .start()
    /// #     .await?;
    /// let acme = fleet.tenant("acme")?;
    /// let session = acme.session("customer-42")?;
    /// session.prompt("Hello?").await?.outcome().await?;
    /// session.set_labels(Labels::new().with("plan", "pro")).await?;
    /// let page = acme.names(NameQuery::new().prefix("customer-").label("plan", "pro")).await?;
    /// assert_eq!(page.names[0].name.session(), "customer-42");
    /// assert_eq!(page.next, None);
    /// # fleet.drain(std::time::Duration::from_secs(20)).await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`FleetError::Backend`].
    pub async fn names(&self, query: NameQuery) -> Result<NamePage, FleetError> {
        self.fleet.names(&self.scope, query.tenant(self.id().clone())).await
    }

    /// The usage of the tenant's turns, by days or hours with usage, in their order. The rest of the money of a budget is another matter: it
    /// counts reserves, too.
    ///
    /// ```
    /// # use greenroom::Session;
    /// # use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
    /// use greenroom_fleet::{Fleet, Usage, UsageQuery};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cli = ScriptedCli::play(Script::new().otherwise(ModelTurn::new().text("Hello.")));
    /// # let fleet = Fleet::builder()
    /// #     .profile("default", move |_| Session::builder().transport(cli.transport()))
    /// #     .start()
    /// #     .await?;
    /// let acme = fleet.tenant("acme")?;
    /// acme.session("customer-42")?.prompt("Hello?").await?.outcome().await?;
    /// let month: Usage = acme.usage(UsageQuery::new()).await?.iter().map(|day| day.usage).sum();
    /// println!("{} turns for ${:.2}", month.turns, month.cost_usd());
    /// assert_eq!(month.turns, 1);
    /// # fleet.drain(std::time::Duration::from_secs(20)).await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`FleetError::Backend`].
    pub async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageEntry>, FleetError> {
        self.fleet.usage(&self.scope, query).await
    }
}

impl Operator {
    /// Lists sessions of all tenants, or of the query's: see [`FleetTenant::names`].
    ///
    /// # Errors
    /// [`FleetError::Backend`].
    pub async fn names(&self, query: NameQuery) -> Result<NamePage, FleetError> {
        self.fleet.names(&self.scope, query).await
    }

    /// The usage of each tenant's turns: see [`FleetTenant::usage`]. In the order of days or hours, then of tenants.
    ///
    /// # Errors
    /// [`FleetError::Backend`].
    pub async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageEntry>, FleetError> {
        self.fleet.usage(&self.scope, query).await
    }
}

impl FleetSession {
    /// Lists the prompts of the session, waiting, running and ended, the newest first: with what was asked, the outcome, and the moments. A
    /// page of a conversation that is loaded again needs nothing else besides the messages of the turn that runs.
    ///
    /// Prompts are listed until [`FleetLimits::retention`](crate::FleetLimits::retention) has passed since their end. A deletion of the
    /// session removes them at once. A session without prompts has an empty page.
    ///
    /// ```
    /// # use greenroom::Session;
    /// # use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
    /// use greenroom_fleet::{Fleet, PromptQuery};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cli = ScriptedCli::play(Script::new().otherwise(ModelTurn::new().text("Hello.")));
    /// # let fleet = Fleet::builder()
    /// #     .profile("default", move |_| Session::builder().transport(cli.transport()))
    /// #     .start()
    /// #     .await?;
    /// let session = fleet.tenant("acme")?.session("customer-42")?;
    /// for text in ["One.", "Two."] {
    ///     session.prompt(text).await?.outcome().await?;
    /// }
    /// let page = session.prompts(PromptQuery::new().limit(1)).await?;
    /// assert_eq!(page.prompts[0].text().as_deref(), Some("Two."));
    /// assert_eq!(page.prompts[0].outcome.as_ref().and_then(|outcome| outcome.text()), Some("Hello."));
    /// let older = page.next.expect("there is another one");
    /// let page = session.prompts(PromptQuery::new().after(older)).await?;
    /// assert_eq!(page.prompts[0].text().as_deref(), Some("One."));
    /// # fleet.drain(std::time::Duration::from_secs(20)).await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`FleetError::Backend`].
    pub async fn prompts(&self, query: PromptQuery) -> Result<PromptPage, FleetError> {
        self.allow(Action::Read).await?;
        let name = self.name();
        Ok(self.shared().ask(|backend| backend.prompts(name.clone(), query.clone())).await?)
    }

    /// The labels of the session.
    ///
    /// # Errors
    /// [`FleetError::NotFound`] if the session is not known; [`FleetError::Backend`].
    pub async fn labels(&self) -> Result<Labels, FleetError> {
        Ok(self.record().await?.labels)
    }

    /// Sets the labels of the session, in place of those that it has. A session is known from its first prompt on.
    ///
    /// # Errors
    /// [`FleetError::NotFound`] if the session is not known; [`FleetError::Backend`], also for labels that are
    /// [too many or too long](Labels).
    pub async fn set_labels(&self, labels: Labels) -> Result<(), FleetError> {
        self.allow(Action::SetLabels).await?;
        let name = self.name();
        match self.shared().ask(|backend| backend.set_labels(name.clone(), labels.clone())).await? {
            true => Ok(()),
            false => Err(FleetError::not_found("session", name)),
        }
    }

    /// The usage of the session's turns, by days with usage, in their order. A deleted session keeps its usage.
    ///
    /// # Errors
    /// [`FleetError::Backend`].
    pub async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageEntry>, FleetError> {
        self.allow(Action::Read).await?;
        let (name, (from, to)) = (self.name(), query.span(DAY));
        Ok(self.shared().ask(|backend| backend.usage_of_name(name.clone(), from, to)).await?)
    }
}

impl Fleet {
    async fn names(&self, scope: &Scope, query: NameQuery) -> Result<NamePage, FleetError> {
        scope.allow(&self.handle.shared, Action::Read, None).await?;
        Ok(self.handle.shared.ask(|backend| backend.names(query.clone())).await?)
    }

    async fn usage(&self, scope: &Scope, query: UsageQuery) -> Result<Vec<UsageEntry>, FleetError> {
        let shared = &self.handle.shared;
        scope.allow(shared, Action::Read, None).await?;
        let of = &scope.tenant;
        let page = |from, to, after: Option<_>| -> Reply<'_, _> {
            Box::pin(shared.ask(move |backend| backend.usage(of.clone(), from, to, after.clone())))
        };
        Ok(usage_by_period(query, page).await?)
    }
}
