//! Splits bytes into lines, and makes lines of JSON texts.
//!
//! Only `\n` ends a line; U+2028 and the like are data. A line over the limit is dropped up to its end, and reading
//! goes on after it. Bytes without a line end when the stream closes are a last line: a CLI that dies in mid-line
//! leaves half of one.
//!
//! ```text
//!            ┌──────────── push(bytes) ────────────┐
//!   Keeping ─┤ no '\n' and pending > limit ────────┼─► Skipping (pending is freed)
//!      ▲     └ '\n' found: a line                  │       │
//!      └───────────────────────── '\n' found: TooLong(n) ──┘
//! ```

use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem::Finder;

/// Result of [`Lines::next`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LineStep {
    /// A line, at this range of [`Lines::bytes`], without its end and without a trailing `\r`.
    Line(Range<usize>),
    /// A line of this many bytes was over the limit and is dropped.
    TooLong(usize),
    /// No whole line is left: read more bytes.
    More,
}

/// Splits a stream of bytes into lines of at most `limit` bytes.
///
/// Memory: the longest pending line plus one read. The first read is small. If it fills its room, the next reads are
/// large. Once there is nothing more to read, a buffer without a pending line is small again.
#[derive(Debug)]
pub(crate) struct Lines {
    buffer: Vec<u8>,
    /// Start of the next line.
    start: usize,
    /// End of the bytes that were searched for a line end.
    scanned: usize,
    /// Bytes dropped so far of an overlong line. `Some` is the state `Skipping`.
    skipped: Option<usize>,
    limit: usize,
    /// Length of the longest line since the buffer was small.
    longest: usize,
}

/// Capacity above which an empty buffer is freed.
const KEEP: usize = 1 << 20;

/// Size of a large read.
const READ: usize = 64 << 10;

/// Size of a small read.
const FIRST: usize = 2 << 10;

impl Lines {
    pub(crate) fn new(limit: usize) -> Self {
        Self { buffer: Vec::with_capacity(FIRST), start: 0, scanned: 0, skipped: None, limit, longest: 0 }
    }

    /// The buffer, to append a read to. Invalidates earlier ranges.
    pub(crate) fn room(&mut self) -> &mut Vec<u8> {
        let filled = self.buffer.len() == self.buffer.capacity();
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        if self.buffer.is_empty() && self.buffer.capacity() > KEEP {
            self.buffer = Vec::with_capacity(READ);
        }
        let room = self.buffer.capacity() - self.buffer.len();
        let small = self.is_small();
        let too_little = if small { filled || room < FIRST / 4 } else { room < READ / 4 };
        if too_little {
            // Doubling copies each byte of a long line a constant number of times; the limit is the longest line and a
            // read. A small buffer grows by the length of the last long line at once: another one of its kind is
            // likely.
            let least = self.buffer.len() + READ;
            let most = self.limit.saturating_add(READ).max(least);
            let wanted = if small {
                std::mem::take(&mut self.longest).min(KEEP) + READ
            } else {
                2 * self.buffer.capacity()
            };
            let grown = wanted.clamp(least, most);
            self.buffer.reserve_exact(grown - self.buffer.len());
        }
        &mut self.buffer
    }

    /// There is nothing to read now: shrinks the buffer if no line is pending.
    pub(crate) fn rest_now(&mut self) {
        if self.start == self.buffer.len() && !self.is_small() {
            self.buffer = Vec::with_capacity(FIRST);
            self.start = 0;
            self.scanned = 0;
        }
    }

    fn is_small(&self) -> bool {
        self.buffer.capacity() < READ / 4
    }

    /// The bytes of a [`LineStep::Line`].
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// The next line in the buffer.
    pub(crate) fn next(&mut self) -> LineStep {
        match memchr::memchr(b'\n', &self.buffer[self.scanned..]) {
            Some(at) => {
                let end = self.scanned + at;
                let start = std::mem::replace(&mut self.start, end + 1);
                self.scanned = end + 1;
                let length = end - start;
                if let Some(skipped) = self.skipped.take() {
                    return LineStep::TooLong(skipped + length);
                }
                if length > self.limit {
                    return LineStep::TooLong(length);
                }
                self.longest = self.longest.max(length);
                LineStep::Line(self.trimmed(start, end))
            }
            None => {
                self.scanned = self.buffer.len();
                let pending = self.buffer.len() - self.start;
                if self.skipped.is_some() || pending > self.limit {
                    *self.skipped.get_or_insert(0) += pending;
                    self.buffer.clear();
                    self.start = 0;
                    self.scanned = 0;
                }
                LineStep::More
            }
        }
    }

    /// The last line when the stream has ended: half a line, or [`LineStep::More`] for none.
    pub(crate) fn rest(&mut self) -> LineStep {
        let (start, end) = (self.start, self.buffer.len());
        self.start = end;
        self.scanned = end;
        match self.skipped.take() {
            Some(skipped) => LineStep::TooLong(skipped + (end - start)),
            None if start == end => LineStep::More,
            None => LineStep::Line(self.trimmed(start, end)),
        }
    }

    fn trimmed(&self, start: usize, end: usize) -> Range<usize> {
        let cr = end > start && self.buffer[end - 1] == b'\r';
        start..if cr { end - 1 } else { end }
    }
}

/// Makes a line of a JSON text that `serde_json` wrote.
///
/// Such a text has no raw `\n` or `\r`. The CLI's line reader also ends lines at U+2028 and U+2029, so these are
/// escaped; they stand only inside strings, where the escape means the same.
pub(crate) fn into_line(mut json: Vec<u8>) -> Vec<u8> {
    debug_assert!(memchr::memchr2(b'\n', b'\r', &json).is_none(), "a line holds a line end");
    escape_separators(&mut json, 0);
    // Exactly one byte: `push` would double a full buffer.
    json.reserve_exact(1);
    json.push(b'\n');
    json
}

/// First two bytes of U+2028, U+2029 and their neighbours.
static SEPARATORS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\xE2\x80"));

/// Escapes U+2028 and U+2029 from `start` on.
pub(super) fn escape_separators(json: &mut Vec<u8>, start: usize) {
    let next = |json: &[u8]| {
        SEPARATORS.find_iter(json).find_map(|at| match json.get(at + 2) {
            Some(0xA8) => Some((at, br"\u2028")),
            Some(0xA9) => Some((at, br"\u2029")),
            _ => None,
        })
    };
    let Some((first, _)) = next(&json[start..]) else { return };
    let rest = json.split_off(start + first);
    json.reserve(rest.len() + rest.len() / 16 + 16);
    let mut rest = rest.as_slice();
    while let Some((at, escape)) = next(rest) {
        json.extend_from_slice(&rest[..at]);
        json.extend_from_slice(escape);
        rest = &rest[at + 3..];
    }
    json.extend_from_slice(rest);
}

// Guards: lossless
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(chunks: &[&[u8]], limit: usize) -> Vec<Result<String, usize>> {
        let mut lines = Lines::new(limit);
        let mut out = Vec::new();
        let mut take = |lines: &mut Lines, step| match step {
            LineStep::Line(range) => {
                out.push(Ok(String::from_utf8_lossy(lines.bytes(range)).into_owned()));
                true
            }
            LineStep::TooLong(bytes) => {
                out.push(Err(bytes));
                true
            }
            LineStep::More => false,
        };
        for chunk in chunks {
            lines.room().extend_from_slice(chunk);
            loop {
                let step = lines.next();
                if !take(&mut lines, step) {
                    break;
                }
            }
        }
        let step = lines.rest();
        take(&mut lines, step);
        out
    }

    #[test]
    fn lines_end_at_newline_only() {
        let text = "a\r\n\u{2028}b\rc\n\nlast".as_bytes();
        assert_eq!(
            all(&[text], 100),
            [Ok("a".into()), Ok("\u{2028}b\rc".into()), Ok("".into()), Ok("last".into())]
        );
    }

    #[test]
    fn a_line_over_the_limit_is_skipped_and_reading_goes_on() {
        assert_eq!(all(&[b"12345", b"678", b"9\nok\n"], 4), [Err(9), Ok("ok".into())]);
        assert_eq!(all(&[b"123456789\nok\n"], 4), [Err(9), Ok("ok".into())]);
        assert_eq!(all(&[b"123456", b"789"], 4), [Err(9)]);
    }

    #[test]
    fn an_endless_line_holds_at_most_the_limit_and_a_read() {
        let mut lines = Lines::new(1 << 10);
        for _ in 0..10_000 {
            lines.room().extend_from_slice(&[b'x'; 4096]);
            assert_eq!(lines.next(), LineStep::More);
            assert!(lines.buffer.len() <= (1 << 10) + 4096);
            assert!(lines.buffer.capacity() <= (1 << 10) + READ);
        }
    }

    #[test]
    fn an_idle_buffer_is_small_and_a_busy_one_reads_large_chunks() {
        let fill = |lines: &mut Lines, byte| {
            let room = lines.room();
            room.resize(room.capacity(), byte);
            room.len()
        };
        let mut lines = Lines::new(1 << 24);
        assert_eq!(fill(&mut lines, b'\n'), FIRST);
        while lines.next() != LineStep::More {}
        assert!(lines.room().capacity() >= READ, "a read that fills its room is followed by large ones");
        lines.room().extend_from_slice(b"half a line");
        assert_eq!(lines.next(), LineStep::More);
        lines.rest_now();
        assert!(lines.buffer.capacity() >= READ, "a pending line keeps its buffer");
        lines.room().push(b'\n');
        assert_eq!(lines.next(), LineStep::Line(0..11));
        lines.rest_now();
        assert_eq!((lines.room().capacity(), lines.next()), (FIRST, LineStep::More));
    }

    #[test]
    fn consecutive_long_lines_are_copied_once() {
        let line = [vec![b'x'; 300 << 10], vec![b'\n']].concat();
        let mut lines = Lines::new(1 << 24);
        let grown = [(), ()].map(|()| {
            let (mut rest, mut grown, mut capacity) = (line.as_slice(), 0, FIRST);
            while !rest.is_empty() {
                let room = lines.room();
                grown += usize::from(std::mem::replace(&mut capacity, room.capacity()) != room.capacity());
                let (now, later) = rest.split_at(rest.len().min(room.capacity() - room.len()));
                room.extend_from_slice(now);
                rest = later;
                if !rest.is_empty() {
                    assert_eq!(lines.next(), LineStep::More);
                }
            }
            assert_eq!(lines.next(), LineStep::Line(0..300 << 10));
            assert_eq!(lines.next(), LineStep::More);
            lines.rest_now();
            grown
        });
        assert!(grown[0] > 1);
        assert_eq!(grown[1], 1);
    }

    #[test]
    fn line_separators_are_escaped() {
        let line = into_line(r#"{"a":"x y é"}"#.replace(' ', "\u{2028}\u{2029}").into_bytes());
        assert_eq!(line, b"{\"a\":\"x\\u2028\\u2029y\\u2028\\u2029\xC3\xA9\"}\n");
        assert_eq!(into_line(b"{}".to_vec()), b"{}\n");
    }

    #[test]
    fn a_line_end_does_not_double_the_capacity() {
        let mut json = vec![b'1'; 300 << 10];
        json.shrink_to_fit();
        let line = into_line(json);
        assert!(line.capacity() < 301 << 10, "{}", line.capacity());
    }

    proptest! {
        #[test]
        fn separators_are_escaped_at_every_place(text in "[a\u{2027}\u{2028}\u{2029}\u{202a}─é😀]{0,40}") {
            let json = serde_json::to_string(&text).unwrap();
            let plain = json.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029") + "\n";
            prop_assert_eq!(String::from_utf8(into_line(json.into_bytes())).unwrap(), plain);
        }

        #[test]
        fn lines_do_not_depend_on_chunks(text in "[a-c\r\n]{0,60}", cuts in proptest::collection::vec(0usize..60, 0..6), limit in 1usize..20) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for cut in cuts {
                chunks.push(&bytes[from..cut]);
                from = cut;
            }
            chunks.push(&bytes[from..]);
            prop_assert_eq!(all(&chunks, limit), all(&[bytes], limit));
        }
    }
}
