//! The options as the CLI's arguments (here), its environment (`env.rs`) and fields of `initialize` (`fields.rs`).
//!
//! Every value is written as `--flag=value`, so that a value that begins with a dash stays a value. A flag for several
//! files or directories is repeated.
//!
//! Every user of the machine can read arguments. Settings that may be secret (MCP servers, inline settings) and long
//! texts go in `initialize` if the CLI takes them there, and else into files ([`private`](super::private)). Always
//! arguments: [`Options::extra_args`], and managed settings for a CLI that does not take them in `initialize`. The
//! environment is private to the user.

mod env;
pub(crate) mod fields;
mod spec;

use std::ffi::OsString;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Command, Launch};
use crate::Options;
use crate::error::{Error, Result};
use crate::options::{
    BuiltInTools, CHOOSES_CONVERSATION, EnvPolicy, Merged, OutputFormat, Plugin, SettingSource, SystemPrompt,
    Thinking, merged,
};
use env::{env, unset_env};
pub(crate) use spec::{Channel, LaunchSpec, Resume};

/// Flags that continue an existing conversation.
const CONTINUES: [&str; 3] = ["continue", "from-pr", "resume"];

/// The arguments and the environment of an incarnation.
///
/// # Errors
/// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for a value that cannot be an argument, and for an
/// in-process server that has the name of another server.
pub(crate) fn launch_for(options: &Options, spec: &LaunchSpec) -> Result<Launch> {
    let inherited: Vec<OsString> = std::env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| name.to_str().is_none_or(|name| options.env_policy.inherits(name)))
        .collect();
    let mut env = env(options, &inherited);
    let inherit_env = options.env_policy == EnvPolicy::Inherit;
    let unset_env = unset_env(options, &env);
    if !inherit_env {
        // The host's `PWD` and `TRACESTATE` would be wrong with another working directory or trace.
        let stale = |name: &str| {
            (name == "PWD" && options.cwd.is_some())
                || (name == "TRACESTATE" && options.trace_context.is_some())
        };
        let host = inherited.iter().filter_map(|name| Some((name.to_str()?, std::env::var(name).ok()?)));
        for (name, value) in host.filter(|(name, _)| !stale(name)) {
            env.entry(name.to_owned()).or_insert(value);
        }
    }
    let mut command = Command::new("");
    command.inherit_env = inherit_env;
    command.unset_env = unset_env;
    command.env = env;
    command.user = options.user;
    command.cwd.clone_from(&options.cwd);
    command.containment = options.containment;
    command.exit_after_host = options.timeouts.exit_after_host;
    command.stderr = spec.stderr.clone();
    command.stderr_line_bytes = options.limits.stderr_line_bytes;
    Ok(Launch {
        epoch: spec.epoch,
        program: options.cli_path.clone(),
        runtime: options.runtime.clone(),
        runtime_args: options.runtime_args.clone(),
        args: args(options, spec)?,
        command,
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
        // The options name the conversation of the first incarnation only.
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

/// The conversation that the first incarnation writes to, by id or title, if the options name it.
pub(crate) fn opens(options: &Options) -> Option<&str> {
    let extra = |flag: &str| options.extra_args.get(flag).and_then(Option::as_deref);
    let given = options.conversation.as_deref().or(options.session_id.as_deref());
    let new = given.or_else(|| extra("session-id"));
    if options.fork_session || options.extra_args.contains_key("fork-session") {
        return new;
    }
    options.resume.as_deref().or_else(|| extra("resume")).or(new)
}

/// Whether the first incarnation continues an existing conversation.
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
        // The CLI takes two names with a comma between them for one unknown name.
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
    args.flag_if("replay-user-messages", options.replay_user_messages);
    args.flag_if("session-mirror", spec.session_mirror);
    args.flag_if("no-session-persistence", options.persist_session == Some(false));
}

fn conversation(args: &mut Args, options: &Options, spec: &LaunchSpec) {
    if let Some(captured) = spec.resume.session_id() {
        args.value("resume", captured);
    }
    match &spec.resume {
        Resume::AsOptions => {}
        Resume::Begin(id) => return args.value("session-id", id),
        Resume::Fork(_) => return args.flag("fork-session"),
        Resume::Same(_) | Resume::Fresh => return,
    }
    args.optional("resume", options.resume.as_deref());
    args.flag_if("continue", options.continue_conversation);
    args.optional("resume-session-at", options.resume_session_at.as_deref());
    args.optional("resume-drops-turn", options.resume_drops_turn.as_deref());
    args.flag_if("fork-session", options.fork_session);
    args.optional("session-id", options.conversation.as_deref().or(options.session_id.as_deref()));
}

fn mcp(args: &mut Args, options: &Options, spec: &LaunchSpec) -> Result<()> {
    let servers = match spec.private {
        Channel::Initialize => Map::new(),
        Channel::Arguments => fields::mcp_servers(options)?,
    };
    if !servers.is_empty() {
        args.value("mcp-config", json!({ "mcpServers": servers }).to_string());
    }
    for file in &options.mcp_config_files {
        args.value("mcp-config", text("mcp_config_files", file)?);
    }
    args.flag_if("strict-mcp-config", options.strict_mcp_config);
    Ok(())
}

/// Settings that may be secret, or the flags that announce them for `initialize`.
fn private(args: &mut Args, options: &Options, spec: &LaunchSpec) -> Result<()> {
    let settings = merged(options.settings.as_ref(), options.sandbox.as_ref())?;
    if let Some(Merged::File(path)) = &settings {
        args.value("settings", path);
    }
    let inline = match &settings {
        Some(Merged::Inline(inline)) => Some(inline),
        _ => None,
    };
    if spec.private == Channel::Initialize {
        args.flag_if("await-initialize", fields::has_private(options));
        // Without these two flags the CLI ignores the fields.
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
    // A CLI that needs arguments may be older than the field `jsonSchema`.
    args.optional(
        "json-schema",
        options.output_format.as_ref().map(OutputFormat::schema).map(Value::to_string),
    );
    Ok(())
}

fn text<'a>(option: &str, path: &'a Path) -> Result<&'a str> {
    path.to_str().ok_or_else(|| {
        Error::invalid_option(format!("option `{option}` has a path that is not UTF-8: '{}'", path.display()))
            .with_help("rename the file or folder: arguments of the CLI are text")
    })
}

fn join(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    words.into_iter().map(|word| word.as_ref().to_owned()).collect::<Vec<_>>().join(",")
}

/// Collects arguments. Names of flags are without dashes.
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

    /// Joined by commas; left out if empty.
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
                Err(Error::invalid_option(format!("the value of {flag} has a zero byte in it"))
                    .with_help("remove the zero byte: no argument of a process can hold one"))
            }
            None => Ok(self.0),
        }
    }
}

#[cfg(test)]
mod tests;
