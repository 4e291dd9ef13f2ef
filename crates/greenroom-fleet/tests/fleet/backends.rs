//! The backends keep the promises of a backend, and so do two of the test's own.

#[path = "../support/shelf.rs"]
mod shelf;
#[path = "../support/sqlite.rs"]
mod sqlite;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use greenroom_fleet::admin::Admin;
use greenroom_fleet::backend::{Backend, LocalBackend, MemoryBackend, Requests};
use greenroom_fleet::testkit::{BackendViolation, Fault, FaultedBackend, backend_conformance};
use greenroom_fleet::{
    Accept, Accepted, AttemptId, Begin, Claim, Claimed, Clock, Fleet, Join, Name, NodeId, Owned, Ownership,
    PromptContent, PromptId, QueueBounds, Timestamp, WaitingPage,
};
use serde_json::json;
use uuid::Uuid;

use crate::scenes::{asks, drain};

pub(crate) fn accept(to: &str) -> Accept {
    Accept {
        prompt: PromptId::new(),
        name: format!("acme/{}", to).parse::<Name>().unwrap(),
        profile: "support".to_owned(),
        conversation: Uuid::new_v4(),
        host: None,
        key: Some("key".to_owned()),
        labels: Default::default(),
        content: PromptContent { prompt: json!("hello"), continuation: None },
        continuations: 0,
        not_before: None,
        wait: Duration::from_secs(3600),
        quota: greenroom_fleet::Quota::default(),
        bounds: QueueBounds { name: 100, tenant: 100_000, fleet: 100_000, ..Default::default() },
    }
}

pub(crate) fn listed(broken: Vec<BackendViolation>) -> Vec<&'static str> {
    panic!("{}", broken.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
}

#[tokio::test(start_paused = true)]
async fn the_backend_in_memory_keeps_the_promises() {
    backend_conformance(async |_| Arc::new(MemoryBackend::new()) as _).await.unwrap_or_else(listed);
}

#[tokio::test]
async fn the_backend_in_a_file_keeps_the_promises() {
    let folder = tempfile::tempdir().unwrap();
    let open = async |store| {
        let path = folder.path().join(format!("{store}.redb"));
        Arc::new(LocalBackend::open(path).await.unwrap()) as _
    };
    backend_conformance(open).await.unwrap_or_else(listed);
}

#[tokio::test]
async fn a_map_behind_a_lock_keeps_the_promises() {
    backend_conformance(async |_| Arc::new(shelf::Shelf::over(Arc::default(), Clock::system())) as _)
        .await
        .unwrap_or_else(listed);
}

#[tokio::test]
async fn a_backend_over_sqlite_keeps_the_promises() {
    let folder = tempfile::tempdir().unwrap();
    let open = async |store| {
        let path = folder.path().join(format!("{store}.sqlite"));
        Arc::new(sqlite::Sqlite::open(&path, Clock::system())) as _
    };
    let kept = backend_conformance(open).await.unwrap_or_else(listed);
    assert!(kept.contains(&"another process reads what was answered, and hears of it"), "{kept:?}");
}

#[tokio::test]
async fn a_backend_behind_an_arc_is_that_backend() {
    let folder = tempfile::tempdir().unwrap();
    let file = LocalBackend::open(folder.path().join("fleet.redb")).await.unwrap();
    let backend: Arc<dyn Backend> = Arc::new(FaultedBackend::new(file));
    // The file names the folder of the sessions, and needs no name of a host.
    let fleet = Fleet::builder().backend(backend.clone()).start().await.unwrap();
    let admin = Admin::new(backend.clone());
    assert_eq!(admin.nodes().await.unwrap().len(), 1);
    drain(&fleet, Duration::from_secs(20)).await;
    assert_eq!(admin.nodes().await.unwrap().len(), 0);

    // A request through two of them is carried out by the backend itself.
    let faulted = Arc::new(Arc::new(FaultedBackend::new(backend)));
    faulted.fault_next("queued", Fault::Fail);
    assert!(Admin::new(faulted.clone()).nodes().await.is_ok());
    assert!(faulted.queued().await.unwrap_err().to_string().contains("a fault of the test"));
    assert_eq!(faulted.queued().await.unwrap(), 0);
}

/// Two fleets on one database of SQLite: the one that is left takes over.
#[tokio::test]
async fn sessions_go_on_at_another_node_over_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let clis = crate::remembering::Remembering::default();
    let node = async |host: &str| {
        let clis = clis.clone();
        let builder = Fleet::builder()
            // Its CLIs are scripted ones in this process.
            .without_watchdog()
            .backend(sqlite::Sqlite::open(&folder.path().join("fleet.sqlite"), Clock::system()))
            .host(host)
            .folder(folder.path().join(host))
            .profile("default", move |_| clis.session());
        builder.start().await.unwrap()
    };
    let (first, second) = (node("one").await, node("two").await);
    assert_eq!(asks(&first, "a", "green").await, "green");
    drain(&first, Duration::from_secs(20)).await;
    assert_eq!(asks(&second, "a", "which?").await, "green, which?");
    drain(&second, Duration::from_secs(20)).await;
}

#[tokio::test(start_paused = true)]
async fn a_backend_in_memory_that_is_reopened_has_dead_nodes_and_its_facts() {
    let backend = MemoryBackend::new();
    let join =
        Join { node: NodeId::new(), host: "here".to_owned(), lease: Duration::from_secs(3600), capacity: 8 };
    backend.join(join.clone()).await.unwrap();
    let after = backend.reopen().await.unwrap();
    assert_eq!(backend.renew(join.node, join.lease, false).await.unwrap(), Owned::Fenced);
    assert_eq!(after.nodes(None, 10).await.unwrap(), []);
}

/// A backend on a clock that the test sets.
fn on_a_clock() -> (MemoryBackend, Arc<AtomicU64>) {
    let now = Arc::new(AtomicU64::new(1_000_000));
    let read = now.clone();
    (MemoryBackend::with_clock(Clock::new(move || Timestamp(read.load(Ordering::SeqCst)))), now)
}

#[tokio::test]
async fn a_clock_that_is_set_back_holds_up_reminders_and_no_other_prompt() {
    let (backend, clock) = on_a_clock();
    let (at_once, then) = (accept("a"), Timestamp(1_500_000));
    let reminder = Accept { not_before: Some(then), ..accept("b") };
    for accept in [&at_once, &reminder] {
        assert!(matches!(backend.accept(accept.clone()).await.unwrap(), Accepted::New(_)));
    }
    let node = NodeId::new();
    let waiting = async |now| {
        clock.store(now, Ordering::SeqCst);
        let page =
            WaitingPage { node, of: None, without: Vec::new(), profiles: None, after: None, limit: 10 };
        let names = backend.waiting(page).await.unwrap();
        names.prompts.into_iter().map(|prompt| prompt.id).collect::<Vec<_>>()
    };
    assert_eq!(waiting(10_000).await, [at_once.prompt]);
    for (prompt, now, due) in
        [(&at_once, Timestamp(0), true), (&reminder, backend.now(), false), (&reminder, then, true)]
    {
        let record = backend.prompt_record(prompt.prompt).await.unwrap().unwrap();
        assert_eq!(record.is_due(now), due);
    }
    assert_eq!(backend.next_due(backend.now()).await.unwrap(), Some(then));
    backend
        .join(Join { node, host: "here".to_owned(), lease: Duration::from_secs(30), capacity: 8 })
        .await
        .unwrap();
    for (accept, expected) in [(&reminder, None), (&at_once, Some(json!("hello")))] {
        let attempt = AttemptId::new();
        let claim = Claim {
            name: accept.name.clone(),
            node,
            attempt,
            losses: 3,
            quota: greenroom_fleet::Quota::default(),
        };
        let Claimed::Won(record) = backend.claim(claim).await.unwrap() else { panic!("not won") };
        let owner = Ownership { name: accept.name.clone(), node, term: record.term };
        let begin = Begin {
            owner,
            prompt: accept.prompt,
            attempt,
            quota: greenroom_fleet::Quota::default(),
            credential: None,
        };
        assert_eq!(backend.begin(begin).await.unwrap(), Owned::Done(expected));
    }
    assert_eq!(waiting(then.0).await, [reminder.prompt]);
    assert_eq!(waiting(10_000).await, [], "a clock that is set back again");
}

#[tokio::test]
async fn a_clock_that_is_set_back_keeps_no_dead_node_alive() {
    let (backend, clock) = on_a_clock();
    let node = NodeId::new();
    let lease = Duration::from_secs(30);
    backend.join(Join { node, host: "here".to_owned(), lease, capacity: 8 }).await.unwrap();
    assert!(!backend.declare_dead(node, 0).await.unwrap());
    clock.store(10_000, Ordering::SeqCst);
    // A renewal after the step is counted on the clock as it is now.
    assert!(matches!(backend.renew(node, lease, false).await.unwrap(), Owned::Done(_)));
    assert!(!backend.declare_dead(node, 1).await.unwrap());
    clock.store(9_000, Ordering::SeqCst);
    assert!(!backend.declare_dead(node, 0).await.unwrap());
    assert!(backend.declare_dead(node, 1).await.unwrap());
}
