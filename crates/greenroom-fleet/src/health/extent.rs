//! Sessions that a cause holds back together.

use crate::id::Tenant;
use crate::record::{Cause, Credential};

/// The profile, the tenant and the credential of a session.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    pub(crate) profile: String,
    pub(crate) tenant: Tenant,
    pub(crate) credential: Credential,
}

/// The sessions that a cause holds back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Extent {
    Node,
    Profile(String),
    Tenant(String, Tenant),
    Credential(Credential),
}

impl Extent {
    /// The extents of a session, the widest first.
    pub(super) fn all(of: &Membership) -> [Self; 4] {
        [
            Self::Node,
            Self::Profile(of.profile.clone()),
            Self::Tenant(of.profile.clone(), of.tenant.clone()),
            Self::Credential(of.credential.clone()),
        ]
    }

    /// The extents whose causes keep a live session from a turn.
    pub(super) fn of_turn(of: &Membership) -> [Self; 2] {
        let [_, _, tenant, credential] = Self::all(of);
        [tenant, credential]
    }

    /// The sessions that a cause holds back by which a session of this profile and tenant has not started.
    pub(super) fn of(cause: Cause, of: &Membership) -> Self {
        match cause {
            Cause::DiskFull | Cause::NoMemory | Cause::GuardianLost => Self::Node,
            Cause::CliMissing | Cause::ProfileUnfit => Self::Profile(of.profile.clone()),
            Cause::KeyRejected | Cause::NoCredit | Cause::RateLimited | Cause::Overloaded => {
                Self::Tenant(of.profile.clone(), of.tenant.clone())
            }
        }
    }

    pub(super) fn profile(&self) -> Option<String> {
        match self {
            Self::Node => None,
            Self::Profile(profile) | Self::Tenant(profile, _) => Some(profile.clone()),
            Self::Credential(credential) => credential.owner().0.cloned(),
        }
    }

    pub(super) fn tenant(&self) -> Option<Tenant> {
        match self {
            Self::Node | Self::Profile(_) => None,
            Self::Tenant(_, tenant) => Some(tenant.clone()),
            Self::Credential(credential) => credential.owner().1.cloned(),
        }
    }

    pub(super) fn is_credential(&self) -> bool {
        matches!(self, Self::Credential(_))
    }
}
