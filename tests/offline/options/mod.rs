//! Every option: what it comes to when a CLI is started, that it survives JSON, and what is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use greenroom::{ErrorKind, Options, PermissionDecision, Session};
use greenroom_testkit::Delivered;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

mod cli_version;
mod delivery;
mod environment;
mod json;
mod mistakes;
mod refused;

const UUID: &str = "9f0bd1c4-3a5e-4c0e-8f6f-0d4a8f6a7b11";

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A value for an option, and everything that it changes.
struct Row {
    /// Options as JSON: the option of the row, and options that it requires.
    given: Value,
    /// Arguments that the value adds.
    args: &'static [&'static str],
    /// Environment variables that the value adds.
    env: &'static [(&'static str, &'static str)],
    /// Fields of `initialize` that the value adds.
    initialize: Value,
}

fn row(given: Value) -> Row {
    Row { given, args: &[], env: &[], initialize: json!({}) }
}

impl Row {
    fn args(self, args: &'static [&'static str]) -> Self {
        Self { args, ..self }
    }

    fn env(self, env: &'static [(&'static str, &'static str)]) -> Self {
        Self { env, ..self }
    }

    fn initialize(self, initialize: Value) -> Self {
        Self { initialize, ..self }
    }
}

/// Options of the host alone: they do not change how the CLI is started.
const OF_THE_HOST: [&str; 13] = [
    "allow_old_cli",
    "containment",
    "limits",
    "lock_dir",
    "restarts",
    "resume_ladder",
    "store",
    "timeouts",
    "trace",
    "trace_payloads",
    "turn_recovery",
    "unread_partials",
    // Sent with each prompt, not at the start.
    "verbatim_prompts",
];

#[rustfmt::skip]
fn table() -> Vec<Row> {
    let schema = json!({ "type": "object", "properties": { "sum": { "type": "number" } } });
    vec![
        row(json!({ "cli_path": "/opt/claude" })),
        row(json!({ "runtime": "bun", "runtime_args": ["--smol"] })),
        row(json!({ "cwd": "/srv" })).env(&[("PWD", "/srv")]),
        row(json!({ "project_config_root": "/srv/main" })).args(&["--project-config-root=/srv/main"]),
        row(json!({ "env": { "A": "b", "CLAUDE_CODE_ENTRYPOINT": "mine" } })).env(&[("A", "b"), ("CLAUDE_CODE_ENTRYPOINT", "mine")]),
        row(json!({ "env_policy": "clean" })),
        row(json!({ "user": { "uid": 7, "gid": 8 } })),
        row(json!({ "trace_context": { "traceparent": PARENT } })).env(&[("TRACEPARENT", PARENT)]),
        row(json!({ "trace_context": { "traceparent": PARENT, "tracestate": "a=1" } })).env(&[("TRACEPARENT", PARENT), ("TRACESTATE", "a=1")]),
        row(json!({ "client_app": "my-app/1.0" })).env(&[("CLAUDE_AGENT_SDK_CLIENT_APP", "my-app/1.0")]),
        row(json!({ "delivery": "arguments" })),
        row(json!({ "extra_args": { "bare": null, "file": "-x" } })).args(&["--bare", "--file=-x"]),
        row(json!({ "debug": true })).args(&["--debug"]),
        row(json!({ "debug_file": "/tmp/d" })).args(&["--debug-file=/tmp/d"]),

        row(json!({ "model": "opus" })).args(&["--model=opus"]),
        row(json!({ "model": "--dangerously-skip-permissions", "effort": "-e", "resume": "--fork-session", "tools": ["-t"] }))
            .args(&["--model=--dangerously-skip-permissions", "--effort=-e", "--tools=-t", "--resume=--fork-session"]),
        row(json!({ "fallback_model": "haiku,sonnet" })).args(&["--fallback-model=haiku,sonnet"]),
        row(json!({ "thinking": { "type": "adaptive" } })).args(&["--thinking=adaptive"]),
        row(json!({ "thinking": { "type": "adaptive", "display": "summarized" } })).args(&["--thinking=adaptive", "--thinking-display=summarized"]),
        row(json!({ "thinking": { "type": "enabled", "budget_tokens": 900 } })).args(&["--max-thinking-tokens=900"]),
        row(json!({ "thinking": { "type": "enabled", "display": "omitted" } })).args(&["--thinking=adaptive", "--thinking-display=omitted"]),
        row(json!({ "thinking": { "type": "disabled" } })).args(&["--thinking=disabled"]),
        row(json!({ "max_thinking_tokens": 0 })).args(&["--thinking=disabled"]),
        row(json!({ "max_thinking_tokens": 900 })).args(&["--max-thinking-tokens=900"]),
        row(json!({ "effort": "xhigh" })).args(&["--effort=xhigh"]),
        row(json!({ "max_turns": 3 })).args(&["--max-turns=3"]),
        row(json!({ "max_budget_usd": 0.5 })).args(&["--max-budget-usd=0.5"]),
        row(json!({ "task_budget": 50000 })).args(&["--task-budget=50000"]),
        row(json!({ "betas": ["a", "b"] })).args(&["--betas=a", "--betas=b"]),
        row(json!({ "output_format": { "type": "json_schema", "schema": schema } })).initialize(json!({ "jsonSchema": schema })),

        row(json!({ "system_prompt": { "text": "Rhyme." } })).initialize(json!({ "systemPrompt": ["Rhyme."] })),
        row(json!({ "system_prompt": { "blocks": ["a", "__SYSTEM_PROMPT_DYNAMIC_BOUNDARY__", "b"] } }))
            .initialize(json!({ "systemPrompt": ["a", "__SYSTEM_PROMPT_DYNAMIC_BOUNDARY__", "b"] })),
        row(json!({ "system_prompt": "claude_code" })).initialize(json!({ "systemPrompt": null })),
        row(json!({ "system_prompt": { "append": "Short." } })).initialize(json!({ "systemPrompt": null, "appendSystemPrompt": "Short." })),
        row(json!({ "system_prompt": { "file": "/srv/prompt" } })).args(&["--system-prompt-file=/srv/prompt"]).initialize(json!({ "systemPrompt": null })),
        row(json!({ "exclude_dynamic_sections": true })).initialize(json!({ "excludeDynamicSections": true })),
        row(json!({ "system_prompt_snapshot": false })).initialize(json!({ "systemPromptSnapshot": false })),
        row(json!({ "plan_mode_instructions": "Plan well." })).initialize(json!({ "planModeInstructions": "Plan well." })),

        row(json!({ "agent": "reviewer" })).args(&["--agent=reviewer"]),
        row(json!({ "agents": { "reviewer": agent() } })).initialize(json!({ "agents": { "reviewer": agent() } })),

        row(json!({ "permission_mode": "acceptEdits" })).args(&["--permission-mode=acceptEdits"]),
        row(json!({ "permission_mode": "ofTomorrow" })).args(&["--permission-mode=ofTomorrow"]),
        row(json!({ "allow_dangerously_skip_permissions": true })).args(&["--allow-dangerously-skip-permissions"]),
        row(json!({ "permission_prompt_tool_name": "mcp__ask__it" })).args(&["--permission-prompt-tool=mcp__ask__it"]),
        row(json!({ "permission_prompts": "none" })).args(&["--permission-prompts=none"]),
        row(json!({ "tools": [] })).args(&["--tools="]),
        row(json!({ "tools": ["Read", "Bash"] })).args(&["--tools=Read,Bash"]),
        row(json!({ "tools": "claude_code" })).args(&["--tools=default"]),
        row(json!({ "tool_aliases": { "Bash": "mcp__box__bash" } })).initialize(json!({ "toolAliases": { "Bash": "mcp__box__bash" } })),
        row(json!({ "allowed_tools": ["mcp__calc__*", "Bash(ls:*)"] })).args(&["--allowedTools=mcp__calc__*,Bash(ls:*)"]),
        row(json!({ "disallowed_tools": ["Write"] })).args(&["--disallowedTools=Write"]),
        row(json!({ "skills": "all" })).args(&["--allowedTools=Skill"]),
        row(json!({ "skills": ["pdf", "plug:docx"] })).args(&["--allowedTools=Skill(pdf),Skill(plug:docx)"]).initialize(json!({ "skills": ["pdf", "plug:docx"] })),
        row(json!({ "skills": ["pdf"], "allowed_tools": ["Read", "Skill(pdf)"] })).args(&["--allowedTools=Read,Skill(pdf)"]).initialize(json!({ "skills": ["pdf"] })),
        row(json!({ "skills": [] })).initialize(json!({ "skills": [] })),
        row(json!({ "question_preview": "html" })).env(&[("CLAUDE_CODE_QUESTION_PREVIEW_FORMAT", "html")]),
        row(json!({ "additional_directories": ["/a b", "-c"] })).args(&["--add-dir=/a b", "--add-dir=-c"]),

        row(json!({ "setting_sources": [] })).args(&["--setting-sources="]),
        row(json!({ "setting_sources": ["user", "project"] })).args(&["--setting-sources=user,project"]),
        row(json!({ "settings": "/srv/settings.json" })).args(&["--settings=/srv/settings.json"]),
        row(json!({ "settings": { "model": "haiku" } })).args(&["--await-initialize", "--initialize-fields=settings"]).initialize(json!({ "settings": { "model": "haiku" } })),
        row(json!({ "settings": { "model": "haiku" }, "delivery": "arguments" })).args(&[r#"--settings={"model":"haiku"}"#]),
        row(json!({ "sandbox": { "enabled": true } })).args(&["--await-initialize", "--initialize-fields=settings"])
            .initialize(json!({ "settings": { "sandbox": { "enabled": true, "failIfUnavailable": true } } })),
        row(json!({ "managed_settings": { "permissions": { "deny": ["Bash"] } } })).args(&["--await-initialize", "--managed-settings-in-initialize"])
            .initialize(json!({ "managedSettings": { "permissions": { "deny": ["Bash"] } } })),
        row(json!({ "managed_settings": { "a": 1 }, "delivery": "arguments" })).args(&[r#"--managed-settings={"a":1}"#]),
        row(json!({ "plugins": [{ "type": "local", "path": "/p", "skipMcpDiscovery": true }] })).args(&["--await-initialize"])
            .initialize(json!({ "plugins": [{ "type": "local", "path": "/p", "skipMcpDiscovery": true }] })),
        row(json!({ "plugins": [{ "type": "local", "path": "/p" }, { "type": "local", "path": "/q", "skipMcpDiscovery": true }], "delivery": "arguments" }))
            .args(&["--plugin-dir=/p", "--plugin-dir-no-mcp=/q"]),

        row(json!({ "include_partial_messages": true })).args(&["--include-partial-messages"]),
        row(json!({ "include_hook_events": true })).args(&["--include-hook-events"]),
        row(json!({ "replay_user_messages": true })).args(&["--replay-user-messages"]),
        row(json!({ "forward_subagent_text": true })).initialize(json!({ "forwardSubagentText": true })),
        row(json!({ "prompt_suggestions": true })).initialize(json!({ "promptSuggestions": true })),
        row(json!({ "agent_progress_summaries": true })).initialize(json!({ "agentProgressSummaries": true })),
        row(json!({ "per_task_stop_affordance": true })).initialize(json!({ "perTaskStopAffordance": true })),

        row(json!({ "conversation": UUID })).args(&["--session-id=9f0bd1c4-3a5e-4c0e-8f6f-0d4a8f6a7b11"]),
        row(json!({ "resume": "id" })).args(&["--resume=id"]),
        row(json!({ "resume": "id", "resume_session_at": "m", "resume_drops_turn": "p" })).args(&["--resume=id", "--resume-session-at=m", "--resume-drops-turn=p"]),
        row(json!({ "resume": "id", "fork_session": true, "session_id": UUID })).args(&["--resume=id", "--fork-session", "--session-id=9f0bd1c4-3a5e-4c0e-8f6f-0d4a8f6a7b11"]),
        row(json!({ "continue_conversation": true })).args(&["--continue"]),
        row(json!({ "title": "Sums" })).initialize(json!({ "title": "Sums" })),
        row(json!({ "persist_session": false })).args(&["--no-session-persistence"]),
        row(json!({ "persist_session": true })),
        row(json!({ "enable_file_checkpointing": true })).env(&[("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", "true")]),

        row(json!({ "mcp_servers": { "web": web() } })).args(&["--await-initialize"]).initialize(json!({ "mcpServers": { "web": web() } })),
        row(json!({ "mcp_servers": { "web": { "type": "sse", "url": "u" } }, "delivery": "arguments" })).args(&[r#"--mcp-config={"mcpServers":{"web":{"type":"sse","url":"u"}}}"#]),
        row(json!({ "output_format": { "type": "json_schema", "schema": { "type": "object" } }, "delivery": "arguments" }))
            .args(&[r#"--json-schema={"type":"object"}"#]).initialize(json!({ "jsonSchema": { "type": "object" } })),
        row(json!({ "mcp_config_files": ["/a.json", "/b c.json"] })).args(&["--mcp-config=/a.json", "--mcp-config=/b c.json"]),
        row(json!({ "strict_mcp_config": true })).args(&["--strict-mcp-config"]),
    ]
}

/// An agent with every field.
fn agent() -> Value {
    json!({
        "description": "Reviews", "prompt": "You review.", "tools": ["Read"], "disallowedTools": ["Bash"],
        "model": "haiku", "mcpServers": ["calc", { "own": { "type": "stdio", "command": "x", "args": [] } }], "skills": ["pdf"],
        "initialPrompt": "Begin.", "maxTurns": 3, "autoCompactWindow": 100_000, "background": true,
        "omitClaudeMd": true, "memory": "project", "effort": "high", "permissionMode": "plan", "observer": "watcher",
        "observerMessage": "Look.", "criticalSystemReminder_EXPERIMENTAL": "Mind.", "newer": [1],
    })
}

/// An external server with every field.
fn web() -> Value {
    json!({
        "type": "http", "url": "https://example.com/mcp", "headers": { "Authorization": "Bearer secret" },
        "timeout": 5000, "alwaysLoad": true, "newer": 1,
        "tools": [{ "name": "wipe", "permission_policy": "always_ask", "org_max_permission": "ask" }],
    })
}

fn options(given: &Value) -> Options {
    serde_json::from_value(given.clone()).unwrap_or_else(|error| panic!("{given}: {error}"))
}

fn delivered(given: &Value) -> Delivered {
    Delivered::of(options(given)).unwrap_or_else(|error| panic!("{given}: {error}"))
}

/// All names of options.
fn names() -> BTreeSet<String> {
    let Value::Object(all) = serde_json::to_value(Options::default()).unwrap() else { panic!("no object") };
    all.keys().cloned().collect()
}

#[test]
fn each_option_comes_to_what_it_says() {
    let nothing = delivered(&json!({}));
    for row in table() {
        let seen = delivered(&row.given);
        let args: Vec<_> = seen.args.iter().filter(|arg| !nothing.args.contains(arg)).collect();
        assert_eq!(args, row.args, "{}", row.given);
        let mut env = nothing.env.clone();
        env.extend(row.env.iter().map(|(name, value)| (name.to_string(), value.to_string())));
        assert_eq!(seen.env, env, "{}", row.given);
        let mut initialize = nothing.initialize.clone();
        for (name, value) in row.initialize.as_object().unwrap() {
            // `null` in the table: a field that is there without the option and gone with it.
            match value {
                Value::Null => drop(initialize.as_object_mut().unwrap().remove(name)),
                value => initialize[name] = value.clone(),
            }
        }
        assert_eq!(seen.initialize, initialize, "{}", row.given);
    }
}

#[test]
fn no_option_is_missing_in_the_table() {
    let mut told: BTreeSet<String> = OF_THE_HOST.iter().map(ToString::to_string).collect();
    for row in table() {
        told.extend(row.given.as_object().unwrap().keys().cloned());
    }
    assert_eq!(told, names());
}

#[test]
fn where_and_as_whom_the_cli_runs_is_no_argument() {
    let given = json!({
        "cli_path": "/opt/claude", "runtime": "bun", "runtime_args": ["--smol"], "cwd": "/srv",
        "user": { "uid": 7, "gid": 8 }, "env_policy": "clean",
    });
    let seen = delivered(&given);
    assert_eq!(seen.program.as_deref(), Some("/opt/claude".as_ref()));
    assert_eq!(seen.runtime.as_deref(), Some("bun".as_ref()));
    assert_eq!(seen.runtime_args, ["--smol"]);
    assert_eq!(seen.cwd.as_deref(), Some("/srv".as_ref()));
    assert_eq!(seen.user.map(|user| (user.uid, user.gid)), Some((7, 8)));
    assert!(!seen.inherit_env && delivered(&json!({})).inherit_env);
}

#[test]
fn nothing_that_may_be_secret_is_an_argument() {
    let secret = "hunter2";
    let given = json!({
        "mcp_servers": {
            "web": { "type": "http", "url": "https://x", "headers": { "Authorization": secret } },
            "own": { "command": "x", "env": { "TOKEN": secret } },
        },
        "settings": { "env": { "TOKEN": secret } },
        "managed_settings": { "env": { "TOKEN": secret } },
        "plugins": [{ "type": "local", "path": secret }],
        "agents": { "a": { "description": "d", "prompt": secret } },
        "system_prompt": { "append": secret },
        "plan_mode_instructions": secret,
        "title": secret,
    });
    let seen = delivered(&given);
    assert!(!seen.args.concat().contains(secret), "{:?}", seen.args);
    assert_eq!(seen.initialize.to_string().matches(secret).count(), 9);
}

#[test]
fn a_value_of_each_option_survives_json() {
    for row in table() {
        let options = options(&row.given);
        let again: Options = serde_json::from_str(&serde_json::to_string(&options).unwrap()).unwrap();
        assert_eq!(again, options);
        let Value::Object(all) = serde_json::to_value(&options).unwrap() else { panic!("no object") };
        for (name, value) in row.given.as_object().unwrap() {
            assert_eq!(&all[name], value, "option `{name}` is written as it was read");
        }
    }
    let error = serde_json::from_value::<Options>(json!({ "modle": "haiku" })).unwrap_err().to_string();
    assert!(error.contains("modle"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Any set of options survives a round trip through JSON, and either yields a launch
    /// or is refused with the name of an option.
    #[test]
    fn any_options_survive_json_and_are_taken_or_refused(picks in proptest::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        let table = table();
        let mut given = Map::new();
        for pick in picks {
            given.extend(pick.get(&table).given.as_object().unwrap().clone());
        }
        let options = options(&Value::Object(given));
        let text = serde_json::to_string(&options).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Options>(&text).unwrap(), &options);
        if let Err(error) = Delivered::of(options) {
            prop_assert_eq!(error.kind(), ErrorKind::InvalidOption);
            prop_assert!(names().iter().any(|name| error.to_string().contains(&format!("`{name}`"))), "{}", error);
        }
    }
}

#[test]
fn a_path_that_is_not_utf8_is_refused() {
    let mut options = Options::new();
    options.mcp_config_files = vec![OsString::from_vec(vec![b'/', 0xff]).into()];
    let error = Delivered::of(options).unwrap_err();
    assert!(error.to_string().contains("`mcp_config_files`"), "{error}");
}

#[test]
fn one_alone_decides_on_permissions() {
    let builder = Session::builder()
        .can_use_tool(|_, _| async { PermissionDecision::allow() })
        .configure(|options| options.permission_prompt_tool_name = Some("mcp__ask__it".into()));
    let error = Delivered::of(builder.clone()).unwrap_err().to_string();
    assert!(error.contains("`permission_prompt_tool_name`") && error.contains("`can_use_tool`"), "{error}");
    let handler = builder.configure(|options| options.permission_prompt_tool_name = None);
    assert_eq!(Delivered::of(handler).unwrap().flag("permission-prompt-tool"), Some("stdio"));
}

#[test]
fn options_win_over_variables_that_say_the_same() {
    let given = json!({
        "enable_file_checkpointing": true,
        "client_app": "one",
        "env": { "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING": "false", "CLAUDE_AGENT_SDK_CLIENT_APP": "two" },
    });
    let env: BTreeMap<_, _> = delivered(&given).env;
    assert_eq!(env["CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING"], "true");
    assert_eq!(env["CLAUDE_AGENT_SDK_CLIENT_APP"], "one");
    // `TRACESTATE` is dropped, because it belongs to another trace.
    let given = json!({ "trace_context": { "traceparent": PARENT }, "env": { "TRACEPARENT": "x", "TRACESTATE": "b=2" } });
    let told = delivered(&given);
    assert_eq!((told.env["TRACEPARENT"].as_str(), told.env.get("TRACESTATE")), (PARENT, None));
    // Without the option the variable stays as it is.
    let env = delivered(&json!({ "env": { "CLAUDE_AGENT_SDK_CLIENT_APP": "two" } })).env;
    assert_eq!(env["CLAUDE_AGENT_SDK_CLIENT_APP"], "two");
}

#[test]
fn an_isolated_session_has_its_folder_and_nothing_of_the_host() {
    let options = Options::isolated("/srv/users/ada").unwrap();
    let mut expected = Options::new();
    expected.cwd = Some("/srv/users/ada/work".into());
    expected.env.insert("HOME".to_owned(), "/srv/users/ada".to_owned());
    expected.env.insert("CLAUDE_CONFIG_DIR".to_owned(), "/srv/users/ada/claude".to_owned());
    expected.env_policy = greenroom::options::EnvPolicy::Service;
    expected.setting_sources = Some(Vec::new());
    expected.strict_mcp_config = true;
    expected.verbatim_prompts = true;
    assert_eq!(options, expected);
    expected.env.remove("CLAUDE_CONFIG_DIR");
    assert_eq!(Options::isolated_in("/srv/users/ada", "/srv/users/ada/work"), expected);
    let bytes = OsString::from_vec(b"/srv/\xff".to_vec());
    for folder in [OsString::from("users/ada"), OsString::new(), bytes] {
        let refused = Options::isolated(&folder).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidOption);
        assert!(refused.to_string().contains("the whole path"), "{refused}");
    }
}
