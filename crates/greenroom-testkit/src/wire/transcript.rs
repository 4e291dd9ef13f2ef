//! The wire of a session, as plain data.

use std::fmt;
use std::time::Duration;

use greenroom::transport::Exit;
use serde_json::Value;

/// The wire of a session, in both directions and over all incarnations of its CLI, in the order in which it went by.
///
/// A [`Recorder`](crate::Recorder) records it, and [`invariants::check`](crate::invariants::check) checks it. Print it
/// with `{}`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    /// All entries, in order.
    pub entries: Vec<Entry>,
}

/// One thing that went by.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The incarnation of the CLI, counted from 1.
    pub epoch: u64,
    /// When, counted from the start of the recording on the clock of tokio.
    pub at: Duration,
    /// The entry.
    pub wire: Wire,
}

/// An entry of a transcript.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Wire {
    /// The incarnation was started with these arguments.
    Opened {
        /// The arguments after the program's name.
        args: Vec<String>,
    },
    /// The host wrote a line to the CLI's stdin.
    Host(Line),
    /// The CLI wrote a line to its stdout.
    Cli(Line),
    /// The incarnation is over.
    Ended {
        /// Exit of the process; `None` if the host never asked.
        exit: Option<Exit>,
    },
}

/// A line of the wire, without its end.
#[derive(Clone, PartialEq, Eq)]
pub struct Line {
    /// The bytes of the line.
    pub bytes: Vec<u8>,
    /// Whether the line has its line end.
    pub is_whole: bool,
}

impl Line {
    /// A line of these bytes, without its end.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), is_whole: true }
    }

    /// The beginning of a line whose end never came.
    pub fn cut(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), is_whole: false }
    }

    /// The line as JSON, if it is JSON.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.bytes).ok()
    }

    /// The line as text, for people.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}", self.text(), if self.is_whole { "" } else { " (cut)" })
    }
}

impl fmt::Display for Line {
    /// The line as it is, so that JSON can be copied. Only control characters are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", readable(&self.text()), if self.is_whole { "" } else { " (cut)" })
    }
}

/// A text for people, on one line: control characters are escaped, and nothing else.
pub(crate) fn readable(text: &str) -> String {
    let escaped = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

impl fmt::Display for Transcript {
    /// For people: a line for each entry, with its epoch and its side.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Entry { epoch, at, wire } in &self.entries {
            write!(f, "{epoch} {:>10.3} ms ", at.as_secs_f64() * 1e3)?;
            match wire {
                Wire::Opened { args } => writeln!(f, "opened {}", args.join(" ")),
                Wire::Host(line) => writeln!(f, "host > {line}"),
                Wire::Cli(line) => writeln!(f, "cli  > {line}"),
                Wire::Ended { exit: Some(exit) } => writeln!(f, "the CLI {exit}"),
                Wire::Ended { exit: None } => writeln!(f, "let go of the CLI"),
            }?;
        }
        Ok(())
    }
}
