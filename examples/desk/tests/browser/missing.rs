//! A machine without Chromium: one line says which tests are not run, unless they have to be.

#![allow(clippy::disallowed_methods, reason = "the tests are no CLI, and are waited for")]

use std::process::{Command, Output};

use crate::browser::{PROGRAM, REQUIRED};

/// Runs the other tests of this binary where no program is found.
fn without_chromium(required: bool) -> Output {
    let empty = tempfile::tempdir().unwrap();
    let mut tests = Command::new(std::env::current_exe().unwrap());
    tests.args(["--skip", "missing::"]).env(PROGRAM, empty.path().join("none")).env_remove(REQUIRED);
    tests.envs(required.then_some((REQUIRED, "1")));
    tests.output().unwrap()
}

#[test]
fn without_chromium_one_line_says_what_was_not_run() {
    let output = without_chromium(false);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    assert_eq!((stderr.matches("are not run").count(), stderr.lines().count()), (1, 1), "{stderr}");
    assert!(stderr.contains("To run them: install chromium"), "{stderr}");
}

#[test]
fn without_chromium_the_tests_fail_where_it_is_required() {
    let output = without_chromium(true);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("Chromium is not installed, and GREENROOM_REQUIRE_CHROMIUM is set"), "{text}");
}
