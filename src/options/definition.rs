//! [`Options`], the type.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    AgentDefinition, BuiltInTools, Containment, Delivery, Effort, EnvPolicy, ExternalServer, Limits, OsUser,
    OutputFormat, PermissionMode, PermissionPrompts, Plugin, QuestionPreview, Restarts, ResumeLadder,
    Sandbox, SettingSource, Skills, StoreOptions, SystemPrompt, Thinking, Timeouts, TraceContext,
    TraceOptions, TurnRecovery, UnreadPartials,
};
use crate::error::{Error, Result};

/// All settings of a session, as plain data.
///
/// Set them in code with [`SessionBuilder::configure`](crate::SessionBuilder::configure), or read them from a config
/// file. Every field has a default, so the file names only what it changes. Durations are milliseconds there. Values
/// that are not data (tool servers, handlers, a transport) are given to the [`SessionBuilder`](crate::SessionBuilder).
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
///
/// `Debug` shows names instead of values that may be secret (`env`, `extra_args`, `settings`, `managed_settings`, MCP
/// servers), so you can log options. Serialisation includes all values.
///
/// # Options by subject
#[doc = include_str!("options.md")]
///
/// # How options reach the CLI
///
/// In the parentheses after the description of a field: as an argument (`--flag`), as an environment variable
/// (`$NAME`), or in the request `initialize`, which goes through a pipe that no other process can read. `sandbox` goes
/// with `settings`; greenroom applies the other fields without parentheses.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Options {
    /// The `claude` executable. Default: searched on `PATH`, then in the usual install folders.
    pub cli_path: Option<PathBuf>,
    /// Whether a CLI that is older than [`OLDEST_CLI`](super::OLDEST_CLI) is used. Otherwise the start fails with
    /// [`CliTooOld`](crate::ErrorKind::CliTooOld). Set `permission_mode` as well: some old CLIs start in the mode `auto`.
    /// A CLI up to 2.1.257 shows the model no tool of a [`ToolServer`](crate::ToolServer).
    pub allow_old_cli: bool,
    /// The JavaScript runtime, by name or path (`node`, `bun`, `deno`), for a `cli_path` that is a script (`.js`,
    /// `.mjs`, `.ts` and so on). Default: the `node` on `PATH`.
    pub runtime: Option<PathBuf>,
    /// Arguments of the runtime, before the script. `deno` needs `run` and its permissions.
    pub runtime_args: Vec<String>,
    /// The CLI's working directory. The CLI files its transcripts under it. Default: the host's.
    pub cwd: Option<PathBuf>,
    /// Where project settings, `.mcp.json` and the `.claude` folder are read instead of `cwd`, as an absolute path. For
    /// a `cwd` that is a worktree of that directory (`--project-config-root`).
    pub project_config_root: Option<PathBuf>,
    /// Environment variables of the CLI. They override inherited variables; some options override them.
    pub env: BTreeMap<String, String>,
    /// The part of the host's environment that the CLI inherits. Default: [`EnvPolicy::Inherit`].
    pub env_policy: EnvPolicy,
    /// The operating-system user that the CLI runs as. Default: the host's.
    pub user: Option<OsUser>,
    /// The way in which processes of the CLI are found when it ends, so that none outlives it. Default:
    /// [`Containment::Auto`].
    pub containment: Containment,
    /// The application's name in the CLI's requests to the API, such as `my-app/1.0` (`$CLAUDE_AGENT_SDK_CLIENT_APP`).
    pub client_app: Option<String>,
    /// The way in which `mcp_servers`, `plugins`, inline `settings` with `sandbox`, and `managed_settings` reach the
    /// CLI. Default: [`Delivery::Auto`], which is `initialize` if the CLI takes them there.
    pub delivery: Delivery,
    /// Flags that this library does not know, without leading dashes; `None` for a flag without a value. Each is passed
    /// as `--name=value`. Flags that the library writes itself, such as `output-format`, are refused.
    pub extra_args: BTreeMap<String, Option<String>>,
    /// Whether the CLI writes a debug log to stderr, or to `debug_file` (`--debug`).
    pub debug: bool,
    /// The file for the debug log; enables the log (`--debug-file`).
    pub debug_file: Option<PathBuf>,

    /// The model, by name or alias (`--model`). Default: the CLI's.
    pub model: Option<String>,
    /// The model to use when `model` is overloaded, or several, separated by commas, in the order in which they are
    /// tried (`--fallback-model`). Must not contain `model`.
    pub fallback_model: Option<String>,
    /// Whether and how much the model thinks before it answers (`--thinking` or `--max-thinking-tokens`,
    /// `--thinking-display`). Default: the CLI's.
    pub thinking: Option<Thinking>,
    /// The most tokens that the model may think; 0 disables thinking (`--max-thinking-tokens`, `--thinking=disabled`).
    /// The older form of `thinking`; giving both is refused.
    pub max_thinking_tokens: Option<u32>,
    /// Effort of the model (`--effort`). Default: the CLI's.
    pub effort: Option<Effort>,
    /// The most model turns of one prompt, at least 1 (`--max-turns`). Default: no limit.
    pub max_turns: Option<u32>,
    /// The most that the session may cost, in US dollars (`--max-budget-usd`). Default: no limit.
    pub max_budget_usd: Option<f64>,
    /// A token budget that the model is told, so that it can pace itself; at least 1 (`--task-budget`).
    pub task_budget: Option<u64>,
    /// Beta features. Each is a flag of its own (`--betas`): CLI 2.1.328 was seen to ignore two names with a comma
    /// between them, and unknown names.
    pub betas: Vec<String>,
    /// The form of the result of each turn (`initialize`). Default: text.
    pub output_format: Option<OutputFormat>,

    /// The system prompt (`initialize`; a file by `--system-prompt-file`). Default: [`SystemPrompt::Empty`], as in the
    /// official SDKs.
    pub system_prompt: SystemPrompt,
    /// Whether parts that differ between users (working directory, memory, git status) move from the system prompt to
    /// the first user message, so that the system prompt is cached for all users (`initialize`). No effect on your own
    /// system prompt.
    pub exclude_dynamic_sections: bool,
    /// Whether the system prompt is stored with the conversation and reused when it resumes (`initialize`). Default:
    /// the CLI's, which is to do so if it can.
    pub system_prompt_snapshot: Option<bool>,
    /// Instructions for plan mode that replace the CLI's own (`initialize`).
    pub plan_mode_instructions: Option<String>,
    /// Whether prompts reach the model unchanged: no `@path` is expanded, no slash command runs, and nothing is
    /// attached (`client_composed` on each prompt). Older CLIs than 2.1.248 ignore it.
    pub verbatim_prompts: bool,

    /// The agent of the main conversation, by name: one of `agents`, or of the settings (`--agent`). CLI 2.1.328 was
    /// seen to start without an agent if the name is unknown.
    pub agent: Option<String>,
    /// Subagents, by name (`initialize`).
    pub agents: BTreeMap<String, AgentDefinition>,

    /// The permission mode, which decides on tools that no rule allows (`--permission-mode`). Default: the CLI's.
    pub permission_mode: Option<PermissionMode>,
    /// Whether [`PermissionMode::BypassPermissions`] may be used, now or later
    /// (`--allow-dangerously-skip-permissions`). The CLI refuses it to root, unless `IS_SANDBOX=1` is set.
    pub allow_dangerously_skip_permissions: bool,
    /// The MCP tool that decides on permissions instead of a handler (`--permission-prompt-tool`).
    pub permission_prompt_tool_name: Option<String>,
    /// Who answers permission requests (`--permission-prompts`). With [`PermissionPrompts::None`] no handler is called.
    /// Default: the host.
    pub permission_prompts: Option<PermissionPrompts>,
    /// The built-in tools that exist (`--tools`). Default: the CLI's set.
    pub tools: Option<BuiltInTools>,
    /// Aliases of tools: a call of the key runs the tool in the value (`initialize`). The value must not be another
    /// alias.
    pub tool_aliases: BTreeMap<String, String>,
    /// Rules for tools that run without asking, such as `mcp__calc__*` or `Bash(ls:*)` (`--allowedTools`).
    pub allowed_tools: Vec<String>,
    /// Rules for tools that never run (`--disallowedTools`).
    pub disallowed_tools: Vec<String>,
    /// The enabled skills (`initialize` for a list, and a rule in `--allowedTools` for each). Default: the CLI's.
    pub skills: Option<Skills>,
    /// The format of previews in an `AskUserQuestion` (`$CLAUDE_CODE_QUESTION_PREVIEW_FORMAT`).
    pub question_preview: Option<QuestionPreview>,
    /// Directories besides `cwd` that tools may access, preferably absolute (`--add-dir`).
    pub additional_directories: Vec<PathBuf>,

    /// The settings files that the CLI reads; an empty list for none (`--setting-sources`). Default: the CLI's.
    pub setting_sources: Option<Vec<SettingSource>>,
    /// Settings of this session: a JSON object (`initialize`), or the path of a file (`--settings`).
    pub settings: Option<Value>,
    /// The sandbox for commands, merged over the sandbox in inline `settings` and sent with them.
    pub sandbox: Option<Sandbox>,
    /// Settings of the policy tier, which restrict and cannot be overridden (`initialize`). An administrator's settings
    /// take precedence.
    pub managed_settings: Option<Map<String, Value>>,
    /// Plugins (`initialize`).
    pub plugins: Vec<Plugin>,

    /// Whether messages also arrive in pieces while the model writes them (`--include-partial-messages`).
    pub include_partial_messages: bool,
    /// Whether messages report every hook, not only those of the start (`--include-hook-events`).
    pub include_hook_events: bool,
    /// Whether the CLI repeats each prompt as a [`UserMessage`](crate::message::UserMessage) that
    /// [is a replay](crate::message::UserMessage::is_replay), with the prompt's uuid (`--replay-user-messages`). In a
    /// [`Turn`](crate::Turn) the replay comes before the answer.
    pub replay_user_messages: bool,
    /// Whether text and thinking of subagents arrive, not only their tool calls (`initialize`).
    pub forward_subagent_text: bool,
    /// Whether the CLI suggests a next prompt after each turn (`initialize`).
    pub prompt_suggestions: bool,
    /// Whether the CLI summarises the progress of each running subagent from time to time (`initialize`).
    pub agent_progress_summaries: bool,
    /// Whether the application offers its user to stop single background tasks (`stop_task`), so that an interrupt does
    /// not end all of them (`initialize`).
    pub per_task_stop_affordance: bool,

    /// The conversation of this session, by an id of your choice, a UUID: the session resumes the conversation if it
    /// exists, and starts it under this id if not (`--resume` or `--session-id`).
    /// [`conversation_id`](crate::conversation_id) makes the id from a key of your application.
    ///
    /// Set it on every start, and your program needs no list of ids. Existing conversations are looked up in the
    /// session's store if there is one, else in all project folders of the CLI's configuration folder. If the CLI finds
    /// the opposite, the session goes by the CLI's word, except that a conversation of the store is never started again.
    /// [`Event::ConversationOpened`](crate::Event::ConversationOpened) and
    /// [`Snapshot::resumed`](crate::Snapshot::resumed) say which it was.
    ///
    /// With a store, set [`StoreOptions::project_key`](crate::options::StoreOptions::project_key) too if the working
    /// directory or the machine may change: its default depends on the directory, and in another one a new conversation
    /// starts under the same id.
    ///
    /// Excludes `resume`, `continue_conversation`, `fork_session`, `session_id` and `persist_session: Some(false)`.
    pub conversation: Option<String>,
    /// The conversation to resume, by id or title (`--resume`).
    pub resume: Option<String>,
    /// With `resume` or `continue_conversation`: the uuid of the last message to keep (`--resume-session-at`).
    pub resume_session_at: Option<String>,
    /// With `resume_session_at`: the uuid of the prompt whose turn it cuts off. If it would cut off anything else, the
    /// CLI refuses to resume, with an error result that begins with `Resume rejected by --resume-drops-turn:`; trying
    /// again does not help (`--resume-drops-turn`).
    pub resume_drops_turn: Option<String>,
    /// With `resume` or `continue_conversation`: continue in a copy with a new id (`--fork-session`).
    pub fork_session: bool,
    /// Whether to continue the newest conversation of the working directory (`--continue`).
    pub continue_conversation: bool,
    /// The id of a new conversation, a UUID (`--session-id`). A CLI that has a conversation under this id does not
    /// start; see `conversation`. Default: the CLI makes one.
    pub session_id: Option<String>,
    /// The title of a new conversation (`initialize`). Default: the CLI makes one.
    pub title: Option<String>,
    /// Whether the CLI writes a transcript. With `Some(false)` the conversation cannot be resumed, not even after a
    /// crash; set `resume_ladder` to [`ResumeLadder::Fresh`] if the session should survive a crash
    /// (`--no-session-persistence`).
    pub persist_session: Option<bool>,
    /// Whether the CLI keeps copies of files before it changes them, so that they can be rewound
    /// (`$CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING`).
    pub enable_file_checkpointing: bool,

    /// MCP servers that the CLI connects to itself, by name (`initialize`). In-process servers are given to the
    /// [`SessionBuilder`](crate::SessionBuilder).
    pub mcp_servers: BTreeMap<String, ExternalServer>,
    /// Files with more MCP servers, in the CLI's format (`--mcp-config`).
    pub mcp_config_files: Vec<PathBuf>,
    /// Whether the CLI ignores MCP servers from all other places (`--strict-mcp-config`).
    pub strict_mcp_config: bool,

    /// The fate of the running turn when the CLI dies. Default: [`TurnRecovery::Interrupt`].
    pub turn_recovery: TurnRecovery,
    /// The steps that the session may take if the CLI refuses to resume the conversation after a crash. Default:
    /// [`ResumeLadder::SameId`].
    pub resume_ladder: ResumeLadder,
    /// The fate of partial messages that nobody reads. Default: [`UnreadPartials::Keep`].
    pub unread_partials: UnreadPartials,

    /// The folder for the lock files that keep two live sessions out of one conversation
    /// ([`ErrorKind::SessionInUse`](crate::ErrorKind::SessionInUse)). Default: the first of these folders that does not
    /// refuse lock files for good, each with `greenroom-locks-<uid>` in it:
    ///
    /// 1. the configuration folder of the CLI, which has the conversation: `CLAUDE_CONFIG_DIR` or `.claude` in the home,
    ///    also if [`env`](Self::env) sets them. Not with another [`user`](Self::user);
    /// 2. the configuration folder in the environment of this process;
    /// 3. the system's folder for temporary files.
    ///
    /// So programs of one user that share a conversation share its locks, whatever else their environments are. The other
    /// two depend on the environment: set this if programs use them, and do not all have the same home and `TMPDIR`.
    ///
    /// The folder is created if it does not exist. It must belong to the user of this process and be closed to others (mode
    /// 0700). `start` fails with [`ErrorKind::Io`](crate::ErrorKind::Io), before it starts a process, if the folder cannot be
    /// used. Only a folder that is read-only, that this user may not create or that has no locks is passed over for the next
    /// one. A full disk, a wrong mode or another owner of the lock folder is an error, because a live session may hold its
    /// lock there. With this option only this folder is tried.
    pub lock_dir: Option<PathBuf>,

    /// All time limits.
    pub timeouts: Timeouts,
    /// All bounds on memory and on work in flight.
    pub limits: Limits,
    /// Restart limits of each part of a session.
    pub restarts: Restarts,
    /// Settings for mirroring a session to its store and loading it.
    pub store: StoreOptions,
    /// The trace that the CLI's own spans belong to (`$TRACEPARENT`, `$TRACESTATE`). Default: with the feature `otel`
    /// the OpenTelemetry span in which the session starts, unless `env` has a `TRACEPARENT`; without the feature, none.
    pub trace_context: Option<TraceContext>,
    /// Whether tracing spans record prompts, answers, and arguments and results of tools, which may be secret. Default: false.
    pub trace_payloads: bool,
    /// What spans and metrics say of the session.
    pub trace: TraceOptions,
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Options for one of many users of a service: the session finds everything in a folder of its own, and nothing of
    /// the host, of other users or of files in its working directory changes it.
    ///
    /// | option | is | so that |
    /// |---|---|---|
    /// | [`cwd`](Self::cwd) | `folder/work` | the CLI's file tools start in a directory of the user |
    /// | [`env`](Self::env) | `HOME` is `folder`, `CLAUDE_CONFIG_DIR` is `folder/claude` | the user has settings, a login and transcripts apart |
    /// | [`env_policy`](Self::env_policy) | [`EnvPolicy::Service`] | your keys stay out of the CLI; name the CLI's login with [`EnvPolicy::service_and`] |
    /// | [`setting_sources`](Self::setting_sources), [`strict_mcp_config`](Self::strict_mcp_config) | none, true | files in the working directory add no rules, hooks or MCP servers |
    /// | [`verbatim_prompts`](Self::verbatim_prompts) | true | `/command` and `@path` in a prompt are text |
    ///
    /// Create `folder/work` before the start, closed to others (mode 0700). The options say nothing about what the model
    /// may do: choose [`tools`](Self::tools) and [`permission_mode`](Self::permission_mode) too. A tool such as `Bash`
    /// or `Read` reaches the folders of other users, unless [`user`](Self::user) or [`sandbox`](Self::sandbox) keep it
    /// out.
    ///
    /// ```
    /// use greenroom::options::{BuiltInTools, EnvPolicy};
    /// use greenroom::{Options, Session};
    ///
    /// let mut options = Options::isolated("/var/lib/shop/users/7c0b")?;
    /// options.env_policy = EnvPolicy::service_and(["ANTHROPIC_API_KEY"]);
    /// options.tools = Some(BuiltInTools::none());
    /// let builder = Session::builder().options(options);
    /// # drop(builder);
    /// # greenroom::Result::<()>::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption), if `folder` is not an absolute path in UTF-8.
    pub fn isolated(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let Some(home) = folder.to_str().filter(|_| folder.is_absolute()) else {
            let message =
                format!("the folder of an isolated session is no absolute path in UTF-8: {folder:?}");
            return Err(Error::invalid_option(message).with_help("give the whole path, from the root"));
        };
        let mut options = Self::isolated_in(home, folder.join("work"));
        options.env.insert("CLAUDE_CONFIG_DIR".to_owned(), format!("{home}/claude"));
        Ok(options)
    }

    /// Options like those of [`isolated`](Self::isolated), with the user's `home` and working directory given one by one, and without
    /// `CLAUDE_CONFIG_DIR`: for a caller that chooses the configuration folder itself, such as a fleet. Until it is set, the CLI's is
    /// `.claude` in `home`.
    ///
    /// Give whole paths, from the root. Create both folders before the start, closed to others (mode 0700).
    pub fn isolated_in(home: impl Into<String>, working_directory: impl Into<PathBuf>) -> Self {
        Self {
            cwd: Some(working_directory.into()),
            env: [("HOME".to_owned(), home.into())].into(),
            env_policy: EnvPolicy::Service,
            setting_sources: Some(Vec::new()),
            strict_mcp_config: true,
            verbatim_prompts: true,
            ..Self::default()
        }
    }
}
