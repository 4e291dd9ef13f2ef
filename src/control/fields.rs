//! Reads requests of the CLI field by field: a missing required field is an error, and an optional field that does not
//! fit its type stays in `extra`.
//!
//! A request costs no more than a few times its line. A field stays JSON until it is read, and a [`LazyValue`] stays JSON
//! until the application uses it. All other fields together may have as many values as a view of a message. A request with
//! more is refused and not cut: a handler must not decide about a part of a request.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{self, SerializeMap};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::lazy::LazyValue;
use crate::wire::lenient::{JsonSource, Lenient, ListRule};
use crate::wire::message::abridge::{most_values, values};

/// The fields of a request, and the names of those read so far. The rest becomes the request's `extra`: unknown fields,
/// misfits, and nulls and defaults, so that the request is written as it came.
#[derive(Debug)]
pub(crate) struct RequestFields {
    all: BTreeMap<String, LazyValue>,
    read: Vec<&'static str>,
    /// Number of values that the parsed fields may still have.
    room: usize,
}

impl RequestFields {
    pub(crate) fn new(all: BTreeMap<String, LazyValue>) -> Self {
        let bytes = all.values().map(|json| json.raw().get().len()).sum();
        let room = most_values(bytes).saturating_sub(all.len());
        Self { all, read: Vec::new(), room }
    }

    pub(crate) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        unparsed(from).map(Self::new)
    }

    /// Reads a required field.
    pub(crate) fn need<T: Field, E: de::Error>(&mut self, name: &'static str) -> Result<T, E> {
        let name = plain_name(name);
        let Some(json) = self.all.get(name) else {
            return Err(E::custom(format_args!("missing field `{name}`")));
        };
        let read = T::parse(json, &mut self.room).map_err(|error| misfit(name, &error))?;
        self.read.push(name);
        Ok(read)
    }

    /// Reads an optional field. A field of another shape stays in the rest.
    pub(crate) fn may<T: Field>(&mut self, name: &'static str) -> Option<T> {
        let json = self.all.get(name).filter(|json| !json.is_null())?;
        let read = T::parse(json, &mut self.room).ok()?;
        self.read.push(name);
        Some(read)
    }

    /// Reads an optional field, or its default. A field that equals the default stays in the rest.
    pub(crate) fn or_default<T: Field + Default + PartialEq>(&mut self, name: &'static str) -> T {
        let room = &mut self.room;
        let read = self.all.get(name).and_then(|json| T::parse(json, room).ok()).unwrap_or_default();
        if read != T::default() {
            self.read.push(name);
        }
        read
    }

    /// The fields that were not read.
    ///
    /// # Errors
    /// They have too many values, or JSON that is no [`Value`].
    pub(crate) fn rest<E: de::Error>(&mut self) -> Result<Map<String, Value>, E> {
        for name in self.read.drain(..) {
            self.all.remove(name);
        }
        let mut rest = Map::new();
        for (name, json) in std::mem::take(&mut self.all) {
            let value = json.check().and_then(|()| Field::parse(&json, &mut self.room));
            let value = value.map_err(|error| misfit(&name, &error))?;
            rest.insert(name, value);
        }
        Ok(rest)
    }
}

fn misfit<E: de::Error>(name: &str, error: &serde_json::Error) -> E {
    E::custom(format_args!("field `{name}`: {error}"))
}

/// The fields of an object, not parsed and not checked. The last one of duplicate keys counts, as in JavaScript.
pub(crate) fn unparsed<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, LazyValue>, D::Error> {
    struct Unparsed;

    impl<'de> Visitor<'de> for Unparsed {
        type Value = BTreeMap<String, LazyValue>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut all = BTreeMap::new();
            while let Some((name, json)) = map.next_entry()? {
                all.insert(name, LazyValue::unchecked(json));
                if all.len() > most_values(0) {
                    return Err(de::Error::custom("it has too many fields"));
                }
            }
            Ok(all)
        }
    }
    from.deserialize_map(Unparsed)
}

/// The type of a field. Types that the lenient reader knows are parsed at once. A [`LazyValue`] is not parsed, also inside
/// of a [`Part`].
pub(crate) trait Field: Sized {
    /// Takes the number of values that it parses out of `room`.
    fn parse(json: &LazyValue, room: &mut usize) -> serde_json::Result<Self>;
}

impl<T: Lenient + DeserializeOwned> Field for T {
    fn parse(json: &LazyValue, room: &mut usize) -> serde_json::Result<Self> {
        let json = json.raw().get();
        let left = left(*room, values(json))?;
        let read = serde_json::from_str(json).or_else(|_| fit(&serde_json::from_str(json)?))?;
        *room = left;
        Ok(read)
    }
}

impl Field for LazyValue {
    fn parse(json: &LazyValue, _: &mut usize) -> serde_json::Result<Self> {
        json.check()?;
        Ok(json.clone())
    }
}

fn left(room: usize, values: usize) -> serde_json::Result<usize> {
    room.checked_sub(values).ok_or_else(|| de::Error::custom("it holds too many values"))
}

/// An object inside of a request. Its fields are read as those of the request are.
pub(crate) trait Part: Sized {
    /// Names of the declared fields.
    const NAMES: &[&str];

    fn take<E: de::Error>(fields: &mut RequestFields) -> Result<Self, E>;
}

pub(crate) fn read_part<T: Part>(json: &RawValue, room: &mut usize) -> serde_json::Result<T> {
    let mut fields = RequestFields::read(&mut serde_json::Deserializer::from_str(json.get()))?;
    fields.room = left(*room, fields.all.len())?;
    let part = T::take::<serde_json::Error>(&mut fields)?;
    *room = fields.room;
    Ok(part)
}

pub(crate) fn read_parts<T: Part>(json: &RawValue, room: &mut usize) -> serde_json::Result<Vec<T>> {
    struct Parts<'r, T>(&'r mut usize, PhantomData<T>);

    impl<'de, T: Part> Visitor<'de> for Parts<'_, T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let mut parts = Vec::new();
            while let Some(json) = seq.next_element::<&RawValue>()? {
                parts.push(read_part(json, self.0).map_err(de::Error::custom)?);
            }
            Ok(parts)
        }
    }
    let mut left = *room;
    let parts =
        serde_json::Deserializer::from_str(json.get()).deserialize_seq(Parts(&mut left, PhantomData))?;
    *room = left;
    Ok(parts)
}

/// The wire name of a Rust field: without the `r#` of a keyword.
pub(crate) fn plain_name(name: &'static str) -> &'static str {
    name.trim_start_matches("r#")
}

/// Reads a value as its type. Rounds a count with a fraction: JavaScript has only floats.
fn fit<T: DeserializeOwned>(value: &Value) -> Result<T, serde_json::Error> {
    T::deserialize(value).or_else(|error| match u64::read(JsonSource::Parsed(value), ListRule::Whole) {
        Some(count) if value.is_f64() => T::deserialize(Value::from(count)),
        _ => Err(error),
    })
}

/// Writes a field as JavaScript would: a number without a fraction has no point.
pub(crate) fn write<M: SerializeMap>(
    map: &mut M,
    name: &'static str,
    value: &impl Serialize,
) -> Result<(), M::Error> {
    let mut json = to_raw_value(value).map_err(ser::Error::custom)?;
    if let Some(whole) = json.get().strip_suffix(".0") {
        json = RawValue::from_string(whole.to_owned()).map_err(ser::Error::custom)?;
    }
    map.serialize_entry(plain_name(name), &json)
}

/// Declares structs of the CLI's requests: `request` is a whole request, `input` the input of a hook, `part` an object
/// inside of one. They are read with [`RequestFields`] and written as they came. A field is required (`need`), an
/// `Option` (`may`), has the default of its type if the CLI leaves it out (`or_default`), or holds the fields that all
/// hooks share (`common`). A field whose name on the wire differs is followed by that name.
macro_rules! requests {
    ($(
        $(#[$doc:meta])*
        $kind:ident $name:ident {
            $( $(#[$about:meta])* $how:ident $field:ident: $type:ty $(= $key:literal)?, )*
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "fields are named as on the wire")]
        #[non_exhaustive]
        pub struct $name {
            $( $(#[$about])* pub $field: $crate::control::fields::requests!(@type $how $type), )*
            pub extra: serde_json::Map<String, serde_json::Value>,
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::control::fields::Part::take(&mut $crate::control::fields::RequestFields::read(from)?)
            }
        }

        impl $crate::control::fields::Part for $name {
            const NAMES: &[&str] = &[$( $crate::control::fields::requests!(@key $field $($key)?) ),*];

            fn take<E: serde::de::Error>(
                fields: &mut $crate::control::fields::RequestFields,
            ) -> Result<Self, E> {
                $crate::control::fields::requests!(@leave_out $kind fields);
                Ok(Self {
                    $( $field: $crate::control::fields::requests!(@read $how fields $field $($key)?), )*
                    extra: fields.rest()?,
                })
            }
        }

        $crate::control::fields::requests!(@field $kind $name);

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let mut map = serde::Serializer::serialize_map(to, None)?;
                let mut written = Vec::new();
                $( if let Some(value) = $crate::control::fields::requests!(@given $how $type, &self.$field) {
                    $crate::control::fields::requests!(@write $how value, map, $field $($key)?);
                    written.push($crate::control::fields::requests!(@key $field $($key)?));
                } )*
                // A field that did not fit is in `extra`, and may have been set since.
                for (name, value) in self.extra.iter().filter(|(name, _)| !written.contains(&name.as_str())) {
                    serde::ser::SerializeMap::serialize_entry(&mut map, name, value)?;
                }
                serde::ser::SerializeMap::end(map)
            }
        }
    )*};
    (@write common $value:ident, $map:ident, $($key:tt)+) => {
        $value.write(&mut $map, <Self as $crate::control::fields::Part>::NAMES)?
    };
    (@write $how:ident $value:ident, $map:ident, $($key:tt)+) => {
        $crate::control::fields::write(&mut $map, $crate::control::fields::requests!(@key $($key)+), $value)?
    };
    (@type may $type:ty) => { Option<$type> };
    (@type $how:ident $type:ty) => { $type };
    (@leave_out request $fields:ident) => { $fields.may::<String>("subtype"); };
    (@leave_out $kind:ident $fields:ident) => {};
    (@field part $name:ident) => {
        impl $crate::control::fields::Field for $name {
            fn parse(json: &$crate::control::lazy::LazyValue, room: &mut usize) -> serde_json::Result<Self> {
                $crate::control::fields::read_part(json.raw(), room)
            }
        }

        impl $crate::control::fields::Field for Vec<$name> {
            fn parse(json: &$crate::control::lazy::LazyValue, room: &mut usize) -> serde_json::Result<Self> {
                $crate::control::fields::read_parts(json.raw(), room)
            }
        }
    };
    (@field $kind:ident $name:ident) => {};
    (@read common $fields:ident $($key:tt)+) => { $fields.common() };
    (@read need $fields:ident $($key:tt)+) => { $fields.need($crate::control::fields::requests!(@key $($key)+))? };
    (@read $how:ident $fields:ident $($key:tt)+) => { $fields.$how($crate::control::fields::requests!(@key $($key)+)) };
    (@given may $type:ty, $value:expr) => { $value.as_ref() };
    (@given or_default $type:ty, $value:expr) => { Some($value).filter(|value| **value != <$type>::default()) };
    (@given $how:ident $type:ty, $value:expr) => { Some($value) };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
}
pub(crate) use requests;

// Guards: a hook's input, an elicitation or a dialog with very many values
#[cfg(test)]
mod tests {
    #![allow(unreachable_pub, dead_code, reason = "the macro makes public types")]

    use super::*;
    use serde_json::json;

    fn rest(fields: &mut RequestFields) -> Value {
        Value::Object(fields.rest::<serde_json::Error>().unwrap())
    }

    #[test]
    fn misfits_stay_and_missing_required_fields_are_named() {
        let mut fields = RequestFields::read(json!({"a": 1, "b": "x", "c": null, "d": true})).unwrap();
        assert_eq!(fields.need::<u64, serde_json::Error>("a").unwrap(), 1);
        assert_eq!(fields.may::<u64>("b"), None);
        assert_eq!(fields.may::<u64>("c"), None);
        let missing = fields.need::<u64, serde_json::Error>("e").unwrap_err();
        assert!(missing.to_string().contains("missing field `e`"), "{missing}");
        let misfit = fields.need::<String, serde_json::Error>("d").unwrap_err();
        assert!(misfit.to_string().contains("field `d`: invalid type"), "{misfit}");
        assert!(fields.or_default::<bool>("d"));
        assert_eq!(rest(&mut fields), json!({"b": "x", "c": null}));
    }

    #[test]
    fn only_a_count_with_a_fraction_is_rounded() {
        let mut fields =
            RequestFields::read(json!({"a": 12.5, "b": 2.0, "c": -0.5, "d": 0.25, "e": "1.5"})).unwrap();
        assert_eq!(fields.need::<u64, serde_json::Error>("a").unwrap(), 13);
        assert_eq!(fields.may::<u64>("b"), Some(2));
        assert_eq!(fields.may::<u64>("c"), None);
        assert_eq!(fields.may::<f64>("d"), Some(0.25));
        assert_eq!(fields.may::<u64>("e"), None);
        assert_eq!(fields.may::<String>("a"), None);
        assert_eq!(rest(&mut fields), json!({"c": -0.5, "e": "1.5"}));
    }

    #[test]
    fn a_request_with_too_many_values_is_refused_and_not_cut() {
        let many = |count: usize| Value::from(vec![json!([]); count]);
        let some = json!({"a": many(2000), "b": many(2000), "c": many(2000)});
        let mut fields = RequestFields::read(some.clone()).unwrap();
        fields.need::<Value, serde_json::Error>("a").unwrap();
        fields.may::<Value>("b").unwrap();
        assert_eq!(fields.may::<Value>("c"), None);
        for mut fields in [fields, RequestFields::read(some).unwrap()] {
            let refused = fields.rest::<serde_json::Error>().unwrap_err().to_string();
            assert_eq!(refused, "field `c`: it holds too many values");
        }
        // JSON that is not parsed may hold any number of values.
        let mut fields = RequestFields::read(json!({"a": many(9000), "b": 1})).unwrap();
        let lazy = fields.need::<LazyValue, serde_json::Error>("a").unwrap();
        assert_eq!((lazy.as_array().unwrap().len(), rest(&mut fields)), (9000, json!({"b": 1})));
        let flood: Map<String, Value> = (0..9000).map(|name| (name.to_string(), json!(1))).collect();
        let refused = RequestFields::read(Value::Object(flood)).unwrap_err().to_string();
        assert_eq!(refused, "it has too many fields");
    }

    requests! {
        part Piece {
            need name: String,
            may json: LazyValue,
        }
    }

    #[test]
    fn the_parts_of_a_list_share_the_bound_of_their_request() {
        let piece =
            |values: usize| json!({"name": "n", "json": vec![json!([]); 9000], "more": vec![1; values]});
        let read = |pieces: Vec<Value>| {
            let mut fields = RequestFields::read(json!({ "pieces": pieces })).unwrap();
            fields.need::<Vec<Piece>, serde_json::Error>("pieces")
        };
        let pieces = read(vec![piece(10); 5]).unwrap();
        assert_eq!((pieces.len(), pieces[4].json.as_ref().unwrap()[8999].clone()), (5, json!([])));
        let refused = read(vec![piece(3000); 5]).unwrap_err().to_string();
        assert!(refused.starts_with("field `pieces`: field `more`: it holds too many values"), "{refused}");
        let refused = read(vec![json!({"name": "n"}); 9000]).unwrap_err().to_string();
        assert!(refused.starts_with("field `pieces`: it holds too many values"), "{refused}");
    }
}
