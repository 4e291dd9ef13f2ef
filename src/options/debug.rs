//! `Debug` of the options, with names instead of values that may be secret.

use std::fmt;

use serde_json::Value;

use super::{AgentDefinition, ExternalServer, Options};

/// Names without values.
fn names<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    names.map(String::as_str).collect()
}

/// The `settings` option: the path of a file, or the names of the settings.
struct SettingNames<'a>(&'a Value);

impl fmt::Debug for SettingNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("null"),
            Value::Object(settings) => names(settings.keys()).fmt(f),
            // Text that starts with `{` is JSON, not a path.
            Value::String(path) if !path.trim_start().starts_with('{') => path.fmt(f),
            _ => f.write_str("..."),
        }
    }
}

/// Writes every field, `kept_back` fields by a stand-in. A field that is missing here does not compile.
macro_rules! write_fields {
    ($f:ident, $type:ident, $all:ident, plain: [$($plain:ident,)*], kept_back: [$($name:ident: $shown:expr,)*]) => {{
        let $type { $($plain,)* $($name,)* } = $all;
        $f.debug_struct(stringify!($type))
            $(.field(stringify!($plain), $plain))*
            $(.field(stringify!($name), &$shown))*
            .finish()
    }};
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_fields!(f, Options, self,
            plain: [
                cli_path, allow_old_cli, runtime, runtime_args, cwd, project_config_root, env_policy, user, containment,
                client_app, delivery,
                debug, debug_file, model, fallback_model, thinking, max_thinking_tokens, effort, max_turns,
                max_budget_usd, task_budget, betas, output_format, system_prompt, exclude_dynamic_sections,
                system_prompt_snapshot, plan_mode_instructions, verbatim_prompts, agent, agents, permission_mode,
                allow_dangerously_skip_permissions, permission_prompt_tool_name, permission_prompts, tools,
                tool_aliases, allowed_tools, disallowed_tools, skills, question_preview, additional_directories,
                setting_sources, sandbox, plugins, include_partial_messages, include_hook_events, replay_user_messages,
                forward_subagent_text, prompt_suggestions, agent_progress_summaries, per_task_stop_affordance,
                conversation, resume, resume_session_at, resume_drops_turn, fork_session, continue_conversation, session_id,
                title, persist_session, enable_file_checkpointing, mcp_servers, mcp_config_files, strict_mcp_config,
                turn_recovery, resume_ladder, unread_partials, lock_dir, timeouts, limits,
                restarts, store, trace_context, trace_payloads, trace,
            ],
            kept_back: [
                env: names(env.keys()),
                extra_args: names(extra_args.keys()),
                settings: settings.as_ref().map(SettingNames),
                managed_settings: managed_settings.as_ref().map(|managed| names(managed.keys())),
            ]
        )
    }
}

impl fmt::Debug for AgentDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_fields!(f, AgentDefinition, self,
            plain: [
                description, prompt, tools, disallowed_tools, model, mcp_servers, skills, initial_prompt, max_turns,
                auto_compact_window, background, omit_claude_md, memory, effort, permission_mode, observer,
                observer_message, critical_system_reminder,
            ],
            kept_back: [extra: names(extra.keys()),]
        )
    }
}

/// The scheme and the host of a URL. User info, path and query may hold passwords or keys.
fn address(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "...".to_owned() };
    let (host, path) = rest.split_at(rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or_default();
    let more = if matches!(path, "" | "/") { path } else { "/..." };
    format!("{scheme}://{host}{more}")
}

impl fmt::Debug for ExternalServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_fields!(f, ExternalServer, self,
            plain: [kind, command, tools, timeout, always_load,],
            kept_back: [
                // Any argument may be a password, so only their number is shown.
                args: args.as_ref().map(Vec::len),
                env: names(env.keys()),
                url: url.as_deref().map(address),
                headers: names(headers.keys()),
                extra: names(extra.keys()),
            ]
        )
    }
}
