//! Ask the CLI something or change its settings: the types of control requests, and of the CLI's answers.
//!
//! Each method of [`Session`](crate::Session) below sends one request. For a request without a method use
//! [`Requests::control`](crate::session::Requests::control); each method fails as `control` does, and documents any
//! other errors.
//!
//! Each answer is a [`Reply`]: a typed view, and the JSON that it was read from. The view is lenient: any field may be
//! missing, and unknown fields and fields of an unexpected shape are in `extra`, at every level. Fields are named as on
//! the wire.
//!
//! ```
//! use greenroom::requests::{McpConnection, McpStatus};
//!
//! let json = r#"{"mcpServers": [{"name": "calc", "status": "asleep", "tools": 3, "new": true}]}"#;
//! let status: McpStatus = serde_json::from_str(json)?;
//! let server = &status.servers[0];
//! assert_eq!((server.name.as_str(), server.status.as_str()), ("calc", "asleep"));
//! assert!(server.tools.is_empty());
//! assert_eq!((&server.extra["tools"], &server.extra["new"]), (&3.into(), &true.into()));
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! | about | request | method |
//! |---|---|---|
//! | the turn | `interrupt` | [`interrupt`](crate::Session::interrupt), [`interrupt_cancel_queued`](crate::Session::interrupt_cancel_queued) |
//! | | `cancel_async_message` | [`cancel_async_message`](crate::Session::cancel_async_message) |
//! | settings | `set_model` | [`set_model`](crate::Session::set_model) |
//! | | `set_permission_mode` | [`set_permission_mode`](crate::Session::set_permission_mode) |
//! | | `set_mcp_permission_mode_override` | [`set_mcp_permission_mode_override`](crate::session::Requests::set_mcp_permission_mode_override) |
//! | | `set_max_thinking_tokens` | [`set_max_thinking_tokens`](crate::Session::set_max_thinking_tokens), [`set_thinking_display`](crate::session::Requests::set_thinking_display) |
//! | | `apply_flag_settings` | [`apply_flag_settings`](crate::session::Requests::apply_flag_settings) |
//! | | `update_settings` | [`update_settings`](crate::session::Requests::update_settings) |
//! | information | `initialize` | [`server_info`](crate::Session::server_info), [`has_capability`](crate::Session::has_capability) |
//! | | `get_context_usage` | [`context_usage`](crate::Session::context_usage) |
//! | | `get_usage` | [`usage`](crate::session::Requests::usage) |
//! | | `reload_plugins` | [`reload_plugins`](crate::session::Requests::reload_plugins) |
//! | | `reload_skills` | [`reload_skills`](crate::session::Requests::reload_skills) |
//! | | `reload_output_styles` | [`reload_output_styles`](crate::session::Requests::reload_output_styles) |
//! | MCP | `mcp_status` | [`mcp_status`](crate::Session::mcp_status) |
//! | | `mcp_reconnect` | [`mcp_reconnect`](crate::Session::mcp_reconnect) |
//! | | `mcp_toggle` | [`mcp_toggle`](crate::Session::mcp_toggle) |
//! | | `mcp_set_servers` | [`set_mcp_servers`](crate::Session::set_mcp_servers), [`add_mcp_server`](crate::Session::add_mcp_server), [`add_external_mcp_server`](crate::Session::add_external_mcp_server), [`remove_mcp_server`](crate::Session::remove_mcp_server) |
//! | | `mcp_read_resource` | [`mcp_read_resource`](crate::session::Requests::mcp_read_resource) |
//! | tasks | `stop_task` | [`stop_task`](crate::Session::stop_task) |
//! | | `background_tasks` | [`background_tasks`](crate::session::Requests::background_tasks), [`background_task`](crate::session::Requests::background_task) |
//! | files | `rewind_files` | [`rewind_files`](crate::Session::rewind_files), [`rewind_files_dry_run`](crate::Session::rewind_files_dry_run) |
//! | | `seed_read_state` | [`seed_read_state`](crate::session::Requests::seed_read_state) |
//! | | `read_file` | [`read_file`](crate::session::Requests::read_file) |
//!
//! # Timeouts
//!
//! The limit is [`Timeouts::control_request`](crate::options::Timeouts::control_request), or
//! [`Timeouts::long_request`](crate::options::Timeouts::long_request) for a full
//! [`context_usage`](crate::Session::context_usage).
//! [`Session::with_request_timeout`](crate::Session::with_request_timeout) sets another limit for single calls. When the limit passes, or the future is dropped, the request is withdrawn: the CLI gets a `control_cancel_request`,
//! and a later answer is ignored.
//!
//! # Restarts of the CLI
//!
//! State of the process is set again in the next process, before any other request: the model, the permission mode and
//! its overrides for MCP servers, thinking, flag settings, the working directory, registered roots, and
//! `has_subscribers`. State that the CLI stores itself is not sent again: the title, settings files, and
//! which MCP servers are switched off. A seeded read state is lost with the process.
//!
//! # Capabilities
//!
//! Some requests and options need a [capability](crate::Session::has_capability) of the CLI. If the CLI is known to
//! lack the capability, the call fails with [`Unsupported`](crate::ErrorKind::Unsupported) and nothing is sent. Before
//! the first turn the capabilities may be unknown; then the CLI decides. A request that the CLI does not know is also
//! `Unsupported`.

mod answers;
mod info;
mod mcp;
mod server_info;
mod usage;

use std::fmt;
use std::ops::Deref;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

pub use answers::{
    Backgrounded, CancelledMessage, FileContents, FileEncoding, InterruptReceipt, McpPermissionMode,
    ModelSet, PermissionModeSet, PermissionOverrideSet, ReadFile, RewindResult, SettingsFile,
};
pub use info::{PluginInfo, ReloadPlugins, ReloadedOutputStyles, ReloadedPlugins, ReloadedSkills};
pub use mcp::{
    McpConnection, McpImplementation, McpResource, McpResourceContent, McpServerConfig, McpServerStatus,
    McpStatus, McpToolHints, McpToolInfo,
};
pub use server_info::{AccountInfo, AgentInfo, ModelInfo, ServerInfo};
pub use usage::{ContextCategory, ContextDetail, ContextUsage, UsageReport};

use crate::error::{Error, ErrorKind, Result};
use crate::wire::lenient::{JsonSource, Lenient, ListRule};

/// An answer of the CLI: a typed view, to which the reply dereferences, and the JSON.
///
/// ```
/// async fn servers(session: &greenroom::Session) -> greenroom::Result<()> {
///     let status = session.mcp_status().await?;
///     println!("{} servers", status.servers.len());
///     println!("{}", status.raw());
///     Ok(())
/// }
/// # let _ = servers;
/// ```
#[derive(Clone)]
pub struct Reply<T> {
    view: T,
    raw: Box<RawValue>,
}

impl<T> Reply<T> {
    /// The whole answer as the CLI wrote it; `{}` if the CLI only acknowledged.
    pub fn raw(&self) -> &RawValue {
        &self.raw
    }

    /// Returns the typed view.
    pub fn into_inner(self) -> T {
        self.view
    }

    pub(crate) fn new(view: T, raw: Box<RawValue>) -> Self {
        Self { view, raw }
    }

    pub(crate) fn view_mut(&mut self) -> &mut T {
        &mut self.view
    }

    /// An answer of this library.
    pub(crate) fn of(value: Value) -> Result<Self>
    where
        T: Lenient,
    {
        let raw = serde_json::value::to_raw_value(&value).map_err(|error| {
            Error::new(ErrorKind::Malformed, "an answer cannot be written").with_source(error)
        })?;
        Self::read("", raw)
    }

    /// Reads an answer of the CLI.
    pub(crate) fn read(subtype: &str, raw: Box<RawValue>) -> Result<Self>
    where
        T: Lenient,
    {
        let malformed = |reason: String| {
            Error::new(
                ErrorKind::Malformed,
                format!("the CLI's answer to '{subtype}' cannot be read: {reason}"),
            )
        };
        let value: Value = match serde_json::from_str(raw.get()) {
            // An acknowledgement may be empty.
            Ok(Value::Null) => Value::Object(Map::new()),
            Ok(value) => value,
            Err(error) => return Err(malformed(error.to_string())),
        };
        let view = T::read(JsonSource::Parsed(&value), ListRule::Whole)
            .ok_or_else(|| malformed("it is no object".to_owned()))?;
        Ok(Self::new(view, raw))
    }
}

impl<T> Deref for Reply<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.view
    }
}

impl<T: fmt::Debug> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt(f)
    }
}
