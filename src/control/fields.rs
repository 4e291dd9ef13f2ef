//! Reads requests of the CLI field by field: a missing required field is an error, and an optional field that does not
//! fit its type stays in `extra`.

use serde::de::{self, DeserializeOwned, Deserializer};
use serde::ser::{self, SerializeMap};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::wire::lenient::{JsonSource, Lenient, ListRule};

/// The fields of a request, and the names of those read so far. The rest becomes the request's `extra`: unknown fields,
/// misfits, and nulls and defaults, so that the request is written as it came.
#[derive(Debug)]
pub(crate) struct RequestFields {
    all: Map<String, Value>,
    read: Vec<&'static str>,
}

impl RequestFields {
    pub(crate) fn new(fields: Map<String, Value>) -> Self {
        Self { all: fields, read: Vec::new() }
    }

    pub(crate) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Map::deserialize(from).map(Self::new)
    }

    /// Reads a required field.
    pub(crate) fn need<T: DeserializeOwned, E: de::Error>(&mut self, name: &'static str) -> Result<T, E> {
        let name = plain_name(name);
        let Some(value) = self.all.get(name) else {
            return Err(E::custom(format_args!("missing field `{name}`")));
        };
        let read = fit(value).map_err(|error| E::custom(format_args!("field `{name}`: {error}")))?;
        self.read.push(name);
        Ok(read)
    }

    /// Reads an optional field. A field of another shape stays in the rest.
    pub(crate) fn may<T: DeserializeOwned>(&mut self, name: &'static str) -> Option<T> {
        let read = fit::<Option<T>>(self.all.get(name)?).ok()?;
        if read.is_some() {
            self.read.push(name);
        }
        read
    }

    /// Reads an optional field, or its default. A field that equals the default stays in the rest.
    pub(crate) fn or_default<T: DeserializeOwned + Default + PartialEq>(&mut self, name: &'static str) -> T {
        let read = self.all.get(name).and_then(|value| fit(value).ok()).unwrap_or_default();
        if read != T::default() {
            self.read.push(name);
        }
        read
    }

    /// The fields that were not read.
    pub(crate) fn rest(mut self) -> Map<String, Value> {
        for name in self.read {
            self.all.remove(name);
        }
        self.all
    }
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
    // Up to 2^53 every whole number is exactly one float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let value = serde_json::to_value(value).map_err(ser::Error::custom)?;
    match value.as_f64() {
        Some(number) if value.is_f64() && number.fract() == 0.0 && number.abs() <= EXACT => {
            map.serialize_entry(plain_name(name), &(number as i64))
        }
        _ => map.serialize_entry(plain_name(name), &value),
    }
}

/// Declares structs of the CLI's requests: `request` is a whole request, `part` an object inside of one. They are read
/// with [`RequestFields`] and written as they came. A field is required (`need`), an `Option` (`may`), or has the
/// default of its type if the CLI leaves it out (`or_default`). A field whose name on the wire differs is followed by
/// that name.
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
                let mut fields = $crate::control::fields::RequestFields::read(from)?;
                $crate::control::fields::requests!(@leave_out $kind fields);
                Ok(Self {
                    $( $field: $crate::control::fields::requests!(@read $how fields $field $($key)?), )*
                    extra: fields.rest(),
                })
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let mut map = serde::Serializer::serialize_map(to, None)?;
                $( if let Some(value) = $crate::control::fields::requests!(@given $how $type, &self.$field) {
                    let name = $crate::control::fields::requests!(@key $field $($key)?);
                    serde::ser::SerializeMap::serialize_entry(&mut map, name, value)?;
                } )*
                for (name, value) in &self.extra {
                    serde::ser::SerializeMap::serialize_entry(&mut map, name, value)?;
                }
                serde::ser::SerializeMap::end(map)
            }
        }
    )*};
    (@type may $type:ty) => { Option<$type> };
    (@type $how:ident $type:ty) => { $type };
    (@leave_out request $fields:ident) => { $fields.may::<String>("subtype") };
    (@leave_out part $fields:ident) => {};
    (@read need $fields:ident $($key:tt)+) => { $fields.need($crate::control::fields::requests!(@key $($key)+))? };
    (@read $how:ident $fields:ident $($key:tt)+) => { $fields.$how($crate::control::fields::requests!(@key $($key)+)) };
    (@given need $type:ty, $value:expr) => { Some($value) };
    (@given may $type:ty, $value:expr) => { $value.as_ref() };
    (@given or_default $type:ty, $value:expr) => { Some($value).filter(|value| **value != <$type>::default()) };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
}
pub(crate) use requests;

/// The MCP server that a request is about, and where its definition comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named as on the wire")]
#[non_exhaustive]
pub struct McpServerProvenance {
    /// Any server can have any name: decide about trust by `source`.
    pub name: String,
    /// `sdk`, `plugin`, `user`, `project`, `local`, `dynamic`, `managed`, `enterprise`, `claudeai`, `agent`. The set is
    /// open: treat an unknown source as configured by somebody else, never as this application.
    pub source: String,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl McpServerProvenance {
    /// Whether the server is a [`ToolServer`](crate::ToolServer) of this session.
    pub fn is_in_process(&self) -> bool {
        self.source == "sdk"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
        assert_eq!(Value::Object(fields.rest()), json!({"b": "x", "c": null}));
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
        assert_eq!(Value::Object(fields.rest()), json!({"c": -0.5, "e": "1.5"}));
    }
}
