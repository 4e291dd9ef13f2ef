//! The worktrees of a git repository, read from its own files: nothing is started for it.

use std::fs;
use std::path::{Path, PathBuf};

use super::key::nfc;

/// The folders of all worktrees of the repository that this directory is in, the main one first. Empty if it is in none.
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
            // The file names the `.git` of the worktree; one that was moved away may be named by a relative path.
            let git = read_path(&entry.path().join("gitdir"), &entry.path())?;
            Some(nfc(git.parent()?))
        })
        .collect();
    linked.sort();
    found.extend(linked);
    found
}

/// The repository's own folder, which all its worktrees share.
fn common_dir(directory: &Path) -> Option<PathBuf> {
    let git = directory.ancestors().map(|folder| folder.join(".git")).find(|git| git.exists())?;
    if git.is_dir() {
        return Some(git);
    }
    // A worktree, or a submodule: a file that names the folder.
    let text = fs::read_to_string(&git).ok()?;
    let named = git.parent()?.join(text.strip_prefix("gitdir:")?.trim());
    let common = read_path(&named.join("commondir"), &named).unwrap_or(named);
    Some(fs::canonicalize(&common).unwrap_or(common))
}

/// The path that stands in a file, relative to a folder.
fn read_path(file: &Path, folder: &Path) -> Option<PathBuf> {
    let path = folder.join(fs::read_to_string(file).ok()?.trim());
    Some(fs::canonicalize(&path).unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worktree_knows_all_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        let (main, linked) = (root.join("main"), root.join("linked"));
        let admin = main.join(".git/worktrees/linked");
        for folder in [&admin, &linked, &main.join("src/deep")] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(linked.join(".git"), format!("gitdir: {}\n", admin.display())).unwrap();
        fs::write(admin.join("gitdir"), format!("{}/.git\n", linked.display())).unwrap();
        fs::write(admin.join("commondir"), "../..\n").unwrap();
        let all = [nfc(&main), nfc(&linked)];
        for from in [&main, &linked, &main.join("src/deep")] {
            assert_eq!(worktrees(from), all, "from {}", from.display());
        }
        assert_eq!(worktrees(&root), Vec::<String>::new());
    }
}
