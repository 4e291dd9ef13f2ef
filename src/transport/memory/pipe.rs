//! The CLI's end of an in-memory pipe, which can be closed over its holder's head.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

/// One end. Dropping it closes it.
pub(super) struct CliPipe(Arc<Mutex<End>>);

/// Closes a [`CliPipe`] that someone else holds. Does not keep it open.
pub(super) struct Closer(Weak<Mutex<End>>);

#[derive(Default)]
struct End {
    /// `None` once closed.
    stream: Option<DuplexStream>,
    /// Who waits on this end: the stream wakes the other end when it is dropped, and nobody on this one.
    waiting: Option<Waker>,
}

impl CliPipe {
    pub(super) fn new(stream: DuplexStream) -> Self {
        Self(Arc::new(Mutex::new(End { stream: Some(stream), waiting: None })))
    }

    pub(super) fn closed() -> Self {
        Self(Arc::default())
    }

    pub(super) fn closer(&self) -> Closer {
        Closer(Arc::downgrade(&self.0))
    }

    /// Lets `poll` at the stream, or answers with `closed` when there is none any more.
    fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        closed: io::Result<T>,
        poll: impl FnOnce(Pin<&mut DuplexStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut end = lock(&self.0);
        let Some(stream) = &mut end.stream else { return Poll::Ready(closed) };
        let polled = poll(Pin::new(stream), cx);
        end.waiting = polled.is_pending().then(|| cx.waker().clone());
        polled
    }
}

impl Closer {
    pub(super) fn close(&self) {
        let Some(end) = self.0.upgrade() else { return };
        let closed = std::mem::take(&mut *lock(&end));
        // Outside the lock: dropping the stream wakes the other end, which may be polled at once.
        drop(closed.stream);
        if let Some(waiting) = closed.waiting {
            waiting.wake();
        }
    }
}

/// A panic under the lock leaves nothing half done.
fn lock(end: &Mutex<End>) -> MutexGuard<'_, End> {
    end.lock().unwrap_or_else(PoisonError::into_inner)
}

fn broken<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::BrokenPipe, "the process has ended"))
}

impl AsyncRead for CliPipe {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll(cx, Ok(()), |stream, cx| stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for CliPipe {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(cx, broken(), |stream, cx| stream.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(cx, Ok(()), |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(cx, Ok(()), |stream, cx| stream.poll_shutdown(cx))
    }
}
