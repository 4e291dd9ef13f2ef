//! How requests of the CLI are read: what must be there is an error when it is not, everything else is read as far as
//! it fits, and what does not fit stays where it can be seen.

use serde::de::{self, DeserializeOwned, Deserializer};
use serde::ser::{self, SerializeMap};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::requests::read::Lenient;

/// The fields of a request, and which of them were read. The others are the request's `extra` in the end: what is not
/// known, what does not fit, and what says nothing (null, or the default where there is one), so that it is written as it
/// came.
#[derive(Debug)]
pub(crate) struct Fields {
    all: Map<String, Value>,
    read: Vec<&'static str>,
}

impl Fields {
    pub(crate) fn new(fields: Map<String, Value>) -> Self {
        Self { all: fields, read: Vec::new() }
    }

    pub(crate) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Map::deserialize(from).map(Self::new)
    }

    /// A field without which the request makes no sense.
    pub(crate) fn need<T: DeserializeOwned, E: de::Error>(&mut self, name: &'static str) -> Result<T, E> {
        let name = plain_name(name);
        let Some(value) = self.all.get(name) else {
            return Err(E::custom(format_args!("missing field `{name}`")));
        };
        let read = fit(value).map_err(|error| E::custom(format_args!("field `{name}`: {error}")))?;
        self.read.push(name);
        Ok(read)
    }

    /// A field that may be missing. One of another shape than expected stays where it is.
    pub(crate) fn may<T: DeserializeOwned>(&mut self, name: &'static str) -> Option<T> {
        let read = fit::<Option<T>>(self.all.get(name)?).ok()?;
        if read.is_some() {
            self.read.push(name);
        }
        read
    }

    /// The same, or its default, which is not to be written.
    pub(crate) fn or_default<T: DeserializeOwned + Default + PartialEq>(&mut self, name: &'static str) -> T {
        let read = self.all.get(name).and_then(|value| fit(value).ok()).unwrap_or_default();
        if read != T::default() {
            self.read.push(name);
        }
        read
    }

    /// What was not read.
    pub(crate) fn rest(mut self) -> Map<String, Value> {
        for name in self.read {
            self.all.remove(name);
        }
        self.all
    }
}

/// The name of a field whose name in Rust is this: some are keywords there.
pub(crate) fn plain_name(name: &'static str) -> &'static str {
    name.trim_start_matches("r#")
}

/// A value as its type. A count with a fraction is rounded: JavaScript has only floats.
fn fit<T: DeserializeOwned>(value: &Value) -> Result<T, serde_json::Error> {
    T::deserialize(value).or_else(|error| match u64::read(value) {
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
    // Up to here every whole number is one float and no other.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let value = serde_json::to_value(value).map_err(ser::Error::custom)?;
    match value.as_f64() {
        Some(number) if value.is_f64() && number.fract() == 0.0 && number.abs() <= EXACT => {
            map.serialize_entry(plain_name(name), &(number as i64))
        }
        _ => map.serialize_entry(plain_name(name), &value),
    }
}

/// A name that the CLI gives: an open set, so that one of tomorrow is kept as it is.
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant,)+
            /// One that this library does not know, in the CLI's own spelling.
            Other(String),
        }

        impl $name {
            /// Each that this library knows.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The CLI's own spelling.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)+
                    Self::Other(other) => other,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $($text => Self::$variant,)+
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::from(text.as_str())
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
                <String as serde::Deserialize>::deserialize(deserializer).map(Self::from)
            }
        }
    };
}
pub(crate) use open_enum;

/// An MCP server of which a request tells, and where it comes from.
///
/// ```
/// let server: greenroom::permission::McpServerProvenance =
///     serde_json::from_value(serde_json::json!({ "name": "calc", "source": "sdk" }))?;
/// assert!(server.is_in_process());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct McpServerProvenance {
    /// Its name, which anybody can give to a server: trust goes by the source.
    pub name: String,
    /// `sdk`, `plugin`, `user`, `project`, `local`, `dynamic`, `managed`, `enterprise`, `claudeai`, `agent`. An open set:
    /// one that is not known is a configured source, and never this application.
    pub source: String,
    /// Every other field, as it came.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl McpServerProvenance {
    /// Whether it is a [`ToolServer`](crate::ToolServer) of this session.
    pub fn is_in_process(&self) -> bool {
        self.source == "sdk"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_does_not_fit_stays_and_what_is_needed_is_named() {
        let mut fields = Fields::read(json!({"a": 1, "b": "x", "c": null, "d": true})).unwrap();
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
    fn a_count_with_a_fraction_is_rounded_and_nothing_else_is() {
        let mut fields =
            Fields::read(json!({"a": 12.5, "b": 2.0, "c": -0.5, "d": 0.25, "e": "1.5"})).unwrap();
        assert_eq!(fields.need::<u64, serde_json::Error>("a").unwrap(), 13);
        assert_eq!(fields.may::<u64>("b"), Some(2));
        assert_eq!(fields.may::<u64>("c"), None);
        assert_eq!(fields.may::<f64>("d"), Some(0.25));
        assert_eq!(fields.may::<u64>("e"), None);
        assert_eq!(fields.may::<String>("a"), None);
        assert_eq!(Value::Object(fields.rest()), json!({"c": -0.5, "e": "1.5"}));
    }
}
