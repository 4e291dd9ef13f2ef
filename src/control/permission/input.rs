//! The arguments of a call that needs a permission: kept as JSON, and parsed on the first use.
//!
//! Parsed arguments take many times the memory of their line, and most handlers need only the tool's name or one field.

use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// The arguments. Clones share them.
#[derive(Clone)]
pub(crate) struct Input(Arc<InputJson>);

struct InputJson {
    json: Box<RawValue>,
    value: OnceLock<Value>,
}

static NULL: LazyLock<Input> = LazyLock::new(|| Input::new(RawValue::NULL.to_owned()));

impl Input {
    fn new(json: Box<RawValue>) -> Self {
        Self(Arc::new(InputJson { json, value: OnceLock::new() }))
    }

    /// No arguments.
    pub(super) fn null() -> Self {
        NULL.clone()
    }

    /// # Errors
    /// As [`check_value`].
    pub(super) fn read(json: Box<RawValue>) -> serde_json::Result<Self> {
        check_value(&json)?;
        Ok(Self::new(json))
    }

    pub(super) fn value(&self) -> &Value {
        // `read` checked the JSON: it parses.
        self.0.value.get_or_init(|| serde_json::from_str(self.0.json.get()).unwrap_or_default())
    }

    pub(super) fn json(&self) -> &RawValue {
        &self.0.json
    }

    pub(super) fn is_null(&self) -> bool {
        self.json().get() == "null"
    }

    pub(super) fn is_object(&self) -> bool {
        self.json().get().starts_with('{')
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.json().get())
    }
}

impl PartialEq for Input {
    fn eq(&self, other: &Self) -> bool {
        self.json().get() == other.json().get() || self.value() == other.value()
    }
}

impl Serialize for Input {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.json.serialize(serializer)
    }
}

/// Checks that the JSON parses to a `Value`, and that the `Value` is what was written: a handler must not decide about
/// anything else.
///
/// # Errors
/// The JSON is nested too deep, has a number out of range, or has a key that means something to serde_json.
pub(crate) fn check_value(json: &RawValue) -> serde_json::Result<()> {
    serde_json::from_str::<HasValue>(json.get()).map(|_| ())
}

/// Visits JSON as a `Value` would, without building the `Value`.
struct HasValue;

impl<'de> Deserialize<'de> for HasValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for HasValue {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<FieldName, Self>()?.is_some() {}
        Ok(self)
    }
}

/// A field's name that serde_json does not reserve. The reserved name of a `RawValue`, as an object's first field,
/// makes serde_json parse the field's text in place of the object.
struct FieldName;

const RESERVED: &str = "$serde_json::private::";

impl<'de> Deserialize<'de> for FieldName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Self)
    }
}

impl Visitor<'_> for FieldName {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Self, E> {
        match name.starts_with(RESERVED) {
            true => Err(E::custom(format_args!("a field is called `{name}`"))),
            false => Ok(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(json: &str) -> Option<Input> {
        Input::read(RawValue::from_string(json.to_owned()).unwrap()).ok()
    }

    #[test]
    fn json_that_does_not_parse_is_refused() {
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(read(&deep(127)).is_some() && read(&deep(128)).is_none());
        assert!(read(r#"{"a": 1e999}"#).is_none() && read(r#"{"a": -1.5e9}"#).is_some());
    }

    #[test]
    fn reserved_field_names_are_refused() {
        let raw = r#""$serde_json::private::RawValue":"{\"command\":\"ls\"}""#;
        for json in [
            format!("{{{raw}}}"),
            format!(r#"{{{raw},"command":"rm"}}"#),
            format!(r#"{{"a":[{{{raw}}}]}}"#),
            format!("{{{}}}", raw.replace("$serde", r"\u0024serde")),
        ] {
            assert!(read(&json).is_none(), "{json}");
        }
    }

    proptest! {
        #[test]
        fn check_value_accepts_exactly_what_serde_json_parses(json in r#"[\[\]{}:,"a1e9.\-\\u ]{1,12}"#) {
            if let Ok(raw) = RawValue::from_string(json.clone()) {
                let value = serde_json::from_str::<Value>(&json);
                prop_assert_eq!(Input::read(raw).ok().map(|input| input.value().clone()), value.ok());
            }
        }
    }
}
