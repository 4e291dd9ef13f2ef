//! Reads the child's stderr until no process holds it open, and passes it to the sink line by line.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::process::ChildStderr;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use super::group::Group;
use crate::StderrSink;

/// Size of a read. The buffer is on the stack, because most children have nothing to read most of the time.
const READ_BYTES: usize = 8 << 10;

/// The task that reads stderr. Dropping this aborts the task.
#[derive(Debug)]
pub(super) struct StderrTask {
    /// Cancelled when the pipe was drained, or the task has ended.
    drained: CancellationToken,
    _task: AbortOnDropHandle<()>,
}

impl StderrTask {
    #[expect(clippy::disallowed_methods, reason = "the handle below owns the task")]
    pub(super) fn start(stderr: ChildStderr, sink: StderrSink, line_bytes: usize, group: Arc<Group>) -> Self {
        let drained = CancellationToken::new();
        let tell = (drained.clone(), drained.clone().drop_guard());
        let task = tokio::spawn(read(stderr, StderrLines::new(sink, line_bytes), group, tell));
        Self { drained, _task: AbortOnDropHandle::new(task) }
    }

    /// Resolves when everything that was in the pipe at the child's exit has gone to the sink.
    pub(super) async fn drained(&mut self) {
        self.drained.cancelled().await;
    }
}

async fn read(
    mut stderr: ChildStderr,
    mut lines: StderrLines,
    group: Arc<Group>,
    (drained, _guard): (CancellationToken, DropGuard),
) {
    loop {
        tokio::select! {
            biased;
            _ = group.exited(), if !drained.is_cancelled() => {
                drain(&stderr, &mut lines);
                drained.cancel();
            }
            more = read_some(&mut stderr, &mut lines) => if !more {
                break;
            },
        }
    }
    lines.finish();
}

/// Reads once. Returns false at the end of the stream.
async fn read_some(stderr: &mut ChildStderr, lines: &mut StderrLines) -> bool {
    poll_fn(|cx| {
        let mut bytes = [const { MaybeUninit::uninit() }; READ_BYTES];
        let mut buffer = ReadBuf::uninit(&mut bytes);
        let read = ready!(Pin::new(&mut *stderr).poll_read(cx, &mut buffer));
        lines.push(buffer.filled());
        Poll::Ready(read.is_ok() && !buffer.filled().is_empty())
    })
    .await
}

/// Reads what is in the pipe now. Not through tokio, which may not know yet that the pipe is readable.
fn drain(stderr: impl AsFd, lines: &mut StderrLines) {
    let mut buffer = [0; READ_BYTES];
    let mut there = rustix::io::ioctl_fionread(&stderr).unwrap_or(0);
    while there > 0 {
        // The descriptor is non-blocking; an error means "empty" or "closed".
        match rustix::io::read(&stderr, &mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => {
                lines.push(&buffer[..count]);
                there = there.saturating_sub(count as u64);
            }
        }
    }
    lines.finish();
}

/// Splits bytes into lines, and truncates long lines.
struct StderrLines {
    sink: StderrSink,
    limit: usize,
    /// The start of an incomplete line. Without one it holds no memory.
    line: Vec<u8>,
    /// The line is longer than the limit; its rest is dropped.
    cut: bool,
}

impl StderrLines {
    fn new(sink: StderrSink, limit: usize) -> Self {
        Self { sink, limit, line: Vec::new(), cut: false }
    }

    fn push(&mut self, mut bytes: &[u8]) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let line = &bytes[..end];
            if self.line.is_empty() {
                self.emit(&line[..end.min(self.limit)], end > self.limit);
            } else {
                self.extend(line);
                self.finish();
            }
            bytes = &bytes[end + 1..];
        }
        self.extend(bytes);
    }

    /// Passes on an incomplete line.
    fn finish(&mut self) {
        if !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            self.emit(&line, self.cut);
            self.cut = false;
        }
    }

    fn extend(&mut self, bytes: &[u8]) {
        let room = self.limit - self.line.len();
        self.cut |= bytes.len() > room;
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn emit(&self, mut line: &[u8], cut: bool) {
        if cut
            && let Err(error) = std::str::from_utf8(line)
            && error.error_len().is_none()
        {
            // The limit is in the middle of a character.
            line = &line[..error.valid_up_to()];
        }
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end_matches('\r');
        // A sink that panics loses this line only. Without a reader the child would stall on a full pipe.
        drop(catch_unwind(AssertUnwindSafe(|| (self.sink)(text))));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn lines(limit: usize, chunks: &[&[u8]]) -> Vec<String> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&seen);
        let sink: StderrSink = Arc::new(move |line| into.lock().unwrap().push(line.to_owned()));
        let mut lines = StderrLines::new(sink, limit);
        chunks.iter().for_each(|chunk| lines.push(chunk));
        lines.finish();
        drop(lines);
        Arc::into_inner(seen).unwrap().into_inner().unwrap()
    }

    #[test]
    fn lines_are_cut_wherever_the_chunks_are() {
        let expected = ["one", "", "two", "three"];
        assert_eq!(lines(99, &[b"one\n\ntwo\r\nthree"]), expected);
        assert_eq!(lines(99, &[b"o", b"ne", b"\n", b"\ntwo\r", b"\nthr", b"ee"]), expected);
    }

    #[test]
    fn the_rest_of_a_long_line_is_dropped() {
        assert_eq!(
            lines(4, &[b"12345678\n1234\n", b"12", b"3456", b"78", b"\nnext\n"]),
            ["1234", "1234", "1234", "next"]
        );
    }

    #[test]
    fn a_character_is_not_cut_in_two() {
        assert_eq!(lines(4, &["aéüx\n".as_bytes()]), ["aé"]);
        assert_eq!(lines(5, &["aéüx\n".as_bytes()]), ["aéü"]);
    }

    #[test]
    fn what_is_not_utf8_is_replaced() {
        assert_eq!(lines(99, &[b"a\xffb\n"]), ["a\u{fffd}b"]);
    }

    #[test]
    fn only_an_incomplete_line_holds_memory() {
        let mut lines = StderrLines::new(Arc::new(|_| {}), 99);
        lines.push(b"one\ntwo\n");
        assert_eq!(lines.line.capacity(), 0);
        lines.push(b"thr");
        assert_eq!(lines.line, b"thr");
        lines.push(b"ee\nfour\n");
        assert_eq!(lines.line.capacity(), 0);
    }

    #[test]
    fn a_limit_of_zero_harms_nothing() {
        assert_eq!(lines(0, &[b"a\nb"]), [""]);
    }
}
