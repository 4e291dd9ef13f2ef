//! The child's stdin. Shutting down tokio's own type does nothing, so the child would never see the end of its input.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;
use tokio::process::ChildStdin;

/// A stdin that closes the pipe when it is shut down or dropped.
#[derive(Debug)]
pub struct Stdin(Option<ChildStdin>);

impl Stdin {
    pub(super) fn new(open: ChildStdin) -> Self {
        Self(Some(open))
    }

    fn open(&mut self) -> io::Result<Pin<&mut ChildStdin>> {
        let closed = || io::Error::new(io::ErrorKind::BrokenPipe, "the child's stdin has been shut down");
        self.0.as_mut().map(Pin::new).ok_or_else(closed)
    }
}

impl AsyncWrite for Stdin {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.open()?.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.open()?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Some(open) => Pin::new(open).poll_flush(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.as_mut().poll_flush(cx))?;
        self.0 = None;
        Poll::Ready(Ok(()))
    }
}
