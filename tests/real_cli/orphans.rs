//! Commands of the real CLI's Bash tool end with their session, however it ends.
//!
//! The CLI starts each command in a session of its own. So in each test its Bash tool runs one `sleep` in the
//! background and one in the foreground, each with an argument that no other process has. They are looked for in
//! `/proc`.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::host::{Host, can_make_cgroups, test_alone};
use crate::real;
use crate::snapshot::reported_cli;
use crate::stage::*;
use greenroom::options::{Containment, EnvPolicy, Timeouts};
use greenroom::transport::ContainedBy;
use greenroom::{Event, Session, SessionBuilder};
use greenroom_testkit::{ModelTurn, Script};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Each of them once; a machine without control groups has the second way only, and says so.
fn ways() -> Vec<(Containment, ContainedBy)> {
    let by_mark = (Containment::Mark, ContainedBy::Mark);
    if can_make_cgroups() {
        return vec![(Containment::Cgroup, ContainedBy::Cgroup), by_mark];
    }
    vec![(Containment::Auto, ContainedBy::Mark), by_mark]
}

/// The two commands of one session.
struct Sleeps([String; 2]);

impl Sleeps {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let nth = || NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::array::from_fn(|_| format!("3600.{}{:03}", std::process::id(), nth())))
    }

    fn script(&self) -> Script {
        let run = |argument: &str, background: bool| {
            let command = format!("echo begun; sleep {argument}; echo over");
            let input = json!({ "command": command, "description": "Wait", "run_in_background": background });
            ModelTurn::new().call("Bash", input)
        };
        let [background, foreground] = &self.0;
        Script::new().turn(run(background, true)).turn(run(foreground, false))
    }

    /// The commands that run.
    fn running(&self) -> Vec<(Pid, String)> {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let found = processes.filter_map(|process| {
            let pid = Pid::from_raw(process.file_name().to_str()?.parse().ok()?)?;
            let line = std::fs::read_to_string(process.path().join("cmdline")).ok()?;
            let argument = line.strip_prefix("sleep\0")?.trim_end_matches('\0');
            self.0.iter().any(|own| own == argument).then(|| (pid, argument.to_owned()))
        });
        found.collect()
    }

    async fn begun(&self) {
        found("both commands run", || (self.running().len() == 2).then_some(())).await;
    }

    /// Waits until none of them runs. How long it took, which no test bounds: it depends on the machine.
    async fn gone(&self) -> Duration {
        let begun = Instant::now();
        found("no command runs", || self.running().is_empty().then_some(())).await;
        begun.elapsed()
    }
}

impl Drop for Sleeps {
    fn drop(&mut self) {
        // There is none, unless a test failed.
        for (pid, _) in self.running() {
            kill_process(pid, Signal::KILL).ok();
        }
    }
}

/// Lets the CLI run the two commands; the turn goes on.
fn prepare(builder: SessionBuilder, containment: Containment, timeouts: Timeouts) -> SessionBuilder {
    builder.allow_tool("Bash").configure(|options| {
        options.containment = containment;
        options.timeouts = Timeouts { reap: crate::wait::SOON, ..timeouts };
    })
}

async fn contained_by(session: &Session) -> ContainedBy {
    reported_cli(session).await.contained_by.unwrap()
}

/// A session whose CLI runs both commands is ended like this; afterwards they are gone. With each way to contain them.
async fn ended<F: Future<Output = ()>>(what: &str, timeouts: &Timeouts, end: impl Fn(Session, Pid) -> F) {
    for (containment, by) in ways() {
        let sleeps = Sleeps::new();
        let Some(stage) = Stage::new(sleeps.script()).await else { return };
        let session = start(prepare(stage.builder(), containment, timeouts.clone())).await;
        assert_eq!(contained_by(&session).await, by);
        let turn = in_time("accepting the prompt", session.prompt("Wait.")).await.unwrap();
        sleeps.begun().await;
        let pid = reported_cli(&session).await.pid.unwrap();
        let other = session.clone();
        end(session, Pid::from_raw(pid.cast_signed()).unwrap()).await;
        drop((other, turn));
        let took = sleeps.gone().await;
        println!("{what}, {by:?}: gone after {took:?}");
    }
}

fn brief() -> Timeouts {
    let brief = Duration::from_millis(300);
    Timeouts { drain: brief, exit_after_eof: brief, exit_after_term: brief, ..Timeouts::default() }
}

/// Both commands, with the shells that run them.
async fn told_as_leftovers(events: &mut greenroom::report::Events) {
    let names = event(events, "the leftovers", |event| match event {
        Event::LeftoversKilled { processes, .. } => {
            Some(processes.iter().map(|process| process.name.clone()).collect::<Vec<_>>())
        }
        _ => None,
    });
    let names = names.await;
    assert_eq!(names.iter().filter(|name| *name == "sleep").count(), 2, "{names:?}");
}

// Guards: no-orphans
// Guards: processes that the CLI has started outlive it
#[tokio::test]
async fn commands_end_with_a_cli_that_is_killed_and_are_told() {
    ended("SIGKILL of the CLI", &brief(), async |session, cli| {
        let mut events = session.events();
        kill_process(cli, Signal::KILL).unwrap();
        told_as_leftovers(&mut events).await;
    })
    .await;
}

// Guards: no-orphans
#[tokio::test]
async fn commands_end_with_a_cli_that_gets_sigterm() {
    ended("SIGTERM of the CLI", &brief(), async |_, cli| kill_process(cli, Signal::TERM).unwrap()).await;
}

// Guards: no-orphans
#[tokio::test]
async fn commands_end_when_a_cli_that_hangs_is_stopped() {
    ended("stop of a stopped CLI", &brief(), async |session, cli| {
        let mut events = session.events();
        kill_process(cli, Signal::STOP).unwrap();
        stop(&session).await;
        told_as_leftovers(&mut events).await;
    })
    .await;
}

// Guards: no-orphans
#[tokio::test]
async fn commands_end_when_the_cli_is_given_no_time() {
    let none = Duration::ZERO;
    let timeouts =
        Timeouts { drain: none, exit_after_eof: none, exit_after_term: none, ..Timeouts::default() };
    ended("stop with no time", &timeouts, async |session, _| stop(&session).await).await;
}

// Guards: no-orphans
#[tokio::test]
async fn commands_end_when_the_last_handle_is_dropped() {
    ended("drop of the last handle", &brief(), async |_, _| {}).await;
}

// ---- the end of the host -----------------------------------------------------------------------------------------

/// Instructions for a host, as JSON.
const HOST: &str = "GREENROOM_TEST_REAL_HOST";

#[derive(Deserialize, Serialize)]
struct HostOf {
    cli: PathBuf,
    cwd: PathBuf,
    env: BTreeMap<String, String>,
    containment: Containment,
}

/// Not a test by itself, but the host of the next ones.
#[tokio::test]
async fn host() {
    let Ok(told) = std::env::var(HOST) else { return };
    let HostOf { cli, cwd, env, containment } = serde_json::from_str(&told).unwrap();
    let builder = Session::builder().cli_path(cli).cwd(cwd).envs(env);
    let builder = builder.configure(|options| {
        options.env_policy = EnvPolicy::Clean;
        options.allow_old_cli = real::allow_old_cli();
    });
    let session = start(prepare(builder, containment, Timeouts::default())).await;
    let _turn = session.prompt("Wait.").await.unwrap();
    std::future::pending().await
}

/// The process of the host's CLI.
fn cli_of(host: &Host, cli: &std::path::Path) -> Pid {
    let program = cli.canonicalize().unwrap();
    let runs = |pid: &Pid| {
        std::fs::read_link(format!("/proc/{}/exe", pid.as_raw_pid())).is_ok_and(|exe| exe == program)
    };
    host.children().into_iter().find(runs).expect("the host has a CLI")
}

async fn commands_end_with_a_host_that_gets(signal: Signal) {
    commands_end_with_a_host(signal, |_, _| {}).await;
}

async fn commands_end_with_a_host(signal: Signal, before: impl Fn(&Host, &std::path::Path)) {
    for (containment, by) in ways() {
        let sleeps = Sleeps::new();
        let Some(stage) = Stage::new(sleeps.script()).await else { return };
        let told = HostOf {
            cli: stage.cli.clone(),
            cwd: stage.cwd.path().to_owned(),
            env: crate::real::env(&stage.model, stage.home.path()),
            containment,
        };
        let told = serde_json::to_string(&told).unwrap();
        let mut host = Host::start(test_alone("orphans::host").env(HOST, told).stdout(Stdio::null()));
        sleeps.begun().await;
        before(&host, &stage.cli);
        kill_process(host.pid(), signal).unwrap();
        let took = sleeps.gone().await;
        println!("{signal:?} of the host, {by:?}: gone after {took:?}");
        assert!(!host.0.wait().unwrap().success());
    }
}

// Guards: no-orphans
// Guards: the host is killed, or exits without a stop
#[tokio::test]
async fn commands_end_with_a_host_that_is_killed() {
    commands_end_with_a_host_that_gets(Signal::KILL).await;
}

// Guards: no-orphans
#[tokio::test]
async fn commands_end_with_a_host_that_is_interrupted() {
    commands_end_with_a_host_that_gets(Signal::INT).await;
}

// Guards: no-orphans
#[tokio::test]
async fn commands_end_with_a_host_that_is_terminated() {
    commands_end_with_a_host_that_gets(Signal::TERM).await;
}

/// The CLI cannot end them itself, so the guardian does.
// Guards: no-orphans
#[tokio::test]
async fn commands_end_with_a_host_that_is_killed_while_its_cli_hangs() {
    commands_end_with_a_host(Signal::KILL, |host, cli| {
        kill_process(cli_of(host, cli), Signal::STOP).unwrap();
    })
    .await;
}
