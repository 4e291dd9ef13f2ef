//! Contradictions in options, found before a process starts.

use serde_json::Value;

use super::permission::check_rules;
use super::{BuiltInTools, Options, PermissionMode, Plugin, SystemPrompt, agent, mcp, merged};
use crate::error::{Error, Result};

/// Flags that let the CLI skip permissions, when they are given by hand.
const SKIP_PERMISSIONS: [&str; 2] = ["allow-dangerously-skip-permissions", "dangerously-skip-permissions"];

/// Flags that are the library's own: with another value the two would not understand each other, or nobody would ask the
/// handler. With what says the same instead.
const OWN_FLAGS: [(&str, &str); 10] = [
    ("await-initialize", "see option `delivery`"),
    ("initialize-fields", "see option `delivery`"),
    ("input-format", "leave it out"),
    ("managed-settings-in-initialize", "see option `delivery`"),
    ("output-format", "leave it out"),
    ("permission-prompt-tool", "use `SessionBuilder::can_use_tool` or option `permission_prompt_tool_name`"),
    ("print", "leave it out"),
    ("replay-user-messages", "leave it out"),
    ("session-mirror", "give a store to the `SessionBuilder`"),
    ("verbose", "leave it out"),
];

/// What stands for this host among the tools that can decide on permissions.
const THIS_HOST: &str = "stdio";

/// A contradiction, and what to do about it.
fn refuse(text: impl Into<String>, help: &str) -> Result<()> {
    Err(Error::invalid_option(text).with_help(help))
}

/// The name of something in a map.
pub(super) fn check_name(option: &str, name: &str) -> Result<()> {
    if name.trim().is_empty() {
        return Err(Error::invalid_option(format!("option `{option}` has an entry without a name")));
    }
    Ok(())
}

impl Options {
    /// Finds contradictions, before any process starts.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption), naming the option.
    pub fn validate(&self) -> Result<()> {
        self.validate_zero_bytes()?;
        self.validate_empty()?;
        self.validate_process()?;
        self.validate_model()?;
        self.validate_conversation()?;
        self.validate_tools()?;
        self.validate_prompt()?;
        agent::validate(&self.agents)?;
        mcp::validate(&self.mcp_servers, "mcp_servers")?;
        merged(self.settings.as_ref(), self.sandbox.as_ref())?;
        self.store.validate()?;
        self.limits.validate()
    }

    /// No argument and no variable can hold one, and nothing else needs one.
    fn validate_zero_bytes(&self) -> Result<()> {
        // A path that is no text cannot be looked at here; where it has to be text, that is said later.
        let Ok(Value::Object(all)) = serde_json::to_value(self) else { return Ok(()) };
        match all.iter().find(|(_, value)| has_zero_byte(value)) {
            Some((option, _)) => refuse(
                format!("option `{option}` has a zero byte in it"),
                "no argument and no variable of a process can hold one",
            ),
            None => Ok(()),
        }
    }

    /// An empty value would go to the CLI as it is, and mean something else than none.
    fn validate_empty(&self) -> Result<()> {
        let names = [
            ("model", &self.model),
            ("agent", &self.agent),
            ("resume", &self.resume),
            ("resume_session_at", &self.resume_session_at),
            ("resume_drops_turn", &self.resume_drops_turn),
        ];
        let empty = |name: &Option<String>| name.as_ref().is_some_and(|name| name.trim().is_empty());
        if let Some((option, _)) = names.into_iter().find(|(_, name)| empty(name)) {
            return refuse(format!("option `{option}` is empty"), "give it a value, or leave it out");
        }
        if self.permission_mode.as_ref().is_some_and(|mode| mode.as_str().trim().is_empty()) {
            return refuse("option `permission_mode` is empty", "name a mode, or leave it out");
        }
        if self.max_turns == Some(0) {
            return refuse("option `max_turns` must be at least 1", "leave it out for no limit");
        }
        Ok(())
    }

    fn validate_process(&self) -> Result<()> {
        for name in self.extra_args.keys() {
            if name.is_empty() || name.starts_with('-') || name.contains(['=', ' ']) {
                let text = format!("option `extra_args` has the name '{name}'");
                return refuse(text, "give it without dashes, '=' and spaces");
            }
            if let Some((_, help)) = OWN_FLAGS.iter().find(|(own, _)| own == name) {
                let text = format!("option `extra_args` has '{name}', a flag that the library writes itself");
                return refuse(text, help);
            }
        }
        if let Some(name) = self.env.keys().find(|name| name.is_empty() || name.contains('=')) {
            return refuse(
                format!("option `env` has an impossible variable '{name}'"),
                "name it without '='",
            );
        }
        if self.client_app.as_ref().is_some_and(|app| app.trim().is_empty() || app.contains(char::is_control))
        {
            return refuse("option `client_app` is no name", "give it like `my-app/1.0`, or leave it out");
        }
        if self.project_config_root.as_ref().is_some_and(|root| !root.is_absolute()) {
            return refuse("option `project_config_root` is not an absolute path", "give the whole path");
        }
        let empty = [
            ("cli_path", self.cli_path.as_slice()),
            ("runtime", self.runtime.as_slice()),
            ("cwd", self.cwd.as_slice()),
            ("debug_file", self.debug_file.as_slice()),
            ("additional_directories", &self.additional_directories),
            ("mcp_config_files", &self.mcp_config_files),
        ];
        let plugins = self.plugins.iter().map(|Plugin::Local { path, .. }| ("plugins", path));
        let paths = empty.into_iter().flat_map(|(name, paths)| paths.iter().map(move |path| (name, path)));
        if let Some((name, _)) = paths.chain(plugins).find(|(_, path)| path.as_os_str().is_empty()) {
            return refuse(format!("option `{name}` has an empty path"), "name a path, or leave it out");
        }
        Ok(())
    }

    fn validate_model(&self) -> Result<()> {
        if let Some(fallback) = &self.fallback_model {
            let mut models = fallback.split(',').map(str::trim);
            if models.clone().any(str::is_empty) {
                return refuse(
                    "option `fallback_model` has an empty name",
                    "name a model, or several with commas",
                );
            }
            if models.any(|name| self.model.as_deref().map(str::trim) == Some(name)) {
                return refuse(
                    "option `fallback_model` is the same as `model`, or has it in its list",
                    "name another model, or none",
                );
            }
        }
        if let Some(thinking) = &self.thinking {
            thinking.validate()?;
            if self.max_thinking_tokens.is_some() {
                return refuse(
                    "options `thinking` and `max_thinking_tokens` exclude each other",
                    "give `thinking` a budget instead",
                );
            }
        }
        if self.max_budget_usd.is_some_and(|budget| !(budget > 0.0 && budget.is_finite())) {
            return refuse("option `max_budget_usd` must be a positive number", "leave it out for no budget");
        }
        if self.task_budget == Some(0) {
            return refuse("option `task_budget` must be at least 1", "leave it out for no budget");
        }
        for beta in &self.betas {
            if beta.is_empty() || beta.contains([',', ' ']) {
                return refuse(
                    format!("option `betas` has no single name: '{beta}'"),
                    "give each as one entry",
                );
            }
        }
        match &self.output_format {
            Some(format) => format.validate(),
            None => Ok(()),
        }
    }

    fn validate_conversation(&self) -> Result<()> {
        let continues = self.resume.is_some() || self.continue_conversation;
        if self.resume.is_some() && self.continue_conversation {
            return refuse(
                "options `resume` and `continue_conversation` exclude each other",
                "give one of them",
            );
        }
        if self.fork_session && !continues {
            return refuse(
                "option `fork_session` needs `resume` or `continue_conversation`",
                "give one of them",
            );
        }
        if self.resume_session_at.is_some() && !continues {
            return refuse(
                "option `resume_session_at` needs `resume` or `continue_conversation`",
                "give one of them",
            );
        }
        if self.resume_drops_turn.is_some() && self.resume_session_at.is_none() {
            return refuse(
                "option `resume_drops_turn` needs `resume_session_at`",
                "say where the turn is cut off",
            );
        }
        if self.session_id.is_some() && continues && !self.fork_session {
            return refuse(
                "option `session_id` goes with a resumed session only when it is forked",
                "set `fork_session`, or leave `session_id` out",
            );
        }
        if let Some(id) = &self.session_id
            && uuid::Uuid::parse_str(id).is_err()
        {
            return refuse(
                format!("option `session_id` is not a UUID: '{id}'"),
                "leave it out to have one made",
            );
        }
        Ok(())
    }

    fn validate_tools(&self) -> Result<()> {
        let skips = self.allow_dangerously_skip_permissions
            || SKIP_PERMISSIONS.iter().any(|flag| self.extra_args.contains_key(*flag));
        if self.permission_mode == Some(PermissionMode::BypassPermissions) && !skips {
            return refuse(
                "option `permission_mode` is `bypassPermissions` without `allow_dangerously_skip_permissions`",
                "set that too, if every tool is to run without asking",
            );
        }
        match self.permission_prompt_tool_name.as_deref() {
            Some(THIS_HOST) => {
                return refuse(
                    "option `permission_prompt_tool_name` is `stdio`, which stands for a handler of this host",
                    "give the handler to `SessionBuilder::can_use_tool`",
                );
            }
            Some(name) if name.trim().is_empty() => {
                return refuse(
                    "option `permission_prompt_tool_name` is empty",
                    "name a tool, or leave it out",
                );
            }
            _ => {}
        }
        check_rules("allowed_tools", &self.allowed_tools)?;
        check_rules("disallowed_tools", &self.disallowed_tools)?;
        if let Some(BuiltInTools::Only(names)) = &self.tools {
            for name in names {
                if name.is_empty() || name.contains([',', '(']) || name.contains(char::is_whitespace) {
                    return refuse(
                        format!("option `tools` has no single name: '{name}'"),
                        "give each as one entry",
                    );
                }
            }
        }
        if let Some(skills) = &self.skills {
            skills.validate()?;
        }
        for (alias, tool) in &self.tool_aliases {
            if alias.trim().is_empty() || tool.trim().is_empty() {
                return refuse(
                    "option `tool_aliases` has an empty name",
                    "map the name of a tool to another",
                );
            }
        }
        for source in self.setting_sources.iter().flatten() {
            let word = source.as_str();
            if word.is_empty() || word.contains([',', ' ']) {
                return refuse(
                    format!("option `setting_sources` has no single word: '{word}'"),
                    "give each as one entry",
                );
            }
        }
        Ok(())
    }

    fn validate_prompt(&self) -> Result<()> {
        match &self.system_prompt {
            SystemPrompt::Blocks(blocks) => {
                let boundaries =
                    blocks.iter().filter(|block| *block == SystemPrompt::DYNAMIC_BOUNDARY).count();
                if boundaries > 1 {
                    return refuse("option `system_prompt` has more than one boundary", "keep one of them");
                }
                if blocks.len() == boundaries {
                    return refuse(
                        "option `system_prompt` has no blocks",
                        "use `SystemPrompt::Empty` for no system prompt",
                    );
                }
                Ok(())
            }
            SystemPrompt::File(path) if path.as_os_str().is_empty() => {
                refuse("option `system_prompt` has an empty path", "name the file")
            }
            _ => Ok(()),
        }
    }
}

fn has_zero_byte(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_zero_byte),
        Value::Object(fields) => {
            fields.iter().any(|(name, value)| name.contains('\0') || has_zero_byte(value))
        }
        _ => false,
    }
}
