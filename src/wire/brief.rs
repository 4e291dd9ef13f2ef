//! Texts that stay short: `Debug` leaves out fields that are not set, and long texts are cut, with their length.

use std::fmt::{self, Debug, DebugStruct, Write};

/// Characters of a text that are written before it is cut.
const TEXT: usize = 200;

/// Characters of a value that are written before it is cut.
const VALUE: usize = 2_000;

/// Writes a value as its `Debug` does, with long texts and long values cut.
pub(crate) struct Brief<'a>(pub(crate) &'a dyn Debug);

impl Debug for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cut = Cut { out: f, written: 0, seen: 0, text: None, escaped: false };
        write!(cut, "{:?}", self.0)?;
        let Cut { written, seen, .. } = cut;
        if written > VALUE { write!(f, "... ({seen} characters)") } else { Ok(()) }
    }
}

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

/// Writes a field, unless it is not set: `None`, false, zero or empty.
pub(crate) fn show(shown: &mut DebugStruct<'_, '_>, name: &str, value: &dyn Debug) {
    if !is_unset(value) {
        shown.field(name, &Brief(value));
    }
}

fn is_unset(value: &dyn Debug) -> bool {
    let mut start = ShortText { text: [0; 8], length: 0 };
    // The writer refuses what is longer than any of these.
    let short = write!(start, "{value:?}").is_ok();
    let text = start.text.get(..start.length).unwrap_or_default();
    short && [&b"None"[..], b"Null", b"false", b"0", b"0.0", b"\"\"", b"[]", b"{}"].contains(&text)
}

/// The first bytes of a text.
struct ShortText {
    text: [u8; 8],
    length: usize,
}

impl Write for ShortText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.text.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// Passes on what a `Debug` writes, except for the rest of a long text or value.
struct Cut<'a, 'f> {
    out: &'a mut fmt::Formatter<'f>,
    /// Characters that were passed on.
    written: usize,
    /// Characters that the value has.
    seen: usize,
    /// Characters of the quoted text that is being written.
    text: Option<usize>,
    /// A backslash stands before the next character.
    escaped: bool,
}

impl Cut<'_, '_> {
    fn pass(&mut self, character: char) -> fmt::Result {
        self.written += 1;
        if self.written <= VALUE { self.out.write_char(character) } else { Ok(()) }
    }
}

impl Write for Cut<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|character| self.write_char(character))
    }

    fn write_char(&mut self, character: char) -> fmt::Result {
        self.seen += 1;
        match (self.text, character) {
            (None, '"') => self.text = Some(0),
            (None, _) => {}
            (Some(length), '"') if !self.escaped => {
                self.text = None;
                self.pass('"')?;
                if length > TEXT {
                    for character in format!("... ({length} characters)").chars() {
                        self.pass(character)?;
                    }
                }
                return Ok(());
            }
            (Some(length), _) => {
                self.escaped = character == '\\' && !self.escaped;
                self.text = Some(length + 1);
                if length >= TEXT {
                    return Ok(());
                }
            }
        }
        self.pass(character)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Shown(Vec<(&'static str, Box<dyn Debug>)>);

    impl Debug for Shown {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let mut shown = f.debug_struct("Shown");
            self.0.iter().for_each(|(name, value)| show(&mut shown, name, &**value));
            shown.finish()
        }
    }

    #[test]
    fn fields_that_are_not_set_are_left_out() {
        let shown = Shown(vec![
            ("a", Box::new(None::<u8>)),
            ("b", Box::new("")),
            ("c", Box::new(0)),
            ("d", Box::new(Vec::<u8>::new())),
            ("e", Box::new(Some("x"))),
            ("f", Box::new(true)),
        ]);
        assert_eq!(format!("{shown:?}"), r#"Shown { e: Some("x"), f: true }"#);
    }

    #[test]
    fn long_texts_are_cut_with_their_length_and_the_rest_is_written() {
        let value = ("a".repeat(TEXT), "\"\\".repeat(500), "end");
        let text = format!("{:?}", Brief(&value));
        assert!(text.contains(&format!("\"{}\"", "a".repeat(TEXT))), "{text}");
        assert!(text.contains("... (2000 characters), \"end\")"), "{text}");
    }

    #[test]
    fn long_values_are_cut_with_their_length() {
        let value: Vec<u32> = vec![1; 100_000];
        let text = format!("{:?}", Brief(&value));
        assert!(text.len() < VALUE + 50 && text.ends_with("... (300000 characters)"), "{text}");
    }
}
