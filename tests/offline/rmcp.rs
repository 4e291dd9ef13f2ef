//! Servers that are made with `rmcp`, in a session.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{SOON, call, counters, error_text, event, rpc_answer, start_by_hand, stop, text, within};
use ::rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelledNotificationParam, ClientResult,
    ContentBlock, CustomRequest, JsonObject, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, RequestId, ServerCapabilities, ServerConfig, ServerRequest, Tool,
};
use ::rmcp::service::{NotificationContext, RequestContext};
use ::rmcp::{ErrorData, Peer, RoleServer, ServerHandler, ServiceError};
use greenroom::report::ServerStatus;
use greenroom::tool::ToolPolicy;
use greenroom::transport::Exit;
use greenroom::{ErrorKind, Event, NoArgs, Session, SessionBuilder, ToolServer};
use greenroom_testkit::{CliEnd, LeakCheck};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// Messages from a desk to its test.
#[derive(Debug)]
enum Said {
    Initialized { knows_the_client: bool },
    Called { id: RequestId, peer: Peer<RoleServer> },
    Cancelled(RequestId),
    Seen(&'static str),
    News,
}

struct Desk {
    say: mpsc::UnboundedSender<Said>,
    desks: Arc<AtomicUsize>,
    number: usize,
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.desks.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Says that a handler is dropped, and whether it had its time.
struct Ends(mpsc::UnboundedSender<Said>, &'static str);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.send(Said::Seen(self.1)).ok();
    }
}

impl ServerHandler for Desk {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        ServerConfig::new(capabilities).with_instructions("Ring the bell.")
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![Tool::new("number", "Its number", JsonObject::new())]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let said = Said::Called { id: context.id.clone(), peer: context.peer.clone() };
        self.say.send(said).unwrap();
        let answer = match &*request.name {
            "number" => self.number.to_string(),
            "panic" => panic!("the bell is broken"),
            "wait" => {
                context.ct.cancelled().await;
                self.say.send(Said::Seen("its token")).unwrap();
                "too late".into()
            }
            "ignore" => {
                let _ends = Ends(self.say.clone(), "its end");
                std::future::pending().await
            }
            "progress" => {
                let token = context.meta.get_progress_token().unwrap();
                let progress = ProgressNotificationParam::new(token.clone(), 1.0).with_total(2.0);
                context.peer.notify_progress(progress).await.unwrap();
                serde_json::to_string(&token).unwrap()
            }
            "changed" => {
                context.peer.notify_tool_list_changed().await.unwrap();
                "told".into()
            }
            "ask" => match context.peer.send_request(custom("roots/list")).await {
                Ok(ClientResult::CustomResult(result)) => result.0.to_string(),
                Ok(other) => json!(other).to_string(),
                Err(ServiceError::McpError(error)) => format!("{}: {}", error.code.0, error.message),
                Err(other) => other.to_string(),
            },
            "ping" => {
                context.peer.send_request(custom("ping")).await.unwrap();
                "answered".into()
            }
            "fail" => return Err(ErrorData::invalid_params("no such desk", Some(json!({ "desk": 7 })))),
            other => return Ok(CallToolResult::error(vec![ContentBlock::text(format!("no {other}"))]).into()),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(answer)]).into())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let knows_the_client =
            context.peer.peer_info().is_some_and(|info| info.client_info.name == "claude-code");
        self.say.send(Said::Initialized { knows_the_client }).ok();
    }

    async fn on_cancelled(&self, cancelled: CancelledNotificationParam, _: NotificationContext<RoleServer>) {
        self.say.send(Said::Cancelled(cancelled.request_id.unwrap())).ok();
    }

    async fn on_roots_list_changed(&self, _: NotificationContext<RoleServer>) {
        self.say.send(Said::News).ok();
    }
}

fn custom(method: &str) -> ServerRequest {
    ServerRequest::CustomRequest(CustomRequest::new(method, None))
}

struct Hear {
    heard: mpsc::UnboundedReceiver<Said>,
    desks: Arc<AtomicUsize>,
}

impl Hear {
    async fn next(&mut self) -> Said {
        within(SOON, self.heard.recv()).await.unwrap()
    }

    async fn called(&mut self) -> (RequestId, Peer<RoleServer>) {
        match self.next().await {
            Said::Called { id, peer } => (id, peer),
            other => panic!("{other:?}"),
        }
    }

    async fn seen(&mut self, what: &str) {
        assert!(matches!(self.next().await, Said::Seen(seen) if seen == what));
    }
}

fn desk() -> (ToolServer, Hear) {
    let (say, heard) = mpsc::unbounded_channel();
    let (desks, made) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    let hear = Hear { heard, desks: desks.clone() };
    let server = greenroom::rmcp::mount("desk", move || {
        desks.fetch_add(1, Ordering::SeqCst);
        Desk { say: say.clone(), desks: desks.clone(), number: made.fetch_add(1, Ordering::SeqCst) + 1 }
    });
    (server, hear)
}

fn builder(server: ToolServer) -> SessionBuilder {
    Session::builder().mcp_server(server).configure(|options| {
        options.restarts.panics.intensity = 2;
        options.timeouts.cancel_grace = Duration::from_secs(2);
    })
}

/// Begins an MCP session as the CLI does.
async fn initialize(end: &mut CliEnd) -> Value {
    let client = json!({ "name": "claude-code", "version": "2.1.328" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let id = end.mcp("desk", json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }));
    let answer = rpc_answer(end, &id).await;
    let id = end.mcp("desk", json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    rpc_answer(end, &id).await;
    answer
}

async fn started(server: ToolServer, hear: &mut Hear) -> (Session, CliEnd) {
    let (session, mut end, _listener) = start_by_hand(builder(server)).await;
    initialize(&mut end).await;
    assert!(matches!(hear.next().await, Said::Initialized { knows_the_client: true }));
    (session, end)
}

/// The next message that the server sends by itself.
async fn pushed(end: &mut CliEnd) -> Value {
    let request = within(SOON, end.expect_request("mcp_message")).await;
    end.answer(&request, json!({}));
    assert_eq!(request["request"]["server_name"], "desk");
    request["request"]["message"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_handler_answers_what_the_cli_asks_under_ids_that_do_not_repeat() {
    let leaks = LeakCheck::tasks();
    let (server, mut hear) = desk();
    let (session, mut end, listener) = start_by_hand(builder(server)).await;
    let status = session.snapshot().await.unwrap().servers.remove(0);
    assert_eq!((status.status, status.mcp_sessions), (ServerStatus::Up, 0), "the CLI has to ask first");
    let answer = initialize(&mut end).await;
    assert_eq!((&answer["id"], &answer["result"]["protocolVersion"]), (&json!(0), &json!("2025-11-25")));
    assert_eq!(answer["result"]["instructions"], "Ring the bell.");
    assert_eq!(answer["result"]["capabilities"], json!({ "tools": { "listChanged": true } }));
    assert!(matches!(hear.next().await, Said::Initialized { knows_the_client: true }));
    let list = end.mcp("desk", json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
    assert_eq!(rpc_answer(&mut end, &list).await["result"]["tools"][0]["name"], "number");

    let waiting = end.call_tool("desk", "wait", json!({}));
    let (first, _) = hear.called().await;
    // Another MCP session, whose ids begin anew.
    initialize(&mut end).await;
    hear.next().await;
    assert_eq!(text(&call(&mut end, "desk", "number", json!({})).await), "1");
    let (second, _) = hear.called().await;
    assert_ne!(first, second);
    end.send(json!({ "type": "control_cancel_request", "request_id": waiting }));
    assert!(matches!(hear.next().await, Said::Seen("its token")));
    assert!(
        matches!(hear.next().await, Said::Cancelled(id) if id == first),
        "under the id that the handler knows"
    );

    let failed = call(&mut end, "desk", "fail", json!({})).await;
    let error = json!({ "code": -32602, "message": "no such desk", "data": { "desk": 7 } });
    assert_eq!(failed["error"], error);
    hear.called().await;
    assert_eq!(error_text(&call(&mut end, "desk", "lamp", json!({})).await), "no lamp");
    hear.called().await;
    let unknown = end.mcp("desk", json!({ "jsonrpc": "2.0", "id": "x", "method": "no/such" }));
    assert_eq!(rpc_answer(&mut end, &unknown).await["error"]["code"], -32601);
    let news = end.mcp("desk", json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }));
    rpc_answer(&mut end, &news).await;
    assert!(matches!(hear.next().await, Said::News));
    let odd = end.mcp("desk", json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": 5 }));
    assert!(rpc_answer(&mut end, &odd).await["error"].is_object());

    stop(session, end).await;
    assert_eq!(hear.desks.load(Ordering::SeqCst), 0, "the handler is dropped");
    drop(listener);
    leaks.assert_none(SOON).await;
}

#[tokio::test(start_paused = true)]
async fn panicking_handlers_are_answered_and_replaced_past_the_intensity() {
    let (server, mut hear) = desk();
    let (session, mut end) = started(server, &mut hear).await;
    let mut events = session.events();
    let open = end.call_tool("desk", "ignore", json!({}));
    hear.called().await;
    for _ in 0..3 {
        let answer = call(&mut end, "desk", "panic", json!({})).await;
        assert_eq!(error_text(&answer), "tool 'panic' panicked: the bell is broken");
        hear.called().await;
    }
    event(&mut events, |event| matches!(event, Event::ServerRestarted { generation: 2, .. }).then_some(()))
        .await;
    assert!(
        matches!(hear.next().await, Said::Initialized { knows_the_client: true }),
        "it is told who is there"
    );
    assert_eq!(text(&call(&mut end, "desk", "number", json!({})).await), "2");
    hear.called().await;
    assert_eq!(hear.desks.load(Ordering::SeqCst), 2, "a call of the first handler goes on");
    end.send(json!({ "type": "control_cancel_request", "request_id": open }));
    assert!(matches!(hear.next().await, Said::Cancelled(_)), "and its handler is told of its end");
    hear.seen("its end").await;
    assert_eq!(counters(&session).await.panics, 3);
    stop(session, end).await;
    assert_eq!(hear.desks.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_answered_and_its_handler_ends_within_the_grace() {
    let (server, mut hear) = desk();
    let (session, mut end) = started(server, &mut hear).await;
    let open = end.call_tool("desk", "ignore", json!({}));
    let (id, _) = hear.called().await;
    let rpc_id = end.last_rpc_id();
    let before = tokio::time::Instant::now();
    let cancelled = end.cancel_call("desk", rpc_id);
    assert_eq!(rpc_answer(&mut end, &open).await["error"]["code"], -32800);
    rpc_answer(&mut end, &cancelled).await;
    assert!(matches!(hear.next().await, Said::Cancelled(told) if told == id));
    assert_eq!(before.elapsed(), Duration::ZERO);
    hear.seen("its end").await;
    assert_eq!(before.elapsed(), Duration::from_secs(2));
    assert_eq!(counters(&session).await.aborted, 1);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_handler_sends_reaches_the_cli_as_long_as_it_belongs_there() {
    let (server, mut hear) = desk();
    let (session, mut end) = started(server, &mut hear).await;
    let progress = end.call_tool("desk", "progress", json!({}));
    let token = end.last_rpc_id();
    let params = json!({ "progressToken": token, "progress": 1.0, "total": 2.0 });
    let message = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
    assert_eq!(pushed(&mut end).await, message);
    let ours = text(&rpc_answer(&mut end, &progress).await).to_owned();
    let (_, peer) = hear.called().await;
    assert_ne!(ours, token.to_string(), "the CLI's repeat");

    // Too late: the call is over.
    let late = serde_json::from_str(&ours).unwrap();
    peer.notify_progress(ProgressNotificationParam::new(late, 2.0)).await.unwrap();
    peer.notify_tool_list_changed().await.unwrap();
    assert_eq!(pushed(&mut end).await["method"], "notifications/tools/list_changed");

    // The CLI answers a ping, and takes no other request of an in-process server.
    let asking = end.call_tool("desk", "ask", json!({}));
    let refused = "-32601: the CLI takes no request 'roots/list' of an in-process server";
    assert_eq!(text(&rpc_answer(&mut end, &asking).await), refused);
    hear.called().await;
    let pinging = end.call_tool("desk", "ping", json!({}));
    assert_eq!(text(&rpc_answer(&mut end, &pinging).await), "answered");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_is_answered_and_one_that_loses_its_cli_is_told() {
    let (server, mut hear) = desk();
    let (session, mut end, mut listener) = start_by_hand(
        builder(server).configure(|options| options.timeouts.tool = Some(Duration::from_secs(30))),
    )
    .await;
    initialize(&mut end).await;
    hear.next().await;
    let answer = call(&mut end, "desk", "wait", json!({})).await;
    assert_eq!(error_text(&answer), "tool 'wait' did not finish within its limit of 30s");
    hear.called().await;
    hear.seen("its token").await;
    assert!(matches!(hear.next().await, Said::Cancelled(_)));

    end.call_tool("desk", "wait", json!({}));
    let (_, peer) = hear.called().await;
    end.exit(Exit::Signal(9));
    hear.seen("its token").await;
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    initialize(&mut end).await;
    assert!(matches!(hear.next().await, Said::Cancelled(_)));
    assert!(matches!(hear.next().await, Said::Initialized { .. }));
    assert_eq!(text(&call(&mut end, "desk", "number", json!({})).await), "1", "the handler stays");
    peer.notify_tool_list_changed().await.unwrap();
    assert_eq!(
        pushed(&mut end).await["method"],
        "notifications/tools/list_changed",
        "the CLI of the moment hears"
    );
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_mounted_server_comes_and_goes_and_offers_what_its_handler_does() {
    let (session, mut end, _listener) = start_by_hand(Session::builder()).await;
    let (server, mut hear) = desk();
    assert_eq!(server.call("number", json!({})).await.text(), "1");
    assert!(server.call("fail", json!({})).await.is_error);
    let (added, ()) =
        tokio::join!(session.add_mcp_server(server.tool_policy("any", ToolPolicy::AlwaysAsk)), async {
            let request = within(SOON, end.expect_request("mcp_set_servers")).await;
            assert_eq!(request["request"]["servers"]["desk"]["tools"][0]["name"], "any");
            end.answer(&request, json!({ "added": ["desk"], "removed": [], "errors": {} }));
        });
    added.unwrap();
    initialize(&mut end).await;
    assert_eq!(text(&call(&mut end, "desk", "number", json!({})).await), "2");
    let open = end.call_tool("desk", "wait", json!({}));
    while !matches!(hear.next().await, Said::Called { id, .. } if id != RequestId::Number(0)) {}
    let (removed, ()) = tokio::join!(session.remove_mcp_server("desk"), async {
        let request = within(SOON, end.expect_request("mcp_set_servers")).await;
        end.answer(&request, json!({ "added": [], "removed": ["desk"], "errors": {} }));
        assert!(rpc_answer(&mut end, &open).await["error"].is_object());
    });
    removed.unwrap();
    assert_eq!(hear.desks.load(Ordering::SeqCst), 0);
    stop(session, end).await;

    let beside = desk().0.tool("more", "More", async |_: NoArgs| "");
    let error = Session::builder().mcp_server(beside).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    let failing = greenroom::rmcp::mount_with("desk", |_| async { Err::<Desk, _>("the desk is on fire") });
    let mut failing = builder(failing);
    let mut events = failing.events();
    let (session, end, _listener) = start_by_hand(failing).await;
    let cause = event(&mut events, |event| match event {
        Event::ServerFailed { cause, .. } => Some(cause.clone()),
        _ => None,
    });
    assert!(cause.await.contains("the desk is on fire"));
    stop(session, end).await;
}
