//! Text for the screen: without escape sequences, and broken into rows that fit the window.

use greenroom::permission::plain_text;
use textwrap::core::display_width;
use textwrap::{Options, WordSplitter};

/// A sequence that is longer than this is dropped, so that a title that never ends does not hold back the answer.
const LONGEST_SEQUENCE: usize = 4096;

/// Removes escape sequences from a text that comes in pieces. A sequence may be cut anywhere, so the start of a
/// sequence waits for the piece with its end.
#[derive(Default)]
pub(crate) struct PlainPieces {
    waiting: String,
}

impl PlainPieces {
    /// The plain text of the next piece.
    pub(crate) fn next(&mut self, piece: &str) -> String {
        let mut text = std::mem::take(&mut self.waiting);
        text.push_str(piece);
        let Some(last) = text.rfind('\u{1b}') else { return plain_text(&text) };
        // Nothing visible follows the escape character: its sequence may go on in the next piece.
        if plain_text(&text[last..]).is_empty() && text.len() - last <= LONGEST_SEQUENCE {
            self.waiting = text.split_off(last);
        }
        plain_text(&text)
    }
}

/// Breaks a text into rows while it comes. Words stay whole unless a word is wider than the window.
#[derive(Default)]
pub(crate) struct Flow {
    /// The row that is not finished.
    open: String,
}

impl Flow {
    /// Adds plain text, and returns the rows that are finished. Without a width only line breaks end a row.
    pub(crate) fn add(&mut self, text: &str, width: Option<usize>) -> Vec<String> {
        let mut rows = Vec::new();
        let mut pieces = text.split('\n').peekable();
        while let Some(piece) = pieces.next() {
            self.open.push_str(piece);
            if let Some(width) = width {
                rows.extend(self.full_rows(width));
            }
            if pieces.peek().is_some() {
                rows.push(std::mem::take(&mut self.open).trim_end().to_owned());
            }
        }
        rows
    }

    /// Takes the rows that are full off the open row.
    fn full_rows(&mut self, width: usize) -> Vec<String> {
        let rows = textwrap::wrap(&self.open, options(width));
        let (Some(last), true) = (rows.last(), rows.len() > 1) else { return Vec::new() };
        // The last row is a part of the text, and everything from its start on stays open: also the space at the end,
        // which wrapping leaves out.
        let from = last.as_ptr() as usize - self.open.as_ptr() as usize;
        let full = rows[..rows.len() - 1].iter().map(|row| row.to_string()).collect();
        self.open.drain(..from);
        full
    }

    pub(crate) fn open(&self) -> &str {
        &self.open
    }

    /// The last row, if it has any text.
    pub(crate) fn finish(&mut self) -> Option<String> {
        Some(std::mem::take(&mut self.open).trim_end().to_owned()).filter(|row| !row.is_empty())
    }
}

fn options(width: usize) -> Options<'static> {
    // The rows are parts of the text: nothing is put in, such as a hyphen.
    Options::new(width.max(1)).word_splitter(WordSplitter::NoHyphenation)
}

/// Breaks a whole text into rows.
pub(crate) fn wrap(text: &str, width: Option<usize>) -> Vec<String> {
    match width {
        Some(width) => textwrap::wrap(text, options(width)).into_iter().map(String::from).collect(),
        None => text.lines().map(str::to_owned).collect(),
    }
}

/// The first rows of a long text, and how many lines were left out.
pub(crate) fn shorten(text: &str, lines: usize, characters: usize) -> String {
    let mut short: Vec<String> = Vec::new();
    for line in text.lines().take(lines) {
        match line.char_indices().nth(characters) {
            Some((end, _)) => short.push(format!("{}…", &line[..end])),
            None => short.push(line.to_owned()),
        }
    }
    match text.lines().count().saturating_sub(lines) {
        0 => {}
        more => short.push(format!("… ({more} more lines)")),
    }
    short.join("\n")
}

/// A number of things: "1 step", "2 steps".
pub(crate) fn count(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// The typed text in rows of the window, and where the cursor stands in them, as (row, column). `label` comes before
/// the first row.
pub(crate) fn lay_out(label: &str, text: &str, cursor: usize, width: usize) -> (Vec<String>, (usize, usize)) {
    let mut rows = vec![label.to_owned()];
    let (mut column, mut at) = (display_width(label), None);
    for (index, char) in text.char_indices() {
        let char = if char == '\t' { ' ' } else { char };
        let mut bytes = [0; 4];
        let wide = if char.is_control() { 0 } else { display_width(char.encode_utf8(&mut bytes)) };
        if char != '\n' && column + wide > width && column > 0 {
            rows.push(String::new());
            column = 0;
        }
        if index == cursor {
            at = Some((rows.len() - 1, column));
        }
        if char == '\n' {
            rows.push(" ".repeat(display_width(label).min(width / 2)));
            column = rows.last().map_or(0, String::len);
        } else if !char.is_control() {
            if let Some(row) = rows.last_mut() {
                row.push(char);
            }
            column += wide;
        }
    }
    let end = (rows.len() - 1, column);
    (rows, at.unwrap_or(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_that_is_cut_anywhere_leaves_no_trace() {
        let text = "a\u{1b}[31mred\u{1b}[0m\u{1b}]0;title\u{7}b\u{9b}c\u{1b}[2K\rd\u{8}";
        for cut in 0..=text.len() {
            if text.is_char_boundary(cut) {
                let mut pieces = PlainPieces::default();
                let plain = pieces.next(&text[..cut]) + &pieces.next(&text[cut..]);
                assert_eq!(plain, "aredbcd", "cut at {cut}");
            }
        }
        let mut pieces = PlainPieces::default();
        let plain: String = text.chars().map(|char| pieces.next(&char.to_string())).collect();
        assert_eq!(plain, "aredbcd");
    }

    #[test]
    fn a_title_without_end_does_not_hold_back_the_answer() {
        let mut pieces = PlainPieces::default();
        assert_eq!(pieces.next("\u{1b}]0;"), "");
        assert_eq!(pieces.next(&"x".repeat(LONGEST_SEQUENCE)), "");
        assert_eq!(pieces.next("here"), "here");
    }

    #[test]
    fn pieces_are_wrapped_like_the_whole_text() {
        let text = "Let me say  it:\n  indented words, and anextremelylongword that fits no row.\n\n日本語の文章も折り返す。 end";
        for width in 4..30 {
            let whole: Vec<String> = text.split('\n').flat_map(|line| wrap(line, Some(width))).collect();
            let mut flow = Flow::default();
            let mut rows: Vec<String> =
                text.chars().flat_map(|char| flow.add(&char.to_string(), Some(width))).collect();
            rows.extend(flow.finish());
            assert!(rows.iter().all(|row| display_width(row) <= width), "width {width}: {rows:?}");
            let words = |rows: &[String]| rows.concat().replace(' ', "");
            assert_eq!(words(&rows), words(&whole), "width {width}");
        }
    }

    #[test]
    fn the_cursor_follows_wide_characters_and_line_breaks() {
        assert_eq!(lay_out("> ", "ab", 1, 10), (vec!["> ab".into()], (0, 3)));
        assert_eq!(lay_out("> ", "日本", 6, 5), (vec!["> 日".into(), "本".into()], (1, 2)));
        assert_eq!(lay_out("> ", "a\nb", 3, 10), (vec!["> a".into(), "  b".into()], (1, 3)));
        assert_eq!(lay_out("> ", "a\u{1b}[1mb", 6, 10).0, ["> a[1mb"]);
    }
}
