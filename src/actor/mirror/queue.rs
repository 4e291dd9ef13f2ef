//! The queue of the mirror: frames for the worker, waiters, and losses to report.

use std::collections::VecDeque;

use crate::sessions::TranscriptEntry;

/// Bound on unreported losses, each of its own file and reason; further ones are reported as one.
pub(super) const LOST: usize = 256;

#[derive(Default)]
pub(super) struct MirrorQueue {
    pub(super) frames: VecDeque<QueuedFrame>,
    /// Number of entries in `frames`.
    pub(super) entries: usize,
    /// Bytes of the queued frames, and of those that the worker is giving to the store.
    pub(super) bytes: usize,
    /// Files and numbers of entries that the worker is giving to the store; no file for a catch-up that still has to
    /// read.
    pub(super) in_flight: Vec<(Option<String>, usize)>,
    /// Losses not reported yet, at most [`LOST`] and one.
    pub(super) lost: Vec<Lost>,
    /// Whether the worker is giving entries to the store or reporting losses.
    pub(super) busy: bool,
    /// Number of frames accepted so far.
    pub(super) accepted: u64,
    /// Frames up to this number are due for the store.
    pub(super) wanted: u64,
    /// Number of frames that the store has taken or refused.
    pub(super) settled: u64,
    pub(super) waiting: Vec<(u64, SettledWaiter)>,
}

/// Entries of one file, or a request to catch up.
pub(super) struct QueuedFrame {
    pub(super) path: String,
    pub(super) entries: Vec<TranscriptEntry>,
    pub(super) bytes: usize,
    /// Set for a catch-up: re-read the transcripts, of this session if its id is known.
    pub(super) catch_up: Option<Option<String>>,
}

impl QueuedFrame {
    /// The item for `MirrorQueue::in_flight`.
    pub(super) fn pending(&self) -> (Option<String>, usize) {
        (self.catch_up.is_none().then(|| self.path.clone()), self.entries.len())
    }
}

/// Entries that do not reach the store.
pub(super) struct Lost {
    pub(super) path: Option<String>,
    pub(super) entries: usize,
    pub(super) reason: String,
}

/// Adds a loss, merged with one of the same file and reason.
pub(super) fn report_later(lost: &mut Vec<Lost>, new: Lost) {
    let same = |known: &Lost, new: &Lost| known.path == new.path && known.reason == new.reason;
    let new = if lost.len() < LOST || lost.iter().any(|known| same(known, &new)) {
        new
    } else {
        let reason = format!("more was lost than {LOST} files and reasons can say");
        Lost { path: None, entries: new.entries, reason }
    };
    match lost.iter_mut().find(|known| same(known, &new)) {
        Some(known) => known.entries += new.entries,
        None => lost.push(new),
    }
}

/// Called by its drop: when its frames are settled, or when no worker will settle them.
pub(super) struct SettledWaiter(pub(super) Option<Box<dyn FnOnce() + Send>>);

impl Drop for SettledWaiter {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            tell();
        }
    }
}

/// The worker's next work.
pub(super) struct MirrorBatch {
    pub(super) frames: Vec<QueuedFrame>,
    pub(super) lost: Vec<Lost>,
    pub(super) up_to: u64,
}

impl MirrorQueue {
    /// The worker's next work; without any, the waiters whose frames are settled already.
    pub(super) fn next(&mut self, eager: bool) -> (Option<MirrorBatch>, Vec<(u64, SettledWaiter)>) {
        if self.wanted <= self.settled && self.lost.is_empty() {
            let settled = self.settled;
            let (done, waiting) = self.waiting.drain(..).partition(|(at, _)| *at <= settled);
            self.waiting = waiting;
            return (None, done);
        }
        let count = match self.wanted.saturating_sub(self.settled) {
            0 => 0,
            _ if eager => 1,
            // All queued frames, but none after a catch-up: entries of the next CLI link to those that the catch-up
            // reads.
            _ => {
                let catch_up = self.frames.iter().position(|frame| frame.catch_up.is_some());
                catch_up.map_or(self.frames.len(), |at| at + 1)
            }
        };
        let frames: Vec<_> = self.frames.drain(..count).collect();
        self.entries -= frames.iter().map(|frame| frame.entries.len()).sum::<usize>();
        self.in_flight = frames.iter().map(QueuedFrame::pending).collect();
        self.busy = true;
        let (up_to, lost) = (self.settled + frames.len() as u64, std::mem::take(&mut self.lost));
        (Some(MirrorBatch { up_to, lost, frames }), Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreported_losses_are_bounded() {
        let mut lost = Vec::new();
        for number in 0..LOST * 3 {
            for _ in 0..2 {
                let path = Some(format!("{number}"));
                report_later(&mut lost, Lost { path, entries: 1, reason: "r".into() });
            }
        }
        assert_eq!(lost.len(), LOST + 1);
        assert_eq!((lost[0].entries, lost[LOST].entries), (2, LOST * 4));
    }
}
