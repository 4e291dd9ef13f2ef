//! Reads the head of a message: the fields that every message may have.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, DebugStruct};

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::wire::brief::show;
use crate::wire::fast::scan;
use crate::wire::lenient::{Word, fits, fitting};

/// The known types of messages.
pub(super) const TYPES: &[&str] = &[
    "system",
    "assistant",
    "user",
    "result",
    "stream_event",
    "tool_progress",
    "tool_use_summary",
    "auth_status",
    "rate_limit_event",
    "prompt_suggestion",
    "conversation_reset",
    "active_goal",
    "command_lifecycle",
];

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

/// A text of a message: a part of the message's JSON, or an owned string if the JSON has it escaped.
#[derive(Clone, Debug)]
enum Text {
    At(Span),
    Own(String),
}

/// A part of the JSON of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// The place of `part` inside of `whole`, of which it is a slice.
    pub(crate) fn of(part: &str, whole: &str) -> Option<Self> {
        let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
        let end = start + part.len();
        let span = Self { start: start.try_into().ok()?, end: end.try_into().ok()? };
        (end <= whole.len()).then_some(span)
    }

    /// The text at this place.
    pub(crate) fn read(self, whole: &RawValue) -> &str {
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

/// Takes the fields that are not part of the head.
pub(crate) trait Rest<'de> {
    /// Takes the value of a field.
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;
}

/// Skips the fields.
impl<'de> Rest<'de> for () {
    fn field<A: MapAccess<'de>>(&mut self, _: &str, map: &mut A) -> Result<(), A::Error> {
        map.next_value::<de::IgnoredAny>().map(drop)
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
    /// Reads the head of a message. `kept` says that the message keeps exactly this `text`, so that its parts need not
    /// be copied. All other fields go to `rest`.
    pub(crate) fn read<'de>(
        text: &'de str,
        kept: bool,
        rest: &mut impl Rest<'de>,
    ) -> serde_json::Result<Self> {
        let mut json = serde_json::Deserializer::from_str(text);
        let head = json.deserialize_map(MessageHeadVisitor { kept: kept.then_some(text), rest })?;
        json.end()?;
        Ok(head)
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

    /// Writes the ids for the `Debug` of a message.
    pub(crate) fn show(&self, raw: &RawValue, shown: &mut DebugStruct<'_, '_>) {
        show(shown, "uuid", &self.uuid(raw));
        show(shown, "session_id", &self.session_id(raw));
        show(shown, "parent_tool_use_id", &self.parent_tool_use_id(raw));
        show(shown, "user_message_uuids", &self.user_message_uuids);
        show(shown, "abridged", &self.abridged);
    }
}

struct MessageHeadVisitor<'de, 'r, R> {
    /// The text, if the message keeps it.
    kept: Option<&'de str>,
    rest: &'r mut R,
}

impl<'de, R: Rest<'de>> Visitor<'de> for MessageHeadVisitor<'de, '_, R> {
    type Value = MessageHead;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object with a string `type`")
    }

    // A derived struct refuses duplicate keys. Here the last duplicate wins, as in JavaScript.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<MessageHead, A::Error> {
        let mut head = MessageHead::default();
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
        head.kind = known(&kind, TYPES);
        head.user_message_uuids.extend(newest);
        if let Some((last, others)) = head.user_message_uuids.split_last()
            && others.contains(last)
        {
            head.user_message_uuids.pop();
        }
        Ok(head)
    }
}

impl<'de, R> MessageHeadVisitor<'de, '_, R> {
    /// A text of the head, without a copy if the message keeps its JSON.
    fn text(&self, raw: &'de RawValue) -> Option<Text> {
        let inside = raw.get().strip_prefix('"').and_then(|rest| rest.strip_suffix('"'))?;
        match self.kept {
            Some(kept) if !inside.contains('\\') => Span::of(inside, kept).map(Text::At),
            _ => fits(raw).map(Text::Own),
        }
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

/// The names of the fields of an object.
pub(crate) fn field_names(raw: &RawValue) -> Vec<String> {
    let fields = serde_json::from_str::<BTreeMap<String, de::IgnoredAny>>(&mend(raw.get()));
    fields.unwrap_or_default().into_keys().collect()
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
    fn the_head_is_read_in_any_order_and_the_last_duplicate_wins() {
        let text = r#"{"a":{"type":"no"},"uuid":7,"type":"x","subtype":"s\"1","type":"y","session_id":null}"#;
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        let head = MessageHead::read(text, true, &mut ()).unwrap();
        assert_eq!((&*head.kind, head.subtype.as_deref()), ("y", Some("s\"1")));
        assert_eq!((head.uuid(raw), head.session_id(raw)), (None, None));
    }

    #[test]
    fn texts_of_the_head_are_equal_whether_the_json_is_kept_or_not() {
        let text = r#"{"type":"t","uuid":"u-é","session_id":"s\"\u00e9\\","parent_tool_use_id":""}"#;
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        for kept in [true, false] {
            let head = MessageHead::read(text, kept, &mut ()).unwrap();
            assert_eq!(head.uuid(raw), Some("u-é"));
            assert_eq!(head.session_id(raw), Some("s\"é\\"));
            assert_eq!(head.parent_tool_use_id(raw), Some(""));
        }
    }

    #[test]
    fn prompt_ids_are_joined_without_repeats() {
        let ids = |text: &str| MessageHead::read(text, true, &mut ()).unwrap().user_message_uuids;
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
