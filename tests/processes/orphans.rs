//! A host that ends without stopping its sessions leaves nothing behind.
//!
//! The host is this test binary, run once more for one of its tests. Its CLIs are stand-ins (`tests/support/fake_cli`)
//! that ignore SIGTERM, and so do two processes that each of them has started, one of them in a process group of its
//! own. They hold a named pipe, which ends when the last of them has ended.

#![cfg(unix)]
#![allow(clippy::disallowed_methods, reason = "the host is started without the library, as a user would")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::host::{Host, test_alone};
use crate::snapshot::reported_cli;
use crate::wait::{SOON, found_by_thread, in_time};
use greenroom::guardian::{self, BootTime, Watchdog};
use greenroom::options::{Containment, EnvPolicy};
use greenroom::transport::{ContainedBy, ProcessIdentity};
use greenroom::{NoArgs, Session, ToolContext, ToolServer};
use rustix::process::{Pid, Signal, kill_process_group};

/// Time in milliseconds that the CLIs have to end by themselves after their host has ended, unless [`GRACES`] says otherwise.
const GRACE: u64 = 500;

/// The times for the CLIs of a host, one for each session, separated by `:`.
const GRACES: &str = "GREENROOM_TEST_GRACES";

// ---- the host ----------------------------------------------------------------------------------------------------

/// The pipes that the CLIs of the host hold, one for each session, separated by `:`.
const PIPES: &str = "GREENROOM_TEST_PIPES";

/// Line of the host when all calls of all sessions are in flight.
const READY: &str = "all calls are in flight";

/// Next step of the host: `exit` ends it; otherwise it stays.
const THEN: &str = "GREENROOM_TEST_THEN";

/// Set for a host that is to do without control groups.
const BY_MARK: &str = "GREENROOM_TEST_BY_MARK";

/// Set for a host whose CLIs start chains of processes: behaviours of the CLIs.
const CHAINS: &str = "GREENROOM_TEST_CHAINS";

/// Set for a host whose guardian is a program and not a shell.
const BY_PROGRAM: &str = "GREENROOM_TEST_BY_PROGRAM";

/// Set for a host whose first session has a watchdog: its deadline in milliseconds, which is extended in steps of a quarter. Else
/// no session has a watchdog.
pub(super) const WATCHDOG: &str = "GREENROOM_TEST_WATCHDOG";

/// Line of the host for each time that the deadline was extended.
pub(super) const EXTENDED: &str = "the deadline is extended";

/// Beginning of the host's line about how a session is contained, with its process.
const CONTAINED: &str = "contained by ";

const CALLS: usize = 8;

/// Not a test by itself, but the host of the others.
#[test]
fn host() {
    if let Ok(pipes) = std::env::var(PIPES) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.unwrap().block_on(host_of(pipes.split(':')));
    }
}

async fn host_of(pipes: impl Iterator<Item = &str>) {
    if std::env::var_os(BY_PROGRAM).is_some() {
        guardian::use_program(env!("CARGO_BIN_EXE_greenroom-fake-cli"));
    }
    let mut watchdog = match std::env::var(WATCHDOG) {
        Ok(millis) => Some(extended(Duration::from_millis(millis.parse().unwrap())).await),
        Err(_) => None,
    };
    let (begin, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let mut running = Vec::new();
    let graces = std::env::var(GRACES).unwrap_or_default();
    let chains = std::env::var(CHAINS).unwrap_or_default();
    let mut graces = graces.split(':').map(|millis| millis.parse().unwrap_or(GRACE));
    for pipe in pipes {
        let grace = Duration::from_millis(graces.next().unwrap_or(GRACE));
        let begin = begin.clone();
        let hang = move |_: NoArgs, cx: ToolContext| {
            begin.send(()).unwrap();
            async move { cx.cancelled().await }
        };
        let mut builder = Session::builder();
        if let Some(watchdog) = watchdog.take() {
            builder = builder.watchdog(&watchdog);
        }
        let session = builder
            .cli_path(env!("CARGO_BIN_EXE_greenroom-fake-cli"))
            .mcp_server(ToolServer::new("bench", "1.0.0").tool("hang", "Wait for ever", hang))
            .env(
                "FAKE_CLI",
                format!(
                    "ignore-term;fork;fork-away;{chains};hold={pipe};calls={CALLS};window={CALLS};tool=hang"
                ),
            )
            .configure(|options| {
                options.env_policy = EnvPolicy::Clean;
                options.lock_dir = crate::locks();
                options.timeouts.exit_after_host = grace;
                if std::env::var_os(BY_MARK).is_some() {
                    options.containment = Containment::Mark;
                }
            })
            .start()
            .await
            .unwrap();
        let by = reported_cli(&session).await.contained_by.unwrap();
        let process = serde_json::to_string(&session.process().unwrap()).unwrap();
        println!("{CONTAINED}{by:?} {process}");
        let turn = session.prompt("go").await.unwrap();
        running.push((session, turn));
    }
    for _ in 0..CALLS * running.len() {
        begun.recv().await.unwrap();
    }
    println!("{READY}");
    if std::env::var(THEN).is_ok_and(|then| then == "exit") {
        std::process::exit(0);
    }
    std::future::pending().await
}

/// A watchdog whose deadline is always ahead by `time`, while the host runs.
async fn extended(time: Duration) -> Watchdog {
    let watchdog = Watchdog::new().unwrap();
    watchdog.extend(BootTime::now() + time).await.unwrap();
    let extending = watchdog.clone();
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(time / 4);
        loop {
            ticks.tick().await;
            extending.extend(BootTime::now() + time).await.unwrap();
            println!("{EXTENDED}");
        }
    });
    watchdog
}

// ---- the tests ---------------------------------------------------------------------------------------------------

/// A host with sessions, in a process group of its own as if a shell had started it.
pub(super) struct HostOfSessions {
    pub(super) process: Host,
    pub(super) sessions: Vec<Receiver<Held>>,
    /// Lines of the host after [`READY`].
    pub(super) lines: Receiver<String>,
    contained: Vec<String>,
    processes: Vec<ProcessIdentity>,
    _pipes: tempfile::TempDir,
}

/// Containment of a host's sessions.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    /// By the best that goes on this machine.
    Default,
    Mark,
    /// By the best that goes, and guarded by a program.
    Program,
}

/// The ways to contain a host's sessions.
const ALL: &[By] =
    if cfg!(target_os = "linux") { &[By::Default, By::Mark, By::Program] } else { &[By::Default, By::Mark] };

#[derive(Debug, PartialEq)]
pub(super) enum Held {
    Opened,
    Closed,
}

/// Tells when a process opens the pipe, and when no process holds it any more.
pub(super) fn watch(path: std::path::PathBuf) -> Receiver<Held> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut pipe = File::open(path).unwrap();
        let mut line = [0; 5];
        pipe.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"held\n");
        tell.send(Held::Opened).ok();
        pipe.read_to_end(&mut Vec::new()).unwrap();
        tell.send(Held::Closed).ok();
    });
    told
}

impl HostOfSessions {
    /// Returns when all calls are in flight.
    fn start(sessions: usize, then: &str) -> Self {
        Self::contained(By::Default, sessions, then)
    }

    fn contained(by: By, sessions: usize, then: &str) -> Self {
        let by = match by {
            By::Default => None,
            By::Mark => Some((BY_MARK, "1")),
            By::Program => Some((BY_PROGRAM, "1")),
        };
        Self::of(sessions, then, by)
    }

    /// A host with two sessions, the first of which has a watchdog.
    pub(super) fn watched(deadline: Duration) -> Self {
        Self::watched_with(deadline, "")
    }

    /// The same, with the times in milliseconds that the CLIs have to end by themselves.
    pub(super) fn watched_with(deadline: Duration, graces: &str) -> Self {
        let millis = deadline.as_millis().to_string();
        Self::of(2, "stay", [(BY_PROGRAM, "1"), (WATCHDOG, millis.as_str()), (GRACES, graces)])
    }

    /// Ends the group of a session's CLI, after the host has ended.
    pub(super) fn kill_cli(&self, session: usize) {
        let process = serde_json::to_value(&self.processes[session]).unwrap();
        let id = process["pid"].as_i64().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).unwrap();
        kill_process_group(id, Signal::KILL).unwrap();
    }

    fn of<'a>(
        sessions: usize,
        then: &str,
        variables: impl IntoIterator<Item = (&'static str, &'a str)>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pipes: Vec<_> = (0..sessions).map(|nth| folder.path().join(nth.to_string())).collect();
        assert!(Command::new("mkfifo").args(&pipes).status().unwrap().success());
        let mut process = Host::start(
            test_alone("orphans::host")
                .env(PIPES, std::env::join_paths(&pipes).unwrap())
                .env(THEN, then)
                .envs(variables)
                .stdout(Stdio::piped())
                .process_group(0),
        );
        let lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        let sessions = pipes.into_iter().map(watch).collect();
        let (tell, ready) = channel();
        let (tell_line, later) = channel();
        std::thread::spawn(move || {
            let mut lines = lines.map_while(Result::ok);
            // The first line that the host writes may stand behind what the test harness has written.
            let before = lines.by_ref().take_while(|line| !line.contains(READY));
            let contained = before.filter_map(|line| Some(line.split_once(CONTAINED)?.1.to_owned()));
            tell.send(contained.collect::<Vec<_>>()).ok();
            // An error: the test has ended.
            lines.try_for_each(|line| tell_line.send(line).map_err(drop)).ok();
        });
        let (contained, processes) = (Vec::new(), Vec::new());
        let mut host = Self { process, sessions, lines: later, contained, processes, _pipes: folder };
        for line in ready.recv_timeout(SOON).unwrap() {
            let (by, process) = line.split_once(' ').unwrap();
            host.contained.push(by.to_owned());
            host.processes.push(serde_json::from_str(process).unwrap());
        }
        assert_eq!(host.contained.len(), host.sessions.len(), "the host has all its sessions");
        for session in &host.sessions {
            assert_eq!(session.recv_timeout(SOON), Ok(Held::Opened));
        }
        host
    }

    /// Sends this to the host and to all others in its group, as a terminal does.
    fn signal_group(&self, signal: Signal) {
        kill_process_group(self.process.pid(), signal).unwrap();
    }

    /// Expects that it ends, and that nothing is left of its CLIs and of what they have started.
    pub(super) fn leaves_nothing(mut self) {
        self.process.0.wait().unwrap();
        for session in &self.sessions {
            assert_eq!(session.recv_timeout(SOON), Ok(Held::Closed), "a process is left");
        }
    }
}

// Guards: no-orphans
// Guards: the host is killed, or exits without a stop
#[test]
fn a_host_that_is_killed_leaves_nothing_of_any_session() {
    for &by in ALL {
        let mut host = HostOfSessions::contained(by, 3, "stay");
        for session in &host.sessions {
            assert!(session.try_recv().is_err(), "the processes are gone too early");
        }
        host.process.0.kill().unwrap();
        host.leaves_nothing();
    }
}

// Guards: the host is killed and started again at once
#[tokio::test]
async fn a_later_host_waits_until_the_processes_of_a_killed_one_are_gone() {
    for &by in ALL {
        let mut host = HostOfSessions::contained(by, 2, "stay");
        assert!(host.processes.iter().all(ProcessIdentity::is_alive));
        host.process.0.kill().unwrap();
        for process in &host.processes {
            in_time("the end of a process", process.gone(Duration::from_millis(10))).await;
        }
        host.leaves_nothing();
    }
}

// Guards: no-orphans
#[test]
fn a_host_that_is_killed_with_its_whole_group_leaves_nothing() {
    let host = HostOfSessions::start(1, "stay");
    host.signal_group(Signal::KILL);
    host.leaves_nothing();
}

// Guards: no-orphans
#[test]
fn what_a_terminal_sends_to_all_leaves_nothing() {
    for signal in [Signal::INT, Signal::HUP, Signal::TERM] {
        for &by in ALL {
            let host = HostOfSessions::contained(by, 1, "stay");
            host.signal_group(signal);
            host.leaves_nothing();
        }
    }
}

// Guards: no-orphans
// Guards: the host is killed, or exits without a stop
#[test]
fn a_host_that_exits_without_stopping_leaves_nothing() {
    HostOfSessions::start(1, "exit").leaves_nothing();
}

/// Chains of forks take most of a machine: one test at a time has them.
#[cfg(target_os = "linux")]
pub(super) static ONE_WITH_CHAINS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Twelve chains, which fork every 2 ms, of a CLI without a control group.
#[cfg(target_os = "linux")]
fn chains_end_with_a_killed_host(guardian: Option<(&'static str, &'static str)>) {
    let _one = ONE_WITH_CHAINS.blocking_lock();
    let variables = [(BY_MARK, "1"), (CHAINS, "fork-chains=12")];
    let mut host = HostOfSessions::of(1, "stay", variables.into_iter().chain(guardian));
    host.process.0.kill().unwrap();
    host.leaves_nothing();
}

// Guards: no-orphans
#[cfg(target_os = "linux")]
#[test]
fn the_shell_ends_chains_of_forks_of_a_killed_host() {
    chains_end_with_a_killed_host(None);
}

// Guards: no-orphans
#[cfg(target_os = "linux")]
#[test]
fn the_program_ends_chains_of_forks_of_a_killed_host() {
    chains_end_with_a_killed_host(Some((BY_PROGRAM, "1")));
}

// Guards: no control group can be made
#[cfg(target_os = "linux")]
#[test]
fn a_session_has_a_control_group_where_one_can_be_made_and_else_a_mark() {
    let host = HostOfSessions::start(1, "stay");
    let expected = if crate::host::can_make_cgroups() { ContainedBy::Cgroup } else { ContainedBy::Mark };
    assert_eq!(host.contained, [format!("{expected:?}")]);
    let by_mark = HostOfSessions::contained(By::Mark, 1, "stay");
    assert_eq!(by_mark.contained, [format!("{:?}", ContainedBy::Mark)]);
    for host in [host, by_mark] {
        host.signal_group(Signal::KILL);
        host.leaves_nothing();
    }
}

// Guards: no-orphans
// Guards: the guardian is killed
#[cfg(target_os = "linux")]
#[test]
fn a_guardian_that_is_killed_is_replaced_at_once() {
    for &by in ALL {
        let mut host = HostOfSessions::contained(by, 1, "stay");
        for _ in 0..2 {
            replace_guardian(&host);
        }
        host.process.0.kill().unwrap();
        host.leaves_nothing();
    }
}

/// Kills the guardian, and waits for the next one.
#[cfg(target_os = "linux")]
pub(super) fn replace_guardian(host: &HostOfSessions) {
    let killed = found_by_thread("a guardian", || guardian_of(host));
    rustix::process::kill_process(killed, Signal::KILL).unwrap();
    found_by_thread("another guardian", || guardian_of(host).filter(|guardian| *guardian != killed));
}

/// The process that guards the host.
#[cfg(target_os = "linux")]
pub(super) fn guardian_of(host: &HostOfSessions) -> Option<Pid> {
    let guards = |pid: &Pid| {
        std::fs::read_to_string(format!("/proc/{}/cmdline", pid.as_raw_pid()))
            .is_ok_and(|line| line.contains("greenroom-guardian\0"))
    };
    host.process.children().into_iter().find(guards)
}

#[cfg(target_os = "linux")]
#[test]
fn a_host_of_many_sessions_has_one_spawner_and_one_exits_thread() {
    let host = HostOfSessions::start(16, "stay");
    let ours = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", host.process.0.id())).unwrap();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
        let mut ours: Vec<_> = names.map(|name| name.trim_end().to_owned()).collect();
        ours.retain(|name| name.starts_with("greenroom-"));
        ours.sort();
        ours
    };
    // The threads that have looked for the CLI may take a moment to end.
    found_by_thread("two threads", || (ours() == ["greenroom-exits", "greenroom-start"]).then_some(()));
    host.signal_group(Signal::KILL);
    host.leaves_nothing();
}
