//! Makes texts of the CLI fit to be shown and kept: without terminal escape sequences, and short.

/// Removes escape sequences and control characters from a text of the CLI. Line breaks stay; a tab becomes a space.
///
/// ```
/// assert_eq!(greenroom::permission::plain_text("\u{1b}[1mrm\u{1b}[0m -rf\u{7}"), "rm -rf");
/// ```
pub fn plain_text(text: &str) -> String {
    let text = strip_ansi_escapes::strip_str(text.replace('\t', " "));
    text.chars().filter(|char| *char == '\n' || !char.is_control()).collect()
}

/// Applies [`plain_text`]; does not copy a text without control characters.
fn make_plain(text: &mut String) {
    if text.chars().any(|char| char.is_control() && char != '\n') {
        *text = plain_text(text);
    }
}

/// Longest text in an event, an error or a snapshot, in bytes. The docs of [`Event`](crate::Event) repeat it.
pub(crate) const LONGEST: usize = 4 << 10;

/// Stands for the middle of a long text.
const CUT: &str = " ... (cut) ... ";

/// Applies [`plain_text`], and replaces the middle of a text that is longer than [`LONGEST`]: an error begins with what
/// failed and ends with the cause. Does not copy a short text without control characters.
pub(crate) fn shorten(text: &mut String) {
    if text.len() <= LONGEST {
        return make_plain(text);
    }
    // Cut before it is made plain, so that a long text is not copied.
    let half = (LONGEST - CUT.len()) / 2;
    // `str::floor_char_boundary` needs Rust 1.91. Each text has a boundary at both ends.
    let start = (0..=half).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let end = (text.len() - half..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    *text = [&*plain_text(&text[..start]), CUT, &*plain_text(&text[end..])].concat();
}

/// [`shorten`] on an owned text.
pub(crate) fn short(text: impl Into<String>) -> String {
    let mut text = text.into();
    shorten(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_removed_and_plain_text_is_not_copied() {
        let text = "a\u{1b}]0;title\u{7}b\u{1b}[2Jc\u{9b}d\r\n\te\u{1b}(0é\u{8}";
        assert_eq!(plain_text(text), "abcd\n eé");
        let plain = "two\nlines é".to_owned();
        let (before, mut after) = (plain.as_ptr(), plain);
        make_plain(&mut after);
        assert_eq!((after.as_ptr(), &*after), (before, "two\nlines é"));
    }

    #[test]
    fn a_long_text_loses_its_middle_and_is_not_cut_twice() {
        let whole = "é".repeat(LONGEST / 2);
        assert_eq!(short(whole.clone()), whole);
        for shift in 0..3 {
            let long = format!("{}\u{1b}[1mbegins {} ends", "x".repeat(shift), "é".repeat(1 << 20));
            let cut = short(long);
            assert!(cut[shift..].starts_with("begins é") && cut.ends_with("é ends"), "{cut}");
            assert!(cut.contains(CUT) && cut.len() <= LONGEST && cut.capacity() <= LONGEST, "{}", cut.len());
            assert_eq!(short(cut.clone()), cut);
        }
    }
}
