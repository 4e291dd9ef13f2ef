//! A connected pair in memory: a transport without a process, and the listener that receives its connections.
//!
//! The pair never sleeps or reads the clock, so it works on tokio's paused clock.

mod pipe;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, duplex};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::pipe::{Closer, PipeEnd};
use super::{Connection, Conversations, Exit, Launch, Leftovers, Process, Transport};
use crate::error::{Error, ErrorKind, Result};

/// Most connections that wait to be accepted.
const UNACCEPTED: usize = 64;

/// Capacity of each direction, unless the transport is told otherwise.
const BUFFER_BYTES: usize = 64 << 10;

/// The signal number of a killed process.
const SIGKILL: i32 = 9;

/// The exit code of a Rust program that panicked.
const PANICKED: i32 = 101;

/// The error of a session whose listener was dropped.
const LISTENER_GONE: &str = "the listener of the in-memory transport was dropped";
/// The advice of that error.
const KEEP_LISTENER: &str = "keep the `MemoryListener`, or the `ScriptedCli` that plays it, in a variable until the session has stopped";

/// Makes a connected pair in memory: each [`open`](Transport::open) of the transport arrives at the listener as a
/// [`MemoryCli`], with which your code plays the CLI.
///
/// At most 64 connections wait to be accepted; a further `open` waits until one is accepted.
///
/// ```
/// use greenroom::transport::{Exit, MemoryListener, memory};
/// use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
///
/// /// A CLI that echoes each line until the end of its input.
/// async fn echo(mut listener: MemoryListener) -> std::io::Result<()> {
///     while let Some(mut cli) = listener.accept().await {
///         let (reader, mut writer) = cli.take_pipes();
///         let mut lines = BufReader::new(reader).lines();
///         while let Some(line) = lines.next_line().await? {
///             writer.write_all(format!("{line}\n").as_bytes()).await?;
///         }
///         cli.exit(Exit::Code(0));
///     }
///     Ok(())
/// }
///
/// let (transport, listener) = memory();
/// // `transport` goes to a session, `echo(listener)` onto a task.
/// # let _ = (transport, echo(listener));
/// ```
pub fn memory() -> (MemoryTransport, MemoryListener) {
    let (arrivals, accepted) = mpsc::channel(UNACCEPTED);
    let conversations = Conversations::apart();
    let transport = MemoryTransport { arrivals, buffer_bytes: BUFFER_BYTES, conversations };
    (transport, MemoryListener { accepted })
}

/// The host's half of [`memory`]. Clones connect to the same listener.
#[derive(Clone)]
pub struct MemoryTransport {
    arrivals: mpsc::Sender<MemoryCli>,
    buffer_bytes: usize,
    conversations: Conversations,
}

impl MemoryTransport {
    /// Sets the capacity of each direction in bytes, at least 1. A writer waits while its direction is full. Default:
    /// 64 KiB, the capacity of a pipe on Linux.
    #[must_use]
    pub fn with_buffer_bytes(self, bytes: usize) -> Self {
        Self { buffer_bytes: bytes.max(1), ..self }
    }
}

impl fmt::Debug for MemoryTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTransport").field("buffer_bytes", &self.buffer_bytes).finish_non_exhaustive()
    }
}

impl Transport for MemoryTransport {
    fn conversations(&self) -> Conversations {
        self.conversations
    }

    /// Fails with [`ErrorKind::Spawn`] after the listener was dropped.
    fn open(&self, launch: Launch) -> BoxFuture<'static, Result<Connection>> {
        let (arrivals, buffer_bytes) = (self.arrivals.clone(), self.buffer_bytes);
        Box::pin(async move {
            let place = arrivals
                .reserve()
                .await
                .map_err(|_| Error::new(ErrorKind::Spawn, LISTENER_GONE).with_help(KEEP_LISTENER))?;
            // A stream for each direction, so that each direction closes alone.
            let (host_writer, stdin) = duplex(buffer_bytes);
            let (stdout, host_reader) = duplex(buffer_bytes);
            let (stdin, stdout) = (PipeEnd::new(Some(stdin)), PipeEnd::new(Some(stdout)));
            let process = Arc::new(ProcessState::new([stdin.closer(), stdout.closer()]));
            place.send(MemoryCli { launch, pipes: Some((stdin, stdout)), process: Arc::clone(&process) });
            Ok(Connection {
                reader: Box::new(host_reader),
                writer: Box::new(host_writer),
                process: Box::new(MemoryProcess(process)),
            })
        })
    }
}

/// Receives the connections of a [`MemoryTransport`]. After it is dropped, opening fails.
pub struct MemoryListener {
    accepted: mpsc::Receiver<MemoryCli>,
}

impl MemoryListener {
    /// Waits for the next connection. `None` once every clone of the transport is dropped.
    pub async fn accept(&mut self) -> Option<MemoryCli> {
        self.accepted.recv().await
    }
}

impl fmt::Debug for MemoryListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryListener").field("waiting", &self.accepted.len()).finish()
    }
}

/// The CLI's side of one connection: a process played by your code.
///
/// The process ends once, by whichever comes first: [`exit`](MemoryCli::exit); a kill by the host, which counts as
/// signal 9; or being dropped, with code 0, or with code 101 if a panic drops it. Its pipes close when it ends, whoever
/// holds them; bytes that it wrote before can still be read.
///
/// ```
/// use greenroom::transport::{Exit, MemoryCli};
///
/// /// Exits on SIGTERM, as the real CLI does.
/// async fn polite(cli: MemoryCli) {
///     cli.terminated().await;
///     cli.exit(Exit::Code(143));
/// }
/// # let _ = polite;
/// ```
pub struct MemoryCli {
    launch: Launch,
    pipes: Option<(PipeEnd, PipeEnd)>,
    process: Arc<ProcessState>,
}

impl MemoryCli {
    /// The launch that the host asked for. Write stderr lines to [`Command::stderr`](super::Command::stderr).
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Takes the pipes: the reader of stdin and the writer of stdout. Dropping one closes it.
    ///
    /// A second call returns two closed pipes.
    pub fn take_pipes(
        &mut self,
    ) -> (Box<dyn AsyncRead + Send + Unpin + 'static>, Box<dyn AsyncWrite + Send + Unpin + 'static>) {
        let (stdin, stdout) = self.pipes.take().unwrap_or_else(|| (PipeEnd::new(None), PipeEnd::new(None)));
        (Box::new(stdin), Box::new(stdout))
    }

    /// Ends the process. Does nothing if it has ended.
    pub fn exit(&self, exit: Exit) {
        self.process.end(exit);
    }

    /// Resolves when the host has asked the process to end ([`Process::terminate`]). The request alone ends nothing: a
    /// script that does not call this plays a process that ignores SIGTERM.
    pub async fn terminated(&self) {
        self.process.terminated.cancelled().await;
    }

    /// Resolves when the host has killed the process or dropped its [`Process`]. The process has ended by then, unless
    /// it [survives](MemoryCli::survive_kill).
    pub async fn killed(&self) {
        self.process.killed.cancelled().await;
    }

    /// Makes the process survive a kill, like a process that the system cannot end at once.
    pub fn survive_kill(&self) {
        self.process.survives_kill.store(true, Ordering::Release);
    }
}

impl fmt::Debug for MemoryCli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryCli")
            .field("launch", &self.launch)
            .field("exit", &self.process.exit.get())
            .finish_non_exhaustive()
    }
}

impl Drop for MemoryCli {
    fn drop(&mut self) {
        self.process.end(Exit::Code(if std::thread::panicking() { PANICKED } else { 0 }));
    }
}

/// State of the played process, shared by both sides.
struct ProcessState {
    exit: OnceLock<Exit>,
    /// Cancelled once `exit` is set and the pipes are closed.
    ended: CancellationToken,
    terminated: CancellationToken,
    killed: CancellationToken,
    survives_kill: AtomicBool,
    pipes: [Closer; 2],
}

impl ProcessState {
    fn new(pipes: [Closer; 2]) -> Self {
        Self {
            exit: OnceLock::new(),
            ended: CancellationToken::new(),
            terminated: CancellationToken::new(),
            killed: CancellationToken::new(),
            survives_kill: AtomicBool::new(false),
            pipes,
        }
    }

    fn end(&self, exit: Exit) {
        if self.exit.set(exit).is_ok() {
            self.pipes.iter().for_each(Closer::close);
            self.ended.cancel();
        }
    }

    fn kill(&self) {
        if !self.survives_kill.load(Ordering::Acquire) {
            self.end(Exit::Signal(SIGKILL));
        }
        self.killed.cancel();
    }
}

/// The host's side of the process.
struct MemoryProcess(Arc<ProcessState>);

impl Process for MemoryProcess {
    fn pid(&self) -> Option<u32> {
        None
    }

    fn wait(&mut self) -> BoxFuture<'_, Exit> {
        Box::pin(async {
            self.0.ended.cancelled().await;
            self.0.exit.get().copied().unwrap_or(Exit::Unknown)
        })
    }

    fn terminate(&mut self) {
        self.0.terminated.cancel();
    }

    fn kill(&mut self) {
        self.0.kill();
    }

    fn left(&self) -> Leftovers {
        let state = Arc::clone(&self.0);
        Leftovers(Some(Arc::new(move || state.ended.is_cancelled().then(Vec::new))))
    }
}

impl Drop for MemoryProcess {
    fn drop(&mut self) {
        self.0.kill();
    }
}
