//! Servers that come and go in a running session.

use std::sync::{Arc, Mutex};

use greenroom::options::ExternalServer;
use greenroom::session::McpServerSet;
use greenroom::tool::ToolPolicy;
use greenroom::{NoArgs, PermissionDecision, Session, ToolContext, ToolDef, ToolServer};
use greenroom_testkit::{ModelTurn, Script};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::sync::{Notify, mpsc};

use crate::snapshot::reported_cli;
use crate::stage::{Add, Stage, answers, call, hears, in_time, loaded, start, stop, text};

/// A stdio MCP server, with a tool `shout`.
fn outside() -> ExternalServer {
    ExternalServer::stdio(env!("CARGO_BIN_EXE_greenroom-fake-cli"), Vec::<String>::new())
        .with_env("FAKE_CLI", "mcp-server")
}

fn adds(name: &str) -> ToolServer {
    let add = ToolDef::new("add", "Add two numbers", async |args: Add| args.a + args.b);
    ToolServer::new(name, "1.0.0").add_tool(loaded(add))
}

/// A server with a tool `wait`, which says that it was called and waits until it is let go, or cancelled.
fn waits(name: &str) -> (ToolServer, mpsc::UnboundedReceiver<&'static str>, Arc<Notify>) {
    let (said, hear) = mpsc::unbounded_channel();
    let go = Arc::new(Notify::new());
    let let_go = go.clone();
    let wait = ToolDef::new("wait", "Wait to be let go", move |_: NoArgs, cx: ToolContext| {
        let (said, go) = (said.clone(), go.clone());
        async move {
            said.send("called").unwrap();
            tokio::select! {
                () = go.notified() => "waited",
                () = cx.cancelled() => {
                    said.send("cancelled").unwrap();
                    "cancelled"
                }
            }
        }
    });
    (ToolServer::new(name, "1.0.0").add_tool(loaded(wait)), hear, let_go)
}

fn add(server: &str) -> ModelTurn {
    ModelTurn::new().call(format!("mcp__{server}__add"), json!({ "a": 5, "b": 3 }))
}

/// Waits until the CLI has begun this many MCP sessions with a server.
async fn is_initialized(session: &Session, server: &str, sessions: u64) {
    in_time("the MCP session", async {
        loop {
            let snapshot = session.snapshot().await.unwrap();
            let server = snapshot.servers.iter().find(|known| known.name == server).unwrap();
            if server.mcp_sessions >= sessions {
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Results of tool calls in the model's newest request.
fn results(stage: &Stage) -> Vec<(String, bool)> {
    stage.last_request().tool_results().into_iter().map(|result| (result.text, result.is_error)).collect()
}

#[tokio::test]
async fn servers_added_during_a_call_serve_the_same_turn_and_the_next_cli() {
    let script = Script::new()
        .turn(ModelTurn::new().call("mcp__first__wait", json!({})))
        .turn(add("second").call("mcp__outside__shout", json!({ "text": "hello" })))
        .turn(text("All three."))
        .turn(add("second").call("mcp__outside__shout", json!({ "text": "again" })))
        .turn(text("Both."));
    let Some(stage) = Stage::new(script).await else { return };
    let (first, mut hear, let_go) = waits("first");
    let builder = stage.builder().mcp_server(first).allow_server_tools("first");
    let session = start(builder).await;
    let mut turn = session.prompt("Go.").await.unwrap();
    hears(&mut hear, "called").await;

    // The first one has had no MCP session of its own, for its handshake was known beforehand; now all begin anew.
    in_time("adding", session.add_mcp_server(adds("second"))).await.unwrap();
    is_initialized(&session, "first", 1).await;
    is_initialized(&session, "second", 1).await;
    in_time("adding", session.add_external_mcp_server("outside", outside())).await.unwrap();
    session.allow_server_tools("second").await.unwrap();
    session.allow_server_tools("outside").await.unwrap();
    let nowhere = ExternalServer::stdio("/nowhere/to/be/found", Vec::<String>::new());
    let refused = session.add_external_mcp_server("nowhere", nowhere).await.unwrap_err();
    assert!(refused.to_string().contains("ENOENT"), "{refused}");
    let_go.notify_one();
    let outcome = in_time("the turn", turn.outcome()).await.unwrap();
    assert_eq!(outcome.text(), Some("All three."), "{outcome:?}");
    assert_eq!(results(&stage), [("8".to_owned(), false), ("HELLO".to_owned(), false)]);
    let waited = &stage.model.requests()[1].tool_results()[0];
    assert_eq!((&*waited.text, waited.is_error), ("waited", false), "the call in flight was not disturbed");

    let pid = reported_cli(&session).await.pid.unwrap();
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    answers(&session, "Again.", "Both.").await;
    assert_eq!(results(&stage), [("8".to_owned(), false), ("AGAIN".to_owned(), false)]);
    let status = session.requests().control(json!({ "subtype": "mcp_status" })).await.unwrap();
    let connected = |server: &serde_json::Value| server["status"] == "connected";
    assert!(status["mcpServers"].as_array().unwrap().iter().all(connected), "{status}");
    assert_eq!(reported_cli(&session).await.epoch, 2);
    stop(&session).await;
}

#[tokio::test]
async fn a_server_is_removed_during_its_call_and_a_set_is_replaced() {
    let script = Script::new()
        .turn(ModelTurn::new().call("mcp__going__wait", json!({})))
        .turn(text("It is gone."))
        .turn(add("new").call("mcp__first__add", json!({ "a": 1, "b": 1 })))
        .turn(text("One is new."));
    let Some(stage) = Stage::new(script).await else { return };
    let (going, mut hear, _let_go) = waits("going");
    let builder = stage.builder().mcp_server(adds("first")).mcp_server(going);
    let session = start(builder.allow_server_tools("going")).await;
    let mut turn = session.prompt("Go.").await.unwrap();
    hears(&mut hear, "called").await;
    in_time("removing", session.remove_mcp_server("going")).await.unwrap();
    hears(&mut hear, "cancelled").await;
    let outcome = in_time("the turn", turn.outcome()).await.unwrap();
    assert_eq!(outcome.text(), Some("It is gone."), "{outcome:?}");
    assert_eq!(results(&stage), [("Connection closed".to_owned(), true)]);

    let set = McpServerSet::new().server(adds("new")).external("outside", outside());
    let result = in_time("the set", session.set_mcp_servers(set)).await.unwrap();
    assert_eq!((result.added.len(), &*result.removed), (2, &["first".to_owned()][..]), "{result:?}");
    session.allow_server_tools("new").await.unwrap();
    answers(&session, "Add.", "One is new.").await;
    let results = results(&stage);
    assert_eq!(results[0], ("8".to_owned(), false));
    assert!(results[1].1 && results[1].0.contains("No such tool"), "{results:?}");
    stop(&session).await;
}

#[tokio::test]
async fn tool_policies_override_rules_also_of_servers_added_later() {
    let every = || {
        let call = |turn: ModelTurn, tool: &str| turn.call(format!("mcp__{tool}"), json!({}));
        ["early__free", "early__ask", "early__deny", "late__deny", "late__allow"]
            .into_iter()
            .fold(ModelTurn::new(), call)
    };
    let script = Script::new().turn(every()).turn(text("Once.")).turn(every()).turn(text("Twice."));
    let script = script.turn(every()).turn(text("Thrice."));
    let Some(stage) = Stage::new(script).await else { return };
    let tool = |name| loaded(ToolDef::new(name, "Answers", async |_: NoArgs| "answered"));
    let early = ToolServer::new("early", "1.0.0")
        .add_tool(tool("free"))
        .add_tool(tool("ask"))
        .add_tool(tool("deny"))
        .tool_policy("ask", ToolPolicy::AlwaysAsk)
        .tool_policy("deny", ToolPolicy::AlwaysDeny);
    let late = ToolServer::new("late", "1.0.0")
        .add_tool(tool("allow"))
        .add_tool(tool("deny"))
        .tool_policy("allow", ToolPolicy::AlwaysAllow)
        .tool_policy("deny", ToolPolicy::AlwaysDeny);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let ask = asked.clone();
    let builder = stage.builder().mcp_server(early.clone()).allow_server_tools("early").can_use_tool(
        move |request, _| {
            ask.lock().unwrap().push(request.tool_name);
            std::future::ready(PermissionDecision::allow())
        },
    );
    let session = start(builder).await;
    for (prompt, answer, late_is_there) in [("Once", "Once.", false), ("Twice", "Twice.", true)] {
        answers(&session, prompt, answer).await;
        let results = results(&stage);
        let fine: Vec<_> = results.iter().map(|(_, is_error)| !is_error).collect();
        assert_eq!(fine, [true, true, false, false, late_is_there], "{results:?}");
        assert!(results[2].0.contains("No such tool"), "{results:?}");
        let tools = stage.last_request().body()["tools"].to_string();
        assert!(tools.contains("mcp__early__ask") && !tools.contains("mcp__early__deny"), "{tools}");
        let asked = std::mem::take(&mut *asked.lock().unwrap());
        // An `AlwaysAllow` of a server in this process is nothing to the CLI: it asks.
        let expected = ["mcp__early__ask", "mcp__late__allow"];
        assert_eq!(asked, expected[..1 + usize::from(late_is_there)]);
        if !late_is_there {
            in_time("adding", session.add_mcp_server(late.clone())).await.unwrap();
        }
    }
    stop(&session).await;

    let session = start(stage.builder().mcp_server(early).allow_server_tools("early")).await;
    answers(&session, "Thrice", "Thrice.").await;
    let results = results(&stage);
    assert!(!results[0].1 && results[1].1, "there is nobody to ask: {results:?}");
    stop(&session).await;
}

#[cfg(feature = "rmcp")]
mod mounted {
    use ::rmcp::model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject, ListToolsResult,
        MetaObject, PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig,
        Tool,
    };
    use ::rmcp::service::RequestContext;
    use ::rmcp::{ErrorData, RoleServer, ServerHandler};

    use super::*;

    struct Desk {
        said: mpsc::UnboundedSender<&'static str>,
    }

    impl ServerHandler for Desk {
        fn get_info(&self) -> ServerConfig {
            ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build())
        }

        async fn list_tools(
            &self,
            _: Option<PaginatedRequestParams>,
            _: RequestContext<RoleServer>,
        ) -> Result<ListToolsResult, ErrorData> {
            let schema = json!({ "type": "object" }).as_object().unwrap().clone();
            let tool = |name: &'static str| {
                let mut tool = Tool::new(name, "A tool of rmcp", schema.clone());
                let mut meta = JsonObject::new();
                meta.insert("anthropic/alwaysLoad".into(), json!(true));
                tool.meta = Some(MetaObject(meta));
                tool
            };
            Ok(ListToolsResult::with_all_items(["client", "panic", "hang"].map(tool).to_vec()))
        }

        async fn call_tool(
            &self,
            request: CallToolRequestParams,
            context: RequestContext<RoleServer>,
        ) -> Result<CallToolResponse, ErrorData> {
            match &*request.name {
                "client" => {
                    let token = context.meta.get_progress_token().unwrap();
                    context.peer.notify_progress(ProgressNotificationParam::new(token, 1.0)).await.unwrap();
                    context.peer.notify_tool_list_changed().await.unwrap();
                    let client = context.peer.peer_info().unwrap().client_info.name.clone();
                    Ok(CallToolResult::success(vec![ContentBlock::text(client)]).into())
                }
                "panic" => panic!("the bell is broken"),
                _ => {
                    self.said.send("called").unwrap();
                    context.ct.cancelled().await;
                    self.said.send("cancelled").unwrap();
                    Err(ErrorData::internal_error("too late", None))
                }
            }
        }
    }

    #[tokio::test]
    async fn a_handler_of_rmcp_serves_panics_is_cancelled_and_comes_late() {
        let call = |tool: &str| ModelTurn::new().call(format!("mcp__desk__{tool}"), json!({}));
        let script = Script::new()
            .turn(call("client"))
            .turn(call("panic"))
            .turn(text("Fine."))
            .turn(call("hang"))
            .turn(ModelTurn::new().call("mcp__late__client", json!({})))
            .turn(text("Late."));
        let Some(stage) = Stage::new(script).await else { return };
        let (said, mut hear) = mpsc::unbounded_channel();
        let desk = |name: &str| {
            let said = said.clone();
            greenroom::rmcp::mount(name, move || Desk { said: said.clone() })
        };
        let session = start(stage.builder().mcp_server(desk("desk")).allow_server_tools("desk")).await;
        answers(&session, "Who is there?", "Fine.").await;
        assert_eq!(stage.model.requests()[1].tool_results()[0].text, "claude-code");
        let panicked = stage.last_result();
        assert_eq!((&*panicked.text, panicked.is_error), ("tool 'panic' panicked: the bell is broken", true));

        let mut turn = session.prompt("Hang.").await.unwrap();
        hears(&mut hear, "called").await;
        in_time("the interrupt", session.interrupt()).await.unwrap();
        hears(&mut hear, "cancelled").await;
        in_time("the turn", turn.outcome()).await.unwrap();

        in_time("adding", session.add_mcp_server(desk("late"))).await.unwrap();
        session.allow_server_tools("late").await.unwrap();
        answers(&session, "Come late.", "Late.").await;
        assert_eq!(stage.last_result().text, "claude-code");
        let counters = session.snapshot().await.unwrap().counters;
        assert_eq!((counters.panics, counters.server_restarts, counters.cli_restarts), (1, 0, 0));
        stop(&session).await;
    }
}

#[tokio::test]
async fn only_a_deferred_tool_fails_with_advice_about_the_search() {
    for always_load in [true, false] {
        let script = Script::new().turn(call("fail", json!({}))).turn(text("It failed."));
        let Some(stage) = Stage::new(script).await else { return };
        let fail = ToolDef::new("fail", "Fails", async |_: NoArgs| Err::<(), _>("out of tea"));
        let server = ToolServer::new("calc", "1.0.0").add_tool(fail).always_load(always_load);
        let session = stage.start(server).await;
        answers(&session, "go", "It failed.").await;
        let result = stage.last_result().text;
        match always_load {
            true => assert_eq!(result, "out of tea"),
            false => assert!(result.starts_with("out of tea") && result.contains("ToolSearch"), "{result}"),
        }
        let first = &stage.model.requests()[0];
        let shown = first.tool_names().contains(&"mcp__calc__fail");
        let named = first.body().to_string().contains("mcp__calc__fail");
        assert_eq!((shown, named), (always_load, true), "a deferred tool is known by its name only");
        stop(&session).await;
    }
}
