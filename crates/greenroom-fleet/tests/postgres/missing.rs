//! A machine without PostgreSQL: one line says which tests are not run, unless they have to be.

#![allow(clippy::disallowed_methods, reason = "the tests are no CLI, and are waited for")]

use std::process::{Command, Output};

use crate::server::{PROGRAMS, REQUIRED};

/// The address of a server that no test asks anything.
const NOBODY: &str = "postgres://127.0.0.1:1/nobody";
/// A test that starts a server of its own.
const OWN_SERVER: &str = "nodes::a_killed_server_loses_no_prompt_that_was_accepted";

/// Runs tests of this binary where no program of PostgreSQL is found.
fn without_programs(address: Option<&str>, required: bool, arguments: &[&str]) -> Output {
    let empty = tempfile::tempdir().unwrap();
    let mut tests = Command::new(std::env::current_exe().unwrap());
    tests.args(arguments).env(PROGRAMS, empty.path()).env_remove("GREENROOM_POSTGRES").env_remove(REQUIRED);
    tests.envs(address.map(|address| ("GREENROOM_POSTGRES", address)));
    tests.envs(required.then_some((REQUIRED, "1")));
    tests.output().unwrap()
}

/// Asserts that tests pass without being run, and that exactly one line says so.
fn says_in_one_line(address: Option<&str>, arguments: &[&str], remedy: &str) {
    let output = without_programs(address, false, arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr.matches("are not run").count(), 1, "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains(remedy), "{stderr}");

    let output = without_programs(address, true, arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("PostgreSQL is not installed, and GREENROOM_REQUIRE_POSTGRES is set"), "{text}");
}

#[test]
fn without_a_server_one_line_says_what_was_not_run() {
    says_in_one_line(None, &["--skip", "missing::"], "set GREENROOM_POSTGRES to the address of a server");
}

#[test]
fn without_programs_one_line_says_that_no_server_is_killed() {
    says_in_one_line(Some(NOBODY), &["--exact", OWN_SERVER], "To run them: install PostgreSQL");
}
