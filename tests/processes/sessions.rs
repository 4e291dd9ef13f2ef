//! Real processes in real time: a stand-in for the CLI that does what a test asks of it, or misbehaves
//! (`tests/support/fake_cli`).
//!
//! Tests wait for events only. The processes of a session hold a named pipe open, which shows when they are gone:
//! its end comes when the last of them has ended.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use greenroom::options::{Containment, EnvPolicy, Restart, Timeouts};
use greenroom::report::{Events, ExitCause, InterruptedBy};
use greenroom::transport::{ChildProcess, ContainedBy, Exit};
use greenroom::{
    Error, ErrorKind, Event, NoArgs, Options, Outcome, Session, SessionBuilder, ToolContext, ToolServer, Turn,
};
use greenroom_testkit::{Fault, Recorder};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

use crate::snapshot::reported_cli;
use crate::timeline;
use crate::wait::in_time;

#[derive(Deserialize, JsonSchema)]
struct Echo {
    text: String,
}

fn bench() -> ToolServer {
    ToolServer::new("bench", "1.0.0").tool("echo", "Say it again", async |args: Echo| args.text).tool(
        "hang",
        "Wait for ever",
        async |_: NoArgs, cx: ToolContext| cx.cancelled().await,
    )
}

/// A session with short timeouts whose CLI is the stand-in with these behaviours. If the test fails, it tells the
/// session's timeline.
fn fake(behaviours: impl AsRef<str>) -> SessionBuilder {
    let builder = Session::builder()
        .cli_path(env!("CARGO_BIN_EXE_greenroom-fake-cli"))
        .mcp_server(bench())
        .env("FAKE_CLI", behaviours.as_ref())
        .configure(|options| {
            options.env_policy = EnvPolicy::Clean;
            options.lock_dir = crate::locks();
            options.restarts.cli = quick(5);
            options.timeouts = short();
        });
    timeline::watched(builder, ChildProcess::new())
}

fn short() -> Timeouts {
    let short = Duration::from_millis(300);
    Timeouts {
        drain: short,
        exit_after_eof: short,
        exit_after_term: short,
        cancel_grace: short,
        // On a busy machine a killed process may take seconds to end, and `stop` names it then.
        reap: crate::wait::SOON,
        ..Timeouts::default()
    }
}

/// At most `intensity` restarts, without backoff.
fn quick(intensity: u32) -> Restart {
    Restart { intensity, backoff_min: Duration::ZERO, backoff_max: Duration::ZERO, ..Restart::default() }
}

async fn start(builder: SessionBuilder) -> Session {
    in_time("the start", builder.start()).await.unwrap()
}

async fn stop(session: &Session) {
    in_time("the stop", session.stop()).await.unwrap();
}

async fn outcome(turn: &mut Turn) -> Outcome {
    in_time("the turn", turn.outcome()).await.unwrap()
}

async fn prompt(session: &Session, text: &str) -> Outcome {
    outcome(&mut session.prompt(text).await.unwrap()).await
}

/// Prompts, and expects what the stand-in answers.
async fn answers(session: &Session, text: &str) {
    let outcome = prompt(session, text).await;
    assert_eq!(outcome.text(), Some(format!("You said: {text}").as_str()), "{outcome:?}");
}

/// The cause of the CLI's exit that interrupted a turn.
fn cause(outcome: &Outcome) -> &ExitCause {
    match outcome {
        Outcome::Interrupted { by: InterruptedBy::CliExit { cause }, .. } => cause,
        other => panic!("not interrupted by the CLI's end: {other:?}"),
    }
}

/// The first event that fits; those before it are dropped.
async fn event<T>(events: &mut Events, what: &str, fits: impl Fn(&Event) -> Option<T>) -> T {
    in_time(what, async {
        loop {
            let event = events.next().await.unwrap_or_else(|| panic!("the session ended without {what}"));
            if let Some(found) = fits(&event) {
                return found;
            }
        }
    })
    .await
}

/// Waits until the CLI was restarted; its epoch, and what it resumed.
async fn restarted(events: &mut Events) -> (u64, Option<String>) {
    event(events, "the restart", |event| match event {
        Event::CliRestarted { epoch, session_id } => Some((*epoch, session_id.clone())),
        _ => None,
    })
    .await
}

/// A folder for what stand-ins write down, and for the named pipe that they hold.
struct Scratch(TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The behaviour that counts incarnations and prompts.
    fn state(&self) -> String {
        format!("state={}", self.path("state").display())
    }

    /// The behaviour that writes arguments down.
    fn print_args(&self) -> String {
        format!("print-args={}", self.path("args").display())
    }

    /// The arguments of each incarnation.
    fn args(&self) -> Vec<Vec<String>> {
        let lines = std::fs::read_to_string(self.path("args")).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Makes the pipe. Returns the behaviour that holds it, and the pipe's other end.
    fn hold(&self) -> (String, Held) {
        let path = self.path("held");
        #[expect(clippy::disallowed_methods, reason = "the standard library makes no named pipes")]
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let behaviour = format!("hold={}", path.display());
        let (held, opened) = tokio::sync::oneshot::channel();
        let (gone, closed) = tokio::sync::oneshot::channel();
        // On a thread of its own, for which no runtime waits if a test fails.
        std::thread::spawn(move || {
            let mut pipe = File::open(path).unwrap();
            let mut line = [0; 5];
            pipe.read_exact(&mut line).unwrap();
            assert_eq!(&line, b"held\n");
            held.send(()).ok();
            pipe.read_to_end(&mut Vec::new()).unwrap();
            gone.send(()).ok();
        });
        (behaviour, Held { opened: Some(opened), closed })
    }
}

/// The other end of the pipe.
struct Held {
    opened: Option<tokio::sync::oneshot::Receiver<()>>,
    closed: tokio::sync::oneshot::Receiver<()>,
}

impl Held {
    /// Waits until a process holds the pipe, and checks that one still does.
    async fn opened(&mut self) {
        if let Some(opened) = self.opened.take() {
            in_time("holding the pipe", opened).await.unwrap();
        }
        assert!(self.closed.try_recv().is_err(), "the processes are gone too early");
    }

    /// Waits until no process holds it any more.
    async fn closed(self) {
        in_time("the end of all processes", self.closed).await.unwrap();
    }
}

// Guards: answered-once
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_calls_are_each_answered_once() {
    let session = start(fake("calls=10000;window=64")).await;
    let outcome = prompt(&session, "go").await;
    let report: Value = serde_json::from_str(outcome.text().expect("a report")).unwrap();
    for (field, expected) in [("answered", 10_000), ("duplicates", 0), ("unknown", 0), ("errors", 0)] {
        assert_eq!(report[field], expected, "{report}");
    }
    // The task of the last handler may still be at its end on the other thread.
    let nothing_in_flight = async {
        loop {
            let snapshot = session.snapshot().await.unwrap();
            if snapshot.calls().count() + snapshot.router.unwrap().owed.len() == 0 {
                return snapshot.counters;
            }
            tokio::task::yield_now().await;
        }
    };
    let counters = in_time("the end of all calls", nothing_in_flight).await;
    assert_eq!(counters.requests, counters.answered, "{counters:?}");
    assert!(counters.requests >= 10_000 && counters.late_answers == 0, "{counters:?}");
    stop(&session).await;
}

#[tokio::test]
async fn a_request_id_in_flight_is_not_answered_twice() {
    let session = start(fake("calls=3;window=3;duplicate-id;unknown-frames=2")).await;
    let outcome = prompt(&session, "go").await;
    let report: Value = serde_json::from_str(outcome.text().expect("a report")).unwrap();
    for (field, expected) in
        [("answered", 3), ("duplicates", 0), ("unknown", 0), ("errors", 0), ("refused", 2)]
    {
        assert_eq!(report[field], expected, "{report}");
    }
    assert_eq!(session.snapshot().await.unwrap().counters.duplicate_requests, 1);
    stop(&session).await;
}

// Guards: a line that is no JSON, a blank line
#[tokio::test]
async fn noise_before_the_handshake_is_passed_over() {
    let session = start(fake("garbage-then-ok;flood-stderr=8388608")).await;
    answers(&session, "hello").await;
    let counters = session.snapshot().await.unwrap().counters;
    assert!(counters.noise_lines > 0 && counters.malformed_lines > 0, "{counters:?}");
    stop(&session).await;
}

#[tokio::test]
async fn a_flood_on_stdout_is_answered_and_calls_go_on() {
    let session = start(fake("calls=1;unknown-frames=10000;payload=1000000")).await;
    let outcome = prompt(&session, "go").await;
    let report: Value = serde_json::from_str(outcome.text().expect("a report")).unwrap();
    for (field, expected) in [("answered", 1), ("duplicates", 0), ("errors", 0), ("refused", 10_000)] {
        assert_eq!(report[field], expected, "{report}");
    }
    let counters = session.snapshot().await.unwrap().counters;
    assert_eq!(counters.unknown_requests + counters.at_capacity, 10_000, "{counters:?}");
    stop(&session).await;
}

// ---- a start that fails -----------------------------------------------------------------------------------

/// The error of a start that must fail, and leaves no process behind.
async fn start_error(builder: SessionBuilder) -> Error {
    in_time("the failure", builder.start()).await.unwrap_err()
}

/// The error of a start with a stand-in, which must be gone once the error is there.
async fn start_error_of(behaviours: &str, start: Duration) -> Error {
    let scratch = Scratch::new();
    let (hold, mut held) = scratch.hold();
    let builder = fake(format!("{behaviours};{hold}")).configure(|options| options.timeouts.start = start);
    let error = start_error(builder).await;
    if let Some(opened) = held.opened.take() {
        in_time("holding the pipe", opened).await.unwrap();
    }
    held.closed().await;
    error
}

/// Longer than a test waits: the start must fail without waiting for it.
const NEVER: Duration = Duration::from_secs(3600);

/// Long enough for a process to begin, on a busy machine too.
const BRIEF: Duration = Duration::from_secs(5);

#[tokio::test]
async fn an_initialize_without_an_answer_is_a_typed_error() {
    let error = start_error_of("fork;hang-initialize", BRIEF).await;
    assert_eq!(error.kind(), ErrorKind::StartTimeout);
    assert!(error.to_string().contains("5s") && error.help().unwrap().contains("timeouts.start"), "{error}");
}

#[tokio::test]
async fn a_cli_that_exits_at_once_is_a_typed_error_with_its_stderr() {
    let error = start_error_of("exit-at-once=3;stderr=your licence has run out", NEVER).await;
    assert_eq!(error.kind(), ErrorKind::CliExited);
    assert!(error.stderr().unwrap().contains("your licence has run out"), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("exited with code 3") && text.contains("your licence has run out"), "{text}");
}

#[tokio::test]
async fn what_does_not_speak_the_protocol_is_a_typed_error() {
    let error = start_error_of("garbage", BRIEF).await;
    assert_eq!(error.kind(), ErrorKind::NotTheProtocol);
    assert!(error.to_string().contains("cli_path"), "{error}");
}

#[tokio::test]
async fn a_refused_initialize_is_a_typed_error() {
    let error = start_error_of("refuse-initialize=no such model", NEVER).await;
    assert_eq!(error.kind(), ErrorKind::InitializeRefused);
    assert!(error.to_string().contains("no such model"), "{error}");
}

#[tokio::test]
async fn a_missing_cli_is_a_typed_error_that_says_where_it_was_looked_for() {
    let scratch = Scratch::new();
    let path = scratch.path("claude");
    let error = start_error(fake("").cli_path(&path)).await;
    assert_eq!(error.kind(), ErrorKind::CliNotFound);
    let text = error.to_string();
    assert!(text.contains(path.to_str().unwrap()) && text.contains("does not exist"), "where: {text}");
    assert!(text.contains("correct `cli_path`, or leave it out"), "what to do: {text}");

    // A name is looked for in the `PATH` that the CLI would get.
    let directory = scratch.path("");
    let by_name = fake("").cli_path("no-such-claude").env("PATH", directory.to_str().unwrap());
    let error = start_error(by_name).await;
    assert_eq!(error.kind(), ErrorKind::CliNotFound);
    let text = error.to_string();
    assert!(text.contains(directory.join("no-such-claude").to_str().unwrap()), "where: {text}");
}

#[tokio::test]
async fn a_missing_working_directory_is_a_typed_error() {
    let scratch = Scratch::new();
    for (path, trouble) in
        [(scratch.path("nowhere"), "does not exist"), ("/bin/sh".into(), "is not a directory")]
    {
        let error = start_error(fake("").cwd(&path)).await;
        assert_eq!(error.kind(), ErrorKind::Spawn);
        assert!(error.help().is_some(), "{error}");
        let text = error.to_string();
        assert!(text.contains(path.to_str().unwrap()) && text.contains(trouble), "{text}");
    }
}

#[tokio::test]
async fn the_stderr_in_an_error_is_bounded() {
    let flood = fake("flood-stderr=300000;stderr=never seen;exit-at-once=1");
    let error = start_error(flood.configure(|options| options.limits.stderr_tail_bytes = 1000)).await;
    assert_eq!(error.kind(), ErrorKind::CliExited);
    let stderr = error.stderr().unwrap();
    assert!(stderr.len() <= 1000 && stderr.len() > 800, "{} bytes", stderr.len());
}

// ---- nobody is left ---------------------------------------------------------------------------------------

/// A session whose CLI ignores SIGTERM and the end of its stdin, and has started processes that do too: one in its
/// group and one that has left it.
async fn stubborn(scratch: &Scratch) -> (Session, Held) {
    stubborn_by(scratch, "fork;fork-away", Containment::Auto).await
}

async fn stubborn_by(scratch: &Scratch, behaviours: &str, containment: Containment) -> (Session, Held) {
    let contained = |options: &mut Options| options.containment = containment;
    stubborn_of(scratch, behaviours, |builder| builder.configure(contained)).await
}

async fn stubborn_of(
    scratch: &Scratch,
    behaviours: &str,
    change: impl FnOnce(SessionBuilder) -> SessionBuilder,
) -> (Session, Held) {
    let (hold, mut held) = scratch.hold();
    // Once: another incarnation would hold the pipe as well.
    let once = fake(format!("ignore-term;{behaviours};{hold}"));
    let once = change(once.configure(|options| options.restarts.cli = quick(0)));
    let grandchild = scratch.path("grandchild");
    let once = once.on_stderr(move |line| {
        if let Some(pid) = line.strip_prefix("grandchild ") {
            std::fs::write(&grandchild, pid).unwrap();
        }
    });
    let session = start(once).await;
    answers(&session, "hello").await;
    held.opened().await;
    (session, held)
}

// Guards: no-orphans
// Guards: `stop()`
#[tokio::test]
async fn stop_ends_what_ignores_sigterm_and_what_it_started() {
    let scratch = Scratch::new();
    let (session, held) = stubborn(&scratch).await;
    stop(&session).await;
    held.closed().await;
}

// Guards: the owner of the session is fenced, and calls `kill`
#[tokio::test]
async fn a_kill_ends_what_ignores_sigterm_and_waits_for_none_of_the_limits() {
    let scratch = Scratch::new();
    let (session, held) = stubborn_of(&scratch, "fork;fork-away", |builder| {
        builder.configure(|options| {
            (options.timeouts.drain, options.timeouts.cancel_grace) = (NEVER, NEVER);
            (options.timeouts.exit_after_eof, options.timeouts.exit_after_term) = (NEVER, NEVER);
        })
    })
    .await;
    in_time("the kill", session.kill()).await;
    held.closed().await;
}

// Guards: the host is killed and started again at once
#[tokio::test]
async fn the_process_of_a_session_is_that_of_its_newest_cli() {
    let builder = fake("crash-on-prompt=1;crash-times=1").transport(Recorder::around(ChildProcess::new()));
    let mut builder = builder;
    let mut events = builder.events();
    let session = start(builder).await;
    let started = |event: &Event| match event {
        Event::CliStarted { pid, process, .. } => Some((*pid, process.clone())),
        _ => None,
    };
    let first = session.process().unwrap();
    assert_eq!(event(&mut events, "the first CLI", started).await, (Some(first.pid), Some(first.clone())));
    assert!(first.is_alive());
    assert!(matches!(cause(&prompt(&session, "crash").await), ExitCause::Exited { .. }));
    let second = event(&mut events, "the second CLI", started).await.1;
    restarted(&mut events).await;
    assert!(second.is_some() && second != Some(first.clone()));
    assert_eq!(session.process(), second);
    assert!(!first.is_alive() && second.as_ref().unwrap().is_alive());
    stop(&session).await;
    assert!(session.process().is_none() && !second.unwrap().is_alive());
}

/// The names of the processes that outlived the CLI, when it has ended.
async fn leftovers(events: &mut Events) -> Vec<String> {
    event(events, "the leftovers", |event| match event {
        Event::LeftoversKilled { epoch: 1, processes } => {
            Some(processes.iter().map(|process| process.name.clone()).collect())
        }
        _ => None,
    })
    .await
}

/// The name of the stand-in's process, which the system cuts to 15 bytes.
#[cfg(target_os = "linux")]
const FAKE_CLI: &str = "greenroom-fake-";

// Guards: no-orphans
#[cfg(target_os = "linux")]
#[tokio::test]
async fn stop_ends_chains_of_forks_without_a_control_group() {
    let _one = crate::orphans::ONE_WITH_CHAINS.lock().await;
    let scratch = Scratch::new();
    let (session, held) = stubborn_by(&scratch, "fork-chains=12", Containment::Mark).await;
    stop(&session).await;
    held.closed().await;
}

// Guards: no-orphans
// Guards: processes that the CLI has started outlive it
#[cfg(target_os = "linux")]
#[tokio::test]
async fn stop_without_time_ends_what_left_the_group_and_tells_it() {
    for containment in [Containment::Auto, Containment::Mark] {
        let scratch = Scratch::new();
        let (session, held) = stubborn_by(&scratch, "fork;fork-away", containment).await;
        let by = reported_cli(&session).await.contained_by;
        assert!(containment == Containment::Auto || by == Some(ContainedBy::Mark), "{by:?}");
        let mut events = session.events();
        stop(&session).await;
        held.closed().await;
        assert_eq!(leftovers(&mut events).await, [FAKE_CLI], "the one in the group is none");
    }
}

// Guards: no-orphans
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_recorded_cli_is_contained_and_its_leftovers_are_told() {
    let scratch = Scratch::new();
    let recorder = Recorder::around(ChildProcess::new());
    let (session, held) =
        stubborn_of(&scratch, "fork-away", |builder| builder.transport(recorder.clone())).await;
    assert!(reported_cli(&session).await.contained_by.is_some());
    let mut events = session.events();
    stop(&session).await;
    held.closed().await;
    assert_eq!(leftovers(&mut events).await, [FAKE_CLI]);
    assert!(!recorder.transcript().entries.is_empty());
}

// Guards: no-orphans
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_cli_that_is_killed_from_outside_leaves_nothing_that_left_its_group() {
    for containment in [Containment::Auto, Containment::Mark] {
        let scratch = Scratch::new();
        let (session, held) = stubborn_by(&scratch, "fork-away", containment).await;
        let mut events = session.events();
        let pid = reported_cli(&session).await.pid.unwrap();
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        held.closed().await;
        assert_eq!(leftovers(&mut events).await, [FAKE_CLI]);
        in_time("the end of the session", session.wait()).await;
    }
}

// Guards: no-orphans
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_cli_that_moves_to_another_group_is_killed_all_the_same() {
    for containment in [Containment::Auto, Containment::Group] {
        let scratch = Scratch::new();
        let (session, held) = stubborn_by(&scratch, "move-away", containment).await;
        let pid = reported_cli(&session).await.pid.unwrap();
        // Not by its id, which the system may give to another process meanwhile.
        let cli = File::open(format!("/proc/{pid}/")).unwrap();
        stop(&session).await;
        let stat = rustix::fs::statat(&cli, "stat", rustix::fs::AtFlags::empty());
        assert!(stat.is_err(), "reaped: {containment:?}");
        if containment == Containment::Auto {
            held.closed().await;
        } else {
            // `Containment::Group` lets the process live on, so the test kills it.
            let told = std::fs::read_to_string(scratch.path("grandchild")).unwrap();
            let left = rustix::process::Pid::from_raw(told.parse().unwrap()).unwrap();
            rustix::process::kill_process(left, rustix::process::Signal::KILL).unwrap();
            held.closed().await;
        }
    }
}

// Guards: no-orphans
// Guards: the last `Session` handle is dropped
#[tokio::test]
async fn the_last_handle_takes_everything_along() {
    let scratch = Scratch::new();
    let (session, mut held) = stubborn(&scratch).await;
    let other = session.clone();
    drop(session);
    answers(&other, "still here").await;
    held.opened().await;
    drop(other);
    held.closed().await;
}

// Guards: no-orphans
#[tokio::test]
async fn a_killed_supervisor_takes_everything_along() {
    let scratch = Scratch::new();
    let (session, held) = stubborn(&scratch).await;
    let mut turn = session.prompt("hello").await.unwrap();
    session.inject(Fault::KillSupervisor);
    held.closed().await;
    in_time("the end of the session", session.wait()).await;
    in_time("the end of the turn", async { while turn.next().await.is_some() {} }).await;
    let error = in_time("a prompt", session.prompt("anybody?")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionFailed, "{error:?}");
}

#[tokio::test]
async fn a_panic_that_ends_an_incarnation_ends_its_processes() {
    for fault in [Fault::PanicPort, Fault::KillPort, Fault::PanicConversation] {
        let scratch = Scratch::new();
        let (session, held) = stubborn(&scratch).await;
        session.inject(fault.clone());
        held.closed().await;
        in_time("the end of the session", session.wait()).await;
        assert!(session.failure().is_some(), "{fault:?}");
    }
}

// Guards: no-orphans
#[test]
fn the_end_of_the_runtime_takes_everything_along() {
    let scratch = Scratch::new();
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let hosts = runtime();
    let (session, held) = hosts.block_on(stubborn(&scratch));
    drop(hosts);
    runtime().block_on(held.closed());
    drop(session);
}

// ---- crashes ----------------------------------------------------------------------------------------------

// Guards: ended-once
#[tokio::test]
async fn a_crashed_cli_resumes_and_takes_what_was_queued() {
    let scratch = Scratch::new();
    let behaviours = format!("crash-on-prompt=2;crash-times=1;{};{}", scratch.state(), scratch.print_args());
    let session = start(fake(behaviours)).await;
    let mut events = session.events();
    answers(&session, "one").await;
    let session_id = session.session_id().expect("it was named");
    let mut two = session.prompt("two").await.unwrap();
    let mut three = session.prompt("three").await.unwrap();

    match cause(&outcome(&mut two).await) {
        ExitCause::Exited { exit, .. } => assert_eq!(*exit, Exit::Signal(9)),
        other => panic!("{other:?}"),
    }
    assert_eq!(restarted(&mut events).await, (2, Some(session_id.clone())));
    assert_eq!(outcome(&mut three).await.text(), Some("You said: three"));
    assert_eq!(session.session_id(), Some(session_id.clone()));
    let args = scratch.args();
    assert_eq!(args.len(), 2);
    assert!(!args[0].iter().any(|arg| arg.starts_with("--resume")), "{args:?}");
    assert!(args[1].contains(&format!("--resume={session_id}")), "{args:?}");
    assert_eq!(session.snapshot().await.unwrap().counters.cli_restarts, 1);
    stop(&session).await;
}

// Guards: the CLI exits, is killed, closes stdout, stops reading stdin
#[tokio::test]
async fn the_cli_exits_or_is_killed_and_the_session_goes_on() {
    for (end, expected) in [
        ("crash-code=0", Exit::Code(0)),
        ("crash-code=7", Exit::Code(7)),
        ("crash-code=255", Exit::Code(255)),
        ("crash-signal=9", Exit::Signal(9)),
        ("crash-signal=15", Exit::Signal(15)),
        ("crash-signal=6", Exit::Signal(6)),
    ] {
        let scratch = Scratch::new();
        let (state, print_args) = (scratch.state(), scratch.print_args());
        // What the CLI has forked holds its pipes, and delays no restart.
        let behaviours = format!("fork;crash-on-prompt=2;crash-times=1;{end};{state};{print_args}");
        let session = start(fake(behaviours)).await;
        answers(&session, "one").await;
        match cause(&prompt(&session, "two").await) {
            ExitCause::Exited { exit, .. } => assert_eq!(*exit, expected),
            other => panic!("{other:?}"),
        }
        answers(&session, "three").await;
        let resumed = &scratch.args()[1];
        assert!(resumed.iter().any(|arg| arg.starts_with("--resume=")), "{resumed:?}");
        stop(&session).await;
    }
}

// Guards: the CLI exits, is killed, closes stdout, stops reading stdin
#[tokio::test]
async fn a_cli_that_closes_stdout_and_lives_on_is_restarted() {
    let scratch = Scratch::new();
    let session = start(fake(format!("close-stdout;crash-times=1;{}", scratch.state()))).await;
    let outcome = prompt(&session, "one").await;
    assert!(matches!(cause(&outcome), ExitCause::StdoutClosed { .. }), "{outcome:?}");
    answers(&session, "two").await;
    stop(&session).await;
}

// Guards: fenced
#[tokio::test]
async fn calls_in_flight_end_with_their_cli_and_not_with_the_next_one() {
    let scratch = Scratch::new();
    let behaviours = format!("calls=1;cancel;crash-on-prompt=1;crash-times=1;{}", scratch.state());
    let session = start(fake(behaviours)).await;
    let mut events = session.events();
    assert!(matches!(cause(&prompt(&session, "one").await), ExitCause::Exited { exit: Exit::Signal(9), .. }));
    restarted(&mut events).await;
    // The new CLI counts every answer that it did not ask for.
    let outcome = prompt(&session, "two").await;
    let report: Value = serde_json::from_str(outcome.text().expect("a report")).unwrap();
    assert_eq!((&report["unknown"], &report["duplicates"]), (&0.into(), &0.into()), "{report}");
    assert!(report["answer"].is_object(), "the call that was cancelled is answered: {report}");
    stop(&session).await;
}

#[tokio::test]
async fn too_many_crashes_end_the_session_with_the_cause() {
    let session = start(
        fake("crash-on-prompt=1;stderr=out of luck").configure(|options| options.restarts.cli = quick(1)),
    )
    .await;
    let mut events = session.events();
    cause(&prompt(&session, "one").await);
    restarted(&mut events).await;
    cause(&prompt(&session, "two").await);

    let told = event(&mut events, "the failure", |event| match event {
        Event::Failed { cause } => Some(cause.clone()),
        _ => None,
    });
    let told = told.await;
    assert!(told.contains("signal 9") && told.contains("more than 1 times"), "{told}");
    in_time("the end", session.wait()).await;
    let failure = session.failure().expect("it has failed");
    assert_eq!(failure.kind(), ErrorKind::SessionFailed);
    assert!(failure.stderr().unwrap().contains("out of luck"), "{failure:?}");
    assert_eq!(session.prompt("three").await.unwrap_err().kind(), ErrorKind::SessionFailed);
    assert_eq!(in_time("the stop", session.stop()).await.unwrap_err().kind(), ErrorKind::SessionFailed);
    assert!(events.next().await.is_none());
}

// Guards: the CLI exits with a failure right after an error result
#[tokio::test]
async fn an_exit_that_an_error_result_announced_is_no_crash() {
    let scratch = Scratch::new();
    let behaviours = format!("error-exit=1;crash-times=1;{}", scratch.state());
    // A single crash would be the end.
    let session = start(fake(behaviours).configure(|options| options.restarts.cli = quick(0))).await;
    let mut events = session.events();
    match prompt(&session, "one").await {
        Outcome::Failed { error, result: Some(_), .. } => {
            assert_eq!(error.kind(), ErrorKind::TurnFailed);
            assert!(error.to_string().contains("no credit is left"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(restarted(&mut events).await, (2, session.session_id()));
    answers(&session, "two").await;
    stop(&session).await;
}

#[tokio::test]
async fn half_a_line_is_no_message_and_the_next_cli_begins_afresh() {
    let scratch = Scratch::new();
    let session = start(fake(format!("half-line;crash-times=1;{}", scratch.state()))).await;
    let mut turn = session.prompt("one").await.unwrap();
    let mut kinds = Vec::new();
    while let Some(message) = in_time("a message", turn.next()).await {
        kinds.push(message.kind().to_owned());
    }
    assert_eq!(kinds, ["system"]);
    assert!(matches!(cause(&outcome(&mut turn).await), ExitCause::Exited { exit: Exit::Code(0), .. }));
    answers(&session, "two").await;
    assert_eq!(session.snapshot().await.unwrap().counters.malformed_lines, 1);
    stop(&session).await;
}

// Guards: whole-lines
// Guards: the CLI exits, is killed, closes stdout, stops reading stdin
#[tokio::test]
async fn a_cli_that_stops_reading_is_given_up() {
    let builder = fake("stop-reading").configure(|options| {
        options.timeouts.stdin_stall = Duration::from_millis(300);
    });
    let session = start(builder).await;
    let mut events = session.events();
    // More than a pipe holds.
    let outcome = prompt(&session, &"x".repeat(4 << 20)).await;
    match cause(&outcome) {
        ExitCause::StdinBroken { reason, .. } => assert!(reason.contains("300ms"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(restarted(&mut events).await.0, 2);
    stop(&session).await;
}
