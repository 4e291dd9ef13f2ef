//! Who a request is from, and what it may reach.
//!
//! ```text
//! login of the application ── Login ──► FleetTenant ── {session} ──► FleetSession ──► each call
//!                              │             └──────── {turn} ─────► FleetTurn ─────────► │
//!                              └ none: 401                             the authoriser says no: 403
//! ```
//!
//! The tenant comes from the login alone, never from the path, the query or the body. So a request reaches nothing of another tenant.

use axum::extract::{FromRef, FromRequestParts, RawPathParams};
use axum::http::request::Parts;

use super::problem::Problem;
use crate::face::fleet::Fleet;
use crate::face::session::FleetSession;
use crate::face::tenant::FleetTenant;
use crate::face::turn::FleetTurn;
use crate::id::{PromptId, Tenant};

/// Who a request is from: the middleware of your login inserts it into the extensions of the request.
///
/// As an extractor it answers 401 to a request without one, and so do the extractors of [`FleetTenant`], [`FleetSession`] and
/// [`FleetTurn`], which reach only what belongs to its tenant. With a person they act
/// [on behalf of](FleetTenant::on_behalf_of) the person: the [authoriser](crate::FleetBuilder::authoriser) of the fleet is asked about
/// each call, and a call that it denies is answered 403. Without a person they may do everything that is of the tenant.
///
/// ```
/// use greenroom_fleet::Tenant;
/// use greenroom_fleet::web::Login;
///
/// let login = Login::new(Tenant::new("acme")?).person("anna@example.com");
/// assert_eq!((login.tenant.as_str(), login.person.as_deref()), ("acme", Some("anna@example.com")));
/// # Ok::<(), greenroom_fleet::InvalidName>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a login counts when it is in the extensions of a request"]
#[non_exhaustive]
pub struct Login {
    /// The tenant.
    pub tenant: Tenant,
    /// The person, as the application calls them. `None`: the tenant itself, such as a program with the tenant's key.
    pub person: Option<String>,
}

impl Login {
    /// A login of the tenant itself.
    pub fn new(tenant: Tenant) -> Self {
        Self { tenant, person: None }
    }

    /// Names the person.
    pub fn person(mut self, person: impl Into<String>) -> Self {
        self.person = Some(person.into());
        self
    }
}

impl<S: Sync> FromRequestParts<S> for Login {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get().cloned().ok_or_else(Problem::no_login)
    }
}

/// The tenant of the [`Login`], on behalf of its person.
impl<S> FromRequestParts<S> for FleetTenant
where
    S: Sync,
    Fleet: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Login { tenant, person } = Login::from_request_parts(parts, state).await?;
        let tenant = Fleet::from_ref(state).tenant(tenant)?;
        Ok(person.into_iter().fold(tenant, FleetTenant::on_behalf_of))
    }
}

/// The tenant's session that `{session}` in the path names: 400 if it is no name.
impl<S> FromRequestParts<S> for FleetSession
where
    S: Sync,
    Fleet: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let tenant = FleetTenant::from_request_parts(parts, state).await?;
        Ok(tenant.session(in_path(parts, "session").await?)?)
    }
}

/// The turn that `{turn}` in the path names: 404 if it is no id. A turn of another tenant is one that is not known.
impl<S> FromRequestParts<S> for FleetTurn
where
    S: Sync,
    Fleet: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let tenant = FleetTenant::from_request_parts(parts, state).await?;
        let id = in_path(parts, "turn").await?;
        let id = id.parse().map_err(|_| Problem::not_found())?;
        Ok(tenant.turn(PromptId(id)))
    }
}

/// A part of the path by its name in the route.
async fn in_path(parts: &mut Parts, name: &'static str) -> Result<String, Problem> {
    let path = RawPathParams::from_request_parts(parts, &()).await.map_err(|_| Problem::invalid_name())?;
    let found = path.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned());
    found.ok_or_else(|| Problem::internal(&format!("the route has no `{{{name}}}` in its path")))
}
