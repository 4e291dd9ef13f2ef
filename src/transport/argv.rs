//! The options as the CLI's arguments and environment.
//!
//! Every value is written `--flag=value`, never as two words, so that a value that begins with a dash stays a
//! value. A flag that takes several files or directories is repeated.
//!
//! Arguments can be read by every user of the machine. What may hold a secret (MCP servers with their headers and
//! variables, inline settings) travels in `initialize` where the CLI can take it from there, and so do long texts; see
//! [`fields`]. What still goes here whatever the CLI can: [`Options::extra_args`]. The environment is private to the user.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Launch, StderrSink};
use crate::error::{Error, Result};
use crate::options::{
    BuiltInTools, EnvPolicy, Merged, Options, OutputFormat, Plugin, SettingSource, SystemPrompt, Thinking,
    merged,
};

pub(crate) mod fields;

/// Which conversation an incarnation opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// The one that the options name.
    AsOptions,
    /// The captured one.
    Same(String),
    /// The captured one, of which nothing was written down, from its beginning.
    Anew(String),
    /// A fork of the captured one.
    Fork(String),
    /// A new one, whatever the options name.
    Fresh,
}

impl Resume {
    /// The captured conversation.
    pub(crate) fn session_id(&self) -> Option<&str> {
        match self {
            Resume::Same(id) | Resume::Fork(id) => Some(id),
            Resume::AsOptions | Resume::Anew(_) | Resume::Fresh => None,
        }
    }
}

/// How an incarnation is told something that may be said in two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By `initialize`.
    Initialize,
    /// By arguments.
    Arguments,
}

/// What the session decides about one incarnation, beside the [`Options`].
#[derive(Clone, Debug)]
pub(crate) struct LaunchSpec {
    /// Which incarnation it is, counted from 1.
    pub(crate) epoch: u64,
    /// The captured session id. It overrides everything that the options say about which conversation to
    /// open.
    pub(crate) resume: Resume,
    /// In-process servers to announce by `--mcp-config`, with their settings. Empty when `initialize` announces them.
    pub(crate) sdk_servers_by_config: Vec<(String, Map<String, Value>)>,
    /// How it is told what may be secret.
    pub(crate) private: Way,
    /// Whether permissions are asked over the control channel.
    pub(crate) permission_prompt: bool,
    /// Whether the CLI repeats each user message that it takes in.
    pub(crate) replay_user_messages: bool,
    /// Whether the CLI tells what it writes to its transcripts.
    pub(crate) session_mirror: bool,
    /// Where each line of stderr goes.
    pub(crate) stderr: StderrSink,
}

/// Taken from what is inherited: the first makes the CLI think that it runs inside another one, the second
/// changes the runtime that it is built on.
const NOT_INHERITED: [&str; 2] = ["CLAUDECODE", "NODE_OPTIONS"];

/// Makes the CLI say when it is idle, in frames that are meant for its host only.
const READS_SESSION_STATE: &str = "CLAUDE_CODE_SDK_READS_SESSION_STATE";

/// Flags that choose the conversation; an incarnation that resumes a captured one takes none of them.
const CHOOSES_CONVERSATION: [&str; 7] =
    ["continue", "fork-session", "from-pr", "resume", "resume-drops-turn", "resume-session-at", "session-id"];

/// Those of them that name one which is there already.
const CONTINUES: [&str; 3] = ["continue", "from-pr", "resume"];

/// What `options` and `spec` mean to the CLI.
///
/// # Errors
/// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for a value that cannot be an argument, and
/// for an in-process server that has the name of another server.
pub(crate) fn launch_for(options: &Options, spec: &LaunchSpec) -> Result<Launch> {
    let inherited: Vec<OsString> = match options.env_policy {
        EnvPolicy::Inherit => std::env::vars_os().map(|(name, _)| name).collect(),
        EnvPolicy::Clean => Vec::new(),
    };
    let env = env(options, &inherited);
    Ok(Launch {
        epoch: spec.epoch,
        program: options.cli_path.clone(),
        runtime: options.runtime.clone(),
        runtime_args: options.runtime_args.clone(),
        args: args(options, spec)?,
        inherit_env: options.env_policy == EnvPolicy::Inherit,
        unset_env: unset_env(options, &env),
        env,
        user: options.user,
        cwd: options.cwd.clone(),
        stderr: spec.stderr.clone(),
        stderr_line_bytes: options.limits.stderr_line_bytes,
    })
}

fn args(options: &Options, spec: &LaunchSpec) -> Result<Vec<String>> {
    let mut args = Args::default();
    args.value("output-format", "stream-json");
    args.flag("verbose");
    args.value("input-format", "stream-json");

    process(&mut args, options)?;
    model(&mut args, options);
    tools(&mut args, options, spec)?;
    messages(&mut args, options, spec);
    conversation(&mut args, options, spec);
    mcp(&mut args, options, spec)?;
    private(&mut args, options, spec)?;

    for (name, value) in &options.extra_args {
        if spec.resume != Resume::AsOptions && CHOOSES_CONVERSATION.contains(&name.as_str()) {
            continue;
        }
        match value {
            Some(value) => args.value(name, value),
            None => args.flag(name),
        }
    }
    args.finish()
}

/// Whether the first incarnation goes on with a conversation that is there already.
pub(crate) fn continues(options: &Options) -> bool {
    let among_extra = || CONTINUES.iter().any(|flag| options.extra_args.contains_key(*flag));
    options.resume.is_some() || options.continue_conversation || among_extra()
}

fn process(args: &mut Args, options: &Options) -> Result<()> {
    if let Some(root) = &options.project_config_root {
        args.value("project-config-root", text("project_config_root", root)?);
    }
    args.flag_if("debug", options.debug);
    if let Some(file) = &options.debug_file {
        args.value("debug-file", text("debug_file", file)?);
    }
    if let SystemPrompt::File(file) = &options.system_prompt {
        args.value("system-prompt-file", text("system_prompt", file)?);
    }
    if let Some(sources) = &options.setting_sources {
        // An empty value means no files.
        args.value("setting-sources", join(sources.iter().map(SettingSource::as_str)));
    }
    Ok(())
}

fn model(args: &mut Args, options: &Options) {
    args.optional("model", options.model.as_deref());
    args.optional("fallback-model", options.fallback_model.as_deref());
    let (tokens, mode) = match (&options.thinking, options.max_thinking_tokens) {
        (Some(Thinking::Disabled), _) | (None, Some(0)) => (None, Some("disabled")),
        (Some(Thinking::Enabled { budget_tokens: Some(tokens), .. }), _) => (Some(*tokens), None),
        (Some(Thinking::Adaptive { .. } | Thinking::Enabled { budget_tokens: None, .. }), _) => {
            (None, Some("adaptive"))
        }
        (None, tokens) => (tokens, None),
    };
    args.optional("thinking", mode);
    args.optional("max-thinking-tokens", tokens.map(|tokens| tokens.to_string()));
    args.optional(
        "thinking-display",
        options.thinking.as_ref().and_then(|it| it.display()).map(|it| it.as_str()),
    );
    args.optional("effort", options.effort.as_ref().map(|effort| effort.as_str()));
    args.optional("max-turns", options.max_turns.map(|turns| turns.to_string()));
    args.optional("max-budget-usd", options.max_budget_usd.map(|dollars| dollars.to_string()));
    args.optional("task-budget", options.task_budget.map(|tokens| tokens.to_string()));
    for beta in &options.betas {
        // Two that are joined by a comma are one that the CLI does not know.
        args.value("betas", beta);
    }
}

fn tools(args: &mut Args, options: &Options, spec: &LaunchSpec) -> Result<()> {
    args.optional("agent", options.agent.as_deref());
    args.optional("permission-mode", options.permission_mode.as_ref().map(|mode| mode.as_str()));
    args.flag_if("allow-dangerously-skip-permissions", options.allow_dangerously_skip_permissions);
    match &options.tools {
        None => {}
        Some(BuiltInTools::ClaudeCode) => args.value("tools", "default"),
        // An empty value means no tools.
        Some(BuiltInTools::Only(names)) => args.value("tools", join(names)),
    }
    let skills = options.skills.as_ref().map(|skills| skills.rules()).unwrap_or_default();
    // A rule that is there already is not said twice.
    let skills = skills.into_iter().filter(|rule| !options.allowed_tools.contains(rule));
    args.list("allowedTools", options.allowed_tools.iter().cloned().chain(skills));
    args.list("disallowedTools", &options.disallowed_tools);
    for directory in &options.additional_directories {
        args.value("add-dir", text("additional_directories", directory)?);
    }
    args.optional("permission-prompts", options.permission_prompts.as_ref().map(|who| who.as_str()));
    if spec.permission_prompt {
        args.value("permission-prompt-tool", "stdio");
    } else {
        args.optional("permission-prompt-tool", options.permission_prompt_tool_name.as_deref());
    }
    Ok(())
}

fn messages(args: &mut Args, options: &Options, spec: &LaunchSpec) {
    args.flag_if("include-partial-messages", options.include_partial_messages);
    args.flag_if("include-hook-events", options.include_hook_events);
    args.flag_if("replay-user-messages", spec.replay_user_messages);
    args.flag_if("session-mirror", spec.session_mirror);
    args.flag_if("no-session-persistence", options.persist_session == Some(false));
}

fn conversation(args: &mut Args, options: &Options, spec: &LaunchSpec) {
    if let Some(captured) = spec.resume.session_id() {
        args.value("resume", captured);
    }
    match &spec.resume {
        Resume::AsOptions => {}
        Resume::Anew(captured) => return args.value("session-id", captured),
        Resume::Fork(_) => return args.flag("fork-session"),
        Resume::Same(_) | Resume::Fresh => return,
    }
    args.optional("resume", options.resume.as_deref());
    args.flag_if("continue", options.continue_conversation);
    args.optional("resume-session-at", options.resume_session_at.as_deref());
    args.optional("resume-drops-turn", options.resume_drops_turn.as_deref());
    args.flag_if("fork-session", options.fork_session);
    args.optional("session-id", options.session_id.as_deref());
}

fn mcp(args: &mut Args, options: &Options, spec: &LaunchSpec) -> Result<()> {
    let mut servers = match spec.private {
        Way::Initialize => Map::new(),
        Way::Arguments => fields::mcp_servers(options)?,
    };
    for (name, settings) in &spec.sdk_servers_by_config {
        let mut config = settings.clone();
        config.insert("type".into(), json!("sdk"));
        config.insert("name".into(), json!(name));
        let taken = options.mcp_servers.contains_key(name);
        if servers.insert(name.clone(), Value::Object(config)).is_some() || taken {
            return Err(Error::invalid_option(format!("two MCP servers have the name '{name}'"))
                .with_help("rename one of them"));
        }
    }
    if !servers.is_empty() {
        args.value("mcp-config", json!({ "mcpServers": servers }).to_string());
    }
    for file in &options.mcp_config_files {
        args.value("mcp-config", text("mcp_config_files", file)?);
    }
    args.flag_if("strict-mcp-config", options.strict_mcp_config);
    Ok(())
}

/// What may be secret, or that it comes in `initialize`.
fn private(args: &mut Args, options: &Options, spec: &LaunchSpec) -> Result<()> {
    let settings = merged(options.settings.as_ref(), options.sandbox.as_ref())?;
    if let Some(Merged::File(path)) = &settings {
        args.value("settings", path);
    }
    let inline = match &settings {
        Some(Merged::Inline(inline)) => Some(inline),
        _ => None,
    };
    if spec.private == Way::Initialize {
        args.flag_if("await-initialize", fields::has_private(options));
        // Without these two the CLI would take no notice of the fields.
        if inline.is_some() {
            args.value("initialize-fields", "settings");
        }
        args.flag_if("managed-settings-in-initialize", options.managed_settings.is_some());
        return Ok(());
    }
    args.optional("settings", inline.map(|inline| json!(inline).to_string()));
    args.optional(
        "managed-settings",
        options.managed_settings.as_ref().map(|managed| json!(managed).to_string()),
    );
    for Plugin::Local { path, skip_mcp_discovery } in &options.plugins {
        let flag = if *skip_mcp_discovery { "plugin-dir-no-mcp" } else { "plugin-dir" };
        args.value(flag, text("plugins", path)?);
    }
    // A CLI that takes these from arguments may be older than the field of the same meaning.
    args.optional(
        "json-schema",
        options.output_format.as_ref().map(OutputFormat::schema).map(Value::to_string),
    );
    Ok(())
}

fn env(options: &Options, inherited: &[OsString]) -> BTreeMap<String, String> {
    let mut env = options.env.clone();
    // Not looked for in what is inherited: a host that was itself started by a CLI has that CLI's. Of the names that
    // stand for a program, CLI 2.1.328 knows `sdk-ts`, `sdk-py` and `sdk-cli` only. Under any other it offers the model
    // what is meant for people: the agent `claude-code-guide`, previews in `AskUserQuestion`.
    env.entry("CLAUDE_CODE_ENTRYPOINT".into()).or_insert_with(|| "sdk-cli".into());
    env.entry("CLAUDE_AGENT_SDK_VERSION".into()).or_insert_with(|| env!("CARGO_PKG_VERSION").into());
    let is_set = options.env.keys().any(|name| name.eq_ignore_ascii_case(READS_SESSION_STATE))
        || inherited.iter().any(|name| name.eq_ignore_ascii_case(READS_SESSION_STATE));
    if !is_set {
        env.insert(READS_SESSION_STATE.into(), "1".into());
    }
    let more = [
        ("CLAUDE_AGENT_SDK_CLIENT_APP", options.client_app.as_deref()),
        ("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", options.enable_file_checkpointing.then_some("true")),
        (
            "CLAUDE_CODE_QUESTION_PREVIEW_FORMAT",
            options.question_preview.as_ref().map(|format| format.as_str()),
        ),
    ];
    for (name, value) in more {
        if let Some(value) = value {
            env.entry(name.into()).or_insert_with(|| value.into());
        }
    }
    if let Some(cwd) = options.cwd.as_deref().filter(|cwd| cwd.is_absolute()).and_then(Path::to_str) {
        env.entry("PWD".into()).or_insert_with(|| cwd.into());
    }
    env
}

/// `env` is what is set: nothing of it is taken away again.
fn unset_env(options: &Options, env: &BTreeMap<String, String>) -> Vec<String> {
    if options.env_policy == EnvPolicy::Clean {
        return Vec::new();
    }
    // The host's own working directory would mislead whoever reads it in another one.
    let stale = options.cwd.is_some().then_some("PWD");
    NOT_INHERITED
        .into_iter()
        .chain(stale)
        .filter(|name| !env.contains_key(*name))
        .map(str::to_owned)
        .collect()
}

fn text<'a>(option: &str, path: &'a Path) -> Result<&'a str> {
    path.to_str().ok_or_else(|| {
        Error::invalid_option(format!("option `{option}` has a path that is not UTF-8: '{}'", path.display()))
    })
}

fn join(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    words.into_iter().map(|word| word.as_ref().to_owned()).collect::<Vec<_>>().join(",")
}

/// Arguments in the making. A flag is given without its dashes.
#[derive(Default)]
struct Args(Vec<String>);

impl Args {
    fn flag(&mut self, name: &str) {
        self.0.push(format!("--{name}"));
    }

    fn flag_if(&mut self, name: &str, given: bool) {
        if given {
            self.flag(name);
        }
    }

    fn value(&mut self, name: &str, value: impl AsRef<str>) {
        self.0.push(format!("--{name}={}", value.as_ref()));
    }

    fn optional(&mut self, name: &str, value: Option<impl AsRef<str>>) {
        if let Some(value) = value {
            self.value(name, value);
        }
    }

    /// Comma-separated, and left out when empty.
    fn list(&mut self, name: &str, values: impl IntoIterator<Item = impl AsRef<str>>) {
        let values = join(values);
        if !values.is_empty() {
            self.value(name, values);
        }
    }

    fn finish(self) -> Result<Vec<String>> {
        match self.0.iter().find(|arg| arg.contains('\0')) {
            Some(arg) => {
                let flag = arg.split(['=', '\0']).next().unwrap_or_default();
                Err(Error::invalid_option(format!("the value of {flag} has a zero byte in it")))
            }
            None => Ok(self.0),
        }
    }
}

#[cfg(test)]
mod tests;
