//! Decisions of the session about one incarnation, besides the options.

use crate::transport::StderrSink;

/// The conversation that an incarnation opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// The conversation that the options name. A `conversation` counts as new.
    AsOptions,
    /// The conversation with this id.
    Same(String),
    /// A new conversation under this id.
    Begin(String),
    /// A fork of the conversation with this id.
    Fork(String),
    /// A new conversation, whatever the options name.
    Fresh,
}

impl Resume {
    /// The conversation to resume.
    pub(crate) fn session_id(&self) -> Option<&str> {
        match self {
            Resume::Same(id) | Resume::Fork(id) => Some(id),
            Resume::AsOptions | Resume::Begin(_) | Resume::Fresh => None,
        }
    }
}

/// The channel for settings that can go in `initialize` or as arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    Initialize,
    Arguments,
}

#[derive(Clone)]
pub(crate) struct LaunchSpec {
    /// Number of the incarnation, counted from 1.
    pub(crate) epoch: u64,
    /// Overrides everything that the options say about the conversation, except for [`Resume::AsOptions`].
    pub(crate) resume: Resume,
    /// The channel for settings that may be secret.
    pub(crate) private: Channel,
    /// Whether the CLI asks this host for permissions.
    pub(crate) permission_prompt: bool,
    /// Whether the CLI sends a copy of what it writes to its transcripts.
    pub(crate) session_mirror: bool,
    pub(crate) stderr: StderrSink,
}
