//! Lines and messages, with any bytes: nothing panics, JSON that names a kind of frame is read as that kind, and a
//! message keeps the JSON that arrived, to the byte.

use greenroom::Message;
use greenroom::internals::{call, call_by_layers, frame};
use serde_json::Value;

/// The typed views must not panic, and must fit the raw JSON.
fn look(message: &Message) {
    let value = message.value();
    assert!(value.is_object() || value.is_null(), "{value}");
    if value.is_object() {
        // `Message::field` refuses nothing that `Message::value` can read.
        assert_eq!(message.field("type").as_ref(), value.get("type"));
        assert_eq!(value["type"].as_str(), Some(message.kind()));
    }
    let ids = message.user_message_uuids();
    assert!(ids.iter().collect::<std::collections::HashSet<_>>().len() <= ids.len());
    message.text();
    message.subtype();
    message.session_id();
    message.tool_uses().for_each(drop);
    message.tool_results().for_each(drop);
    assert!(!format!("{message} {message:?}").is_empty());
    if let Message::Result(result) = message {
        result.is_success();
        result.error_text();
    }
}

pub(crate) fn check(line: &[u8]) {
    let frame = frame(line);
    // The fast path agrees with the slow path, or leaves the line to it.
    if let Some(call) = call(line) {
        assert_eq!(Some(call), call_by_layers(line));
    }
    let Ok(text) = std::str::from_utf8(line) else { return };

    let read = Message::parse(text);
    match frame.0 {
        // A line of the conversation is never lost.
        "message" => assert!(read.is_ok(), "{read:?}"),
        "blank" | "noise" => assert!(read.is_err()),
        _ => {}
    }
    if let Ok(message) = &read {
        let control = matches!(
            message.kind(),
            "control_request" | "control_response" | "control_cancel_request" | "keep_alive"
        );
        assert!(control || frame.0 == "message", "a message is taken for {frame:?}");

        let json = text.trim_ascii();
        assert_eq!(message.raw().get(), json);
        assert_eq!(serde_json::to_string(message).expect("a message can be written"), json);
        let again: Message = serde_json::from_str(json).expect("a message can be read again");
        assert_eq!(
            (again.raw().get(), again.kind(), again.subtype()),
            (json, message.kind(), message.subtype())
        );
        assert_eq!(std::mem::discriminant(&again), std::mem::discriminant(message));
        look(message);
    }

    // A request with an id waits for an answer, whatever else the request holds.
    let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(text) else { return };
    let id = || fields.get("request_id").and_then(Value::as_str).map(str::to_owned);
    match (fields.get("type").and_then(Value::as_str), id()) {
        (Some("control_request"), Some(id)) => assert_eq!(frame, ("request", Some(id))),
        (Some("control_cancel_request"), Some(id)) => assert_eq!(frame, ("cancel", Some(id))),
        (Some("control_response"), _) => {
            let id = fields.get("response").and_then(|response| response["request_id"].as_str());
            let expected = id.map_or(("malformed", None), |id| ("response", Some(id.to_owned())));
            assert_eq!(frame, expected);
        }
        (Some("keep_alive"), _) => assert_eq!(frame.0, "keep-alive"),
        (Some(_), None) | (None, _) => assert!(matches!(frame.0, "malformed" | "message")),
        (Some(_), Some(_)) => assert_eq!(frame.0, "message"),
    }
}
