//! Requests about credentials that the API rejects for now.

use super::Finish;
use crate::id::Timestamp;
use crate::limits::Pause;
use crate::record::{Cause, Credential};

/// The end of a turn that the API has rejected.
#[derive(Clone, Debug, PartialEq)]
pub struct Reject {
    /// The end of the turn. Its outcome counts unless the prompt waits again.
    pub finish: Finish,
    /// The credential.
    pub credential: Credential,
    /// The cause.
    pub cause: Cause,
    /// The error.
    pub why: String,
    /// The moment at which the limit is reset, as the API told it.
    pub resets_at: Option<Timestamp>,
    /// The pause before the next try, if the API told no moment, or one that has passed.
    pub pause: Pause,
    /// Nothing has run in the turn: its prompt waits again, as if it had not begun.
    pub again: bool,
}
