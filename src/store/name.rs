//! Any text as a file name, and back.

/// Escapes a text as a file name that is not empty, has no dot, and contains no separator.
pub(super) fn escape(name: &str) -> String {
    let mut escaped = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => escaped.push(byte.into()),
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    if escaped.is_empty() { "%".into() } else { escaped }
}

pub(super) fn unescape(name: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| *byte == b'%') {
            Some(escaped) => {
                bytes.push(escaped);
                rest = &after[2..];
            }
            None => {
                bytes.extend((*byte != b'%').then_some(*byte));
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn different_names_stay_different_and_unescape_unchanged(name in "\\PC{0,40}|[./%\\\\a]{0,8}", other in "[./%a]{0,8}") {
            let escaped = escape(&name);
            prop_assert!(!escaped.is_empty() && !escaped.contains(['/', '\\', '.', '\0']));
            prop_assert_eq!(unescape(&escaped), name.as_str());
            prop_assert_eq!(escape(&other) == escaped, other == name);
        }
    }
}
