//! The options as the CLI's arguments and environment.
//!
//! Every value is written `--flag=value`, never as two words, so that a value that begins with a dash stays a
//! value. A flag that takes several files or directories is repeated.
//!
//! Arguments can be read by every user of the machine. What may hold a secret and still goes there:
//! [`Options::mcp_servers`] (the headers and variables in it), an inline [`Options::settings`], and
//! [`Options::extra_args`]. A file named in [`Options::mcp_config_files`] keeps the first out of sight, a
//! settings file the second. (The CLI also takes MCP servers in `initialize` when it is started with
//! `--await-initialize`; that way is not used yet.) The environment is private to the user, and the system
//! prompt travels in `initialize`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Launch, StderrSink};
use crate::error::{Error, Result};
use crate::options::{EnvPolicy, Options};

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
    /// Whether permissions are asked over the control channel.
    pub(crate) permission_prompt: bool,
    /// Whether the CLI repeats each user message that it takes in.
    pub(crate) replay_user_messages: bool,
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
        args: args(options, spec)?,
        inherit_env: options.env_policy == EnvPolicy::Inherit,
        unset_env: unset_env(options, &env),
        env,
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

    args.optional("model", options.model.as_deref());
    args.optional("fallback-model", options.fallback_model.as_deref());
    args.optional("permission-mode", options.permission_mode.map(|mode| mode.as_str()));
    if let Some(tools) = &options.tools {
        // An empty value means no tools.
        args.value("tools", tools.join(","));
    }
    args.list("allowedTools", &options.allowed_tools);
    args.list("disallowedTools", &options.disallowed_tools);
    for directory in &options.additional_directories {
        args.value("add-dir", text("additional_directories", directory)?);
    }
    args.optional("max-turns", options.max_turns.map(|turns| turns.to_string()));
    args.optional("max-budget-usd", options.max_budget_usd.map(|dollars| dollars.to_string()));
    args.optional("effort", options.effort.as_deref());
    args.list("betas", &options.betas);
    if let Some(sources) = &options.setting_sources {
        // An empty value means no files.
        args.value("setting-sources", sources.join(","));
    }
    match &options.settings {
        None => {}
        Some(Value::String(path)) => args.value("settings", path),
        Some(inline) => args.value("settings", inline.to_string()),
    }
    if options.include_partial_messages {
        args.flag("include-partial-messages");
    }
    if spec.replay_user_messages {
        args.flag("replay-user-messages");
    }
    if spec.permission_prompt {
        args.value("permission-prompt-tool", "stdio");
    }

    conversation(&mut args, options, spec);
    mcp(&mut args, options, spec)?;

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
    let among_extra = || options.extra_args.keys().any(|name| CHOOSES_CONVERSATION.contains(&name.as_str()));
    options.resume.is_some() || options.continue_conversation || among_extra()
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
    if options.continue_conversation {
        args.flag("continue");
    }
    if options.fork_session {
        args.flag("fork-session");
    }
    args.optional("session-id", options.session_id.as_deref());
}

fn mcp(args: &mut Args, options: &Options, spec: &LaunchSpec) -> Result<()> {
    let mut servers = Map::new();
    for (name, server) in &options.mcp_servers {
        let config = serde_json::to_value(server).map_err(|error| {
            Error::invalid_option(format!("option `mcp_servers` cannot be written as JSON at '{name}'"))
                .with_source(error)
        })?;
        servers.insert(name.clone(), config);
    }
    for (name, settings) in &spec.sdk_servers_by_config {
        let mut config = settings.clone();
        config.insert("type".into(), json!("sdk"));
        config.insert("name".into(), json!(name));
        if servers.insert(name.clone(), Value::Object(config)).is_some() {
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
    if options.strict_mcp_config {
        args.flag("strict-mcp-config");
    }
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

/// Arguments in the making. A flag is given without its dashes.
#[derive(Default)]
struct Args(Vec<String>);

impl Args {
    fn flag(&mut self, name: &str) {
        self.0.push(format!("--{name}"));
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
    fn list(&mut self, name: &str, values: &[String]) {
        if !values.is_empty() {
            self.value(name, values.join(","));
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
