//! MCP servers: their state, their resources.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::wire::lenient::by_serde;
use crate::wire::objects::objects;
use crate::wire::words::words;

objects! {
    /// State of the MCP servers.
    ///
    /// ```
    /// async fn down(session: &greenroom::Session) -> greenroom::Result<Vec<String>> {
    ///     use greenroom::requests::McpConnection;
    ///
    ///     let status = session.mcp_status().await?;
    ///     let down = status.servers.iter().filter(|server| server.status == McpConnection::Failed);
    ///     Ok(down.map(|server| server.name.clone()).collect())
    /// }
    /// # let _ = down;
    /// ```
    answer McpStatus {
        /// All servers, including in-process servers.
        servers: Vec<McpServerStatus> = "mcpServers",
    }

    /// State of an MCP server.
    answer McpServerStatus {
        name: String,
        status: McpConnection,
        /// The server's own name and version, once connected.
        server_info: Option<McpImplementation> = "serverInfo",
        error: Option<String>,
        /// May hold secrets.
        config: Option<McpServerConfig>,
        /// `stdio`, `http`, `sse`, `sdk`; an open set.
        transport: Option<String>,
        /// `project`, `user`, `local`, `dynamic` and others.
        scope: Option<String>,
        /// `sdk` for a server of the host, `plugin`, or the scope. Decide on trust by the source, not by the name.
        source: Option<String>,
        /// The tools, once connected.
        tools: Vec<McpToolInfo>,
    }

    /// Name and version that an MCP server gives itself.
    answer McpImplementation {
        name: String,
        version: String,
    }

    /// A tool of an MCP server.
    answer McpToolInfo {
        /// The name, without the server's name.
        name: String,
        /// CLI 2.1.328 leaves the description out.
        description: Option<String>,
        annotations: McpToolHints,
        /// Metadata, such as the user interface of MCP Apps.
        meta: Option<Map<String, Value>> = "_meta",
    }

    /// Behaviour that a tool promises, in an [`McpToolInfo`].
    answer McpToolHints {
        read_only: Option<bool> = "readOnly",
        destructive: Option<bool>,
        /// The tool reaches external systems.
        open_world: Option<bool> = "openWorld",
    }

    /// Answer to [`Requests::mcp_read_resource`](crate::session::Requests::mcp_read_resource).
    answer McpResource {
        /// Content of a third party: show it in a sandbox.
        contents: Vec<McpResourceContent>,
    }

    /// Part of a resource: text, or bytes.
    answer McpResourceContent {
        uri: String,
        mime_type: Option<String> = "mimeType",
        text: Option<String>,
        /// Bytes in base64.
        blob: Option<String>,
        meta: Option<Map<String, Value>> = "_meta",
    }
}

words! {
    /// State of the connection to an MCP server.
    pub enum McpConnection or "" {
        Connected = "connected",
        /// The server is unreachable, or the connection broke.
        Failed = "failed",
        /// A login is required.
        NeedsAuth = "needs-auth",
        Pending = "pending",
        Disabled = "disabled",
    }
}

/// Configuration of an MCP server, as JSON, to which this type dereferences. It may hold secrets, so `Debug` writes
/// only the names of the fields.
///
/// ```
/// use greenroom::requests::McpServerConfig;
///
/// let config: McpServerConfig = serde_json::from_str(r#"{ "type": "http", "headers": { "Authorization": "secret" } }"#)?;
/// assert_eq!(config["type"], "http");
/// assert_eq!(format!("{config:?}"), r#"McpServerConfig({"headers", "type"})"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct McpServerConfig(Value);

impl std::ops::Deref for McpServerConfig {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl fmt::Debug for McpServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: std::collections::BTreeSet<_> =
            self.0.as_object().into_iter().flat_map(|fields| fields.keys()).collect();
        f.debug_tuple("McpServerConfig").field(&names).finish()
    }
}

by_serde!(McpServerConfig);
