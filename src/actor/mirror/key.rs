//! The key of a transcript file.

use std::path::{Component, Path};

use crate::store::SessionKey;

/// The key of a file, by its path below the folder of all transcripts:
///
/// ```text
///   <project>/<session>.jsonl               the session
///   <project>/<session>/<subpath>.jsonl     a part of the session
/// ```
pub(super) fn key_of(below: &Path, project_key: Option<&str>) -> Option<SessionKey> {
    let mut parts = Vec::new();
    for part in below.components() {
        let Component::Normal(part) = part else { return None };
        parts.push(part.to_str()?);
    }
    let (project, rest) = parts.split_first()?;
    let (file, folders) = rest.split_last()?;
    let name = file.strip_suffix(".jsonl").filter(|name| !name.is_empty())?;
    let project = project_key.unwrap_or(project);
    Some(match folders.split_first() {
        None => SessionKey::new(project, name),
        Some((session, folders)) => {
            let subpath: Vec<_> = folders.iter().copied().chain([name]).collect();
            SessionKey::new(project, *session).with_subpath(subpath.join("/"))
        }
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_gives_its_key() {
        let key = |path: &str| key_of(Path::new(path), None).map(|key| key.to_string());
        assert_eq!(key("-p/s.jsonl").as_deref(), Some("-p/s"));
        assert_eq!(key("-p/s/subagents/agent-1.jsonl").as_deref(), Some("-p/s/subagents/agent-1"));
        assert_eq!(key("-p/s/subagents/w/r/agent-1.jsonl").as_deref(), Some("-p/s/subagents/w/r/agent-1"));
        for none in ["", "-p", "-p/s", "-p/s.json", "../x/s.jsonl", "/abs/s.jsonl", "-p/.jsonl"] {
            assert_eq!(key(none), None, "{none}");
        }
        let scoped = key_of(Path::new("-p/s/a/b.jsonl"), Some("tenant/1")).unwrap();
        assert_eq!(scoped, SessionKey::new("tenant/1", "s").with_subpath("a/b"));
    }

    proptest! {
        #[test]
        fn different_files_have_different_keys(
            parts in proptest::collection::vec("[a-zA-Z0-9_-]{1,8}", 2..6),
            others in proptest::collection::vec("[a-zA-Z0-9_-]{1,8}", 2..6),
        ) {
            let path = |parts: &[String]| PathBuf::from(format!("{}.jsonl", parts.join("/")));
            let key = key_of(&path(&parts), None).unwrap();
            prop_assert_eq!(key.to_string(), parts.join("/"));
            prop_assert_eq!(key == key_of(&path(&others), None).unwrap(), parts == others);
        }

        #[test]
        fn a_path_outside_the_folder_has_no_key(path in "(\\.\\./|/|[a-c./]){1,8}") {
            if let Some(key) = key_of(Path::new(&path), None) {
                let named = key.to_string();
                prop_assert!(!named.split('/').any(|part| part == ".." || part.is_empty()), "{named}");
            }
        }
    }
}
