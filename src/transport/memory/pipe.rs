//! The ends of pipes that a played process holds.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use crate::lock::lock;

/// One end of a pipe. The end closes when it is dropped, or when its process ends.
pub(super) struct PipeEnd(Arc<Mutex<EndState>>);

/// Closes an end that somebody else holds.
pub(super) struct Closer(Weak<Mutex<EndState>>);

struct EndState {
    /// `None` after the process has ended.
    stream: Option<DuplexStream>,
    /// A holder that waits for bytes or room. The stream wakes only its other end when it is dropped.
    waiting: Option<Waker>,
}

impl PipeEnd {
    pub(super) fn new(stream: Option<DuplexStream>) -> Self {
        Self(Arc::new(Mutex::new(EndState { stream, waiting: None })))
    }

    pub(super) fn closer(&self) -> Closer {
        Closer(Arc::downgrade(&self.0))
    }

    /// Polls the stream, or returns `closed` if there is none.
    fn poll_or<T>(
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
        let (stream, waiting) = {
            let mut end = lock(&end);
            (end.stream.take(), end.waiting.take())
        };
        drop(stream);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl AsyncRead for PipeEnd {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_or(cx, Ok(()), |stream, cx| stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for PipeEnd {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let ended = io::Error::new(io::ErrorKind::BrokenPipe, "the process that owns this pipe has ended");
        self.poll_or(cx, Err(ended), |stream, cx| stream.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_or(cx, Ok(()), |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_or(cx, Ok(()), |stream, cx| stream.poll_shutdown(cx))
    }
}
