//! The worktrees of a git repository, read from its files without running git.

use std::fs;
use std::path::{Path, PathBuf};

use super::key::nfc;

/// The folders of all worktrees of the repository that contains this directory, the main one first. Empty without one.
pub(crate) fn worktrees(directory: &Path) -> Vec<String> {
    let Some(common) = common_dir(directory) else { return Vec::new() };
    let mut found = Vec::new();
    if common.file_name().is_some_and(|name| name == ".git")
        && let Some(main) = common.parent()
    {
        found.push(nfc(main));
    }
    let linked = fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten();
    let mut linked: Vec<String> = linked
        .filter_map(|entry| {
            // `gitdir` names the `.git` of the worktree, as a relative path if the worktree was moved.
            let git = read_path(&entry.path().join("gitdir"), &entry.path())?;
            Some(nfc(git.parent()?))
        })
        .collect();
    linked.sort();
    found.extend(linked);
    found
}

/// The repository's folder that all its worktrees share.
fn common_dir(directory: &Path) -> Option<PathBuf> {
    let git = directory.ancestors().map(|folder| folder.join(".git")).find(|git| git.exists())?;
    if git.is_dir() {
        return Some(git);
    }
    // In a worktree or submodule, `.git` is a file with the path of the folder.
    let text = fs::read_to_string(&git).ok()?;
    let named = git.parent()?.join(text.strip_prefix("gitdir:")?.trim());
    let common = read_path(&named.join("commondir"), &named).unwrap_or(named);
    Some(fs::canonicalize(&common).unwrap_or(common))
}

/// The path in a file, resolved relative to a folder.
fn read_path(file: &Path, folder: &Path) -> Option<PathBuf> {
    let path = folder.join(fs::read_to_string(file).ok()?.trim());
    Some(fs::canonicalize(&path).unwrap_or(path))
}
