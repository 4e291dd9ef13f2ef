//! The promises of a tool call hold for every other handler.

use std::time::Duration;

use greenroom::mcp::{ReadResource, ResourceDef, ResourceTemplateDef};
use greenroom::{Event, NoArgs, Session, SessionBuilder, ToolContext, ToolServer};
use greenroom_testkit::{CliEnd, Fault};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::common::*;

/// A server each of whose handlers does what it is told: panics, hangs, or answers.
fn server() -> (ToolServer, mpsc::UnboundedReceiver<&'static str>) {
    let (say, heard) = mpsc::unbounded_channel::<&'static str>();
    let hang = move |cx: ToolContext| {
        let say = say.clone();
        async move {
            say.send("started").unwrap();
            cx.cancelled().await;
            say.send("told").unwrap();
            std::future::pending::<()>().await;
        }
    };
    let reads = hang.clone();
    let server = ToolServer::new("odd", "1.0.0")
        .tool("quick", "Answers", async |_: NoArgs| "here")
        .resource(ResourceDef::new("odd://boom", "boom", async |_: ReadResource, _: ToolContext| -> String {
            panic!("kaboom")
        }))
        .resource(ResourceDef::new("odd://soon", "soon", |_: ReadResource, _: ToolContext| {
            panic!("before the future");
            #[allow(unreachable_code, reason = "its type")]
            std::future::ready("")
        }))
        .resource(
            ResourceDef::new("odd://limit", "limit", async |_: ReadResource, _: ToolContext| {
                std::future::pending::<String>().await
            })
            .timeout(Duration::from_secs(2)),
        )
        .resource(ResourceDef::new("odd://fine", "fine", async |_: ReadResource, cx: ToolContext| {
            cx.generation().to_string()
        }))
        .resource_template(ResourceTemplateDef::new(
            "odd://hang/{id}",
            "hang",
            move |_: ReadResource, cx: ToolContext| {
                let hang = reads(cx);
                async move {
                    hang.await;
                    "never"
                }
            },
        ))
        .resource(ResourceDef::new("odd://wait", "wait", move |_: ReadResource, cx: ToolContext| {
            let hang = hang(cx);
            async move {
                hang.await;
                "never"
            }
        }));
    (server, heard)
}

fn ask(end: &mut CliEnd, id: u64, method: &str, params: Value) -> String {
    end.mcp("odd", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

fn read(end: &mut CliEnd, id: u64, uri: &str) -> String {
    ask(end, id, "resources/read", json!({ "uri": uri }))
}

fn hangs(end: &mut CliEnd) -> Vec<String> {
    vec![read(end, 70, "odd://hang/1"), read(end, 71, "odd://wait"), read(end, 72, "odd://hang/2")]
}

async fn hear(heard: &mut mpsc::UnboundedReceiver<&'static str>, what: &str, times: usize) {
    for _ in 0..times {
        assert_eq!(within(SOON, heard.recv()).await, Some(what));
    }
}

async fn start(change: impl FnOnce(SessionBuilder) -> SessionBuilder) -> Stage {
    let (server, heard) = server();
    let (session, end, listener) = start_by_hand(change(Session::builder().mcp_server(server))).await;
    Stage { session, end, heard, _listener: listener }
}

struct Stage {
    session: Session,
    end: CliEnd,
    heard: mpsc::UnboundedReceiver<&'static str>,
    _listener: greenroom_testkit::ScriptedListener,
}

// Guards: the handler of a resource panics, hangs or is cancelled
#[tokio::test(start_paused = true)]
async fn a_panic_is_answered_told_and_harms_nobody() {
    let Stage { session, mut end, .. } = start(|builder| builder).await;
    let mut events = session.events();
    for (uri, text) in [("odd://boom", "kaboom"), ("odd://soon", "before the future")] {
        let request_id = read(&mut end, 5, uri);
        let answer = rpc_answer(&mut end, &request_id).await;
        let message = format!("the handler of 'resources/read {uri}' panicked: {text}");
        assert_eq!(answer["error"], json!({ "code": -32603, "message": message }));
        let told = event(&mut events, |event| match event {
            Event::CallPanicked { server, tool, request_id, message } => {
                Some((server.clone(), tool.clone(), request_id.clone(), message.clone()))
            }
            _ => None,
        });
        let expected = ("odd".to_owned(), format!("resources/read {uri}"), request_id, text.to_owned());
        assert_eq!(told.await, expected);
    }
    assert_eq!(text(&call(&mut end, "odd", "quick", json!({})).await), "here");
    assert_eq!(counters(&session).await.panics, 2);
    stop(session, end).await;
}

// Guards: the handler of a resource panics, hangs or is cancelled
#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_delays_nobody_and_its_limit_answers_for_it() {
    let Stage { session, mut end, mut heard, .. } =
        start(|builder| builder.configure(|options| options.timeouts.tool = Some(Duration::from_secs(9))))
            .await;
    let limited = read(&mut end, 60, "odd://limit");
    let hanging = hangs(&mut end);
    hear(&mut heard, "started", 3).await;
    assert_eq!(text(&call(&mut end, "odd", "quick", json!({})).await), "here");
    let labels: Vec<_> =
        session.snapshot().await.unwrap().servers[0].calls.iter().map(|call| call.tool.clone()).collect();
    assert_eq!(labels.len(), 4, "{labels:?}");
    assert!(labels.contains(&"resources/read odd://wait".to_owned()), "{labels:?}");
    let answer = rpc_answer(&mut end, &limited).await;
    let message = "'resources/read odd://limit' did not finish within its limit of 2s";
    assert_eq!(answer["error"], json!({ "code": -32603, "message": message }));
    for (request_id, id) in hanging.iter().zip(70..) {
        let answer = rpc_answer(&mut end, request_id).await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(id), &json!(-32603)), "{answer}");
    }
    hear(&mut heard, "told", 3).await;
    assert_eq!(counters(&session).await.timeouts, 4);
    stop(session, end).await;
}

// Guards: the handler of a resource panics, hangs or is cancelled
#[tokio::test(start_paused = true)]
async fn a_cancelled_request_is_answered_once_and_its_handler_is_told() {
    let Stage { session, mut end, mut heard, .. } = start(|builder| builder).await;
    let hanging = hangs(&mut end);
    hear(&mut heard, "started", 3).await;
    (70..73).for_each(|id| drop(end.cancel_call("odd", id)));
    for request_id in &hanging {
        assert_eq!(rpc_answer(&mut end, request_id).await["error"]["code"], -32800);
    }
    hear(&mut heard, "told", 3).await;
    // After the grace time the handlers are taken away; none of them answers again.
    tokio::time::sleep(session.shutdown_bound()).await;
    let frames = settled(&mut end).await;
    assert!(hanging.iter().all(|request_id| answers(&frames, request_id).is_empty()), "{frames:?}");
    let counters = counters(&session).await;
    assert_eq!((counters.cancelled, counters.aborted), (3, 3));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_restarts_answers_for_its_requests_and_serves_the_next() {
    let Stage { session, mut end, mut heard, .. } = start(|builder| builder).await;
    let hanging = hangs(&mut end);
    hear(&mut heard, "started", 3).await;
    session.inject(Fault::PanicServer("odd".into()));
    for request_id in &hanging {
        assert_eq!(rpc_answer(&mut end, request_id).await["error"]["code"], -32603);
    }
    let request_id = read(&mut end, 80, "odd://fine");
    assert_eq!(rpc_answer(&mut end, &request_id).await["result"]["contents"][0]["text"], "2");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_the_state_and_can_be_cancelled_before() {
    let (release, released) = tokio::sync::watch::channel(false);
    let server = ToolServer::new("odd", "1.0.0")
        .resource(ResourceDef::new("odd://state", "state", async |_: ReadResource, cx: ToolContext<u32>| {
            cx.state().to_string()
        }))
        .state_with(move |_| {
            let mut released = released.clone();
            async move { released.wait_for(|released| *released).await.map(|_| 7_u32) }
        });
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let (first, second) = (read(&mut end, 1, "odd://state"), read(&mut end, 2, "odd://state"));
    end.cancel_call("odd", 1);
    assert_eq!(rpc_answer(&mut end, &first).await["error"]["code"], -32800);
    release.send_replace(true);
    assert_eq!(rpc_answer(&mut end, &second).await["result"]["contents"][0]["text"], "7");
    drop(release);
    stop(session, end).await;
}
