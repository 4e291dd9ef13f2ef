//! A receiver of the CLI's stderr.

use std::fmt;
use std::sync::Arc;

use crate::blocking::caught::DropElsewhere;

/// Receives the CLI's stderr, line by line, without line ends.
#[derive(Clone)]
pub struct StderrSink(Arc<dyn Fn(&str) + Send + Sync>);

impl StderrSink {
    /// A sink that calls `take` for each line, on the task that reads stderr. `take` must not block.
    pub fn new(take: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let take = DropElsewhere::new(take);
        Self(Arc::new(move |line: &str| take(line)))
    }

    /// Hands one line to the sink.
    pub fn line(&self, line: &str) {
        (self.0)(line);
    }
}

impl fmt::Debug for StderrSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StderrSink")
    }
}
