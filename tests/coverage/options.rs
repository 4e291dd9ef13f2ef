//! Every option and every field of `initialize` reaches the CLI.

use std::collections::BTreeSet;
use std::sync::Arc;

use greenroom::callback::DialogAnswer;
use greenroom::hook::HookOutput;
use greenroom::store::MemoryStore;
use greenroom::{Hook, Options, PermissionDecision, Session, SessionBuilder, ToolServer};
use greenroom_testkit::Delivered;
use serde_json::{Map, Value, json};

use crate::common::{SOON, start_by_hand, stop, within};
use crate::table::mapped;

const UUID: &str = "9f0bd1c4-3a5e-4c0e-8f6f-0d4a8f6a7b11";

/// Options that neither SDK has.
const OWN: [&str; 13] = [
    "allow_old_cli",
    "containment",
    "conversation",
    "limits",
    "lock_dir",
    "restarts",
    "resume_ladder",
    // Its fields have rows of their own.
    "store",
    "timeouts",
    "trace",
    "trace_payloads",
    "turn_recovery",
    "unread_partials",
];

/// A value for an option, with what it cannot be without.
fn sample(option: &str) -> Option<Value> {
    Some(match option {
        "additional_directories" => json!({ "additional_directories": ["/d"] }),
        "agent" => json!({ "agent": "scout" }),
        "agents" => json!({ "agents": { "scout": { "description": "Looks ahead", "prompt": "Look." } } }),
        "agent_progress_summaries" => json!({ "agent_progress_summaries": true }),
        "allow_dangerously_skip_permissions" => json!({ "allow_dangerously_skip_permissions": true }),
        "allowed_tools" => json!({ "allowed_tools": ["Read"] }),
        "betas" => json!({ "betas": ["context-1m-2025-08-07"] }),
        "client_app" => json!({ "client_app": "app/1.0" }),
        "continue_conversation" => json!({ "continue_conversation": true }),
        "debug" => json!({ "debug": true }),
        "debug_file" => json!({ "debug_file": "/log" }),
        "delivery" => json!({ "plugins": [{ "type": "local", "path": "/p" }] }),
        "disallowed_tools" => json!({ "disallowed_tools": ["Bash"] }),
        "effort" => json!({ "effort": "low" }),
        "enable_file_checkpointing" => json!({ "enable_file_checkpointing": true }),
        "exclude_dynamic_sections" => {
            json!({ "exclude_dynamic_sections": true, "system_prompt": "claude_code" })
        }
        "extra_args" => json!({ "extra_args": { "of-tomorrow": null } }),
        "fallback_model" => json!({ "fallback_model": "haiku" }),
        "fork_session" => json!({ "fork_session": true, "resume": UUID }),
        "forward_subagent_text" => json!({ "forward_subagent_text": true }),
        "trace_context" => json!({ "trace_context": { "traceparent":
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "a=1" } }),
        "replay_user_messages" => json!({ "replay_user_messages": true }),
        "include_hook_events" => json!({ "include_hook_events": true }),
        "include_partial_messages" => json!({ "include_partial_messages": true }),
        "managed_settings" => json!({ "managed_settings": { "model": "haiku" } }),
        "max_budget_usd" => json!({ "max_budget_usd": 0.5 }),
        "max_thinking_tokens" => json!({ "max_thinking_tokens": 1024 }),
        "max_turns" => json!({ "max_turns": 2 }),
        "mcp_servers" => json!({ "mcp_servers": { "desk": { "type": "stdio", "command": "/desk" } } }),
        "model" => json!({ "model": "haiku" }),
        "output_format" => {
            json!({ "output_format": { "type": "json_schema", "schema": { "type": "object" } } })
        }
        "per_task_stop_affordance" => json!({ "per_task_stop_affordance": true }),
        "permission_mode" => json!({ "permission_mode": "plan" }),
        "permission_prompt_tool_name" => json!({ "permission_prompt_tool_name": "mcp__desk__ask" }),
        "permission_prompts" => json!({ "permission_prompts": "none" }),
        "persist_session" => json!({ "persist_session": false }),
        "plan_mode_instructions" => json!({ "plan_mode_instructions": "Be brief." }),
        "plugins" => json!({ "plugins": [{ "type": "local", "path": "/p" }] }),
        "project_config_root" => json!({ "project_config_root": "/p" }),
        "prompt_suggestions" => json!({ "prompt_suggestions": true }),
        "question_preview" => json!({ "question_preview": "html" }),
        "resume" => json!({ "resume": UUID }),
        "resume_drops_turn" => {
            json!({ "resume": UUID, "resume_session_at": UUID, "resume_drops_turn": UUID })
        }
        "resume_session_at" => json!({ "resume": UUID, "resume_session_at": UUID }),
        "sandbox" => json!({ "sandbox": { "enabled": true }, "delivery": "arguments" }),
        "session_id" => json!({ "session_id": UUID }),
        "setting_sources" => json!({ "setting_sources": ["user"] }),
        "settings" => json!({ "settings": "/settings.json" }),
        "skills" => json!({ "skills": ["pdf"] }),
        "strict_mcp_config" => json!({ "strict_mcp_config": true }),
        "system_prompt" => json!({ "system_prompt": { "text": "Speak in rhymes." } }),
        "system_prompt_snapshot" => json!({ "system_prompt_snapshot": true }),
        "task_budget" => json!({ "task_budget": 1000 }),
        "thinking" => json!({ "thinking": { "type": "disabled" } }),
        "title" => json!({ "title": "Sums" }),
        "tool_aliases" => json!({ "tool_aliases": { "Shell": "Bash" } }),
        "tools" => json!({ "tools": ["Read"] }),
        _ => return None,
    })
}

/// The defaults, with these options over them.
fn with(given: Value) -> Options {
    serde_json::from_value(given.clone()).unwrap_or_else(|error| panic!("{given}: {error}"))
}

/// A session that has what this path names.
fn session(ours: &str) -> SessionBuilder {
    let builder = Session::builder();
    match ours {
        "SessionBuilder::can_use_tool" => builder.can_use_tool(|_, _| async { PermissionDecision::allow() }),
        "SessionBuilder::hook" => builder.hook(Hook::new("Stop", |_, _| async { HookOutput::pass() })),
        "SessionBuilder::on_dialog" => {
            builder.on_dialog(["refusal_fallback_prompt"], |_, _| async { DialogAnswer::Cancelled })
        }
        "SessionBuilder::session_store" => builder.session_store(Arc::new(MemoryStore::new())),
        "SessionBuilder::mcp_server" | "ToolServer::cli_timeout" => {
            let server: ToolServer = ToolServer::new("desk", "1");
            builder.mcp_server(server.cli_timeout(crate::common::SOON))
        }
        _ => {
            let option = ours.strip_prefix("Options::").unwrap_or_else(|| panic!("no sample for {ours}"));
            with(sample(option).unwrap_or_else(|| panic!("no sample for {ours}"))).into()
        }
    }
}

fn has(delivered: &Delivered, wire: &str) -> bool {
    match (wire.strip_prefix("initialize."), wire.strip_prefix('$'), wire.strip_prefix("--")) {
        (Some(field), _, _) => !delivered.initialize[field].is_null(),
        (_, Some(variable), _) => delivered.env.contains_key(variable),
        (_, _, Some("")) => delivered.has_flag("of-tomorrow"),
        (_, _, Some(flag)) => delivered.has_flag(flag),
        _ => panic!("what is `{wire}`?"),
    }
}

#[test]
fn every_option_is_what_the_table_says_to_the_cli() {
    for row in mapped("option") {
        // `prompts.rs` tests the fields of a prompt.
        let Some(wire) = row.wire.as_ref().filter(|wire| !wire.starts_with("user.")) else { continue };
        let there = row.ours.iter().any(|ours| {
            let delivered =
                Delivered::of(session(ours)).unwrap_or_else(|error| panic!("{}: {error}", row.name()));
            has(&delivered, wire)
        });
        assert!(there, "the CLI is not told: {}", row.name());
    }
}

#[test]
fn every_field_of_initialize_is_there_when_it_is_asked_for() {
    for row in mapped("initialize") {
        let wire = format!("initialize.{}", row.wire.clone().unwrap());
        // The one field that has a form of its own for each kind of prompt.
        let builder = match wire.as_str() {
            "initialize.appendSystemPrompt" => {
                with(json!({ "system_prompt": { "append": "Be brief." } })).into()
            }
            _ => session(&row.ours[0]),
        };
        let delivered = Delivered::of(builder).unwrap();
        assert!(has(&delivered, &wire), "{}: {}", row.name(), delivered.initialize);
    }
}

#[test]
fn every_option_of_the_table_is_a_field() {
    let fields = serde_json::to_value(Options::default()).unwrap();
    let fields: &Map<String, Value> = fields.as_object().unwrap();
    let rows = mapped("option").into_iter().chain(mapped("initialize"));
    let named: BTreeSet<String> = rows.flat_map(|row| row.ours).collect();
    for name in named.iter().filter_map(|ours| ours.strip_prefix("Options::")) {
        assert!(fields.contains_key(name), "there is no Options::{name}");
    }
    for field in fields.keys().filter(|field| !OWN.contains(&field.as_str())) {
        assert!(named.contains(&format!("Options::{field}")), "no row has Options::{field}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_travels_with_each_prompt_is_there() {
    let rows = mapped("option");
    let mut rows = rows.iter().filter(|row| row.wire.as_ref().is_some_and(|wire| wire.starts_with("user.")));
    let (Some(row), None) = (rows.next(), rows.next()) else { panic!("one such row is known") };
    assert_eq!(
        (row.wire.as_deref(), row.ours.join("")),
        (Some("user.client_composed"), "Options::verbatim_prompts".into())
    );
    let (session, mut end, _listener) = start_by_hand(with(json!({ "verbatim_prompts": true })).into()).await;
    let mut turn = session.prompt("@notes.txt").await.unwrap();
    let prompt = within(SOON, end.expect("user")).await;
    assert_eq!(prompt["client_composed"], true, "{prompt}");
    end.finish_turn(&prompt, "As it is.");
    within(SOON, turn.outcome()).await.unwrap();
    stop(session, end).await;
}
