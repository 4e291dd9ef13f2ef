//! Texts on their way to PostgreSQL and back.
//!
//! PostgreSQL keeps no NUL in a text, and names, keys and tenants are any UTF-8. So U+0000 goes as U+0001 U+0001 and U+0001 as
//! U+0001 U+0002, which keeps the order of the bytes. JSON that is kept as text has no such characters: JSON escapes them.

use std::time::Duration;

use serde_json::Value;

use crate::error::BackendError;
use crate::id::Timestamp;
use crate::registry::{Result, checked_json};

/// The greatest number that PostgreSQL keeps in a `bigint`.
const MOST: u64 = i64::MAX.unsigned_abs();

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\0' => escaped.push_str("\u{1}\u{1}"),
            '\u{1}' => escaped.push_str("\u{1}\u{2}"),
            other => escaped.push(other),
        }
    }
    escaped
}

fn unescape(text: &mut String) {
    if !text.contains('\u{1}') {
        return;
    }
    let escaped = std::mem::take(text);
    let mut characters = escaped.chars();
    while let Some(character) = characters.next() {
        text.push(match character {
            '\u{1}' if characters.next() == Some('\u{1}') => '\0',
            other => other,
        });
    }
}

/// Escapes every text of a request, the names of fields left out.
pub(super) fn escape_all(value: &mut Value) {
    match value {
        Value::String(text) if text.contains(['\0', '\u{1}']) => *text = escape(text),
        Value::Array(items) => items.iter_mut().for_each(escape_all),
        Value::Object(fields) => fields.values_mut().for_each(escape_all),
        _ => {}
    }
}

/// Undoes [`escape`] in every text of an answer, the names of fields left out.
pub(super) fn unescape_all(value: &mut Value) {
    match value {
        Value::String(text) => unescape(text),
        Value::Array(items) => items.iter_mut().for_each(unescape_all),
        Value::Object(fields) => fields.values_mut().for_each(unescape_all),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// JSON as it is kept: a text that can be read again.
pub(super) fn kept(value: &impl serde::Serialize) -> Result<String> {
    String::from_utf8(checked_json(value)?).map_err(BackendError::damaged)
}

/// A number that fits into a `bigint`.
pub(super) fn number(number: impl TryInto<u64>) -> u64 {
    number.try_into().unwrap_or(MOST).min(MOST)
}

pub(super) fn time(time: Timestamp) -> u64 {
    number(time.0)
}

pub(super) fn millis(duration: Duration) -> u64 {
    number(duration.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_comes_back_and_keeps_its_place() {
        let texts = [
            "",
            "\0",
            "\0\0",
            "\0\u{1}",
            "\0a",
            "\u{1}",
            "\u{1}\0",
            "\u{1}\u{1}",
            "\u{1}\u{2}",
            "\u{2}",
            "a",
            "a\0",
            "ä",
        ];
        for text in texts {
            let mut value = Value::String(escape(text));
            assert!(!value.as_str().unwrap().contains('\0'));
            unescape_all(&mut value);
            assert_eq!(value, text);
        }
        for pair in texts.windows(2) {
            assert!(pair[0] < pair[1] && escape(pair[0]) < escape(pair[1]), "{pair:?}");
        }
    }
}
