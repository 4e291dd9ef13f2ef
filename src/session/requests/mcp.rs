//! MCP servers.

use super::{RequestBody, Requests};
use crate::error::Result;
use crate::requests::{McpCall, McpCallResult, McpResource, McpStatus, Reply};
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

    /// Calls a tool of an external MCP server without a turn. Permissions are only checked with
    /// [`check_permissions`](McpCall::check_permissions).
    ///
    /// Limited by [`Timeouts::long_request`](crate::options::Timeouts::long_request), or by the call's own
    /// [`timeout`](McpCall::timeout) plus [`Timeouts::control_request`](crate::options::Timeouts::control_request).
    /// Withdrawing the call also ends it in the CLI.
    ///
    /// A call with a limit returns `Ok` even if the tool fails: check
    /// [`staging`](McpCallResult::staging).
    ///
    /// ```
    /// use greenroom::requests::McpCall;
    ///
    /// async fn list(session: &greenroom::Session) -> greenroom::Result<Option<String>> {
    ///     let call = McpCall::new("mcp__files__list").arguments(serde_json::json!({ "path": "/" }));
    ///     Ok(session.requests().mcp_call(call).await?.text())
    /// }
    /// # let _ = list;
    /// ```
    ///
    /// The SDKs publish no type for this answer; it is that of CLI 2.1.328.
    ///
    /// # Errors
    /// Besides those of [`control`](Requests::control): `Refused` with the tool's text if the tool fails, for servers
    /// that are not connected, and for in-process servers; [`InvalidOption`](crate::ErrorKind::InvalidOption) for
    /// invalid limits and arguments; [`Unsupported`](crate::ErrorKind::Unsupported), with nothing sent, if the CLI
    /// lacks a capability that an option needs.
    pub async fn mcp_call(self, call: impl Into<McpCall>) -> Result<Reply<McpCallResult>> {
        let call = call.into();
        call.validate()?;
        if call.result_not_for_model {
            self.session
                .require("mcp_call_result_not_for_model_v1", "`result_not_for_model` of `mcp_call`")?;
        }
        if call.check_permissions {
            // A CLI without the capability would run the tool unchecked.
            self.session
                .require_known("mcp_call_check_permissions_v1", "`check_permissions` of `mcp_call`")?;
        }
        let timeouts = &self.session.shared().options().timeouts;
        let limit = match call.timeout {
            Some(timeout) => timeout.saturating_add(timeouts.control_request),
            None => timeouts.long_request,
        };
        let millis = call.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        let body = RequestBody::new("mcp_call")
            .with("tool", call.tool)
            .maybe("arguments", call.arguments)
            .maybe("timeout_ms", millis)
            .flag("result_not_for_model", call.result_not_for_model)
            .flag("check_permissions", call.check_permissions);
        self.session.request_within(body, limit).await
    }
}
