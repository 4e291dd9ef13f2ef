//! The side of the other program.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use greenroom::guardian::BootTime;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::frame::{Answer, Asked, bytes, greet, receive};
use crate::backend::server_clock::ServerClock;
use crate::backend::{Backend, Channels, Reply};
use crate::error::{BackendError, BackendErrorKind, Result};
use crate::id::Timestamp;
use crate::registry::{Commit, Committed, Lane, Rows, Wanted};
use crate::request::Change;

/// The time for a connection, and for an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// The pause before changes are asked for again.
const PAUSE: Duration = Duration::from_secs(1);

/// The backend of a service of this host, over the socket that a [`SocketServer`](super::SocketServer) or
/// [`Operator::serve`](crate::Operator::serve) has opened. Use it for an [`Admin`](crate::admin::Admin).
///
/// Clones share a connection, on which one read or commit is carried out after the other. A connection that has ended is opened
/// again by the next request. [`Unavailable`](BackendErrorKind::Unavailable): nobody serves the path, or an answer took longer than 10 s.
///
/// No fleet runs over a socket: its start fails with [`Invalid`](BackendErrorKind::Invalid). Other nodes share a database.
#[derive(Clone)]
pub struct SocketBackend(Arc<Inner>);

struct Inner {
    path: PathBuf,
    /// `None`: not connected. A request takes it, and puts it back after its answer, so no request reads the answer of another one.
    connection: Mutex<Option<UnixStream>>,
    channels: Channels,
    clock: ServerClock,
    /// The task that hears changes. It ends with the set.
    _tasks: JoinSet<()>,
}

impl SocketBackend {
    /// Connects to the socket at a path.
    ///
    /// # Errors
    /// [`Unavailable`](BackendErrorKind::Unavailable) if no service answers there, if this user may not ask it, or if its service runs as
    /// another user than this one and root; [`Version`](BackendErrorKind::Version) if it has another version of the frames or rows; the errors of its backend.
    pub async fn connect(path: impl Into<PathBuf>) -> Result<Self> {
        let (path, channels) = (path.into(), Channels::new());
        let connection = Mutex::new(Some(in_time(&path, open(&path)).await?));
        let mut tasks = JoinSet::new();
        tasks.spawn(hear(path.clone(), channels.clone()));
        let clock = ServerClock::default();
        let backend = Self(Arc::new(Inner { path, connection, channels, clock, _tasks: tasks }));
        // Learns the backend's clock.
        backend.read(Lane::Nodes, Wanted::default()).await?;
        Ok(backend)
    }

    async fn ask(&self, asked: &Asked) -> Result<Answer> {
        let too_long = |error| {
            let text = format!("the request is too long for the socket: {error}");
            BackendError::new(BackendErrorKind::Invalid, text)
        };
        let frame = bytes(asked).map_err(too_long)?;
        let answered = in_time(&self.0.path, async {
            let mut connection = self.0.connection.lock().await;
            let mut stream = match connection.take() {
                Some(stream) => stream,
                None => open(&self.0.path).await?,
            };
            stream.write_all(&frame).await.map_err(|error| unavailable(&self.0.path, &error))?;
            let answer = receive(&mut stream).await.map_err(|error| unavailable(&self.0.path, &error))?;
            let answer =
                answer.ok_or_else(|| unavailable(&self.0.path, &ErrorKind::ConnectionAborted.into()))?;
            *connection = Some(stream);
            Ok(answer)
        });
        match answered.await? {
            Answer::Failed(kind, text) => Err(BackendError::new(kind, text)),
            answer => Ok(answer),
        }
    }
}

fn unavailable(path: &Path, error: &io::Error) -> BackendError {
    let help = match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => ": no service has opened it",
        ErrorKind::PermissionDenied => ": ask as the user of the service, or as root",
        _ => ": the service has ended, or has refused this user",
    };
    let text = format!("the socket '{}' does not answer ({error}){help}", path.display());
    BackendError::new(BackendErrorKind::Unavailable, text)
}

fn unexpected() -> BackendError {
    BackendError::new(BackendErrorKind::Version, "the service has given an answer of another kind")
}

async fn in_time<T>(path: &Path, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(ANSWER, work).await.unwrap_or_else(|_| {
        let text = format!("the service at '{}' has not answered within {ANSWER:?}", path.display());
        Err(BackendError::new(BackendErrorKind::Unavailable, text))
    })
}

async fn open(path: &Path) -> Result<UnixStream> {
    let failed = |error| unavailable(path, &error);
    let mut stream = UnixStream::connect(path).await.map_err(failed)?;
    check_server(path, &stream)?;
    if !greet(&mut stream).await.map_err(failed)? {
        let text = format!(
            "the service at '{}' has another version of the socket's frames or rows: use the command of the service's version",
            path.display()
        );
        return Err(BackendError::new(BackendErrorKind::Version, text));
    }
    Ok(stream)
}

/// Fails if another user could have opened the socket, to read what is asked or to make answers up.
fn check_server(path: &Path, stream: &UnixStream) -> Result<()> {
    let server = stream.peer_cred().map_err(|error| unavailable(path, &error))?.uid();
    let me = rustix::process::geteuid().as_raw();
    if server == me || server == 0 {
        return Ok(());
    }
    let text = format!(
        "the socket '{}' is served by the user {server}, whom the user {me} does not trust: run the service and this program as the same \
         user, and do not use the socket if {server} is not the user of the service",
        path.display()
    );
    Err(BackendError::new(BackendErrorKind::Unavailable, text))
}

/// Hears changes, and connects again when the connection has ended.
async fn hear(path: PathBuf, channels: Channels) {
    let mut is_first = true;
    loop {
        if let Err(error) = hear_once(&path, &channels, &mut is_first).await {
            tracing::debug!(%error, "changes are not heard over the socket");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn hear_once(path: &Path, channels: &Channels, is_first: &mut bool) -> Result<()> {
    let failed = |error| unavailable(path, &error);
    let mut stream = in_time(path, open(path)).await?;
    stream.write_all(&bytes(&Asked::Changes).map_err(failed)?).await.map_err(failed)?;
    if !std::mem::take(is_first) {
        channels.tell_change(Change::Missed);
    }
    while let Some(answer) = receive(&mut stream).await.map_err(failed)? {
        if let Answer::Change(change) = answer {
            channels.tell_change(change);
        }
    }
    Ok(())
}

impl Backend for SocketBackend {
    fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    fn read(&self, lane: Lane, wanted: Wanted) -> Reply<'_, Rows> {
        Box::pin(async move {
            let asked = BootTime::now();
            let Answer::Rows(now, rows) = self.ask(&Asked::Read(lane, wanted)).await? else {
                return Err(unexpected());
            };
            self.0.clock.learn(now, asked);
            Ok(rows)
        })
    }

    fn commit(&self, lane: Lane, mut commit: Commit) -> Reply<'_, Committed> {
        Box::pin(async move {
            let told = std::mem::take(&mut commit.told);
            let Answer::Committed(committed) =
                self.ask(&Asked::Commit(lane, commit, told.changes.clone())).await?
            else {
                return Err(unexpected());
            };
            if committed == Committed::Done {
                self.0.channels.tell(told);
            }
            Ok(committed)
        })
    }

    fn channels(&self) -> &Channels {
        &self.0.channels
    }

    /// Refuses the first requests of a fleet that starts: the service relies on being the only one.
    fn carry_out<'a>(&'a self, request: &'static str, run: BoxFuture<'a, ()>) -> Reply<'a, ()> {
        Box::pin(async move {
            if let "left_processes" | "join" = request {
                let text = "no fleet runs over the socket of another one: have both share a database";
                return Err(BackendError::new(BackendErrorKind::Invalid, text));
            }
            run.await;
            Ok(())
        })
    }
}

impl std::fmt::Debug for SocketBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SocketBackend").field("path", &self.0.path).finish_non_exhaustive()
    }
}
