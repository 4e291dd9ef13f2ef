//! What a handle may see.

use crate::id::{Name, Tenant};

/// The names that a handle may see: those of one tenant, or all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Tenant(Tenant),
    /// For operators.
    All,
}

impl Scope {
    pub(crate) fn sees(&self, name: &Name) -> bool {
        match self {
            Self::Tenant(tenant) => tenant == name.tenant(),
            Self::All => true,
        }
    }
}
