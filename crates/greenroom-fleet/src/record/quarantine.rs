//! Quarantines of names.

use serde::{Deserialize, Serialize};

/// The reason for which a name is not activated until somebody calls `unquarantine`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    /// The kind of the reason.
    pub kind: QuarantineKind,
    /// The reason in words.
    pub why: String,
}

/// The kinds of quarantines. New kinds are added: match with a wildcard arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QuarantineKind {
    /// Too many activations failed, by the session's fault.
    Activations,
    /// Too many owners in a row were lost while a turn ran.
    Losses,
    /// The transcript in the backend has a gap.
    Transcript,
    /// A process of an earlier owner may still run.
    Process,
    /// Somebody has called `quarantine`.
    Operator,
}

/// A quarantine by hand.
impl From<String> for Quarantine {
    fn from(why: String) -> Self {
        Self { kind: QuarantineKind::Operator, why }
    }
}

/// A quarantine by hand.
impl From<&str> for Quarantine {
    fn from(why: &str) -> Self {
        why.to_owned().into()
    }
}
