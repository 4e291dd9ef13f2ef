//! Names, ids and times.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The name of a session: the key by which the application finds it, such as `customer-42`.
///
/// A name is 1 to 256 bytes of any UTF-8. Names are compared byte by byte, so `Anna` and `anna` are two sessions. A name is never
/// used as a path or as part of one.
///
/// ```
/// use greenroom_fleet::Name;
///
/// assert_eq!(Name::new("customer-42")?.as_str(), "customer-42");
/// assert!(Name::new("").is_err());
/// # Ok::<(), greenroom_fleet::InvalidName>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Name(String);

/// A text that is no [`Name`]: it is empty or too long.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a session's name has 1 to {max} bytes, and this text has {length}", max = Name::MAX_BYTES)]
pub struct InvalidName {
    length: usize,
}

impl Name {
    /// The length of the longest name, in bytes.
    pub const MAX_BYTES: usize = 256;

    /// Checks the length of a name.
    ///
    /// # Errors
    /// [`InvalidName`] if the text is empty or longer than [`Name::MAX_BYTES`].
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidName> {
        let name = name.into();
        match name.len() {
            1..=Self::MAX_BYTES => Ok(Self(name)),
            length => Err(InvalidName { length }),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = InvalidName;

    fn try_from(name: String) -> Result<Self, InvalidName> {
        Self::new(name)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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

    /// The time from `earlier` to this moment, or zero if `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
