//! Where the real CLI is, and what it may see, for the tests that need it.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use greenroom::options::EnvPolicy;
use greenroom::testkit::ScriptedModel;
use greenroom::{Session, SessionBuilder};

/// The real CLI's executable; `None` if there is none and there need not be one.
pub(crate) fn real_cli() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("GREENROOM_CLI") {
        return Some(path.into());
    }
    let required = std::env::var_os("GREENROOM_REQUIRE_CLI").is_some_and(|value| value == "1");
    assert!(!required, "GREENROOM_REQUIRE_CLI=1 and no GREENROOM_CLI that names the claude executable");
    // Not with `println!`, which is not shown for a test that passes.
    let (thread, mut stderr) = (std::thread::current(), std::io::stderr());
    let test = thread.name().unwrap_or_default();
    writeln!(stderr, "{test}: not run, for GREENROOM_CLI does not name the claude executable").unwrap();
    None
}

/// A session whose CLI sees nothing of the machine but `PATH`, and knows no other host than the scripted model.
pub(crate) fn builder(cli: &Path, model: &ScriptedModel, home: &Path, cwd: &Path) -> SessionBuilder {
    Session::builder()
        .cli_path(cli)
        .cwd(cwd)
        .configure(|options| options.env_policy = EnvPolicy::Clean)
        .envs(env(model, home))
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
