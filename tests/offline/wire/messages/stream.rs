//! Partial messages.

use greenroom::Message;
use greenroom::message::{ApiEvent, BlockDelta, StreamEvent, Typed};
use serde_json::{Value, json};

use super::view;

#[test]
fn a_stream_event_has_its_addition() {
    let piece =
        |event: Value| view!(StreamEvent, json!({"type": "stream_event", "event": event, "ttft_ms": 9}));
    let delta = |delta: Value| piece(json!({"type": "content_block_delta", "index": 1, "delta": delta}));
    let text = delta(json!({"type": "text_delta", "text": "a\nb"}));
    assert_eq!((text.text_delta(), text.index, text.ttft_ms), (Some("a\nb"), Some(1), Some(9)));
    assert_eq!(text.event_value()["delta"]["type"], "text_delta");
    let thinking = delta(json!({"type": "thinking_delta", "thinking": "hm"}));
    assert!(
        matches!(thinking.api_event(), ApiEvent::ContentBlockDelta(BlockDelta::Thinking(hm)) if hm == "hm")
    );
    let input = delta(json!({"type": "input_json_delta", "partial_json": "{\"a\""}));
    assert!(
        matches!(input.api_event(), ApiEvent::ContentBlockDelta(BlockDelta::InputJson(json)) if json == "{\"a\"")
    );
    assert_eq!(input.text_delta(), None);
    for odd in [json!({"type": "signature_delta", "signature": "s"}), json!({"type": "text_delta"}), json!(3)]
    {
        let odd = delta(odd);
        assert_eq!((odd.event_type(), odd.text_delta()), ("content_block_delta", None));
    }
    assert_eq!(piece(json!({"type": "ping"})).event_type(), "ping");
}

#[test]
fn stream_events_are_typed() {
    let event = |event: Value| {
        view!(StreamEvent, json!({"type": "stream_event", "event": event})).api_event().clone()
    };
    let start = event(json!({"type": "message_start", "message": {"id": "m1", "model": "m", "content": []}}));
    assert!(matches!(start, ApiEvent::MessageStart(message) if message.id.as_deref() == Some("m1")));
    let block = json!({"type": "tool_use", "id": "t1", "name": "Bash", "input": {}});
    let begun = event(json!({"type": "content_block_start", "index": 1, "content_block": block}));
    assert!(
        matches!(begun, ApiEvent::ContentBlockStart(block) if block.as_tool_use().unwrap().name == "Bash")
    );
    for (delta, wanted) in [
        (json!({"type": "signature_delta", "signature": "s"}), BlockDelta::Signature("s".into())),
        (json!({"type": "citations_delta", "citation": {"a": 1}}), BlockDelta::Citation(json!({"a": 1}))),
        (json!({"type": "text_delta"}), BlockDelta::Unknown(json!({"type": "text_delta"}))),
        (json!({"type": "new_delta", "x": 1}), BlockDelta::Unknown(json!({"type": "new_delta", "x": 1}))),
    ] {
        let read = event(json!({"type": "content_block_delta", "index": 0, "delta": delta}));
        assert!(matches!(&read, ApiEvent::ContentBlockDelta(delta) if *delta == wanted), "{read:?}");
    }
    let failed = event(json!({"type": "error", "error": {"type": "overloaded_error"}}));
    assert!(matches!(failed, ApiEvent::Error(error) if error["type"] == "overloaded_error"));
    assert!(matches!(event(json!({"type": "ping"})), ApiEvent::Ping));
    for odd in [
        json!({"type": "message_start"}),
        json!({"type": "message_start", "message": 3}),
        json!({"type": "new"}),
    ] {
        assert!(matches!(event(odd), ApiEvent::Unknown));
    }
}

/// Everything that a partial message tells.
fn told(piece: &Typed<StreamEvent>) -> String {
    let StreamEvent { index, api_message_id, ttft_ms, thinking_display, resume_reason, .. } = piece.body();
    format!(
        "{:?}",
        (
            (piece.event_value(), piece.event_type(), piece.api_event()),
            piece.text_delta(),
            (piece.session_id(), piece.uuid(), piece.parent_tool_use_id(), piece.user_message_uuids()),
            (index, api_message_id, ttft_ms, thinking_display, resume_reason),
        )
    )
}

/// Parses a partial message whose JSON is kept as it is, and one that is mended, because of half a surrogate pair, so that
/// its parts are copied.
fn both_ways(rest: &str) {
    let (plain, odd) = (
        format!(r#"{{"type":"stream_event",{rest}}}"#),
        format!(r#"{{"type":"stream_event","half":"\ud83d",{rest}}}"#),
    );
    match (Message::parse(&plain), Message::parse(&odd)) {
        (Ok(Message::StreamEvent(plain)), Ok(Message::StreamEvent(odd))) => {
            assert_eq!(told(&plain), told(&odd))
        }
        (Ok(Message::Other(plain)), Ok(Message::Other(odd))) => {
            // The problems name different columns.
            assert_eq!((plain.problem().is_some(), plain.kind()), (odd.problem().is_some(), odd.kind()));
        }
        (Err(_), Err(_)) => {}
        (Ok(plain), Ok(odd)) if plain.kind() != "stream_event" => assert_eq!(plain.kind(), odd.kind()),
        (plain, odd) => panic!("{rest}: {plain:?} and {odd:?}"),
    }
}

#[test]
fn a_partial_message_is_the_same_whether_its_json_is_kept_or_mended() {
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
}
