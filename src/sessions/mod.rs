//! The sessions that the CLI has written down: listed, read, renamed, tagged, forked and deleted, without a CLI.
//!
//! ```text
//!   <config>/projects/<project key>/<session id>.jsonl                            the transcript, one entry a line
//!                                  /<session id>/subagents/agent-<id>.jsonl       a subagent's
//!                                                         /agent-<id>.meta.json   who started it, and for what
//! ```
//!
//! - [`LocalSessions`]: those on this machine's disk

//! - [`StoredSessions`](crate::store::StoredSessions): those in a [`SessionStore`](crate::store::SessionStore)
//! - [`project_key`]: under which name a directory's sessions are filed
//!
//! The layout was seen with CLI 2.1.328, and is the one that the published SDKs 0.3.328 (TypeScript) and 0.2.184 (Python)
//! read.

mod chain;
mod disk;
mod entry;
mod fork;
mod key;
mod local;
mod message;
mod summary;
#[cfg(test)]
mod tests;
mod worktree;

pub(crate) use disk::{
    SessionFile, each_line, fold_edges, is_absent, parents, sidecar, sidecar_path, transcripts,
};
pub(crate) use entry::Link;
pub use entry::TranscriptEntry;
pub(crate) use fork::{Fork, derived_title};
pub use key::project_key;
pub(crate) use key::{
    canonical, check_session_id, config_dir, is_safe_subpath, is_session_id, key_of_path, variable,
};
pub use local::{LocalSessions, SubagentInfo};
pub(crate) use local::{no_subagent, tag_entry, title_entry, visible, visible_of_subagent};
pub(crate) use message::Parents;
pub use message::{SessionMessage, SessionMessages};
pub(crate) use summary::Folded;
pub use summary::SessionInfo;

use crate::error::{Error, ErrorKind, Result};

/// Which part of a list is wanted.
///
/// ```
/// use greenroom::sessions::Page;
///
/// let third = Page::first(50).after(100);
/// assert_eq!((third.offset, third.limit), (100, Some(50)));
/// assert_eq!(Page::ALL, Page::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// How many to leave out at the beginning.
    pub offset: usize,
    /// How many to return at most; `None` for all.
    pub limit: Option<usize>,
}

impl Page {
    /// All of it.
    pub const ALL: Page = Page { offset: 0, limit: None };

    /// The first so many.
    pub fn first(limit: usize) -> Self {
        Self { offset: 0, limit: Some(limit) }
    }

    /// The same number, behind so many others.
    #[must_use]
    pub fn after(self, offset: usize) -> Self {
        Self { offset, ..self }
    }

    pub(crate) fn end(self) -> usize {
        self.limit.map_or(usize::MAX, |limit| self.offset.saturating_add(limit))
    }

    pub(crate) fn of<I: IntoIterator>(self, items: I) -> std::iter::Take<std::iter::Skip<I::IntoIter>> {
        items.into_iter().skip(self.offset).take(self.limit.unwrap_or(usize::MAX))
    }
}

/// Does file work on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(Error::new(ErrorKind::Io, "the work on the disk was cut off").with_source(error))
    })
}
