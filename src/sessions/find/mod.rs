//! Finds transcripts on disk: folders, project keys, worktrees.

#[cfg(feature = "sessions")]
pub(super) mod contents;
pub(super) mod disk;
pub(crate) mod key;
pub(super) mod worktree;
