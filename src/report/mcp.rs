//! The CLI's answer to a change of its MCP servers.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::error::{Error, ErrorKind, Result};
use crate::wire::lenient::{JsonSource, Lenient, ListRule};
use crate::wire::objects::ObjectKind;

/// The CLI's answer to a change of its MCP servers (`mcp_set_servers`).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct McpSetServersResult {
    /// Names of new servers, including servers that the CLI could not connect to and lists as `failed`.
    pub added: Vec<String>,
    /// Names of removed servers.
    pub removed: Vec<String>,
    /// Connection errors, by the server's name.
    pub errors: BTreeMap<String, String>,
    /// Unknown fields, and fields of an unexpected shape.
    pub extra: Map<String, Value>,
}

/// Errors by the server's name. An error that is no text is kept as JSON.
#[derive(Default)]
struct Errors(BTreeMap<String, String>);

impl Lenient for Errors {
    fn read(source: JsonSource<'_>, _: ListRule) -> Option<Self> {
        // Some languages write an empty object as an empty list.
        if source.elements().is_some_and(|errors| errors.is_empty()) {
            return Some(Self::default());
        }
        let mut errors = BTreeMap::new();
        source.each_field(&mut |name, error| {
            let text = error.parse::<String>().unwrap_or_else(|| error.json().into_owned());
            errors.insert(name.to_owned(), text);
        })?;
        Some(Self(errors))
    }
}

impl<'de> Deserialize<'de> for McpSetServersResult {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        // The CLI has made the change already, so a field of an unexpected shape is no error.
        let (mut result, mut extra) = (Self::default(), Map::new());
        for (key, value) in &Map::deserialize(from)? {
            let value = JsonSource::Parsed(value);
            match key.as_str() {
                "added" => result.added = ObjectKind::Answer.field(key, value, &mut extra),
                "removed" => result.removed = ObjectKind::Answer.field(key, value, &mut extra),
                "errors" => result.errors = ObjectKind::Answer.field::<Errors>(key, value, &mut extra).0,
                _ => ObjectKind::Answer.unknown(key, value, &mut extra),
            }
        }
        Ok(Self { extra, ..result })
    }
}

impl Serialize for McpSetServersResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let own =
            [("added", json!(self.added)), ("removed", json!(self.removed)), ("errors", json!(self.errors))];
        let mut fields = self.extra.clone();
        for (name, value) in own {
            // A field of an unexpected shape is already among them, unchanged.
            fields.entry(name).or_insert(value);
        }
        fields.serialize(serializer)
    }
}

impl McpSetServersResult {
    pub(crate) fn parse(answer: &RawValue) -> Result<Self> {
        serde_json::from_str(answer.get()).map_err(|error| {
            let text = "the CLI's answer to 'mcp_set_servers' cannot be read";
            Error::new(ErrorKind::Malformed, text).with_source(error)
        })
    }
}
