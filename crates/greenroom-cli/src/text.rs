//! Text of others in a terminal: what is in a row may have been written by anybody.

use std::borrow::Cow;
use std::fmt::Write;
use std::time::{Duration, SystemTime};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// True for characters that a terminal obeys, that change the order of others, or that nobody sees.
fn is_active(character: char) -> bool {
    character.is_control()
        || matches!(character,
            // Soft hyphen, the Arabic letter mark, the Mongolian vowel separator.
            '\u{ad}' | '\u{61c}' | '\u{180e}'
            // Marks, embeddings, overrides and isolates of direction, separators of lines, and characters without a width.
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            // Annotations, controls of shorthand and of music, and tags.
            | '\u{fff9}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
}

/// A text with control characters and backslashes escaped, on one line and without tabs.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|character| is_active(character) || character == '\\') {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_active(character) || character == '\\' {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown.into()
}

/// JSON in which the characters are escaped that JSON leaves alone and a terminal obeys. They are in texts only.
pub(crate) fn shown_json(json: &str) -> Cow<'_, str> {
    if !json.chars().any(is_active) {
        return json.into();
    }
    let mut shown = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if is_active(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // An error: a text in memory takes everything.
                write!(shown, "\\u{unit:04x}").ok();
            }
        } else {
            shown.push(character);
        }
    }
    shown.into()
}

/// The columns that a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// The text in `width` columns: cut, with a mark.
pub(crate) fn fit(text: &str, width: usize) -> Cow<'_, str> {
    if text.width() <= width {
        return text.into();
    }
    let (mut cut, mut taken) = (String::new(), 0);
    for character in text.chars() {
        let columns = character.width().unwrap_or(0);
        if taken + columns + 1 > width {
            break;
        }
        cut.push(character);
        taken += columns;
    }
    if width > 0 {
        cut.push('…');
    }
    cut.into()
}

/// The first line of a text that is not empty, cut after `most` characters. `…` stands for the rest of the text.
pub(crate) fn first_line(text: &str, most: usize) -> String {
    let text = text.trim();
    let mut line: String = text.lines().next().unwrap_or_default().chars().take(most).collect();
    if line.len() < text.len() {
        line.push('…');
    }
    line
}

/// A time in its largest unit, such as `3m`.
pub(crate) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Reads a time such as `90s`, `15m`, `24h` or `7d`.
pub(crate) fn read_age(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time: write a number and its unit, such as 90s, 15m, 24h or 7d");
    let (at, unit) = text.char_indices().next_back().ok_or_else(wrong)?;
    let number: u64 = text[..at].parse().map_err(|_| wrong())?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    Ok(Duration::from_secs(number.saturating_mul(seconds)))
}

/// Reads the start of a day in UTC, such as `2026-11-27`.
pub(crate) fn read_day(text: &str) -> Result<SystemTime, String> {
    let day = humantime::parse_rfc3339(&format!("{text}T00:00:00Z"));
    day.map_err(|_| format!("`{text}` is no day: write it as 2026-11-27"))
}

/// A moment in milliseconds since 1970, such as `2026-11-27T14:07:05Z`.
pub(crate) fn moment_of(millis: u64) -> String {
    // The last second of the year 9999.
    if millis > 253_402_300_799_999 {
        return millis.to_string();
    }
    humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + Duration::from_millis(millis)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_reads_no_sequence_in_a_shown_text() {
        let text = "a\u{1b}]0;x\u{7}\tb\n\u{9b}31m\u{202e}c\\\u{7f}";
        let plain = shown(text);
        assert_eq!(plain, "a\\u{1b}]0;x\\u{7}\\tb\\n\\u{9b}31m\\u{202e}c\\\\\\u{7f}");
        let json = serde_json::to_string(text).unwrap();
        let escaped = shown_json(&json);
        assert!(!escaped.chars().any(is_active), "{escaped}");
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
        assert!(matches!(shown("日本 é"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_shown_text_changes_no_order_and_hides_nothing() {
        let marks = [0x61c, 0x200e, 0x200f];
        let wrappers = (0x202a..=0x202e).chain(0x2066..=0x2069);
        let unseen =
            [0xad, 0x180e, 0x200b, 0x200d, 0x2028, 0x2029, 0x2060, 0xfeff, 0xfffa, 0x1d173, 0xe0001, 0xe007f];
        for code in marks.into_iter().chain(wrappers).chain(unseen) {
            let text = format!("a{}b", char::from_u32(code).unwrap());
            assert_eq!(shown(&text), format!("a\\u{{{code:x}}}b"));
            let json = serde_json::to_string(&text).unwrap();
            let escaped = shown_json(&json);
            assert!(escaped.is_ascii(), "{escaped}");
            assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
        }
    }

    #[test]
    fn days_are_those_of_utc() {
        let moment = read_day("2026-11-27").unwrap();
        assert_eq!(moment, SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_737_600));
        assert_eq!(moment_of(1_795_737_600_000), "2026-11-27T00:00:00Z");
        assert_eq!(read_day("2024-02-29").map(|_| ()), Ok(()));
        for wrong in ["", "2026-02-29", "2026-13-01", "27.11.2026", "2026-11-27T10:00:00Z", "1969-12-31"] {
            assert!(read_day(wrong).is_err(), "{wrong}");
        }
        // Past the years that have a form.
        assert_eq!(moment_of(u64::MAX), u64::MAX.to_string());
    }

    #[test]
    fn a_text_is_cut_by_its_columns() {
        assert_eq!(fit("日本語", 6), "日本語");
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(fit("日本語", 4), "日…");
        assert_eq!(fit("abc", 1), "…");
        assert_eq!(fit("abc", 0), "");
    }

    #[test]
    fn a_line_of_a_text_is_bounded_in_characters() {
        assert_eq!(first_line(" \n\tabc \n", 3), "abc");
        assert_eq!(first_line("日本語", 2), "日本…");
        assert_eq!(first_line("a\nb", 80), "a…");
        assert_eq!(first_line("\n", 80), "");
        // Characters without a width count, too.
        let unseen = "\u{200b}\u{1b}".repeat(1000);
        assert_eq!(first_line(&unseen, 80).chars().count(), 81);
    }

    #[test]
    fn times_have_a_unit() {
        assert_eq!(read_age("15m"), Ok(Duration::from_secs(900)));
        assert_eq!(read_age("7d"), Ok(Duration::from_secs(604_800)));
        for wrong in ["", "7", "d", "-1h", "1w", "1 h", "七d"] {
            assert!(read_age(wrong).is_err(), "{wrong}");
        }
        assert_eq!(age(Duration::from_secs(7205)), "2h");
    }
}
