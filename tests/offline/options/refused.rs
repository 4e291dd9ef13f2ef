//! Options that cannot work: each is refused, and the error names it.

use greenroom::{Error, ErrorKind};
use greenroom_testkit::Delivered;
use serde_json::{Value, json};

use super::{PARENT, UUID, options};

/// Checks that the options are refused, and that the error has these names.
fn refused(given: &Value, named: &[&str]) -> Error {
    let error = options(given).validate().expect_err(&given.to_string());
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    for name in named {
        assert!(error.to_string().contains(&format!("`{name}`")), "{given}: {error}");
    }
    error
}

#[test]
fn what_contradicts_is_refused_by_name() {
    let agent = json!({ "description": "d", "prompt": "p" });
    let table: &[(Value, &[&str])] = &[
        (json!({ "model": "opus", "fallback_model": "opus" }), &["fallback_model", "model"]),
        (json!({ "model": "opus", "fallback_model": "haiku, opus" }), &["fallback_model", "model"]),
        (json!({ "fallback_model": "haiku,,opus" }), &["fallback_model"]),
        (
            json!({ "thinking": { "type": "disabled" }, "max_thinking_tokens": 1 }),
            &["thinking", "max_thinking_tokens"],
        ),
        (json!({ "thinking": { "type": "enabled", "budget_tokens": 0 } }), &["thinking"]),
        (json!({ "max_budget_usd": 0.0 }), &["max_budget_usd"]),
        (json!({ "task_budget": 0 }), &["task_budget"]),
        (json!({ "betas": ["a,b"] }), &["betas"]),
        (
            json!({ "output_format": { "type": "json_schema", "schema": { "type": "array" } } }),
            &["output_format"],
        ),
        (json!({ "output_format": { "type": "json_schema", "schema": true } }), &["output_format"]),
        (json!({ "resume": "a", "continue_conversation": true }), &["resume", "continue_conversation"]),
        (json!({ "fork_session": true }), &["fork_session"]),
        (json!({ "restarts": { "server_retry": 0 } }), &["restarts.server_retry"]),
        (json!({ "resume_session_at": "m" }), &["resume_session_at"]),
        (json!({ "resume": "a", "resume_drops_turn": "p" }), &["resume_drops_turn", "resume_session_at"]),
        (json!({ "resume": "a", "session_id": UUID }), &["session_id", "fork_session"]),
        (json!({ "session_id": "one" }), &["session_id"]),
        (json!({ "conversation": "customer-42" }), &["conversation", "greenroom::conversation_id"]),
        (json!({ "conversation": UUID.replace('-', "") }), &["conversation"]),
        (json!({ "conversation": UUID, "resume": "a" }), &["conversation", "resume"]),
        (json!({ "conversation": UUID, "session_id": UUID }), &["conversation", "session_id"]),
        (json!({ "conversation": UUID, "fork_session": true }), &["conversation", "fork_session"]),
        (
            json!({ "conversation": UUID, "continue_conversation": true }),
            &["conversation", "continue_conversation"],
        ),
        (json!({ "conversation": UUID, "persist_session": false }), &["conversation", "persist_session"]),
        (json!({ "conversation": UUID, "extra_args": { "resume": "a" } }), &["conversation", "extra_args"]),
        (
            json!({ "permission_mode": "bypassPermissions" }),
            &["permission_mode", "allow_dangerously_skip_permissions"],
        ),
        (json!({ "permission_prompt_tool_name": "stdio" }), &["permission_prompt_tool_name"]),
        (json!({ "permission_prompt_tool_name": " " }), &["permission_prompt_tool_name"]),
        (json!({ "allowed_tools": ["Read,Edit"] }), &["allowed_tools"]),
        (json!({ "disallowed_tools": [" "] }), &["disallowed_tools"]),
        (json!({ "tools": ["Read,Edit"] }), &["tools"]),
        (json!({ "tool_aliases": { "Bash": "" } }), &["tool_aliases"]),
        (json!({ "skills": ["a)"] }), &["skills"]),
        (json!({ "setting_sources": ["user,project"] }), &["setting_sources"]),
        (json!({ "settings": 3 }), &["settings"]),
        (json!({ "agents": { "": agent } }), &["agents"]),
        (json!({ "agents": { "a": { "description": "", "prompt": "p" } } }), &["agents"]),
        (
            json!({ "agents": { "a": { "description": "d", "prompt": "p", "mcpServers": [{ "x": { "command": "" } }] } } }),
            &["agents.a.mcpServers"],
        ),
        (json!({ "mcp_servers": { "": { "command": "x" } } }), &["mcp_servers"]),
        (json!({ "mcp_servers": { "x": { "type": "http", "url": "" } } }), &["mcp_servers"]),
        (json!({ "mcp_servers": { "x": { "command": "x", "timeout": 999 } } }), &["mcp_servers"]),
        (json!({ "mcp_servers": { "x": { "type": "sdk", "name": "x" } } }), &["mcp_servers"]),
        (json!({ "system_prompt": { "blocks": [] } }), &["system_prompt"]),
        (
            json!({ "system_prompt": { "blocks": ["__SYSTEM_PROMPT_DYNAMIC_BOUNDARY__"] } }),
            &["system_prompt"],
        ),
        (json!({ "system_prompt": { "file": "" } }), &["system_prompt"]),
        (json!({ "client_app": "a\nb" }), &["client_app"]),
        (json!({ "trace_context": { "traceparent": "00-1-2-3" } }), &["trace_context", "traceparent"]),
        (json!({ "project_config_root": "main" }), &["project_config_root"]),
        (json!({ "additional_directories": [""] }), &["additional_directories"]),
        (json!({ "runtime": "" }), &["runtime"]),
        (json!({ "plugins": [{ "type": "local", "path": "" }] }), &["plugins"]),
        (json!({ "extra_args": { "--bare": null } }), &["extra_args"]),
        (json!({ "extra_args": { "permission-prompt-tool": null } }), &["extra_args"]),
        (json!({ "extra_args": { "output-format": null } }), &["extra_args"]),
        (json!({ "extra_args": { "input-format": null } }), &["extra_args"]),
        (json!({ "extra_args": { "initialize-fields": null } }), &["extra_args"]),
        (json!({ "extra_args": { "await-initialize": null } }), &["extra_args"]),
        (json!({ "extra_args": { "print": null } }), &["extra_args"]),
        (json!({ "extra_args": { "verbose": null } }), &["extra_args"]),
        (json!({ "extra_args": { "session-mirror": null } }), &["extra_args"]),
        (json!({ "model": "" }), &["model"]),
        (json!({ "agent": "" }), &["agent"]),
        (json!({ "resume": " " }), &["resume"]),
        (json!({ "resume": "a", "resume_session_at": "" }), &["resume_session_at"]),
        (json!({ "resume": "a", "resume_session_at": "b", "resume_drops_turn": "" }), &["resume_drops_turn"]),
        (json!({ "permission_mode": "" }), &["permission_mode"]),
        (json!({ "max_turns": 0 }), &["max_turns"]),
        (json!({ "env": { "A=B": "c" } }), &["env"]),
        (json!({ "limits": { "calls_in_flight": 0 } }), &["limits.calls_in_flight"]),
        (json!({ "limits": { "outbound_bytes": 0 } }), &["limits.outbound_bytes"]),
    ];
    for (given, named) in table {
        let error = refused(given, named);
        assert_eq!(Delivered::of(options(given)).unwrap_err().to_string(), error.to_string());
    }
}

#[test]
fn a_zero_byte_is_refused_wherever_it_is_without_repeating_the_value() {
    let table = [
        ("model", json!("se\0cret")),
        ("env", json!({ "A": "se\0cret" })),
        ("extra_args", json!({ "se\0cret": null })),
        ("additional_directories", json!(["/se\0cret"])),
        ("mcp_servers", json!({ "x": { "command": "se\0cret" } })),
        ("settings", json!({ "env": { "A": "se\0cret" } })),
    ];
    for (name, value) in table {
        let error = options(&json!({ name: value })).validate().unwrap_err();
        assert!(error.to_string().starts_with(&format!("option `{name}` has a zero byte")), "{error}");
        assert!(!error.to_string().contains("cret"), "{error}");
    }
}

#[test]
fn a_skill_name_that_would_change_a_rule_is_refused() {
    let bad = [
        "",
        " pdf",
        "pdf ",
        "a)b",
        "a(b",
        "a,b",
        "a\nb",
        "\u{feff}a",
        "*",
        "a:*",
        "a *",
        "/a",
        "a\\\\b",
        "a\\",
    ];
    for name in bad {
        refused(&json!({ "skills": [name] }), &["skills"]);
    }
    for good in [json!(["pdf", "plugin:pdf", "two words", "a\\b", "änderung"]), json!("all")] {
        options(&json!({ "skills": good })).validate().unwrap();
    }
}

#[test]
fn an_entry_that_is_not_exactly_one_rule_is_refused() {
    for bad in ["", "  ", "Read,Edit", "Read Edit", "Bash(ls", "Bash)", "Bash(ls) Edit"] {
        refused(&json!({ "allowed_tools": [bad] }), &["allowed_tools"]);
    }
    for good in ["Read", "mcp__calc__*", "Bash(git log *)", "Bash(echo a,b)", "Bash(echo (a))"] {
        options(&json!({ "allowed_tools": [good] })).validate().unwrap();
    }
}

#[test]
fn a_traceparent_is_validated_as_w3c_trace_context() {
    for good in [PARENT, "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-09-of-tomorrow"] {
        options(&json!({ "trace_context": { "traceparent": good } })).validate().unwrap();
    }
    for bad in [
        "",
        "00",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-a\nb",
    ] {
        refused(&json!({ "trace_context": { "traceparent": bad } }), &["trace_context", "traceparent"]);
    }
}

#[test]
fn a_tracestate_has_at_most_32_different_members() {
    let traced = |state: &str| json!({ "trace_context": { "traceparent": PARENT, "tracestate": state } });
    for good in ["a=1", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "t1@sys=a b , ,9=!", &"x".repeat(256)] {
        let good = if good.contains('=') { good.to_owned() } else { format!("a={good}") };
        options(&traced(&good)).validate().unwrap();
    }
    let many: Vec<String> = (0..33).map(|n| format!("k{n}=v")).collect();
    for bad in
        ["", " ", "a", "=1", "a=", "A=1", "@a=1", "a=1,a=2", "a=b=c", "a=\u{e9}", "a=1\n", &many.join(",")]
    {
        refused(&traced(bad), &["tracestate"]);
    }
}
