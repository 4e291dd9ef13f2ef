//! The lenient reader: a field of an unexpected shape costs that field and nothing else.
//!
//! The CLI may be newer or older than this library, so its JSON is never refused for what is inside of it. [`Lenient`]
//! says how a type is read, and [`JsonSource`] from what. Structs are declared with [`objects!`](super::objects), enums
//! of words with [`words!`](super::words).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// JSON that a value can be read from: the raw text of a message, or a parsed [`Value`]. An enum and not a trait, so that
/// each type is compiled once for both.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JsonSource<'a> {
    Raw(&'a RawValue),
    Parsed(&'a Value),
}

impl<'a> JsonSource<'a> {
    /// The value as a `T`; `None` if it is null or of another shape.
    pub(crate) fn parse<T: Deserialize<'a>>(self) -> Option<T> {
        match self {
            JsonSource::Raw(raw) => fits(raw),
            JsonSource::Parsed(value) => Option::deserialize(value).ok().flatten(),
        }
    }

    /// The JSON text.
    #[cfg(feature = "sessions")]
    pub(crate) fn json(self) -> Cow<'a, str> {
        match self {
            JsonSource::Raw(raw) => Cow::Borrowed(raw.get()),
            JsonSource::Parsed(value) => Cow::Owned(value.to_string()),
        }
    }

    /// The elements of a list; `None` if the value is no list.
    pub(crate) fn elements(self) -> Option<Vec<Self>> {
        match self {
            JsonSource::Raw(raw) => {
                Some(fits::<Vec<&RawValue>>(raw)?.into_iter().map(JsonSource::Raw).collect())
            }
            JsonSource::Parsed(value) => Some(value.as_array()?.iter().map(JsonSource::Parsed).collect()),
        }
    }

    /// Calls `take` with each field of an object; `None` if the value is no object.
    pub(crate) fn each_field(self, take: &mut dyn FnMut(&str, Self)) -> Option<()> {
        match self {
            JsonSource::Raw(raw) => each_field(&mut serde_json::Deserializer::from_str(raw.get()), take).ok(),
            JsonSource::Parsed(value) => {
                value.as_object()?.iter().for_each(|(key, value)| take(key, JsonSource::Parsed(value)));
                Some(())
            }
        }
    }

    pub(crate) fn is_null(self) -> bool {
        match self {
            JsonSource::Raw(raw) => raw.get() == "null",
            JsonSource::Parsed(value) => value.is_null(),
        }
    }
}

/// Calls `take` with each field of a JSON object, in one pass and without a list of the fields.
pub(crate) fn each_field<'de, D: Deserializer<'de>>(
    from: D,
    take: &mut dyn FnMut(&str, JsonSource<'de>),
) -> Result<(), D::Error> {
    struct EachField<'t, 'de>(&'t mut dyn FnMut(&str, JsonSource<'de>));

    impl<'de> Visitor<'de> for EachField<'_, 'de> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some(key) = map.next_key::<Word<'de>>()? {
                (self.0)(&key.0, JsonSource::Raw(map.next_value()?));
            }
            Ok(())
        }
    }
    from.deserialize_map(EachField(take))
}

/// Reads a struct from a JSON object, also for `deserialize_with`. The code that serde derives would read a list as well,
/// and take its elements for the fields in order.
pub(crate) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_map(Object(PhantomData))
}

struct Object<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// Reads a struct from the text of a JSON object: see [`object`].
pub(crate) fn read_object<'de, T: Deserialize<'de>>(json: &'de str) -> serde_json::Result<T> {
    let mut json = serde_json::Deserializer::from_str(json);
    let read = object(&mut json)?;
    json.end().map(|()| read)
}

/// A text, borrowed unless the JSON has it escaped.
pub(crate) struct Word<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Word<'a> {
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

/// Treatment of lists and maps with an element that does not fit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ListRule {
    /// The elements that fit are kept.
    Fitting,
    /// The whole list does not fit: half a list would look like a complete one.
    Whole,
}

/// A type that can be read from any JSON without an error.
pub(crate) trait Lenient: Sized {
    /// The value; `None` if `source` is null or of another shape.
    fn read(source: JsonSource<'_>, lists: ListRule) -> Option<Self>;
}

/// Reads types as serde does: for scalars, and for types that implement `Deserialize` by hand.
macro_rules! by_serde {
    ($($type:ty),* $(,)?) => {$(
        impl $crate::wire::lenient::Lenient for $type {
            fn read(
                source: $crate::wire::lenient::JsonSource<'_>,
                _: $crate::wire::lenient::ListRule,
            ) -> Option<Self> {
                source.parse()
            }
        }
    )*};
}
pub(crate) use by_serde;

/// As [`by_serde!`], for types that borrow raw JSON while they are read: a parsed [`Value`] is written as text first.
#[cfg(feature = "sessions")]
macro_rules! by_json {
    ($($type:ty),* $(,)?) => {$(
        impl $crate::wire::lenient::Lenient for $type {
            fn read(
                source: $crate::wire::lenient::JsonSource<'_>,
                _: $crate::wire::lenient::ListRule,
            ) -> Option<Self> {
                serde_json::from_str::<Option<Self>>(&source.json()).ok().flatten()
            }
        }
    )*};
}
#[cfg(feature = "sessions")]
pub(crate) use by_json;

by_serde!(String, bool, f64, u16, i64, Value, Map<String, Value>);

impl Lenient for u64 {
    /// JavaScript has only floats, so a fraction is rounded. A negative number does not fit.
    fn read(source: JsonSource<'_>, _: ListRule) -> Option<Self> {
        // Casting a float saturates, so a number out of range becomes the nearest that fits.
        let rounded =
            || source.parse::<f64>().filter(|number| *number >= 0.0).map(|number| number.round() as u64);
        source.parse().or_else(rounded)
    }
}

impl<T: Lenient> Lenient for Option<T> {
    fn read(source: JsonSource<'_>, lists: ListRule) -> Option<Self> {
        T::read(source, lists).map(Some)
    }
}

impl<T: Lenient> Lenient for Vec<T> {
    fn read(source: JsonSource<'_>, lists: ListRule) -> Option<Self> {
        let read = source.elements()?.into_iter().map(|element| T::read(element, lists));
        match lists {
            ListRule::Fitting => Some(read.flatten().collect()),
            ListRule::Whole => read.collect(),
        }
    }
}

impl<T: Lenient> Lenient for BTreeMap<String, T> {
    fn read(source: JsonSource<'_>, lists: ListRule) -> Option<Self> {
        let (mut read, mut fit) = (BTreeMap::new(), true);
        source.each_field(&mut |key, value| match T::read(value, lists) {
            Some(value) => drop(read.insert(key.to_owned(), value)),
            None => fit = false,
        })?;
        (fit || matches!(lists, ListRule::Fitting)).then_some(read)
    }
}

/// The value as a `T`; `None` if it is null or of another shape.
pub(crate) fn fits<'de, T: Deserialize<'de>>(raw: &'de RawValue) -> Option<T> {
    serde_json::from_str::<Option<T>>(raw.get()).ok().flatten()
}

/// The elements of a list that fit; empty if the value is no list.
pub(crate) fn fitting<'de, T: Deserialize<'de>>(raw: &'de RawValue) -> Vec<T> {
    fits::<Vec<&RawValue>>(raw).unwrap_or_default().into_iter().filter_map(fits).collect()
}

/// For `deserialize_with`: the value, or its default if it does not fit.
pub(crate) fn or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Lenient + Default,
{
    let raw = <&'de RawValue>::deserialize(from)?;
    Ok(T::read(JsonSource::Raw(raw), ListRule::Fitting).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_struct_is_read_from_an_object_and_not_from_a_list() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct Point {
            x: u8,
            y: Option<u8>,
        }
        let both = Point { x: 1, y: Some(2) };
        assert_eq!(read_object::<Point>(r#" {"y": 2, "x": 1, "z": [0]}"#).unwrap(), both);
        assert_eq!(serde_json::from_str::<Point>("[1, 2]").unwrap(), both);
        let error = read_object::<Point>("[1, 2]").unwrap_err();
        assert!(error.to_string().starts_with("invalid type: sequence, expected a JSON object"), "{error}");
        for json in ["null", "1", r#""x""#, r#"{"x": 1} 2"#, ""] {
            assert!(read_object::<Point>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn counts_are_read_from_any_number_that_is_not_negative() {
        for (json, count) in
            [("3", Some(3)), ("2.6", Some(3)), ("1e30", Some(u64::MAX)), ("-1", None), (r#""4""#, None)]
        {
            let (raw, value): (&RawValue, Value) =
                (serde_json::from_str(json).unwrap(), serde_json::from_str(json).unwrap());
            assert_eq!(u64::read(JsonSource::Raw(raw), ListRule::Whole), count, "{json}");
            assert_eq!(u64::read(JsonSource::Parsed(&value), ListRule::Whole), count, "{json}");
        }
    }
}
