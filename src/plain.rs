//! Removes terminal escape sequences from texts of the CLI.

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
pub(crate) fn make_plain(text: &mut String) {
    if text.chars().any(|char| char.is_control() && char != '\n') {
        *text = plain_text(text);
    }
}

/// [`make_plain`] on an owned text.
pub(crate) fn plain(text: impl Into<String>) -> String {
    let mut text = text.into();
    make_plain(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_removed_and_plain_text_is_not_copied() {
        let text = "a\u{1b}]0;title\u{7}b\u{1b}[2Jc\u{9b}d\r\n\te\u{1b}(0é\u{8}";
        assert_eq!(plain(text), "abcd\n eé");
        let plain = "two\nlines é".to_owned();
        let (before, mut after) = (plain.as_ptr(), plain);
        make_plain(&mut after);
        assert_eq!((after.as_ptr(), &*after), (before, "two\nlines é"));
    }
}
