//! Unexpected shapes, and properties of any JSON.

use greenroom::Message;
use greenroom::message::ContentBlock;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{parse, view};

#[test]
fn keys_may_come_in_any_order_and_be_escaped() {
    let line = concat!(
        " {\"duration_ms\": 100, \"result\": \"line\\n\\\"two\\\" \\u00e9\\ud83d\\ude00\",",
        " \"usage\": {\"type\": 1},",
        " \"subtype\": \"succ\\u0065ss\", \"ty\\u0070e\": \"res\\u0075lt\", \"is_error\": false}\r",
    );
    let message = Message::parse(line).unwrap();
    assert_eq!(message.raw().get(), line.trim());
    let Message::Result(end) = message else { panic!() };
    assert_eq!(end.result.as_deref(), Some("line\n\"two\" é😀"));
    assert!(end.is_success());
}

#[test]
fn messages_without_a_required_field_are_other_with_a_problem() {
    for frame in [
        json!({"type": "assistant"}),
        json!({"type": "assistant", "message": "text"}),
        json!({"type": "assistant", "message": {"content": 3}}),
        json!({"type": "user", "message": {"role": "user"}}),
        json!({"type": "user", "message": {"content": {"type": "text"}}}),
        json!({"type": "assistant", "message": [null, null, null, []]}),
        json!({"type": "user", "message": [[{"type": "text", "text": "a"}]]}),
        json!({"type": "stream_event", "event": ["message_stop", 0, null, null, null, null, null]}),
        json!({"type": "stream_event", "event": "message_stop"}),
        json!({"type": "stream_event", "event": {"type": 3}}),
        json!({"type": "result", "result": "8"}),
        json!({"type": "result", "subtype": 3}),
        json!({"type": "result", "subtype": "success", "is_error": "yes"}),
        json!({"type": "system"}),
        json!({"type": "system", "subtype": ["init"]}),
    ] {
        let message = parse(&frame);
        assert_eq!((message.kind(), message.value()), (frame["type"].as_str().unwrap(), frame.clone()));
        let Message::Other(other) = message else { panic!("{message:?}") };
        assert!(other.problem().is_some(), "{other:?}");
    }
}

#[test]
fn a_list_is_no_content_block() {
    let block = json!(["text", "hello", null, null, null, null, null, null, null, null]);
    let Message::Assistant(message) = parse(&json!({"type": "assistant", "message": {"content": [block]}}))
    else {
        panic!()
    };
    assert!(matches!(&message.message.content[..], [ContentBlock::Unknown(list)] if *list == block));
}

#[test]
fn a_field_that_does_not_fit_costs_only_itself() {
    let frame = json!({
        "type": "assistant", "uuid": 1, "session_id": [], "parent_tool_use_id": {}, "error": 3,
        "aborted": "no",
        "supersedes": "u0", "api_error_status": 70000, "user_message_uuids": 3,
        "message": {"id": 1, "model": null, "role": 2, "stop_reason": {}, "usage": 3, "content": "Hi."}
    });
    let said = view!(Assistant, frame);
    assert_eq!(
        (said.text().as_str(), said.message.usage.is_none(), said.api_error_status),
        ("Hi.", true, None)
    );
    assert_eq!(
        view!(User, json!({"type": "user", "isReplay": "x", "message": {"content": "a"}})).text(),
        "a"
    );
    let end = json!({
        "type": "result", "subtype": "success", "is_error": null, "result": 8, "errors": 3, "num_turns": "1",
        "duration_ms": -5, "total_cost_usd": "1", "usage": [], "modelUsage": [], "permission_denials": {}
    });
    let end = view!(Result, end);
    assert!(end.is_success() && end.result.is_none() && end.model_usage.is_empty());
}

#[test]
fn half_a_surrogate_pair_does_not_cost_the_message() {
    let line =
        r#"{"type":"assistant","message":{"content":[{"type":"text","text":"cut \ud83d"}]},"x\udc00":1}"#;
    let message = Message::parse(line).unwrap();
    assert_eq!(message.text().as_deref(), Some("cut \u{fffd}"));
    assert_eq!(message.raw().get(), line);
    assert_eq!(message.value()["message"]["content"][0]["text"], "cut \u{fffd}");
    assert_eq!(message.field("x\u{fffd}"), Some(json!(1)));
}

#[test]
fn json_that_serde_cannot_parse_as_a_value_is_kept() {
    let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    let in_other = Message::parse(&format!(r#"{{"type":"x","a":1,"deep":{deep},"big":1e999}}"#)).unwrap();
    assert_eq!((in_other.kind(), in_other.value()), ("x", Value::Null));
    assert_eq!(
        (in_other.field("a"), in_other.field("deep"), in_other.field("big")),
        (Some(json!(1)), None, None)
    );

    let block = format!(r#"{{"type":"assistant","message":{{"content":[{{"type":"new","deep":{deep}}}]}}}}"#);
    let in_block = Message::parse(&block).unwrap();
    assert!(matches!(in_block, Message::Other(_)));
    assert_eq!(in_block.raw().get(), block);
}

#[test]
fn only_objects_with_a_type_are_messages() {
    for line in
        ["", "null", "[]", "\"type\"", "{}", r#"{"type":3}"#, r#"{"type":null}"#, r#"{"type":"x"} {}"#]
    {
        assert!(Message::parse(line).is_err(), "{line}");
    }
    assert!(Message::parse("{\"type\":\"x\"").is_err());
    let error = Message::parse(r#"{"kind":"x"}"#).unwrap_err().to_string();
    assert!(error.contains("missing field `type`"), "{error}");
}

#[test]
fn clones_share_and_cross_threads() {
    fn shared<T: Send + Sync + Clone + 'static>() {}
    shared::<Message>();
    assert!(size_of::<Message>() <= 2 * size_of::<usize>());
    let message = parse(&json!({"type": "assistant", "message": {"content": []}}));
    assert!(std::ptr::eq(message.raw(), message.clone().raw()));
}

/// Any JSON, with keys and words of the protocol, so that the typed views are reached.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        any_word().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            any_object(inner).prop_map(Value::from),
        ]
    })
}

fn any_word() -> impl Strategy<Value = String> {
    proptest::sample::select(
        "assistant user result system stream_event success init session_state_changed task_started \
         task_updated api_retry hook_response compact_boundary tool_progress rate_limit_event command_lifecycle \
         conversation_reset informational image document search_result server_tool_use web_search_tool_result \
         source content_block rate_limit_info compact_metadata origin idle text thinking tool_use tool_result text_delta content_block_delta completed type \
         subtype message content event delta input id name tool_use_id is_error patch status state task_id \
         usage modelUsage tools uuid mcp_servers session_id parent_tool_use_id user_message_uuids errors"
            .split_whitespace()
            .collect::<Vec<_>>(),
    )
    .prop_map(str::to_owned)
}

fn any_object(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    proptest::collection::btree_map(prop_oneof![any_word(), ".{0,6}"], inner, 0..8)
        .prop_map(|fields| fields.into_iter().collect())
}

proptest! {
    // Guards: lossless
    #[test]
    fn any_object_with_a_type_round_trips(
        kind in prop_oneof![any_word(), ".{0,6}"],
        mut fields in any_object(any_json()),
        pretty in any::<bool>(),
    ) {
        fields.insert("type".into(), kind.clone().into());
        let value = Value::Object(fields);
        let write = if pretty { serde_json::to_string_pretty } else { serde_json::to_string };
        let text = write(&value).unwrap();
        let message = Message::parse(&text).unwrap();
        prop_assert_eq!(message.kind(), kind.as_str());
        prop_assert_eq!(message.raw().get(), text.as_str());
        let written = serde_json::to_string(&message).unwrap();
        prop_assert_eq!(&written, &text);
        prop_assert_eq!(message.value(), serde_json::from_str::<Value>(&text).unwrap());
        for (key, field) in message.value().as_object().unwrap() {
            prop_assert_eq!(&message.field(key).unwrap(), field);
        }
        let _ = (message.text(), message.tool_uses().count(), message.tool_results().count());
    }
}

#[test]
fn huge_lists_are_left_out_of_the_view_but_not_of_the_json() {
    let many = format!("[{}]", vec!["[]"; 20_000].join(","));
    let line = format!(
        r#"{{"type":"assistant","uuid":"u1","session_id":"s1","message":{{"id":"m","content":[{{"type":"text","text":"hi"}},{{"type":"tool_use","id":"t","name":"n","input":{{"a":{many},"b":2}}}}]}}}}"#
    );
    let message = Message::parse(&line).unwrap();
    assert!(message.is_abridged() && message.raw().get() == line);
    assert_eq!(
        (message.uuid(), message.session_id(), message.text()),
        (Some("u1"), Some("s1"), Some("hi".into()))
    );
    assert_eq!(message.tool_uses().next().unwrap().input, &serde_json::json!({ "a": null, "b": 2 }));
    let whole = message.field("message").unwrap();
    assert_eq!(whole["content"][1]["input"]["a"].as_array().unwrap().len(), 20_000);

    let end = format!(r#"{{"type":"result","subtype":"success","result":"ok","of_tomorrow":{many}}}"#);
    let end = Message::parse(&end).unwrap();
    assert_eq!(end.result().unwrap().result.as_deref(), Some("ok"));
    let piece = format!(r#"{{"type":"stream_event","event":{{"type":"ping","a":{many}}}}}"#);
    let Message::Other(piece) = Message::parse(&piece).unwrap() else {
        panic!("a piece that lacks something")
    };
    assert!(piece.problem().unwrap().contains("too many values"));
    assert!(!Message::parse(r#"{"type":"result","subtype":"success"}"#).unwrap().is_abridged());
}
