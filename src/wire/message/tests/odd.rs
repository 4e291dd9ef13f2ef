//! What does not fit, and what must hold for any JSON at all.

use proptest::prelude::*;
use serde_json::{Map, json};

use super::super::*;
use super::{parse, view};

#[test]
fn the_type_may_stand_anywhere_and_text_may_be_escaped() {
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
fn what_does_not_fit_is_kept_as_other_with_the_reason() {
    for frame in [
        json!({"type": "assistant"}),
        json!({"type": "assistant", "message": "text"}),
        json!({"type": "assistant", "message": {"content": 3}}),
        json!({"type": "user", "message": {"role": "user"}}),
        json!({"type": "user", "message": {"content": {"type": "text"}}}),
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
fn a_field_that_does_not_fit_costs_that_field_only() {
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
fn json_without_a_value_is_kept_all_the_same() {
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
fn only_what_is_no_object_with_a_type_is_an_error() {
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

/// Any JSON, with the keys and words of the protocol strewn in so that the typed views are met.
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
    #[test]
    fn whatever_has_a_type_is_a_message_and_comes_back_unchanged(
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

/// All that can be asked of a piece.
fn told(piece: &StreamEvent) -> String {
    let StreamEvent { index, api_message_id, ttft_ms, thinking_display, resume_reason, .. } = piece;
    format!(
        "{:?}",
        (
            (piece.event().get(), piece.event_value(), piece.event_type(), piece.api_event()),
            (piece.text_delta(), piece.thinking_delta(), piece.input_json_delta()),
            (piece.session_id(), piece.uuid(), piece.parent_tool_use_id(), piece.user_message_uuids()),
            (index, api_message_id, ttft_ms, thinking_display, resume_reason),
        )
    )
}

/// Reads the rest of a piece behind its `type` in one pass, if it can be; and field by field, for which a blank is enough.
fn both_ways(rest: &str) {
    let (plain, odd) =
        (format!(r#"{{"type":"stream_event",{rest}}}"#), format!(r#"{{ "type":"stream_event",{rest}}}"#));
    match (Message::parse(&plain), Message::parse(&odd)) {
        (Ok(Message::StreamEvent(plain)), Ok(Message::StreamEvent(odd))) => {
            assert_eq!(told(&plain), told(&odd))
        }
        (Ok(Message::Other(plain)), Ok(Message::Other(odd))) => {
            // They differ in the column.
            assert_eq!((plain.problem().is_some(), plain.kind()), (odd.problem().is_some(), odd.kind()));
        }
        (Err(_), Err(_)) => {}
        (Ok(plain), Ok(odd)) if plain.kind() != "stream_event" => assert_eq!(plain.kind(), odd.kind()),
        (plain, odd) => panic!("{rest}: {plain:?} and {odd:?}"),
    }
}

#[test]
fn a_piece_that_is_read_in_one_pass_says_what_it_says_otherwise() {
    let events = [
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\u00e9\"b"}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\""}}"#,
        r#"{"type":"content_block_delta","index":-1,"delta":{"type":"of_next_year","x":[1]}}"#,
        r#"{"type":"content_block_delta","index":2.5,"delta":null}"#,
        r#"{"type":"content_block_delta","delta":7}"#,
        r#"{"delta":{"text":"t","type":"text_delta"},"type":"content_block_delt\u0061"}"#,
        r#"{"type":"message_start","message":{"id":"m","content":[]}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"error","error":{"type":"overloaded_error"}}"#,
        r#"{"type":"ping"}"#,
        r#"{"type":"new_one","delta":{"type":"text_delta","text":"t"}}"#,
        r#"{"type":"ping","type":"ping"}"#,
        r#"{"index":0}"#,
        r#"{"type":3}"#,
        r#""message_stop""#,
        "null",
        "[]",
    ];
    let rests = [
        r#""session_id":"s","parent_tool_use_id":null,"uuid":"u","api_message_id":"m""#,
        r#""session_id":"s\n","parent_tool_use_id":"t","uuid":7,"ttft_ms":9.4,"thinking_display":"updates","resume_reason":{}"#,
        r#""user_message_uuid":"a","user_message_uuids":["a","b"],"subtype":"x","session_id":"\ud83d""#,
        r#""type":"assistant","message":{"content":[]}"#,
        r#""type":7"#,
        r#""ttft_ms":1,"ttft_ms":2"#,
        r#""uuid":"a","uuid":"b""#,
        r#""event":{"type":"ping"}"#,
        r#""a":[1,}"#,
        r#""a":1}}"#,
    ];
    for (event, rest) in events.iter().flat_map(|event| rests.map(|rest| (event, rest))) {
        both_ways(&format!(r#""event":{event},{rest}"#));
        both_ways(&format!(r#"{rest},"event":{event}"#));
    }
    let line = r#"{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"t"}}}"#;
    let Ok(Message::StreamEvent(piece)) = Message::parse(line) else { panic!() };
    assert!(piece.is_read_in_one_pass(), "it is as the CLI writes it");
}

#[test]
fn what_may_be_a_control_frame_is_not_plainly_a_message() {
    for (line, plainly) in [
        (r#"{"type":"stream_event","event":{}}"#, true),
        (r#"{"type":"assistant","message":{"content":"a control_request"}}"#, true),
        // It is one, which takes a closer look.
        (r#"{"type":"assistant","message":{"content":"\"type\":\"control_request\""}}"#, false),
        (r#"{"type":"transcript_mirror","entries":[]}"#, true),
        (r#"{"type":"of_next_year"}"#, false),
        (r#"{"type":"control_request","request_id":"r"}"#, false),
        (r#"{"type":"keep_alive"}"#, false),
        (r#"{"type":"user","a":1,"type":"control_request","request_id":"r","request":{}}"#, false),
        (r#"{"type":"user","type":"keep_alive"}"#, false),
        (r#"{ "type":"user"}"#, false),
        (r#"{"type":"user"#, false),
        ("", false),
    ] {
        assert_eq!(Message::is_plainly(line.as_bytes()), plainly, "{line}");
    }
}
