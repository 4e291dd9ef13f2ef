//! Reads the head of a message: the fields that every message may have.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::wire::fast::scan;
use crate::wire::lenient::{Word, fits, fitting, read_object};

/// The fields that every message may have, read in one pass that skips all others.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageHead {
    pub(crate) kind: Cow<'static, str>,
    pub(crate) subtype: Option<String>,
    session_id: Option<Text>,
    uuid: Option<Text>,
    parent_tool_use_id: Option<Text>,
    pub(crate) user_message_uuids: Vec<String>,
    /// The typed view was made of less than the whole JSON.
    pub(crate) abridged: bool,
}

/// The fields of the head and of a partial message, raw. `E` is the type of a partial message's event: one pass reads
/// both, because most messages are partial.
#[derive(Deserialize)]
#[serde(bound(deserialize = "E: Deserialize<'de>"))]
pub(crate) struct RawFields<'a, E> {
    #[serde(borrow, rename = "type")]
    kind: Word<'a>,
    #[serde(borrow)]
    subtype: Option<&'a RawValue>,
    #[serde(borrow)]
    session_id: Option<&'a RawValue>,
    #[serde(borrow)]
    uuid: Option<&'a RawValue>,
    #[serde(borrow)]
    parent_tool_use_id: Option<&'a RawValue>,
    #[serde(borrow)]
    user_message_uuid: Option<&'a RawValue>,
    #[serde(borrow)]
    user_message_uuids: Option<&'a RawValue>,
    pub(crate) event: Option<E>,
    #[serde(borrow)]
    pub(crate) api_message_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) ttft_ms: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) thinking_display: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) resume_reason: Option<&'a RawValue>,
}

/// A text of a message: a place in the message's JSON, or an owned string if the JSON does not have it as it is.
#[derive(Clone, Debug)]
pub(crate) enum Text {
    At { start: u32, end: u32 },
    Own(String),
}

impl Text {
    /// `part` is a slice of `kept`, the JSON that the message keeps; without it, `part` is copied.
    pub(crate) fn of(part: &str, kept: Option<&str>) -> Self {
        let at = || {
            let start = (part.as_ptr() as usize).checked_sub(kept?.as_ptr() as usize)?;
            let end = start + part.len();
            (end <= kept?.len())
                .then_some(Text::At { start: start.try_into().ok()?, end: end.try_into().ok()? })
        };
        at().unwrap_or_else(|| Text::Own(part.to_owned()))
    }

    /// A string of the head; `None` if `raw` is none.
    fn read_from(raw: &RawValue, kept: Option<&str>) -> Option<Self> {
        let inside = raw.get().strip_prefix('"')?.strip_suffix('"')?;
        if inside.contains('\\') { fits(raw).map(Text::Own) } else { Some(Text::of(inside, kept)) }
    }

    pub(crate) fn read<'a>(&'a self, whole: &'a RawValue) -> &'a str {
        match self {
            Text::At { start, end } => whole.get().get(*start as usize..*end as usize).unwrap_or_default(),
            Text::Own(text) => text,
        }
    }
}

/// A word, without an allocation if it is a known word.
pub(crate) fn known(word: &str, known: &'static [&'static str]) -> Cow<'static, str> {
    known
        .iter()
        .find(|known| **known == word)
        .map_or_else(|| Cow::Owned(word.to_owned()), |known| Cow::Borrowed(*known))
}

impl MessageHead {
    /// Reads the head of a message, and the fields of a partial message. `kept` says that the message keeps exactly this
    /// `text`, so that its parts need not be copied. `kinds` are the known types.
    pub(crate) fn read<'a, E: Deserialize<'a>>(
        text: &'a str,
        kept: bool,
        kinds: &'static [&'static str],
    ) -> serde_json::Result<(Self, RawFields<'a, E>)> {
        let fields: RawFields<'a, E> = read_object(text)?;
        let kept = kept.then_some(text);
        let mut user_message_uuids: Vec<String> = fields.user_message_uuids.map(fitting).unwrap_or_default();
        user_message_uuids.extend(fields.user_message_uuid.and_then(fits::<String>));
        if let Some((last, others)) = user_message_uuids.split_last()
            && others.contains(last)
        {
            user_message_uuids.pop();
        }
        let head = Self {
            kind: known(&fields.kind.0, kinds),
            subtype: fields.subtype.and_then(fits),
            session_id: fields.session_id.and_then(|raw| Text::read_from(raw, kept)),
            uuid: fields.uuid.and_then(|raw| Text::read_from(raw, kept)),
            parent_tool_use_id: fields.parent_tool_use_id.and_then(|raw| Text::read_from(raw, kept)),
            user_message_uuids,
            abridged: false,
        };
        Ok((head, fields))
    }

    /// Reads the head alone. Of a field that occurs twice, which a derived struct refuses, the last one counts.
    pub(crate) fn read_alone(
        text: &str,
        kept: bool,
        kinds: &'static [&'static str],
    ) -> serde_json::Result<Self> {
        match Self::read::<IgnoredAny>(text, kept, kinds) {
            Ok((head, _)) => Ok(head),
            Err(error) => {
                let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text).map_err(|_| error)?;
                let text = serde_json::to_string(&fields)?;
                Ok(Self::read::<IgnoredAny>(&text, false, kinds)?.0)
            }
        }
    }

    pub(crate) fn session_id<'a>(&'a self, raw: &'a RawValue) -> Option<&'a str> {
        self.session_id.as_ref().map(|text| text.read(raw))
    }

    pub(crate) fn uuid<'a>(&'a self, raw: &'a RawValue) -> Option<&'a str> {
        self.uuid.as_ref().map(|text| text.read(raw))
    }

    pub(crate) fn parent_tool_use_id<'a>(&'a self, raw: &'a RawValue) -> Option<&'a str> {
        self.parent_tool_use_id.as_ref().map(|text| text.read(raw))
    }
}

/// Parses one field of an object; all other fields are skipped.
pub(crate) fn field(raw: &RawValue, name: &str) -> Option<serde_json::Value> {
    serde_json::from_str(raw_field(raw, name)?.get()).ok()
}

/// The JSON of one field of an object.
pub(crate) fn raw_field(raw: &RawValue, name: &str) -> Option<Box<RawValue>> {
    let text = mend(raw.get());
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(&text).ok()?;
    fields.get(name).copied().map(ToOwned::to_owned)
}

/// Replaces every lone surrogate escape in a JSON text by the escape of U+FFFD.
///
/// JavaScript writes a string that was cut inside a surrogate pair as `"\ud83d"`: valid JSON, invalid Unicode.
/// serde_json refuses it, which would cost the typed view of the whole message. `text` may also be a truncated line of
/// a file.
pub(crate) fn mend(text: &str) -> Cow<'_, str> {
    if !scan::surrogates(text.as_bytes()) {
        return Cow::Borrowed(text);
    }
    let mut mended = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(offset) = text[at..].find('\\') {
        at += offset;
        at += match (unit(text, at), unit(text, at + 6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(0xD800..=0xDFFF), _) => {
                mended.push_str(&text[copied..at]);
                mended.push_str("\\ufffd");
                copied = at + 6;
                6
            }
            (Some(_), _) => 6,
            // A backslash and the next character: ASCII in JSON, any character or none in a truncated line.
            (None, _) => 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
        };
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    mended.push_str(&text[copied..]);
    Cow::Owned(mended)
}

/// The UTF-16 unit of the escape `\uXXXX` at `at`.
fn unit(text: &str, at: usize) -> Option<u32> {
    let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn lone_surrogates_are_replaced_and_pairs_kept() {
        for (given, mended) in [
            (r#""plain""#, r#""plain""#),
            (r#""\ud83d""#, r#""\ufffd""#),
            (r#""a\uD83Db\ude00c""#, r#""a\ufffdb\ufffdc""#),
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\\ud83d""#, r#""\\ud83d""#),
            (r#""\\\ud83d""#, r#""\\\ufffd""#),
            (r#""\ud83d\n\u00e9é""#, r#""\ufffd\n\u00e9é""#),
        ] {
            assert_eq!(mend(given), mended);
        }
    }

    #[test]
    fn truncated_text_is_mended() {
        for (given, mended) in [
            (r#"{"a":"\ud83d\"#, r#"{"a":"\ufffd\"#),
            (r#"{"a":"\ud83d\é"#, r#"{"a":"\ufffd\é"#),
            (r#"{"a":"\ud83d\u12"#, r#"{"a":"\ufffd\u12"#),
        ] {
            assert_eq!(mend(given), mended);
        }
    }

    #[test]
    fn the_head_is_read_in_any_order() {
        let text = r#"{"a":{"type":"no"},"uuid":7,"subtype":"s\"1","type":"y","session_id":null}"#;
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        let head = MessageHead::read::<IgnoredAny>(text, true, &[]).unwrap().0;
        assert_eq!((&*head.kind, head.subtype.as_deref()), ("y", Some("s\"1")));
        assert_eq!((head.uuid(raw), head.session_id(raw)), (None, None));
    }

    #[test]
    fn the_last_of_two_equal_fields_counts() {
        let head = MessageHead::read_alone(
            r#"{"type":"x","uuid":"a","b":[1e999],"type":"y","uuid":"b"}"#,
            true,
            &[],
        );
        let head = head.unwrap();
        assert_eq!((&*head.kind, head.uuid(RawValue::NULL)), ("y", Some("b")));
        assert!(MessageHead::read_alone(r#"{"uuid":"a","uuid":"b"}"#, true, &[]).is_err());
    }

    #[test]
    fn texts_of_the_head_are_equal_whether_the_json_is_kept_or_not() {
        let text = r#"{"type":"t","uuid":"u-é","session_id":"s\"\u00e9\\","parent_tool_use_id":""}"#;
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        for kept in [true, false] {
            let head = MessageHead::read::<IgnoredAny>(text, kept, &[]).unwrap().0;
            assert_eq!(head.uuid(raw), Some("u-é"));
            assert_eq!(head.session_id(raw), Some("s\"é\\"));
            assert_eq!(head.parent_tool_use_id(raw), Some(""));
        }
    }

    #[test]
    fn prompt_ids_are_joined_without_repeats() {
        let ids = |text: &str| MessageHead::read::<IgnoredAny>(text, true, &[]).unwrap().0.user_message_uuids;
        assert_eq!(ids(r#"{"type":"t","user_message_uuid":"a"}"#), ["a"]);
        assert_eq!(ids(r#"{"user_message_uuid":"b","type":"t","user_message_uuids":["a","b"]}"#), ["a", "b"]);
        assert_eq!(
            ids(r#"{"type":"t","user_message_uuids":["a",3,"b"],"user_message_uuid":"c"}"#),
            ["a", "b", "c"]
        );
        assert_eq!(ids(r#"{"type":"t","user_message_uuids":"a"}"#), Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn any_text_is_mended_without_a_panic(text in "([\\\\ud83é\"{]|\\\\ud83d|\\PC){0,24}") {
            mend(&text);
            mend(&format!("\\ud83d{text}\\"));
        }

        #[test]
        fn a_string_that_is_cut_anywhere_can_be_read_after_mending(
            units in proptest::collection::vec(prop_oneof![any::<u16>(), 0xD7F0u16..0xE010], 0..12),
            escape_all in any::<bool>(),
        ) {
            let mut text = String::from("\"");
            for part in char::decode_utf16(units.iter().copied()) {
                match part {
                    Ok(c) if escape_all => {
                        c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text += &format!("\\u{unit:04x}"));
                    }
                    Ok(c) => {
                        let quoted = serde_json::to_string(&c).unwrap();
                        text += &quoted[1..quoted.len() - 1];
                    }
                    Err(lone) => text += &format!("\\u{:04X}", lone.unpaired_surrogate()),
                }
            }
            text.push('"');
            let value: Value = serde_json::from_str(&mend(&text)).unwrap();
            let wanted = String::from_utf16_lossy(&units);
            prop_assert_eq!(value.as_str().unwrap(), wanted.as_str());
        }
    }
}
