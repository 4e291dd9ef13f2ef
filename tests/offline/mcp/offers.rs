//! Resources, prompts and completion: what is listed, read, filled in and suggested.

use std::collections::BTreeMap;
use std::time::Duration;

use greenroom::mcp::{
    Annotations, Completion, CompletionRequest, GetPromptResult, Icon, PromptArgument, PromptDef,
    PromptMessage, ReadResource, ResourceContents, ResourceDef, ResourceTemplateDef, Role, RpcError,
};
use greenroom::testkit::ScriptedCli;
use greenroom::tool::Content;
use greenroom::{ErrorKind, Json, Session, ToolContext, ToolServer};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ask, listed, methods, pushed};
use crate::common::*;

#[derive(Deserialize, JsonSchema)]
struct Haiku {
    /// What it is about
    topic: String,
    lines: Option<u8>,
}

/// A library with something of every kind; its state is how many books it has.
fn library() -> ToolServer {
    ToolServer::new("library", "1.0.0")
        .resource(
            ResourceDef::text("lib://motto", "motto", "Read more.")
                .title("The motto")
                .description("What is over the door")
                .mime_type("text/plain")
                .annotations(Annotations {
                    audience: Some(vec![Role::User]),
                    priority: Some(0.5),
                    ..Default::default()
                })
                .icon(Icon::new("data:,x").mime_type("image/png").size("16x16").theme("dark"))
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
        .resource_template(
            ResourceTemplateDef::new(
                "lib://book/{id}",
                "book",
                async |read: ReadResource, cx: ToolContext<u32>| {
                    let text = format!("book {} of {}", read.variable("id").unwrap(), *cx);
                    vec![
                        ResourceContents::text(read.uri, text).mime_type("text/plain").with_meta("page", 1),
                        ResourceContents::blob("lib://book/cover", "aGk="),
                    ]
                },
            )
            .complete("id", async |request: CompletionRequest, _: ToolContext<u32>| {
                Ok::<_, String>((0..150).map(|n| format!("{}{n}", request.value)).collect::<Vec<_>>())
            }),
        )
        .resource_template(
            ResourceTemplateDef::new(
                "lib://{+rest}",
                "rest",
                async |read: ReadResource, _: ToolContext<u32>| read.variables["rest"].clone(),
            )
            .mime_type("text/markdown"),
        )
        .prompt(
            PromptDef::new("haiku", "A haiku", async |args: Haiku, cx: ToolContext<u32>| {
                format!("Write {} lines about {}, after {} books.", args.lines.unwrap_or(3), args.topic, *cx)
            })
            .title("Haiku")
            .complete("topic", async |request: CompletionRequest, _: ToolContext<u32>| {
                Completion::new([format!("{} rain {:?}", request.value, request.arguments)]).total(7)
            }),
        )
        .prompt(PromptDef::raw(
            "review",
            "",
            [PromptArgument::required("file").description("Which"), PromptArgument::optional("style")],
            async |given: BTreeMap<String, String>, _: ToolContext<u32>| {
                GetPromptResult::new([
                    PromptMessage::user(format!("{given:?}")),
                    PromptMessage::assistant(Content::image("aGk=", "image/png")),
                    PromptMessage::user(Content::audio("aGk=", "audio/wav")),
                    PromptMessage::user(Content::resource(ResourceContents::text(
                        "lib://motto",
                        "Read more.",
                    ))),
                    PromptMessage::user(Content::resource_link("lib://seal", "seal")),
                ])
                .description("A review")
            },
        ))
        .state(|| 3_u32)
}

async fn read(end: &mut greenroom::testkit::CliEnd, uri: &str) -> Value {
    ask(end, "library", "resources/read", json!({ "uri": uri })).await
}

#[tokio::test(start_paused = true)]
async fn a_server_announces_what_it_offers_and_knows_no_more() {
    let plain = ToolServer::new("plain", "1.0.0");
    let coming = ToolServer::new("coming", "1.0.0").dynamic_resources().dynamic_prompts();
    let builder = Session::builder().mcp_server(library()).mcp_server(plain).mcp_server(coming);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
    for (server, capabilities) in [
        (
            "library",
            json!({
                "tools": { "listChanged": true }, "logging": {}, "completions": {},
                "resources": { "subscribe": true, "listChanged": true }, "prompts": { "listChanged": true },
            }),
        ),
        ("plain", json!({ "tools": { "listChanged": true }, "logging": {} })),
        (
            "coming",
            json!({
                "tools": { "listChanged": true }, "logging": {},
                "resources": { "subscribe": true, "listChanged": true }, "prompts": { "listChanged": true },
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
    assert_eq!(ask(&mut end, "coming", "prompts/list", json!({})).await["result"], json!({ "prompts": [] }));
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
            "mimeType": "text/plain", "size": 10, "annotations": { "audience": ["user"], "priority": 0.5 },
            "icons": [{ "src": "data:,x", "mimeType": "image/png", "sizes": ["16x16"], "theme": "dark" }],
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
async fn a_subscriber_is_told_of_what_it_has_subscribed_to_and_of_nothing_else() {
    let builder = Session::builder()
        .mcp_server(library())
        .configure(|options| options.limits.subscriptions_per_server = 2);
    let (session, mut end, mut listener) = start_by_hand(builder).await;
    let server = session.server("library").unwrap();
    for (uri, code) in [
        ("lib://motto", None),
        ("lib://motto", None),
        ("lib://book/7", None),
        ("lib://seal", Some(-32603)),
        ("other://", Some(-32002)),
    ] {
        let answer = ask(&mut end, "library", "resources/subscribe", json!({ "uri": uri })).await;
        assert_eq!(answer["error"]["code"].as_i64(), code, "{answer}");
    }
    server.resource_updated("lib://seal").await;
    server.resource_updated("lib://book/7").await;
    let told = pushed(&mut end, "notifications/resources/updated").await;
    assert_eq!(told["request"]["message"]["params"], json!({ "uri": "lib://book/7" }));
    ask(&mut end, "library", "resources/unsubscribe", json!({ "uri": "lib://book/7" })).await;
    server.resource_updated("lib://book/7").await;
    assert_eq!(methods(&settled(&mut end).await), Vec::<&str>::new());

    // A subscription outlives the server's actor, and ends with the CLI.
    session.inject(greenroom::testkit::Fault::KillServer("library".into()));
    read(&mut end, "lib://motto").await;
    server.resource_updated("lib://motto").await;
    pushed(&mut end, "notifications/resources/updated").await;
    session.inject(greenroom::testkit::Fault::KillPort);
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    server.resource_updated("lib://motto").await;
    assert_eq!(methods(&settled(&mut end).await), Vec::<&str>::new());
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_subscription_to_a_uri_over_8_kib_is_refused() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(library())).await;
    let longest = format!("lib://{}", "x".repeat((8 << 10) - "lib://".len()));
    for (uri, code) in [(format!("{longest}x"), Some(-32602)), (longest, None)] {
        let answer = ask(&mut end, "library", "resources/subscribe", json!({ "uri": uri })).await;
        assert_eq!(answer["error"]["code"].as_i64(), code, "{answer}");
    }
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn prompts_are_listed_and_filled_in() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(library())).await;
    let list = ask(&mut end, "library", "prompts/list", json!({})).await["result"]["prompts"].clone();
    assert_eq!(
        list,
        json!([
            {
                "name": "haiku", "title": "Haiku", "description": "A haiku",
                "arguments": [
                    { "name": "topic", "description": "What it is about", "required": true },
                    { "name": "lines", "required": false },
                ],
            },
            {
                "name": "review",
                "arguments": [
                    { "name": "file", "description": "Which", "required": true },
                    { "name": "style", "required": false },
                ],
            },
        ])
    );
    let params = json!({ "name": "haiku", "arguments": { "topic": "rain", "lines": "5" } });
    let filled = ask(&mut end, "library", "prompts/get", params).await;
    let text = json!({ "type": "text", "text": "Write 5 lines about rain, after 3 books." });
    assert_eq!(filled["result"], json!({ "messages": [{ "role": "user", "content": text }] }));

    let params = json!({ "name": "review", "arguments": { "file": "a.rs" } });
    let filled = ask(&mut end, "library", "prompts/get", params).await["result"].clone();
    assert_eq!(filled["description"], "A review");
    let kinds: Vec<_> =
        filled["messages"].as_array().unwrap().iter().map(|m| &m["content"]["type"]).collect();
    assert_eq!(kinds, ["text", "image", "audio", "resource", "resource_link"]);
    assert_eq!(filled["messages"][1]["role"], "assistant");

    for (params, what) in [
        (json!({ "name": "none" }), "Prompt 'none' not found"),
        (json!({ "name": "haiku" }), "prompt 'haiku' needs the argument 'topic'"),
        (
            json!({ "name": "review", "arguments": { "style": "x" } }),
            "prompt 'review' needs the argument 'file'",
        ),
        (json!({ "name": "haiku", "arguments": { "topic": "x", "lines": "many" } }), "`lines`"),
        (json!({ "name": "haiku", "arguments": { "topic": 7 } }), "invalid type"),
    ] {
        let error = ask(&mut end, "library", "prompts/get", params).await["error"].clone();
        assert_eq!(error["code"], -32602, "{error}");
        assert!(error["message"].as_str().unwrap().contains(what), "{error}");
    }
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn arguments_of_prompts_and_variables_of_templates_are_completed() {
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(library())).await;
    let mut complete = async |reference: Value, argument: &str| {
        let params = json!({
            "ref": reference, "argument": { "name": argument, "value": "au" },
            "context": { "arguments": { "lines": "3" } },
        });
        ask(&mut end, "library", "completion/complete", params).await
    };
    let prompt = json!({ "type": "ref/prompt", "name": "haiku" });
    let template = json!({ "type": "ref/resource", "uri": "lib://book/{id}" });
    assert_eq!(
        complete(prompt.clone(), "topic").await["result"]["completion"],
        json!({ "values": [r#"au rain {"lines": "3"}"#], "total": 7, "hasMore": true })
    );
    let many = complete(template.clone(), "id").await["result"]["completion"].clone();
    assert_eq!(many["values"].as_array().unwrap().len(), 100, "as many as MCP allows");
    assert_eq!(
        (&many["values"][7], &many["total"], &many["hasMore"]),
        (&json!("au7"), &json!(150), &json!(true))
    );
    let none = json!({ "values": [] });
    assert_eq!(complete(prompt, "lines").await["result"]["completion"], none);
    assert_eq!(complete(template, "other").await["result"]["completion"], none);
    for reference in [
        json!({ "type": "ref/prompt", "name": "none" }),
        json!({ "type": "ref/resource", "uri": "lib://motto" }),
        json!({ "type": "ref/tool", "name": "x" }),
    ] {
        assert_eq!(complete(reference, "topic").await["error"]["code"], -32602);
    }
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn resources_and_prompts_come_and_go_and_their_lists_have_pages() {
    let server = library().page_size(2);
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let handle = session.server("library").unwrap();
    handle.add_resource(ResourceDef::<()>::text("lib://new", "new", "fresh")).unwrap();
    pushed(&mut end, "notifications/resources/list_changed").await;
    let pages = listed(&mut end, "library", "resources/list", "resources", "name").await;
    assert_eq!(pages, [vec!["motto", "seal"], vec!["count", "gone"], vec!["broken", "new"]]);
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
    let templates =
        listed(&mut end, "library", "resources/templates/list", "resourceTemplates", "name").await;
    assert_eq!(templates, [vec!["book", "new"]]);

    handle
        .add_prompt(PromptDef::<()>::raw("later", "", [], async |_: BTreeMap<_, _>, _: ToolContext| "Hello."))
        .unwrap();
    assert!(handle.remove_prompt("haiku").unwrap());
    pushed(&mut end, "notifications/prompts/list_changed").await;
    let prompts = listed(&mut end, "library", "prompts/list", "prompts", "name").await;
    assert_eq!(prompts, [vec!["review", "later"]]);
    let filled = ask(&mut end, "library", "prompts/get", json!({ "name": "later" })).await;
    assert_eq!(filled["result"]["messages"][0]["content"]["text"], "Hello.");
    let cursor = json!({ "cursor": "resources:1" });
    assert_eq!(ask(&mut end, "library", "prompts/list", cursor).await["error"]["code"], -32602);
    stop(session, end).await;
}

#[tokio::test]
async fn what_cannot_work_is_refused_before_the_session_starts() {
    let text = |uri: &str| ResourceDef::<()>::text(uri, "x", "y");
    let template =
        |uri: &str| ResourceTemplateDef::<()>::new(uri, "x", async |_: ReadResource, _: ToolContext| "");
    let prompt =
        |name: &str| PromptDef::<()>::raw(name, "", [], async |_: BTreeMap<_, _>, _: ToolContext| "");
    let base = || ToolServer::new("base", "1.0.0");
    let none = async |_: CompletionRequest, _: ToolContext| ["x"];
    for (server, what) in [
        (base().resource(text("no scheme")), "resource 'no scheme'"),
        (base().resource(text("a:b")).resource(text("a:b")), "two resources 'a:b'"),
        (base().resource_template(template("a://{?q}")), "resource template 'a://{?q}'"),
        (base().resource_template(template("a://{b}").complete("c", none)), "no variable 'c'"),
        (base().prompt(prompt("")), "it has no name"),
        (base().prompt(prompt("a")).prompt(prompt("a")), "two prompts 'a'"),
        (base().prompt(prompt("a").complete("c", none)), "no argument 'c'"),
    ] {
        let (transport, _listener) = ScriptedCli::by_hand();
        let builder = Session::builder().mcp_server(server).transport(transport);
        let error = within(Duration::from_secs(9), builder.start()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(error.to_string().contains(what), "{error}");
    }
}
