//! Bounds the memory of a typed view.
//!
//! In JSON a value may take three bytes (`[],`); as a [`Value`](serde_json::Value) or a content block it takes about
//! fifty times as much. So a typed view has a limited number of values: a list or an object with too many is read as
//! `null`. The JSON of the message stays complete.
//!
//! One pass over the text, without recursion: values deeper than [`DEPTH`] count for the container at that depth.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;

/// Number of values that any view may have.
const ALWAYS: usize = 8 << 10;

/// A long message may have one value per this many bytes.
const BYTES: usize = 128;

/// Depth up to which containers are counted separately.
const DEPTH: usize = 16;

/// A container whose end was not reached yet.
#[derive(Clone, Copy, Default)]
struct OpenContainer {
    start: usize,
    values: usize,
}

/// Replaces containers with too many values by `null`; `Err` with the rest if that still has too many. `text` is valid
/// JSON.
pub(super) fn abridge(text: &str) -> Result<Cow<'_, str>, String> {
    // Too short to hold too many values: each value but the first takes at least two bytes.
    if text.len() <= 2 * ALWAYS {
        return Ok(Cow::Borrowed(text));
    }
    let (left_out, fits) = too_many(text.as_bytes(), most_values(text.len()));
    match left_out.is_empty() {
        true if fits => Ok(Cow::Borrowed(text)),
        _ if fits => Ok(Cow::Owned(without(text, &left_out))),
        _ => Err(without(text, &left_out)),
    }
}

/// Number of values that a view of a text of this length may have.
pub(crate) fn most_values(bytes: usize) -> usize {
    ALWAYS.max(bytes / BYTES)
}

/// Number of values in a JSON text, without a value that stands alone. `text` is valid JSON.
pub(crate) fn values(text: &str) -> usize {
    let json = text.as_bytes();
    let (mut values, mut at) = (0, 0);
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => at = string_end(json, at),
            b',' | b'{' | b'[' => values += 1,
            _ => {}
        }
        at += 1;
    }
    values
}

/// Replaces these ranges by `null`.
fn without(text: &str, left_out: &[Range<usize>]) -> String {
    let length = text.len() + 4 * left_out.len() - left_out.iter().map(ExactSizeIterator::len).sum::<usize>();
    let (mut rest, mut at) = (String::with_capacity(length), 0);
    for range in left_out {
        rest.push_str(text.get(at..range.start).unwrap_or_default());
        rest.push_str("null");
        at = range.end;
    }
    rest.push_str(text.get(at..).unwrap_or_default());
    rest
}

/// The ranges of the containers with more than `most` values, not counting values of inner ranges; and whether the
/// outermost container has at most `most` values.
fn too_many(json: &[u8], most: usize) -> (Vec<Range<usize>>, bool) {
    let mut left_out: Vec<Range<usize>> = Vec::new();
    let mut open = [OpenContainer::default(); DEPTH];
    // `depth` is the number of open containers; `told` of them are counted separately.
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = json.get(at) {
        let told = depth.min(DEPTH);
        match byte {
            b'"' => at = string_end(json, at),
            b',' if told > 0 => open[told - 1].values += 1,
            b'{' | b'[' => {
                if depth < DEPTH {
                    open[depth] = OpenContainer { start: at, values: 1 };
                } else {
                    open[DEPTH - 1].values += 1;
                }
                depth += 1;
            }
            b'}' | b']' if depth > DEPTH => depth -= 1,
            b'}' | b']' if depth > 0 => {
                depth -= 1;
                let OpenContainer { start, values } = open[depth];
                if depth == 0 {
                    return (left_out, values <= most);
                }
                if values > most {
                    // Inner ranges are part of this range.
                    while left_out.last().is_some_and(|inner| inner.start > start) {
                        left_out.pop();
                    }
                    left_out.push(start..at + 1);
                    open[depth - 1].values += 1;
                } else {
                    open[depth - 1].values += values;
                }
            }
            _ => {}
        }
        at += 1;
    }
    (left_out, true)
}

/// The position of the closing quote of the string that starts at `at`.
fn string_end(json: &[u8], mut at: usize) -> usize {
    loop {
        let rest = json.get(at + 1..).unwrap_or_default();
        at += 1 + memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
        match json.get(at) {
            Some(b'\\') => at += 1,
            _ => return at,
        }
    }
}

// Guards: a message of very many values, or nested without end
#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(text: &str) -> Option<Value> {
        abridge(text).ok().map(|text| serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn only_containers_with_too_many_values_are_left_out() {
        let many = |value: &str| vec![value; ALWAYS + 1].join(",");
        for value in ["[]", "1", r#""a]\"\\""#, "{}", r#"{"a":1}"#] {
            let text = format!(
                r#"{{"type":"x","a":{{"b":[{}],"c":[1,2]}},"d":"{}","e":[[{}],3]}}"#,
                many(value),
                "[,".repeat(20_000),
                many(value)
            );
            let wanted = json!({ "type": "x", "a": { "b": null, "c": [1, 2] }, "d": "[,".repeat(20_000), "e": [null, 3] });
            assert_eq!(read(&text), Some(wanted), "{value}");
        }
    }

    #[test]
    fn values_are_counted_outside_of_strings() {
        for (text, count) in [
            ("1", 0),
            (r#""[,""#, 0),
            ("[]", 1),
            (r#"[1,"a\",{",[],{}]"#, 6),
            (r#"{"a":[1,2],"b":{"c":3}}"#, 5),
        ] {
            assert_eq!(values(text), count, "{text}");
        }
    }

    #[test]
    fn many_small_containers_count_for_the_outer_container() {
        let part = format!("[{}]", vec!["1"; 100].join(","));
        let text = format!(r#"{{"type":"x","a":[{}],"b":1}}"#, vec![part; 100].join(","));
        assert_eq!(read(&text), Some(json!({ "type": "x", "a": null, "b": 1 })));
        let text = format!(
            "{{\"type\":\"x\",{}}}",
            (0..9000).map(|n| format!("\"{n}\":1")).collect::<Vec<_>>().join(",")
        );
        assert_eq!(read(&text), None);
    }

    #[test]
    fn endless_nesting_is_cut_at_some_depth() {
        let deep = 100_000;
        let text = format!(r#"{{"type":"x","a":{}1{},"b":[2]}}"#, r#"{"a":"#.repeat(deep), "}".repeat(deep));
        let read = read(&text).unwrap();
        assert_eq!((&read["type"], &read["b"]), (&json!("x"), &json!([2])));
        assert!(read["a"]["a"].is_object());
    }

    #[test]
    fn large_texts_with_few_values_are_read_whole() {
        let texts = vec![format!("\"{}\"", "x".repeat(300)); 8000].join(",");
        let text = format!(r#"{{"type":"x","a":[{texts}]}}"#);
        assert!(matches!(abridge(&text), Ok(Cow::Borrowed(_))));
    }
}
