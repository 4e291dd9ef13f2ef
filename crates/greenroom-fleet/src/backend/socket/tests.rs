//! Tests of clients that break the rules of the socket.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::folder::Folder;
use super::frame::{Answer, Asked, GREETING, LONGEST, bytes, greet, receive};
use super::{SocketBackend, SocketServer};
use crate::backend::{Backend, MemoryBackend, Requests};
use crate::error::BackendErrorKind;
use crate::registry::{Lane, Wanted};
use crate::wait::in_time;

fn path() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fleet.sock");
    (folder, path)
}

/// The server closes the connection without an answer.
async fn is_closed(stream: &mut UnixStream) {
    let mut rest = Vec::new();
    let read = in_time("the end of the connection", stream.read_to_end(&mut rest)).await;
    assert!(
        matches!(read, Ok(0)) || read.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset),
        "{rest:?}"
    );
}

#[tokio::test]
async fn frames_that_are_too_long_or_wrong_end_their_connection_alone() {
    let (_folder, path) = path();
    let _server = SocketServer::bind(&path, MemoryBackend::new()).await.unwrap();
    let other = SocketBackend::connect(&path).await.unwrap();
    let too_long = (LONGEST as u32 + 1).to_le_bytes().to_vec();
    let garbage = [4_u32.to_le_bytes().as_slice(), &[0xff; 4]].concat();
    let short_of = [9_u32.to_le_bytes().as_slice(), &[0; 4]].concat();
    for frame in [too_long, garbage, short_of] {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        assert!(greet(&mut stream).await.unwrap());
        stream.write_all(&frame).await.unwrap();
        stream.shutdown().await.unwrap();
        is_closed(&mut stream).await;
        assert_eq!(other.queued().await.unwrap(), 0);
    }
    let mut stream = UnixStream::connect(&path).await.unwrap();
    stream.write_all(b"GET / HT").await.unwrap();
    let mut greeting = [0; GREETING.len()];
    stream.read_exact(&mut greeting).await.unwrap();
    is_closed(&mut stream).await;
}

#[test]
fn a_folder_is_private_to_its_owner_without_modes_for_others() {
    let (folder, path) = path();
    let me = rustix::process::geteuid().as_raw();
    for (mode, is_private) in [(0o700, true), (0o755, true), (0o775, false), (0o757, false), (0o1777, false)]
    {
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        let found = Folder::of(&path).unwrap();
        assert_eq!(found.is_private_to(me), is_private, "{mode:o}");
        // A folder of root is as private for the other user.
        assert_eq!(found.is_private_to(me + 1), is_private && me == 0, "{mode:o}");
    }
}

#[tokio::test]
async fn a_service_of_another_version_is_refused() {
    let (_folder, path) = path();
    let listener = UnixListener::bind(&path).unwrap();
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut greeting = GREETING;
        greeting[6] += 1;
        stream.write_all(&greeting).await.unwrap();
        // Until the client ends.
        stream.read_to_end(&mut Vec::new()).await.unwrap();
    };
    let connecting = async { SocketBackend::connect(&path).await.unwrap_err() };
    let (error, ()) = in_time("both", async { tokio::join!(connecting, serving) }).await;
    assert_eq!(error.kind(), BackendErrorKind::Version, "{error}");
}

#[tokio::test]
async fn no_request_reads_the_answer_of_one_that_was_dropped() {
    let (_folder, path) = path();
    let listener = UnixListener::bind(&path).unwrap();
    let (asked, was_asked) = tokio::sync::oneshot::channel();
    // Answers what comes first on each connection, but leaves the second request of the first one open.
    let serving = async {
        let (mut first, _) = listener.accept().await.unwrap();
        assert!(greet(&mut first).await.unwrap());
        receive::<Asked>(&mut first).await.unwrap();
        let rows = |moment| bytes(&Answer::Rows(crate::id::Timestamp(moment), Default::default())).unwrap();
        first.write_all(&rows(1)).await.unwrap();
        // The connection for changes.
        let _changes = listener.accept().await.unwrap();
        receive::<Asked>(&mut first).await.unwrap();
        asked.send(()).unwrap();
        let (mut second, _) = listener.accept().await.unwrap();
        assert!(greet(&mut second).await.unwrap());
        receive::<Asked>(&mut second).await.unwrap();
        // Late, on the old connection.
        first.write_all(&rows(2)).await.ok();
        second.write_all(&rows(3)).await.unwrap();
    };
    let asking = async {
        let backend = SocketBackend::connect(&path).await.unwrap();
        tokio::select! {
            _ = backend.read(Lane::Requests, Wanted::default()) => panic!("nobody has answered"),
            _ = was_asked => {}
        }
        backend.read(Lane::Requests, Wanted::default()).await.unwrap();
    };
    in_time("both", async { tokio::join!(asking, serving) }).await;
}
