//! The wire of a session, as plain data.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use greenroom::transport::Exit;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// The wire of a session, in both directions and over all incarnations of its CLI, in the order in which it went by.
///
/// A [`Recorder`](crate::Recorder) records it, a [`Replay`](crate::Replay) plays it back, and
/// [`invariants::check`](crate::invariants::check) checks it. On disk it is JSON lines, an [`Entry`] per line.
///
/// ```
/// use greenroom_testkit::Transcript;
///
/// let text = r#"{"epoch":1,"at_us":0,"opened":{"args":["--print"]}}
/// {"epoch":1,"at_us":12,"host":"{\"type\":\"user\",\"uuid\":\"u1\"}"}
/// {"epoch":1,"at_us":90,"ended":{"exit":{"code":0}}}
/// "#;
/// let transcript: Transcript = text.parse()?;
/// assert_eq!(transcript.entries().len(), 3);
/// assert_eq!(transcript.to_json_lines(), text);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    entries: Vec<Entry>,
}

/// One thing that went by.
///
/// ```
/// use std::time::Duration;
/// use greenroom_testkit::{Entry, Line, Wire};
///
/// let entry = Entry::new(1, Duration::from_micros(7), Wire::Host(Line::from("{}")));
/// assert_eq!(serde_json::to_string(&entry)?, r#"{"epoch":1,"at_us":7,"host":"{}"}"#);
/// # serde_json::Result::Ok(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Entry {
    /// The incarnation of the CLI, counted from 1.
    pub epoch: u64,
    /// When, counted from the start of the recording on the clock of tokio; in microseconds in JSON.
    #[serde(rename = "at_us", with = "micros")]
    pub at: Duration,
    /// What.
    #[serde(flatten)]
    pub wire: Wire,
}

/// What went by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// A side has closed its pipe.
    Closed {
        /// The side.
        by: Side,
    },
    /// The incarnation is over.
    Ended {
        /// Exit of the process; `None` if the host never asked.
        exit: Option<Exit>,
    },
}

/// A side of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The library.
    Host,
    /// The CLI.
    Cli,
}

/// A line of the wire, without its end. In JSON a string; what is no UTF-8, or was not ended, is an object.
///
/// ```
/// use greenroom_testkit::Line;
///
/// let half = Line::cut(b"{\"type\":\"us".to_vec());
/// assert!(!half.is_whole());
/// assert_eq!(serde_json::to_string(&half)?, r#"{"text":"{\"type\":\"us","cut":true}"#);
/// let odd: Line = serde_json::from_str(r#"{"hex":"ff00"}"#)?;
/// assert_eq!(odd.bytes(), [0xff, 0x00]);
/// # serde_json::Result::Ok(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Line {
    bytes: Vec<u8>,
    whole: bool,
}

impl Line {
    /// A line of these bytes, without its end.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), whole: true }
    }

    /// The beginning of a line whose end never came.
    pub fn cut(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), whole: false }
    }

    /// The bytes of the line.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether its end came.
    pub fn is_whole(&self) -> bool {
        self.whole
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

impl From<&str> for Line {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<&Value> for Line {
    fn from(value: &Value) -> Self {
        Self::new(value.to_string())
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}", self.text(), if self.whole { "" } else { " (cut)" })
    }
}

impl fmt::Display for Line {
    /// The line as it is, so that JSON can be copied. Only control characters are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", readable(&self.text()), if self.whole { "" } else { " (cut)" })
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

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WrittenLine {
    Text(String),
    Odd {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hex: Option<String>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cut: bool,
    },
}

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let cut = !self.whole;
        let written = match String::from_utf8(self.bytes.clone()) {
            Ok(text) if self.whole => WrittenLine::Text(text),
            Ok(text) => WrittenLine::Odd { text: Some(text), hex: None, cut },
            Err(_) => {
                let hex = self.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                WrittenLine::Odd { text: None, hex: Some(hex), cut }
            }
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        Ok(match WrittenLine::deserialize(deserializer)? {
            WrittenLine::Text(text) => Self::new(text),
            WrittenLine::Odd { text: Some(text), hex: None, cut } => {
                Self { bytes: text.into_bytes(), whole: !cut }
            }
            WrittenLine::Odd { text: None, hex: Some(hex), cut } => {
                let pairs = hex.as_bytes().chunks(2);
                let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
                let bytes = pairs.map(byte).collect::<Option<Vec<u8>>>();
                Self { bytes: bytes.ok_or_else(|| D::Error::custom("not hexadecimal"))?, whole: !cut }
            }
            WrittenLine::Odd { .. } => return Err(D::Error::custom("a line has either `text` or `hex`")),
        })
    }
}

impl Entry {
    /// Something that went by in this incarnation, so long after the start.
    pub fn new(epoch: u64, at: Duration, wire: Wire) -> Self {
        Self { epoch, at, wire }
    }
}

impl Transcript {
    /// A transcript of these entries.
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Self {
        Self { entries: entries.into_iter().collect() }
    }

    /// All entries, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Adds what went by after it.
    pub fn extend(&mut self, later: impl IntoIterator<Item = Entry>) {
        self.entries.extend(later);
    }

    /// The incarnations in it, in order.
    pub fn epochs(&self) -> Vec<u64> {
        let mut epochs: Vec<u64> = self.entries.iter().map(|entry| entry.epoch).collect();
        epochs.sort_unstable();
        epochs.dedup();
        epochs
    }

    /// As JSON lines.
    pub fn to_json_lines(&self) -> String {
        let line = |entry: &Entry| serde_json::to_string(entry).unwrap_or_default() + "\n";
        self.entries.iter().map(line).collect()
    }
}

impl FromStr for Transcript {
    type Err = serde_json::Error;

    /// Reads JSON lines; blank ones are passed over.
    fn from_str(text: &str) -> Result<Self, serde_json::Error> {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        Ok(Self { entries: lines.map(serde_json::from_str).collect::<Result<_, _>>()? })
    }
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
                Wire::Closed { by } => writeln!(f, "{by:?} closed its end"),
                Wire::Ended { exit: Some(exit) } => writeln!(f, "the CLI {exit}"),
                Wire::Ended { exit: None } => writeln!(f, "let go of the CLI"),
            }?;
        }
        Ok(())
    }
}

mod micros {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(value.as_micros()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_micros)
    }
}
