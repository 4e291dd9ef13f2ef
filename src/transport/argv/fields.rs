//! The options as fields of the `initialize` request.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::spec::Channel;
use crate::Options;
use crate::error::{Error, Result};
use crate::options::{Merged, Skills, SystemPrompt, merged};

/// The fields of `initialize`.
///
/// # Errors
/// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for a value that cannot be written as JSON.
pub(crate) fn fields(options: &Options, private: Channel) -> Result<Map<String, Value>> {
    let mut fields = InitializeFields::default();
    match &options.system_prompt {
        SystemPrompt::Empty => fields.put("systemPrompt", json!([""])),
        SystemPrompt::Text(text) => fields.put("systemPrompt", json!([text])),
        SystemPrompt::Blocks(blocks) => fields.put("systemPrompt", json!(blocks)),
        SystemPrompt::Append(text) => fields.put("appendSystemPrompt", json!(text)),
        SystemPrompt::ClaudeCode | SystemPrompt::File(_) => {}
    }
    fields.flag("excludeDynamicSections", options.exclude_dynamic_sections);
    fields.optional("systemPromptSnapshot", options.system_prompt_snapshot);
    fields.optional("planModeInstructions", options.plan_mode_instructions.as_deref());
    fields.optional("title", options.title.as_deref());
    fields.optional("jsonSchema", options.output_format.as_ref().map(|format| format.schema()));
    if !options.agents.is_empty() {
        fields.put("agents", value("agents", &options.agents)?);
    }
    if !options.tool_aliases.is_empty() {
        fields.put("toolAliases", json!(options.tool_aliases));
    }
    // Without the field, the CLI enables every skill that it finds.
    if let Some(Skills::Only(names)) = &options.skills {
        fields.put("skills", json!(names));
    }
    fields.flag("forwardSubagentText", options.forward_subagent_text);
    fields.flag("promptSuggestions", options.prompt_suggestions);
    fields.flag("agentProgressSummaries", options.agent_progress_summaries);
    fields.flag("perTaskStopAffordance", options.per_task_stop_affordance);
    if private == Channel::Initialize {
        if !options.mcp_servers.is_empty() {
            fields.put("mcpServers", Value::Object(mcp_servers(options)?));
        }
        if !options.plugins.is_empty() {
            fields.put("plugins", value("plugins", &options.plugins)?);
        }
        if let Some(Merged::Inline(inline)) = merged(options.settings.as_ref(), options.sandbox.as_ref())? {
            fields.put("settings", Value::Object(inline));
        }
        fields.optional("managedSettings", options.managed_settings.as_ref());
    }
    Ok(fields.0)
}

/// Whether the options have settings that a CLI takes in `initialize` only with `--await-initialize`.
pub(crate) fn has_private(options: &Options) -> bool {
    let inline = match &options.settings {
        Some(Value::String(text)) => text.trim_start().starts_with('{'),
        settings => settings.is_some() || options.sandbox.is_some(),
    };
    inline
        || !options.mcp_servers.is_empty()
        || !options.plugins.is_empty()
        || options.managed_settings.is_some()
}

/// The external MCP servers as the CLI's JSON.
pub(super) fn mcp_servers(options: &Options) -> Result<Map<String, Value>> {
    options
        .mcp_servers
        .iter()
        .map(|(name, server)| Ok((name.clone(), value("mcp_servers", server)?)))
        .collect()
}

fn value(option: &str, given: &impl Serialize) -> Result<Value> {
    serde_json::to_value(given).map_err(|error| {
        Error::invalid_option(format!("option `{option}` cannot be written as JSON: {error}"))
            .with_help("remove the value that has no JSON form")
            .with_source(error)
    })
}

#[derive(Default)]
struct InitializeFields(Map<String, Value>);

impl InitializeFields {
    fn put(&mut self, name: &str, value: Value) {
        self.0.insert(name.into(), value);
    }

    fn optional(&mut self, name: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.put(name, json!(value));
        }
    }

    /// Left out if false, which is the CLI's default.
    fn flag(&mut self, name: &str, given: bool) {
        if given {
            self.put(name, json!(true));
        }
    }
}
