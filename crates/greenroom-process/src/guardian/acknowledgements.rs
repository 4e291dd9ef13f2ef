//! The words in which a guardian acknowledges deadlines.

use std::io;
use std::process::ChildStdout;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The time in which a guardian has to acknowledge a deadline. It is replaced after that.
pub(super) const ACKNOWLEDGE: Duration = Duration::from_millis(750);

/// The words in which a guardian acknowledges deadlines.
#[derive(Debug)]
pub(super) struct Acknowledgements {
    pipe: ChildStdout,
    read: Mutex<Read>,
}

#[derive(Debug, Default)]
struct Read {
    text: Vec<u8>,
    /// The greatest number that was acknowledged.
    latest: u64,
}

impl Acknowledgements {
    pub(super) fn new(pipe: ChildStdout) -> Self {
        Self { pipe, read: Mutex::default() }
    }

    /// Blocks until the guardian has acknowledged deadline number `seq`.
    pub(super) fn wait(&self, seq: u64) -> io::Result<()> {
        let end = Instant::now() + ACKNOWLEDGE;
        // Whoever waits reads for all that wait.
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        while read.latest < seq {
            let left = end.saturating_duration_since(Instant::now());
            let limit = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&limit)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => read.some(&self.pipe)?,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Read {
    fn some(&mut self, pipe: &ChildStdout) -> io::Result<()> {
        let mut part = [0; 256];
        let read = rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut part))?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.text.extend_from_slice(&part[..read]);
        while let Some(end) = memchr::memchr(b'\n', &self.text) {
            let line: Vec<u8> = self.text.drain(..=end).collect();
            let seq = std::str::from_utf8(&line[..end]).ok().and_then(|line| line.parse().ok());
            self.latest = self.latest.max(seq.unwrap_or_default());
        }
        Ok(())
    }
}
