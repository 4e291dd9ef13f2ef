//! `ToolServer::call` and `handle` treat a handler as a session does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{self, SOON, start_by_hand, stop, within};
use greenroom::mcp::ResourceDef;
use greenroom::{NoArgs, Session, ToolContext, ToolDef, ToolServer};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(30);

/// A tool that never returns. Sends once it runs, and again when it is dropped.
fn hanging(ended: mpsc::UnboundedSender<&'static str>) -> ToolDef<()> {
    struct Told(mpsc::UnboundedSender<&'static str>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.send("dropped").ok();
        }
    }
    ToolDef::new("hang", "Hangs", move |_: NoArgs, cx: ToolContext| {
        let told = Told(ended.clone());
        async move {
            told.0.send("runs").ok();
            cx.cancelled().await;
            told.0.send("cancelled").ok();
            std::future::pending::<()>().await;
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_direct_call_keeps_the_limit_and_reads_as_in_a_session() {
    let server = || {
        let slow = ToolDef::new("slow", "Slow", async |_: NoArgs| tokio::time::sleep(LIMIT * 2).await);
        let note = ResourceDef::new("file:///slow", "slow", async |_, _: ToolContext| {
            tokio::time::sleep(LIMIT * 2).await;
            "a note"
        });
        ToolServer::new("x", "1").add_tool(slow.timeout(LIMIT)).resource(note.timeout(LIMIT))
    };
    let read =
        json!({ "jsonrpc": "2.0", "id": 7, "method": "resources/read", "params": { "uri": "file:///slow" } });
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server())).await;
    let in_session = common::call(&mut end, "x", "slow", json!({})).await;
    let asked = end.mcp("x", read.clone());
    let read_in_session = within(SOON, end.answer_to(&asked)).await["mcp_response"].clone();
    stop(session, end).await;

    let direct: ToolServer = server();
    let started = Instant::now();
    let result = direct.call("slow", json!({})).await;
    assert!(result.is_error);
    assert_eq!(result.text(), "tool 'slow' did not finish within its limit of 30s");
    assert_eq!(json!(result), in_session["result"]);
    assert_eq!(started.elapsed(), LIMIT + Duration::from_secs(5), "the limit and the grace time");
    assert_eq!(direct.handle(read).await.unwrap(), read_in_session);
}

#[tokio::test(start_paused = true)]
async fn an_overdue_handler_is_cancelled_has_its_grace_and_is_dropped() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let server: ToolServer = ToolServer::new("x", "1").add_tool(hanging(tell).timeout(LIMIT));
    within(SOON, server.call("hang", json!({}))).await;
    let mut seen = Vec::new();
    while let Ok(what) = told.try_recv() {
        seen.push(what);
    }
    assert_eq!(seen, ["runs", "cancelled", "dropped"], "nothing of the handler is left after the call");

    // A handler that listens to its token ends at once.
    let polite = ToolDef::new("polite", "", async |_: NoArgs, cx: ToolContext| cx.cancelled().await);
    let server: ToolServer = ToolServer::new("x", "1").add_tool(polite.timeout(LIMIT));
    let started = Instant::now();
    assert!(within(SOON, server.call("polite", json!({}))).await.is_error);
    assert_eq!(started.elapsed(), LIMIT);
}

#[tokio::test(start_paused = true)]
async fn a_handler_of_a_direct_call_knows_its_deadline() {
    let tool = ToolDef::new("left", "", async |_: NoArgs, cx: ToolContext| {
        cx.deadline().map_or(0, |deadline| (deadline - Instant::now()).as_secs())
    });
    let server: ToolServer = ToolServer::new("x", "1").add_tool(tool.timeout(LIMIT));
    assert_eq!(server.call("left", json!({})).await.text(), "30");
}

#[tokio::test(start_paused = true)]
async fn time_to_make_the_state_counts_for_the_limit_of_a_direct_call() {
    let begun = Arc::new(AtomicU64::new(0));
    let count = begun.clone();
    let tool = ToolDef::new("late", "", move |_: NoArgs, _: ToolContext<u32>| {
        count.fetch_add(1, Ordering::Relaxed);
        async {}
    });
    let server: ToolServer = ToolServer::new("x", "1").add_tool(tool.timeout(LIMIT)).state_with(|_| async {
        tokio::time::sleep(LIMIT * 2).await;
        Ok::<_, std::io::Error>(1)
    });
    assert!(server.call("late", json!({})).await.text().contains("did not finish"));
    assert_eq!(begun.load(Ordering::Relaxed), 0, "as in a session, the handler does not begin");
    assert!(!server.call("late", json!({})).await.is_error, "the state is there now");
}

#[tokio::test]
async fn dropping_a_direct_call_cancels_its_token() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let tool = ToolDef::new("hang", "", move |_: NoArgs, cx: ToolContext| {
        tell.send(cx.cancellation().clone()).ok();
        std::future::pending::<()>()
    });
    let quick = ToolDef::new("quick", "", async |_: NoArgs, cx: ToolContext| cx.is_cancelled());
    let server: ToolServer = ToolServer::new("x", "1").add_tool(tool).add_tool(quick);
    let token = tokio::select! {
        biased;
        _ = server.call("hang", json!({})) => panic!("the tool never returns"),
        token = told.recv() => token.unwrap(),
    };
    assert!(token.is_cancelled());
    assert_eq!(server.call("quick", json!({})).await.text(), "false", "another call is not affected");
}
