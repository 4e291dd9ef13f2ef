//! A connected pair in memory: a transport without a process, and the place where its other ends arrive.
//!
//! It tells no time and sleeps nowhere, so it works on tokio's paused clock.

mod pipe;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::pipe::{Closer, ReadEnd, WriteEnd, pipe};
use super::{Connection, Exit, Launch, Process, Transport};
use crate::error::{Error, ErrorKind, Result};

/// How many connections may wait to be accepted.
const UNACCEPTED: usize = 64;

/// How many bytes each direction holds unless the transport says otherwise.
const BUFFER_BYTES: usize = 64 << 10;

/// The signal that a killed process ends by.
const SIGKILL: i32 = 9;

/// The exit code of a Rust program that panicked.
const PANICKED: i32 = 101;

/// A connected pair in memory: each [`open`](Transport::open) of the transport arrives at the listener as a
/// [`MemoryCli`], which plays the CLI.
///
/// At most 64 connections wait to be accepted; a further `open` waits for a place.
///
/// ```
/// use greenroom::transport::{Exit, MemoryListener, memory};
/// use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
///
/// /// A CLI that repeats what it is told, until its end of input.
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
    (MemoryTransport { arrivals, buffer_bytes: BUFFER_BYTES }, MemoryListener { accepted })
}

/// The host's half of [`memory`]. Clones lead to the same listener.
///
/// ```
/// let (transport, _listener) = greenroom::transport::memory();
/// let narrow = transport.with_buffer_bytes(16);
/// # let _ = narrow;
/// ```
#[derive(Clone)]
pub struct MemoryTransport {
    arrivals: mpsc::Sender<MemoryCli>,
    buffer_bytes: usize,
}

impl MemoryTransport {
    /// How many bytes each direction of a connection holds before its writer has to wait; at least 1.
    /// Default: 64 KiB, as much as a pipe on Linux.
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
    /// Fails with [`ErrorKind::Spawn`] when the listener is gone.
    fn open(&self, launch: Launch) -> BoxFuture<'static, Result<Connection>> {
        let (arrivals, buffer_bytes) = (self.arrivals.clone(), self.buffer_bytes);
        Box::pin(async move {
            let place = arrivals.reserve().await.map_err(|_| {
                Error::new(ErrorKind::Spawn, "the listener of the in-memory transport is gone")
            })?;
            let (host_writer, stdin) = pipe(buffer_bytes);
            let (stdout, host_reader) = pipe(buffer_bytes);
            let life = Arc::new(Life::new([stdin.closer(), stdout.closer()]));
            place.send(MemoryCli { launch, pipes: Some((stdin, stdout)), life: Arc::clone(&life) });
            Ok(Connection {
                reader: Box::new(host_reader),
                writer: Box::new(host_writer),
                process: Box::new(MemoryProcess { life }),
            })
        })
    }
}

/// Where the connections of a [`MemoryTransport`] arrive. Once it is dropped, opening fails.
///
/// ```
/// # async fn accept() {
/// let (transport, mut listener) = greenroom::transport::memory();
/// drop(transport);
/// assert!(listener.accept().await.is_none());
/// # }
/// ```
pub struct MemoryListener {
    accepted: mpsc::Receiver<MemoryCli>,
}

impl MemoryListener {
    /// Waits for the next connection. `None` once every clone of the transport is gone.
    pub async fn accept(&mut self) -> Option<MemoryCli> {
        self.accepted.recv().await
    }
}

impl fmt::Debug for MemoryListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryListener").field("waiting", &self.accepted.len()).finish()
    }
}

/// One connection from the CLI's side: a process that is played by a script.
///
/// It ends once, by whatever comes first: [`exit`](MemoryCli::exit); a kill by the host, as by signal 9;
/// being dropped, with code 0, or with code 101 when a panic drops it, as a Rust program does. Its pipes
/// close when it ends, whoever holds them; what it wrote before can still be read.
///
/// ```
/// use greenroom::transport::{Exit, MemoryCli};
///
/// /// Obeys SIGTERM, as the real one does.
/// async fn polite(cli: MemoryCli) {
///     cli.terminated().await;
///     cli.exit(Exit::Code(143));
/// }
/// # let _ = polite;
/// ```
pub struct MemoryCli {
    launch: Launch,
    pipes: Option<(ReadEnd, WriteEnd)>,
    life: Arc<Life>,
}

impl MemoryCli {
    /// What it was started with. Its stderr is [`Launch::stderr`].
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// The pipes: what the host writes (its stdin), and what the host reads (its stdout). Dropping one closes
    /// it.
    ///
    /// They are there to be taken once. Taken again, both are closed.
    pub fn take_pipes(
        &mut self,
    ) -> (Box<dyn AsyncRead + Send + Unpin + 'static>, Box<dyn AsyncWrite + Send + Unpin + 'static>) {
        let (stdin, stdout) = self.pipes.take().unwrap_or_else(|| (ReadEnd::closed(), WriteEnd::closed()));
        (Box::new(stdin), Box::new(stdout))
    }

    /// Ends the process. Does nothing if it has ended.
    pub fn exit(&self, exit: Exit) {
        self.life.end(exit);
    }

    /// Resolves when the host has asked the process to end ([`Process::terminate`]). Nothing else comes of
    /// that: a script that does not listen stands for a process that ignores SIGTERM.
    pub async fn terminated(&self) {
        self.life.terminated.cancelled().await;
    }

    /// Resolves when the host has killed the process, or has dropped its [`Process`]. The process has ended
    /// by then, unless it [survives](MemoryCli::survive_kill).
    pub async fn killed(&self) {
        self.life.killed.cancelled().await;
    }

    /// From now on a kill by itself does not end the process. This stands for one that the system cannot take
    /// down at once.
    pub fn survive_kill(&self) {
        self.life.survives_kill.store(true, Ordering::Release);
    }
}

impl fmt::Debug for MemoryCli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryCli")
            .field("launch", &self.launch)
            .field("exit", &self.life.exit.get())
            .finish_non_exhaustive()
    }
}

impl Drop for MemoryCli {
    fn drop(&mut self) {
        self.life.end(Exit::Code(if std::thread::panicking() { PANICKED } else { 0 }));
    }
}

/// What both sides know of the process.
struct Life {
    exit: OnceLock<Exit>,
    /// Cancelled once `exit` is set and the pipes are closed.
    ended: CancellationToken,
    terminated: CancellationToken,
    killed: CancellationToken,
    survives_kill: AtomicBool,
    pipes: [Closer; 2],
}

impl Life {
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
struct MemoryProcess {
    life: Arc<Life>,
}

impl Process for MemoryProcess {
    fn pid(&self) -> Option<u32> {
        None
    }

    fn wait(&mut self) -> BoxFuture<'_, Exit> {
        Box::pin(async {
            self.life.ended.cancelled().await;
            self.life.exit.get().copied().unwrap_or(Exit::Unknown)
        })
    }

    fn terminate(&mut self) {
        self.life.terminated.cancel();
    }

    fn kill(&mut self) {
        self.life.kill();
    }
}

impl Drop for MemoryProcess {
    fn drop(&mut self) {
        self.life.kill();
    }
}
