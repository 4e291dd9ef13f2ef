//! Both backends keep the promises of a backend.

use std::sync::Arc;
use std::time::Duration;

use greenroom_fleet::backend::{Backend, LocalBackend, MemoryBackend};
use greenroom_fleet::testkit::{BackendViolation, backend_conformance};
use greenroom_fleet::{Accept, Join, Name, NodeId, PromptContent, PromptId, QueueBounds, Renewed};
use serde_json::json;
use uuid::Uuid;

pub(crate) fn accept(to: &str) -> Accept {
    Accept {
        prompt: PromptId::new(),
        name: Name::new(to).unwrap(),
        profile: "support".to_owned(),
        tenant: "acme".to_owned(),
        conversation: Uuid::new_v4(),
        host: None,
        key: Some("key".to_owned()),
        content: PromptContent { prompt: json!("hello"), continuation: None },
        continuations: 0,
        not_before: None,
        wait: Duration::from_secs(3600),
        bounds: QueueBounds { name: 100, tenant: 100_000, fleet: 100_000 },
    }
}

fn listed(broken: Vec<BackendViolation>) -> Vec<&'static str> {
    panic!("{}", broken.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
}

#[tokio::test(start_paused = true)]
async fn the_backend_in_memory_keeps_the_promises() {
    backend_conformance(async || Arc::new(MemoryBackend::new()) as _).await.unwrap_or_else(listed);
}

#[tokio::test]
async fn the_backend_in_a_file_keeps_the_promises() {
    let folder = tempfile::tempdir().unwrap();
    let files = std::cell::Cell::new(0);
    let make = async || {
        files.set(files.get() + 1);
        let path = folder.path().join(format!("{}.redb", files.get()));
        Arc::new(LocalBackend::open(path).await.unwrap()) as _
    };
    backend_conformance(make).await.unwrap_or_else(listed);
}

#[tokio::test(start_paused = true)]
async fn a_backend_in_memory_that_is_reopened_has_dead_nodes_and_its_facts() {
    let backend = MemoryBackend::new();
    let join = Join { node: NodeId::new(), host: "here".to_owned(), lease: Duration::from_secs(3600) };
    backend.join(join.clone()).await.unwrap();
    let after = backend.reopen().await.unwrap();
    assert_eq!(backend.renew(join.node, join.lease, false).await.unwrap(), Renewed::Dead);
    assert_eq!(after.nodes().await.unwrap(), []);
}
