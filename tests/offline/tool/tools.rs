//! Tools without a session: what the model is told of them, and what becomes of a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use greenroom::mcp::ResourceContents;
use greenroom::tool::{CallToolResult, Content, ToolAnnotations};
use greenroom::{Json, NoArgs, ToolContext, ToolDef, ToolServer};
use greenroom_testkit::{Delivered, ScriptedCli};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Deserialize, JsonSchema)]
struct Search {
    /// What to look for
    query: String,
    #[serde(default = "ten")]
    limit: u32,
    #[serde(default)]
    tags: Vec<String>,
}

fn ten() -> u32 {
    10
}

#[derive(Serialize, JsonSchema)]
struct Found {
    count: u32,
}

async fn list(server: &ToolServer) -> Vec<Value> {
    let answer = server.handle(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})).await.unwrap();
    answer["result"]["tools"].as_array().unwrap().clone()
}

#[tokio::test]
async fn the_model_is_told_everything_that_a_tool_says_of_itself() {
    let server = ToolServer::new("shop", "2.0.0").add_tool(
        ToolDef::new("search", "Search the shop", async |args: Search| Json(Found { count: args.limit }))
            .annotations(ToolAnnotations {
                title: Some("Search".into()),
                destructive_hint: Some(false),
                idempotent_hint: Some(true),
                open_world_hint: Some(false),
                ..ToolAnnotations::default()
            })
            .read_only_hint(true)
            .always_load(true)
            .meta("anthropic/searchHint", "products")
            .meta("anthropic/maxResultSizeChars", 1000)
            .meta("mine", json!({"a": 1})),
    );
    let tools = list(&server).await;
    let tool = &tools[0];
    assert_eq!(tool["name"], "search");
    assert_eq!(tool["description"], "Search the shop");
    assert_eq!(
        tool["annotations"],
        json!({
            "title": "Search", "readOnlyHint": true, "destructiveHint": false,
            "idempotentHint": true, "openWorldHint": false,
        })
    );
    assert_eq!(
        tool["_meta"],
        json!({
            "anthropic/alwaysLoad": true, "anthropic/searchHint": "products",
            "anthropic/maxResultSizeChars": 1000, "mine": {"a": 1},
        })
    );
    assert_eq!(tool["inputSchema"]["required"], json!(["query"]));
    assert_eq!(tool["inputSchema"]["properties"]["limit"]["default"], 10);
    assert_eq!(tool["outputSchema"]["properties"]["count"]["type"], "integer");
    assert!(!tool.to_string().contains("$schema"), "{tool}");
}

#[tokio::test]
async fn a_tool_that_says_little_is_listed_with_little() {
    let server: ToolServer = ToolServer::new("x", "1").tool("noop", "Nothing", async |_: NoArgs| ());
    let plain = json!({"name": "noop", "description": "Nothing", "inputSchema": {"type": "object", "properties": {}}});
    assert_eq!(list(&server).await, [plain]);
}

#[tokio::test]
async fn the_handshake_names_the_server_and_a_version_that_both_speak() {
    let server: ToolServer = ToolServer::new("shop", "2.0.0").instructions("Be brief.");
    for (asked, answered) in [("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")] {
        let params = json!({"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}});
        let message = json!({"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": params});
        let answer = server.handle(message).await.unwrap();
        assert_eq!(answer["id"], "a");
        assert_eq!(answer["result"]["protocolVersion"], answered);
        let info = json!({"name": "shop", "version": "2.0.0"});
        assert_eq!(answer["result"]["serverInfo"], info);
        assert_eq!(answer["result"]["instructions"], "Be brief.");
        assert_eq!(answer["result"]["capabilities"]["tools"]["listChanged"], true);
    }
    assert_eq!(server.handle(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await, None);
    let pong = server.handle(json!({"jsonrpc": "2.0", "id": 3, "method": "ping"})).await;
    assert_eq!(pong, Some(json!({"jsonrpc": "2.0", "id": 3, "result": {}})));
}

#[tokio::test]
async fn arguments_have_defaults_and_a_fault_names_the_field() {
    let server: ToolServer = ToolServer::new("shop", "1")
        .tool("search", "", async |args: Search| format!("{} {} {:?}", args.query, args.limit, args.tags));
    assert_eq!(server.call("search", json!({"query": "tea"})).await.text(), "tea 10 []");
    let faults = [
        (json!({}), "query"),
        (json!({"query": 7}), "query"),
        (json!({"query": "tea", "limit": -1}), "limit"),
        (json!({"query": "tea", "tags": ["a", 2]}), "tags[1]"),
        (json!([1]), "validation"),
    ];
    for (arguments, field) in faults {
        let result = server.call("search", arguments.clone()).await;
        assert!(result.is_error, "{arguments}");
        assert!(result.text().contains(field), "{arguments}: {}", result.text());
    }
}

#[tokio::test]
async fn every_kind_of_content_comes_through() {
    let blocks = vec![
        Content::text("t"),
        Content::image("aGk=", "image/png"),
        Content::audio("aGk=", "audio/wav"),
        Content::resource(ResourceContents::text("file:///a", "x")),
        Content::resource_link("file:///b", "b"),
    ];
    let given = blocks.clone();
    let server: ToolServer =
        ToolServer::new("x", "1").tool("all", "", move |_: NoArgs| std::future::ready(given.clone()));
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "all"}});
    let answer = server.handle(call).await.unwrap();
    assert_eq!(answer["result"]["content"], serde_json::to_value(&blocks).unwrap());
    assert_eq!(answer["result"].get("isError"), None);
}

#[tokio::test]
async fn a_structured_result_is_text_for_the_model_and_data_for_others() {
    let server: ToolServer = ToolServer::new("x", "1")
        .tool("f", "", async |_: NoArgs| if true { Ok(Json(Found { count: 3 })) } else { Err("no") });
    let result = server.call("f", json!({})).await;
    assert_eq!(
        (result.text().as_str(), result.structured_content),
        (r#"{"count":3}"#, Some(json!({"count": 3})))
    );
}

// Guards: a tool returns `Err`
#[tokio::test]
async fn errors_and_panics_are_results_that_the_model_reads() {
    let server: ToolServer = ToolServer::new("x", "1")
        .tool("fails", "", async |_: NoArgs| Err::<(), _>("disk full"))
        .tool("panics", "", async |_: NoArgs| -> () { panic!("index 7 out of bounds") })
        .tool("panics_at_once", "", |_: NoArgs| -> std::future::Ready<()> { panic!("before the future") })
        .add_tool(ToolDef::blocking("panics_blocking", "", |_: NoArgs, _: ToolContext| -> () {
            panic!("on a thread")
        }));
    for (tool, text) in [
        ("fails", "disk full"),
        ("panics", "tool 'panics' panicked: index 7 out of bounds"),
        ("panics_at_once", "tool 'panics_at_once' panicked: before the future"),
        ("panics_blocking", "tool 'panics_blocking' panicked: on a thread"),
    ] {
        assert_eq!(server.call(tool, json!({})).await, CallToolResult::error(text));
    }
}

#[tokio::test]
async fn what_is_not_there_is_said_so() {
    let server: ToolServer = ToolServer::new("x", "1");
    let ask = |method: &str, params: Value| {
        server.handle(json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
    };
    let answer = ask("tools/call", json!({"name": "nope"})).await.unwrap();
    assert_eq!(answer["error"], json!({"code": -32601, "message": "Tool 'nope' not found"}));
    let answer = ask("resources/list", json!({})).await.unwrap();
    assert_eq!(answer["error"], json!({"code": -32601, "message": "Method 'resources/list' not supported"}));
    let answer = ask("tools/call", json!({"nom": "nope"})).await.unwrap();
    assert_eq!(answer["error"]["code"], -32602);
}

#[derive(Deserialize, JsonSchema)]
struct Roll {
    count: u32,
}

#[tokio::test]
async fn the_tools_of_a_server_share_its_state() {
    let server: ToolServer = ToolServer::new("game", "1")
        .tool("roll", "", async |args: Roll, cx: ToolContext<AtomicU64>| {
            cx.fetch_add(1, Ordering::Relaxed);
            args.count * 6
        })
        .tool("rolls", "", async |_: NoArgs, cx: ToolContext<AtomicU64>| cx.load(Ordering::Relaxed))
        .state(|| AtomicU64::new(0));
    assert_eq!(server.call("roll", json!({"count": 2})).await.text(), "12");
    assert_eq!(server.call("rolls", json!({})).await.text(), "1");
}

#[tokio::test]
async fn each_tool_has_the_state_that_it_was_defined_with() {
    let server: ToolServer = ToolServer::new("x", "1")
        .tool("word", "", async |_: NoArgs, cx: ToolContext<String>| cx.state().clone())
        .state(|| "a".to_string())
        .tool("number", "", async |_: NoArgs, cx: ToolContext<u32>| *cx.state())
        .state_with(|_| async { Ok::<_, std::io::Error>(7) })
        .tool("none", "", async |_: NoArgs, _: ToolContext| "unit");
    for (tool, text) in [("word", "a"), ("number", "7"), ("none", "unit")] {
        assert_eq!(server.call(tool, json!({})).await.text(), text);
    }
}

#[tokio::test]
async fn a_state_that_cannot_be_made_is_told_to_every_call() {
    let failing: ToolServer = ToolServer::new("x", "1")
        .tool("f", "", async |_: NoArgs, _: ToolContext<u32>| ())
        .state_with(|_| async { Err::<u32, _>("no database") });
    let panicking: ToolServer = ToolServer::new("x", "1")
        .tool("f", "", async |_: NoArgs, _: ToolContext<u32>| ())
        .state(|| panic!("no config"));
    for (server, cause) in [(failing, "no database"), (panicking, "no config")] {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "f"}});
        let answer = server.handle(call).await.unwrap();
        assert_eq!(answer["error"]["code"], -32603);
        assert!(answer["error"]["message"].as_str().unwrap().contains(cause), "{answer}");
    }
}

#[tokio::test]
async fn a_schema_by_hand_gets_the_arguments_as_they_come() {
    let schema = json!({"type": "object", "properties": {"any": {}}}).as_object().unwrap().clone();
    let server: ToolServer = ToolServer::new("x", "1").add_tool(ToolDef::raw(
        "echo",
        "",
        schema.clone(),
        async |args: Value, _: ToolContext| args,
    ));
    assert_eq!(list(&server).await[0]["inputSchema"], Value::Object(schema));
    assert_eq!(
        server.call("echo", json!({"any": [1, {"b": null}]})).await.text(),
        r#"{"any":[1,{"b":null}]}"#
    );
}

#[tokio::test]
async fn a_handler_can_be_called_directly() {
    async fn greet(_: NoArgs, cx: ToolContext<String>) -> String {
        assert!(!cx.is_cancelled());
        cx.progress(1.0, None, None).await;
        cx.log(greenroom::tool::LogLevel::Info, "hi").await;
        format!("hello {}", cx.state())
    }
    assert_eq!(greet(NoArgs {}, ToolContext::detached("ada".to_string())).await, "hello ada");
}

#[tokio::test]
async fn a_blocking_tool_runs_on_a_thread_of_its_own() {
    let test_thread = std::thread::current().id();
    let server: ToolServer = ToolServer::new("x", "1").add_tool(ToolDef::blocking("where", "", {
        move |_: NoArgs, _: ToolContext| std::thread::current().id() != test_thread
    }));
    assert_eq!(server.call("where", json!({})).await.text(), "true");
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_run_at_once_than_a_tool_allows() {
    let (running, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (seen_running, seen_most) = (running.clone(), most.clone());
    let slow = ToolDef::new("slow", "", move |_: NoArgs| {
        let (running, most) = (seen_running.clone(), seen_most.clone());
        async move {
            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            running.fetch_sub(1, Ordering::SeqCst);
        }
    });
    let server: ToolServer = ToolServer::new("x", "1").add_tool(slow.max_concurrency(2));
    let started = tokio::time::Instant::now();
    let calls = (0..6).map(|_| server.call("slow", json!({})));
    futures_util::future::join_all(calls).await;
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(started.elapsed(), Duration::from_secs(3));
}

#[tokio::test]
async fn a_definition_that_cannot_work_is_refused_before_anything_starts() {
    let tool = |name: &str| ToolServer::new("x", "1").tool(name, "", async |_: NoArgs| ());
    let twice = tool("a").tool("a", "", async |_: NoArgs| ());
    let number: ToolServer = ToolServer::new("x", "1").tool("a", "", async |_: u32| ());
    let none =
        ToolServer::new("x", "1").add_tool(ToolDef::new("a", "", async |_: NoArgs| ()).max_concurrency(0));
    for (server, says) in [
        (tool("has space"), "'has space'"),
        (tool(""), "1 to 128"),
        (twice, "two tools 'a'"),
        (number, "object"),
        (none, "max_concurrency"),
        (ToolServer::new(" ", "1"), "1 to 128"),
    ] {
        let error = greenroom::Session::builder().mcp_server(server).start().await.unwrap_err();
        assert_eq!(error.kind(), greenroom::ErrorKind::InvalidOption);
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[tokio::test]
async fn names_that_the_cli_could_not_tell_apart_are_refused() {
    let builder = || greenroom::Session::builder().mcp_server(ToolServer::new("my.calc", "1"));
    let twins = builder().mcp_server(ToolServer::new("my_calc", "1")).start().await.unwrap_err();
    assert!(twins.to_string().contains("mcp__my_calc__"), "{twins}");
    let external = greenroom::options::ExternalServer::http("http://127.0.0.1:9/mcp");
    let twins = builder().external_mcp_server("my_calc", external).start().await.unwrap_err();
    assert_eq!(twins.kind(), greenroom::ErrorKind::InvalidOption);
}

#[tokio::test]
async fn the_tools_of_a_server_in_a_config_file_can_be_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("more.json");
    let start = || {
        let builder = greenroom::Session::builder()
            .cwd(folder.path())
            .configure(|options| options.mcp_config_files.push("more.json".into()));
        let (transport, listener) = ScriptedCli::by_hand();
        drop(listener);
        builder.allow_server_tools("more").transport(transport).start()
    };
    let web = json!({ "type": "http", "url": "http://127.0.0.1:9/mcp" });
    std::fs::write(&file, json!({ "mcpServers": { "more": web } }).to_string()).unwrap();
    assert_eq!(start().await.unwrap_err().kind(), greenroom::ErrorKind::Spawn, "the name is known");
    std::fs::write(&file, json!({ "mcpServers": { "less": web } }).to_string()).unwrap();
    assert_eq!(start().await.unwrap_err().kind(), greenroom::ErrorKind::InvalidOption);
    // The CLI says what is wrong with the file.
    std::fs::write(&file, "{").unwrap();
    assert_eq!(start().await.unwrap_err().kind(), greenroom::ErrorKind::Spawn);
    // Nothing is read here.
    let unread = greenroom::Session::builder()
        .configure(|options| options.mcp_config_files.push("/more.json".into()))
        .allow_server_tools("more");
    assert_eq!(Delivered::of(unread).unwrap().flag("allowedTools"), Some("mcp__more__*"));
}

#[tokio::test]
async fn a_number_reaches_the_handler_as_it_was_written() {
    #[derive(Deserialize, JsonSchema)]
    struct One {
        a: f64,
    }
    let server =
        ToolServer::new("calc", "1").tool("echo", "Echo", async |args: One| Json(json!({"a": args.a})));
    for n in 1..1000_u32 {
        let a = f64::from(n).sqrt() * 1e-3;
        let message = json!({"jsonrpc": "2.0", "id": a, "method": "tools/call",
            "params": {"name": "echo", "arguments": {"a": a}}});
        let answer = server.handle(message).await.unwrap();
        assert_eq!((&answer["id"], &answer["result"]["structuredContent"]["a"]), (&json!(a), &json!(a)));
    }
}
