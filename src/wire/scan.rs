//! Where a text has to be looked at: the bytes that end a string in JSON, or that cannot stand in one as they are.

/// How many bytes are looked at together where nothing is expected. A loop over so many without a branch becomes vector
/// instructions.
const BLOCK: usize = 32;

/// One in each byte.
const ONES: u64 = u64::MAX / 255;

/// The first byte at or behind `from` that is `"`, `\` or a control character; the length if there is none.
pub(super) fn json(bytes: &[u8], from: usize) -> usize {
    next::<false>(bytes, from)
}

/// The same, or that begins U+2028 or U+2029 (and many more).
#[expect(dead_code, reason = "for answers, which come next")]
pub(super) fn line(bytes: &[u8], from: usize) -> usize {
    next::<true>(bytes, from)
}

#[inline(always)]
fn next<const SEPARATORS: bool>(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk::<BLOCK>()) {
        if any::<SEPARATORS>(block) {
            break;
        }
        at += BLOCK;
    }
    while let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let found = among::<SEPARATORS>(u64::from_le_bytes(*word));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while let Some(byte) = bytes.get(at) {
        if special::<SEPARATORS>(*byte) {
            return at;
        }
        at += 1;
    }
    bytes.len()
}

#[inline(always)]
fn special<const SEPARATORS: bool>(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\' || (SEPARATORS && byte == 0xE2)
}

#[inline(always)]
fn any<const SEPARATORS: bool>(block: &[u8; BLOCK]) -> bool {
    block.iter().fold(0, |any, byte| any | u8::from(special::<SEPARATORS>(*byte))) != 0
}

/// The high bit of the first byte that is special; bits above that one may be wrong.
#[inline(always)]
fn among<const SEPARATORS: bool>(word: u64) -> u64 {
    let is = |byte: u8| {
        let zero = word ^ (ONES * u64::from(byte));
        zero.wrapping_sub(ONES) & !zero
    };
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let separator = if SEPARATORS { is(0xE2) } else { 0 };
    (control | is(b'"') | is(b'\\') | separator) & (ONES << 7)
}
