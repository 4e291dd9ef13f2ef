//! Writes the queued lines to the CLI's stdin, whole: the task is cancelled only together with its incarnation.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::{OutboundItem, OutboundReceiver};
use crate::actor::base::task::step_back;

/// The error that ends the writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteError {
    /// The CLI does not read.
    Stalled(String),
    /// Stdin is closed, or writing failed.
    Broken(String),
}

impl From<std::io::Error> for WriteError {
    fn from(error: std::io::Error) -> Self {
        WriteError::Broken(error.to_string())
    }
}

/// Most lines that are written in one go.
const BATCH: usize = 256;

/// Batch size at which the writer does not wait for more.
const FULL: usize = 16;

/// A line of at least this many bytes is written without a copy.
pub(super) const LARGE: usize = 8 << 10;

/// Capacity of the batch buffer that is kept while requests are in flight, and while none are.
const KEPT: usize = 64 << 10;
const KEPT_QUIET: usize = 512;

/// Writes lines until the queue is closed or writing fails; then closes `writer`. While handlers are about to begin,
/// lets them run first, and writes their answers in one go.
///
/// # Errors
/// The error of `writer`, or that nothing could be written for `stall`.
pub(crate) async fn write_lines(
    mut receiver: OutboundReceiver,
    mut writer: impl AsyncWrite + Unpin,
    stall: Duration,
) -> Result<(), WriteError> {
    let mut items = Vec::new();
    let mut bytes = Vec::new();
    let mut closing = false;
    while !closing && receiver.queue.recv_many(&mut items, BATCH).await > 0 {
        if items.len() < FULL && receiver.gate.as_ref().is_some_and(|gate| gate.is_beginning()) {
            step_back().await;
            while items.len() < BATCH
                && let Ok(item) = receiver.queue.try_recv()
            {
                items.push(item);
            }
        }
        let small = |item: &OutboundItem| match item {
            OutboundItem::Line { bytes, .. } if bytes.len() < LARGE => bytes.len(),
            OutboundItem::Line { .. } | OutboundItem::Close => 0,
        };
        if items.len() > 1 {
            bytes.reserve(items.iter().map(small).sum());
        }
        // A single line is written without a copy, whatever its length.
        let large = if items.len() > 1 { LARGE } else { 0 };
        let (mut lines, mut copied) = (0, 0);
        for item in &mut items {
            match item {
                OutboundItem::Line { bytes: line, .. } if closing => {
                    // Queued behind the close: counted, not written.
                    lines += 1;
                    copied += line.capacity();
                }
                OutboundItem::Line { bytes: line, room } => {
                    lines += 1;
                    if line.len() < large {
                        bytes.extend_from_slice(line);
                        copied += line.capacity();
                    } else {
                        write_all(&mut writer, &bytes, stall).await?;
                        write_all(&mut writer, line, stall).await?;
                        bytes.clear();
                        // Freed now and not with the batch: a batch of large lines takes long, and others wait for
                        // room.
                        let line = std::mem::take(line);
                        receiver.state.bytes.remove(line.capacity());
                        // Notifications also come while nothing is asked, and then nobody frees the buffer.
                        if room.is_none() {
                            receiver.state.spare.keep(line);
                        }
                    }
                }
                OutboundItem::Close => closing = true,
            }
        }
        write_all(&mut writer, &bytes, stall).await?;
        timeout(stall, writer.flush()).await.map_err(|_| stalled(stall))??;
        // Drops the permits of notifications, which are written now.
        items.clear();
        receiver.state.queued.fetch_sub(lines, Ordering::Relaxed);
        receiver.state.bytes.remove(copied);
        bytes.clear();
        let quiet = receiver.queue.is_empty()
            && receiver.gate.as_ref().is_none_or(|gate| gate.in_flight.count() == 0);
        bytes.shrink_to(if quiet { KEPT_QUIET } else { KEPT });
        if quiet {
            items.shrink_to(FULL);
        }
    }
    // A pipe of a process closes when the return drops `writer`.
    Ok(timeout(stall, writer.shutdown()).await.map_err(|_| stalled(stall))??)
}

async fn write_all(
    writer: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
    stall: Duration,
) -> Result<(), WriteError> {
    while !bytes.is_empty() {
        // `stall` limits the wait for progress, not the whole write: a slow reader is not a dead one.
        let written = timeout(stall, writer.write(bytes)).await.map_err(|_| stalled(stall))??;
        if written == 0 {
            return Err(WriteError::Broken("it takes no more bytes".into()));
        }
        bytes = &bytes[written..];
    }
    Ok(())
}

fn stalled(stall: Duration) -> WriteError {
    WriteError::Stalled(format!("nothing could be written for {stall:?}"))
}

// Guards: control-first
// Guards: whole-lines
#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::actor::outbound::{IncarnationEnded, Outbound};
    use crate::options::Limits;

    #[tokio::test(start_paused = true)]
    async fn lines_are_written_in_order_and_then_stdin_is_closed() {
        let (outbound, receiver) = Outbound::new(1, &Limits::default());
        for n in 0..1000 {
            outbound.send(n.to_string().into_bytes()).unwrap();
        }
        outbound.close();
        assert_eq!(outbound.queued(), 1000);
        let (writer, mut reader) = tokio::io::duplex(16);
        let mut text = String::new();
        let (written, read) = tokio::join!(
            write_lines(receiver, writer, Duration::from_secs(1)),
            reader.read_to_string(&mut text)
        );
        assert_eq!((written, read.unwrap()), (Ok(()), text.len()));
        assert_eq!(text.lines().collect::<Vec<_>>(), (0..1000).map(|n| n.to_string()).collect::<Vec<_>>());
        assert_eq!(outbound.queued(), 0);
        assert_eq!(outbound.send(b"late".to_vec()), Err(IncarnationEnded));
    }

    #[tokio::test(start_paused = true)]
    async fn small_and_large_lines_of_one_batch_are_written_once_and_in_order() {
        let (outbound, receiver) = Outbound::new(1, &Limits::default());
        let lengths = [1, LARGE, 2, 3, LARGE + 1, LARGE, 4];
        let lines: Vec<_> = lengths.iter().zip(b'a'..).map(|(length, byte)| vec![byte; *length]).collect();
        for line in &lines {
            outbound.send(line.clone()).unwrap();
        }
        outbound.close();
        let (writer, mut reader) = tokio::io::duplex(100);
        let mut read = Vec::new();
        let written = write_lines(receiver, writer, Duration::from_secs(1));
        let (written, ended) = tokio::join!(written, reader.read_to_end(&mut read));
        assert!(written.is_ok() && ended.is_ok());
        assert!(
            read == lines.join(&b'\n').into_iter().chain([b'\n']).collect::<Vec<_>>(),
            "{} bytes",
            read.len()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stops_is_an_error_and_a_slow_one_is_not() {
        let (outbound, receiver) = Outbound::new(1, &Limits::default());
        outbound.send(vec![b'1'; 100]).unwrap();
        let (writer, mut reader) = tokio::io::duplex(10);
        let slow = async {
            let mut byte = [0; 1];
            for _ in 0..60 {
                tokio::time::sleep(Duration::from_millis(900)).await;
                reader.read_exact(&mut byte).await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        let started = tokio::time::Instant::now();
        let result = tokio::select! {
            result = write_lines(receiver, writer, Duration::from_secs(1)) => result,
            () = slow => unreachable!(),
        };
        assert_eq!(result, Err(WriteError::Stalled("nothing could be written for 1s".into())));
        assert!(started.elapsed() >= Duration::from_secs(54));
    }
}
