//! Tools whose schemas are written by hand, and what is checked of what they return.

use greenroom::tool::{CallToolResult, Content, ToolAnnotations};
use greenroom::{ErrorKind, Json, NoArgs, Session, ToolContext, ToolDef, ToolServer};
use greenroom_testkit::ScriptedCli;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

fn order() -> Value {
    json!({
        "type": "object",
        "properties": {
            "items": { "type": "array", "items": { "type": "object", "properties": { "n": { "minimum": 1 } } } },
            "mode": { "enum": ["fast", "slow"] },
        },
        "required": ["items"],
    })
}

// Guards: arguments that do not fit
#[tokio::test]
async fn arguments_that_violate_the_schema_name_every_path_in_the_result() {
    let server = ToolServer::new("shop", "1.0.0").add_tool(ToolDef::<()>::raw(
        "order",
        "Order",
        order(),
        async |args: Value, _: ToolContext| format!("ordered {args}"),
    ));
    let fine = server.call("order", json!({ "items": [{ "n": 2 }], "mode": "fast", "more": 1 })).await;
    assert_eq!(fine.text(), r#"ordered {"items":[{"n":2}],"mode":"fast","more":1}"#);
    for (arguments, paths) in [
        (json!({}), vec!["\"items\" is a required property"]),
        (json!({ "items": [{ "n": 2 }, { "n": 0 }], "mode": "odd" }), vec!["`items[1].n`: ", "`mode`: "]),
        (json!({ "items": 7 }), vec!["`items`: 7 is not of type \"array\""]),
        (json!([1]), vec!["invalid type: sequence, expected a JSON object"]),
    ] {
        let result = server.call("order", arguments).await;
        assert!(
            result.is_error && result.text().starts_with("Input validation error: "),
            "{}",
            result.text()
        );
        for path in paths {
            assert!(result.text().contains(path), "{}", result.text());
        }
    }
}

#[tokio::test]
async fn an_invalid_schema_is_refused_at_the_start_and_at_run_time() {
    let raw = |schema: Value| ToolDef::<()>::raw("odd", "", schema, async |_: Value, _: ToolContext| "");
    let broken = || json!({ "type": "object", "properties": { "a": { "type": "nothing" } } });
    let elsewhere = json!({ "type": "object", "$ref": "https://example.org/schema.json" });
    let output = ToolDef::<()>::new("odd", "", async |_: NoArgs| CallToolResult::default());
    for tool in
        [raw(broken()), raw(elsewhere), raw(json!("text")), raw(json!({})), output.output_schema(broken())]
    {
        let (transport, _listener) = ScriptedCli::by_hand();
        let builder = Session::builder()
            .mcp_server(ToolServer::new("shop", "1.0.0").add_tool(tool))
            .transport(transport);
        let error = builder.start().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(error.to_string().starts_with("tool 'odd' of server 'shop': "), "{error}");
    }
    let (session, end, _listener) =
        crate::common::start_by_hand(Session::builder().mcp_server(ToolServer::new("shop", "1.0.0"))).await;
    let error = session.server("shop").unwrap().add_tool(raw(broken())).unwrap_err();
    assert!(error.to_string().contains("not a valid JSON Schema"), "{error}");
    crate::common::stop(session, end).await;
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Weather {
    celsius: f64,
}

#[tokio::test]
async fn structured_content_is_what_was_promised_or_an_error() {
    fn gives(name: &str, content: Option<Value>) -> ToolDef {
        ToolDef::new(name, "", move |_: NoArgs| {
            let mut result = CallToolResult::new([Content::text("as text")]);
            result.structured_content = content.clone();
            std::future::ready(result)
        })
    }
    let schema =
        json!({ "type": "object", "properties": { "celsius": { "maximum": 60 } }, "required": ["celsius"] });
    let server: ToolServer = ToolServer::new("sky", "1.0.0")
        .add_tool(gives("typed", Some(json!({ "celsius": 17.5 }))).output::<Weather>())
        .add_tool(gives("wrong", Some(json!({ "celsius": "mild" }))).output::<Weather>())
        .add_tool(gives("missing", None).output::<Weather>())
        .add_tool(gives("by_hand", Some(json!({ "celsius": 17.5 }))).output_schema(schema.clone()))
        .add_tool(gives("too_hot", Some(json!({ "celsius": 170 }))).output_schema(schema.clone()))
        .add_tool(
            ToolDef::blocking("blocking", "", |_: NoArgs, _: ToolContext| CallToolResult::default())
                .output::<Weather>(),
        )
        .add_tool(
            ToolDef::new("fails", "", async |_: NoArgs| CallToolResult::error("no sky")).output::<Weather>(),
        )
        .add_tool(ToolDef::new("json", "", async |_: NoArgs| Json(Weather { celsius: 3.0 })));
    let call = async |tool: &str| server.call(tool, json!({})).await;
    for tool in ["typed", "by_hand"] {
        assert_eq!(call(tool).await.structured_content, Some(json!({ "celsius": 17.5 })), "{tool}");
    }
    assert_eq!(call("json").await.structured_content, Some(json!({ "celsius": 3.0 })));
    for (tool, what) in [
        ("wrong", "`celsius`: invalid type: string"),
        ("missing", "there is none"),
        ("blocking", "there is none"),
        ("too_hot", "`celsius`: 170 is greater than the maximum of 60"),
        ("fails", "no sky"),
    ] {
        let result = call(tool).await;
        assert!(result.is_error && result.text().contains(what), "{tool}: {}", result.text());
        if tool != "fails" {
            let start = format!("the structured content of tool '{tool}' does not fit its output schema: ");
            assert!(result.text().starts_with(&start), "{}", result.text());
        }
    }
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let list = server.handle(list).await.unwrap()["result"]["tools"].clone();
    assert_eq!(list[0]["outputSchema"]["properties"]["celsius"]["type"], "number");
    assert_eq!(list[3]["outputSchema"], schema);
}

#[tokio::test]
async fn titles_and_the_end_of_the_turn_are_where_mcp_has_them() {
    let tool = ToolDef::<()>::new("last", "Ends the turn", async |_: NoArgs| {
        CallToolResult::new([Content::text("over")]).end_turn()
    })
    .annotations(ToolAnnotations { title: Some("The last".into()), ..ToolAnnotations::default() });
    let server = ToolServer::new("x", "1").add_tool(tool);
    let ask = async |method: &str, params: Value| {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        server.handle(message).await.unwrap()["result"].clone()
    };
    let tools = ask("tools/list", json!({})).await;
    assert_eq!(tools["tools"][0]["title"], "The last");
    let info = ask("initialize", json!({ "protocolVersion": "2025-11-25" })).await["serverInfo"].clone();
    assert_eq!(info, json!({ "name": "x", "version": "1" }));
    let result = ask("tools/call", json!({ "name": "last" })).await;
    assert_eq!(result["_meta"], json!({ "claude/endTurn": true }));
}
