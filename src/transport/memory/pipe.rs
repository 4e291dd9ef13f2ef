//! An in-memory pipe in one direction. Either end can be closed while somebody else holds it.
//!
//! The pipe allocates only for unread bytes, up to its bound, so an idle pipe costs next to nothing. It behaves like a
//! pipe of the system: after the writer is closed, a reader gets the remaining bytes and then the end; a writer waits
//! while the pipe is full, and gets `BrokenPipe` after the reader is closed.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop;

/// A pipe that holds up to `bound` bytes.
pub(super) fn pipe(bound: usize) -> (WriteEnd, ReadEnd) {
    let pipe = Arc::new(Mutex::new(Pipe { bound, ..Pipe::default() }));
    (WriteEnd(pipe.clone()), ReadEnd(pipe))
}

/// The reading end. Dropping it closes it.
pub(super) struct ReadEnd(Arc<Mutex<Pipe>>);

/// The writing end. Dropping it closes it.
pub(super) struct WriteEnd(Arc<Mutex<Pipe>>);

/// Closes an end that somebody else holds, when the process that it belongs to ends.
pub(super) enum Closer {
    Read(Arc<Mutex<Pipe>>),
    Write(Arc<Mutex<Pipe>>),
}

/// A larger buffer is freed when all bytes are read.
const KEEP: usize = 512;

#[derive(Default)]
pub(super) struct Pipe {
    bytes: VecDeque<u8>,
    bound: usize,
    /// The reading end is closed.
    read_closed: bool,
    /// The writing end is closed; remaining bytes can be read.
    write_closed: bool,
    /// The writing process has ended.
    ended: bool,
    /// A reader that waits for bytes or the end.
    reading: Option<Waker>,
    /// A writer that waits for room or the end.
    writing: Option<Waker>,
}

impl ReadEnd {
    pub(super) fn closed() -> Self {
        Self(Arc::new(Mutex::new(Pipe { read_closed: true, ..Pipe::default() })))
    }

    pub(super) fn closer(&self) -> Closer {
        Closer::Read(self.0.clone())
    }
}

impl WriteEnd {
    pub(super) fn closed() -> Self {
        Self(Arc::new(Mutex::new(Pipe { write_closed: true, ended: true, ..Pipe::default() })))
    }

    pub(super) fn closer(&self) -> Closer {
        Closer::Write(self.0.clone())
    }

    fn close(&self) {
        let mut pipe = lock(&self.0);
        pipe.write_closed = true;
        wake(pipe);
    }
}

impl Closer {
    pub(super) fn close(&self) {
        match self {
            Self::Read(pipe) => close_read(pipe),
            Self::Write(pipe) => {
                let mut pipe = lock(pipe);
                pipe.ended |= !pipe.write_closed;
                pipe.write_closed = true;
                wake(pipe);
            }
        }
    }
}

impl Drop for ReadEnd {
    fn drop(&mut self) {
        close_read(&self.0);
    }
}

impl Drop for WriteEnd {
    fn drop(&mut self) {
        self.close();
    }
}

fn close_read(pipe: &Mutex<Pipe>) {
    let mut pipe = lock(pipe);
    pipe.read_closed = true;
    pipe.bytes = VecDeque::new();
    wake(pipe);
}

/// A panic under the lock leaves no invalid state.
fn lock(pipe: &Mutex<Pipe>) -> MutexGuard<'_, Pipe> {
    pipe.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes reader and writer after releasing the lock, because they may be polled at once.
fn wake(mut pipe: MutexGuard<'_, Pipe>) {
    let waiting = [pipe.reading.take(), pipe.writing.take()];
    drop(pipe);
    waiting.into_iter().flatten().for_each(Waker::wake);
}

fn wait<T>(waiting: &mut Option<Waker>, cx: &Context<'_>) -> Poll<T> {
    match waiting {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *waiting = Some(cx.waker().clone()),
    }
    Poll::Pending
}

impl Pipe {
    fn read(&mut self, buf: &mut ReadBuf<'_>) {
        let (first, second) = self.bytes.as_slices();
        let from_first = first.len().min(buf.remaining());
        buf.put_slice(&first[..from_first]);
        let from_second = second.len().min(buf.remaining());
        buf.put_slice(&second[..from_second]);
        self.bytes.drain(..from_first + from_second);
        if self.bytes.is_empty() && self.bytes.capacity() > KEEP {
            self.bytes = VecDeque::new();
        }
    }

    /// Copies as many bytes as the bound allows; returns their number.
    fn write(&mut self, buf: &[u8]) -> usize {
        let taken = buf.len().min(self.bound - self.bytes.len());
        let needed = self.bytes.len() + taken;
        if needed > self.bytes.capacity() {
            let grown = needed.max(2 * self.bytes.capacity()).min(self.bound);
            self.bytes.reserve_exact(grown - self.bytes.len());
        }
        self.bytes.extend(&buf[..taken]);
        taken
    }
}

impl AsyncRead for ReadEnd {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let budget = ready!(coop::poll_proceed(cx));
        let mut pipe = lock(&self.0);
        if pipe.bytes.is_empty() && !pipe.read_closed && !pipe.write_closed && buf.remaining() > 0 {
            return wait(&mut pipe.reading, cx);
        }
        pipe.read(buf);
        wake(pipe);
        budget.made_progress();
        Poll::Ready(Ok(()))
    }
}

impl WriteEnd {
    fn poll_write_with(
        &self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut Pipe) -> usize,
    ) -> Poll<io::Result<usize>> {
        let budget = ready!(coop::poll_proceed(cx));
        let mut pipe = lock(&self.0);
        let written = if pipe.ended {
            Err(io::Error::new(io::ErrorKind::BrokenPipe, "the process that owns this pipe has ended"))
        } else if pipe.read_closed || pipe.write_closed {
            Err(io::ErrorKind::BrokenPipe.into())
        } else if pipe.bytes.len() == pipe.bound {
            return wait(&mut pipe.writing, cx);
        } else {
            Ok(write(&mut pipe))
        };
        wake(pipe);
        budget.made_progress();
        Poll::Ready(written)
    }
}

impl AsyncWrite for WriteEnd {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |pipe| pipe.write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |pipe| bufs.iter().map(|buf| pipe.write(buf)).sum())
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.close();
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::poll;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn its_memory_is_that_of_the_unread_bytes() {
        let (mut writer, mut reader) = pipe(1 << 16);
        let room = |writer: &WriteEnd| lock(&writer.0).bytes.capacity();
        assert_eq!(room(&writer), 0);
        writer.write_all(&[1; 100]).await.unwrap();
        assert_eq!(room(&writer), 100);
        let mut read = vec![0; 100];
        reader.read_exact(&mut read).await.unwrap();
        let (sent, taken) = tokio::join!(
            async {
                let written = writer.write_all(&[2; 1 << 20]).await;
                let most = room(&writer);
                drop(writer);
                written.map(|()| most)
            },
            async {
                tokio::task::yield_now().await;
                let mut all = Vec::new();
                reader.read_to_end(&mut all).await.map(|_| all)
            }
        );
        assert_eq!(sent.unwrap(), 1 << 16);
        assert_eq!(taken.unwrap(), vec![2; 1 << 20]);
        assert_eq!(lock(&reader.0).bytes.capacity(), 0, "the buffer is freed");
    }

    #[tokio::test]
    async fn bytes_keep_their_order_around_the_bound() {
        let (mut writer, mut reader) = pipe(7);
        let text: Vec<u8> = (0..=255).collect();
        let (written, read) = tokio::join!(
            async {
                let slices = [IoSlice::new(&text[..3]), IoSlice::new(&text[3..5])];
                let written = writer.write_vectored(&slices).await.unwrap();
                writer.write_all(&text[written..]).await.unwrap();
                writer.shutdown().await
            },
            async {
                let mut all = Vec::new();
                let mut some = [0; 5];
                loop {
                    match reader.read(&mut some).await.unwrap() {
                        0 => break all,
                        n => all.extend_from_slice(&some[..n]),
                    }
                }
            }
        );
        written.unwrap();
        assert_eq!(read, text);
        assert_eq!(writer.write(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn closing_the_reader_wakes_a_waiting_writer() {
        let (mut writer, reader) = pipe(1);
        writer.write_all(b"1").await.unwrap();
        let mut more = Box::pin(writer.write(b"2"));
        assert!(poll!(&mut more).is_pending());
        drop(reader);
        assert_eq!(more.await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn reading_and_writing_in_a_loop_yields_to_other_tasks() {
        let (mut writer, mut reader) = pipe(8);
        let mut busy = Box::pin(async {
            loop {
                writer.write_all(b"1").await.unwrap();
                reader.read_u8().await.unwrap();
            }
        });
        assert!(poll!(&mut busy).is_pending());
    }
}
