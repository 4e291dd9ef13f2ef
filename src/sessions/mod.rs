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

#[cfg(feature = "sessions")]
mod archive;
#[cfg(feature = "sessions")]
mod change;
mod claim;
pub(crate) mod find;
#[cfg(feature = "sessions")]
mod local;
mod open_call;
#[cfg(feature = "sessions")]
mod page;
mod read;
#[cfg(feature = "sessions")]
mod subagent;

#[doc(hidden)]
pub use claim::lock_folders;
pub(crate) use claim::{Claim, ConversationPlace};
pub(crate) use find::disk::{
    each_line, has_transcript, sidecar_path, sort_newest_first, transcripts_of, unreadable,
};
pub use find::key::project_key;
pub(crate) use find::key::{
    canonical, check_session_id, config_dir, is_safe_subpath, is_session_id, key_of_path, variable,
};
pub(crate) use open_call::{CallSearch, OpenCall, marked_call};
pub use read::TranscriptEntry;

#[cfg(feature = "sessions")]
pub(crate) use {
    change::{tag_entry, title_entry},
    find::contents::{sidecar, transcripts},
    find::disk::{SessionFile, read_entries},
    read::chain::{visible, visible_of_subagent},
    read::summary::Folded,
    read::{Fork, derived_title},
    subagent::{Parents, no_subagent},
};
#[cfg(feature = "sessions")]
pub use {
    local::LocalSessions, page::Page, read::SessionMessages, read::TranscriptMessage,
    read::summary::SessionInfo, subagent::SubagentInfo,
};
