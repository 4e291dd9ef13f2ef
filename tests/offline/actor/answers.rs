//! Every request is answered exactly once, in the words of the protocol, whatever else stands on the pipe.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::*;

use greenroom::guardian::Watchdog;
use greenroom::tool::LogLevel;
use greenroom::{Event, NoArgs, PermissionDecision, Session, ToolContext, ToolServer};
use greenroom_testkit::{CliEnd, Fault};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Order {
    item: Item,
    count: u32,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Item {
    name: String,
    sizes: Vec<u32>,
}

/// A server with a tool that answers at once and one that waits for its release.
struct Shop {
    server: ToolServer,
    orders: Arc<AtomicU32>,
    waiting: mpsc::UnboundedReceiver<()>,
    release: Arc<Notify>,
}

fn shop() -> Shop {
    let (started, waiting) = mpsc::unbounded_channel();
    let (orders, release) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let (ordered, released) = (orders.clone(), release.clone());
    let server = ToolServer::new("shop", "1.0.0")
        .tool("order", "Orders something", move |order: Order| {
            let number = ordered.fetch_add(1, Ordering::Relaxed) + 1;
            async move { format!("{number}: {} {} {:?}", order.count, order.item.name, order.item.sizes) }
        })
        .tool("wait", "Waits", move |_: NoArgs| {
            let (started, released) = (started.clone(), released.clone());
            async move {
                started.send(()).ok();
                released.notified().await;
                "done"
            }
        });
    Shop { server, orders, waiting, release }
}

fn order() -> Value {
    json!({ "item": { "name": "cup", "sizes": [1, 2] }, "count": 3 })
}

/// Sends a control request under an id of the test's own.
fn request_as(end: &mut CliEnd, request_id: &str, body: Value) {
    end.send(json!({ "type": "control_request", "request_id": request_id, "request": body }));
}

fn tool_call(tool: &str, arguments: Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    let message = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
    json!({ "subtype": "mcp_message", "server_name": "shop", "message": message })
}

/// Asserts that no request is pending, and that the counters account for each request.
async fn nothing_is_owed(session: &Session) {
    let snapshot = session.snapshot().await.unwrap();
    assert!(snapshot.router.unwrap().owed.is_empty());
    let counters = snapshot.counters;
    let settled = counters.answered + counters.cancelled + counters.refused + counters.orphaned;
    assert_eq!(settled, counters.requests, "{counters:?}");
}

// Guards: answered-once
// Guards: a `request_id` that is in flight
#[tokio::test(start_paused = true)]
async fn a_request_id_reused_in_flight_is_dropped_and_the_first_answered_once() {
    let Shop { server, orders, mut waiting, release } = shop();
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    request_as(&mut end, "same", tool_call("wait", json!({})));
    within(SOON, waiting.recv()).await.unwrap();
    request_as(&mut end, "same", tool_call("order", order()));
    request_as(&mut end, "same", json!({ "subtype": "of_tomorrow" }));
    assert_eq!(answers(&settled(&mut end).await, "same").len(), 0);
    assert_eq!(orders.load(Ordering::Relaxed), 0, "the second one ran");
    release.notify_one();
    assert_eq!(text(&rpc_answer(&mut end, "same").await), "done");
    assert_eq!(answers(&settled(&mut end).await, "same").len(), 0);
    assert_eq!(counters(&session).await.duplicate_requests, 2);

    // An id that is not in flight any more is free.
    request_as(&mut end, "same", tool_call("order", order()));
    assert_eq!(text(&rpc_answer(&mut end, "same").await), "1: 3 cup [1, 2]");
    assert_eq!(counters(&session).await.duplicate_requests, 2);
    nothing_is_owed(&session).await;
    stop(session, end).await;
}

// Guards: unknown server, tool, method
#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_said_in_the_words_of_the_protocol() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(shop().server)).await;
    let request = |method: &str| json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": {} });
    let server = end.mcp("nowhere", request("ping"));
    let method = end.mcp("shop", request("resources/list"));
    let tool = end.call_tool("shop", "steal", json!({}));
    let id = end.last_rpc_id();
    for (request_id, id, said) in [
        (server, 7, "Server 'nowhere' not found"),
        (method, 7, "Method 'resources/list' not supported"),
        (tool, id, "Tool 'steal' not found"),
    ] {
        let answer = rpc_answer(&mut end, &request_id).await;
        let error = json!({ "code": -32601, "message": said });
        assert_eq!(answer, json!({ "jsonrpc": "2.0", "id": id, "error": error }));
    }
    assert_eq!(counters(&session).await.not_found, 3);
    nothing_is_owed(&session).await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn no_handler_begins_after_the_deadline_of_the_watchdog() {
    let Shop { server, orders, .. } = shop();
    let builder = Session::builder().mcp_server(server).watchdog(&Watchdog::without_deadline());
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let request = end.call_tool("shop", "order", order());
    let answer = rpc_answer(&mut end, &request).await;
    let said = answer["error"]["message"].as_str().unwrap();
    assert!(said.contains("the deadline of its watchdog"), "{answer}");
    assert_eq!(orders.load(Ordering::Relaxed), 0);
    nothing_is_owed(&session).await;
    stop(session, end).await;
}

// Guards: arguments that do not fit
#[tokio::test(start_paused = true)]
async fn arguments_that_do_not_fit_are_a_result_that_names_the_field() {
    let Shop { server, orders, .. } = shop();
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    for (arguments, field) in [
        (json!({ "item": { "name": "cup", "sizes": [] }, "count": "three" }), "`count`"),
        (json!({ "item": { "name": "cup", "sizes": [1, -1] }, "count": 3 }), "`item.sizes[1]`"),
        (json!({ "item": { "name": 5, "sizes": [] }, "count": 3 }), "`item.name`"),
        (json!({ "item": { "name": "cup", "sizes": [] } }), "`count`"),
        (json!({}), "`item`"),
        (Value::Null, "item"),
    ] {
        let answer = call(&mut end, "shop", "order", arguments).await;
        let said = error_text(&answer);
        assert!(said.starts_with("Input validation error") && said.contains(field), "{said}");
        assert!(!said.contains(" at line "), "{said}");
    }
    assert_eq!(orders.load(Ordering::Relaxed), 0, "no handler was called");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn parameters_of_a_call_that_name_no_tool_are_refused() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(shop().server)).await;
    let request =
        end.mcp("shop", json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": { "x": 1 } }));
    let answer = rpc_answer(&mut end, &request).await;
    assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(-32602), &json!(3)));
    assert!(answer["error"]["message"].as_str().unwrap().contains("name"), "{answer}");
    stop(session, end).await;
}

// Guards: an unknown control request
#[tokio::test(start_paused = true)]
async fn unknown_subtypes_are_refused_and_incomplete_ones_say_what_is_missing() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(shop().server)).await;
    let unknown = end.request(json!({ "subtype": "of_tomorrow", "what": 1 }));
    let answer = within(SOON, end.answer_to(&unknown)).await;
    assert_eq!(
        answer,
        json!({
            "subtype": "error", "request_id": unknown, "error_code": "unsupported_request",
            "error": "Unsupported control request subtype: of_tomorrow",
        })
    );
    let incomplete = end.request(json!({ "subtype": "mcp_message", "message": {} }));
    let answer = within(SOON, end.answer_to(&incomplete)).await;
    assert_eq!(answer["subtype"], "error");
    assert!(answer["error"].as_str().unwrap().contains("`server_name`"), "{answer}");
    end.send(json!({ "type": "control_request", "request_id": "bare" }));
    let answer = within(SOON, end.answer_to("bare")).await;
    assert!(answer["error"].as_str().unwrap().contains("`request`"), "{answer}");
    assert_eq!(counters(&session).await.unknown_requests, 1);
    nothing_is_owed(&session).await;
    stop(session, end).await;
}

const SILENT: [&str; 4] =
    ["remote_tool_call", "remote_plumbing_call", "remote_tools_probe", "remote_tools_reannounce"];

// Guards: an unknown control request
#[tokio::test(start_paused = true)]
async fn what_is_meant_for_another_machine_is_left_unanswered() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(shop().server)).await;
    let requests = SILENT.map(|subtype| end.request(json!({ "subtype": subtype })));
    let frames = settled(&mut end).await;
    for request_id in &requests {
        assert_eq!(answers(&frames, request_id).len(), 0, "{request_id}");
    }
    assert_eq!(counters(&session).await.silent_requests, 4);
    nothing_is_owed(&session).await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn notifications_and_responses_of_mcp_are_acknowledged() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(shop().server)).await;
    for message in [
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed", "params": {} }),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "none" } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "no": "id" } }),
        json!({ "jsonrpc": "2.0", "id": 0, "result": {} }),
        json!({ "jsonrpc": "2.0", "id": 0, "error": { "code": -32601, "message": "no" } }),
    ] {
        let request_id = end.mcp("shop", message.clone());
        let answer = rpc_answer(&mut end, &request_id).await;
        assert_eq!(answer, json!({ "jsonrpc": "2.0", "result": {}, "id": 0 }), "{message}");
    }
    nothing_is_owed(&session).await;
    stop(session, end).await;
}

/// Sends a line and returns the line that answers it, as it stands on the wire.
async fn raw_answer(end: &mut CliEnd, request_id: &str, rpc_id: &str) -> Value {
    let ping = format!(r#"{{"jsonrpc":"2.0","id":{rpc_id},"method":"ping"}}"#);
    let body = format!(r#"{{"message":{ping},"server_name":"shop","subtype":"mcp_message"}}"#);
    end.send_bytes(format!(
        "{{\"request\":{body},\"request_id\":\"{request_id}\",\"type\":\"control_request\"}}\n"
    ));
    rpc_answer(end, request_id).await
}

// Guards: lossless
#[tokio::test(start_paused = true)]
async fn json_rpc_ids_come_back_as_they_were() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(shop().server)).await;
    let ids = ["0", "18446744073709551615", "-9223372036854775808", r#""a b""#, r#""ü\n\"""#, "1.5"];
    for (number, id) in ids.into_iter().enumerate() {
        let answer = raw_answer(&mut end, &format!("raw_{number}"), id).await;
        assert_eq!(answer["id"].to_string(), id);
        assert_eq!(answer["result"], json!({}));
    }
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_older_spelling_is_understood() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(shop().server)).await;
    let params = json!({ "name": "order", "arguments": order() });
    let message = json!({ "jsonrpc": "2.0", "id": "old", "method": "tools/call", "params": params });
    let old = json!({ "subtype": "sdk_mcp_request", "serverName": "shop", "message": message });
    let request_id = end.request(old);
    let answer = rpc_answer(&mut end, &request_id).await;
    assert_eq!((text(&answer), &answer["id"]), ("1: 3 cup [1, 2]", &json!("old")));
    stop(session, end).await;
}

// Guards: a line that is no JSON, a blank line
// Guards: a line that begins like a frame and is none, or is over the bound
#[tokio::test(start_paused = true)]
async fn lines_that_cannot_be_read_are_skipped_and_reading_goes_on() {
    let builder = Session::builder().mcp_server(shop().server);
    let builder = builder.configure(|options| options.limits.line_bytes = 2000);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();

    // No event for any of these lines: builds of the CLI print them.
    end.send_bytes("[SandboxDebug] hello\n\n   \n\r\nnull\n42\n\"{}\"\n");
    // These begin like frames.
    end.send_bytes("{\"type\":\"control_request\",\n{}\n{\"type\":\"control_request\"}\n");
    end.send_bytes(b"{\"type\":\"bad utf-8 \xff\"}\n".to_vec());
    end.send_bytes(format!("{{\"type\":\"{}\"}}\n", "x".repeat(3000)));
    // In pieces, with the old line end of another system, and together with the next.
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let request = json!({ "subtype": "mcp_message", "server_name": "shop", "message": ping });
    for request_id in ["first", "second"] {
        let line = json!({ "type": "control_request", "request_id": request_id, "request": request });
        let line = format!("{line}\r\n");
        let (head, tail) = line.split_at(30);
        end.send_bytes(head);
        tokio::task::yield_now().await;
        end.send_bytes(tail);
    }
    for request_id in ["first", "second"] {
        assert_eq!(rpc_answer(&mut end, request_id).await["result"], json!({}));
    }

    for _ in 0..5 {
        let (epoch, bytes) = event(&mut events, |event| match event {
            Event::LineSkipped { epoch, bytes, .. } => Some((*epoch, *bytes)),
            _ => None,
        })
        .await;
        assert!(epoch == 1 && bytes > 0);
    }
    let counters = counters(&session).await;
    assert_eq!((counters.noise_lines, counters.malformed_lines, counters.overlong_lines), (7, 4, 1));
    stop(session, end).await;
}

// Guards: a line that begins like a frame and is none, or is over the bound
#[tokio::test(start_paused = true)]
async fn a_line_of_the_longest_length_is_read_and_one_byte_more_is_not() {
    let builder = Session::builder().mcp_server(shop().server);
    let builder = builder.configure(|options| options.limits.line_bytes = 2_000);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    let line = |id: &str, length: usize| {
        let line = |padding: &str| json!({ "type": "control_request", "request_id": id, "request": { "subtype": padding } });
        let short = line("").to_string().len();
        format!("{}\n", line(&"x".repeat(length - short)))
    };
    end.send_bytes(line("too_long", 2_001));
    end.send_bytes(line("fits", 2_000));
    assert_eq!(within(SOON, end.answer_to("fits")).await["error_code"], "unsupported_request");
    let skipped = event(&mut events, |event| match event {
        Event::LineSkipped { bytes, reason, .. } => Some((*bytes, reason.clone())),
        _ => None,
    });
    assert_eq!(skipped.await, (2_001, "longer than `limits.line_bytes` (2000)".into()));
    assert_eq!(answers(&settled(&mut end).await, "too_long").len(), 0);
    stop(session, end).await;
}

// Guards: control-first
// Guards: more requests than may be in flight
#[tokio::test(start_paused = true)]
async fn more_calls_than_the_limit_are_refused_and_the_others_go_on() {
    let Shop { server, mut waiting, release, .. } = shop();
    let builder = Session::builder().mcp_server(server);
    let builder = builder.configure(|options| options.limits.calls_in_flight = 3);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut in_flight = Vec::new();
    for _ in 0..3 {
        in_flight.push((end.call_tool("shop", "wait", json!({})), end.last_rpc_id()));
        within(SOON, waiting.recv()).await.unwrap();
    }
    let refused = end.call_tool("shop", "order", order());
    let id = end.last_rpc_id();
    let answer = rpc_answer(&mut end, &refused).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(id), &json!(-32603)));
    assert_eq!(answer["error"]["message"], "at capacity: 3 requests are in flight");
    let hook = end.request(json!({ "subtype": "can_use_tool", "tool_name": "Bash", "input": {} }));
    let answer = within(SOON, end.answer_to(&hook)).await;
    assert_eq!(
        (&answer["subtype"], &answer["error"]),
        (&json!("error"), &json!("at capacity: 3 requests are in flight"))
    );
    assert_eq!(counters(&session).await.at_capacity, 2);

    // Cancellations are admitted at capacity, and the cancelled call frees capacity.
    let (cancelled, rpc_id) = in_flight.remove(0);
    end.cancel_call("shop", rpc_id);
    assert_eq!(rpc_answer(&mut end, &cancelled).await["error"]["code"], -32800);
    assert_eq!(text(&call(&mut end, "shop", "order", order()).await), "1: 3 cup [1, 2]");
    release.notify_waiters();
    for (request_id, _) in &in_flight {
        assert_eq!(text(&rpc_answer(&mut end, request_id).await), "done");
    }
    nothing_is_owed(&session).await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn at_capacity_a_request_that_may_not_be_answered_is_not() {
    let Shop { server, mut waiting, release, .. } = shop();
    let builder = Session::builder().mcp_server(server);
    let builder = builder.configure(|options| options.limits.calls_in_flight = 1);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    request_as(&mut end, "first", tool_call("wait", json!({})));
    within(SOON, waiting.recv()).await.unwrap();
    // The id is in flight: an answer to this request would answer the first.
    request_as(&mut end, "first", tool_call("order", order()));
    let silent = SILENT.map(|subtype| end.request(json!({ "subtype": subtype })));
    let frames = settled(&mut end).await;
    assert_eq!(answers(&frames, "first").len(), 0, "{frames:?}");
    for request_id in &silent {
        assert_eq!(answers(&frames, request_id).len(), 0, "{frames:?}");
    }
    release.notify_one();
    assert_eq!(text(&rpc_answer(&mut end, "first").await), "done");
    assert_eq!(answers(&settled(&mut end).await, "first").len(), 0);
    assert_eq!(counters(&session).await.duplicate_requests, 1);
    nothing_is_owed(&session).await;
    stop(session, end).await;
}

/// A server whose tool reports progress and logs before it answers.
fn reporting() -> ToolServer {
    ToolServer::new("shop", "1.0.0").tool("work", "Reports", async |_: NoArgs, cx: ToolContext| {
        for step in 1..=50 {
            cx.progress(f64::from(step), Some(50.0), Some("working")).await;
            cx.log(LogLevel::Info, json!({ "step": step })).await;
        }
        cx.log(LogLevel::Error, "almost").await;
        "done"
    })
}

/// The notifications that come before the answer to this request.
async fn notifications_before(end: &mut CliEnd, request_id: &str) -> Vec<Value> {
    let mut notifications = Vec::new();
    loop {
        let frame = within(SOON, end.recv()).await.unwrap();
        if frame["response"]["request_id"] == request_id {
            assert_eq!(frame["response"]["response"]["mcp_response"]["result"]["content"][0]["text"], "done");
            return notifications;
        }
        assert_eq!(frame["request"]["subtype"], "mcp_message", "{frame}");
        assert_eq!(frame["request"]["server_name"], "shop");
        end.answer(&frame, json!({}));
        notifications.push(frame["request"]["message"].clone());
    }
}

#[tokio::test(start_paused = true)]
async fn progress_and_log_reach_the_cli_in_order_and_before_the_answer() {
    let builder = Session::builder().mcp_server(reporting());
    // The queue is shorter than the number of notifications, so the tool waits for them to be written.
    let builder = builder.configure(|options| options.limits.notifications_queued = 2);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let request_id = end.call_tool("shop", "work", json!({}));
    let token = end.last_rpc_id();
    let notifications = notifications_before(&mut end, &request_id).await;
    assert_eq!(notifications.len(), 101);
    for (index, pair) in notifications[..100].chunks(2).enumerate() {
        let step = index + 1;
        assert_eq!(pair[0]["method"], "notifications/progress");
        let params = json!({
            "progressToken": token, "progress": f64::from(u32::try_from(step).unwrap()), "total": 50.0,
            "message": "working",
        });
        assert_eq!(pair[0]["params"], params);
        assert_eq!(pair[1]["method"], "notifications/message");
        assert_eq!(pair[1]["params"], json!({ "level": "info", "logger": "work", "data": { "step": step } }));
    }
    assert_eq!(notifications[100]["params"]["data"], "almost");
    // The CLI acknowledges notifications; nothing waits for these answers.
    settled(&mut end).await;
    assert_eq!(counters(&session).await.unmatched_responses, 0);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_progress_token_there_is_no_progress() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(reporting())).await;
    let request_id = end.request(tool_call("work", json!({})));
    let notifications = notifications_before(&mut end, &request_id).await;
    assert_eq!(notifications.len(), 51);
    assert!(notifications.iter().all(|notification| notification["method"] == "notifications/message"));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn log_messages_below_the_level_that_was_set_are_left_out() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(reporting())).await;
    let set = |level: &str| {
        let params = json!({ "level": level });
        json!({ "jsonrpc": "2.0", "id": 5, "method": "logging/setLevel", "params": params })
    };
    let request_id = end.mcp("shop", set("warning"));
    assert_eq!(rpc_answer(&mut end, &request_id).await["result"], json!({}));
    let request_id = end.request(tool_call("work", json!({})));
    let notifications = notifications_before(&mut end, &request_id).await;
    assert_eq!(notifications.len(), 1);
    assert_eq!(notifications[0]["params"]["level"], "error");

    // The CLI sends this once, so a restarted server has to remember it.
    let mut events = session.events();
    session.inject(Fault::KillServer("shop".into()));
    event(&mut events, |event| matches!(event, Event::ServerRestarted { .. }).then_some(())).await;
    let request_id = end.request(tool_call("work", json!({})));
    assert_eq!(notifications_before(&mut end, &request_id).await.len(), 1);

    let request_id = end.mcp("shop", set("loud"));
    assert_eq!(rpc_answer(&mut end, &request_id).await["error"]["code"], -32602, "and the level stays");
    let request_id = end.mcp("shop", set("debug"));
    rpc_answer(&mut end, &request_id).await;
    let request_id = end.request(tool_call("work", json!({})));
    assert_eq!(notifications_before(&mut end, &request_id).await.len(), 51);
    stop(session, end).await;
}

// Guards: answered-once
#[tokio::test(start_paused = true)]
async fn ten_thousand_concurrent_calls_each_get_their_own_answer_once() {
    let server = ToolServer::new("shop", "1.0.0").tool("echo", "Says it again", async |said: Said| {
        if said.number.is_multiple_of(3) {
            tokio::task::yield_now().await;
        }
        said.number
    });
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let requests: Vec<String> =
        (0..10_000).map(|number| end.call_tool("shop", "echo", json!({ "number": number }))).collect();
    let mut frames = std::collections::HashMap::new();
    while frames.len() < requests.len() {
        let frame = within(SOON, end.recv()).await.unwrap();
        let request_id = frame["response"]["request_id"].as_str().unwrap().to_owned();
        assert!(frames.insert(request_id.clone(), frame).is_none(), "two answers to {request_id}");
    }
    for (number, request_id) in requests.iter().enumerate() {
        let answer = &frames[request_id]["response"]["response"]["mcp_response"];
        assert_eq!(text(answer), number.to_string());
    }
    assert!(settled(&mut end).await.is_empty());
    nothing_is_owed(&session).await;
    stop(session, end).await;
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Said {
    number: u32,
}

#[tokio::test(start_paused = true)]
async fn half_a_character_is_no_reason_not_to_call() {
    let server = ToolServer::new("shop", "1.0.0").tool("find", "Finds", async |sought: Sought| sought.name);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    let builder = Session::builder().mcp_server(server).can_use_tool(move |request, _| {
        seen.lock().unwrap().push(request.input["name"].clone());
        std::future::ready(PermissionDecision::allow())
    });
    let (session, mut end, _listener) = start_by_hand(builder).await;
    // The CLI writes half a surrogate pair for a string that was cut in the middle of a character.
    end.send_bytes(concat!(
        r#"{"type":"control_request","request_id":"a","request":{"subtype":"mcp_message","server_name":"shop","#,
        r#""message":{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"find","#,
        r#""arguments":{"name":"tea \ud83d"}}}}}"#,
        "\n",
        r#"{"type":"control_request","request_id":"b","request":{"subtype":"can_use_tool","tool_name":"Bash","#,
        r#""input":{"name":"tea \ud83d"},"tool_use_id":"t"}}"#,
        "\n",
    ));
    assert_eq!(text(&rpc_answer(&mut end, "a").await), "tea \u{fffd}");
    assert_eq!(within(SOON, end.answer_to("b")).await["behavior"], "allow");
    assert_eq!(*asked.lock().unwrap(), [json!("tea \u{fffd}")]);
    stop(session, end).await;
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Sought {
    name: String,
}
