//! Settings made at run time, which the next CLI is given again.

use greenroom::transport::Exit;
use greenroom::{Event, Session};
use serde_json::{Value, json};

use crate::common::*;

/// A CLI that has confirmed these requests with these answers is killed.
async fn killed_after(
    asked: &[(Value, Value)],
) -> (Session, greenroom_testkit::CliEnd, greenroom::report::Events) {
    let builder = Session::builder().configure(|options| options.restarts.cli.intensity = 1);
    let (session, mut end, mut listener) = start_by_hand(builder).await;
    for (body, answer) in asked {
        let answering = async {
            let request = end.expect("control_request").await;
            end.answer(&request, answer.clone());
        };
        let (asked, ()) =
            within(SOON, async { tokio::join!(session.requests().control(body.clone()), answering) }).await;
        asked.unwrap();
    }
    let events = session.events();
    end.exit(Exit::Signal(9));
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    (session, end, events)
}

/// What the next CLI is given again after these requests, each with the answer of the first CLI.
async fn noted_of(asked: &[(Value, Value)]) -> Vec<Value> {
    let (session, mut end, mut events) = killed_after(asked).await;
    let mut again = Vec::new();
    loop {
        tokio::select! {
            biased;
            request = end.expect("control_request") => {
                again.push(request["request"].clone());
                end.answer(&request, json!({}));
            }
            () = event(&mut events, |event| matches!(event, Event::CliReady { .. }).then_some(())) => break,
        }
    }
    stop(session, end).await;
    again
}

async fn noted(bodies: &[Value]) -> Vec<Value> {
    let asked: Vec<_> = bodies.iter().map(|body| (body.clone(), json!({}))).collect();
    noted_of(&asked).await
}

/// Whether the session fails when the next CLI refuses the setting.
async fn is_vital(body: &Value) -> bool {
    let (session, mut end, mut events) = killed_after(&[(body.clone(), json!({}))]).await;
    let request = within(SOON, end.expect("control_request")).await;
    end.refuse(&request, "not now");
    let vital = event(&mut events, |event| match event {
        Event::SettingLost { .. } => Some(false),
        Event::Failed { .. } => Some(true),
        _ => None,
    });
    if vital.await {
        return true;
    }
    stop(session, end).await;
    false
}

fn model(model: &str) -> Value {
    json!({"subtype": "set_model", "model": model})
}

fn flags(settings: Value) -> Value {
    json!({"subtype": "apply_flag_settings", "settings": settings})
}

fn cwd(path: &str) -> Value {
    json!({"subtype": "set_cwd", "path": path})
}

fn root(directory: &str) -> Value {
    json!({"subtype": "register_repo_root", "directory": directory})
}

#[tokio::test(start_paused = true)]
async fn a_repeated_setting_replaces_the_earlier_one_and_moves_to_the_end() {
    let mode = json!({"subtype": "set_permission_mode", "mode": "plan"});
    assert_eq!(noted(&[model("a"), mode.clone(), model("b")]).await, [mode, model("b")]);
}

#[tokio::test(start_paused = true)]
async fn flag_settings_and_thinking_merge_with_earlier_ones() {
    assert_eq!(
        noted(&[flags(json!({"a": 1, "b": 2})), flags(json!({"b": null, "c": 3}))]).await,
        [flags(json!({"a": 1, "b": null, "c": 3}))]
    );
    let thinking = |field: &str, value: Value| json!({"subtype": "set_max_thinking_tokens", field: value});
    assert_eq!(
        noted(&[
            thinking("max_thinking_tokens", json!(5)),
            thinking("thinking_display", json!("omitted")),
            thinking("thinking_display", Value::Null),
        ])
        .await,
        [json!({"subtype": "set_max_thinking_tokens", "max_thinking_tokens": 5, "thinking_display": null})]
    );
}

#[tokio::test(start_paused = true)]
async fn the_later_of_the_two_ways_to_set_the_model_wins() {
    assert_eq!(
        noted(&[flags(json!({"model": "a", "effortLevel": "low"})), model("b")]).await,
        [flags(json!({"effortLevel": "low"})), model("b")]
    );
    assert_eq!(
        noted(&[model("b"), flags(json!({"effortLevel": "low"})), flags(json!({"model": "a"}))]).await,
        [flags(json!({"model": "a", "effortLevel": "low"}))]
    );
}

#[tokio::test(start_paused = true)]
async fn overrides_are_kept_by_server_and_can_be_removed() {
    let set = |server: &str, mode: Value| json!({"subtype": "set_mcp_permission_mode_override", "serverName": server, "mode": mode});
    let (a, b) = (set("a", json!("default")), set("b", json!("auto")));
    let noted = noted(&[a.clone(), b.clone(), set("a", Value::Null)]).await;
    assert_eq!(noted, std::slice::from_ref(&b));
    assert!(is_vital(&a).await && !is_vital(&b).await);
}

#[tokio::test(start_paused = true)]
async fn settings_that_forbid_are_vital() {
    for permissions in [
        json!({"deny": ["Bash"]}),
        json!({"allow": ["Read"], "ask": ["Bash"]}),
        json!({"defaultMode": "plan"}),
        json!({"disableBypassPermissionsMode": "disable"}),
    ] {
        assert!(is_vital(&flags(json!({"permissions": permissions}))).await, "{permissions}");
    }
    for permissions in [json!({"allow": ["Bash"]}), json!({"deny": [], "defaultMode": null}), json!(null)] {
        assert!(!is_vital(&flags(json!({"permissions": permissions}))).await, "{permissions}");
    }
    assert!(!is_vital(&flags(json!({"model": "a"}))).await);
}

#[tokio::test(start_paused = true)]
async fn roots_are_registered_again_in_their_working_directory() {
    assert_eq!(noted(&[cwd("/a"), cwd("/b")]).await, [cwd("/b")]);
    assert_eq!(
        noted(&[cwd("/a"), root("/a/x"), cwd("/b"), root("/b/y"), cwd("/c"), cwd("/a")]).await,
        [cwd("/a"), root("/a/x"), cwd("/b"), root("/b/y"), cwd("/a")]
    );
}

#[tokio::test(start_paused = true)]
async fn a_working_directory_is_set_only_if_the_cli_confirms_it() {
    let confirmed = json!({"status": "ok", "cwd": "/a"});
    assert_eq!(noted_of(&[(cwd("/a"), confirmed)]).await, [cwd("/a")]);
    let rejected = json!({"status": "rejected", "message": "busy with a turn"});
    assert!(noted_of(&[(cwd("/a"), rejected)]).await.is_empty());
    assert!(noted_of(&[(cwd("/a"), json!({"status": "needs_trust"}))]).await.is_empty());
    assert_eq!(noted_of(&[(model("a"), json!({"status": "x"}))]).await, [model("a")]);

    let (_session, mut end, mut events) = killed_after(&[(cwd("/a"), json!({}))]).await;
    let request = within(SOON, end.expect_request("set_cwd")).await;
    end.answer(&request, json!({"status": "needs_trust"}));
    let cause = event(&mut events, |event| match event {
        Event::Failed { cause } => Some(cause.clone()),
        _ => None,
    });
    let cause = cause.await;
    assert!(cause.contains("could not be set again: needs_trust"), "{cause}");
}

#[tokio::test(start_paused = true)]
async fn a_path_is_noted_as_the_cli_resolved_it() {
    assert_eq!(noted_of(&[(cwd("sub"), json!({"status": "ok", "cwd": "/a/sub"}))]).await, [cwd("/a/sub")]);
    assert_eq!(noted_of(&[(root("x"), json!({"directory": "/a/x"}))]).await, [root("/a/x")]);
    for answer in [json!({}), json!({"cwd": "sub", "directory": null}), Value::Null] {
        assert_eq!(noted_of(&[(cwd("sub"), answer.clone())]).await, [cwd("sub")]);
        assert_eq!(noted_of(&[(root("x"), answer)]).await, [root("x")]);
    }
    assert_eq!(noted_of(&[(model("a"), json!({"cwd": "/a"}))]).await, [model("a")]);
}
