//! Requests to the real CLI.

use std::path::Path;
use std::time::Duration;

use greenroom::message::ContextKind;
use greenroom::options::ExternalServer;
use greenroom::requests::{
    ContextDetail, FileEncoding, McpConnection, ReadFile, ReloadPlugins, Reply, SettingsFile,
};
use greenroom::session::{MessageOrGap, Messages};
use greenroom::{ErrorKind, Event, Message, Outcome, PermissionMode, Result, Session};
use greenroom_testkit::{Fault, ModelTurn, Script};
use serde_json::{Value, json};

use crate::stage::{
    Stage, answers, calc, call, event, hang, hears, in_time, loaded, outcome, start, stop, text,
};

/// The answer to a request, in time.
async fn asked<T>(asking: impl Future<Output = Result<T>>) -> T {
    in_time("a request", asking).await.unwrap()
}

/// The error text of a refused request.
async fn refused<T>(asking: impl Future<Output = Result<T>>) -> String {
    let Err(error) = in_time("a request", asking).await else { panic!("it was not refused") };
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    error.to_string()
}

/// The answer to a request that has no method.
async fn control(session: &Session, body: Value) -> Value {
    asked(session.requests().control(body)).await
}

/// Asserts that the typed view has every field of the answer.
fn known<T>(reply: &Reply<T>, extra: &serde_json::Map<String, Value>) {
    assert!(serde_json::from_str::<Value>(reply.raw().get()).unwrap().is_object());
    assert!(extra.is_empty(), "the CLI says more than is typed: {extra:?}");
}

/// The next message that fits.
async fn message<T>(messages: &mut Messages, fits: impl Fn(&Message) -> Option<T>) -> T {
    in_time("a message", async {
        loop {
            match messages.next().await {
                Some(MessageOrGap::Message(message)) => {
                    if let Some(found) = fits(&message) {
                        return found;
                    }
                }
                Some(_) => {}
                None => panic!("the session ended"),
            }
        }
    })
    .await
}

/// The first `system/init` from here on.
async fn init(messages: &mut Messages) -> (String, String, String) {
    message(messages, |message| {
        let Message::System(system) = message else { return None };
        let init = system.init()?;
        Some((init.model.clone()?, message.field("permissionMode")?.as_str()?.to_owned(), init.cwd.clone()?))
    })
    .await
}

/// A tool of the CLI's own that the model calls.
fn builtin(name: &str, input: serde_json::Value) -> ModelTurn {
    ModelTurn::new().call(name, input)
}

#[tokio::test]
async fn what_is_set_in_mid_session_is_in_force_and_again_after_a_kill() {
    let script = Script::new().otherwise(text("Fine."));
    let Some(stage) = Stage::new(script).await else { return };
    std::fs::create_dir(stage.cwd.path().join("sub")).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let elsewhere = elsewhere.path().canonicalize().unwrap();
    let session = start(stage.builder()).await;
    let mut messages = session.messages();
    answers(&session, "One.", "Fine.").await;
    let first = init(&mut messages).await;
    assert_eq!(first.1, "default");

    let set = asked(session.set_model(Some("claude-haiku-4-5"))).await;
    assert_eq!(set.model.as_deref(), Some("claude-haiku-4-5"));
    let set = asked(session.set_permission_mode(PermissionMode::AcceptEdits)).await;
    assert_eq!(set.mode.as_deref(), Some("acceptEdits"));
    let error = session.set_permission_mode(PermissionMode::BypassPermissions).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Refused, Some("bypass_not_launched")));
    let register = |folder: &Path| json!({"subtype": "register_repo_root", "directory": folder});
    let root = control(&session, register(&stage.cwd.path().join("sub"))).await;
    assert!(root["directory"].as_str().is_some_and(|path| path.ends_with("sub")), "{root}");
    refused(session.requests().control(register(Path::new("/")))).await;
    asked(session.set_max_thinking_tokens(Some(2000))).await;
    asked(session.requests().apply_flag_settings(json!({"effortLevel": "low"}))).await;
    control(&session, json!({"subtype": "set_has_subscribers", "has_subscribers": true})).await;
    let settings = control(&session, json!({"subtype": "get_settings"})).await;
    assert_eq!(settings["effective"]["effortLevel"], "low");
    assert_eq!(settings["applied"]["model"], "claude-haiku-4-5");

    // A folder that nobody trusts yet is not entered.
    let enter = |path: &Path| json!({"subtype": "set_cwd", "path": path});
    let wish = control(&session, enter(&elsewhere)).await;
    assert_eq!(wish["status"], "needs_trust");
    let mut trusted = enter(&elsewhere);
    trusted["trust_accepted"] = json!(true);
    trusted["trusted_directory"] = wish["directory"].clone();
    let moved = control(&session, trusted).await;
    assert_eq!((&moved["status"], &moved["changed"]), (&json!("ok"), &json!(true)));
    // The CLI refuses while it is busy with the folder before, and no message says for how long.
    let gone = in_time("an answer of a CLI that is not busy", async {
        loop {
            let gone = control(&session, enter(Path::new("/not/there"))).await;
            if gone["reason"] != "busy" {
                return gone;
            }
        }
    })
    .await;
    assert_eq!((&gone["status"], &gone["reason"]), (&json!("rejected"), &json!("not_found")));

    answers(&session, "Two.", "Fine.").await;
    let (model, mode, cwd) = init(&mut messages).await;
    assert_eq!((model.as_str(), mode.as_str()), ("claude-haiku-4-5", "acceptEdits"));
    assert_eq!(Path::new(&cwd), elsewhere);
    assert_eq!(stage.last_request().model(), Some("claude-haiku-4-5"));

    let mut events = session.events();
    session.inject(Fault::PanicPort);
    event(&mut events, "the next CLI", |event| {
        matches!(event, Event::CliReady { epoch: 2, .. }).then_some(())
    })
    .await;
    let rules = control(&session, json!({"subtype": "list_permission_rules"})).await;
    let folders = rules["state"]["workspaceDirectories"].as_array().unwrap();
    assert!(folders.iter().any(|folder| folder["path"].as_str().unwrap().ends_with("sub")), "{rules}");
    answers(&session, "Three.", "Fine.").await;
    let (model, mode, cwd) = init(&mut messages).await;
    assert_eq!((model.as_str(), mode.as_str()), ("claude-haiku-4-5", "acceptEdits"));
    assert_eq!(Path::new(&cwd), elsewhere);
    let request = stage.last_request();
    assert_eq!(request.model(), Some("claude-haiku-4-5"));
    assert!(request.body().to_string().contains("Two."), "the conversation went along");

    let set = asked(session.set_model(None)).await;
    assert_eq!(set.model.as_deref(), Some(first.0.as_str()), "the session's default");
    stop(&session).await;
}

#[tokio::test]
async fn the_cli_says_what_it_is_and_what_the_session_came_to() {
    let script = Script::new().otherwise(text("Fine."));
    let Some(stage) = Stage::new(script).await else { return };
    let session = start(stage.builder().mcp_server(calc()).allow_server_tools("calc")).await;
    let info = session.server_info();
    assert!(!info.commands.is_empty() && !info.models.is_empty() && !info.agents.is_empty(), "{info:?}");
    assert_eq!(info.account.api_key_source.as_deref(), Some("ANTHROPIC_API_KEY"));
    assert_eq!(info.current_permission_mode.as_deref(), Some("default"));
    assert_eq!(info.pid, asked(session.snapshot()).await.cli.and_then(|cli| cli.pid).map(u64::from));
    assert!(info.models.iter().all(|model| !model.value.is_empty()));
    // The CLI tells some capabilities at once, and the rest with the first turn.
    assert_eq!(session.has_capability("mcp_call_check_permissions_v1"), Some(true));
    assert_eq!(session.has_capability("interrupt_cancel_queued_v1"), None);
    answers(&session, "Hello.", "Fine.").await;
    assert_eq!(session.has_capability("interrupt_cancel_queued_v1"), Some(true));
    assert_eq!(session.has_capability("of_tomorrow_v1"), Some(false));

    for detail in [ContextDetail::Summary, ContextDetail::Full] {
        let usage = asked(session.context_usage(detail)).await;
        let row =
            |kind| usage.categories.iter().filter(|row| row.kind == kind).map(|row| row.tokens).sum::<u64>();
        assert!(row(ContextKind::Used) > 0 && row(ContextKind::Free) > row(ContextKind::Used), "{usage:?}");
        assert_eq!(
            usage.mcp_tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect::<Vec<_>>(),
            ["mcp__calc__add"]
        );
        assert!(usage.api_usage.as_ref().is_some_and(|usage| usage["output_tokens"].as_u64() > Some(0)));
        assert!(!usage.grid_rows.is_empty() && usage.message_breakdown.is_some());
    }
    let usage = asked(session.requests().usage(false)).await;
    known(&usage, &usage.extra);
    assert!(usage.session.model_usage.values().any(|model| model.output_tokens > 0));
    assert_eq!((usage.rate_limits_available, usage.subscription_type.as_deref()), (false, None));
    asked(session.requests().usage(true)).await;
    let plugins = asked(session.requests().reload_plugins(ReloadPlugins {
        hold_on_cache_impact: true,
        refuse_if_busy: true,
        ..Default::default()
    }))
    .await;
    known(&plugins, &plugins.extra);
    assert_eq!((plugins.error_count, plugins.held), (0, Some(false)));
    assert!(plugins.mcp_servers.iter().any(|server| server.name == "calc"));
    let skills = asked(session.requests().reload_skills()).await;
    known(&skills, &skills.extra);
    assert!(!skills.skills.is_empty());
    let styles = asked(session.requests().reload_output_styles()).await;
    assert_eq!(styles.available_output_styles, info.available_output_styles);
    asked(session.requests().update_settings(SettingsFile::Local, json!({"outputStyle": "Concise"}))).await;
    let file = std::fs::read_to_string(stage.cwd.path().join(".claude/settings.local.json")).unwrap();
    assert!(file.contains("Concise"), "{file}");
    assert!(
        refused(session.requests().update_settings(SettingsFile::User, json!({"x": "y"})))
            .await
            .contains("not allowed: x")
    );

    let title =
        |id: &str| json!({"subtype": "rename_session", "title": "T", "source": "host", "session_id": id});
    control(&session, title(&session.session_id().unwrap())).await;
    refused(session.requests().control(title("another"))).await;
    assert_eq!(
        session.requests().control(json!({"subtype": "set_color"})).await.unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    // A request without a typed method.
    assert_eq!(control(&session, json!({"subtype": "get_plan"})).await["exists"], false);
    stop(&session).await;
}

/// An MCP server that echoes, fails, takes its time, and has a resource.
const SERVER: &str = r#"
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  [ -n "$id" ] || continue
  case "$line" in
    *'"method":"initialize"'*) r='{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"resources":{}},"serverInfo":{"name":"ext","version":"2.0"}}' ;;
    *'"method":"tools/list"'*) r='{"tools":[{"name":"echo","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},{"name":"fail","inputSchema":{"type":"object"}},{"name":"slow","inputSchema":{"type":"object"}}]}' ;;
    *'"name":"echo"'*) r='{"content":[{"type":"text","text":"echoed"}],"structuredContent":{"a":1},"_meta":{"k":"v"}}' ;;
    *'"name":"fail"'*) r='{"content":[{"type":"text","text":"it is broken"}],"isError":true}' ;;
    *'"name":"slow"'*) continue ;;
    *'"method":"resources/read"'*) r='{"contents":[{"uri":"ui://x","mimeType":"text/html","text":"<p>"}]}' ;;
    *) r='{}' ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$r"
done
"#;

#[tokio::test]
async fn mcp_servers_are_listed_toggled_reconnected_and_called() {
    let Some(stage) = Stage::new(Script::new().otherwise(text("Fine."))).await else { return };
    let ext = ExternalServer::stdio("/bin/sh", ["-c", SERVER]);
    let session = start(stage.builder().mcp_server(calc()).external_mcp_server("ext", ext)).await;
    let call = |tool: &str| json!({"subtype": "mcp_call", "tool": tool});
    // Brings the server up, if it is not yet.
    let echoed = control(&session, call("mcp__ext__echo")).await;
    assert_eq!(echoed["structuredContent"], json!({"a": 1}));
    let status = asked(session.mcp_status()).await;
    known(&status, &status.extra);
    let row = |name: &str| status.servers.iter().find(|server| server.name == name).unwrap();
    assert_eq!(
        (&row("ext").status, row("ext").transport.as_deref()),
        (&McpConnection::Connected, Some("stdio"))
    );
    assert_eq!(row("ext").tools[0].annotations.read_only, Some(true));
    assert_eq!((row("calc").source.as_deref(), row("calc").tools.len()), (Some("sdk"), 1));

    assert!(refused(session.requests().control(call("mcp__ext__fail"))).await.contains("it is broken"));
    assert!(refused(session.requests().control(call("mcp__calc__add"))).await.contains("SDK"));
    // Given up: the CLI ends the call, and says so to nobody.
    let quick = session.with_request_timeout(Duration::from_millis(300));
    let error = in_time("the call", quick.requests().control(call("mcp__ext__slow"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);

    let resource = asked(session.requests().mcp_read_resource("ext", "ui://x")).await;
    assert_eq!(resource.contents[0].text.as_deref(), Some("<p>"));
    refused(session.requests().mcp_read_resource("ext", "file:///etc/passwd")).await;
    refused(session.requests().mcp_read_resource("calc", "ui://x")).await;

    asked(session.mcp_toggle("ext", false)).await;
    let status = asked(session.mcp_status()).await;
    let ext = |status: &greenroom::requests::McpStatus| {
        status.servers.iter().find(|server| server.name == "ext").unwrap().status.clone()
    };
    assert_eq!(ext(&status), McpConnection::Disabled);
    asked(session.mcp_toggle("ext", true)).await;
    asked(session.mcp_reconnect("ext")).await;
    assert_eq!(ext(&*asked(session.mcp_status()).await), McpConnection::Connected);
    refused(session.mcp_toggle("nobody", true)).await;
    assert!(refused(session.mcp_reconnect("calc")).await.contains("SDK servers"));
    let odd = asked(session.requests().set_mcp_permission_mode_override("nobody", None)).await;
    assert!(odd.warning.is_some());
    // The answer to the call that was given up has come by now, and counted as nobody's.
    assert_eq!(asked(session.snapshot()).await.counters.unmatched_responses, 1);
    stop(&session).await;
}

#[tokio::test]
async fn a_turn_is_interrupted_asked_about_aside_and_what_waits_with_it_ended() {
    let (hang, mut hear) = hang();
    let script = Script::new().turn(call("hang", json!({}))).otherwise(text("Fine."));
    let Some(stage) = Stage::new(script).await else { return };
    let session = stage.start(calc().add_tool(loaded(hang))).await;
    assert!(asked(session.interrupt()).await.still_queued.is_empty(), "there is nothing to interrupt");
    let mut first = asked(session.prompt("Wait.")).await;
    hears(&mut hear, "called").await;
    let mut second = asked(session.prompt("And then?")).await;
    let mut third = asked(session.prompt("And then?")).await;

    let aside = control(&session, json!({"subtype": "side_question", "question": "What is that?"})).await;
    assert!(aside["response"].is_string(), "{aside}");
    let taken = asked(session.cancel_async_message(second.prompt_uuid())).await;
    assert!(taken.cancelled);
    assert!(!asked(session.cancel_async_message(first.prompt_uuid())).await.cancelled, "it has begun");

    let receipt = asked(session.interrupt_cancel_queued()).await;
    assert_eq!(
        (receipt.still_queued.len(), receipt.cancelled.as_slice()),
        (0, &[third.prompt_uuid().to_owned()][..])
    );
    hears(&mut hear, "cancelled").await;
    for turn in [&mut second, &mut third] {
        let ended = in_time("the end", turn.outcome()).await.unwrap();
        assert!(matches!(ended, Outcome::NotStarted { .. }), "{ended:?}");
    }
    let ended = in_time("the end", first.outcome()).await.unwrap();
    assert!(matches!(ended, Outcome::Interrupted { .. }), "{ended:?}");
    answers(&session, "Go on.", "Fine.").await;
    stop(&session).await;
}

/// A session that runs commands and writes files without asking.
async fn working(stage: &Stage, checkpoints: bool) -> Session {
    let builder = stage.builder().allow_tool("Bash").allow_tool("Write");
    start(builder.configure(|options| options.enable_file_checkpointing = checkpoints)).await
}

#[tokio::test]
async fn files_are_rewound_and_read_and_tasks_looked_at() {
    let Some(mut stage) = Stage::new(Script::new()).await else { return };
    let file = stage.cwd.path().join("new.txt");
    let write = builtin("Write", json!({"file_path": file, "content": "a\nb\n"}));
    let run = |command: &str, background: bool| {
        builtin("Bash", json!({"command": command, "description": "d", "run_in_background": background}))
    };
    let script = Script::new()
        .turn(write.clone())
        .turn(text("Written."))
        .turn(run("echo out; sleep 600", true))
        .turn(text("Started."))
        .turn(run("sleep 600", false))
        .turn(text("Not waited for."))
        .otherwise(text("Fine."));
    stage.model = greenroom_testkit::ScriptedModel::start(script).await.unwrap();
    let session = working(&stage, true).await;
    let mut messages = session.messages();
    let mut turn = asked(session.prompt("Write it.")).await;
    let prompt = turn.prompt_uuid().to_owned();
    assert!(in_time("the turn", turn.outcome()).await.unwrap().is_completed() && file.exists());

    let read = asked(session.requests().read_file("new.txt", ReadFile::default())).await;
    assert_eq!((read.contents.as_str(), read.lossy), ("a\nb\n", Some(false)));
    let part = asked(
        session
            .requests()
            .read_file("new.txt", ReadFile { max_bytes: Some(1), encoding: Some(FileEncoding::Base64) }),
    )
    .await;
    assert_eq!(
        (part.contents.as_str(), part.truncated, part.encoding.as_deref()),
        ("YQ==", Some(true), Some("base64"))
    );
    refused(session.requests().read_file("nothing.txt", ReadFile::default())).await;
    asked(session.requests().seed_read_state(&file, 1)).await;

    let preview = asked(session.rewind_files_dry_run(&prompt)).await;
    known(&preview, &preview.extra);
    assert_eq!((preview.can_rewind, preview.files_changed.len(), preview.deletions), (true, 1, Some(2)));
    assert!(file.exists(), "it was only asked about");
    let rewound = asked(session.rewind_files(&prompt)).await;
    known(&rewound, &rewound.extra);
    assert!(rewound.can_rewind && !file.exists());
    assert!(
        refused(session.rewind_files("5edf22c9-8cc7-4887-8c1e-e7178f90e5a1"))
            .await
            .contains("No file checkpoint")
    );

    answers(&session, "In the background.", "Started.").await;
    let task = message(&mut messages, |message| match message {
        Message::System(system) if system.subtype == "task_started" => {
            Some(message.field("task_id")?.as_str()?.to_owned())
        }
        _ => None,
    })
    .await;
    let output = in_time("the output of the task", async {
        loop {
            let output = control(&session, json!({"subtype": "get_task_output", "task_id": task})).await;
            if output["total_bytes"] != 0 {
                return output;
            }
        }
    })
    .await;
    assert_eq!(output["output"], "out\n");
    asked(session.stop_task(&task)).await;
    message(&mut messages, |message| {
        let Message::System(system) = message else { return None };
        (system.subtype == "task_notification").then_some(())
    })
    .await;

    // The command that the turn waits for moves to the background, and the turn goes on.
    let mut turn = asked(session.prompt("In the foreground.")).await;
    message(&mut messages, |message| message.raw().get().contains("\"sleep 600\"").then_some(())).await;
    assert!(!asked(session.requests().background_task("toolu_nobody")).await.is_backgrounded());
    in_time("the background", async {
        // The command may not have been started yet.
        loop {
            asked(session.requests().background_tasks()).await;
            tokio::select! {
                outcome = turn.outcome() => break assert!(outcome.unwrap().is_completed()),
                () = tokio::task::yield_now() => {}
            }
        }
    })
    .await;
    stop(&session).await;

    let session = working(&stage, false).await;
    outcome(&session, "Hello.").await;
    let said = refused(session.rewind_files(&prompt)).await;
    assert!(said.contains("not enabled"), "{said}");
    stop(&session).await;
}
