//! Watchdogs: sessions end at a deadline, also while their host is stopped. The host is that of `orphans.rs`.

#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::host::Host;
use crate::orphans::{EXTENDED, Held, HostOfSessions, guardian_of, replace_guardian, watch};
use crate::wait::{SOON, found_by_thread};

/// Long enough for a busy machine to extend it in time.
const DEADLINE: Duration = Duration::from_secs(6);

/// Waits until the host has extended the deadline `times` more times.
fn extends(host: &HostOfSessions, times: usize) {
    while host.lines.try_recv().is_ok() {}
    for _ in 0..times {
        assert!(host.lines.recv_timeout(SOON).unwrap().contains(EXTENDED));
    }
}

fn signal(host: &HostOfSessions, signal: Signal) {
    kill_process(host.process.pid(), signal).unwrap();
}

/// Stops the host, and expects that the session with the watchdog ends, and the other session goes on.
fn the_watched_session_ends(mut host: HostOfSessions) {
    assert!(
        host.sessions.iter().all(|session| session.try_recv().is_err()),
        "the processes are gone too early"
    );
    signal(&host, Signal::STOP);
    assert_eq!(host.sessions[0].recv_timeout(SOON), Ok(Held::Closed), "a process is left");
    assert!(host.sessions[1].try_recv().is_err(), "a session without a watchdog has ended");
    host.process.0.kill().unwrap();
    host.sessions.remove(0);
    host.leaves_nothing();
}

// Guards: no-orphans
// Guards: the host is stopped, or hangs, past the deadline of a session's watchdog
#[test]
fn a_stopped_host_loses_its_watched_sessions_at_the_deadline() {
    let host = HostOfSessions::watched(DEADLINE);
    // Longer than the deadline.
    extends(&host, 6);
    the_watched_session_ends(host);
}

// Guards: no-orphans
#[test]
fn a_new_guardian_knows_the_deadlines_of_a_killed_one() {
    let host = HostOfSessions::watched(DEADLINE);
    replace_guardian(&host);
    extends(&host, 1);
    the_watched_session_ends(host);
}

// Guards: no-orphans
#[test]
fn a_guardian_that_acknowledges_nothing_is_replaced() {
    let host = HostOfSessions::watched(DEADLINE);
    let stopped = found_by_thread("a guardian", || guardian_of(&host));
    kill_process(stopped, Signal::STOP).unwrap();
    extends(&host, 2);
    let other = || guardian_of(&host).filter(|guardian: &Pid| *guardian != stopped);
    found_by_thread("another guardian", other);
    the_watched_session_ends(host);
}

/// Kills a host, and expects that the session with the watchdog ends while the other one may stay for ten minutes.
fn the_watched_session_of_a_killed_host_ends(deadline: Duration, graces: &str) {
    let mut host = HostOfSessions::watched_with(deadline, graces);
    host.process.0.kill().unwrap();
    assert_eq!(host.sessions[0].recv_timeout(SOON), Ok(Held::Closed), "a process is left");
    assert!(host.sessions[1].try_recv().is_err(), "a session that may stay has ended");
    host.kill_cli(1);
    host.sessions.remove(0);
    host.leaves_nothing();
}

#[test]
fn a_killed_host_loses_its_watched_sessions_at_the_deadline_at_the_latest() {
    the_watched_session_of_a_killed_host_ends(DEADLINE, "600000:600000");
}

#[test]
fn a_killed_host_loses_its_watched_sessions_before_others_that_may_stay() {
    the_watched_session_of_a_killed_host_ends(Duration::from_secs(600), "500:600000");
}

/// The host calls `guardian::init` in a runtime with threads, and so does its guardian, which is the same program.
// Guards: no-orphans
#[test]
#[expect(clippy::disallowed_methods, reason = "the host is started without the library, as a user would")]
fn a_guardian_whose_main_runs_in_a_runtime_works() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut host = Host::start(
            Command::new(env!("CARGO_BIN_EXE_greenroom-late-guardian"))
                .arg(env!("CARGO_BIN_EXE_greenroom-fake-cli"))
                .env("FAKE_CLI", format!("ignore-term;fork-away;hold={}", pipe.display()))
                .stdout(Stdio::piped()),
        );
        let mut lines = BufReader::new(host.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        let session = watch(pipe);
        let first = lines.next();
        host.0.kill().unwrap();
        assert_eq!(first.as_deref(), Some("ready"));
        assert_eq!(session.recv_timeout(SOON), Ok(Held::Opened));
        assert_eq!(session.recv_timeout(SOON), Ok(Held::Closed), "a process is left");
        assert_eq!(lines.next(), None, "a warning of the host");
    }
}
