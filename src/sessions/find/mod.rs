//! Finds transcripts on disk: folders, project keys, worktrees.

pub(super) mod disk;
pub(crate) mod key;
pub(super) mod worktree;
