//! A backend over a Unix socket.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use greenroom_fleet::admin::Admin;
use greenroom_fleet::backend::{Backend, LocalBackend, MemoryBackend, Requests, SocketBackend, SocketServer};
use greenroom_fleet::testkit::backend_conformance;
use greenroom_fleet::{Accepted, BackendErrorKind, Change, Fleet, FleetError};
use tempfile::TempDir;

use crate::backends::{accept, listed};
use crate::wait::in_time;

/// Servers of stores, by their numbers.
#[derive(Default)]
struct Servers(Mutex<HashMap<usize, SocketServer>>);

impl Servers {
    /// Another connection to a store, which is made if there is none.
    async fn open(
        &self,
        folder: &Path,
        store: usize,
        backend: impl AsyncFnOnce() -> Arc<dyn Backend>,
    ) -> Arc<dyn Backend> {
        let path = folder.join(format!("{store}.sock"));
        if !path.exists() {
            let server = SocketServer::bind(&path, backend().await).await.unwrap();
            self.0.lock().unwrap().insert(store, server);
        }
        Arc::new(SocketBackend::connect(path).await.unwrap())
    }
}

#[tokio::test]
async fn backends_over_a_socket_keep_the_promises() {
    let folder = tempfile::tempdir().unwrap();
    let [memory, file] = ["memory", "file"].map(|part| folder.path().join(part));
    for part in [&memory, &file] {
        std::fs::create_dir(part).unwrap();
    }
    let (in_memory, in_files) = (Servers::default(), Servers::default());
    let open =
        async |store| in_memory.open(&memory, store, async || Arc::new(MemoryBackend::new()) as _).await;
    let kept = backend_conformance(open).await.unwrap_or_else(listed);
    assert!(kept.contains(&"another process reads what was answered, and hears of it"), "{kept:?}");
    let open = async |store| {
        let path = file.join(format!("{store}.redb"));
        in_files.open(&file, store, async || Arc::new(LocalBackend::open(path).await.unwrap()) as _).await
    };
    backend_conformance(open).await.unwrap_or_else(listed);
}

fn socket() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fleet.sock");
    (folder, path)
}

async fn refused(path: &Path) -> (BackendErrorKind, String) {
    let error = SocketServer::bind(path, MemoryBackend::new()).await.expect_err("it is bound");
    (error.kind(), error.to_string())
}

#[tokio::test]
async fn a_socket_is_private_and_refuses_paths_of_others() {
    let (folder, path) = socket();
    let server = SocketServer::bind(&path, MemoryBackend::new()).await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let (kind, text) = refused(&path).await;
    assert!(kind == BackendErrorKind::InUse && text.contains("another process serves it"), "{text}");
    drop(server);
    assert!(!path.exists());
    std::fs::write(&path, "a file").unwrap();
    let (kind, text) = refused(&path).await;
    assert!(kind == BackendErrorKind::Invalid && text.contains("another file is there"), "{text}");
    std::fs::remove_file(&path).unwrap();
    // A socket that nobody listens to any more.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = SocketServer::bind(&path, MemoryBackend::new()).await.unwrap();
    SocketBackend::connect(&path).await.unwrap();
    drop(server);
    let (kind, text) = refused(&folder.path().join("x".repeat(200))).await;
    assert_eq!(kind, BackendErrorKind::Invalid, "{text}");
    // In a sticky folder others can open the socket first.
    for mode in [0o777, 0o1777, 0o720] {
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        let (kind, text) = refused(&path).await;
        assert!(kind == BackendErrorKind::Invalid && text.contains("other users can write"), "{text}");
    }
}

#[tokio::test]
async fn a_backend_over_a_socket_outlives_its_service() {
    let (_folder, path) = socket();
    let rows = MemoryBackend::new();
    let server = SocketServer::bind(&path, rows.clone()).await.unwrap();
    let backend = SocketBackend::connect(&path).await.unwrap();
    let mut changes = backend.changes();
    assert_eq!(backend.queued().await.unwrap(), 0);
    drop(server);
    let gone = in_time("an error", async {
        loop {
            // The server's connections end soon after it.
            if let Err(error) = backend.queued().await {
                break error;
            }
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(gone.await.kind(), BackendErrorKind::Unavailable);
    assert_eq!(backend.queued().await.unwrap_err().kind(), BackendErrorKind::Unavailable);
    assert!(matches!(rows.accept(accept("a")).await.unwrap(), Accepted::New(_)));
    let _server = SocketServer::bind(&path, rows).await.unwrap();
    assert_eq!(backend.queued().await.unwrap(), 1);
    // Changes may have been missed.
    while in_time("a hint", changes.recv()).await != Ok(Change::Missed) {}
}

#[tokio::test]
async fn no_fleet_runs_over_the_socket_of_another_one() {
    let (folder, path) = socket();
    let fleet = Fleet::builder().start().await.unwrap();
    let person = fleet.operator().on_behalf_of("chief");
    assert!(matches!(person.serve(&path).await, Err(FleetError::Denied(_))));
    let _server = fleet.operator().serve(&path).await.unwrap();
    let backend = SocketBackend::connect(&path).await.unwrap();
    let builder =
        Fleet::builder().backend(backend.clone()).without_watchdog().host("here").folder(folder.path());
    let Err(FleetError::Backend(error)) = builder.start().await else { panic!("it runs") };
    assert_eq!(error.kind(), BackendErrorKind::Invalid, "{error}");
    assert_eq!(Admin::new(backend).nodes().await.unwrap().len(), 1);
    crate::scenes::drain(&fleet, Duration::ZERO).await;
}
