//! Plugins that the CLI loads.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A plugin that the CLI loads, as the CLI's JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub enum Plugin {
    /// A plugin in a folder of this machine.
    Local {
        /// The plugin's folder.
        path: PathBuf,
        /// Whether the plugin's MCP servers are left out; its skills, hooks, agents and commands are loaded.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        skip_mcp_discovery: bool,
    },
}

impl Plugin {
    /// The plugin in this folder, with all its parts.
    pub fn local(path: impl Into<PathBuf>) -> Self {
        Self::Local { path: path.into(), skip_mcp_discovery: false }
    }
}
