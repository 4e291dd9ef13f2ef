//! MCP servers.

use super::{RequestBody, Requests};
use crate::error::Result;
use crate::requests::{McpResource, McpStatus, Reply};
use crate::session::Session;

impl Session {
    /// State of the MCP servers, including in-process servers.
    pub async fn mcp_status(&self) -> Result<Reply<McpStatus>> {
        self.request(RequestBody::new("mcp_status")).await
    }

    /// Reconnects an MCP server, named as in [`mcp_status`](Session::mcp_status).
    ///
    /// # Errors
    /// Besides those of [`control`](Requests::control): `Refused` if the server is unreachable, and for in-process
    /// servers, which the CLI does not connect to.
    pub async fn mcp_reconnect(&self, server: &str) -> Result<()> {
        self.acknowledged(RequestBody::new("mcp_reconnect").with("serverName", server)).await
    }

    /// Switches an MCP server on or off. CLI 2.1.328 stores the choice for the project, so it also applies to the next
    /// incarnation and to other sessions of the project.
    ///
    /// # Errors
    /// Besides those of [`control`](Requests::control): `Refused` for an unknown server.
    pub async fn mcp_toggle(&self, server: &str, enabled: bool) -> Result<()> {
        let body = RequestBody::new("mcp_toggle").with("serverName", server);
        self.acknowledged(body.with("enabled", enabled)).await
    }
}

impl Requests<'_> {
    /// Reads a user interface resource (`ui://`) of an MCP server, for an application that displays it.
    ///
    /// # Errors
    /// Besides those of [`control`](Requests::control): `Refused` for other addresses, for servers that are not
    /// connected, and for in-process servers; [`Unsupported`](crate::ErrorKind::Unsupported), with nothing sent, if the
    /// CLI is known to lack `mcp_read_resource_v1`.
    pub async fn mcp_read_resource(self, server: &str, uri: &str) -> Result<Reply<McpResource>> {
        self.session.require("mcp_read_resource_v1", "`mcp_read_resource`")?;
        self.session
            .request(RequestBody::new("mcp_read_resource").with("serverName", server).with("uri", uri))
            .await
    }
}
