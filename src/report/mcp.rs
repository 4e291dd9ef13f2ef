//! What the CLI says when its MCP servers are changed.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::error::{Error, ErrorKind, Result};
use crate::requests::read::{Lenient, take};

/// What the CLI made of a change of its MCP servers: its answer to `mcp_set_servers`.
///
/// ```
/// let result: greenroom::McpSetServersResult =
///     serde_json::from_str(r#"{"added": ["files"], "removed": [], "errors": {"files": "ENOENT"}}"#)?;
/// assert_eq!(result.errors["files"], "ENOENT");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct McpSetServersResult {
    /// The names of those that are new. One that the CLI dials and could not connect to is among them: the CLI lists
    /// it as `failed`.
    pub added: Vec<String>,
    /// The names of those that were there and are no more.
    pub removed: Vec<String>,
    /// Why a server could not be connected to, by its name.
    pub errors: BTreeMap<String, String>,
    /// Whatever else the CLI says, and what is of another shape than expected.
    pub extra: Map<String, Value>,
}

/// The reasons; what is no text is kept as JSON.
struct Reasons(BTreeMap<String, String>);

impl Lenient for Reasons {
    fn read(value: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let reason = |(name, error): (&String, &Value)| (name.clone(), text(error));
        match value {
            Value::Object(errors) => Some(Self(errors.iter().map(reason).collect())),
            // An empty object, as some write it.
            Value::Array(errors) if errors.is_empty() => Some(Self(BTreeMap::new())),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for McpSetServersResult {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        // The change is made whatever the answer says of it: a field of another shape costs no more than that field.
        let mut extra = Map::deserialize(from)?;
        let (mut added, mut removed, mut errors) = (Vec::new(), Vec::new(), Reasons(BTreeMap::new()));
        take(&mut extra, "added", &mut added);
        take(&mut extra, "removed", &mut removed);
        take(&mut extra, "errors", &mut errors);
        Ok(Self { added, removed, errors: errors.0, extra })
    }
}

impl Serialize for McpSetServersResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let own =
            [("added", json!(self.added)), ("removed", json!(self.removed)), ("errors", json!(self.errors))];
        let mut fields = self.extra.clone();
        for (name, value) in own {
            // What could not be read is still there, as it was.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(answer: &str) -> McpSetServersResult {
        McpSetServersResult::parse(&RawValue::from_string(answer.into()).unwrap()).unwrap()
    }

    #[test]
    fn a_field_of_another_shape_makes_no_change_malformed() {
        let nothing = McpSetServersResult::default();
        for answer in [r#"{"added": null, "removed": null, "errors": null}"#, r#"{"errors": []}"#, "{}"] {
            assert_eq!(read(answer), nothing, "{answer}");
        }
        let odd = read(r#"{"added": "a", "removed": ["b"], "errors": {"c": {"code": 1}}, "new": 2}"#);
        assert_eq!((odd.added.len(), &*odd.removed[0], &*odd.errors["c"]), (0, "b", r#"{"code":1}"#));
        assert_eq!(odd.extra, Map::from_iter([("added".into(), json!("a")), ("new".into(), json!(2))]));
        let written = serde_json::to_value(&odd).unwrap();
        assert_eq!(
            written,
            json!({ "added": "a", "removed": ["b"], "errors": { "c": r#"{"code":1}"# }, "new": 2 })
        );
    }
}
