//! How an answer is read: leniently, and without loss.
//!
//! A field of another shape than expected costs that field and no more, and what is not known is kept in `extra`, at
//! every level.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// What can be read out of a JSON value, or cannot.
pub(crate) trait Lenient: Sized {
    /// `None` if the value is something else; it is then kept as it is.
    fn read(value: &Value) -> Option<Self>;
}

impl Lenient for String {
    fn read(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
}

impl Lenient for bool {
    fn read(value: &Value) -> Option<Self> {
        value.as_bool()
    }
}

impl Lenient for f64 {
    fn read(value: &Value) -> Option<Self> {
        value.as_f64()
    }
}

impl Lenient for u64 {
    /// JavaScript has only floats, so a fraction is rounded; what is negative is something else.
    fn read(value: &Value) -> Option<Self> {
        // Casting a float saturates, so a number out of range becomes the nearest that fits.
        value
            .as_u64()
            .or_else(|| value.as_f64().filter(|number| *number >= 0.0).map(|number| number.round() as u64))
    }
}

impl Lenient for i64 {
    fn read(value: &Value) -> Option<Self> {
        value.as_i64()
    }
}

impl Lenient for Value {
    fn read(value: &Value) -> Option<Self> {
        Some(value.clone())
    }
}

impl Lenient for Map<String, Value> {
    fn read(value: &Value) -> Option<Self> {
        value.as_object().cloned()
    }
}

impl<T: Lenient> Lenient for Option<T> {
    fn read(value: &Value) -> Option<Self> {
        if value.is_null() { Some(None) } else { T::read(value).map(Some) }
    }
}

impl<T: Lenient> Lenient for Vec<T> {
    /// All or nothing: half a list would look like a whole one.
    fn read(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(T::read).collect()
    }
}

impl<T: Lenient> Lenient for BTreeMap<String, T> {
    fn read(value: &Value) -> Option<Self> {
        value.as_object()?.iter().map(|(key, value)| Some((key.clone(), T::read(value)?))).collect()
    }
}

/// Types of messages read raw JSON, which a parsed value has no more.
macro_rules! of_messages {
    ($($name:ty),*) => {$(
        impl Lenient for $name {
            fn read(value: &Value) -> Option<Self> {
                value.is_object().then(|| serde_json::from_str(&value.to_string()).ok()).flatten()
            }
        }
    )*};
}
of_messages!(crate::message::ModelUsage, crate::message::SlashCommand);

macro_rules! lenient_word {
    ($name:ty) => {
        impl $crate::requests::read::Lenient for $name {
            fn read(value: &::serde_json::Value) -> Option<Self> {
                value.as_str().map(Self::from)
            }
        }
    };
}
pub(crate) use lenient_word;

lenient_word!(crate::permission::PermissionBehavior);

/// Moves a field from what is not known into its place, if it fits there.
pub(crate) fn take<T: Lenient>(fields: &mut Map<String, Value>, name: &str, place: &mut T) {
    if let Some(value) = fields.get(name)
        && let Some(read) = T::read(value)
    {
        *place = read;
        fields.remove(name);
    } else if fields.get(name).is_some_and(Value::is_null) {
        // The same as not there.
        fields.remove(name);
    }
}

/// Defines objects of the CLI's answers: each field with its name on the wire. Every field may be missing; what is not
/// known, or is of another shape, is in `extra`.
macro_rules! answers {
    ($($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* pub $field:ident: $kind:ty = $wire:literal,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $kind,)*
            /// The fields that have no place here, or are of another shape than expected.
            pub extra: ::serde_json::Map<String, ::serde_json::Value>,
        }

        impl $crate::requests::read::Lenient for $name {
            fn read(value: &::serde_json::Value) -> Option<Self> {
                // An object without a field of its own is read as well.
                #[allow(unused_mut)]
                let mut read = Self { extra: value.as_object()?.clone(), ..Self::default() };
                $($crate::requests::read::take(&mut read.extra, $wire, &mut read.$field);)*
                Some(read)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let value = <::serde_json::Value as ::serde::Deserialize>::deserialize(from)?;
                $crate::requests::read::Lenient::read(&value)
                    .ok_or_else(|| ::serde::de::Error::custom("an object is expected"))
            }
        }
    )*};
}
pub(crate) use answers;

/// Defines words of the CLI: an open set, in which a word that is not known is kept. One that the CLI did not say is empty.
macro_rules! words {
    ($($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$variant_meta:meta])* $variant:ident = $wire:literal,)*
    })*) => {$(
        $crate::control::fields::open_enum! {
            $(#[$meta])*
            $name { $($(#[$variant_meta])* $variant = $wire,)* }
        }

        impl Default for $name {
            /// What the CLI did not say.
            fn default() -> Self {
                Self::Other(String::new())
            }
        }

        $crate::requests::read::lenient_word!($name);
    )*};
}
pub(crate) use words;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(unreachable_pub, dead_code, reason = "the macros make public types")]

    use serde_json::json;

    use super::*;

    answers! {
        /// One.
        pub struct Inner {
            /// A count.
            pub count: u64 = "theCount",
        }
        /// Two.
        pub struct Outer {
            /// A text.
            pub text: Option<String> = "text",
            /// A list.
            pub inner: Vec<Inner> = "inner",
            /// A word.
            pub word: Word = "word",
        }
    }

    words! {
        /// A word.
        pub enum Word {
            /// Yes.
            Yes = "yes",
        }
    }

    #[test]
    fn what_fits_is_taken_and_the_rest_is_kept_at_every_level() {
        let read: Outer = serde_json::from_value(json!({
            "text": 7, "inner": [{"theCount": 2.0, "more": 1}], "word": "perhaps", "new": [1],
        }))
        .unwrap();
        assert_eq!((read.text, read.inner[0].count), (None, 2));
        assert_eq!(Value::Object(read.extra), json!({"text": 7, "new": [1]}));
        assert_eq!(read.inner[0].extra["more"], 1);
        assert_eq!((read.word.as_str(), Word::from("yes")), ("perhaps", Word::Yes));
    }

    #[test]
    fn a_list_of_which_a_part_does_not_fit_stays_whole() {
        let read = Outer::read(&json!({"inner": [{"theCount": 1}, 3], "text": null})).unwrap();
        assert!(read.inner.is_empty() && read.text.is_none());
        assert_eq!(Value::Object(read.extra), json!({"inner": [{"theCount": 1}, 3]}));
        assert!(Outer::read(&json!([])).is_none());
        assert_eq!(Outer::read(&json!({})).unwrap().word.to_string(), "");
    }
}
