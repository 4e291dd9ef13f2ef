//! The CLI's answer to a change of its MCP servers.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::{Error, ErrorKind, Result};
use crate::wire::objects::objects;

objects! {
    /// The CLI's answer to a change of its MCP servers (`mcp_set_servers`).
    answer McpSetServersResult {
        /// Names of new servers, including servers that the CLI could not connect to and lists as `failed`.
        added: Vec<String>,
        /// Names of removed servers.
        removed: Vec<String>,
        /// Connection errors, by the server's name. CLI 2.1.330 sends texts; another shape is kept.
        errors: BTreeMap<String, Value>,
    }
}

impl McpSetServersResult {
    /// The CLI has made the change already: a field that does not fit is kept in `extra`.
    pub(crate) fn parse(answer: &RawValue) -> Result<Self> {
        serde_json::from_str(answer.get()).map_err(|error| {
            let text = "the CLI's answer to 'mcp_set_servers' cannot be read";
            Error::new(ErrorKind::Malformed, text).with_source(error)
        })
    }

    /// The connection errors as texts, by the server's name.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = (&String, String)> {
        self.errors
            .iter()
            .map(|(name, error)| (name, error.as_str().map_or_else(|| error.to_string(), Into::into)))
    }
}
