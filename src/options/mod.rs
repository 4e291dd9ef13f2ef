//! Everything that can be set, as plain data: [`Options`] and its parts.
//!
//! Options are validated before a process starts, they serialise, and every limit that the library applies is
//! one of them: there is no other.

mod limits;
mod mcp;
mod recovery;
mod restart;
mod timeouts;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use limits::Limits;
pub use mcp::{ExternalServer, McpRegistration};
pub use recovery::{ResumeLadder, TurnRecovery};
pub use restart::{Restart, Restarts};
pub(crate) use timeouts::FOREVER;
pub use timeouts::Timeouts;
pub(crate) use timeouts::millis::serialize as millis_serialize;

use crate::error::{Error, Result};

/// What a session is started with, as plain data.
///
/// All fields have defaults; a config file names only what it changes. What is not data (tool servers, handlers,
/// a transport) is given to the [`SessionBuilder`](crate::SessionBuilder).
///
/// ```
/// use greenroom::Options;
///
/// let options: Options = serde_json::from_str(
///     r#"{ "model": "claude-sonnet-4-5", "timeouts": { "tool": 30000 }, "limits": { "prompts_queued": 8 } }"#,
/// )?;
/// assert_eq!(options.timeouts.tool, Some(std::time::Duration::from_secs(30)));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Options {
    /// The `claude` executable. Default: looked for on `PATH`, then in the usual install places.
    pub cli_path: Option<PathBuf>,
    /// The CLI's working directory, which is also what its transcripts are filed under. Default: the host's.
    pub cwd: Option<PathBuf>,
    /// Variables to set for the CLI.
    pub env: BTreeMap<String, String>,
    /// Whether the CLI inherits the host's environment. Default: [`EnvPolicy::Inherit`].
    pub env_policy: EnvPolicy,
    /// Further flags, without the leading dashes; `None` for a flag without a value. Each is passed as
    /// `--name=value`. For what is newer than this library.
    pub extra_args: BTreeMap<String, Option<String>>,

    /// The model, by name or alias (`--model`). Default: the CLI's.
    pub model: Option<String>,
    /// The model to use when the first is overloaded (`--fallback-model`). Must differ from `model`.
    pub fallback_model: Option<String>,
    /// The system prompt. Default: [`SystemPrompt::Empty`], as in the official SDKs.
    pub system_prompt: SystemPrompt,
    /// How the CLI decides on tools that no rule allows (`--permission-mode`). Default: the CLI's.
    pub permission_mode: Option<PermissionMode>,
    /// The built-in tools that exist at all (`--tools`); an empty list means none. Default: the CLI's set.
    pub tools: Option<Vec<String>>,
    /// Rules for tools that run without asking (`--allowedTools`), such as `mcp__calc__*` or `Bash(ls:*)`.
    pub allowed_tools: Vec<String>,
    /// Rules for tools that never run (`--disallowedTools`).
    pub disallowed_tools: Vec<String>,
    /// Directories besides `cwd` that tools may touch (`--add-dir`).
    pub additional_directories: Vec<PathBuf>,
    /// The most model turns that one prompt may take (`--max-turns`).
    pub max_turns: Option<u32>,
    /// The most that the session may cost, in US dollars (`--max-budget-usd`).
    pub max_budget_usd: Option<f64>,
    /// How hard the model thinks: `low`, `medium`, `high`, `max` (`--effort`).
    pub effort: Option<String>,
    /// Beta features (`--betas`).
    pub betas: Vec<String>,
    /// Which settings files the CLI reads: `user`, `project`, `local` (`--setting-sources`); an empty list
    /// means none. Default: the CLI's.
    pub setting_sources: Option<Vec<String>>,
    /// Settings for this session, as a JSON object or as the path of a file (`--settings`).
    pub settings: Option<Value>,
    /// Whether messages arrive in pieces as well, while the model writes them (`--include-partial-messages`).
    pub include_partial_messages: bool,

    /// Continues this conversation (`--resume`).
    pub resume: Option<String>,
    /// With `resume` or `continue_conversation`: into a new session id (`--fork-session`).
    pub fork_session: bool,
    /// Continues the newest conversation of the working directory (`--continue`).
    pub continue_conversation: bool,
    /// The id of the new conversation, a UUID (`--session-id`). Default: the CLI makes one.
    pub session_id: Option<String>,

    /// MCP servers that the CLI dials itself, by name. In-process servers are given to the
    /// [`SessionBuilder`](crate::SessionBuilder).
    pub mcp_servers: BTreeMap<String, ExternalServer>,
    /// Files with further MCP servers, in the CLI's own format (`--mcp-config`).
    pub mcp_config_files: Vec<PathBuf>,
    /// Whether only the MCP servers named here exist (`--strict-mcp-config`).
    pub strict_mcp_config: bool,
    /// How in-process servers are announced to the CLI. Default: [`McpRegistration::Auto`].
    pub mcp_registration: McpRegistration,

    /// What happens to the running turn when the CLI dies. Default: [`TurnRecovery::Interrupt`].
    pub turn_recovery: TurnRecovery,
    /// How far to go when the CLI refuses to resume the conversation after a crash. Default:
    /// [`ResumeLadder::SameId`].
    pub resume_ladder: ResumeLadder,
    /// What happens to partial messages that nobody reads. Default: [`UnreadPartials::Keep`].
    pub unread_partials: UnreadPartials,
    /// The folder for the temporary files in which messages wait that nobody reads
    /// ([`Limits::spilled_bytes`]). Default: the system's folder for such files.
    pub spill_dir: Option<PathBuf>,

    /// Every time limit.
    pub timeouts: Timeouts,
    /// Every bound on memory and on work in flight.
    pub limits: Limits,
    /// How often each part of the tree may restart.
    pub restarts: Restarts,
    /// Whether arguments and results of tools are recorded in tracing spans. Default: false.
    pub trace_payloads: bool,
}

/// Where the CLI's environment comes from.
///
/// ```
/// assert_eq!(greenroom::EnvPolicy::default(), greenroom::EnvPolicy::Inherit);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EnvPolicy {
    /// The host's environment, with [`Options::env`] over it, and without the variables that would make the CLI
    /// think it runs inside another one (`CLAUDECODE`) or change its runtime (`NODE_OPTIONS`).
    #[default]
    Inherit,
    /// [`Options::env`] and nothing else.
    Clean,
}

/// The system prompt of a session.
///
/// ```
/// let prompt = greenroom::SystemPrompt::Append("Answer in one line.".into());
/// # let _ = prompt;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SystemPrompt {
    /// No system prompt.
    #[default]
    Empty,
    /// This text instead of any other.
    Text(String),
    /// Claude Code's own.
    ClaudeCode,
    /// Claude Code's own, with this text after it.
    Append(String),
}

/// How the CLI decides on a tool that no rule allows.
///
/// ```
/// assert_eq!(greenroom::PermissionMode::AcceptEdits.as_str(), "acceptEdits");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum PermissionMode {
    /// Ask.
    Default,
    /// Edits to files need no asking.
    AcceptEdits,
    /// Nothing is asked. The CLI refuses it unless it was started to allow it.
    BypassPermissions,
    /// Plan only; change nothing.
    Plan,
    /// What is not allowed is denied without asking.
    DontAsk,
    /// A classifier decides.
    Auto,
}

/// What happens to partial messages (`stream_event`, see [`Options::include_partial_messages`]) that nobody reads.
///
/// ```
/// assert_eq!(greenroom::UnreadPartials::default(), greenroom::UnreadPartials::Keep);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UnreadPartials {
    /// They wait like all others.
    #[default]
    Keep,
    /// They are the first to go when [`Limits::unread_bytes`] is reached, a quarter of it at a time, the oldest first:
    /// the messages of which those are pieces have arrived whole most likely, and wait right behind them. When there are
    /// few to drop and the one that comes is partial itself, that one goes. No partial message is written to the file.
    ///
    /// What is dropped is counted (`dropped_partials`), and [`Turn::missed_partials`](crate::Turn::missed_partials)
    /// says where the gaps are. Of a message that is written on, pieces may come whose beginning was dropped.
    DropFirst,
}

impl PermissionMode {
    /// The CLI's own spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            PermissionMode::Default => "default",
            PermissionMode::AcceptEdits => "acceptEdits",
            PermissionMode::BypassPermissions => "bypassPermissions",
            PermissionMode::Plan => "plan",
            PermissionMode::DontAsk => "dontAsk",
            PermissionMode::Auto => "auto",
        }
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Finds contradictions, before any process starts.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption), naming the option.
    pub fn validate(&self) -> Result<()> {
        if self.model.is_some() && self.model == self.fallback_model {
            return Err(Error::invalid_option("option `fallback_model` is the same as `model`")
                .with_help("name another model, or none"));
        }
        if self.resume.is_some() && self.continue_conversation {
            return Err(Error::invalid_option(
                "options `resume` and `continue_conversation` exclude each other",
            ));
        }
        let continues = self.resume.is_some() || self.continue_conversation;
        if self.fork_session && !continues {
            return Err(Error::invalid_option(
                "option `fork_session` needs `resume` or `continue_conversation`",
            ));
        }
        if self.session_id.is_some() && continues && !self.fork_session {
            return Err(Error::invalid_option(
                "option `session_id` goes with a resumed session only when it is forked",
            )
            .with_help("set `fork_session`, or leave `session_id` out"));
        }
        if let Some(id) = &self.session_id
            && uuid::Uuid::parse_str(id).is_err()
        {
            return Err(Error::invalid_option(format!("option `session_id` is not a UUID: '{id}'")));
        }
        if let Some(settings) = &self.settings
            && !settings.is_object()
            && !settings.is_string()
        {
            return Err(Error::invalid_option(
                "option `settings` must be a JSON object or the path of a file",
            ));
        }
        if self.max_budget_usd.is_some_and(|budget| !(budget > 0.0 && budget.is_finite())) {
            return Err(Error::invalid_option("option `max_budget_usd` must be a positive number"));
        }
        for name in self.extra_args.keys() {
            if name.is_empty() || name.starts_with('-') || name.contains(['=', ' ', '\0']) {
                return Err(Error::invalid_option(format!(
                    "option `extra_args` has the name '{name}'; give it without dashes, '=' and spaces"
                )));
            }
        }
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(Error::invalid_option(format!(
                    "option `env` has an impossible variable '{name}'"
                )));
            }
        }
        for rule in self.allowed_tools.iter().chain(&self.disallowed_tools) {
            if rule.trim().is_empty() {
                return Err(Error::invalid_option("a tool rule is empty"));
            }
        }
        self.limits.validate()
    }
}
