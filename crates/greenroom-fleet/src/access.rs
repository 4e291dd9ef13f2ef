//! Access of people, as the application decides.

use futures_util::future::{BoxFuture, ready};
use serde::Serialize;

use crate::id::{Name, Tenant};

/// Decides what people may do. The fleet asks for each call on a handle that acts
/// [on behalf of](crate::FleetTenant::on_behalf_of) a person, before it does anything, in the task of the caller.
///
/// ```
/// use futures_util::future::{BoxFuture, ready};
/// use greenroom_fleet::{Access, Action, Authoriser, Denied};
///
/// /// Agents of the desk may do everything for their own tenant but delete its sessions.
/// struct Agents;
///
/// impl Authoriser for Agents {
///     fn authorise<'a>(&'a self, access: Access<'a>) -> BoxFuture<'a, Result<(), Denied>> {
///         let own = access.tenant.is_some_and(|tenant| access.person.ends_with(&format!("@{tenant}.example")));
///         Box::pin(ready(match own && access.action != Action::Delete {
///             true => Ok(()),
///             false => Err(Denied::new("agents work for their own tenant")),
///         }))
///     }
/// }
/// ```
pub trait Authoriser: Send + Sync + 'static {
    /// Decides on one access. A future that is slow delays the caller alone.
    ///
    /// # Errors
    /// [`Denied`]: the person may not do it, and nothing is done.
    fn authorise<'a>(&'a self, access: Access<'a>) -> BoxFuture<'a, Result<(), Denied>>;
}

/// A rule that need not wait.
///
/// ```
/// use greenroom_fleet::{Access, Action, Denied, Fleet};
///
/// let builder = Fleet::builder().authoriser(|access: Access<'_>| match access.action {
///     Action::Delete => Err(Denied::new("sessions are deleted by their customers")),
///     _ => Ok(()),
/// });
/// # let _ = builder;
/// ```
impl<F> Authoriser for F
where
    F: Fn(Access<'_>) -> Result<(), Denied> + Send + Sync + 'static,
{
    fn authorise<'a>(&'a self, access: Access<'a>) -> BoxFuture<'a, Result<(), Denied>> {
        Box::pin(ready(self(access)))
    }
}

/// An access that an [`Authoriser`] decides on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Access<'a> {
    /// The person, as the application calls them.
    pub person: &'a str,
    /// The action that the person asks for.
    pub action: Action,
    /// The tenant. `None`: an operator asks about all tenants, for a list, usage, the feed or a snapshot.
    pub tenant: Option<&'a Tenant>,
    /// The session. `None`: the call is about several sessions: a list of sessions or questions, usage, the feed or a snapshot.
    pub name: Option<&'a Name>,
}

/// An action that a person asks for: each is the method of a handle that is called so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "named by their methods")]
#[non_exhaustive]
pub enum Action {
    /// Read turns, records, questions, lists, usage and the feed.
    Read,
    Prompt,
    Steer,
    Withdraw,
    Interrupt,
    Answer,
    Warm,
    Passivate,
    Quarantine,
    SetQuota,
    Unquarantine,
    SetLabels,
    Delete,
}

/// The person may not do it. Nothing was done.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("the person may not do this: {why}")]
pub struct Denied {
    why: String,
}

impl Denied {
    /// A refusal, with its reason for the person.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }

    /// The reason.
    pub fn why(&self) -> &str {
        &self.why
    }
}
