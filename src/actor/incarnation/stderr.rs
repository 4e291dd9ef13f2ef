//! The last lines of a CLI's stderr, for error messages.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::plain::plain_text;

/// The last lines that the CLI wrote to its stderr, with their bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct StderrTail(Arc<Mutex<(VecDeque<String>, usize)>>);

impl StderrTail {
    /// Adds a line, and drops the oldest lines past `bound` bytes. The last line is always kept.
    pub(crate) fn push(&self, line: &str, bound: usize) {
        let mut tail = lock(&self.0);
        let (lines, bytes) = &mut *tail;
        *bytes += line.len() + 1;
        lines.push_back(line.to_owned());
        while *bytes > bound && lines.len() > 1 {
            *bytes -= lines.pop_front().map_or(0, |line| line.len() + 1);
        }
    }

    /// The lines, as [`plain_text`].
    pub(crate) fn text(&self) -> String {
        plain_text(&lock(&self.0).0.iter().map(String::as_str).collect::<Vec<_>>().join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_past_the_bound_are_dropped_except_the_last() {
        let tail = StderrTail::default();
        for line in ["one", "two", "three"] {
            tail.push(line, 10);
        }
        assert_eq!(tail.text(), "two\nthree");
        tail.push("longer than the bound", 10);
        assert_eq!(tail.text(), "longer than the bound");
    }
}
