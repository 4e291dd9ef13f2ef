//! What a host leaves behind that ends without a word: nothing.
//!
//! The host is this test binary, run once more for one of its tests. Its CLIs are stand-ins
//! (`tests/support/fake_cli`) that ignore SIGTERM, and so does a process that each of them has started. They hold a
//! named pipe, which ends when the last of them has ended.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in the helpers of tests, too")]
#![allow(clippy::disallowed_methods, reason = "the host is started without the library, as a user would")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use greenroom::{EnvPolicy, NoArgs, Session, ToolContext, ToolServer};
use rustix::process::{Pid, Signal, kill_process_group};

/// Far more than a start takes.
const LIMIT: Duration = Duration::from_secs(60);

/// How soon nothing is left.
const BOUND: Duration = Duration::from_secs(2);

// ---- the host ----------------------------------------------------------------------------------------------------

/// The pipes that the CLIs of the host hold, one for each session, separated by `:`.
const PIPES: &str = "GREENROOM_TEST_PIPES";

/// What the host says when all calls of all sessions are in flight.
const READY: &str = "all calls are in flight";

/// What it does then: `exit` ends it, all else is to stay.
const THEN: &str = "GREENROOM_TEST_THEN";

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
    let (begin, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let mut running = Vec::new();
    for pipe in pipes {
        let begin = begin.clone();
        let hang = move |_: NoArgs, cx: ToolContext| {
            begin.send(()).unwrap();
            async move { cx.cancelled().await }
        };
        let session = Session::builder()
            .cli_path(env!("CARGO_BIN_EXE_greenroom-fake-cli"))
            .mcp_server(ToolServer::new("bench", "1.0.0").tool("hang", "Wait for ever", hang))
            .env("FAKE_CLI", format!("ignore-term;fork;hold={pipe};calls={CALLS};window={CALLS};tool=hang"))
            .configure(|options| options.env_policy = EnvPolicy::Clean)
            .start()
            .await
            .unwrap();
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

// ---- the tests ---------------------------------------------------------------------------------------------------

/// A host with sessions, in a process group of its own as if a shell had started it.
struct Host {
    process: Child,
    sessions: Vec<Receiver<Held>>,
    _pipes: tempfile::TempDir,
}

#[derive(Debug, PartialEq)]
enum Held {
    Opened,
    Closed,
}

impl Host {
    /// Returns when all calls are in flight.
    fn start(sessions: usize, then: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pipes: Vec<_> = (0..sessions).map(|nth| folder.path().join(nth.to_string())).collect();
        assert!(Command::new("mkfifo").args(&pipes).status().unwrap().success());
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "host", "--nocapture"])
            .env(PIPES, std::env::join_paths(&pipes).unwrap())
            .env(THEN, then)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let watch = |path: std::path::PathBuf| {
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
        };
        let mut host = Self { process, sessions: pipes.into_iter().map(watch).collect(), _pipes: folder };
        let mut lines = BufReader::new(host.process.stdout.take().unwrap()).lines();
        let (tell, ready) = channel();
        std::thread::spawn(move || tell.send(lines.any(|line| line.is_ok_and(|line| line.contains(READY)))));
        assert_eq!(ready.recv_timeout(LIMIT), Ok(true), "the host is not ready");
        for session in &host.sessions {
            assert_eq!(session.recv_timeout(LIMIT), Ok(Held::Opened));
        }
        host
    }

    /// Sends this to the host and to all others in its group, as a terminal does.
    fn signal_group(&self, signal: Signal) {
        kill_process_group(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Expects that it ends, and that nothing is left of its CLIs and of what they have started.
    fn leaves_nothing(mut self) {
        self.process.wait().unwrap();
        for session in &self.sessions {
            assert_eq!(session.recv_timeout(BOUND), Ok(Held::Closed), "a process is left");
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It has ended, unless a test failed.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

#[test]
fn a_host_that_is_killed_leaves_nothing_of_any_session() {
    let mut host = Host::start(3, "stay");
    for session in &host.sessions {
        assert!(session.try_recv().is_err(), "the processes are gone too early");
    }
    host.process.kill().unwrap();
    host.leaves_nothing();
}

#[test]
fn a_host_that_is_killed_with_its_whole_group_leaves_nothing() {
    let host = Host::start(1, "stay");
    host.signal_group(Signal::KILL);
    host.leaves_nothing();
}

#[test]
fn what_a_terminal_sends_to_all_leaves_nothing() {
    for signal in [Signal::INT, Signal::HUP, Signal::TERM] {
        let host = Host::start(1, "stay");
        host.signal_group(signal);
        host.leaves_nothing();
    }
}

#[test]
fn a_host_that_exits_without_stopping_leaves_nothing() {
    Host::start(1, "exit").leaves_nothing();
}

#[cfg(target_os = "linux")]
#[test]
fn a_host_of_many_sessions_has_one_thread_that_starts_them_and_one_that_waits_for_them() {
    let host = Host::start(16, "stay");
    let tasks = std::fs::read_dir(format!("/proc/{}/task", host.process.id())).unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    let mut ours: Vec<_> = names.map(|name| name.trim_end().to_owned()).collect();
    ours.retain(|name| name.starts_with("greenroom-"));
    ours.sort();
    assert_eq!(ours, ["greenroom-cli", "greenroom-exits"]);
    host.signal_group(Signal::KILL);
    host.leaves_nothing();
}
