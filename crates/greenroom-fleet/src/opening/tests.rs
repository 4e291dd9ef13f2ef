//! The opening of a fleet, with real processes that an earlier start has left.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;

use super::*;
use crate::actor::deletion;
use crate::backend::{Backend, LocalBackend, MemoryBackend};
use crate::event::FleetEvent;
use crate::id::{AttemptId, NodeId, PromptId, Term};
use crate::limits::FleetLimits;
use crate::process::LeftProcess;
use crate::record::{InterruptedBy, NameState, PromptOutcome};
use crate::request::{Accepted, Begin, Claim, Claimed, Join, Marked, Ownership};
use crate::stage::{accept, shared};
use crate::wait::{SOON, in_time};

/// Longer than a test takes.
const LONG: Duration = Duration::from_secs(3600);

/// A process in a group of its own, which ends at the end of its input.
#[allow(clippy::disallowed_methods, reason = "a process as a service that was killed leaves it")]
fn old_cli() -> Child {
    Command::new("cat").process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// A process of a CLI that a fleet has started for this claim.
#[allow(clippy::disallowed_methods, reason = "a process as a service that was killed leaves it")]
fn old_cli_of(claim: AttemptId, script: &str) -> Child {
    Command::new("sh")
        .args(["-c", script])
        .env("GREENROOM_FLEET_ACTIVATION", claim.to_string())
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The identity of a process, written down by hand.
fn identity(child: &Child) -> Value {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let started: u64 = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().parse().unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    json!({ "claim": AttemptId::new(), "pid": child.id(), "started": started, "boot": boot.trim() })
}

/// A service on this host begins with a prompt of the name `a`, with this process.
async fn earlier_service(backend: &impl Backend, process: Option<Value>) -> (Name, PromptId, Term) {
    service_on("here", backend, process).await
}

/// A service begins with a prompt of the name `a`, with this process.
async fn service_on(host: &str, backend: &impl Backend, process: Option<Value>) -> (Name, PromptId, Term) {
    let node = NodeId::new();
    backend.join(Join { node, host: host.into(), lease: LONG, capacity: 8 }).await.unwrap();
    let Accepted::New(prompt) = backend.accept(accept("a", LONG)).await.unwrap() else { panic!("refused") };
    let (name, attempt) = (prompt.name.clone(), AttemptId::new());
    let claim = Claim { name: name.clone(), node, attempt, losses: 3, quota: crate::Quota::default() };
    let Claimed::Won(record) = backend.claim(claim).await.unwrap() else { panic!("not won") };
    let owner = Ownership { name: name.clone(), node, term: record.term };
    assert!(backend.record_process(owner.clone(), process).await.unwrap().done().is_some());
    let begin = Begin { owner, prompt: prompt.id, attempt, quota: crate::Quota::default(), credential: None };
    assert!(matches!(backend.begin(begin).await.unwrap().done(), Some(Some(_))));
    (name, prompt.id, record.term)
}

async fn event(events: &mut Receiver<FleetEvent>, wanted: &FleetEvent) {
    let found = async { while events.recv().await.unwrap() != *wanted {} };
    in_time("the event", found).await;
}

/// Opens a fleet on a backend in memory after a restart of the service.
async fn reopened(
    backend: &MemoryBackend,
    limits: FleetLimits,
) -> (FleetShared, Receiver<FleetEvent>, Result<(), FleetError>) {
    let shared = shared(Arc::new(backend.reopen().await.unwrap()), limits);
    let events = shared.events.subscribe();
    let opened = in_time("the opening", open(&shared)).await;
    (shared, events, opened)
}

// Guards: one-owner
#[tokio::test]
async fn an_old_cli_that_outlives_its_service_is_awaited() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fleet.redb");
    let first = LocalBackend::open(&path).await.unwrap();
    let mut cli = old_cli();
    let (name, prompt, term) = earlier_service(&first, Some(identity(&cli))).await;
    // As after a `kill -9`: nothing is given back, and the file can be opened at once.
    first.close().await;

    let backend = LocalBackend::open(&path).await.unwrap();
    let shared = Arc::new(shared(Arc::new(backend.clone()), FleetLimits::default()));
    let mut events = shared.events.subscribe();
    let opening = shared.clone();
    #[allow(clippy::disallowed_methods, reason = "the test awaits its end")]
    let opening = tokio::spawn(async move { open(&opening).await });
    event(&mut events, &FleetEvent::ProcessLeft { name: name.clone() }).await;
    let record = backend.name_record(name.clone()).await.unwrap().unwrap();
    assert_eq!(
        (record.term, record.running),
        (term, Some(prompt)),
        "nothing is taken while the old CLI runs"
    );
    assert!(backend.nodes(None, 10).await.unwrap().iter().all(|node| node.id != shared.node));
    assert!(!opening.is_finished());

    drop(cli.stdin.take());
    let status = tokio::task::spawn_blocking(move || cli.wait().unwrap()).await.unwrap();
    assert!(status.success(), "the old CLI ended by itself: {status}");
    in_time("the opening", opening).await.unwrap().unwrap();
    assert!(backend.left_processes(10).await.unwrap().is_empty());
    let by = InterruptedBy::OwnerLost { term };
    assert_eq!(backend.outcome(prompt).await.unwrap(), Some(PromptOutcome::Interrupted { by, result: None }));
    assert_eq!(backend.name_record(name).await.unwrap().unwrap().state, NameState::Free);
    assert!(backend.nodes(None, 10).await.unwrap().iter().any(|node| node.id == shared.node));
}

#[tokio::test]
async fn a_cli_that_was_starting_when_its_service_was_killed_is_awaited() {
    let (backend, claim) = (MemoryBackend::new(), AttemptId::new());
    let mut cli = old_cli_of(claim, "exec cat");
    // The service was killed before it knew the process.
    let (name, _, _) = earlier_service(&backend, Some(json!({ "claim": claim }))).await;
    let reopened = backend.reopen().await.unwrap();
    let shared = Arc::new(shared(Arc::new(reopened.clone()), FleetLimits::default()));
    let mut events = shared.events.subscribe();
    let opening = shared.clone();
    #[allow(clippy::disallowed_methods, reason = "the test awaits its end")]
    let opening = tokio::spawn(async move { open(&opening).await });
    event(&mut events, &FleetEvent::ProcessLeft { name: name.clone() }).await;
    let record = reopened.name_record(name.clone()).await.unwrap().unwrap();
    assert!(matches!(record.state, NameState::Owned { .. }), "nothing is taken while the old CLI runs");
    assert!(!opening.is_finished());
    drop(cli.stdin.take());
    let status = tokio::task::spawn_blocking(move || cli.wait().unwrap()).await.unwrap();
    assert!(status.success(), "the old CLI ended by itself: {status}");
    in_time("the opening", opening).await.unwrap().unwrap();
    assert_eq!(reopened.name_record(name).await.unwrap().unwrap().state, NameState::Free);
}

#[tokio::test]
async fn processes_that_have_outlived_their_cli_are_killed() {
    // In the group of the CLI, and in a group of their own.
    for script in ["sleep 600 & echo", "setsid sleep 600 & echo"] {
        let (backend, claim) = (MemoryBackend::new(), AttemptId::new());
        let mut cli = old_cli_of(claim, script);
        let mut process = identity(&cli);
        process["claim"] = json!(claim);
        let (name, _, _) = earlier_service(&backend, Some(process)).await;
        cli.wait().unwrap();
        let limits = FleetLimits { left_processes: Duration::from_secs(10), ..FleetLimits::default() };
        let (_, mut events, opened) = reopened(&backend, limits).await;
        opened.unwrap();
        event(&mut events, &FleetEvent::ProcessKilled { name: name.clone() }).await;
        // The output ends with the last process that holds it.
        let mut output = String::new();
        cli.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        assert_eq!(backend.name_record(name).await.unwrap().unwrap().state, NameState::Free, "{script}");
    }
}

#[test]
fn a_process_of_another_activation_is_not_killed() {
    let (claim, other) = (AttemptId::new(), AttemptId::new());
    let mut stranger = old_cli_of(other, "exec cat");
    LeftProcess::deserialize(&json!({ "claim": claim })).unwrap().kill();
    drop(stranger.stdin.take());
    assert!(stranger.wait().unwrap().success(), "it was killed");
}

#[tokio::test]
async fn an_old_cli_that_does_not_end_is_killed() {
    let backend = MemoryBackend::new();
    let mut cli = old_cli();
    let (name, _, _) = earlier_service(&backend, Some(identity(&cli))).await;
    // Both waits have this length, and a killed process needs its time on a busy machine.
    let limits = FleetLimits { left_processes: Duration::from_secs(10), ..FleetLimits::default() };
    let (_, mut events, opened) = reopened(&backend, limits).await;
    opened.unwrap();
    event(&mut events, &FleetEvent::ProcessLeft { name: name.clone() }).await;
    event(&mut events, &FleetEvent::ProcessKilled { name: name.clone() }).await;
    assert_eq!(cli.wait().unwrap().signal(), Some(9));
    assert_eq!(backend.name_record(name).await.unwrap().unwrap().state, NameState::Free);
}

#[tokio::test]
async fn processes_of_other_hosts_are_left_to_the_fleets_there() {
    let backend = MemoryBackend::new();
    let mut cli = old_cli();
    let (name, prompt, term) = service_on("there", &backend, Some(identity(&cli))).await;
    let (_, _, opened) = reopened(&backend, FleetLimits::default()).await;
    opened.unwrap();
    assert_eq!(cli.try_wait().unwrap(), None, "it was killed");
    assert_eq!(backend.left_processes(10).await.unwrap().len(), 1, "the next opening there looks at it");
    assert_eq!(backend.name_record(name).await.unwrap().unwrap().state, NameState::Free);
    let by = InterruptedBy::OwnerLost { term };
    assert_eq!(backend.outcome(prompt).await.unwrap(), Some(PromptOutcome::Interrupted { by, result: None }));
    drop(cli.stdin.take());
    cli.wait().unwrap();
}

#[tokio::test]
async fn an_opening_takes_nothing_from_a_node_that_may_be_alive() {
    let backend = MemoryBackend::new();
    let mut cli = old_cli();
    let (name, prompt, term) = earlier_service(&backend, Some(identity(&cli))).await;
    // Longer than the test waits: the opening must not wait for the process.
    let limits = FleetLimits { left_processes: SOON * 2, ..FleetLimits::default() };
    let shared = shared(Arc::new(backend.clone()), limits);
    in_time("the opening", open(&shared)).await.unwrap();
    let record = backend.name_record(name).await.unwrap().unwrap();
    assert_eq!((record.term, record.running), (term, Some(prompt)));
    assert_eq!(cli.try_wait().unwrap(), None, "it was killed");
    drop(cli.stdin.take());
    cli.wait().unwrap();
}

#[tokio::test]
async fn a_process_that_has_the_id_of_an_old_cli_is_left_alone() {
    let backend = MemoryBackend::new();
    let mut stranger = old_cli();
    let mut process = identity(&stranger);
    process["started"] = json!(process["started"].as_u64().unwrap() - 1);
    let (name, _, _) = earlier_service(&backend, Some(process)).await;
    let (_, _, opened) = reopened(&backend, FleetLimits::default()).await;
    opened.unwrap();
    assert_eq!(backend.name_record(name).await.unwrap().unwrap().state, NameState::Free);
    assert!(backend.left_processes(10).await.unwrap().is_empty());
    assert_eq!(stranger.try_wait().unwrap(), None, "it was killed");
    drop(stranger.stdin.take());
    stranger.wait().unwrap();
}

#[test]
fn a_process_of_another_or_an_unknown_start_is_not_killed() {
    let mut stranger = old_cli();
    for started in [json!(1), Value::Null] {
        let mut process = identity(&stranger);
        process["started"] = started;
        LeftProcess::deserialize(&process).unwrap().kill();
    }
    drop(stranger.stdin.take());
    assert!(stranger.wait().unwrap().success(), "it was killed");
}

#[tokio::test]
async fn a_name_whose_process_cannot_be_ended_is_quarantined() {
    let mut cli = old_cli();
    let mut unknown_start = identity(&cli);
    unknown_start["started"] = Value::Null;
    for (process, reason) in [
        (unknown_start, "still runs and could not be killed"),
        (json!("no identity"), "cannot be read (invalid type"),
        (json!({}), "cannot be read (missing field"),
    ] {
        let backend = MemoryBackend::new();
        let (name, _, _) = earlier_service(&backend, Some(process)).await;
        let limits = FleetLimits { left_processes: Duration::from_millis(100), ..FleetLimits::default() };
        let (_, _, opened) = reopened(&backend, limits).await;
        opened.unwrap();
        let record = backend.name_record(name).await.unwrap().unwrap();
        let NameState::Quarantined { why, .. } = record.state else { panic!("{:?}", record.state) };
        assert!(why.contains(reason), "{why}");
        assert_eq!(backend.left_processes(10).await.unwrap().len(), 1, "the next opening looks again");
    }
    drop(cli.stdin.take());
    cli.wait().unwrap();
}

#[tokio::test]
async fn unfinished_deletions_are_finished_and_stuck_ones_do_not_stop_the_opening() {
    let backend = MemoryBackend::new();
    let before = shared(Arc::new(backend.clone()), FleetLimits::default());
    before.folders.open().await.unwrap();
    let mut folders = Vec::new();
    for name in ["fine", "stuck"] {
        assert!(matches!(backend.accept(accept(name, LONG)).await.unwrap(), Accepted::New(_)));
        let name = format!("acme/{}", name).parse::<Name>().unwrap();
        let node = NodeId::new();
        let join = Join { node, host: before.host.clone(), lease: LONG, capacity: 8 };
        backend.join(join).await.unwrap();
        let claim = Claim {
            name: name.clone(),
            node,
            attempt: AttemptId::new(),
            losses: 3,
            quota: crate::Quota::default(),
        };
        let Claimed::Won(record) = backend.claim(claim).await.unwrap() else { panic!("not won") };
        backend.leave(node).await.unwrap();
        assert_eq!(backend.delete(name).await.unwrap(), Marked::Done);
        folders.push(before.folders.create(&record).await.unwrap().work.parent().unwrap().to_owned());
    }
    std::fs::rename(&folders[1], folders[1].with_extension("away")).unwrap();
    std::os::unix::fs::symlink(folders[1].with_extension("away"), &folders[1]).unwrap();
    let (_, mut events, opened) = reopened(&backend, FleetLimits::default()).await;
    opened.unwrap();
    let (fine, stuck) = ("acme/fine".parse::<Name>().unwrap(), "acme/stuck".parse::<Name>().unwrap());
    event(&mut events, &FleetEvent::Deleted { name: fine.clone() }).await;
    assert!(!folders[0].exists());
    assert_eq!(backend.name_record(fine).await.unwrap(), None);
    assert_eq!(backend.deleting(10).await.unwrap(), [stuck]);
}

#[tokio::test]
async fn files_are_kept_until_the_process_that_uses_them_is_gone() {
    let backend = MemoryBackend::new();
    let mut cli = old_cli();
    let mut unknown_start = identity(&cli);
    unknown_start["started"] = Value::Null;
    let (name, _, _) = earlier_service(&backend, Some(unknown_start)).await;
    let limits = FleetLimits { left_processes: Duration::from_millis(100), ..FleetLimits::default() };
    let (fleet, mut events, opened) = reopened(&backend, limits.clone()).await;
    opened.unwrap();
    let record = backend.name_record(name.clone()).await.unwrap().unwrap();
    let folders = fleet.folders.create(&record).await.unwrap();

    assert_eq!(deletion::mark(&fleet, &name).await.unwrap(), Marked::Done);
    let why = deletion::erase(&fleet, &name).await.unwrap_err().to_string();
    assert!(why.contains("still runs and could not be killed"), "{why}");
    event(&mut events, &FleetEvent::DeletionFailed { name: name.clone(), why }).await;
    assert!(folders.work.exists());
    let (fleet, mut events, opened) = reopened(&backend, limits).await;
    opened.unwrap();
    assert!(folders.work.exists());
    assert_eq!(backend.deleting(10).await.unwrap(), std::slice::from_ref(&name));

    drop(cli.stdin.take());
    cli.wait().unwrap();
    assert!(deletion::erase(&fleet, &name).await.unwrap().left.is_empty());
    event(&mut events, &FleetEvent::Deleted { name: name.clone() }).await;
    assert!(!folders.work.exists());
    assert!(backend.left_processes(10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_node_without_a_guardian_leaves_when_its_opening_fails() {
    // A program that ends at once, and acknowledges no deadline.
    greenroom::guardian::use_program("/bin/true");
    let backend = MemoryBackend::new();
    let mut shared = shared(Arc::new(backend.clone()), FleetLimits::default());
    let watchdog = greenroom::guardian::Watchdog::new().unwrap();
    shared.fence = crate::fence::Fence::new(shared.limits.lease, Some(watchdog));
    let opened = in_time("the opening", open(&shared)).await;
    assert!(matches!(opened, Err(FleetError::Session(_))), "{opened:?}");
    assert!(backend.nodes(None, 10).await.unwrap().is_empty());
}
