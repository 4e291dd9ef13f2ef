//! Records what goes over the wire of a session.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use greenroom::Result;
use greenroom::transport::{
    Connection, ContainedBy, Conversations, Exit, Launch, Leftover, Leftovers, Process, ProcessIdentity,
    Transport,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::transcript::{Entry, Line, Transcript, Wire};
use crate::base::lock;

/// A transport around another one that keeps a [`Transcript`] of every incarnation, in both directions. It changes
/// nothing of what it passes on.
///
/// Clones are the same recorder: give one to the session and keep the other.
///
/// ```
/// use greenroom_testkit::{ModelTurn, Recorder, Script, ScriptedCli, invariants};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let cli = ScriptedCli::play(Script::new().turn(ModelTurn::new().text("Hello.")));
/// // Around `ChildProcess::new()` it records the real CLI.
/// let recorder = Recorder::around(cli.transport());
/// let session = greenroom::Session::builder().transport(recorder.clone()).start().await?;
/// session.prompt("Hi").await?.outcome().await?;
/// session.stop().await?;
///
/// let transcript = recorder.transcript();
/// assert!(transcript.to_string().contains("Hello."));
/// assert!(invariants::check(&transcript).is_fine());
/// # greenroom::Result::<()>::Ok(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Recorder {
    inner: Arc<dyn Transport>,
    tape: Tape,
}

#[derive(Clone, Default)]
struct Tape(Arc<Mutex<Recorded>>);

#[derive(Default)]
struct Recorded {
    started: Option<Instant>,
    entries: Vec<Entry>,
}

impl Recorder {
    /// Records what goes through this transport.
    pub fn around(transport: impl Transport) -> Self {
        Self { inner: Arc::new(transport), tape: Tape::default() }
    }

    /// The recording so far.
    pub fn transcript(&self) -> Transcript {
        Transcript { entries: self.tape.lock().entries.clone() }
    }

    /// Takes what was recorded since the last time, and forgets it.
    pub fn take(&self) -> Transcript {
        Transcript { entries: std::mem::take(&mut self.tape.lock().entries) }
    }
}

impl Transport for Recorder {
    fn conversations(&self) -> Conversations {
        self.inner.conversations()
    }

    fn open(&self, launch: Launch) -> BoxFuture<'static, Result<Connection>> {
        let (epoch, args) = (launch.epoch, launch.args.clone());
        let (opening, tape) = (self.inner.open(launch), self.tape.clone());
        Box::pin(async move {
            let connection = opening.await?;
            tape.push(epoch, Wire::Opened { args });
            let track =
                |wire| Arc::new(Mutex::new(Track { tape: tape.clone(), epoch, wire, rest: Vec::new() }));
            let (host, cli) = (track(Wire::Host as fn(Line) -> Wire), track(Wire::Cli));
            Ok(Connection {
                reader: Box::new(RecordingReader { inner: connection.reader, track: cli.clone() }),
                writer: Box::new(Writer { inner: connection.writer, track: host.clone() }),
                process: Box::new(Watched {
                    inner: connection.process,
                    tape,
                    epoch,
                    tracks: [host, cli],
                    exit: None,
                }),
            })
        })
    }
}

impl Tape {
    fn lock(&self) -> MutexGuard<'_, Recorded> {
        lock(&self.0)
    }

    fn push(&self, epoch: u64, wire: Wire) {
        let mut recorded = self.lock();
        let at = recorded.started.get_or_insert_with(Instant::now).elapsed();
        recorded.entries.push(Entry { epoch, at, wire });
    }
}

/// A direction of an incarnation, cut into lines.
struct Track {
    tape: Tape,
    epoch: u64,
    wire: fn(Line) -> Wire,
    rest: Vec<u8>,
}

impl Track {
    fn take(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(piece);
            if self.rest.pop_if(|byte| *byte == b'\n').is_some() {
                let line = Line::new(std::mem::take(&mut self.rest));
                self.tape.push(self.epoch, (self.wire)(line));
            }
        }
    }

    /// Records the rest, which has no line end.
    fn cut(&mut self) {
        if !self.rest.is_empty() {
            let line = Line::cut(std::mem::take(&mut self.rest));
            self.tape.push(self.epoch, (self.wire)(line));
        }
    }
}

struct RecordingReader {
    inner: Box<dyn AsyncRead + Send + Unpin>,
    track: Arc<Mutex<Track>>,
}

impl AsyncRead for RecordingReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.inner).poll_read(cx, buf));
        lock(&self.track).take(&buf.filled()[before..]);
        Poll::Ready(read)
    }
}

struct Writer {
    inner: Box<dyn AsyncWrite + Send + Unpin>,
    track: Arc<Mutex<Track>>,
}

impl AsyncWrite for Writer {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes));
        if let Ok(count) = &written {
            lock(&self.track).take(&bytes[..*count]);
        }
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

struct Watched {
    inner: Box<dyn Process>,
    tape: Tape,
    epoch: u64,
    tracks: [Arc<Mutex<Track>>; 2],
    exit: Option<Exit>,
}

impl Process for Watched {
    fn pid(&self) -> Option<u32> {
        self.inner.pid()
    }

    fn wait(&mut self) -> BoxFuture<'_, Exit> {
        Box::pin(async move {
            let exit = self.inner.wait().await;
            self.exit = Some(exit);
            exit
        })
    }

    fn terminate(&mut self) {
        self.inner.terminate();
    }

    fn kill(&mut self) {
        self.inner.kill();
    }

    fn program(&self) -> Option<&Path> {
        self.inner.program()
    }

    fn contained_by(&self) -> Option<ContainedBy> {
        self.inner.contained_by()
    }

    fn identity(&self) -> Option<ProcessIdentity> {
        self.inner.identity()
    }

    fn cleared(&mut self) -> BoxFuture<'_, Vec<Leftover>> {
        self.inner.cleared()
    }

    fn left(&self) -> Leftovers {
        self.inner.left()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Only now is it over: what it wrote before it exited is read after `wait` has returned.
        for track in &self.tracks {
            lock(track).cut();
        }
        self.tape.push(self.epoch, Wire::Ended { exit: self.exit });
    }
}
