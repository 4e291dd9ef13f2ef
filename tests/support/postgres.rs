//! Tests on PostgreSQL, and what becomes of them on a machine without it.
//!
//! Without PostgreSQL the tests say in one line that they were not run; with `GREENROOM_REQUIRE_POSTGRES` set they fail.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::Write;
use std::sync::Once;

use greenroom_fleet::testkit::{ScratchPostgres, ScratchPostgresError};

/// The address of a server that runs already.
pub(crate) const ADDRESS: &str = "GREENROOM_POSTGRES";
/// Set: a test fails if it has no server.
pub(crate) const REQUIRED: &str = "GREENROOM_REQUIRE_POSTGRES";
/// The folder with the programs of PostgreSQL, if they are not where Debian puts them.
pub(crate) const PROGRAMS: &str = "GREENROOM_POSTGRES_PROGRAMS";

/// Says in one line which tests are not run and what they need. They count as passed.
///
/// # Panics
/// If `GREENROOM_REQUIRE_POSTGRES` is set.
pub(crate) fn not_run(said: &Once, which: &str, missing: &str, remedy: &str) {
    assert!(std::env::var_os(REQUIRED).is_none(), "{missing} is not installed, and {REQUIRED} is set");
    said.call_once(|| {
        let binary = env!("CARGO_CRATE_NAME");
        let note = format!(
            "{binary}: {which} are not run and count as passed, because {missing} is not installed. To run them: {remedy}\n"
        );
        // Not with `eprintln!`, which is not shown for a test that passes.
        std::io::stderr().write_all(note.as_bytes()).unwrap();
    });
}

/// Says in one line that the tests on PostgreSQL are not run.
///
/// # Panics
/// As [`not_run`].
pub(crate) fn none_is_run() {
    static SAID: Once = Once::new();
    let remedy = format!("install PostgreSQL, or set {ADDRESS} to the address of a server");
    not_run(&SAID, "the tests on PostgreSQL", "PostgreSQL", &remedy);
}

/// A server for one test. `None`: there is none, which the first test says in one line.
pub(crate) async fn scratch() -> Option<ScratchPostgres> {
    match ScratchPostgres::start().await {
        Ok(server) => Some(server),
        Err(ScratchPostgresError::NotInstalled) => {
            none_is_run();
            None
        }
        Err(error) => panic!("{error}"),
    }
}
