//! Credentials that the API rejects for now, so the prompts of their sessions wait.
//!
//! ```text
//!                  a turn is rejected                `until` has come, and a prompt begins
//!  (no row) ────────────────────────────► Paused ─────────────────────────────────────────► Trying
//!     ▲                                     ▲                                                 │ │
//!     │                                     ├── the API rejects it as well: a new `until` ────┤ │
//!     │                                     └── it ends without an answer ────────────────────┘ │
//!     └── the model answers it, or an operator says that the cause is mended ───────────────────┘
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Cause;
use crate::id::{AttemptId, NodeId, PromptId, Tenant, Timestamp};

/// A credential of the API (a key or a login), as the fleet tells it apart from others. It never holds the secret.
///
/// As text, and in JSON, it is `key:NAME`, or `tenant:TENANT/PROFILE`.
///
/// ```
/// use greenroom_fleet::{Credential, Tenant};
///
/// let credential: Credential = "tenant:acme/support".parse()?;
/// let tenant = Tenant::new("acme")?;
/// assert_eq!(credential, Credential::OfTenant { tenant, profile: "support".to_owned() });
/// assert_eq!(credential.to_string(), "tenant:acme/support");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum Credential {
    /// The credential that a profile names: see [`FleetBuilder::credential`](crate::FleetBuilder::credential).
    Key {
        /// Its name.
        name: String,
    },
    /// The credential of a tenant's sessions with a profile that names none.
    OfTenant {
        /// The tenant.
        tenant: Tenant,
        /// The profile.
        profile: String,
    },
}

impl Credential {
    /// The length of the longest name of a key, in bytes.
    pub const MAX_BYTES: usize = 256;

    /// The profile and the tenant whose sessions use it, if it is theirs alone.
    pub(crate) fn owner(&self) -> (Option<&String>, Option<&Tenant>) {
        match self {
            Self::Key { .. } => (None, None),
            Self::OfTenant { tenant, profile } => (Some(profile), Some(tenant)),
        }
    }
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key { name } => write!(f, "key:{name}"),
            Self::OfTenant { tenant, profile } => write!(f, "tenant:{}/{profile}", tenant.as_str()),
        }
    }
}

impl FromStr for Credential {
    type Err = InvalidCredential;

    fn from_str(text: &str) -> Result<Self, InvalidCredential> {
        if let Some(name) = text.strip_prefix("key:") {
            return Ok(Self::Key { name: name.to_owned() });
        }
        let of_tenant = text.strip_prefix("tenant:").and_then(|text| text.split_once('/'));
        let (tenant, profile) = of_tenant.ok_or(InvalidCredential)?;
        let tenant = Tenant::new(tenant).map_err(|_| InvalidCredential)?;
        Ok(Self::OfTenant { tenant, profile: profile.to_owned() })
    }
}

impl TryFrom<String> for Credential {
    type Error = InvalidCredential;

    fn try_from(text: String) -> Result<Self, InvalidCredential> {
        text.parse()
    }
}

impl From<Credential> for String {
    fn from(credential: Credential) -> Self {
        credential.to_string()
    }
}

/// A text that is no [`Credential`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a credential is written as `key:NAME` or `tenant:TENANT/PROFILE`: take it from the list of what is held"
)]
pub struct InvalidCredential;

/// A credential that the API rejects for now. The prompts of its sessions wait, on all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Hold {
    /// The credential.
    pub credential: Credential,
    /// The cause: [`RateLimited`](Cause::RateLimited), [`Overloaded`](Cause::Overloaded), [`KeyRejected`](Cause::KeyRejected) or
    /// [`NoCredit`](Cause::NoCredit).
    pub cause: Cause,
    /// The error of the last turn that was rejected, 1 KiB at most.
    pub why: String,
    /// When the first turn was rejected.
    pub since: Timestamp,
    /// When one prompt tries again.
    pub until: Timestamp,
    /// The moment at which the limit is reset, as the API told it. It may be beyond `until`, which is 24 hours ahead at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<Timestamp>,
    /// Turns that were rejected: the first one, and each one that has tried since.
    pub tries: u32,
    /// The prompt that tries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trying: Option<Trying>,
}

/// The reason for which a prompt waits whose credential is held: the part of a [`Hold`] that is for the people of the tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PromptHold {
    /// The cause.
    pub cause: Cause,
    /// When one prompt of the credential tries again, in milliseconds since 1970 on the backend's clock.
    pub until: Timestamp,
}

/// The time of a prompt under limits of the API, and its rejections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Waited {
    /// The last attempt that the API rejected before anything had run, so that the prompt waits again.
    pub(crate) returned: Option<AttemptId>,
    /// Such attempts that began while the credential was not held: the API had taken other prompts.
    pub(crate) alone: u32,
    /// The time by which its expiry was moved, in milliseconds.
    pub(crate) moved: u64,
}

impl Waited {
    pub(crate) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl PromptHold {
    pub(crate) fn of(hold: &Hold) -> Self {
        Self { cause: hold.cause, until: hold.until }
    }
}

/// The prompt that tries a credential, in a [`Hold`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Trying {
    /// The prompt.
    pub prompt: PromptId,
    /// The attempt that has begun it.
    pub attempt: AttemptId,
    /// The node that runs its turn.
    pub node: NodeId,
}
