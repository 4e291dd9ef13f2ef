//! The buffer of the last large line that was written. The next large answer is written into it: the system's allocator gives
//! blocks of this size back to the system when they are freed, and fetches them again page by page.

use std::sync::Mutex;

use crate::lock::lock;

/// At most one buffer.
#[derive(Debug, Default)]
pub(super) struct SpareLine(Mutex<Vec<u8>>);

/// Least and most bytes of a buffer that is worth keeping.
const LEAST: usize = 64 << 10;
const MOST: usize = 4 << 20;

impl SpareLine {
    /// Keeps the buffer of a line that was written, in place of the one before.
    pub(super) fn keep(&self, mut line: Vec<u8>) {
        if (LEAST..=MOST).contains(&line.capacity()) {
            line.clear();
            let before = std::mem::replace(&mut *lock(&self.0), line);
            drop(before);
        }
    }

    /// The buffer, if it fits a line of this many bytes and is not much larger.
    pub(super) fn take(&self, room: usize) -> Option<Vec<u8>> {
        if room < LEAST {
            return None;
        }
        let mut spare = lock(&self.0);
        (room..=room + room / 32).contains(&spare.capacity()).then(|| std::mem::take(&mut *spare))
    }

    pub(super) fn free(&self) {
        let spare = std::mem::take(&mut *lock(&self.0));
        drop(spare);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_of_a_large_line_is_used_for_the_next_line_of_its_size() {
        let spare = SpareLine::default();
        let kept = |bytes: usize| {
            spare.keep(vec![b'x'; bytes]);
            spare.take(bytes).map(|line| (line.len(), line.capacity()))
        };
        assert_eq!(kept(LEAST), Some((0, LEAST)));
        assert_eq!(spare.take(LEAST), None, "a buffer was taken twice");
        assert_eq!(kept(LEAST - 1), None, "too small to be kept");
        assert_eq!(kept(MOST + 1), None, "too large to be kept");
        spare.keep(vec![0; 2 * LEAST]);
        assert_eq!(spare.take(2 * LEAST + 1), None, "the line does not fit");
        assert_eq!(spare.take(LEAST), None, "half of the buffer would be empty");
        spare.free();
        assert_eq!(spare.take(2 * LEAST), None);
    }
}
