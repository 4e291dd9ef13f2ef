//! MCP servers.

use serde_json::Value;

use super::Body;
use crate::error::Result;
use crate::requests::{McpCall, McpCallResult, McpResource, McpStatus, Reply};
use crate::session::Session;

impl Session {
    /// How the MCP servers stand, in-process ones among them.
    ///
    /// # Errors
    /// Those of [`control`](Session::control).
    pub async fn mcp_status(&self) -> Result<Reply<McpStatus>> {
        self.request(Body::new("mcp_status")).await
    }

    /// Connects an MCP server anew. The name is that of [`mcp_status`](Session::mcp_status).
    ///
    /// # Errors
    /// Those of [`control`](Session::control); `Refused` if it cannot be reached, and for in-process servers, which are
    /// not connected by the CLI.
    pub async fn mcp_reconnect(&self, server: &str) -> Result<()> {
        self.acknowledged(Body::new("mcp_reconnect").with("serverName", server)).await
    }

    /// Switches an MCP server on or off. The CLI writes it down for the project: it holds for the next incarnation, and
    /// for other sessions there (CLI 2.1.328).
    ///
    /// # Errors
    /// Those of [`control`](Session::control); `Refused` for a server that is not known.
    pub async fn mcp_toggle(&self, server: &str, enabled: bool) -> Result<()> {
        let body = Body::new("mcp_toggle").with("serverName", server);
        self.acknowledged(body.with("enabled", enabled)).await
    }

    /// Reads a resource of the user interface of an MCP server (`ui://`), for an application that shows it.
    ///
    /// # Errors
    /// Those of [`control`](Session::control); `Refused` for other addresses, for servers that are not connected, and for
    /// in-process servers, whose resources are the application's own; [`Unsupported`](crate::ErrorKind::Unsupported),
    /// with nothing sent, if the CLI is known to lack `mcp_read_resource_v1`.
    pub async fn mcp_read_resource(&self, server: &str, uri: &str) -> Result<Reply<McpResource>> {
        self.require("mcp_read_resource_v1", "`mcp_read_resource`")?;
        self.request(Body::new("mcp_read_resource").with("serverName", server).with("uri", uri)).await
    }

    /// Calls a tool without a turn, on an MCP server that the CLI reaches itself. Nobody is asked for permission unless
    /// [`check_permissions`](McpCall::check_permissions) is set.
    ///
    /// It may take as long as [`Timeouts::long_request`](crate::Timeouts::long_request); with a
    /// [`timeout`](McpCall::timeout) of its own, that and
    /// [`Timeouts::control_request`](crate::Timeouts::control_request) on top. A call that was withdrawn ends in the CLI
    /// as well.
    ///
    /// A call that has a limit, a deadline or files succeeds even if the tool does not: look at
    /// [`staging`](McpCallResult::staging).
    ///
    /// ```
    /// use greenroom::requests::McpCall;
    ///
    /// async fn list(session: &greenroom::Session) -> greenroom::Result<Option<String>> {
    ///     let call = McpCall::new("mcp__files__list").arguments(serde_json::json!({ "path": "/" }));
    ///     Ok(session.mcp_call(call).await?.text())
    /// }
    /// # let _ = list;
    /// ```
    ///
    /// No type of its answer is published: it is what CLI 2.1.328 was seen to answer.
    ///
    /// # Errors
    /// Those of [`control`](Session::control); `Refused` if the tool fails, with its text, for servers that are not
    /// connected, and for in-process servers, whose tools are the application's own;
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) for limits and arguments that cannot be;
    /// [`Unsupported`](crate::ErrorKind::Unsupported), with nothing sent, if the CLI lacks a capability that an option
    /// needs.
    pub async fn mcp_call(&self, call: impl Into<McpCall>) -> Result<Reply<McpCallResult>> {
        let call = call.into();
        call.validate()?;
        if call.result_not_for_model {
            self.require("mcp_call_result_not_for_model_v1", "`result_not_for_model` of `mcp_call`")?;
        }
        if call.check_permissions {
            // One without it would run the tool unchecked.
            self.require_known("mcp_call_check_permissions_v1", "`check_permissions` of `mcp_call`")?;
        }
        let timeouts = &self.shared().options().timeouts;
        let limit = match call.timeout {
            Some(timeout) => timeout.saturating_add(timeouts.control_request),
            None => timeouts.long_request,
        };
        let files = |files: Vec<Value>| (!files.is_empty()).then_some(files);
        let millis = call.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        let body = Body::new("mcp_call")
            .with("tool", call.tool)
            .maybe("arguments", call.arguments)
            .maybe("timeout_ms", millis)
            .maybe("expires_at", call.expires_at)
            .flag("result_not_for_model", call.result_not_for_model)
            .flag("check_permissions", call.check_permissions)
            .maybe("input_files", files(call.input_files))
            .maybe("output_files", files(call.output_files));
        self.request_within(body, limit).await
    }
}
