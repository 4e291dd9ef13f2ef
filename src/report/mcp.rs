//! What the CLI says when its MCP servers are changed.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind, Result};

/// What the CLI made of a change of its MCP servers: its answer to `mcp_set_servers`.
///
/// ```
/// let result: greenroom::McpSetServersResult =
///     serde_json::from_str(r#"{"added": ["files"], "removed": [], "errors": {"files": "ENOENT"}}"#)?;
/// assert_eq!(result.errors["files"], "ENOENT");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct McpSetServersResult {
    /// The names of those that are new. One that the CLI dials and could not connect to is among them: the CLI lists
    /// it as `failed`.
    pub added: Vec<String>,
    /// The names of those that were there and are no more.
    pub removed: Vec<String>,
    /// Why a server could not be connected to, by its name.
    #[serde(deserialize_with = "texts")]
    pub errors: BTreeMap<String, String>,
    /// Whatever else the CLI says.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What is no text is kept as JSON.
fn texts<'de, D: Deserializer<'de>>(errors: D) -> std::result::Result<BTreeMap<String, String>, D::Error> {
    let errors = BTreeMap::<String, Value>::deserialize(errors)?;
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Ok(errors.into_iter().map(|(name, error)| (name, text(error))).collect())
}

impl McpSetServersResult {
    pub(crate) fn parse(answer: &RawValue) -> Result<Self> {
        serde_json::from_str(answer.get()).map_err(|error| {
            let text = "the CLI's answer to 'mcp_set_servers' cannot be read";
            Error::new(ErrorKind::Malformed, text).with_source(error)
        })
    }
}
