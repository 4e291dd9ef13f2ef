//! Declares structs of the CLI's JSON, whose fields are read one by one.

use serde_json::{Map, Value};

use super::lenient::{JsonSource, Lenient, ListRule};

/// Fields that every message has, so that typed views of messages leave them out of `extra`.
const ENVELOPE: [&str; 7] = [
    "type",
    "subtype",
    "uuid",
    "session_id",
    "parent_tool_use_id",
    "user_message_uuid",
    "user_message_uuids",
];

/// The kind of an object that [`objects!`] declares.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ObjectKind {
    /// The body of a message. The message keeps its raw JSON, so a field that does not fit is dropped here.
    Message,
    /// An object inside of a message.
    Part,
    /// An answer of the CLI, or an object inside of one. A field that does not fit is kept in `extra`.
    Answer,
}

impl ObjectKind {
    /// Reads a declared field; null and a value that does not fit are the default.
    pub(crate) fn field<T: Lenient + Default>(
        self,
        key: &str,
        value: JsonSource<'_>,
        extra: &mut Map<String, Value>,
    ) -> T {
        let is_answer = matches!(self, ObjectKind::Answer);
        T::read(value, if is_answer { ListRule::Whole } else { ListRule::Fitting }).unwrap_or_else(|| {
            if is_answer && !value.is_null() {
                keep(key, value, extra);
            }
            T::default()
        })
    }

    /// Keeps a field that is not declared.
    pub(crate) fn unknown(self, key: &str, value: JsonSource<'_>, extra: &mut Map<String, Value>) {
        if !(matches!(self, ObjectKind::Message) && ENVELOPE.contains(&key)) {
            keep(key, value, extra);
        }
    }
}

/// Raw JSON that is nested too deep, or has a number out of range, has no [`Value`] and is not kept.
fn keep(key: &str, value: JsonSource<'_>, extra: &mut Map<String, Value>) {
    if value.is_null() {
        extra.insert(key.to_owned(), Value::Null);
    } else if let Some(value) = value.parse() {
        extra.insert(key.to_owned(), value);
    }
}

/// Declares structs that are read leniently. `message` is the body of a message, `part` an object inside of one, and
/// `answer` an answer of the CLI or an object inside of one: see [`ObjectKind`]. A field whose name on the wire differs
/// is followed by that name.
macro_rules! objects {
    ($(
        $(#[$doc:meta])*
        $kind:ident $name:ident {
            $( $(#[$about:meta])* $field:ident: $type:ty $(= $key:literal)?, )*
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Default, PartialEq)]
        #[allow(missing_docs, reason = "fields are named as on the wire")]
        #[non_exhaustive]
        pub struct $name {
            $( $(#[$about])* pub $field: $type, )*
            /// Fields that this type does not declare. In an answer of the CLI also fields of an unexpected shape.
            pub extra: serde_json::Map<String, serde_json::Value>,
        }

        impl $name {
            fn take(&mut self, key: &str, value: $crate::wire::lenient::JsonSource<'_>) {
                let kind = $crate::wire::objects::objects!(@kind $kind);
                match key {
                    $( $crate::wire::objects::objects!(@key $field $($key)?) => {
                        self.$field = kind.field(key, value, &mut self.extra);
                    } )*
                    _ => kind.unknown(key, value, &mut self.extra),
                }
            }
        }

        /// Writes only the names of what is in `extra`: the values may be secret.
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut fields = f.debug_struct(stringify!($name));
                $( fields.field(stringify!($field), &self.$field); )*
                fields.field("extra", &self.extra.keys()).finish()
            }
        }

        impl $crate::wire::lenient::Lenient for $name {
            fn read(
                source: $crate::wire::lenient::JsonSource<'_>,
                _: $crate::wire::lenient::ListRule,
            ) -> Option<Self> {
                let mut object = Self::default();
                source.each_field(&mut |key, value| object.take(key, value))?;
                Some(object)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::wire::objects::objects!(@deserialize $kind from)
            }
        }
    )*};
    (@kind message) => { $crate::wire::objects::ObjectKind::Message };
    (@kind part) => { $crate::wire::objects::ObjectKind::Part };
    (@kind answer) => { $crate::wire::objects::ObjectKind::Answer };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
    // An answer may come from any format, a message is raw JSON.
    (@deserialize answer $from:ident) => {{
        let value = <serde_json::Value as serde::Deserialize>::deserialize($from)?;
        let source = $crate::wire::lenient::JsonSource::Parsed(&value);
        $crate::wire::lenient::Lenient::read(source, $crate::wire::lenient::ListRule::Whole)
            .ok_or_else(|| serde::de::Error::custom("an object is expected"))
    }};
    (@deserialize $kind:ident $from:ident) => {{
        let mut object = Self::default();
        $crate::wire::lenient::each_field($from, &mut |key, value| object.take(key, value))?;
        Ok(object)
    }};
}
pub(crate) use objects;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(unreachable_pub, dead_code, reason = "the macros make public types")]

    use serde_json::json;

    use std::collections::BTreeMap;

    use super::*;
    use crate::wire::words::words;

    objects! {
        answer Inner {
            count: u64 = "theCount",
        }
        answer Outer {
            text: Option<String>,
            inner: Vec<Inner>,
            by_name: BTreeMap<String, u64>,
            word: Word,
        }
        message Body {
            text: Option<String>,
            list: Vec<u64>,
            by_name: BTreeMap<String, u64>,
        }
    }

    words! {
        /// A word.
        pub enum Word or "" {
            Yes = "yes",
        }
    }

    #[test]
    fn an_answer_keeps_what_does_not_fit_at_every_level() {
        let read: Outer = serde_json::from_value(json!({
            "text": 7, "inner": [{"theCount": 2.0, "more": 1}], "word": "perhaps", "new": [1], "by_name": {"a": 1},
        }))
        .unwrap();
        assert_eq!((read.text, read.inner[0].count, read.by_name["a"]), (None, 2, 1));
        assert_eq!(Value::Object(read.extra), json!({"text": 7, "new": [1]}));
        assert_eq!(read.inner[0].extra["more"], 1);
        assert_eq!(read.word.as_str(), "perhaps");
    }

    #[test]
    fn an_answer_keeps_a_list_whole_if_one_element_does_not_fit() {
        let odd = json!({"inner": [{"theCount": 1}, 3], "by_name": {"a": 1, "b": "x"}});
        let read = Outer::read(JsonSource::Parsed(&odd), ListRule::Whole).unwrap();
        assert!(read.inner.is_empty() && read.by_name.is_empty());
        assert_eq!(Value::Object(read.extra), odd);
        assert!(Outer::read(JsonSource::Parsed(&json!([])), ListRule::Whole).is_none());
        let nothing: Outer = serde_json::from_value(json!({"text": null, "inner": null})).unwrap();
        assert_eq!((nothing.word.to_string(), nothing.extra.len()), (String::new(), 0));
    }

    #[test]
    fn a_message_drops_what_does_not_fit_and_the_fields_of_every_message() {
        let read: Body = serde_json::from_str(
            r#"{"type": "x", "uuid": "u", "text": 7, "list": [1, "a", 2.6, -1], "by_name": {"a": 1, "b": []},
                "new": null, "text": "last", "deep": 1e999}"#,
        )
        .unwrap();
        assert_eq!((read.text.as_deref(), &read.list), (Some("last"), &vec![1, 3]));
        assert_eq!(read.by_name, BTreeMap::from([("a".to_owned(), 1)]));
        assert_eq!(Value::Object(read.extra), json!({"new": null}));
        assert!(serde_json::from_str::<Body>("[]").is_err());
    }
}
