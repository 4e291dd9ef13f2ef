//! MCP servers: how they stand, their resources, calls without a turn.

use std::time::Duration;

use serde_json::{Map, Value};

use super::read::{answers, words};
use crate::error::{Error, Result};

answers! {
    /// How the MCP servers stand.
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
    pub struct McpStatus {
        /// The servers, in-process ones among them.
        pub servers: Vec<McpServerStatus> = "mcpServers",
    }

    /// How one MCP server stands.
    ///
    /// ```
    /// use greenroom::requests::{McpConnection, McpServerStatus};
    ///
    /// let server: McpServerStatus = serde_json::from_str(
    ///     r#"{"name": "calc", "status": "connected", "source": "sdk", "tools": [{"name": "add", "annotations": {}}]}"#)?;
    /// assert_eq!((server.status, server.tools.len()), (McpConnection::Connected, 1));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct McpServerStatus {
        /// Its name.
        pub name: String = "name",
        /// Whether it is connected.
        pub status: McpConnection = "status",
        /// What it says of itself, once it is connected.
        pub server_info: Option<McpImplementation> = "serverInfo",
        /// What went wrong.
        pub error: Option<String> = "error",
        /// How it is configured. May hold secrets.
        pub config: Option<Value> = "config",
        /// How it is reached: `stdio`, `http`, `sse`, `sdk`; an open set.
        pub transport: Option<String> = "transport",
        /// The scope of its configuration: `project`, `user`, `local`, `dynamic` and others.
        pub scope: Option<String> = "scope",
        /// Where it comes from: `sdk` for one of the host, `plugin`, or the scope. What to trust is told by this, not by
        /// the name.
        pub source: Option<String> = "source",
        /// Its tools, once it is connected.
        pub tools: Vec<McpToolInfo> = "tools",
    }

    /// What an MCP server says of itself.
    ///
    /// ```
    /// let info: greenroom::requests::McpImplementation =
    ///     serde_json::from_str(r#"{"name": "calc", "version": "1.0.0"}"#)?;
    /// assert_eq!(info.version, "1.0.0");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct McpImplementation {
        /// Its name.
        pub name: String = "name",
        /// Its version.
        pub version: String = "version",
    }

    /// A tool of an MCP server.
    ///
    /// ```
    /// let tool: greenroom::requests::McpToolInfo =
    ///     serde_json::from_str(r#"{"name": "add", "annotations": {"readOnly": true}}"#)?;
    /// assert_eq!(tool.annotations.read_only, Some(true));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct McpToolInfo {
        /// Its name, without that of the server.
        pub name: String = "name",
        /// What it does. CLI 2.1.328 leaves it out.
        pub description: Option<String> = "description",
        /// What it says of itself.
        pub annotations: McpToolHints = "annotations",
        /// What it says of its user interface (MCP Apps).
        pub meta: Option<Map<String, Value>> = "_meta",
    }

    /// What a tool says of itself.
    ///
    /// ```
    /// let hints: greenroom::requests::McpToolHints = serde_json::from_str(r#"{"destructive": true}"#)?;
    /// assert_eq!(hints.destructive, Some(true));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct McpToolHints {
        /// It changes nothing.
        pub read_only: Option<bool> = "readOnly",
        /// It may destroy something.
        pub destructive: Option<bool> = "destructive",
        /// It reaches out into the world.
        pub open_world: Option<bool> = "openWorld",
    }

    /// A resource that was read.
    ///
    /// ```
    /// let resource: greenroom::requests::McpResource =
    ///     serde_json::from_str(r#"{"contents": [{"uri": "ui://a", "mimeType": "text/html", "text": "<p>"}]}"#)?;
    /// assert_eq!(resource.contents[0].text.as_deref(), Some("<p>"));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct McpResource {
        /// Its contents. They come from a third party: show them in a sandbox.
        pub contents: Vec<McpResourceContent> = "contents",
    }

    /// A piece of a resource.
    ///
    /// ```
    /// let content: greenroom::requests::McpResourceContent =
    ///     serde_json::from_str(r#"{"uri": "ui://a", "blob": "AAE="}"#)?;
    /// assert!(content.text.is_none() && content.blob.is_some());
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct McpResourceContent {
        /// Its address.
        pub uri: String = "uri",
        /// What it is.
        pub mime_type: Option<String> = "mimeType",
        /// A text.
        pub text: Option<String> = "text",
        /// Or bytes, in base64.
        pub blob: Option<String> = "blob",
        /// What the server says of it.
        pub meta: Option<Map<String, Value>> = "_meta",
    }

    /// The result of a tool that was called without a turn.
    ///
    /// ```
    /// let result: greenroom::requests::McpCallResult =
    ///     serde_json::from_str(r#"{"content": [{"type": "text", "text": "8"}]}"#)?;
    /// assert_eq!(result.text().as_deref(), Some("8"));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct McpCallResult {
        /// The content: a list of blocks, or one text. CLI 2.1.328 was seen to give the structured content as a text where
        /// there is one, unless [`McpCall::result_not_for_model`] is set.
        pub content: Option<Value> = "content",
        /// The structured content.
        pub structured_content: Option<Value> = "structuredContent",
        /// What the server says of the result.
        pub meta: Option<Map<String, Value>> = "_meta",
        /// What became of a call with a limit, a deadline or files. If it failed, this says so, and nothing else does.
        pub staging: Option<McpStaging> = "staging",
    }

    /// What became of a call with a limit, a deadline or files.
    ///
    /// ```
    /// let staging: greenroom::requests::McpStaging =
    ///     serde_json::from_str(r#"{"ok": false, "error_code": "timeout", "detail": "tool call exceeded 1000ms"}"#)?;
    /// assert!(!staging.ok && staging.error_code.as_deref() == Some("timeout"));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct McpStaging {
        /// Whether the call succeeded.
        pub ok: bool = "ok",
        /// Why not: `timeout`, `tool_error`, `expired`, `input_missing`, `output_conflict`, `output_too_large` and others.
        pub error_code: Option<String> = "error_code",
        /// The same, for people.
        pub detail: Option<String> = "detail",
        /// The files that it was given.
        pub inputs_used: Vec<Value> = "inputs_used",
        /// The files that it wrote.
        pub outputs: Vec<Value> = "outputs",
    }
}

words! {
    /// Whether an MCP server is connected.
    ///
    /// ```
    /// assert_eq!(greenroom::requests::McpConnection::from("needs-auth").as_str(), "needs-auth");
    /// ```
    pub enum McpConnection {
        /// It is.
        Connected = "connected",
        /// It could not be reached, or has broken off.
        Failed = "failed",
        /// Somebody has to log in first.
        NeedsAuth = "needs-auth",
        /// Not yet.
        Pending = "pending",
        /// It is switched off.
        Disabled = "disabled",
    }
}

impl McpCallResult {
    /// The texts of the content, one after the other; `None` if there is none.
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

/// A call of a tool without a turn, on a server that the CLI reaches itself.
///
/// ```
/// use std::time::Duration;
/// use greenroom::requests::McpCall;
///
/// let call = McpCall::new("mcp__files__list").arguments(serde_json::json!({ "path": "/" })).timeout(Duration::from_secs(5));
/// # let _ = call;
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct McpCall {
    /// The tool, as the CLI names it: `mcp__<server>__<tool>`.
    pub tool: String,
    /// Its arguments, an object.
    pub arguments: Option<Value>,
    /// How long it may run.
    pub timeout: Option<Duration>,
    /// When it is too late to begin (RFC 3339).
    pub expires_at: Option<String>,
    /// Whether the result is for a program and not for a model.
    pub result_not_for_model: bool,
    /// Whether permissions are checked.
    pub check_permissions: bool,
    /// The files that the tool reads.
    pub input_files: Vec<Value>,
    /// The files that it writes.
    pub output_files: Vec<Value>,
}

impl McpCall {
    /// The limits that the CLI takes.
    pub(crate) const LIMITS_MS: std::ops::RangeInclusive<u128> = 1_000..=600_000;

    /// A call without arguments.
    pub fn new(tool: impl Into<String>) -> Self {
        Self {
            tool: tool.into(),
            arguments: None,
            timeout: None,
            expires_at: None,
            result_not_for_model: false,
            check_permissions: false,
            input_files: Vec::new(),
            output_files: Vec::new(),
        }
    }

    /// With these arguments, an object.
    pub fn arguments(mut self, arguments: Value) -> Self {
        self.arguments = Some(arguments);
        self
    }

    /// How long the tool may run: one second to ten minutes. Without it, as long as tools of that server may run for a
    /// model. When it has passed the answer says so in [`McpCallResult::staging`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// When it is too late to begin (RFC 3339).
    pub fn expires_at(mut self, expires_at: impl Into<String>) -> Self {
        self.expires_at = Some(expires_at.into());
        self
    }

    /// Hands the result over as the server gave it, and not as a model would get it. Needs the capability
    /// `mcp_call_result_not_for_model_v1`.
    pub fn result_not_for_model(mut self, not_for_model: bool) -> Self {
        self.result_not_for_model = not_for_model;
        self
    }

    /// Decides on the call as on one of the model: permission rules, the permission mode and hooks. Without it none of
    /// them is looked at. Needs the capability `mcp_call_check_permissions_v1`, and must be known to have it: a CLI that
    /// has not would run the tool unchecked.
    pub fn check_permissions(mut self, check: bool) -> Self {
        self.check_permissions = check;
        self
    }

    /// With a synced file that the tool reads: `name`, of which `{{in:NAME}}` in the arguments becomes the path, and
    /// `lane_path`.
    pub fn input_file(mut self, name: impl Into<String>, lane_path: impl Into<String>) -> Self {
        self.input_files.push(serde_json::json!({ "name": name.into(), "lane_path": lane_path.into() }));
        self
    }

    /// With a synced file that the tool writes: `name`, of which `{{out:NAME}}` in the arguments becomes the path, and
    /// `lane_path`; if `if_match` is given, only over the version with that etag.
    pub fn output_file(
        mut self,
        name: impl Into<String>,
        lane_path: impl Into<String>,
        if_match: Option<String>,
    ) -> Self {
        let mut file = serde_json::json!({ "name": name.into(), "lane_path": lane_path.into() });
        if let Some(if_match) = if_match {
            file["if_match"] = if_match.into();
        }
        self.output_files.push(file);
        self
    }

    /// Whether the CLI could take it.
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
        if !self.output_files.is_empty() && self.expires_at.is_none() {
            let text = format!("a call to '{}' writes files and has no `expires_at`", self.tool);
            return Err(Error::invalid_option(text).with_help("say until when it may begin"));
        }
        Ok(())
    }
}

impl From<&str> for McpCall {
    fn from(tool: &str) -> Self {
        Self::new(tool)
    }
}

impl From<String> for McpCall {
    fn from(tool: String) -> Self {
        Self::new(tool)
    }
}
