//! JSON of the CLI that is kept as text, and parsed on the first use.
//!
//! Parsed JSON takes many times the memory of its text, and most handlers need only the tool's name or one field.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, OnceLock};

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// JSON of the CLI: use it like a [`Value`]. It is parsed on the first use, which takes many times the memory of the JSON
/// if it holds very many values. To read large JSON as a type of yours, parse [`raw`](LazyValue::raw) instead.
///
/// Clones share the JSON and the [`Value`].
///
/// Compare parsed values, not text. Serialisation and `Debug` write the exact JSON of the CLI, with its escapes: a hook that
/// searches for `sudo` in `serde_json::to_string(&input.tool_input)` does not find `"\u0073udo"`. `Display` writes the
/// parsed JSON.
///
/// ```
/// use greenroom::callback::LazyValue;
///
/// let arguments: LazyValue = serde_json::from_str(r#"{"command": "ls", "timeout": 5}"#)?;
/// assert_eq!(arguments["command"], "ls");
/// assert_eq!(arguments.raw().get(), r#"{"command": "ls", "timeout": 5}"#);
///
/// let escaped: LazyValue = serde_json::from_str(r#"{"command": "\u0073udo ls"}"#)?;
/// assert!(!serde_json::to_string(&escaped)?.contains("sudo"));
/// assert!(escaped["command"].as_str().is_some_and(|command| command.contains("sudo")));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone)]
pub struct LazyValue(Arc<LazyJson>);

struct LazyJson {
    json: Box<RawValue>,
    value: OnceLock<Value>,
}

impl LazyValue {
    /// The JSON as the CLI wrote it.
    pub fn raw(&self) -> &RawValue {
        &self.0.json
    }

    /// Whether the JSON is `null`. Does not parse it.
    pub fn is_null(&self) -> bool {
        self.raw().get() == "null"
    }

    /// Whether the JSON is an object. Does not parse it.
    pub fn is_object(&self) -> bool {
        self.raw().get().starts_with('{')
    }

    /// JSON that was not checked yet.
    pub(super) fn unchecked(json: Box<RawValue>) -> Self {
        Self(Arc::new(LazyJson { json, value: OnceLock::new() }))
    }

    /// # Errors
    /// As [`check_value`].
    pub(super) fn check(&self) -> serde_json::Result<()> {
        check_value(self.raw())
    }
}

impl Default for LazyValue {
    /// JSON null.
    fn default() -> Self {
        static NULL: LazyLock<LazyValue> = LazyLock::new(|| LazyValue::unchecked(RawValue::NULL.to_owned()));
        NULL.clone()
    }
}

impl Deref for LazyValue {
    type Target = Value;

    fn deref(&self) -> &Value {
        // The JSON was checked: it parses.
        self.0.value.get_or_init(|| serde_json::from_str(self.raw().get()).unwrap_or_default())
    }
}

impl From<Value> for LazyValue {
    fn from(value: Value) -> Self {
        // A `Value` always serialises to JSON.
        let json = serde_json::value::to_raw_value(&value).unwrap_or_else(|_| RawValue::NULL.to_owned());
        Self(Arc::new(LazyJson { json, value: value.into() }))
    }
}

impl From<LazyValue> for Value {
    fn from(lazy: LazyValue) -> Self {
        (*lazy).clone()
    }
}

/// Writes the exact JSON of the CLI.
impl fmt::Debug for LazyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.raw().get())
    }
}

/// Writes the parsed JSON: a text search also finds escaped characters.
impl fmt::Display for LazyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

impl PartialEq for LazyValue {
    /// Parses nothing to compare with `null`.
    fn eq(&self, other: &Self) -> bool {
        let (one, two) = (self.raw().get(), other.raw().get());
        one == two || (one != "null" && two != "null" && **self == **other)
    }
}

impl PartialEq<Value> for LazyValue {
    fn eq(&self, other: &Value) -> bool {
        **self == *other
    }
}

/// Writes the exact JSON of the CLI.
impl Serialize for LazyValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for LazyValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let lazy = Self::unchecked(Box::deserialize(from)?);
        lazy.check().map_err(de::Error::custom)?;
        Ok(lazy)
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

macro_rules! accept {
    ($($visit:ident: $type:ty),*) => {$(
        fn $visit<E>(self, _: $type) -> Result<Self, E> {
            Ok(self)
        }
    )*};
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

    accept!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

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

// Guards: a permission request with very many values
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(json: &str) -> Option<LazyValue> {
        serde_json::from_str(json).ok()
    }

    #[test]
    fn json_that_does_not_parse_is_refused() {
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(read(&deep(127)).is_some() && read(&deep(128)).is_none());
        assert!(read(r#"{"a": 1e999}"#).is_none() && read(r#"{"a": -1.5e9}"#).is_some());
    }

    #[test]
    fn escaped_characters_are_shown_and_serialised_as_written() {
        let lazy = read(r#"{"a": "\u0070assword"}"#).unwrap();
        assert_eq!(lazy.to_string(), r#"{"a":"password"}"#);
        let exact = r#"{"a": "\u0070assword"}"#;
        let written = serde_json::to_string(&lazy).unwrap();
        assert_eq!([lazy.raw().get(), &format!("{lazy:?}"), &written], [exact; 3]);
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
            prop_assert_eq!(read(&json).map(Value::from), serde_json::from_str(&json).ok());
        }
    }
}
