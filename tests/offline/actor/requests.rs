//! Requests to the CLI: what is sent, and how the answer is read.

use std::fmt::Debug;

use crate::common::{SOON, start_by_hand, stop, within};
use greenroom::options::ThinkingDisplay;
use greenroom::requests::{
    ContextDetail, FileEncoding, McpPermissionMode, ReadFile, ReloadPlugins, Reply, SettingsFile,
};
use greenroom::{PermissionMode, Result, Session};
use greenroom_testkit::{CliEnd, ScriptedListener};
use serde_json::{Value, json};

/// Plays a CLI that answers one request, which must be this.
async fn exchange<T>(end: &mut CliEnd, asking: impl Future<Output = T>, expected: Value, answer: Value) -> T {
    let answering = async {
        let request = end.expect("control_request").await;
        assert_eq!(request["request"], expected);
        end.answer(&request, answer);
    };
    within(SOON, async { tokio::join!(asking, answering).0 }).await
}

/// The answer is read whole: as raw JSON, and every field of it has a place in the typed view.
fn whole<T: Debug>(reply: Result<Reply<T>>, sample: &Value) -> T {
    let reply = reply.unwrap();
    assert_eq!(serde_json::from_str::<Value>(reply.raw().get()).unwrap(), *sample);
    let view = reply.into_inner();
    let shown = format!("{view:?}");
    if let Some(at) = shown.find("extra: {\"") {
        panic!("a field has no place, or does not fit: {}", &shown[at..shown.len().min(at + 200)]);
    }
    view
}

/// A row: the method, the request, the answer. Returns the typed answer, which must have every field.
macro_rules! row {
    ($end:ident, $asking:expr, $expected:tt, $sample:expr) => {{
        let sample: Value = $sample;
        let reply = exchange(&mut $end, $asking, json!($expected), sample.clone()).await;
        whole(reply, &sample)
    }};
    // An acknowledgement.
    ($end:ident, $asking:expr, $expected:tt) => {
        exchange(&mut $end, $asking, json!($expected), Value::Null).await.unwrap()
    };
}

async fn begun() -> (Session, CliEnd, ScriptedListener) {
    start_by_hand(Session::builder()).await
}

#[tokio::test(start_paused = true)]
async fn turns_are_interrupted_and_taken_back() {
    let (s, mut end, _listener) = begun().await;
    let receipt = row!(end, s.interrupt(), {"subtype": "interrupt"}, json!({"still_queued": ["u"]}));
    assert_eq!(receipt.still_queued, ["u"]);
    let receipt = row!(
        end, s.interrupt_cancel_queued(), {"subtype": "interrupt", "cancel_queued": true},
        json!({"still_queued": [], "cancelled": ["u"]})
    );
    assert_eq!((receipt.still_queued.len(), receipt.cancelled.as_slice()), (0, ["u".to_owned()].as_slice()));
    let back = row!(
        end, s.cancel_async_message("u"), {"subtype": "cancel_async_message", "message_uuid": "u"},
        json!({"cancelled": true})
    );
    assert!(back.cancelled);
    stop(s, end).await;
}

#[tokio::test(start_paused = true)]
async fn settings_are_set() {
    let (s, mut end, _listener) = begun().await;
    let set = row!(
        end, s.set_model(Some("haiku")), {"subtype": "set_model", "model": "haiku"}, json!({"model": "claude-haiku-4-5"})
    );
    assert_eq!(set.model.as_deref(), Some("claude-haiku-4-5"));
    row!(end, s.set_model(None), {"subtype": "set_model", "model": null}, json!({}));
    let set = row!(
        end, s.set_permission_mode(PermissionMode::AcceptEdits),
        {"subtype": "set_permission_mode", "mode": "acceptEdits"}, json!({"mode": "acceptEdits"})
    );
    assert_eq!(set.mode.as_deref(), Some("acceptEdits"));
    row!(
        end, s.requests().set_mcp_permission_mode_override("x", Some(McpPermissionMode::Auto)),
        {"subtype": "set_mcp_permission_mode_override", "serverName": "x", "mode": "auto"}, json!({})
    );
    let set = row!(
        end, s.requests().set_mcp_permission_mode_override("x", None),
        {"subtype": "set_mcp_permission_mode_override", "serverName": "x", "mode": null}, json!({"warning": "odd"})
    );
    assert_eq!(set.warning.as_deref(), Some("odd"));
    row!(
        end, s.set_max_thinking_tokens(Some(2000)),
        {"subtype": "set_max_thinking_tokens", "max_thinking_tokens": 2000}
    );
    row!(end, s.set_max_thinking_tokens(None), {"subtype": "set_max_thinking_tokens", "max_thinking_tokens": null});
    row!(
        end, s.requests().set_thinking_display(Some(ThinkingDisplay::Omitted)),
        {"subtype": "set_max_thinking_tokens", "thinking_display": "omitted"}
    );
    row!(end, s.requests().set_thinking_display(None), {"subtype": "set_max_thinking_tokens", "thinking_display": null});
    row!(
        end, s.requests().apply_flag_settings(json!({"effortLevel": "low", "model": null})),
        {"subtype": "apply_flag_settings", "settings": {"effortLevel": "low", "model": null}}
    );
    row!(
        end, s.requests().update_settings(SettingsFile::Local, json!({"outputStyle": "Concise"})),
        {"subtype": "update_settings", "source": "localSettings", "settings": {"outputStyle": "Concise"}}
    );
    stop(s, end).await;
}

#[tokio::test(start_paused = true)]
async fn information_comes_typed_and_whole() {
    let (s, mut end, _listener) = begun().await;
    let usage = row!(
        end, s.context_usage(ContextDetail::Full), {"subtype": "get_context_usage", "detail": "full"},
        crate::samples::context_usage()
    );
    assert_eq!((usage.total_tokens, usage.categories[0].id.as_deref()), (13_324, Some("system_prompt")));
    assert_eq!(usage.message_breakdown.unwrap()["toolCallsByType"][0]["resultTokens"], 48);
    row!(
        end, s.context_usage(ContextDetail::Summary), {"subtype": "get_context_usage", "detail": "summary"},
        crate::samples::context_usage()
    );
    let usage = row!(end, s.requests().usage(true), {"subtype": "get_usage"}, crate::samples::usage());
    assert_eq!(usage.session.model_usage["claude-opus-5-5"].output_tokens, 9);
    assert_eq!(usage.rate_limits.unwrap()["five_hour"]["utilization"], 12.5);
    row!(end, s.requests().usage(false), {"subtype": "get_usage", "skip_behaviors": true}, crate::samples::usage());
    let plugins = row!(
        end, s.requests().reload_plugins(ReloadPlugins::default()), {"subtype": "reload_plugins"}, crate::samples::plugins()
    );
    assert_eq!((plugins.plugins[0].name.as_str(), plugins.held), ("notes", Some(true)));
    let reload = ReloadPlugins {
        hold_on_cache_impact: true,
        refuse_if_busy: true,
        add_plugins: vec![("/p".into(), false), ("/q".into(), true)],
    };
    row!(
        end, s.requests().reload_plugins(reload),
        {"subtype": "reload_plugins", "hold_on_cache_impact": true, "refuse_if_busy": true, "add_plugins": [
            {"type": "local", "path": "/p"}, {"type": "local", "path": "/q", "skipMcpDiscovery": true},
        ]},
        crate::samples::plugins()
    );
    let skills = row!(
        end, s.requests().reload_skills(), {"subtype": "reload_skills"},
        json!({"skills": [{"name": "a", "description": "b", "argumentHint": "", "builtin": true, "aliases": ["c"]}]})
    );
    assert_eq!(skills.skills[0].aliases, ["c"]);
    let styles = row!(
        end, s.requests().reload_output_styles(), {"subtype": "reload_output_styles"},
        json!({"available_output_styles": ["default", "Concise"]})
    );
    assert_eq!(styles.available_output_styles.len(), 2);
    stop(s, end).await;
}

#[tokio::test(start_paused = true)]
async fn mcp_servers_are_asked_about() {
    let (s, mut end, _listener) = begun().await;
    let status = row!(end, s.mcp_status(), {"subtype": "mcp_status"}, crate::samples::mcp_status());
    assert_eq!(status.servers[0].tools[0].annotations.read_only, Some(true));
    assert_eq!(
        (status.servers[1].status.as_str(), status.servers[1].error.as_deref()),
        ("failed", Some("gone"))
    );
    row!(end, s.mcp_reconnect("x"), {"subtype": "mcp_reconnect", "serverName": "x"});
    row!(end, s.mcp_toggle("x", false), {"subtype": "mcp_toggle", "serverName": "x", "enabled": false});
    let resource = row!(
        end, s.requests().mcp_read_resource("x", "ui://a"),
        {"subtype": "mcp_read_resource", "serverName": "x", "uri": "ui://a"},
        json!({"contents": [{"uri": "ui://a", "mimeType": "text/html", "text": "<p>", "_meta": {"ui": {}}}, {"uri": "ui://b", "blob": "AA=="}]})
    );
    assert_eq!(resource.contents[1].blob.as_deref(), Some("AA=="));
    stop(s, end).await;
}

#[tokio::test(start_paused = true)]
async fn tasks_and_files_are_changed() {
    let (s, mut end, _listener) = begun().await;
    row!(end, s.stop_task("t"), {"subtype": "stop_task", "task_id": "t"});
    assert!(
        row!(end, s.requests().background_tasks(), {"subtype": "background_tasks"}, json!({}))
            .is_backgrounded()
    );
    let task = row!(
        end, s.requests().background_task("toolu"), {"subtype": "background_tasks", "tool_use_id": "toolu"},
        json!({"backgrounded": false})
    );
    assert!(!task.is_backgrounded());
    let rewound = row!(
        end, s.rewind_files("u"), {"subtype": "rewind_files", "user_message_id": "u"},
        json!({"canRewind": true, "skippedLinks": 0})
    );
    assert_eq!((rewound.can_rewind, rewound.skipped_links), (true, Some(0)));
    let preview = row!(
        end, s.rewind_files_dry_run("u"), {"subtype": "rewind_files", "user_message_id": "u", "dry_run": true},
        json!({"canRewind": false, "error": "no", "filesChanged": ["/a"], "insertions": 1, "deletions": 2})
    );
    assert_eq!(
        (preview.files_changed.as_slice(), preview.deletions),
        (["/a".to_owned()].as_slice(), Some(2))
    );
    row!(end, s.requests().seed_read_state("/a", 12), {"subtype": "seed_read_state", "path": "/a", "mtime": 12});
    row!(
        end, s.requests().read_file("a", ReadFile::default()), {"subtype": "read_file", "path": "a"},
        json!({"contents": "x", "absPath": "/a", "truncated": true, "lossy": false})
    );
    let file = row!(
        end, s.requests().read_file("a", ReadFile { max_bytes: Some(3), encoding: Some(FileEncoding::Base64) }),
        {"subtype": "read_file", "path": "a", "max_bytes": 3, "encoding": "base64"},
        json!({"contents": "eA==", "absPath": "/a", "encoding": "base64"})
    );
    assert_eq!((file.contents.as_str(), file.encoding.as_deref()), ("eA==", Some("base64")));
    stop(s, end).await;
}
