//! Finds bytes in JSON: those that have to be escaped in a string, and escapes of surrogates.

use memchr::{memchr, memmem};

/// Bytes per step in long runs without a match. A loop without a branch over so many compiles to vector instructions.
const BLOCK: usize = 32;

/// Words to look at before blocks: most runs without a match are short.
const WORDS: usize = 8;

/// The number 1 in each byte.
const ONES: u64 = u64::MAX / 255;

/// Index of the first byte from `from` on that is `"`, `\`, a control character, or 0xE2, the first byte of U+2028 and U+2029
/// and of many other characters; the length if there is none.
#[inline]
pub(crate) fn line(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    for _ in 0..WORDS {
        match word(bytes, at) {
            Some(8) => at += 8,
            Some(found) => return at + found,
            None => return single(bytes, at),
        }
    }
    long(bytes, at)
}

/// Like [`line`], for a match that is probably near: looks at the first bytes one by one, and skips characters there
/// that begin with 0xE2 and are no separators.
#[inline]
pub(crate) fn near(bytes: &[u8], from: usize) -> usize {
    let (mut at, mut end) = (from, from + 8);
    while at < end {
        match bytes.get(at) {
            Some(byte) if !SPECIAL[usize::from(*byte)] => at += 1,
            Some(0xE2) if !is_separator(&bytes[at..]) => {
                at += 3;
                end = at + 8;
            }
            _ => return at,
        }
    }
    line(bytes, at)
}

/// Whether the text begins with U+2028 or U+2029.
#[inline]
pub(crate) fn is_separator(bytes: &[u8]) -> bool {
    matches!(bytes, [0xE2, 0x80, 0xA8 | 0xA9, ..])
}

/// The bytes that [`line`] finds.
const SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = special(byte as u8);
        byte += 1;
    }
    table
};

/// Whether the JSON holds an escape of a surrogate, which may be a lone one.
pub(crate) fn surrogates(json: &[u8]) -> bool {
    let Some(first) = memchr(b'\\', json) else { return false };
    let json = &json[first..];
    memmem::find_iter(json, b"\\u").any(|at| matches!(json.get(at + 2), Some(b'd' | b'D')))
}

#[inline(never)]
fn long(bytes: &[u8], mut at: usize) -> usize {
    while let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk::<BLOCK>()) {
        if block.iter().fold(false, |any, byte| any | special(*byte)) {
            break;
        }
        at += BLOCK;
    }
    while let Some(found) = word(bytes, at) {
        at += found;
        if found < 8 {
            return at;
        }
    }
    single(bytes, at)
}

/// Number of bytes before the first match in the next eight; `None` if there are fewer than eight.
#[inline(always)]
fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let word = u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
    // Sets the high bit of each matching byte. The byte after a match may be set too, so only the lowest bit counts.
    let is = |byte: u8| {
        let zero = word ^ (ONES * u64::from(byte));
        zero.wrapping_sub(ONES) & !zero
    };
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let found = (control | is(b'"') | is(b'\\') | is(0xE2)) & (ONES << 7);
    Some(found.trailing_zeros() as usize / 8)
}

#[inline(always)]
fn single(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|byte| !special(*byte)) {
        at += 1;
    }
    at
}

#[inline(always)]
const fn special(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\') | (byte == 0xE2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(bytes: &[u8], from: usize) -> usize {
        let special = |byte: &u8| *byte < 0x20 || b"\"\\\xE2".contains(byte);
        bytes[from..].iter().position(special).map_or(bytes.len(), |at| from + at)
    }

    #[test]
    fn special_bytes_are_found_at_every_place_of_a_run() {
        for length in [0, 1, 7, 8, 9, 31, 32, 33, 40, 63, 64, 65, 71, 100] {
            for byte in 0..=u8::MAX {
                for at in 0..length {
                    // Neighbours of the special bytes.
                    for around in *b"!#[] \x7f\xE1\xE3" {
                        let mut bytes = vec![around; length];
                        bytes[at] = byte;
                        assert_eq!(line(&bytes, 0), plain(&bytes, 0));
                        assert!(byte == 0xE2 || near(&bytes, 0) == plain(&bytes, 0));
                    }
                }
            }
        }
    }

    #[test]
    fn escapes_of_surrogates_are_found_at_every_place() {
        for (json, holds) in [
            ("", false),
            ("ud800", false),
            (r"\\", false),
            (r"\u", false),
            (r"\u00e9\n\ue000", false),
            (r"\n\u00e9\ud83d", true),
            (r"\\uDc00", true),
        ] {
            assert_eq!(surrogates(json.as_bytes()), holds, "{json}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_scanned_from_any_place(bytes in proptest::collection::vec(any::<u8>(), 1..99), from in 0usize..99) {
            // With the bits of 0x60 set few bytes are special.
            for bytes in [bytes.clone(), bytes.iter().map(|byte| byte | 0x60).collect()] {
                let from = from % bytes.len();
                prop_assert_eq!(line(&bytes, from), plain(&bytes, from));
                prop_assert!(bytes.contains(&0xE2) || near(&bytes, from) == plain(&bytes, from));
            }
        }
    }
}
