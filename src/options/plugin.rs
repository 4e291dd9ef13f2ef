//! Plugins of a session.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A plugin that the CLI loads, in the CLI's own form.
///
/// ```
/// use greenroom::Plugin;
///
/// let plugin = Plugin::local("/srv/plugins/review");
/// let quiet: Plugin =
///     serde_json::from_str(r#"{ "type": "local", "path": "/srv/plugins/review", "skipMcpDiscovery": true }"#)?;
/// assert_ne!(plugin, quiet);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub enum Plugin {
    /// One in a folder of this machine.
    Local {
        /// The folder.
        path: PathBuf,
        /// Whether its MCP servers are left out; its skills, hooks, agents and commands are not.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        skip_mcp_discovery: bool,
    },
}

impl Plugin {
    /// The plugin in this folder, with all that is in it.
    pub fn local(path: impl Into<PathBuf>) -> Self {
        Self::Local { path: path.into(), skip_mcp_discovery: false }
    }

    /// The same without its MCP servers, for a host that connects to them itself.
    pub fn without_mcp(self) -> Self {
        match self {
            Self::Local { path, .. } => Self::Local { path, skip_mcp_discovery: true },
        }
    }
}
