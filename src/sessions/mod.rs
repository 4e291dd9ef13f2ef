//! List, read, rename, tag, archive, fork and delete the conversations that CLIs have written to disk, without a CLI.
//!
//! Start with [`LocalSessions`]. For conversations in a [`SessionStore`](crate::store::SessionStore) use
//! [`StoredSessions`](crate::store::StoredSessions). [`project_key`] is the name of a directory's folder on disk:
//!
//! ```text
//!   <config>/projects/<project key>/<session id>.jsonl                            the transcript, one entry a line
//!                                  /<session id>/subagents/agent-<id>.jsonl       the transcript of a subagent
//!                                                         /agent-<id>.meta.json   who started it, and for what
//! ```
//!
//! The layout was seen with CLI 2.1.328; the SDKs 0.3.330 (TypeScript) and 0.2.187 (Python) read the same layout.

mod archive;
mod change;
mod claim;
pub(crate) mod find;
mod local;
mod read;
mod subagent;

pub(crate) use change::{tag_entry, title_entry};
pub(crate) use claim::{Claim, ConversationPlace, default_lock_dir};
pub(crate) use find::disk::{
    SessionFile, each_line, fold_edges, sidecar, sidecar_path, sort_newest_first, transcripts,
};
pub use find::key::project_key;
pub(crate) use find::key::{
    canonical, check_session_id, config_dir, is_safe_subpath, is_session_id, key_of_path, variable,
};
pub use local::LocalSessions;
pub(crate) use local::has_transcript;
pub(crate) use read::chain::{visible, visible_of_subagent};
pub(crate) use read::summary::Folded;
pub use read::summary::SessionInfo;
pub(crate) use read::{EntryLink, Fork, derived_title};
pub use read::{SessionMessages, TranscriptEntry, TranscriptMessage};
pub use subagent::SubagentInfo;
pub(crate) use subagent::{Parents, no_subagent};

/// A page of a list.
///
/// ```
/// use greenroom::sessions::Page;
///
/// let third = Page::first(50).after(100);
/// assert_eq!((third.offset, third.limit), (100, Some(50)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Number of items to skip.
    pub offset: usize,
    /// Most items to return; `None` for all.
    pub limit: Option<usize>,
}

impl Page {
    /// The whole list.
    pub const ALL: Page = Page { offset: 0, limit: None };

    /// The first `limit` items.
    pub fn first(limit: usize) -> Self {
        Self { offset: 0, limit: Some(limit) }
    }

    /// Skips the first `offset` items.
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
