//! What the CLI can be asked: the parameters of the requests, and its answers, typed.
//!
//! The methods are those of [`Session`](crate::Session); each sends one control request. Here are the types of what goes
//! in and what comes out. For a request that has no method there is [`Session::control`](crate::Session::control).
//!
//! Each answer is a [`Reply`]: the typed view, and the JSON that it was read from. A view is lenient: every field may be
//! missing, a field that changed its shape costs that field and no more, and what is not known is in `extra`, at every
//! level.
//!
//! | about | request | method |
//! |---|---|---|
//! | the turn | `interrupt` | [`interrupt`](crate::Session::interrupt), [`interrupt_cancel_queued`](crate::Session::interrupt_cancel_queued) |
//! | | `cancel_async_message` | [`cancel_async_message`](crate::Session::cancel_async_message) |
//! | | `side_question` | [`side_question`](crate::Session::side_question) |
//! | settings | `set_model` | [`set_model`](crate::Session::set_model) |
//! | | `set_permission_mode` | [`set_permission_mode`](crate::Session::set_permission_mode) |
//! | | `set_mcp_permission_mode_override` | [`set_mcp_permission_mode_override`](crate::Session::set_mcp_permission_mode_override) |
//! | | `set_max_thinking_tokens` | [`set_max_thinking_tokens`](crate::Session::set_max_thinking_tokens), [`set_thinking_display`](crate::Session::set_thinking_display) |
//! | | `apply_flag_settings` | [`apply_flag_settings`](crate::Session::apply_flag_settings) |
//! | | `update_settings` | [`update_settings`](crate::Session::update_settings) |
//! | | `get_settings` | [`settings`](crate::Session::settings) |
//! | | `set_cwd` | [`set_cwd`](crate::Session::set_cwd) |
//! | | `register_repo_root` | [`register_repo_root`](crate::Session::register_repo_root) |
//! | | `set_has_subscribers` | [`set_has_subscribers`](crate::Session::set_has_subscribers) |
//! | | `rename_session` | [`rename_session`](crate::Session::rename_session) |
//! | | `set_color` | [`set_color`](crate::Session::set_color) |
//! | | `generate_session_title` | [`generate_session_title`](crate::Session::generate_session_title) |
//! | information | `initialize` | [`server_info`](crate::Session::server_info), [`capabilities`](crate::Session::capabilities) |
//! | | `get_context_usage` | [`context_usage`](crate::Session::context_usage) |
//! | | `get_usage` | [`usage`](crate::Session::usage) |
//! | | `get_session_cost` | [`session_cost`](crate::Session::session_cost) |
//! | | `list_models` | [`list_models`](crate::Session::list_models) |
//! | | `get_binary_version` | [`binary_version`](crate::Session::binary_version) |
//! | | `get_hooks_listing` | [`hooks_listing`](crate::Session::hooks_listing) |
//! | | `list_permission_rules` | [`permission_rules`](crate::Session::permission_rules) |
//! | | `reload_plugins` | [`reload_plugins`](crate::Session::reload_plugins) |
//! | | `reload_skills` | [`reload_skills`](crate::Session::reload_skills) |
//! | | `reload_output_styles` | [`reload_output_styles`](crate::Session::reload_output_styles) |
//! | MCP | `mcp_status` | [`mcp_status`](crate::Session::mcp_status) |
//! | | `mcp_reconnect` | [`mcp_reconnect`](crate::Session::mcp_reconnect) |
//! | | `mcp_toggle` | [`mcp_toggle`](crate::Session::mcp_toggle) |
//! | | `mcp_read_resource` | [`mcp_read_resource`](crate::Session::mcp_read_resource) |
//! | | `mcp_call` | [`mcp_call`](crate::Session::mcp_call) |
//! | tasks | `stop_task` | [`stop_task`](crate::Session::stop_task) |
//! | | `background_tasks` | [`background_tasks`](crate::Session::background_tasks), [`background_task`](crate::Session::background_task) |
//! | | `get_task_output` | [`task_output`](crate::Session::task_output) |
//! | files | `rewind_files` | [`rewind_files`](crate::Session::rewind_files), [`rewind_files_dry_run`](crate::Session::rewind_files_dry_run) |
//! | | `seed_read_state` | [`seed_read_state`](crate::Session::seed_read_state) |
//! | | `file_suggestions` | [`file_suggestions`](crate::Session::file_suggestions) |
//! | | `read_file` | [`read_file`](crate::Session::read_file) |
//!
//! # Time
//!
//! A request has the time of [`Timeouts::control_request`](crate::Timeouts::control_request); one that waits for a tool
//! or for the model has that of [`Timeouts::long_request`](crate::Timeouts::long_request). For single calls,
//! [`Session::with_request_timeout`](crate::Session::with_request_timeout) sets another. When the time is over, or the
//! future is dropped, the request is withdrawn: the CLI gets a `control_cancel_request`, and an answer that comes all
//! the same is ignored.
//!
//! # After a restart of the CLI
//!
//! What is state of the process is set again in the next one before anything else is asked: the model, the permission
//! mode, the overrides of it for MCP servers, thinking, flag settings, the working directory, registered roots, and
//! whether anybody watches. What the CLI writes down itself is not sent again: the title and the colour, settings files,
//! and which MCP servers are switched off. A read state that was seeded is lost with the process.
//!
//! # What a CLI may not know
//!
//! Some requests, and options of requests, need a [capability](crate::Session::has_capability) of the CLI. If it is
//! known that the CLI lacks it the call fails with [`Unsupported`](crate::ErrorKind::Unsupported) and nothing is sent;
//! before the first turn it may not be known, and then the CLI answers. A request that the CLI does not know at all is
//! `Unsupported`, too.

mod files;
mod info;
mod mcp;
pub(crate) mod read;
mod server_info;
mod settings;
mod tasks;
mod turn;
mod usage;

use std::fmt;
use std::ops::Deref;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

pub use crate::message::SlashCommand;
pub use crate::options::ThinkingDisplay;
pub(crate) use files::cwd_was_set;
pub use files::{
    FileContents, FileEncoding, FileSuggestion, FileSuggestions, ReadFile, RegisterRepoRoot, RepoRoot,
    RewindResult, SetCwd, SetCwdResult, SetCwdStatus,
};
pub use info::{
    BinaryVersion, HookEventInfo, HookEventRow, HookPolicy, HookRow, HooksListing, ModelList, PermissionRule,
    PermissionRules, PermissionRulesState, PluginInfo, ReloadPlugins, ReloadedOutputStyles, ReloadedPlugins,
    ReloadedSkills, RuleDescription, SettingsError, WorkspaceDirectory,
};
pub use mcp::{
    McpCall, McpCallResult, McpConnection, McpImplementation, McpResource, McpResourceContent,
    McpServerStatus, McpStaging, McpStatus, McpToolHints, McpToolInfo,
};
pub use server_info::{AccountInfo, AgentInfo, ModelInfo, ServerInfo};
pub use settings::{
    AppliedSettings, McpPermissionMode, ModelSet, PermissionModeSet, PermissionOverrideSet, RenameSession,
    RenameSource, SessionSettings, SettingsFile, SettingsSource,
};
pub use tasks::{Backgrounded, TaskOutput};
pub use turn::{CancelledMessage, InterruptReceipt, SessionTitle, SideAnswer, SideQuestion};
pub use usage::{
    AgentContext, ApiUsage, CommandContext, ContextCategory, ContextDetail, ContextKind, ContextSquare,
    ContextUsage, DeferredToolContext, McpServerContext, McpToolContext, MemoryFileContext, MessageBreakdown,
    NamedTokens, RateLimitWindow, RateLimits, SessionCost, SessionUsage, SkillContext, SkillsContext,
    ToolCallTokens, UsageReport,
};

use crate::error::{Error, ErrorKind, Result};
use read::Lenient;

/// An answer of the CLI: its typed view, to which this dereferences, and all of it as JSON.
///
/// ```
/// async fn cost(session: &greenroom::Session) -> greenroom::Result<()> {
///     let cost = session.session_cost().await?;
///     println!("{}", cost.text);
///     println!("{}", cost.raw());
///     Ok(())
/// }
/// # let _ = cost;
/// ```
#[derive(Clone)]
pub struct Reply<T> {
    view: T,
    raw: Box<RawValue>,
}

impl<T> Reply<T> {
    /// All of the answer, as the CLI wrote it. Empty (`{}`) if it acknowledged only.
    pub fn raw(&self) -> &RawValue {
        &self.raw
    }

    /// The typed view alone.
    pub fn into_inner(self) -> T {
        self.view
    }

    pub(crate) fn new(view: T, raw: Box<RawValue>) -> Self {
        Self { view, raw }
    }

    pub(crate) fn view_mut(&mut self) -> &mut T {
        &mut self.view
    }
}

impl<T> Reply<T> {
    /// An answer that is made here.
    pub(crate) fn of(value: Value) -> Result<Self>
    where
        T: Lenient,
    {
        let raw = serde_json::value::to_raw_value(&value).map_err(|error| {
            Error::new(ErrorKind::Malformed, "an answer cannot be written").with_source(error)
        })?;
        Self::read("", raw)
    }

    /// Reads an answer.
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
            // An acknowledgement may say nothing.
            Ok(Value::Null) => Value::Object(Map::new()),
            Ok(value) => value,
            Err(error) => return Err(malformed(error.to_string())),
        };
        let view = T::read(&value).ok_or_else(|| malformed("it is no object".to_owned()))?;
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
