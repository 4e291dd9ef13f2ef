//! House rules that no compiler checks.

#![allow(clippy::unwrap_used, reason = "a test")]

mod structure;

#[path = "../support/bless.rs"]
mod bless;
mod face;
mod for_programs;
mod links;
mod promises;
mod tables;

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

/// The sources of the libraries, and of the command.
const LIBRARIES: [&str; 5] = [
    "src",
    "crates/greenroom-process/src",
    "crates/greenroom-testkit/src",
    "crates/greenroom-fleet/src",
    "crates/greenroom-cli/src",
];

/// The code of sessions and their processes: no tests, no comments.
fn library() -> Vec<(String, String)> {
    LIBRARIES[..2]
        .iter()
        .flat_map(|library| sources(&root().join(library)))
        .map(|path| (path.strip_prefix(root()).unwrap().display().to_string(), path))
        .filter(|(name, _)| !name.contains("tests"))
        .map(|(name, path)| {
            let text = fs::read_to_string(path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            (name, lines.collect::<Vec<_>>().join("\n"))
        })
        .collect()
}

// Guards: no-hidden-limits
#[test]
fn no_limit_is_hidden_in_the_code() {
    // The value that tells the CLI "no limit" is not a limit of the library. The guardian is a process of its own, which no session
    // and no option belongs to. A search for processes waits for the system alone. A claim waits a second at most for another
    // process that removes old locks. The pace of a tool decides only which task runs its handlers. A
    // CLI does not say when it has written a call down, so a deferral looks again after a pause.
    let allowed = [
        "src/actor/resume/call.rs",
        "src/control/hook/definition.rs",
        "src/sessions/claim/file.rs",
        "src/tool/run/pace.rs",
        "crates/greenroom-process/src/environment.rs",
        "crates/greenroom-process/src/guardian/acknowledgements.rs",
        "crates/greenroom-process/src/guardian/boot_time.rs",
        "crates/greenroom-process/src/guardian/program.rs",
    ];
    for (name, code) in library() {
        if name.starts_with("src/options/") || allowed.contains(&name.as_str()) {
            continue;
        }
        let is_time = |line: &&str| {
            let mut made = line.split("Duration::new(").skip(1);
            line.contains("Duration::from_") || made.any(|seconds| seconds.starts_with(char::is_numeric))
        };
        let hidden: Vec<_> = code.lines().filter(is_time).collect();
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
fn every_file_of_the_library_says_what_it_is() {
    for path in LIBRARIES.iter().flat_map(|library| sources(&root().join(library))) {
        let text = fs::read_to_string(&path).unwrap();
        let tests = path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests");
        assert!(tests || text.starts_with("//!"), "{} does not say what it is", path.display());
    }
}

#[test]
fn every_file_of_the_tests_is_compiled() {
    let tests = root().join("tests");
    let files = sources(&tests);
    // Crates and examples share the helpers.
    let others = ["crates", "examples"].iter().flat_map(|folder| sources(&root().join(folder)));
    let texts: Vec<String> =
        files.iter().cloned().chain(others).map(|path| fs::read_to_string(path).unwrap()).collect();
    // The programs with a mistake are compiled by their test.
    for path in files.iter().filter(|path| !path.starts_with(tests.join("compile_fail/cases"))) {
        // A folder is declared above it, under its own name.
        let path: &Path = if path.ends_with("mod.rs") { path.parent().unwrap() } else { path };
        let (folder, name) = (path.parent().unwrap(), path.file_stem().unwrap().to_str().unwrap());
        let by_mod = ["main.rs", "mod.rs"].iter().any(|parent| {
            let parent = fs::read_to_string(folder.join(parent)).unwrap_or_default();
            parent.contains(&format!("mod {name};"))
        });
        let by_path = format!("/support/{name}.rs\"]");
        let by_path = folder.ends_with("support") && texts.iter().any(|text| text.contains(&by_path));
        // Cargo finds the root of a group.
        assert!(name == "main" || by_mod || by_path, "{} is part of no test binary", path.display());
    }
}

#[test]
fn the_names_of_tests_are_short() {
    for path in sources(&root().join("tests")) {
        let text = fs::read_to_string(&path).unwrap();
        let after = ["#[test]", "#[tokio::test"].into_iter().flat_map(|mark| text.split(mark).skip(1));
        let mut names = after.filter_map(|after| after.split_once("fn ")?.1.split('(').next());
        let long = names.find(|name| name.len() > 70);
        assert_eq!(long, None, "{}: a name of more than 70 characters", path.display());
    }
}

#[test]
fn every_step_of_the_checks_is_in_one_slice_of_the_workflow() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let (run, workflow) = (read(".ci/run"), read(".github/workflows/ci.yml"));
    let mut steps: Vec<&str> = run.split('\'').nth(1).unwrap().split_whitespace().collect();
    let slices = workflow.lines().filter_map(|line| line.split_once("steps: ")?.1.strip_suffix(" }"));
    let mut sliced: Vec<&str> = slices.flat_map(str::split_whitespace).collect();
    steps.sort_unstable();
    sliced.sort_unstable();
    assert!(!steps.is_empty());
    assert_eq!(sliced, steps, "the slices in .github/workflows/ci.yml, and the steps of .ci/run");
}
