//! The handle of a tenant: the public API for what belongs to one tenant.

use super::fleet::Fleet;
use super::scope::Scope;
use super::session::FleetSession;
use super::turn::FleetTurn;
use crate::error::FleetError;
use crate::id::{InvalidName, Name, PromptId, QuestionId, Tenant};
use crate::question::{AnswerError, QuestionAnswer, QuestionQuery};
use crate::record::QuestionRecord;

/// A tenant of a fleet: its sessions, turns and questions, and nobody else's.
///
/// Make the handle where you know who the caller is, and give it to the code that serves the caller. An id of another tenant is
/// answered like an id that does not exist. [`Operator`](crate::Operator) is the handle for all tenants.
///
/// ```
/// # use greenroom::Session;
/// # use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
/// use greenroom_fleet::{Fleet, FleetError};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let cli = ScriptedCli::play(Script::new().turn(ModelTurn::new().text("On Monday.")));
/// # let fleet = Fleet::builder()
/// #     .profile("default", move |_| Session::builder().transport(cli.transport()))
/// #     .start()
/// #     .await?;
/// let (acme, umbrella) = (fleet.tenant("acme")?, fleet.tenant("umbrella")?);
/// let mut turn = acme.session("42")?.prompt("Where is my lamp?").await?;
/// assert_eq!(turn.outcome().await?.text(), Some("On Monday."));
/// let stolen = umbrella.turn(turn.prompt_id()).outcome().await;
/// assert!(matches!(stolen, Err(FleetError::NotFound { .. })));
/// # fleet.drain(std::time::Duration::from_secs(20)).await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "nothing happens until a method is called"]
pub struct FleetTenant {
    pub(super) fleet: Fleet,
    tenant: Tenant,
    pub(super) scope: Scope,
}

impl Fleet {
    /// The handle of a tenant. A tenant need not be created: it is known from its first prompt on, and has the quota that
    /// was [set](crate::Operator::set_quota) for it, that the [builder](crate::FleetBuilder::tenant) gives it, or the
    /// [default](crate::FleetBuilder::default_quota).
    ///
    /// # Errors
    /// [`FleetError::Name`] if the text is no [`Tenant`].
    pub fn tenant<T>(&self, tenant: T) -> Result<FleetTenant, FleetError>
    where
        T: TryInto<Tenant>,
        T::Error: Into<InvalidName>,
    {
        let tenant = tenant.try_into().map_err(Into::into)?;
        Ok(FleetTenant { fleet: self.clone(), scope: Scope::of(tenant.clone()), tenant })
    }
}

impl FleetTenant {
    /// The tenant.
    pub fn id(&self) -> &Tenant {
        &self.tenant
    }

    /// A handle that acts for a person. The [authoriser](crate::FleetBuilder::authoriser) of the fleet decides on each of its calls,
    /// and on each call of the sessions and turns that it gives; without an authoriser all are denied. An answer that the person gives
    /// carries the person's name. A turn asks once, before its first item.
    pub fn on_behalf_of(mut self, person: impl Into<String>) -> Self {
        self.scope = self.scope.on_behalf_of(person.into());
        self
    }

    /// A session of the tenant by its name. Nothing happens until it is prompted.
    ///
    /// # Errors
    /// [`FleetError::Name`] if the text is empty or longer than [`Name::MAX_BYTES`].
    pub fn session(&self, name: impl Into<String>) -> Result<FleetSession, FleetError> {
        let name = Name::new(self.tenant.clone(), name)?;
        Ok(FleetSession::new(self.fleet.clone(), self.scope.clone(), name))
    }

    /// The turn of a prompt, to read it again, or after a restart. An id that the tenant does not have is an error of the turn's
    /// methods.
    pub fn turn(&self, prompt: PromptId) -> FleetTurn {
        FleetTurn::new(self.fleet.handle.shared.clone(), self.scope.clone(), prompt, false)
    }

    /// Takes back a prompt that no CLI has begun with. `false`: the prompt has begun or ended.
    ///
    /// # Errors
    /// [`FleetError::NotFound`] for a prompt that the tenant does not have; [`FleetError::Denied`]; [`FleetError::Backend`].
    pub async fn withdraw(&self, prompt: PromptId) -> Result<bool, FleetError> {
        self.fleet.withdraw(&self.scope, prompt).await
    }

    /// Lists open questions of the tenant, the nearest deadline first.
    ///
    /// A question is a request of a session that its profile's handlers leave open: a tool call without a permission,
    /// the model's `AskUserQuestion`, an elicitation of an MCP server, or a dialog. It waits for
    /// [`answer`](Self::answer), is denied after [`FleetLimits::question`](crate::FleetLimits::question), and ends with
    /// its turn. An elicitation outside a turn is declined. Each question emits
    /// [`FleetEvent::Asked`](crate::FleetEvent::Asked).
    ///
    /// ```
    /// use greenroom::callback::{Inquiry, InquiryAnswer};
    /// use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
    /// use greenroom::{NoArgs, Session, ToolServer};
    /// use greenroom_fleet::{Fleet, FleetEvent, QuestionAnswer, QuestionQuery};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let refund = ModelTurn::new().call("mcp__shop__refund", serde_json::json!({}));
    /// let cli = ScriptedCli::play(Script::new().turn(refund).turn(ModelTurn::new().text("Done.")));
    /// let transport = cli.transport();
    /// let fleet = Fleet::builder()
    ///     .profile("default", move |_| {
    ///         let shop = ToolServer::new("shop", "1.0.0").tool("refund", "Refund it", async |_: NoArgs| "refunded");
    ///         Session::builder().mcp_server(shop).transport(transport.clone())
    ///     })
    ///     .start()
    ///     .await?;
    /// let mut events = fleet.operator().events()?;
    /// let acme = fleet.tenant("acme")?;
    /// let mut turn = acme.session("customer-42")?.prompt("I want my money back.").await?;
    ///
    /// // On a page, for the people of the tenant: as soon as a session asks.
    /// while !matches!(events.next().await, Some(Ok(FleetEvent::Asked { .. }))) {}
    /// let open = acme.questions(QuestionQuery::new()).await?;
    /// let Some(Inquiry::Permission { request }) = open[0].inquiry() else { panic!("{open:?}") };
    /// println!("{} asks to run {}", open[0].name, request.tool_name);
    ///
    /// acme.answer(open[0].id, QuestionAnswer::new(InquiryAnswer::allow()).by("anna")).await?;
    /// assert_eq!(turn.outcome().await?.text(), Some("Done."));
    /// assert_eq!(cli.tool_results(), ["refunded"]);
    /// fleet.drain(std::time::Duration::from_secs(20)).await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`FleetError::Denied`]; [`FleetError::Backend`].
    pub async fn questions(&self, query: QuestionQuery) -> Result<Vec<QuestionRecord>, FleetError> {
        self.fleet.questions(&self.scope, query.tenant(self.tenant.clone())).await
    }

    /// Answers a question of the tenant. The first answer before the deadline decides.
    ///
    /// It does not matter on which handle or node the question was asked. When this returns `Ok`, this answer is the
    /// decision, and durable; the session acts on it if its CLI still waits.
    ///
    /// Not cancel-safe: if the future is dropped, the answer may still decide.
    ///
    /// # Errors
    /// [`AnswerError::Misfit`] if the answer does not fit the question, which stays open; [`AnswerError::TooLate`];
    /// [`AnswerError::Gone`], also for a question that the tenant does not have; [`AnswerError::Unknown`] if the backend does not
    /// say whether the answer decided; [`AnswerError::Denied`]; [`AnswerError::Backend`].
    pub async fn answer(
        &self,
        question: QuestionId,
        answer: impl Into<QuestionAnswer>,
    ) -> Result<(), AnswerError> {
        self.fleet.answer(&self.scope, question, answer.into()).await
    }
}

impl std::fmt::Debug for FleetTenant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FleetTenant").field(&self.tenant).finish()
    }
}
