//! Texts that stay short.

use std::fmt;

/// Characters of a text that are written before it is cut.
const TEXT: usize = 200;

/// Writes a text of the CLI in an error, cut after 200 characters: a name may be as long as a line.
pub(crate) struct Short<'a>(pub(crate) &'a str);

impl Short<'_> {
    /// Whether the text is short enough to be written whole.
    pub(crate) fn is_whole(&self) -> bool {
        self.0.char_indices().nth(TEXT).is_none()
    }
}

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(TEXT) {
            Some((end, _)) => write!(f, "{}... ({} characters)", &self.0[..end], self.0.chars().count()),
            None => f.write_str(self.0),
        }
    }
}
