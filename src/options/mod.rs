//! Everything that can be set, as plain data: [`Options`] and its parts.
//!
//! Options are validated before a process starts, they serialise, and every limit that the library applies is
//! one of them: there is no other. Names in JSON are those of the fields; what the CLI has a form of its own for (agents,
//! MCP servers, plugins, the sandbox) is in that form, so that it can be taken over from elsewhere.

mod agent;
mod debug;
mod limits;
mod mcp;
mod model;
mod output;
mod permission;
mod plugin;
mod process;
mod prompt;
mod recovery;
mod restart;
mod sandbox;
pub(crate) mod schema;
mod settings;
mod store;
mod timeouts;
mod unread;
mod validate;
mod word;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use agent::{AgentDefinition, AgentEffort, AgentMemory, AgentServer};
pub use limits::Limits;
pub use mcp::{ExternalServer, ExternalToolPolicy, McpRegistration, OrgPermission, ToolPermission};
pub use model::{Effort, Thinking, ThinkingDisplay};
pub use output::OutputFormat;
pub use permission::{BuiltInTools, PermissionMode, PermissionPrompts, QuestionPreview, Skills};
pub use plugin::Plugin;
pub use process::{Delivery, EnvPolicy, OsUser};
pub use prompt::SystemPrompt;
pub use recovery::{ResumeLadder, TurnRecovery};
pub use restart::{Restart, Restarts};
pub use sandbox::{
    CredentialFile, CredentialMode, CredentialVar, Sandbox, SandboxCredentials, SandboxFilesystem,
    SandboxNetwork, SandboxRipgrep, SandboxTls,
};
pub use settings::SettingSource;
pub(crate) use settings::{Merged, merged};
pub(crate) use store::LOCK_PAUSE;
pub use store::{StoreFlush, StoreOptions};
pub(crate) use timeouts::FOREVER;
pub use timeouts::Timeouts;
pub(crate) use timeouts::millis::serialize as millis_serialize;
pub use unread::UnreadPartials;
use validate::check_name;

/// What a session is started with, as plain data.
///
/// All fields have defaults; a config file names only what it changes. What is not data (tool servers, handlers,
/// a transport) is given to the [`SessionBuilder`](crate::SessionBuilder).
///
/// In parentheses stands how an option reaches the CLI: as an argument (`--flag`), as a variable (`$NAME`), or in
/// `initialize`, which goes through a pipe that nobody else can read.
///
/// What may be secret is not in the `Debug` form, so that it gets into no log: of `env`, `extra_args`, `settings` and
/// `managed_settings` it has the names only, and as little of MCP servers. Serialised, the options are whole.
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
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Options {
    /// The `claude` executable. Default: looked for on `PATH`, then in the usual install places.
    pub cli_path: Option<PathBuf>,
    /// The JavaScript runtime for a `cli_path` that is a script (`.js`, `.mjs`, `.ts` and so on), by name or path: `node`,
    /// `bun`, `deno`. An executable needs none. Default: the `node` on `PATH`.
    pub runtime: Option<PathBuf>,
    /// The runtime's own arguments, which go before the script. `deno` needs `run` and its permissions.
    pub runtime_args: Vec<String>,
    /// The CLI's working directory, which is also what its transcripts are filed under. Default: the host's.
    pub cwd: Option<PathBuf>,
    /// The directory from which project settings, `.mcp.json` and the `.claude` folder are taken instead of `cwd`, as an
    /// absolute path: for a `cwd` that is a worktree of it (`--project-config-root`).
    pub project_config_root: Option<PathBuf>,
    /// Variables to set for the CLI. They go before those that other options stand for.
    pub env: BTreeMap<String, String>,
    /// Whether the CLI inherits the host's environment. Default: [`EnvPolicy::Inherit`].
    pub env_policy: EnvPolicy,
    /// The user of the operating system that the CLI runs as. Default: the host's.
    pub user: Option<OsUser>,
    /// What the application calls itself in the CLI's requests to the API, such as `my-app/1.0`
    /// (`$CLAUDE_AGENT_SDK_CLIENT_APP`).
    pub client_app: Option<String>,
    /// How the CLI is told of `mcp_servers`, `plugins`, inline `settings` with `sandbox`, and `managed_settings`. Default:
    /// [`Delivery::Auto`], by `initialize` where the CLI can.
    pub delivery: Delivery,
    /// Further flags, without the leading dashes; `None` for a flag without a value. Each is passed as
    /// `--name=value`. For what is newer than this library; flags that the library writes itself, such as `output-format` or
    /// `permission-prompt-tool`, are refused.
    pub extra_args: BTreeMap<String, Option<String>>,
    /// Whether the CLI writes a debug log (`--debug`), to its stderr or to `debug_file`.
    pub debug: bool,
    /// The file for the debug log; it turns that on (`--debug-file`).
    pub debug_file: Option<PathBuf>,

    /// The model, by name or alias (`--model`). Default: the CLI's.
    pub model: Option<String>,
    /// The model to use when the first is overloaded, or several with commas between them, to be tried in order
    /// (`--fallback-model`). None of them may be `model`.
    pub fallback_model: Option<String>,
    /// Whether and how much the model thinks before it answers (`--thinking` or `--max-thinking-tokens`,
    /// `--thinking-display`). Default: the CLI's.
    pub thinking: Option<Thinking>,
    /// The most tokens that the model may think, 0 for none (`--max-thinking-tokens`, `--thinking=disabled`). The older way
    /// to say `thinking`; not both.
    pub max_thinking_tokens: Option<u32>,
    /// How hard the model works (`--effort`). Default: the CLI's.
    pub effort: Option<Effort>,
    /// The most model turns that one prompt may take (`--max-turns`). At least 1.
    pub max_turns: Option<u32>,
    /// The most that the session may cost, in US dollars (`--max-budget-usd`).
    pub max_budget_usd: Option<f64>,
    /// A budget in tokens of which the model is told, so that it can pace itself (`--task-budget`). At least 1.
    pub task_budget: Option<u64>,
    /// Beta features (`--betas`, once for each: CLI 2.1.328 was seen to take no notice of two that are joined by a comma, and
    /// of those that it does not know).
    pub betas: Vec<String>,
    /// In which form the model gives the result of each turn (`initialize`). Default: text.
    pub output_format: Option<OutputFormat>,

    /// The system prompt (`initialize`; a file by `--system-prompt-file`). Default: [`SystemPrompt::Empty`], as in the
    /// official SDKs.
    pub system_prompt: SystemPrompt,
    /// Whether what differs from user to user (working directory, memory, git status) stands in the first user message
    /// instead of the system prompt, so that this is cached for all of them (`initialize`). Of no effect on a system prompt
    /// of your own.
    pub exclude_dynamic_sections: bool,
    /// Whether the system prompt is recorded with the conversation, and the record used from then on (`initialize`).
    /// Default: the CLI's, which is to do so where it can.
    pub system_prompt_snapshot: Option<bool>,
    /// What is to be done in plan mode, instead of the CLI's own instructions (`initialize`).
    pub plan_mode_instructions: Option<String>,
    /// Whether prompts reach the model as they are written: no `@path` is expanded, no slash command runs, and nothing is
    /// attached (`client_composed` on each prompt; since CLI 2.1.248, others take no notice).
    pub verbatim_prompts: bool,

    /// The agent of the main conversation, by name: one of `agents` or of the settings (`--agent`). CLI 2.1.328 was seen to
    /// start without one if there is none of this name.
    pub agent: Option<String>,
    /// Subagents, by name (`initialize`).
    pub agents: BTreeMap<String, AgentDefinition>,

    /// How the CLI decides on tools that no rule allows (`--permission-mode`). Default: the CLI's.
    pub permission_mode: Option<PermissionMode>,
    /// Whether [`PermissionMode::BypassPermissions`] may be used, from the start or later
    /// (`--allow-dangerously-skip-permissions`). The CLI refuses it to root, unless `IS_SANDBOX=1` says
    /// that nothing can be harmed.
    pub allow_dangerously_skip_permissions: bool,
    /// The MCP tool that decides on permissions, instead of a handler (`--permission-prompt-tool`).
    pub permission_prompt_tool_name: Option<String>,
    /// Who answers when a permission has to be asked for (`--permission-prompts`). With
    /// [`PermissionPrompts::None`] a handler is never called. Default: the host.
    pub permission_prompts: Option<PermissionPrompts>,
    /// The built-in tools that exist at all (`--tools`). Default: the CLI's set.
    pub tools: Option<BuiltInTools>,
    /// Other names for tools: what the model calls by the first runs the second (`initialize`). The second is taken as it
    /// is, not as another alias.
    pub tool_aliases: BTreeMap<String, String>,
    /// Rules for tools that run without asking (`--allowedTools`), such as `mcp__calc__*` or `Bash(ls:*)`.
    pub allowed_tools: Vec<String>,
    /// Rules for tools that never run (`--disallowedTools`).
    pub disallowed_tools: Vec<String>,
    /// The skills that are turned on (`initialize` for a list; a rule in `--allowedTools` for each). Default: the CLI's.
    pub skills: Option<Skills>,
    /// In which form the previews of an `AskUserQuestion` come (`$CLAUDE_CODE_QUESTION_PREVIEW_FORMAT`).
    pub question_preview: Option<QuestionPreview>,
    /// Directories besides `cwd` that tools may touch (`--add-dir`). They should be absolute.
    pub additional_directories: Vec<PathBuf>,

    /// Which settings files the CLI reads (`--setting-sources`); an empty list means none. Default: the CLI's.
    pub setting_sources: Option<Vec<SettingSource>>,
    /// Settings for this session: a JSON object (`initialize`), or the path of a file (`--settings`).
    pub settings: Option<Value>,
    /// The sandbox for commands, which goes over that of `settings` (with it).
    pub sandbox: Option<Sandbox>,
    /// Settings of the policy tier (`initialize`): they restrict, and cannot be overridden. An administrator's own
    /// settings go before them.
    pub managed_settings: Option<Map<String, Value>>,
    /// Plugins (`initialize`).
    pub plugins: Vec<Plugin>,

    /// Whether messages arrive in pieces as well, while the model writes them (`--include-partial-messages`).
    pub include_partial_messages: bool,
    /// Whether every hook is told of in messages, not just those of the start (`--include-hook-events`).
    pub include_hook_events: bool,
    /// Whether text and thinking of subagents arrive as well, not just their tool calls (`initialize`).
    pub forward_subagent_text: bool,
    /// Whether the CLI suggests a next prompt after each turn (`initialize`).
    pub prompt_suggestions: bool,
    /// Whether the CLI says in words, from time to time, what each running subagent does (`initialize`).
    pub agent_progress_summaries: bool,
    /// Whether the application lets its user stop single background tasks (`stop_task`), so that an interrupt need not
    /// end them all (`initialize`).
    pub per_task_stop_affordance: bool,

    /// Continues this conversation (`--resume`).
    pub resume: Option<String>,
    /// With `resume` or `continue_conversation`: up to this message of it and no further, by uuid (`--resume-session-at`).
    pub resume_session_at: Option<String>,
    /// With `resume_session_at`: the uuid of the prompt whose turn is cut off by it. The CLI refuses to resume when anything
    /// else would be, with an error result that begins with `Resume rejected by --resume-drops-turn:`; trying again does not
    /// help (`--resume-drops-turn`).
    pub resume_drops_turn: Option<String>,
    /// With `resume` or `continue_conversation`: into a new session id (`--fork-session`).
    pub fork_session: bool,
    /// Continues the newest conversation of the working directory (`--continue`).
    pub continue_conversation: bool,
    /// The id of the new conversation, a UUID (`--session-id`). Default: the CLI makes one.
    pub session_id: Option<String>,
    /// The title of a new conversation (`initialize`). Default: the CLI makes one.
    pub title: Option<String>,
    /// Whether the CLI writes the conversation down. `Some(false)`: it cannot be resumed, after a crash neither, so that
    /// `resume_ladder` has to allow a fresh one for the session to live on (`--no-session-persistence`).
    pub persist_session: Option<bool>,
    /// Whether the CLI keeps what files were before it changed them, so that they can be rewound
    /// (`$CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING`).
    pub enable_file_checkpointing: bool,

    /// MCP servers that the CLI dials itself, by name (`initialize`). In-process servers are given to the
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
    /// How a session is mirrored to its store, and loaded from it.
    pub store: StoreOptions,
    /// Whether arguments and results of tools are recorded in tracing spans. Default: false.
    pub trace_payloads: bool,
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }
}
