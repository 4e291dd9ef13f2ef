//! Both backends keep the promises of a backend.

use std::sync::Arc;

use greenroom_fleet::backend::{LocalBackend, MemoryBackend};
use greenroom_fleet::testkit::{BackendViolation, backend_conformance};

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
