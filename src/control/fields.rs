//! How requests of the CLI are read: what must be there is an error when it is not, everything else is read as far as
//! it fits, and what does not fit stays where it can be seen.

use serde::de::{self, DeserializeOwned, Deserializer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The fields of a request that were not read yet. What is left in the end is the request's `extra`.
#[derive(Debug)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    pub(crate) fn new(fields: Map<String, Value>) -> Self {
        Self(fields)
    }

    pub(crate) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Map::deserialize(from).map(Self)
    }

    /// A field without which the request makes no sense.
    pub(crate) fn need<T: DeserializeOwned, E: de::Error>(&mut self, name: &str) -> Result<T, E> {
        // As it is written in Rust, where it is a keyword.
        let name = name.trim_start_matches("r#");
        let Some(value) = self.0.get(name) else {
            return Err(E::custom(format_args!("missing field `{name}`")));
        };
        let read =
            T::deserialize(value).map_err(|error| E::custom(format_args!("field `{name}`: {error}")))?;
        self.0.remove(name);
        Ok(read)
    }

    /// A field that may be missing. One of another shape than expected stays where it is.
    pub(crate) fn may<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let read = Option::<T>::deserialize(self.0.get(name)?).ok()?;
        self.0.remove(name);
        read
    }

    /// The same, or its default.
    pub(crate) fn or_default<T: DeserializeOwned + Default>(&mut self, name: &str) -> T {
        self.may(name).unwrap_or_default()
    }

    /// What is left.
    pub(crate) fn rest(self) -> Map<String, Value> {
        self.0
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
        assert_eq!(Value::Object(fields.rest()), json!({"b": "x", "d": true}));
    }
}
