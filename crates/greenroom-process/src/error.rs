//! The error of a start, and the report that errors print.

use std::error::Error as StdError;
use std::fmt;

/// Prints an error with its causes, for people: the text of the error, and a line `Caused by: …` for each
/// [source](StdError::source) whose text is not printed yet. With `{:#}` all texts are on one line, joined by `: `.
///
/// `Debug` of this library's errors begins with this report, because `fn main() -> Result<(), Box<dyn Error>>` prints
/// `Debug`. The report itself prints the `Display` of each cause, never its `Debug`, and removes control characters
/// other than line breaks.
///
/// ```
/// use greenroom_process::ErrorReport;
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("the price list cannot be read")]
/// struct PriceList(#[source] std::io::Error);
///
/// let error = PriceList(std::io::Error::other("disk full"));
/// assert_eq!(ErrorReport(&error).to_string(), "the price list cannot be read\nCaused by: disk full");
/// assert_eq!(format!("{:#}", ErrorReport(&error)), "the price list cannot be read: disk full");
/// ```
#[derive(Clone, Copy)]
pub struct ErrorReport<'a>(pub &'a (dyn StdError + 'static));

impl fmt::Display for ErrorReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (between, line_break) = if f.alternate() { (": ", " ") } else { ("\nCaused by: ", "\n") };
        let mut printed = String::new();
        let mut next = Some(self.0);
        while let Some(error) = next {
            next = error.source();
            let text = plain(&error.to_string()).replace('\n', line_break);
            if printed.contains(&text) {
                continue;
            }
            if !printed.is_empty() {
                printed.push_str(between);
            }
            printed.push_str(&text);
        }
        f.write_str(&printed)
    }
}

impl fmt::Debug for ErrorReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn plain(text: &str) -> String {
    let text = text.trim().replace('\t', " ");
    text.chars().filter(|char| *char == '\n' || !char.is_control()).collect()
}

/// The reason why a process was not started, or a watchdog not set. `Debug` prints an [`ErrorReport`] and the kind.
#[derive(thiserror::Error)]
#[error("{message}{}", help.as_deref().map(|help| format!("; {help}")).unwrap_or_default())]
pub struct Error {
    kind: ErrorKind,
    message: String,
    help: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nKind: {:?}", ErrorReport(self), self.kind)
    }
}

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no such program.
    NotFound,
    /// The program exists, and the system cannot execute it.
    NotExecutable,
    /// The system has no memory, process, thread or open file left for the start.
    NoResources,
    /// No guardian runs, or it does not answer, and the start or the watchdog needs it.
    NoGuardian,
    /// The program could not be started, or not under the conditions that were asked for.
    Spawn,
}

/// The result of a start.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), help: None, source: None }
    }

    pub(crate) fn with_help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    pub(crate) fn with_source(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The text without the help.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Advice in a sentence. `None` if no advice is known.
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Takes the cause out of the error.
    pub fn into_source(self) -> Option<Box<dyn StdError + Send + Sync>> {
        self.source
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_start_prints_its_cause_once_and_its_kind() {
        let start = |text: &str| {
            let error = Error::new(ErrorKind::Spawn, text).with_help("check its permissions");
            format!("{:?}", error.with_source(std::io::Error::other("permission denied")))
        };
        assert_eq!(
            start("the program cannot be started"),
            "the program cannot be started; check its permissions\nCaused by: permission denied\nKind: Spawn"
        );
        assert_eq!(
            start("the program cannot be started: permission denied"),
            "the program cannot be started: permission denied; check its permissions\nKind: Spawn"
        );
    }

    #[test]
    fn a_report_has_no_control_characters_and_fits_on_a_line() {
        let cause = std::io::Error::other("\u{1b}[2Jtwo\nlines\u{7}\n");
        let error = Error::new(ErrorKind::Spawn, "it failed").with_source(cause);
        assert_eq!(ErrorReport(&error).to_string(), "it failed\nCaused by: [2Jtwo\nlines");
        assert_eq!(format!("{:#}", ErrorReport(&error)), "it failed: [2Jtwo lines");
    }
}
