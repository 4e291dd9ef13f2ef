//! Tenants, names, ids and times.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A customer, a team or whoever else shares a fleet with others: the owner of names, queues, questions and money.
///
/// A tenant is 1 to 128 bytes of UTF-8 without `/` and without control characters. Tenants are compared byte by byte.
///
/// ```
/// use greenroom_fleet::Tenant;
///
/// assert_eq!(Tenant::new("acme")?.as_str(), "acme");
/// assert!(Tenant::new("acme/42").is_err());
/// # Ok::<(), greenroom_fleet::InvalidName>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tenant(String);

/// The name of a session: its tenant, and the name by which the tenant finds it, such as `customer-42`. Two tenants may use the same
/// name for two sessions.
///
/// The part after the tenant is 1 to 256 bytes of any UTF-8. Names are compared byte by byte, so `Anna` and `anna` are two sessions, and
/// they sort by their tenants first. A name is never used as a path or as part of one. As text, and in JSON, a name is
/// `tenant/session`.
///
/// ```
/// use greenroom_fleet::{Name, Tenant};
///
/// let name = Name::new(Tenant::new("acme")?, "customer-42")?;
/// assert_eq!(name.tenant().as_str(), "acme");
/// assert_eq!(name.session(), "customer-42");
/// assert_eq!(name, "acme/customer-42".parse()?);
/// # Ok::<(), greenroom_fleet::InvalidName>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name {
    tenant: Tenant,
    session: String,
}

/// A text that is no [`Tenant`] or no [`Name`].
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidName {
    /// The tenant is empty or too long.
    #[error("a tenant has 1 to {max} bytes, and this text has {0}", max = Tenant::MAX_BYTES)]
    TenantLength(usize),
    /// The tenant has a character that no tenant may have.
    #[error("a tenant has no '/' and no control characters, and this text has {0:?}")]
    TenantCharacter(char),
    /// The name is empty or too long.
    #[error("a session's name has 1 to {max} bytes, and this text has {0}", max = Name::MAX_BYTES)]
    Length(usize),
    /// The text is not `tenant/session`.
    #[error("a session's name with its tenant is written as 'tenant/session', and this text has no '/'")]
    NoTenant,
}

impl Tenant {
    /// The length of the longest tenant, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// Checks the text of a tenant.
    ///
    /// # Errors
    /// [`InvalidName`] if the text is empty, longer than [`Tenant::MAX_BYTES`], or has a `/` or a control character.
    pub fn new(tenant: impl Into<String>) -> Result<Self, InvalidName> {
        let tenant = tenant.into();
        if !(1..=Self::MAX_BYTES).contains(&tenant.len()) {
            return Err(InvalidName::TenantLength(tenant.len()));
        }
        match tenant.chars().find(|character| *character == '/' || character.is_control()) {
            Some(character) => Err(InvalidName::TenantCharacter(character)),
            None => Ok(Self(tenant)),
        }
    }

    /// The tenant as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Name {
    /// The length of the longest name, in bytes, without its tenant.
    pub const MAX_BYTES: usize = 256;

    /// A tenant's name for a session.
    ///
    /// # Errors
    /// [`InvalidName`] if `session` is empty or longer than [`Name::MAX_BYTES`].
    pub fn new(tenant: Tenant, session: impl Into<String>) -> Result<Self, InvalidName> {
        let session = session.into();
        match session.len() {
            1..=Self::MAX_BYTES => Ok(Self { tenant, session }),
            length => Err(InvalidName::Length(length)),
        }
    }

    /// The tenant of the session.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// The tenant's name for the session.
    pub fn session(&self) -> &str {
        &self.session
    }
}

impl std::str::FromStr for Name {
    type Err = InvalidName;

    /// Reads `tenant/session`.
    fn from_str(name: &str) -> Result<Self, InvalidName> {
        let (tenant, session) = name.split_once('/').ok_or(InvalidName::NoTenant)?;
        Self::new(Tenant::new(tenant)?, session)
    }
}

impl TryFrom<String> for Name {
    type Error = InvalidName;

    fn try_from(name: String) -> Result<Self, InvalidName> {
        name.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.to_string()
    }
}

impl TryFrom<String> for Tenant {
    type Error = InvalidName;

    fn try_from(tenant: String) -> Result<Self, InvalidName> {
        Self::new(tenant)
    }
}

impl TryFrom<&str> for Tenant {
    type Error = InvalidName;

    fn try_from(tenant: &str) -> Result<Self, InvalidName> {
        Self::new(tenant)
    }
}

impl From<std::convert::Infallible> for InvalidName {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

impl From<Tenant> for String {
    fn from(tenant: Tenant) -> String {
        tenant.0
    }
}

impl std::borrow::Borrow<str> for Tenant {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.session)
    }
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A new random id.
            #[allow(clippy::new_without_default, reason = "two defaults would differ")]
            pub fn new() -> Self {
                Self(Uuid::new_v4())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// The id of a prompt. The fleet chooses it before the prompt is accepted, so that an accept whose reply was lost can be
    /// repeated with the same id.
    PromptId;
    /// The id of a question that a session asks a person.
    QuestionId;
    /// The id of a node: a process that runs sessions of the fleet. Each start of a process has a new id.
    NodeId;
    /// The id of a command to the owner of a session.
    CommandId;
    /// The id of an attempt to claim a name, to begin a prompt, to answer a question, or to take a command. A repeated request with the same id finds the first one.
    AttemptId;
}

/// The number of an ownership of a name. It grows with each owner, so an older owner is told apart and refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Term(pub u64);

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The ownership of a name, as a claim gives it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ownership {
    /// The name.
    pub name: Name,
    /// The owner's node.
    pub node: NodeId,
    /// The owner's term.
    pub term: Term,
}

/// A moment on the backend's clock, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The moment now on the system's clock. A clock before 1970 counts as 1970.
    pub fn now() -> Self {
        Self::of(SystemTime::now())
    }

    /// A moment on the system's clock. A moment before 1970 counts as 1970.
    pub(crate) fn of(moment: SystemTime) -> Self {
        Self(millis(moment.duration_since(UNIX_EPOCH).unwrap_or_default()))
    }

    /// The moment `duration` later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// The start of the period that the moment lies in. Periods are counted from 1970.
    pub(crate) fn period(self, length: Duration) -> Self {
        Self(self.0 - self.0 % millis(length).max(1))
    }

    /// The time from `earlier` to this moment, or zero if `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
