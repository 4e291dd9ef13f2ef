//! The tenants and the person of a handle.

use std::sync::Arc;

use crate::access::{Access, Action, Denied};
use crate::actor::context::FleetShared;
use crate::id::{Name, Tenant};

/// The names that a handle may see, and the person for whom it acts.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// `None`: all tenants, for operators.
    pub(super) tenant: Option<Tenant>,
    /// `None`: the service itself, which may do everything.
    pub(super) person: Option<Arc<str>>,
}

impl Scope {
    pub(crate) const ALL: Self = Self { tenant: None, person: None };

    pub(crate) fn of(tenant: Tenant) -> Self {
        Self { tenant: Some(tenant), person: None }
    }

    pub(crate) fn on_behalf_of(self, person: String) -> Self {
        Self { person: Some(person.into()), ..self }
    }

    pub(crate) fn sees(&self, name: &Name) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| tenant == name.tenant())
    }

    /// Asks the authoriser, if the handle acts for a person.
    pub(crate) async fn allow(
        &self,
        shared: &FleetShared,
        action: Action,
        name: Option<&Name>,
    ) -> Result<(), Denied> {
        let Some(person) = &self.person else { return Ok(()) };
        let Some(authoriser) = &shared.authoriser else {
            return Err(Denied::new("the fleet has no authoriser: call `FleetBuilder::authoriser`"));
        };
        let tenant = name.map(Name::tenant).or(self.tenant.as_ref());
        authoriser.authorise(Access { person, action, tenant, name }).await
    }

    /// Allows the service itself, and no person.
    pub(crate) fn allow_service(&self) -> Result<(), Denied> {
        match self.person {
            None => Ok(()),
            Some(_) => {
                Err(Denied::new("only the service itself may do this: use a handle without `on_behalf_of`"))
            }
        }
    }

    /// Asks the authoriser about a tenant as a whole, for an operator.
    pub(crate) async fn allow_tenant(
        &self,
        shared: &FleetShared,
        action: Action,
        tenant: &Tenant,
    ) -> Result<(), Denied> {
        let of_tenant = Self { tenant: Some(tenant.clone()), person: self.person.clone() };
        of_tenant.allow(shared, action, None).await
    }
}
