//! Validates options before a process starts: values that the CLI would misread, and options that exclude each other.

use serde_json::Value;

use super::check::{refuse, refuse_first};
use super::cli::permission::check_rules;
use super::cli::{agent, mcp};
use super::{BuiltInTools, Options, PermissionMode, Plugin, SystemPrompt, TraceContext, merged};
use crate::error::Result;

/// Flags that choose the conversation.
pub(crate) const CHOOSES_CONVERSATION: [&str; 7] =
    ["continue", "fork-session", "from-pr", "resume", "resume-drops-turn", "resume-session-at", "session-id"];

/// Flags in `extra_args` that let the CLI skip permissions.
const SKIP_PERMISSIONS: [&str; 2] = ["allow-dangerously-skip-permissions", "dangerously-skip-permissions"];

/// Flags that only the library may write, each with what to use instead. With another value, library and CLI would
/// misunderstand each other, or no handler would be asked.
const OWN_FLAGS: [(&str, &str); 10] = [
    ("await-initialize", "see option `delivery`"),
    ("initialize-fields", "see option `delivery`"),
    ("input-format", "leave it out"),
    ("managed-settings-in-initialize", "see option `delivery`"),
    ("output-format", "leave it out"),
    ("permission-prompt-tool", "use `SessionBuilder::can_use_tool` or option `permission_prompt_tool_name`"),
    ("print", "leave it out"),
    ("replay-user-messages", "use option `replay_user_messages`"),
    ("session-mirror", "give a store to the `SessionBuilder`"),
    ("verbose", "leave it out"),
];

/// The name of this host among the tools that decide on permissions.
const THIS_HOST: &str = "stdio";

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

impl Options {
    /// Finds values that cannot work and options that exclude each other. A session does this before it starts a
    /// process.
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
        self.trace_context.as_ref().map_or(Ok(()), TraceContext::validate)?;
        self.restarts.validate()?;
        self.limits.validate()
    }

    /// No argument and no variable of a process can hold a zero byte.
    fn validate_zero_bytes(&self) -> Result<()> {
        // Fails for a path that is not UTF-8; such a path is refused later, where it has to be text.
        let Ok(Value::Object(all)) = serde_json::to_value(self) else { return Ok(()) };
        match all.iter().find(|(_, value)| has_zero_byte(value)) {
            Some((option, _)) => refuse(
                format!("option `{option}` has a zero byte in it"),
                "remove it: no argument and no variable of a process can hold one",
            ),
            None => Ok(()),
        }
    }

    /// An empty value reaches the CLI as a value, which differs from no value.
    fn validate_empty(&self) -> Result<()> {
        let names = [
            ("model", self.model.as_deref()),
            ("agent", self.agent.as_deref()),
            ("resume", self.resume.as_deref()),
            ("resume_session_at", self.resume_session_at.as_deref()),
            ("resume_drops_turn", self.resume_drops_turn.as_deref()),
            ("permission_mode", self.permission_mode.as_ref().map(PermissionMode::as_str)),
            ("permission_prompt_tool_name", self.permission_prompt_tool_name.as_deref()),
        ];
        match names.into_iter().find(|(_, name)| name.is_some_and(is_blank)) {
            Some((option, _)) => {
                refuse(format!("option `{option}` is empty"), "give it a value, or leave it out")
            }
            None => Ok(()),
        }
    }

    fn validate_process(&self) -> Result<()> {
        for name in self.extra_args.keys() {
            if name.is_empty() || name.starts_with('-') || name.contains(['=', ' ']) {
                let text = format!("option `extra_args`: '{name}' is not the name of a flag");
                return refuse(text, "give the name without dashes, '=' and spaces");
            }
            if let Some((_, help)) = OWN_FLAGS.iter().find(|(own, _)| own == name) {
                let text = format!("option `extra_args`: the library writes the flag '{name}' itself");
                return refuse(text, help);
            }
        }
        if let Some(name) = self.env.keys().find(|name| name.is_empty() || name.contains('=')) {
            let text = format!("option `env`: '{name}' is not the name of a variable");
            return refuse(text, "give a name without '='");
        }
        let bad_app = |app: &String| is_blank(app) || app.contains(char::is_control);
        refuse_first([
            (
                self.client_app.as_ref().is_some_and(bad_app),
                "option `client_app` is empty or has a control character",
                "give it like `my-app/1.0`, or leave it out",
            ),
            (
                self.project_config_root.as_ref().is_some_and(|root| !root.is_absolute()),
                "option `project_config_root` is not an absolute path",
                "give the whole path",
            ),
        ])?;
        let paths = [
            ("cli_path", self.cli_path.as_slice()),
            ("runtime", self.runtime.as_slice()),
            ("cwd", self.cwd.as_slice()),
            ("debug_file", self.debug_file.as_slice()),
            ("additional_directories", &self.additional_directories),
            ("mcp_config_files", &self.mcp_config_files),
        ];
        let plugins = self.plugins.iter().map(|Plugin::Local { path, .. }| ("plugins", path));
        let paths = paths.into_iter().flat_map(|(name, paths)| paths.iter().map(move |path| (name, path)));
        match paths.chain(plugins).find(|(_, path)| path.as_os_str().is_empty()) {
            Some((name, _)) => {
                refuse(format!("option `{name}` has an empty path"), "give a path, or leave it out")
            }
            None => Ok(()),
        }
    }

    fn validate_model(&self) -> Result<()> {
        if let Some(fallback) = &self.fallback_model {
            let mut models = fallback.split(',').map(str::trim);
            if models.clone().any(str::is_empty) {
                let help = "give a model, or several separated by commas";
                return refuse("option `fallback_model` has an empty name", help);
            }
            if models.any(|name| self.model.as_deref().map(str::trim) == Some(name)) {
                return refuse("option `fallback_model` contains `model`", "give another model, or none");
            }
        }
        let budget = self.max_budget_usd;
        refuse_first([
            (
                self.thinking.is_some() && self.max_thinking_tokens.is_some(),
                "options `thinking` and `max_thinking_tokens` exclude each other",
                "give `thinking` a budget instead",
            ),
            (self.max_turns == Some(0), "option `max_turns` is 0", "leave it out for no limit"),
            (
                budget.is_some_and(|budget| !(budget > 0.0 && budget.is_finite())),
                "option `max_budget_usd` is not a positive number",
                "leave it out for no limit",
            ),
            (self.task_budget == Some(0), "option `task_budget` is 0", "leave it out for no budget"),
        ])?;
        self.thinking.as_ref().map_or(Ok(()), |thinking| thinking.validate())?;
        if let Some(beta) = self.betas.iter().find(|beta| beta.is_empty() || beta.contains([',', ' '])) {
            let text = format!("option `betas`: '{beta}' is not one name");
            return refuse(text, "give each name as one entry");
        }
        self.output_format.as_ref().map_or(Ok(()), |format| format.validate())
    }

    fn validate_conversation(&self) -> Result<()> {
        let continues = self.resume.is_some() || self.continue_conversation;
        if self.conversation.is_some() {
            self.validate_named()?;
        }
        refuse_first([
            (
                self.resume.is_some() && self.continue_conversation,
                "options `resume` and `continue_conversation` exclude each other",
                "give one of them",
            ),
            (
                self.fork_session && !continues,
                "option `fork_session` needs `resume` or `continue_conversation`",
                "give one of them",
            ),
            (
                self.resume_session_at.is_some() && !continues,
                "option `resume_session_at` needs `resume` or `continue_conversation`",
                "give one of them",
            ),
            (
                self.resume_drops_turn.is_some() && self.resume_session_at.is_none(),
                "option `resume_drops_turn` needs `resume_session_at`",
                "give the message where the turn is cut off",
            ),
            (
                self.session_id.is_some() && continues && !self.fork_session,
                "option `session_id` works with a resumed session only if that is forked",
                "set `fork_session`, or leave `session_id` out",
            ),
        ])?;
        match self.session_id.as_ref().filter(|id| uuid::Uuid::parse_str(id).is_err()) {
            Some(id) => refuse(
                format!("option `session_id` is not a UUID: '{id}'"),
                "give a UUID, or leave it out to have the CLI make one",
            ),
            None => Ok(()),
        }
    }

    /// Option `conversation` names the conversation, so nothing else may.
    fn validate_named(&self) -> Result<()> {
        let id = self.conversation.as_deref().unwrap_or_default();
        // The form of the CLI's file names. Other forms of UUIDs would name other files.
        if id.len() != 36 || uuid::Uuid::try_parse(id).is_err() {
            return refuse(
                format!("option `conversation` is not a UUID: '{id}'"),
                "make one from your key with `greenroom::conversation_id`",
            );
        }
        let given = [
            ("resume", self.resume.is_some()),
            ("continue_conversation", self.continue_conversation),
            ("fork_session", self.fork_session),
            ("session_id", self.session_id.is_some()),
        ];
        if let Some((other, _)) = given.into_iter().find(|(_, given)| *given) {
            let text = format!("options `conversation` and `{other}` exclude each other");
            return refuse(text, "leave the other one out: `conversation` resumes or starts by itself");
        }
        if let Some(flag) = CHOOSES_CONVERSATION.iter().find(|flag| self.extra_args.contains_key(**flag)) {
            let text = format!("options `conversation` and `extra_args` with '{flag}' exclude each other");
            return refuse(text, "leave the flag out: `conversation` resumes or starts by itself");
        }
        if self.persist_session == Some(false) {
            let text =
                "option `conversation` needs the CLI's transcript, and option `persist_session` is false";
            return refuse(text, "leave one of the two out");
        }
        Ok(())
    }

    fn validate_tools(&self) -> Result<()> {
        let skips = self.allow_dangerously_skip_permissions
            || SKIP_PERMISSIONS.iter().any(|flag| self.extra_args.contains_key(*flag));
        let empty_alias = |(alias, tool): (&String, &String)| is_blank(alias) || is_blank(tool);
        refuse_first([
            (
                self.permission_mode == Some(PermissionMode::BypassPermissions) && !skips,
                "option `permission_mode` is `bypassPermissions` without `allow_dangerously_skip_permissions`",
                "set that too, if every tool should run without asking",
            ),
            (
                self.permission_prompt_tool_name.as_deref() == Some(THIS_HOST),
                "option `permission_prompt_tool_name` is `stdio`, which stands for a handler of this host",
                "give the handler to `SessionBuilder::can_use_tool`",
            ),
            (
                self.tool_aliases.iter().any(empty_alias),
                "option `tool_aliases` has an empty name",
                "map the name of a tool to the name of another tool",
            ),
        ])?;
        check_rules("allowed_tools", &self.allowed_tools)?;
        check_rules("disallowed_tools", &self.disallowed_tools)?;
        let not_one_name =
            |name: &str| name.is_empty() || name.contains([',', '(']) || name.contains(char::is_whitespace);
        if let Some(BuiltInTools::Only(names)) = &self.tools
            && let Some(name) = names.iter().find(|name| not_one_name(name))
        {
            let text = format!("option `tools`: '{name}' is not one name");
            return refuse(text, "give each name as one entry");
        }
        self.skills.as_ref().map_or(Ok(()), |skills| skills.validate())?;
        let mut words = self.setting_sources.iter().flatten().map(|source| source.as_str());
        match words.find(|word| word.is_empty() || word.contains([',', ' '])) {
            Some(word) => refuse(
                format!("option `setting_sources`: '{word}' is not one word"),
                "give each source as one entry",
            ),
            None => Ok(()),
        }
    }

    fn validate_prompt(&self) -> Result<()> {
        match &self.system_prompt {
            SystemPrompt::Blocks(blocks) => {
                let boundaries =
                    blocks.iter().filter(|block| *block == SystemPrompt::DYNAMIC_BOUNDARY).count();
                refuse_first([
                    (boundaries > 1, "option `system_prompt` has more than one boundary", "keep one of them"),
                    (
                        blocks.len() == boundaries,
                        "option `system_prompt` has no blocks",
                        "use `SystemPrompt::Empty` for no system prompt",
                    ),
                ])
            }
            SystemPrompt::File(path) if path.as_os_str().is_empty() => {
                refuse("option `system_prompt` has an empty path", "give the path of a file")
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
