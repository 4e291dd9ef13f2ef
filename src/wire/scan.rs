//! Where a text has to be looked at: the bytes that end a string in JSON, or that cannot stand in one as they are.

use memchr::{memchr, memmem};

/// How many bytes are looked at together where nothing has been found for a while. A loop over so many without a branch
/// becomes vector instructions.
const BLOCK: usize = 32;

/// How many words are looked at before blocks are: most texts between two finds are short.
const WORDS: usize = 8;

/// One in each byte.
const ONES: u64 = u64::MAX / 255;

/// The first byte at or behind `from` that is `"`, `\` or a control character; the length if there is none.
#[inline]
pub(super) fn json(bytes: &[u8], from: usize) -> usize {
    next::<false>(bytes, from)
}

/// The same, or 0xE2, with which U+2028 and U+2029 begin and many others.
#[inline]
pub(super) fn line(bytes: &[u8], from: usize) -> usize {
    next::<true>(bytes, from)
}

/// The same as [`line`], where the next one is expected to be near: the first bytes are looked at one by one. What begins
/// with 0xE2 and is no separator is passed over there.
#[inline]
pub(super) fn near(bytes: &[u8], from: usize) -> usize {
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

/// Whether U+2028 or U+2029 stands first.
#[inline]
pub(super) fn is_separator(bytes: &[u8]) -> bool {
    matches!(bytes, [0xE2, 0x80, 0xA8 | 0xA9, ..])
}

/// What [`line`] looks for.
const SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = special::<true>(byte as u8);
        byte += 1;
    }
    table
};

/// Whether JSON holds an escape of a surrogate, which may be half of a pair.
pub(crate) fn surrogates(json: &[u8]) -> bool {
    let Some(first) = memchr(b'\\', json) else { return false };
    let json = &json[first..];
    memmem::find_iter(json, b"\\u").any(|at| matches!(json.get(at + 2), Some(b'd' | b'D')))
}

#[inline(always)]
fn next<const SEPARATORS: bool>(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    for _ in 0..WORDS {
        match word::<SEPARATORS>(bytes, at) {
            Some(8) => at += 8,
            Some(found) => return at + found,
            None => return single::<SEPARATORS>(bytes, at),
        }
    }
    long::<SEPARATORS>(bytes, at)
}

#[inline(never)]
fn long<const SEPARATORS: bool>(bytes: &[u8], mut at: usize) -> usize {
    while let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk::<BLOCK>()) {
        if block.iter().fold(false, |any, byte| any | special::<SEPARATORS>(*byte)) {
            break;
        }
        at += BLOCK;
    }
    while let Some(found) = word::<SEPARATORS>(bytes, at) {
        at += found;
        if found < 8 {
            return at;
        }
    }
    single::<SEPARATORS>(bytes, at)
}

/// How many of the next eight bytes are nothing special; `None` if there are no eight.
#[inline(always)]
fn word<const SEPARATORS: bool>(bytes: &[u8], at: usize) -> Option<usize> {
    let word = u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
    // The high bit of each byte that is; one above such a byte may be set for nothing.
    let is = |byte: u8| {
        let zero = word ^ (ONES * u64::from(byte));
        zero.wrapping_sub(ONES) & !zero
    };
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let separator = if SEPARATORS { is(0xE2) } else { 0 };
    let found = (control | is(b'"') | is(b'\\') | separator) & (ONES << 7);
    Some(found.trailing_zeros() as usize / 8)
}

#[inline(always)]
fn single<const SEPARATORS: bool>(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|byte| !special::<SEPARATORS>(*byte)) {
        at += 1;
    }
    at
}

#[inline(always)]
const fn special<const SEPARATORS: bool>(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\') | (SEPARATORS & (byte == 0xE2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(bytes: &[u8], from: usize, separators: bool) -> usize {
        let special = |byte: &u8| *byte < 0x20 || b"\"\\".contains(byte) || (separators && *byte == 0xE2);
        bytes[from..].iter().position(special).map_or(bytes.len(), |at| from + at)
    }

    #[test]
    fn every_byte_at_every_place_of_a_run_is_seen() {
        for length in [0, 1, 7, 8, 9, 31, 32, 33, 40, 63, 64, 65, 71, 100] {
            for byte in 0..=u8::MAX {
                for at in 0..length {
                    // Neighbours of what is looked for, by one bit or by one.
                    for around in *b"!#[] \x7f\xE1\xE3" {
                        let mut bytes = vec![around; length];
                        bytes[at] = byte;
                        assert_eq!(json(&bytes, 0), plain(&bytes, 0, false));
                        assert_eq!(line(&bytes, 0), plain(&bytes, 0, true));
                        assert!(byte == 0xE2 || near(&bytes, 0) == plain(&bytes, 0, true));
                    }
                }
            }
        }
    }

    #[test]
    fn escapes_of_surrogates_are_seen_wherever_they_stand() {
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
        fn any_bytes_are_read_from_anywhere(bytes in proptest::collection::vec(any::<u8>(), 1..99), from in 0usize..99) {
            // Few of them are special once the high half is taken.
            for bytes in [bytes.clone(), bytes.iter().map(|byte| byte | 0x60).collect()] {
                let from = from % bytes.len();
                prop_assert_eq!(json(&bytes, from), plain(&bytes, from, false));
                prop_assert_eq!(line(&bytes, from), plain(&bytes, from, true));
                prop_assert!(bytes.contains(&0xE2) || near(&bytes, from) == plain(&bytes, from, true));
            }
        }
    }
}
