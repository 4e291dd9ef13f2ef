//! How a message is read: leniently, so that a field that changed its shape costs that field and no more.
//!
//! `RawValue` works only in plain structs (not in tagged, untagged or flattened enums), so every optional
//! field is taken raw first and then read as what it should be.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::wire::scan;

/// What every message may carry, read in one pass that skips the rest.
#[derive(Clone, Debug, Default)]
pub(super) struct Head {
    pub(super) kind: Cow<'static, str>,
    pub(super) subtype: Option<String>,
    session_id: Option<Text>,
    uuid: Option<Text>,
    parent_tool_use_id: Option<Text>,
    pub(super) user_message_uuids: Vec<String>,
}

/// A text of a message: where it stands in its JSON, or what it is, if it does not stand there as it is.
#[derive(Clone, Debug)]
enum Text {
    At(Span),
    Own(String),
}

/// A part of the JSON of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// Where `part` stands, which is a part of `whole`.
    pub(super) fn of(part: &str, whole: &str) -> Option<Self> {
        let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
        let end = start + part.len();
        let span = Self { start: start.try_into().ok()?, end: end.try_into().ok()? };
        (end <= whole.len()).then_some(span)
    }

    /// What stands there.
    pub(super) fn read(self, whole: &RawValue) -> &str {
        whole.get().get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

impl Text {
    fn read<'a>(&'a self, whole: &'a RawValue) -> &'a str {
        match self {
            Text::At(span) => span.read(whole),
            Text::Own(text) => text,
        }
    }
}

/// What becomes of the fields that every message may carry not.
pub(super) trait Rest<'de> {
    /// Takes the value of a field.
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;
}

/// They are skipped.
impl<'de> Rest<'de> for () {
    fn field<A: MapAccess<'de>>(&mut self, _: &str, map: &mut A) -> Result<(), A::Error> {
        map.next_value::<de::IgnoredAny>().map(drop)
    }
}

/// A text, borrowed if it stands in the JSON as it is.
pub(super) struct Word<'de>(pub(super) Cow<'de, str>);

impl<'de> Deserialize<'de> for Word<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordVisitor;

        impl<'de> Visitor<'de> for WordVisitor {
            type Value = Word<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Word<'de>, E> {
                Ok(Word(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Word<'de>, E> {
                Ok(Word(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(WordVisitor)
    }
}

/// The one of the known words that it is, or itself.
pub(super) fn known(word: &str, known: &'static [&'static str]) -> Cow<'static, str> {
    known
        .iter()
        .find(|known| **known == word)
        .map_or_else(|| Cow::Owned(word.to_owned()), |known| Cow::Borrowed(*known))
}

impl Head {
    /// Reads the head of a message of this JSON text, which is `kept` as it is, or is not. The other fields go to `rest`.
    pub(super) fn read<'de>(
        text: &'de str,
        kept: bool,
        rest: &mut impl Rest<'de>,
    ) -> serde_json::Result<Self> {
        let mut json = serde_json::Deserializer::from_str(text);
        let head = json.deserialize_map(HeadVisitor { kept: kept.then_some(text), rest })?;
        json.end()?;
        Ok(head)
    }

    pub(super) fn session_id<'a>(&'a self, raw: &'a RawValue) -> Option<&'a str> {
        self.session_id.as_ref().map(|text| text.read(raw))
    }

    pub(super) fn uuid<'a>(&'a self, raw: &'a RawValue) -> Option<&'a str> {
        self.uuid.as_ref().map(|text| text.read(raw))
    }

    pub(super) fn parent_tool_use_id<'a>(&'a self, raw: &'a RawValue) -> Option<&'a str> {
        self.parent_tool_use_id.as_ref().map(|text| text.read(raw))
    }
}

struct HeadVisitor<'de, 'r, R> {
    /// The text that is read, if it is kept.
    kept: Option<&'de str>,
    rest: &'r mut R,
}

impl<'de, R: Rest<'de>> Visitor<'de> for HeadVisitor<'de, '_, R> {
    type Value = Head;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object with a string `type`")
    }

    // Written by hand because a derived struct refuses a key that stands twice; here the last one counts, as
    // in JavaScript.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Head, A::Error> {
        let mut head = Head::default();
        let mut kind = None;
        let mut newest = None;
        while let Some(Word(name)) = map.next_key()? {
            match &*name {
                "type" => kind = Some(map.next_value::<Word<'de>>()?),
                "subtype" => head.subtype = fits(map.next_value()?),
                "session_id" => head.session_id = self.text(map.next_value()?),
                "uuid" => head.uuid = self.text(map.next_value()?),
                "parent_tool_use_id" => head.parent_tool_use_id = self.text(map.next_value()?),
                "user_message_uuid" => newest = fits(map.next_value()?),
                "user_message_uuids" => head.user_message_uuids = fitting(map.next_value()?),
                name => self.rest.field(name, &mut map)?,
            }
        }
        let Word(kind) = kind.ok_or_else(|| de::Error::missing_field("type"))?;
        head.kind = known(&kind, super::Message::TYPES);
        head.user_message_uuids.extend(newest);
        if let Some((last, others)) = head.user_message_uuids.split_last()
            && others.contains(last)
        {
            head.user_message_uuids.pop();
        }
        Ok(head)
    }
}

impl<'de, R> HeadVisitor<'de, '_, R> {
    /// A text that most messages have: not copied if it can be found again.
    fn text(&self, raw: &'de RawValue) -> Option<Text> {
        let inside = raw.get().strip_prefix('"').and_then(|rest| rest.strip_suffix('"'))?;
        match self.kept {
            Some(kept) if !inside.contains('\\') => Span::of(inside, kept).map(Text::At),
            _ => fits(raw).map(Text::Own),
        }
    }
}

/// The value as a `T`; `None` if it is null or something else.
pub(crate) fn fits<'de, T: Deserialize<'de>>(raw: &'de RawValue) -> Option<T> {
    serde_json::from_str::<Option<T>>(raw.get()).ok().flatten()
}

/// Those elements of a list that are a `T`; none if it is no list.
pub(crate) fn fitting<'de, T: Deserialize<'de>>(raw: &'de RawValue) -> Vec<T> {
    fits::<Vec<&RawValue>>(raw).unwrap_or_default().into_iter().filter_map(fits).collect()
}

/// For `deserialize_with`: [`fits`].
pub(crate) fn maybe<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Ok(fits(<&'de RawValue>::deserialize(from)?))
}

/// For `deserialize_with`: [`fits`], or the default.
pub(crate) fn or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(maybe(from)?.unwrap_or_default())
}

/// For `deserialize_with`: [`fitting`].
pub(crate) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(fitting(<&'de RawValue>::deserialize(from)?))
}

/// For `deserialize_with`: a count or a number of milliseconds. JavaScript has only floats, so a fraction is
/// rounded; what is negative or no number is `None`.
pub(super) fn maybe_count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Ok(count_of(<&'de RawValue>::deserialize(from)?))
}

/// A count, as [`maybe_count`] reads it.
pub(super) fn count_of(raw: &RawValue) -> Option<u64> {
    // Casting a float saturates, so a number out of range becomes the nearest that fits.
    fits(raw).or_else(|| fits::<f64>(raw).filter(|number| *number >= 0.0).map(|number| number.round() as u64))
}

/// For `deserialize_with`: [`maybe_count`], or 0.
pub(super) fn count<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Ok(maybe_count(from)?.unwrap_or(0))
}

/// One field of an object, parsed; what stands beside it is skipped.
pub(super) fn field(raw: &RawValue, name: &str) -> Option<serde_json::Value> {
    let text = mend(raw.get());
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(&text).ok()?;
    serde_json::from_str(fields.get(name)?.get()).ok()
}

/// The JSON text with every lone surrogate escape replaced by that of U+FFFD.
///
/// JavaScript writes a string that was cut inside a surrogate pair as `"\ud83d"`. That is valid JSON and no
/// valid Unicode; serde_json refuses it, which would cost the whole typed view of a message. `text` may be no JSON
/// at all: a line of a file that was cut off anywhere.
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
            // A backslash and what it stands before: in JSON an ASCII character, in what was cut off any or none.
            (None, _) => 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
        };
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    mended.push_str(&text[copied..]);
    Cow::Owned(mended)
}

/// The UTF-16 unit of the escape `\uXXXX` at `at`, if there is one.
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
    fn a_text_that_was_cut_off_is_mended_as_far_as_it_goes() {
        for (given, mended) in [
            (r#"{"a":"\ud83d\"#, r#"{"a":"\ufffd\"#),
            (r#"{"a":"\ud83d\é"#, r#"{"a":"\ufffd\é"#),
            (r#"{"a":"\ud83d\u12"#, r#"{"a":"\ufffd\u12"#),
        ] {
            assert_eq!(mend(given), mended);
        }
    }

    #[test]
    fn the_head_is_found_wherever_it_stands_and_the_last_of_two_counts() {
        let text = r#"{"a":{"type":"no"},"uuid":7,"type":"x","subtype":"s\"1","type":"y","session_id":null}"#;
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        let head = Head::read(text, true, &mut ()).unwrap();
        assert_eq!((&*head.kind, head.subtype.as_deref()), ("y", Some("s\"1")));
        assert_eq!((head.uuid(raw), head.session_id(raw)), (None, None));
    }

    #[test]
    fn a_text_of_the_head_is_the_same_whether_it_stands_there_as_it_is_or_not() {
        let text = r#"{"type":"t","uuid":"u-é","session_id":"s\"\u00e9\\","parent_tool_use_id":""}"#;
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        for kept in [true, false] {
            let head = Head::read(text, kept, &mut ()).unwrap();
            assert_eq!(head.uuid(raw), Some("u-é"));
            assert_eq!(head.session_id(raw), Some("s\"é\\"));
            assert_eq!(head.parent_tool_use_id(raw), Some(""));
        }
    }

    #[test]
    fn prompt_ids_are_joined_without_repeats() {
        let ids = |text: &str| Head::read(text, true, &mut ()).unwrap().user_message_uuids;
        assert_eq!(ids(r#"{"type":"t","user_message_uuid":"a"}"#), ["a"]);
        assert_eq!(ids(r#"{"user_message_uuid":"b","type":"t","user_message_uuids":["a","b"]}"#), ["a", "b"]);
        assert_eq!(
            ids(r#"{"type":"t","user_message_uuids":["a",3,"b"],"user_message_uuid":"c"}"#),
            ["a", "b", "c"]
        );
        assert_eq!(ids(r#"{"type":"t","user_message_uuids":"a"}"#), Vec::<String>::new());
    }

    #[test]
    fn counts_are_read_from_any_number_that_makes_sense() {
        #[derive(serde::Deserialize)]
        struct Counts(
            #[serde(deserialize_with = "maybe_count")] Option<u64>,
            #[serde(deserialize_with = "maybe_count")] Option<u64>,
            #[serde(deserialize_with = "maybe_count")] Option<u64>,
            #[serde(deserialize_with = "count")] u64,
        );
        let counts: Counts = serde_json::from_str(r#"[3, 2.6, -1, "4"]"#).unwrap();
        assert_eq!((counts.0, counts.1, counts.2, counts.3), (Some(3), Some(3), None, 0));
    }

    proptest! {
        #[test]
        fn any_text_is_mended_without_a_panic(text in "([\\\\ud83é\"{]|\\\\ud83d|\\PC){0,24}") {
            mend(&text);
            mend(&format!("\\ud83d{text}\\"));
        }

        #[test]
        fn whatever_is_cut_anywhere_can_be_read_once_mended(
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
