//! MCP servers: their state, their resources, calls without a turn.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
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

    /// Answer to [`Requests::mcp_call`](crate::session::Requests::mcp_call).
    answer McpCallResult {
        /// A list of blocks, or one text. CLI 2.1.328 gives structured content as a text, unless
        /// [`McpCall::result_not_for_model`] is set.
        content: Option<Value>,
        structured_content: Option<Value> = "structuredContent",
        meta: Option<Map<String, Value>> = "_meta",
        /// Outcome of a call with a limit. Only this field says that such a call failed.
        staging: Option<McpStaging>,
    }

    /// Outcome of a call with a limit.
    answer McpStaging {
        ok: bool,
        /// `timeout`, `tool_error` and others.
        error_code: Option<String>,
        /// The error, for people.
        detail: Option<String>,
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

impl McpCallResult {
    /// The text blocks, joined without a separator; `None` if there are none.
    pub fn text(&self) -> Option<String> {
        match self.content.as_ref()? {
            Value::String(text) => Some(text.clone()),
            Value::Array(blocks) => {
                let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
                (!texts.is_empty()).then(|| texts.concat())
            }
            _ => None,
        }
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

/// A tool call without a turn, for [`Requests::mcp_call`](crate::session::Requests::mcp_call).
///
/// ```
/// use std::time::Duration;
/// use greenroom::requests::McpCall;
///
/// let call = McpCall::new("mcp__files__list").arguments(serde_json::json!({ "path": "/" })).timeout(Duration::from_secs(5));
/// # let _ = call;
/// ```
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each field has a method of its name")]
#[non_exhaustive]
pub struct McpCall {
    pub tool: String,
    pub arguments: Option<Value>,
    pub timeout: Option<Duration>,
    pub result_not_for_model: bool,
    pub check_permissions: bool,
}

impl McpCall {
    /// Limits that the CLI accepts, in milliseconds.
    pub(crate) const LIMITS_MS: std::ops::RangeInclusive<u128> = 1_000..=600_000;

    /// A call without arguments.
    pub fn new(tool: impl Into<String>) -> Self {
        Self {
            tool: tool.into(),
            arguments: None,
            timeout: None,
            result_not_for_model: false,
            check_permissions: false,
        }
    }

    /// Sets the arguments, an object.
    pub fn arguments(mut self, arguments: Value) -> Self {
        self.arguments = Some(arguments);
        self
    }

    /// Limits the running time: one second to ten minutes. The default is the limit for calls of the model. A call that
    /// exceeds the limit says so in [`McpCallResult::staging`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Returns the result as the server gave it, not as a model would get it. Needs the capability
    /// `mcp_call_result_not_for_model_v1`.
    pub fn result_not_for_model(mut self, not_for_model: bool) -> Self {
        self.result_not_for_model = not_for_model;
        self
    }

    /// Checks the call as if the model made it: permission rules, the permission mode and hooks. By default none of
    /// them is checked. The CLI must be known to have the capability `mcp_call_check_permissions_v1`: a CLI without it
    /// would run the tool unchecked.
    pub fn check_permissions(mut self, check: bool) -> Self {
        self.check_permissions = check;
        self
    }

    /// Checks what the CLI would reject.
    pub(crate) fn validate(&self) -> Result<()> {
        let limit = self.timeout.map(|timeout| timeout.as_millis());
        if let Some(ms) = limit.filter(|ms| !Self::LIMITS_MS.contains(ms)) {
            let text = format!("`timeout` of a call to '{}' is {ms} ms", self.tool);
            return Err(Error::invalid_option(text).with_help("the CLI takes one second to ten minutes"));
        }
        if self.arguments.as_ref().is_some_and(|arguments| !arguments.is_object()) {
            let text = format!("the arguments of a call to '{}' are no object", self.tool);
            return Err(Error::invalid_option(text));
        }
        Ok(())
    }
}

super::convert_from!(McpCall: &str, String);
