//! The errors of a fleet.

use super::{BackendError, FilesError, debug_as_report};
use crate::access::Denied;
use crate::id::{InvalidName, NodeId, PromptId};
use crate::request::Refused;

/// The reason why a fleet could not do what was asked.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// The fleet is defined in a way that cannot work.
    #[error("{0}")]
    Invalid(String),
    /// The text is no name of a session.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The backend could not carry out the request.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The name, prompt or question is not known.
    #[error("the {what} {id} is not known: it was deleted, or its time to be kept has passed")]
    NotFound {
        /// `session`, `prompt` or `question`.
        what: &'static str,
        /// Its name or id.
        id: String,
    },
    /// Another node owns the session, and this node cannot do it there.
    #[error("the node {node} owns the session: do this there")]
    Elsewhere {
        /// The owner.
        node: NodeId,
    },
    /// The node that owns the session has not taken the command in time: nothing was done. The node may be busy or lost.
    #[error(
        "the node {node} owns the session and has not taken the command in time, so nothing was done: try again"
    )]
    OwnerSilent {
        /// The owner.
        node: NodeId,
    },
    /// The session, its tenant or the node that owns the session has too many commands that have not ended: nothing was done.
    #[error(
        "the session, its tenant or its node {node} has too many commands that have not ended: try again later"
    )]
    OwnerBusy {
        /// The owner.
        node: NodeId,
    },
    /// The node that owns the session could not do it.
    #[error("the node {node} owns the session and could not do it: {why}")]
    OwnerFailed {
        /// The owner.
        node: NodeId,
        /// The cause, in words.
        why: String,
    },
    /// The node that owns the session was lost after it had taken the command, or does not answer: the command may have been
    /// carried out. No other node carries it out.
    #[error(
        "the node {node} has taken the command and was lost, or does not answer: it may have carried the command out"
    )]
    OutcomeUnknown {
        /// The node.
        node: NodeId,
    },
    /// The person for whom the handle acts may not do it.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The session cannot do it in the state in which it is.
    #[error("{0}")]
    State(String),
    /// The files of a session could not be created or removed.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The session's own error.
    #[error(transparent)]
    Session(greenroom::Error),
    /// The fleet is draining, or has ended.
    #[error("the fleet has ended, or is draining: open it again")]
    Ended,
}

impl FleetError {
    pub(crate) fn not_found(what: &'static str, id: impl std::fmt::Display) -> Self {
        Self::NotFound { what, id: id.to_string() }
    }
}

/// The reason why a prompt has no turn.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PromptError {
    /// The person for whom the handle acts may not prompt the session.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The prompt was not accepted, and nothing of it is kept. [`Refused::retry_after`] has the time after which it may be accepted.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The backend did not answer in time, so the prompt may have been accepted. Send it again with its key, or look for its id
    /// with [`FleetTenant::turn`](crate::FleetTenant::turn).
    #[error("it is not known whether the prompt {prompt} was accepted: send it again with its key. {cause}")]
    Unknown {
        /// The id of the prompt.
        prompt: PromptId,
        /// The application's key.
        key: Option<String>,
        /// The backend's last error.
        #[source]
        cause: BackendError,
    },
}

debug_as_report!(FleetError, PromptError, Refused, InvalidName, Denied);
