//! The side of the service.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;

use super::folder::Folder;
use super::frame::{Answer, Asked, bytes, greet, receive};
use crate::backend::{Backend, Requests};
use crate::error::{BackendError, BackendErrorKind, Result};
use crate::registry::Told;
use crate::request::Change;

/// Connections at a time. Each command has two.
const CONNECTIONS: usize = 64;
/// The pause after a connection could not be taken, for instance because the process has too many open files.
const PAUSE: Duration = Duration::from_secs(1);

/// Serves a backend over a Unix socket, to other programs of this host that have a
/// [`SocketBackend`](super::SocketBackend). It ends, and removes the socket, when it is dropped.
///
/// ```
/// use greenroom_fleet::backend::{MemoryBackend, Requests, SocketBackend, SocketServer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("fleet.sock");
/// let server = SocketServer::bind(&path, MemoryBackend::new()).await?;
/// let backend = SocketBackend::connect(&path).await?;
/// assert_eq!(backend.queued().await?, 0);
/// drop(server);
/// assert!(!path.exists());
/// # Ok(())
/// # }
/// ```
#[must_use = "the socket is closed when the server is dropped"]
pub struct SocketServer {
    path: PathBuf,
    /// The device and the number of the socket's file.
    file: (u64, u64),
    /// The task that takes connections. It ends with the set.
    _tasks: JoinSet<()>,
}

impl SocketServer {
    /// Serves a backend, or an `Arc` of one, at a path of 100 bytes at most. The folder has to be there, to belong to the user of
    /// this process or to root, and to be writable for nobody else, so a sticky folder such as `/tmp` is refused. The socket has the mode 0600, and takes connections of the user of
    /// this process and of root. A socket that a killed process has left is replaced.
    ///
    /// # Errors
    /// [`InUse`](BackendErrorKind::InUse) if another server has the path; [`Invalid`](BackendErrorKind::Invalid) for a folder that others can
    /// write, and for a path that is too long or has another file; [`Unavailable`](BackendErrorKind::Unavailable) if the system refuses.
    pub async fn bind(path: impl Into<PathBuf>, backend: impl Backend) -> Result<Self> {
        let path = path.into();
        let refused = |error| refused(&path, error);
        let folder = private_folder(&path).map_err(refused)?;
        let opened = File::open(&folder.path).map_err(refused)?;
        // Two servers that start at once look at the path one after the other.
        let locked = tokio::task::spawn_blocking(move || opened.lock().map(|()| opened)).await;
        let locked = locked.map_err(io::Error::other).flatten().map_err(refused)?;
        remove_left(&path).await?;
        let listener = UnixListener::bind(&path).map_err(refused)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(refused)?;
        let file = fs::symlink_metadata(&path).map_err(refused)?;
        drop(locked);
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, Arc::new(backend)));
        Ok(Self { file: (file.dev(), file.ino()), path, _tasks: tasks })
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        // The path may have the socket of another server, if somebody has removed this one. An error: the file is left, and the next server removes it.
        if fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.file) {
            fs::remove_file(&self.path).ok();
        }
    }
}

impl std::fmt::Debug for SocketServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SocketServer").field("path", &self.path).finish_non_exhaustive()
    }
}

fn refused(path: &Path, error: io::Error) -> BackendError {
    let kind = match error.kind() {
        ErrorKind::InvalidInput => BackendErrorKind::Invalid,
        ErrorKind::AddrInUse => BackendErrorKind::InUse,
        _ => BackendErrorKind::Unavailable,
    };
    let text = format!("the socket '{}' cannot be opened: {error}", path.display());
    BackendError::new(kind, text).caused_by(error)
}

/// The folder of a path. Fails if others could put a socket of their own there.
fn private_folder(path: &Path) -> io::Result<Folder> {
    let folder = Folder::of(path)?;
    if folder.is_private_to(rustix::process::geteuid().as_raw()) {
        return Ok(folder);
    }
    let text = format!(
        "other users can write in '{}': use a folder of the service, with the mode 0700 or 0755",
        folder.path.display()
    );
    Err(io::Error::new(ErrorKind::InvalidInput, text))
}

/// Removes the socket that a killed process has left.
async fn remove_left(path: &Path) -> Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.map_err(|error| refused(path, error))?,
    };
    if !found.file_type().is_socket() {
        let text = "another file is there: remove it, or use another path";
        return Err(refused(path, io::Error::new(ErrorKind::InvalidInput, text)));
    }
    match UnixStream::connect(path).await {
        // Nobody listens.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| refused(path, error))
        }
        // Also if the other server takes no connection at the moment.
        _ => {
            let text = "another process serves it: end that process, or use another path";
            Err(refused(path, io::Error::new(ErrorKind::AddrInUse, text)))
        }
    }
}

async fn serve(listener: UnixListener, backend: Arc<dyn Backend>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) if is_own(&stream) => drop(connections.spawn(connection(stream, backend.clone()))),
                Ok(_) => tracing::warn!("a connection of another user to the fleet's socket was refused"),
                Err(error) => {
                    tracing::warn!(%error, "a connection to the fleet's socket could not be taken");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// True for a connection of the user of this process, or of root.
fn is_own(stream: &UnixStream) -> bool {
    let me = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == me || peer.uid() == 0)
}

async fn connection(mut stream: UnixStream, backend: Arc<dyn Backend>) {
    // An error: the other side has ended. Its next connection begins again.
    if let Err(error) = answer_all(&mut stream, &*backend).await {
        tracing::debug!(%error, "a connection to the fleet's socket has ended");
    }
}

async fn answer_all(stream: &mut UnixStream, backend: &dyn Backend) -> io::Result<()> {
    if !greet(stream).await? {
        return Ok(());
    }
    while let Some(asked) = receive::<Asked>(stream).await? {
        let answer = match asked {
            Asked::Read(lane, wanted) => {
                let now = backend.now();
                backend.read(lane, wanted).await.map(|rows| Answer::Rows(now, rows))
            }
            Asked::Commit(lane, mut commit, changes) => {
                // Transitions belong to the process whose request has made them.
                commit.told = Told { changes, transitions: Vec::new() };
                backend.commit(lane, commit).await.map(Answer::Committed)
            }
            Asked::Changes => return tell_changes(stream, backend).await,
        };
        let failed = |error: BackendError| Answer::Failed(error.kind(), error.to_string());
        let frame = bytes(&answer.unwrap_or_else(failed)).or_else(|error| match error.kind() {
            ErrorKind::InvalidInput => {
                bytes(&Answer::Failed(BackendErrorKind::Invalid, format!("the answer is too long: {error}")))
            }
            _ => Err(error),
        });
        stream.write_all(&frame?).await?;
    }
    Ok(())
}

/// Tells changes until the other side ends.
async fn tell_changes(stream: &mut UnixStream, backend: &dyn Backend) -> io::Result<()> {
    let mut changes = backend.changes();
    let (mut from_client, mut to_client) = stream.split();
    let tell = async {
        loop {
            let change = match changes.recv().await {
                Ok(change) => change,
                Err(RecvError::Lagged(_)) => Change::Missed,
                Err(RecvError::Closed) => return Ok::<(), io::Error>(()),
            };
            to_client.write_all(&bytes(&Answer::Change(change))?).await?;
        }
    };
    tokio::select! {
        told = tell => told,
        // The client asks nothing more, so this is its end.
        ended = receive::<Asked>(&mut from_client) => ended.map(drop),
    }
}
