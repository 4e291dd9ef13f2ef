//! Where the real CLI is, and what it may see, for the tests that need it.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Once;

use greenroom::options::EnvPolicy;
use greenroom::{Session, SessionBuilder};
use greenroom_testkit::ScriptedModel;

/// The real CLI's executable; `None` if there is none and there need not be one.
pub(crate) fn real_cli() -> Option<PathBuf> {
    needed("GREENROOM_CLI", "the claude executable")
}

/// The program that this variable names. Without it a test passes and was not run, and the first test of the process
/// says so for all of them. `cargo nextest` has a process for each test, and shows no output of tests that pass.
///
/// # Panics
/// If there is none and `GREENROOM_REQUIRE_CLI=1`.
pub(crate) fn needed(variable: &str, what: &str) -> Option<PathBuf> {
    static TOLD: Once = Once::new();
    if let Some(path) = std::env::var_os(variable) {
        return Some(path.into());
    }
    let required = std::env::var_os("GREENROOM_REQUIRE_CLI").is_some_and(|value| value == "1");
    assert!(!required, "GREENROOM_REQUIRE_CLI=1, and {variable} does not name {what}");
    TOLD.call_once(|| {
        let binary = env!("CARGO_CRATE_NAME");
        let python = if binary == "differential" { "GREENROOM_PYTHON=/path/to/python " } else { "" };
        let note = format!(
            "{binary}: the tests with the real CLI are not run and count as passed, because {variable} does not name \
             {what}. To run them: GREENROOM_CLI=/path/to/claude {python}cargo test --test {binary}\n"
        );
        // Not with `eprintln!`, which is not shown for a test that passes.
        std::io::stderr().write_all(note.as_bytes()).unwrap();
    });
    None
}

#[test]
fn without_a_cli_one_line_says_what_was_not_run() {
    let run = |required: &str| {
        #[expect(clippy::disallowed_methods, reason = "a test's own child, which it waits for")]
        let mut tests = std::process::Command::new(std::env::current_exe().unwrap());
        tests.args(["--skip", "without_a_cli_one_line_says_what_was_not_run"]);
        tests
            .env_remove("GREENROOM_CLI")
            .env_remove("GREENROOM_PYTHON")
            .env("GREENROOM_REQUIRE_CLI", required);
        tests.output().unwrap()
    };
    let output = run("0");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr.matches("not run").count(), 1, "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("GREENROOM_CLI=/path/to/claude"), "{stderr}");

    let output = run("1");
    assert!(!output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("GREENROOM_CLI does not name the claude executable"), "{text}");
}

/// A session whose CLI sees nothing of the machine but `PATH`, and knows no other host than the scripted model.
#[allow(dead_code, reason = "the tests of fleets build their sessions by profiles")]
pub(crate) fn builder(cli: &Path, model: &ScriptedModel, home: &Path, cwd: &Path) -> SessionBuilder {
    Session::builder()
        .cli_path(cli)
        .cwd(cwd)
        .configure(|options| {
            options.env_policy = EnvPolicy::Clean;
            options.allow_old_cli = allow_old_cli();
            // On a busy machine the search for processes may take seconds, and `stop` says then that it knows nothing.
            options.timeouts.reap = crate::wait::SOON;
        })
        .envs(env(model, home))
}

/// Whether to test a CLI that greenroom refuses by default, as `tests/real_cli/range/run.py` does.
pub(crate) fn allow_old_cli() -> bool {
    std::env::var_os("GREENROOM_ALLOW_OLD_CLI").is_some_and(|value| value == "1")
}

/// Everything that a CLI sees of its environment.
pub(crate) fn env(model: &ScriptedModel, home: &Path) -> BTreeMap<String, String> {
    let mut env = model.env();
    for name in ["HOME", "TMPDIR"] {
        env.insert(name.into(), home.to_str().unwrap().into());
    }
    env.insert("PATH".into(), std::env::var("PATH").unwrap());
    env
}
