// Guards: lossless

use super::*;
use serde_json::{Value, json};

fn request(body: Value) -> ControlRequest {
    let line = json!({"request": body, "request_id": "r\"1", "type": "control_request"}).to_string();
    match Frame::parse(line.as_bytes()) {
        Ok(Frame::Request { request_id, body }) => {
            assert_eq!(request_id, "r\"1");
            body
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_are_read_in_any_order_of_keys() {
    let mcp =
        json!({"subtype": "mcp_message", "server_name": "calc", "message": {"method": "ping", "id": 1}});
    assert!(
        matches!(request(mcp), ControlRequest::Mcp { server, rpc: Rpc::Request { .. } } if server == "calc")
    );
    assert!(matches!(
        request(json!({"subtype": "can_use_tool"})),
        ControlRequest::Callback(CallbackRequest::Permission(_))
    ));
    assert!(matches!(
        request(json!({"subtype": "elicitation"})),
        ControlRequest::Callback(CallbackRequest::Elicitation(_))
    ));
    assert!(matches!(
        request(json!({"subtype": "request_user_dialog"})),
        ControlRequest::Callback(CallbackRequest::Dialog { .. })
    ));
    assert!(matches!(
        request(json!({"subtype": "remote_tools_probe"})),
        ControlRequest::Unserved(UnservedRequest::Silent { .. })
    ));
    assert!(matches!(
        request(json!({"subtype": "of_tomorrow"})),
        ControlRequest::Unserved(UnservedRequest::Unknown { .. })
    ));
    let hook = json!({"subtype": "hook_callback", "callback_id": "h0", "input": {}});
    assert!(matches!(request(hook), ControlRequest::Callback(CallbackRequest::Hook { .. })));
}

#[test]
fn a_list_is_neither_a_frame_nor_a_request() {
    let line = br#"["control_request","r1",{"subtype":"can_use_tool"}]"#;
    assert_eq!(Frame::parse(line).unwrap_err(), Unreadable::Noise);
    assert!(matches!(
        request(json!(["can_use_tool"])),
        ControlRequest::Unserved(UnservedRequest::Incomplete { missing: "an object as `request`", .. })
    ));
    let mcp =
        json!({"subtype": "mcp_message", "server_name": "calc", "message": [1, "ping", null, null, null]});
    assert!(matches!(request(mcp), ControlRequest::Mcp { rpc: Rpc::Malformed, .. }));
    assert!(Frame::parse(br#"{"type":"control_response","response":["success","r1",{}]}"#).is_err());
}

#[test]
fn older_spellings_are_read() {
    let old =
        json!({"subtype": "sdk_mcp_request", "serverName": "calc", "message": {"method": "ping", "id": 1}});
    assert!(matches!(request(old), ControlRequest::Mcp { server, .. } if server == "calc"));
}

#[test]
fn an_incomplete_request_names_the_missing_field() {
    for (body, field) in [
        (json!({"subtype": "mcp_message", "message": {}}), "server_name"),
        (json!({"subtype": "mcp_message", "server_name": "a"}), "message"),
        (json!({"subtype": "hook_callback", "input": {}}), "callback_id"),
        (json!({"subtype": "hook_callback", "callback_id": "h"}), "input"),
    ] {
        assert!(
            matches!(request(body), ControlRequest::Unserved(UnservedRequest::Incomplete { missing, .. }) if missing == field)
        );
    }
}

#[test]
fn lines_that_are_not_frames_are_told_apart() {
    assert_eq!(Frame::parse(b"  \t").unwrap_err(), Unreadable::Blank);
    assert_eq!(Frame::parse(b"[SandboxDebug] hello").unwrap_err(), Unreadable::Noise);
    for line in [
        "{\"type\":",
        "{}",
        r#"{"type":"control_request"}"#,
        r#"{"type":"control_request","request":{"subtype":"x"}}"#,
        r#"{"type":"control_cancel_request"}"#,
        r#"{"type":"control_response"}"#,
    ] {
        assert!(matches!(Frame::parse(line.as_bytes()), Err(Unreadable::Malformed(_))), "{line}");
    }
    assert!(matches!(Frame::parse(b"{\"type\":\"a\xff\"}"), Err(Unreadable::Malformed(_))));
}

#[test]
fn a_request_with_an_id_is_a_request_whatever_its_body() {
    for request in [r#"7"#, r#"{}"#, r#"{"subtype":7}"#] {
        let line = format!(r#"{{"type":"control_request","request_id":"r","request":{request}}}"#);
        let frame = Frame::parse(line.as_bytes());
        assert!(
            matches!(
                frame,
                Ok(Frame::Request { body: ControlRequest::Unserved(UnservedRequest::Incomplete { .. }), .. })
            ),
            "{line}"
        );
    }
    let none = Frame::parse(br#"{"type":"control_request","request_id":"r"}"#);
    assert!(matches!(
        none,
        Ok(Frame::Request {
            body: ControlRequest::Unserved(UnservedRequest::Incomplete { missing: "request", .. }),
            ..
        })
    ));
    assert!(matches!(
        request(json!({"subtype": "new", "callback_id": 7})),
        ControlRequest::Unserved(UnservedRequest::Unknown { .. })
    ));
    let twice = json!({
        "subtype": "mcp_message", "server_name": "a", "serverName": "b", "message": {"method": "ping", "id": 1},
    });
    assert!(matches!(request(twice), ControlRequest::Mcp { server, .. } if server == "a"));
}

#[test]
fn successes_and_errors_are_read_from_replies() {
    let parse = |response: Value| {
        let line = json!({"type": "control_response", "response": response}).to_string();
        match Frame::parse(line.as_bytes()) {
            Ok(Frame::Response(reply)) => reply,
            other => panic!("{other:?}"),
        }
    };
    let fine = parse(json!({"subtype": "success", "request_id": "1", "response": {"a": 1}}));
    assert_eq!(fine.outcome.unwrap().get(), r#"{"a":1}"#);
    assert_eq!(parse(json!({"subtype": "success", "request_id": "1"})).outcome.unwrap().get(), "{}");
    let error = parse(json!({"subtype": "error", "request_id": "1", "error": "no", "error_code": "busy"}));
    assert_eq!(error.outcome.unwrap_err(), ReplyError { message: "no".into(), code: Some("busy".into()) });
    let odd = parse(json!({"subtype": "error", "request_id": "1", "error": {"no": 1}, "error_code": 7}));
    assert_eq!(odd.outcome.unwrap_err(), ReplyError { message: r#"{"no":1}"#.into(), code: None });
}

#[test]
fn a_reply_lists_pending_requests() {
    let asked = |id: &str, body: Value| json!({"type": "control_request", "request_id": id, "request": body});
    let line = json!({"type": "control_response", "response": {
        "subtype": "success", "request_id": "1", "response": {},
        "pending_permission_requests": [asked("p1", json!({"subtype": "can_use_tool"})), 7, {"request": {}}],
        "pending_user_dialog_requests": [asked("d1", json!({"subtype": "request_user_dialog", "dialog_kind": "k"}))],
        "pending_elicitation_requests": "none",
    }});
    let Ok(Frame::Response(reply)) = Frame::parse(line.to_string().as_bytes()) else { panic!() };
    let pending: Vec<_> = reply.pending.iter().map(|(id, body)| (id.as_str(), body)).collect();
    assert!(
        matches!(&pending[..], [("p1", ControlRequest::Callback(CallbackRequest::Permission(_))), ("d1", ControlRequest::Callback(CallbackRequest::Dialog { kind: Some(kind), .. }))] if kind == "k"),
        "{pending:?}"
    );
}

#[test]
fn a_message_may_use_the_names_of_control_fields_in_any_shape() {
    for line in [
        r#"{"type":"new","request_id":7,"request":1,"response":[]}"#,
        r#"{"type":"new","request_id":null}"#,
        r#"{"type":7,"type":"new","request_id":"a","request_id":"b"}"#,
        r#"{"type":"\ud83d"}"#,
        r#"{"\ud83d":1,"type":"new"}"#,
    ] {
        assert!(matches!(Frame::parse(line.as_bytes()), Ok(Frame::Message)), "{line}");
    }
}

#[test]
fn a_lone_surrogate_spoils_no_control_frame() {
    let line = br#"{"type":"control_request","request_id":"r","request":{"subtype":"hook_callback","callback_id":"h","input":{"a":"\ud83d\ud83d\ude00"}}}"#;
    let Ok(Frame::Request { body: ControlRequest::Callback(CallbackRequest::Hook { input, .. }), .. }) =
        Frame::parse(line)
    else {
        panic!()
    };
    assert_eq!(input.get(), r#"{"a":"\ufffd\ud83d\ude00"}"#);
    let line =
        br#"{"type":"control_response","response":{"subtype":"error","request_id":"r","error":"no\ud83d"}}"#;
    let Ok(Frame::Response(reply)) = Frame::parse(line) else { panic!() };
    assert_eq!(reply.outcome.unwrap_err().message, "no\u{fffd}");
    assert!(matches!(Frame::parse(b"{\"a\":\"\\\xC3\xA9\\ud83d\"}"), Err(Unreadable::Malformed(_))));
}
