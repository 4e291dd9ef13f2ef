//! A failure tells what led to it.

use std::process::Command;

use greenroom::Session;
use greenroom::options::EnvPolicy;
use greenroom::transport::ChildProcess;

use crate::timeline;
use crate::wait::in_time;

/// Set in the process whose test is to fail.
const FAILS: &str = "GREENROOM_TEST_FAILS";

#[tokio::test]
async fn a_failure_prints_seed_timeline_and_the_command_that_replays_it() {
    let this = "told::a_failure_prints_seed_timeline_and_the_command_that_replays_it";
    if std::env::var_os(FAILS).is_some() {
        fails().await;
    }
    // Without `--nocapture`: what the test prints has to stand below its name.
    #[expect(clippy::disallowed_methods, reason = "a test's own child, which it waits for")]
    let mut test = Command::new(std::env::current_exe().unwrap());
    let output = test.args(["--exact", this]).env(FAILS, "1").output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, told) = text.split_once(&format!("---- {this} stdout ----")).unwrap_or_else(|| panic!("{text}"));
    let replay = format!("GREENROOM_SEED=4711 cargo test -p greenroom --test processes -- --exact {this}\n");
    for expected in
        ["it fails", "CliStarted {", "CliReady {", "host > {", "Does it?", "greenroom-fake-cli", &replay]
    {
        assert!(told.contains(expected), "{expected} is missing:\n{told}");
    }
}

/// A test with a seed and a session, in the middle of its life.
async fn fails() -> ! {
    timeline::seed("GREENROOM_SEED", 4711);
    let builder = Session::builder()
        .cli_path(env!("CARGO_BIN_EXE_greenroom-fake-cli"))
        .configure(|options| options.env_policy = EnvPolicy::Clean);
    let builder = timeline::watched(builder, ChildProcess::new());
    let session = in_time("the start", builder.start()).await.unwrap();
    in_time("the turn", session.prompt("Does it?").await.unwrap().outcome()).await.unwrap();
    panic!("it fails")
}
