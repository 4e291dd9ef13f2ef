//! Resources: what is listed and read.

use std::time::Duration;

use greenroom::mcp::{ReadResource, ResourceContents, ResourceDef, ResourceTemplateDef, RpcError};
use greenroom::{ErrorKind, Json, Session, ToolContext, ToolServer};
use greenroom_testkit::ScriptedCli;
use serde_json::{Value, json};

use super::{ask, listed, pushed};
use crate::common::*;

/// A library with something of every kind; its state is how many books it has.
fn library() -> ToolServer {
    ToolServer::new("library", "1.0.0")
        .resource(
            ResourceDef::text("lib://motto", "motto", "Read more.")
                .title("The motto")
                .description("What is over the door")
                .mime_type("text/plain")
                .meta("mine", 1),
        )
        .resource(ResourceDef::blob("lib://seal", "seal", b"\x00\xff"))
        .resource(ResourceDef::new("lib://count", "count", async |_: ReadResource, cx: ToolContext<u32>| {
            Json(json!({ "books": *cx }))
        }))
        .resource(ResourceDef::new("lib://gone", "gone", async |read: ReadResource, _: ToolContext<u32>| {
            Err::<String, _>(RpcError::resource_not_found(&read.uri))
        }))
        .resource(ResourceDef::new("lib://broken", "broken", async |_: ReadResource, _: ToolContext<u32>| {
            Err::<String, _>("the roof leaks")
        }))
        .resource_template(ResourceTemplateDef::new(
            "lib://book/{id}",
            "book",
            async |read: ReadResource, cx: ToolContext<u32>| {
                let text = format!("book {} of {}", read.variable("id").unwrap(), *cx);
                vec![
                    ResourceContents::text(read.uri, text).mime_type("text/plain").with_meta("page", 1),
                    ResourceContents::blob("lib://book/cover", "aGk="),
                ]
            },
        ))
        .resource_template(
            ResourceTemplateDef::new(
                "lib://{+rest}",
                "rest",
                async |read: ReadResource, _: ToolContext<u32>| read.variables["rest"].clone(),
            )
            .mime_type("text/markdown"),
        )
        .state(|| 3_u32)
}

async fn read(end: &mut greenroom_testkit::CliEnd, uri: &str) -> Value {
    ask(end, "library", "resources/read", json!({ "uri": uri })).await
}

#[tokio::test(start_paused = true)]
async fn a_server_announces_what_it_offers_and_knows_no_more() {
    let plain = ToolServer::new("plain", "1.0.0");
    let coming = ToolServer::new("coming", "1.0.0").dynamic_resources();
    let builder = Session::builder().mcp_server(library()).mcp_server(plain).mcp_server(coming);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
    for (server, capabilities) in [
        (
            "library",
            json!({
                "tools": { "listChanged": true }, "logging": {}, "resources": { "listChanged": true },
            }),
        ),
        ("plain", json!({ "tools": { "listChanged": true }, "logging": {} })),
        (
            "coming",
            json!({
                "tools": { "listChanged": true }, "logging": {}, "resources": { "listChanged": true },
            }),
        ),
    ] {
        let answer = ask(&mut end, server, "initialize", params.clone()).await;
        assert_eq!(answer["result"]["capabilities"], capabilities, "{server}");
    }
    for method in [
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "tasks/list",
    ] {
        let answer = ask(&mut end, "plain", method, json!({})).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}");
    }
    assert_eq!(ask(&mut end, "library", "resources/of/tomorrow", json!({})).await["error"]["code"], -32601);
    let listed = ask(&mut end, "coming", "resources/list", json!({})).await["result"].clone();
    assert_eq!(listed, json!({ "resources": [] }));
    for method in ["resources/subscribe", "prompts/list", "completion/complete"] {
        assert_eq!(ask(&mut end, "library", method, json!({})).await["error"]["code"], -32601, "{method}");
    }
    assert_eq!(ask(&mut end, "plain", "ping", json!({})).await["result"], json!({}));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn resources_are_listed_with_all_that_they_say_and_read_in_every_form() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(library())).await;
    let list = ask(&mut end, "library", "resources/list", json!({})).await["result"]["resources"].clone();
    assert_eq!(
        list[0],
        json!({
            "uri": "lib://motto", "name": "motto", "title": "The motto", "description": "What is over the door",
            "mimeType": "text/plain", "size": 10,
            "_meta": { "mine": 1 },
        })
    );
    assert_eq!(list[1], json!({ "uri": "lib://seal", "name": "seal", "size": 2 }));
    let templates = ask(&mut end, "library", "resources/templates/list", json!({})).await;
    assert_eq!(
        templates["result"]["resourceTemplates"],
        json!([
            { "uriTemplate": "lib://book/{id}", "name": "book" },
            { "uriTemplate": "lib://{+rest}", "name": "rest", "mimeType": "text/markdown" },
        ])
    );

    for (uri, contents) in [
        ("lib://motto", json!([{ "uri": "lib://motto", "mimeType": "text/plain", "text": "Read more." }])),
        ("lib://seal", json!([{ "uri": "lib://seal", "blob": "AP8=" }])),
        (
            "lib://count",
            json!([{ "uri": "lib://count", "mimeType": "application/json", "text": r#"{"books":3}"# }]),
        ),
        (
            "lib://book/a%20b",
            json!([
                { "uri": "lib://book/a%20b", "mimeType": "text/plain", "text": "book a b of 3", "_meta": { "page": 1 } },
                { "uri": "lib://book/cover", "blob": "aGk=" },
            ]),
        ),
        (
            "lib://book/a/b",
            json!([{ "uri": "lib://book/a/b", "mimeType": "text/markdown", "text": "book/a/b" }]),
        ),
    ] {
        assert_eq!(read(&mut end, uri).await["result"], json!({ "contents": contents }), "{uri}");
    }
    for (uri, code, message) in [
        ("lib://gone", -32002, "Resource 'lib://gone' not found"),
        ("other://", -32002, "Resource 'other://' not found"),
        ("lib://broken", -32603, "the roof leaks"),
    ] {
        let error = read(&mut end, uri).await["error"].clone();
        assert_eq!((error["code"].clone(), error["message"].clone()), (json!(code), json!(message)));
    }
    assert_eq!(ask(&mut end, "library", "resources/read", json!({})).await["error"]["code"], -32602);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn resources_come_and_go() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(library())).await;
    let handle = session.server("library").unwrap();
    handle.add_resource(ResourceDef::<()>::text("lib://new", "new", "fresh")).unwrap();
    pushed(&mut end, "notifications/resources/list_changed").await;
    let resources = listed(&mut end, "library", "resources/list", "resources").await;
    assert_eq!(resources, ["motto", "seal", "count", "gone", "broken", "new"]);
    assert_eq!(read(&mut end, "lib://new").await["result"]["contents"][0]["text"], "fresh");
    assert!(handle.disable_resource("lib://new").unwrap());
    // The template stands in for what is disabled.
    assert_eq!(read(&mut end, "lib://new").await["result"]["contents"][0]["text"], "new");
    assert!(handle.remove_resource_template("lib://{+rest}").unwrap());
    assert_eq!(read(&mut end, "lib://new").await["error"]["code"], -32002);
    let template = ResourceTemplateDef::<u32>::new(
        "lib://new/{id}",
        "new",
        async |read: ReadResource, cx: ToolContext<u32>| format!("{} {}", read.variables["id"], *cx),
    );
    handle.add_resource_template(template).unwrap();
    assert_eq!(read(&mut end, "lib://new/5").await["result"]["contents"][0]["text"], "5 3");
    let templates = listed(&mut end, "library", "resources/templates/list", "resourceTemplates").await;
    assert_eq!(templates, ["book", "new"]);
    stop(session, end).await;
}

#[tokio::test]
async fn what_cannot_work_is_refused_before_the_session_starts() {
    let text = |uri: &str| ResourceDef::<()>::text(uri, "x", "y");
    let template =
        |uri: &str| ResourceTemplateDef::<()>::new(uri, "x", async |_: ReadResource, _: ToolContext| "");
    let base = || ToolServer::new("base", "1.0.0");
    for (server, what) in [
        (base().resource(text("no scheme")), "resource 'no scheme'"),
        (base().resource(text("a:b")).resource(text("a:b")), "two resources 'a:b'"),
        (base().resource_template(template("a://{?q}")), "resource template 'a://{?q}'"),
    ] {
        let (transport, _listener) = ScriptedCli::by_hand();
        let builder = Session::builder().mcp_server(server).transport(transport);
        let error = within(Duration::from_secs(9), builder.start()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(error.to_string().contains(what), "{error}");
    }
}
