//! Rules of a type's schema: enforced before the handler of a typed tool or prompt.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use greenroom::{ErrorKind, Session, ToolContext, ToolDef, ToolServer};
use greenroom_testkit::ScriptedCli;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::common::*;

#[derive(Deserialize, JsonSchema)]
#[allow(dead_code)]
struct Order {
    #[schemars(range(min = 1, max = 100))]
    count: u32,
    #[schemars(regex(pattern = "^[a-z]+$"))]
    code: Option<String>,
    #[serde(default)]
    #[schemars(length(max = 2))]
    notes: Vec<Note>,
    #[serde(default = "small")]
    #[schemars(extend("enum" = ["small", "large"]))]
    size: String,
    gift: Option<Gift>,
}

fn small() -> String {
    "small".into()
}

#[derive(Deserialize, JsonSchema)]
#[allow(dead_code)]
struct Note {
    #[schemars(length(min = 1))]
    text: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[allow(dead_code)]
enum Gift {
    Card {
        #[schemars(extend("exclusiveMinimum" = 0))]
        price: f64,
    },
    None,
}

/// A server whose two tools take an [`Order`], and the number of calls that reached a handler.
fn shop() -> (ToolServer, Arc<AtomicUsize>) {
    let reached: Arc<AtomicUsize> = Arc::default();
    let (closure, blocking) = (reached.clone(), reached.clone());
    let server = ToolServer::new("shop", "1.0.0")
        .tool("closure", "Order", move |_: Order| {
            closure.fetch_add(1, Ordering::Relaxed);
            std::future::ready(())
        })
        .add_tool(ToolDef::blocking("blocking", "Order", move |_: Order, _: ToolContext| {
            blocking.fetch_add(1, Ordering::Relaxed);
        }));
    (server, reached)
}

#[tokio::test]
async fn a_value_that_breaks_a_rule_of_its_type_never_reaches_the_handler() {
    let (server, reached) = shop();
    for tool in ["closure", "blocking"] {
        for (arguments, misfit) in [
            (json!({ "count": 0 }), "`count`: 0 is less than the minimum of 1"),
            (json!({ "count": 101 }), "`count`: 101 is greater than the maximum of 100"),
            (json!({ "count": 1, "code": "A7" }), r#"`code`: "A7" does not match "^[a-z]+$""#),
            (
                json!({ "count": 1, "notes": [{ "text": "a" }, { "text": "" }] }),
                "`notes[1].text`: \"\" is shorter than 1",
            ),
            (
                json!({ "count": 1, "notes": [{ "text": "a" }, { "text": "b" }, { "text": "c" }] }),
                "`notes`: ",
            ),
            (json!({ "count": 1, "size": "huge" }), r#"`size`: "huge" is not one of "small" or "large""#),
            (
                json!({ "count": 1, "gift": { "kind": "card", "price": 0 } }),
                "`gift.price`: 0 is less than or equal to the minimum of 0",
            ),
            (json!({ "count": 1, "gift": { "kind": "car", "price": 0 } }), "`gift`: "),
            // All misfits at once, also those that parsing would find.
            (json!({ "count": 0, "code": 7 }), "`code`: 7 is not of type"),
            (json!({ "code": "A7" }), "\"count\" is a required property"),
        ] {
            let result = server.call(tool, arguments.clone()).await;
            assert!(result.is_error, "{arguments}");
            let text = result.text();
            assert!(text.starts_with("Input validation error: ") && text.contains(misfit), "{tool}: {text}");
        }
    }
    assert_eq!(reached.load(Ordering::Relaxed), 0);
    for tool in ["closure", "blocking"] {
        for arguments in [
            json!({ "count": 1, "code": null, "gift": null }),
            json!({ "count": 100.0, "code": "abc", "size": "large", "gift": { "kind": "card", "price": 0.5 } }),
            json!({ "count": 7, "notes": [{ "text": "a" }], "gift": { "kind": "none" }, "unknown": true }),
        ] {
            let result = server.call(tool, arguments).await;
            assert!(!result.is_error, "{}", result.text());
        }
    }
    assert_eq!(reached.load(Ordering::Relaxed), 6);
}

#[derive(Deserialize, JsonSchema)]
struct Numbers {
    small: u8,
    #[serde(default)]
    signed: Vec<i64>,
    #[serde(default)]
    ratio: f64,
    #[serde(default)]
    either: Option<Either>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)]
enum Either {
    Whole(u64),
    Text(String),
}

#[tokio::test]
async fn a_whole_number_is_an_integer_however_it_is_written() {
    let server: ToolServer = ToolServer::new("x", "1").tool("numbers", "", async |args: Numbers| {
        format!("{} {:?} {} {:?}", args.small, args.signed, args.ratio, args.either)
    });
    let call = async |arguments: &str| {
        let result = server.call("numbers", serde_json::from_str(arguments).unwrap()).await;
        (!result.is_error).then(|| result.text()).ok_or_else(|| result.text())
    };
    assert_eq!(call(r#"{ "small": 1.0 }"#).await.unwrap(), "1 [] 0 None");
    assert_eq!(
        call(r#"{ "small": 2.55e2, "signed": [1, -3.0, -0.0, 9007199254740992.0], "ratio": 4.0, "either": 5.0 }"#)
            .await
            .unwrap(),
        "255 [1, -3, 0, 9007199254740992] 4 Some(Whole(5))"
    );
    for (arguments, misfit) in [
        (r#"{ "small": 1.5 }"#, "`small`: invalid type: floating point `1.5`"),
        (r#"{ "small": 256.0 }"#, "`small`: invalid value: integer `256`"),
        (r#"{ "small": -1.0 }"#, "`small`: invalid value: integer `-1`"),
        // The nearest float of another integer.
        (r#"{ "small": 1, "signed": [9007199254740993.5] }"#, "`signed[0]`: "),
        // The whole number is no fault; the text is.
        (r#"{ "small": 1.0, "ratio": "half" }"#, "`ratio`: invalid type: string"),
    ] {
        let text = call(arguments).await.unwrap_err();
        assert!(text.contains(misfit), "{text}");
    }
}

#[tokio::test]
async fn many_or_long_misfits_make_a_short_error() {
    let (server, _) = shop();
    let notes: Vec<Value> = (0..1_000).map(|_| json!({ "text": "" })).collect();
    let text = server.call("closure", json!({ "count": 0, "notes": notes })).await.text();
    assert_eq!((text.matches("; ").count(), text.ends_with("; and more")), (10, true), "{text}");
    let text = server.call("closure", json!({ "count": 1, "code": "É".repeat(100_000) })).await.text();
    assert_eq!(text, r#"Input validation error: `code`: the value does not match "^[a-z]+$""#);
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_field_hides_no_other_from_the_rules() {
    let (server, reached) = shop();
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for ignored in ["1e999", &deep] {
        let params = format!(r#"{{"name":"closure","arguments":{{"count":0,"ignored":{ignored}}}}}"#);
        let message = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#);
        let request = format!(r#"{{"subtype":"mcp_message","server_name":"shop","message":{message}}}"#);
        let line = format!(r#"{{"type":"control_request","request_id":"r","request":{request}}}"#);
        end.send_bytes(format!("{line}\n"));
        let answer = rpc_answer(&mut end, "r").await;
        let text = error_text(&answer);
        assert!(text.starts_with("Input validation error: ") && !text.contains(" at line "), "{text}");
    }
    assert_eq!(reached.load(Ordering::Relaxed), 0);
    stop(session, end).await;
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[allow(dead_code)]
enum Filter {
    And {
        filters: Vec<Filter>,
    },
    Or {
        filters: Vec<Filter>,
    },
    Not {
        filters: Vec<Filter>,
    },
    Is {
        #[schemars(length(min = 1))]
        name: String,
    },
}

#[derive(Deserialize, JsonSchema)]
#[allow(dead_code)]
struct Search {
    filter: Filter,
}

/// Listing the misfits takes three times as long with each level, and three times the memory.
#[tokio::test]
async fn a_misfit_deep_in_a_recursive_type_costs_little() {
    let server: ToolServer = ToolServer::new("x", "1").tool("search", "", async |_: Search| ());
    let nested = |name: &str, levels: usize| {
        let is = json!({ "type": "is", "name": name });
        json!({ "filter": (0..levels).fold(is, |inner, _| json!({ "type": "not", "filters": [inner] })) })
    };
    for levels in [1, 50] {
        let fits = server.call("search", nested("a", levels)).await;
        assert!(!fits.is_error, "{}", fits.text());
    }
    let near = server.call("search", nested("", 1)).await.text();
    assert!(near.contains(r#"`filter.filters[0].name`: "" is shorter than 1"#), "{near}");
    let far = within(SOON, server.call("search", nested("", 50))).await;
    assert!(far.is_error && far.text().contains("too deeply nested"), "{}", far.text());
}

#[derive(Deserialize, JsonSchema)]
#[allow(dead_code)]
struct Odd {
    #[schemars(regex(pattern = "("))]
    text: String,
}

#[tokio::test]
async fn a_type_whose_pattern_is_invalid_fails_the_start() {
    let server = ToolServer::new("shop", "1.0.0").tool("odd", "", async |_: Odd| ());
    let (transport, _listener) = ScriptedCli::by_hand();
    let error = Session::builder().mcp_server(server).transport(transport).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    let text = error.to_string();
    assert!(
        text.starts_with("tool 'odd' of server 'shop': its input schema is not a valid JSON Schema: "),
        "{text}"
    );
}
