//! The end of what a CLI wrote to its stderr, for whoever has to say why it ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// The end of what the CLI wrote to its stderr.
#[derive(Clone, Debug, Default)]
pub(crate) struct StderrTail(Arc<Mutex<(VecDeque<String>, usize)>>);

impl StderrTail {
    /// Adds a line; of those before it no more are kept than the bound has bytes for.
    pub(crate) fn push(&self, line: &str, bound: usize) {
        let mut tail = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (lines, bytes) = &mut *tail;
        *bytes += line.len() + 1;
        lines.push_back(line.to_owned());
        while *bytes > bound && lines.len() > 1 {
            *bytes -= lines.pop_front().map_or(0, |line| line.len() + 1);
        }
    }

    pub(crate) fn text(&self) -> String {
        let tail = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        tail.0.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_kept_than_the_bound_but_the_last_line() {
        let tail = StderrTail::default();
        for line in ["one", "two", "three"] {
            tail.push(line, 10);
        }
        assert_eq!(tail.text(), "two\nthree");
        tail.push("longer than the bound", 10);
        assert_eq!(tail.text(), "longer than the bound");
    }
}
