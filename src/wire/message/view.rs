//! How typed views are declared: structs of lenient fields, and enums of the CLI's words.
//!
//! A view is read in one pass. A field that does not have its shape counts as absent, and a field that is not
//! declared is kept in `extra`; so reading an object never fails for what is inside it.

use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::read::{count_of, fits};

/// What can be read from any JSON without an error.
pub(super) trait Loose: Sized {
    /// The value; `None` if it is null or does not have the shape.
    fn loose(raw: &RawValue) -> Option<Self>;
}

impl<T: Loose> Loose for Option<T> {
    fn loose(raw: &RawValue) -> Option<Self> {
        Some(T::loose(raw))
    }
}

/// The elements that fit; none if it is no list.
impl<T: Loose> Loose for Vec<T> {
    fn loose(raw: &RawValue) -> Option<Self> {
        Some(fits::<Vec<&RawValue>>(raw)?.into_iter().filter_map(T::loose).collect())
    }
}

/// The entries whose value fits.
impl<T: Loose> Loose for BTreeMap<String, T> {
    fn loose(raw: &RawValue) -> Option<Self> {
        let entries: BTreeMap<String, &RawValue> = fits(raw)?;
        Some(entries.into_iter().filter_map(|(key, value)| Some((key, T::loose(value)?))).collect())
    }
}

/// A count or a number of milliseconds. JavaScript has only floats, so a fraction is rounded; what is negative
/// does not fit.
impl Loose for u64 {
    fn loose(raw: &RawValue) -> Option<Self> {
        count_of(raw)
    }
}

macro_rules! loose {
    ($($type:ty),* $(,)?) => {$(
        impl $crate::wire::message::view::Loose for $type {
            fn loose(raw: &serde_json::value::RawValue) -> Option<Self> {
                $crate::wire::message::read::fits(raw)
            }
        }
    )*};
}
pub(super) use loose;

loose!(String, bool, f64, u16, i64, Value);

/// For `deserialize_with`: whatever is there, or the default.
pub(super) fn loosely<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Loose + Default,
{
    Ok(T::loose(<&'de RawValue>::deserialize(from)?).unwrap_or_default())
}

/// What every message has, and a view of a message therefore need not keep.
pub(super) const ENVELOPE: [&str; 7] = [
    "type",
    "subtype",
    "uuid",
    "session_id",
    "parent_tool_use_id",
    "user_message_uuid",
    "user_message_uuids",
];

macro_rules! key {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:literal) => {
        $key
    };
}
pub(super) use key;

/// Declares views: `message` is the body of a message, `part` an object inside of one. Each has an example, which
/// is a JSON text and what must hold of it, and becomes a doc test.
macro_rules! view {
    ($(
        $(#[$doc:meta])*
        $place:ident $name:ident: $example:literal => $check:literal {
            $( $(#[$about:meta])* $field:ident: $type:ty $(= $key:literal)?, )*
        }
    )*) => {$(
        $(#[$doc])*
        ///
        #[doc = concat!(
            "```\nlet view: greenroom::message::", stringify!($name), " = serde_json::from_str(r#\"", $example,
            "\"#)?;\nassert!(", $check, ");\n# Ok::<(), serde_json::Error>(())\n```"
        )]
        #[derive(Clone, Debug, Default, PartialEq)]
        #[non_exhaustive]
        pub struct $name {
            $( $(#[$about])* pub $field: $type, )*
            /// Fields that have no place here.
            pub extra: serde_json::Map<String, serde_json::Value>,
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Fields;
                impl<'de> serde::de::Visitor<'de> for Fields {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a JSON object")
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        use $crate::wire::message::view::{Loose, view};
                        const SKIPPED: &[&str] = view!(@skipped $place);
                        let mut view = $name::default();
                        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                            let raw: &'de serde_json::value::RawValue = map.next_value()?;
                            match &*key {
                                $( $crate::wire::message::view::key!($field $($key)?) => {
                                    view.$field = Loose::loose(raw).unwrap_or_default();
                                } )*
                                key if SKIPPED.contains(&key) => {}
                                // What has no `Value` (nested too deep, a number out of range) is in the raw JSON.
                                _ => if let Ok(value) = serde_json::from_str(raw.get()) {
                                    view.extra.insert(key.into_owned(), value);
                                }
                            }
                        }
                        Ok(view)
                    }
                }
                deserializer.deserialize_map(Fields)
            }
        }

        $crate::wire::message::view::loose!($name);
    )*};
    (@skipped message) => { &$crate::wire::message::view::ENVELOPE };
    (@skipped part) => { &[] };
}
pub(super) use view;

/// Declares enums of words. A word that is not known is kept.
macro_rules! words {
    ($(
        $(#[$doc:meta])*
        $name:ident {
            $(#[$first_about:meta])* $first:ident = $first_word:literal,
            $( $(#[$about:meta])* $variant:ident = $word:literal, )*
        }
    )*) => {$(
        $(#[$doc])*
        ///
        #[doc = concat!(
            "```\nuse greenroom::message::", stringify!($name), ";\n\nlet known: ", stringify!($name),
            " = serde_json::from_str(\"\\\"", $first_word, "\\\"\")?;\nassert_eq!(known, ", stringify!($name), "::",
            stringify!($first), ");\nassert_eq!(", stringify!($name),
            "::from(\"of next year\").as_str(), \"of next year\");\n# Ok::<(), serde_json::Error>(())\n```"
        )]
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $(#[$first_about])*
            $first,
            $( $(#[$about])* $variant, )*
            /// A word that this library does not know; empty if the CLI gave none.
            Other(String),
        }

        impl $name {
            /// The words that this library knows, as the CLI spells them.
            pub const KNOWN: &'static [&'static str] = &[$first_word, $($word),*];

            /// The word, as the CLI spells it.
            pub fn as_str(&self) -> &str {
                match self {
                    $name::$first => $first_word,
                    $( $name::$variant => $word, )*
                    $name::Other(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $first_word => $name::$first,
                    $( $word => $name::$variant, )*
                    _ => $name::Other(word.to_owned()),
                }
            }
        }

        impl Default for $name {
            /// No word.
            fn default() -> Self {
                $name::Other(String::new())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok($name::from(<std::borrow::Cow<'de, str>>::deserialize(deserializer)?.as_ref()))
            }
        }

        $crate::wire::message::view::loose!($name);
    )*};
}
pub(super) use words;

/// Declares a message whose fields are read leniently, beside its raw JSON: the struct, what is read of it, and how
/// the one becomes the other. `read` are fields that must have their shape, `made` are made of those.
macro_rules! message {
    (
        $(#[$doc:meta])*
        $name:ident {
            read { $( $(#[$read_attr:meta])* $read:ident: $read_type:ty, )* }
            made |$fields:ident, $head:ident| { $( $(#[$made_about:meta])* $made:ident: $made_type:ty = $make:expr, )* }
            $( $(#[$about:meta])* $field:ident: $type:ty $(= $key:literal)?, )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub struct $name {
            pub(super) head: Head,
            raw: Box<RawValue>,
            $( $(#[$made_about])* pub $made: $made_type, )*
            $( $(#[$about])* pub $field: $type, )*
        }

        #[derive(serde::Deserialize)]
        pub(super) struct Fields {
            $( $(#[$read_attr])* $read: $read_type, )*
            $(
                #[serde(default, deserialize_with = "crate::wire::message::view::loosely")]
                $( #[serde(rename = $key)] )?
                $field: $type,
            )*
        }

        impl Fields {
            pub(super) fn finish(self, head: Head, raw: Box<RawValue>) -> $name {
                let ($fields, $head) = (self, &head);
                $( let $made = $make; )*
                $name { $( $made, )* $( $field: $fields.$field, )* head, raw }
            }
        }

        $crate::wire::message::common!($name);
    };
}
pub(super) use message;
