//! Tools that come and go in a running session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use greenroom::options::OLDEST_CLI;
use greenroom::{ErrorKind, Event, NoArgs, Session, ToolContext, ToolDef, ToolServer};
use greenroom_testkit::{Fault, ScriptedCli};
use serde_json::json;
use tokio::sync::Notify;

use super::{ask, methods, pushed, tools};
use crate::common::*;

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

fn says(name: &str, what: &'static str) -> ToolDef {
    ToolDef::new(name, "Says something", move |_: NoArgs| std::future::ready(what))
}

fn base() -> ToolServer {
    ToolServer::new("base", "1.0.0").add_tool(says("first", "one"))
}

#[tokio::test(start_paused = true)]
async fn added_tools_are_announced_and_called_and_removed_tools_not_found() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(base())).await;
    let server = session.server("base").unwrap();
    assert!(session.server("other").is_none());
    server.add_tool(says("second", "two")).unwrap();
    // A call that comes before the CLI is told of the tool finds it.
    assert_eq!(text(&call(&mut end, "base", "second", json!({})).await), "two");
    pushed(&mut end, TOOLS_CHANGED).await;
    assert_eq!(tools(&mut end, "base").await, ["first", "second"]);

    assert!(server.remove_tool("first").unwrap());
    assert!(!server.remove_tool("first").unwrap());
    let answer = call(&mut end, "base", "first", json!({})).await;
    assert_eq!(answer["error"], json!({ "code": -32601, "message": "Tool 'first' not found" }));
    assert_eq!(tools(&mut end, "base").await, ["second"]);
    assert_eq!(methods(&settled(&mut end).await), [TOOLS_CHANGED], "what changed nothing is not told");

    assert!(server.disable_tool("second").unwrap() && !server.disable_tool("second").unwrap());
    assert_eq!(call(&mut end, "base", "second", json!({})).await["error"]["code"], -32601);
    assert_eq!((tools(&mut end, "base").await, server.tools()), (vec![], vec![]));
    assert!(server.enable_tool("second").unwrap() && !server.enable_tool("second").unwrap());
    assert_eq!(text(&call(&mut end, "base", "second", json!({})).await), "two");

    for (fault, result) in [
        ("there is one", server.add_tool(says("second", "again"))),
        ("no name", server.add_tool(says("", "again"))),
        ("no such tool", server.enable_tool("none").map(drop)),
        ("no such state", server.add_tool(ToolDef::new("x", "", async |_: NoArgs, _: ToolContext<u8>| ""))),
    ] {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidOption, "{fault}");
    }
    stop(session, end).await;
    assert_eq!(server.add_tool(says("late", "")).unwrap_err().kind(), ErrorKind::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_goes_on_when_its_tool_is_removed_or_replaced() {
    let (started, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (starts, released) = (started.clone(), release.clone());
    let slow = ToolDef::<()>::new("slow", "Waits", move |_: NoArgs| {
        let (starts, released) = (starts.clone(), released.clone());
        async move {
            starts.notify_one();
            released.notified().await;
            "the old one"
        }
    })
    .max_concurrency(1);
    let server = base().add_tool(slow);
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let handle = session.server("base").unwrap();
    let first = end.call_tool("base", "slow", json!({}));
    within(SOON, started.notified()).await;
    // A change of something else leaves the count of its calls as it is: the second one waits for its place.
    handle.add_tool(says("other", "x")).unwrap();
    let second = end.call_tool("base", "slow", json!({}));
    assert_eq!(text(&call(&mut end, "base", "first", json!({})).await), "one");
    assert!(handle.remove_tool("slow").unwrap());
    handle.add_tool(says("slow", "the new one")).unwrap();
    assert_eq!(text(&call(&mut end, "base", "slow", json!({})).await), "the new one");
    release.notify_one();
    assert_eq!(text(&rpc_answer(&mut end, &first).await), "the old one");
    release.notify_one();
    assert_eq!(text(&rpc_answer(&mut end, &second).await), "the old one");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_changed_survives_a_restart_of_the_server_and_of_the_cli() {
    let server = ToolServer::new("base", "1.0.0")
        .tool("count", "Counts", async |_: NoArgs, cx: ToolContext<AtomicU32>| {
            cx.fetch_add(1, Ordering::Relaxed)
        })
        .state(|| AtomicU32::new(0));
    let (session, mut end, mut listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let handle = session.server("base").unwrap();
    let double = ToolDef::new("double", "Counts in twos", async |_: NoArgs, cx: ToolContext<AtomicU32>| {
        cx.fetch_add(2, Ordering::Relaxed) + 2
    });
    handle.add_tool(double).unwrap();
    handle.disable_tool("count").unwrap();
    pushed(&mut end, TOOLS_CHANGED).await;
    assert_eq!(text(&call(&mut end, "base", "double", json!({})).await), "2");

    let mut events = session.events();
    session.inject(Fault::PanicServer("base".into()));
    event(&mut events, |event| matches!(event, Event::ServerRestarted { .. }).then_some(())).await;
    assert_eq!(tools(&mut end, "base").await, ["double"]);
    assert_eq!(text(&call(&mut end, "base", "double", json!({})).await), "2", "with the fresh state");

    // The next CLI knows it from its manifest, and what changes while there is none as well.
    session.inject(Fault::KillPort);
    event(&mut events, |event| matches!(event, Event::CliRestarting { .. }).then_some(())).await;
    handle.enable_tool("count").unwrap();
    let mut end = within(SOON, listener.accept()).await;
    let initialize = within(SOON, end.handshake()).await;
    let manifest = &initialize["request"]["sdkMcpServerManifests"]["base"];
    let names: Vec<_> =
        manifest["toolsListResult"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["count", "double"]);
    event(&mut events, |event| matches!(event, Event::CliRestarted { .. }).then_some(())).await;
    assert_eq!(methods(&settled(&mut end).await), Vec::<&str>::new(), "it knows, and is not told again");
    handle.remove_tool("double").unwrap();
    pushed(&mut end, TOOLS_CHANGED).await;
    assert_eq!(tools(&mut end, "base").await, ["count"]);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_change_during_initialize_is_told_when_the_cli_is_ready() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let mut builder = Session::builder().mcp_server(base()).transport(transport);
    let mut events = builder.events();
    let (session, _first) = within(SOON, async {
        tokio::join!(builder.start(), async {
            let mut end = listener.accept().await;
            end.handshake().await;
            end
        })
    })
    .await;
    let session = session.unwrap();
    session.inject(Fault::KillPort);
    event(&mut events, |event| matches!(event, Event::CliRestarting { .. }).then_some(())).await;
    let mut end = within(SOON, listener.accept()).await;
    let initialize = within(SOON, end.expect_request("initialize")).await;
    session.server("base").unwrap().add_tool(says("second", "two")).unwrap();
    assert_eq!(tools(&mut end, "base").await, ["first", "second"]);
    end.answer(
        &initialize,
        json!({ "claude_code_version": OLDEST_CLI, "capabilities": ["sdk_mcp_manifests"] }),
    );
    pushed(&mut end, TOOLS_CHANGED).await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_changes_its_own_server_and_each_session_has_its_own_list() {
    let login = ToolDef::<()>::new("login", "Opens the rest", async |_: NoArgs, cx: ToolContext| {
        let server = cx.server_handle().ok_or("no session")?;
        server.add_tool(says("secret", "42")).map_err(|_| "no")?;
        server.disable_tool("login").map_err(|_| "no").map(|_| "welcome")
    });
    let builder = Session::builder().mcp_server(base().add_tool(login));
    let (one, mut end, _listener) = start_by_hand(builder.clone()).await;
    let (other, mut other_end, _other_listener) = start_by_hand(builder).await;
    assert_eq!(text(&call(&mut end, "base", "login", json!({})).await), "welcome");
    pushed(&mut end, TOOLS_CHANGED).await;
    assert_eq!(tools(&mut end, "base").await, ["first", "secret"]);
    assert_eq!(tools(&mut other_end, "base").await, ["first", "login"]);
    stop(one, end).await;
    stop(other, other_end).await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_changes_at_once_are_told_in_few_words() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(base())).await;
    let handle = session.server("base").unwrap();
    for n in 0..1000 {
        handle.add_tool(says(&format!("tool{n}"), "here")).unwrap();
    }
    let told = methods(&settled(&mut end).await).len();
    assert!((1..10).contains(&told), "told {told} times");
    assert_eq!(tools(&mut end, "base").await.len(), 1001);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_added_at_run_time_changes_like_any_other() {
    let (session, mut end, _listener) = start_by_hand(Session::builder()).await;
    let (added, ()) = within(SOON, async {
        tokio::join!(session.add_mcp_server(base()), async {
            let set = end.expect_request("mcp_set_servers").await;
            let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
            ask(&mut end, "base", "initialize", params).await;
            assert_eq!(tools(&mut end, "base").await, ["first"]);
            end.answer(&set, json!({ "added": ["base"], "removed": [], "errors": {} }));
        })
    })
    .await;
    added.unwrap();
    assert_eq!(methods(&settled(&mut end).await), Vec::<&str>::new(), "the CLI has just asked");
    session.server("base").unwrap().add_tool(says("second", "two")).unwrap();
    pushed(&mut end, TOOLS_CHANGED).await;
    assert_eq!(tools(&mut end, "base").await, ["first", "second"]);
    stop(session, end).await;
}
