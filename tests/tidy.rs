//! House rules that no compiler checks.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The library's own code: no stand-ins, no tests, no comments.
fn library() -> Vec<(String, String)> {
    sources(&root().join("src"))
        .into_iter()
        .map(|path| (path.strip_prefix(root()).unwrap().display().to_string(), path))
        .filter(|(name, _)| !name.contains("testkit") && !name.contains("tests"))
        .map(|(name, path)| {
            let text = fs::read_to_string(path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            (name, lines.collect::<Vec<_>>().join("\n"))
        })
        .collect()
}

#[test]
fn no_limit_is_hidden_in_the_code() {
    // What is told to the CLI for "no limit" is no limit of ours.
    let allowed = ["src/control/hook/mod.rs"];
    for (name, code) in library() {
        if name.starts_with("src/options/") || allowed.contains(&name.as_str()) {
            continue;
        }
        let hidden: Vec<_> = code.lines().filter(|line| line.contains("Duration::from_")).collect();
        assert!(hidden.is_empty(), "{name} has a time that is not in the options: {hidden:#?}");
    }
}

#[test]
fn no_send_is_ignored_in_silence_and_nothing_is_left_to_do() {
    for (name, code) in library() {
        for forbidden in ["let _ = ", "todo!", "unimplemented!", ".unwrap()", ".expect(", "dbg!"] {
            let found: Vec<_> = code.lines().filter(|line| line.contains(forbidden)).collect();
            assert!(found.is_empty(), "{name} has `{forbidden}`: {found:#?}");
        }
    }
}

#[test]
fn every_test_that_the_architecture_names_is_there() {
    let map = fs::read_to_string(root().join("architecture.md")).unwrap();
    let section = |heading: &str| map.split(heading).nth(1).unwrap().split("\n## ").next().unwrap();
    let rows_of = |heading: &str, start: &str| {
        section(heading).lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect::<Vec<_>>()
    };
    let promises = rows_of("## Promises", "| **");
    assert_eq!(promises.len(), 12, "a promise without a row");
    let failures: Vec<String> = rows_of("## When something fails", "| ").into_iter().skip(1).collect();
    assert!(failures.len() >= 17, "a failure without a row");
    let rows = promises.iter().chain(&failures);
    for row in rows {
        let names: Vec<&str> = row.rsplit(" | ").next().unwrap().split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "a row without a test: {row}");
        for name in names {
            if let Some((file, test)) = name.split_once("::") {
                let text = fs::read_to_string(root().join(format!("tests/{file}.rs"))).unwrap_or_default();
                assert!(text.contains(&format!("fn {test}(")), "no test {name}");
            } else {
                let path = root().join(name);
                let has_tests = path.is_dir()
                    || fs::read_to_string(&path)
                        .is_ok_and(|text| text.contains("#[test]") || text.contains("#[tokio::test"));
                assert!(has_tests, "no tests in {name}");
            }
        }
    }
}

#[test]
fn every_file_of_the_library_has_one_subject() {
    for path in sources(&root().join("src")) {
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.split("#[cfg(test)]\nmod tests {").next().unwrap().lines().count();
        assert!(lines <= 620, "{} has {lines} lines", path.display());
        let tests = path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests");
        assert!(tests || text.starts_with("//!"), "{} does not say what it is", path.display());
    }
}
