use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::wire::ResourceContents;

/// The line as the layers write it, after a check that exactly the separators are escaped.
fn plain(request_id: &str, rpc_id: Option<&str>, result: &CallToolResult) -> String {
    let line = String::from_utf8(layers::result_line(request_id, rpc_id, result).unwrap()).unwrap();
    let json = serde_json::to_string(result).unwrap();
    let json = json.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
    assert!(line.ends_with(&format!("{json}}}}}}}}}\n")), "{line}");
    line
}

fn at_once(request_id: &str, rpc_id: Option<&str>, result: &CallToolResult) -> String {
    String::from_utf8(result_line(Vec::with_capacity, request_id, rpc_id, result).unwrap()).unwrap()
}

fn same(result: &CallToolResult) {
    assert_eq!(at_once("r1", Some("7"), result), plain("r1", Some("7"), result));
}

#[test]
fn an_answer_has_the_shape_of_the_protocol() {
    let result = CallToolResult::error("no \"such\" file\u{2028}\n");
    assert_eq!(
        at_once("r\u{2029}1", Some("\"a\\u0041\""), &result),
        concat!(
            r#"{"type":"control_response","response":{"subtype":"success","request_id":"r\u20291","response":"#,
            r#"{"mcp_response":{"jsonrpc":"2.0","id":"a\u0041","result":{"content":[{"type":"text","#,
            r#""text":"no \"such\" file\u2028\n"}],"isError":true}}}}}"#,
            "\n"
        )
    );
}

#[test]
fn special_characters_are_escaped_at_every_place_of_a_text() {
    let cared = (0u8..0x20).chain(*b"\"\\\x7f").map(|byte| char::from(byte).to_string());
    let wide = ["\u{2027}", "\u{2028}", "\u{2029}", "\u{202a}", "─", "’", "é", "\u{1f600}", "\u{10ffff}"];
    for what in cared.chain(wide.map(str::to_owned)) {
        for before in 0..70 {
            let (before, after) = ("x".repeat(before), "y".repeat((before * 7) % 41));
            same(&CallToolResult::new([Content::text(format!("{before}{what}{after}{what}"))]));
        }
    }
}

#[test]
fn all_content_blocks_and_fields_are_written() {
    let odd = "\u{2028}a\"\u{2029}";
    let blocks = [
        Content::text(""),
        Content::text(odd).with("annotations", json!({"audience": [odd]})),
        Content::text("x").with("type", "y"),
        Content::image("aGk=", odd),
        Content::image(odd, "image/png").with("_meta", json!({odd: null})),
        Content::audio("aGk=", "audio/wav"),
        Content::resource(ResourceContents::text(odd, odd).mime_type(odd).with_meta(odd, odd)),
        Content::resource_link("file:///a", odd).with("size", 7),
    ];
    same(&CallToolResult::default());
    for block in &blocks {
        same(&CallToolResult::new([block.clone()]));
    }
    let numbers = json!([0, -1, u64::MAX, i64::MIN, 1.5, -0.0, 1e300, f64::MIN_POSITIVE, true, false, null]);
    let full = CallToolResult::new(blocks).structured(json!({"a": [], "b": {}, odd: numbers, "c": [[odd]]}));
    same(&full.clone().with_meta(odd, json!({"k": 1})).with_meta("z", json!(null)));
    same(&CallToolResult { is_error: true, meta: Some(serde_json::Map::new()), ..full });
    same(&CallToolResult::new([]).structured(serde_json::Value::Null));
}

#[test]
fn the_json_rpc_id_is_echoed_and_may_be_missing() {
    let result = CallToolResult::new([Content::text("x")]);
    for id in
        [None, Some("7"), Some("-1.50e3"), Some("18446744073709551616"), Some("\"\u{2028}\""), Some("null")]
    {
        let id = id.filter(|id| *id != "null");
        assert_eq!(at_once("r\"\n1", id, &result), plain("r\"\n1", id, &result));
    }
}

#[test]
fn a_line_is_allocated_once_and_not_much_too_large() {
    let program = "    let sum = first + second; // an example\n".repeat(6000);
    for (text, most) in [("x".repeat(64), 64), ("x".repeat(256 << 10), 17 << 10), (program, 17 << 10)] {
        let result = CallToolResult::new([Content::text(text)]);
        let line = result_line(Vec::with_capacity, "call_123456", Some("123458"), &result).unwrap();
        assert_eq!(line.capacity(), room("call_123456", Some("123458"), &result), "the line did not grow");
        assert!(line.capacity() - line.len() <= most, "{} of {}", line.len(), line.capacity());
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~]{0,90}",
        "\\PC{0,40}",
        "[\"\\\\\n\r\t\u{0}\u{8}\u{c}\u{1f}\u{7f}\u{2027}\u{2028}\u{2029}─é😀a]{0,40}",
        ("[a-z\u{2028}\n]{1,9}", 0usize..300).prop_map(|(text, times)| text.repeat(times)),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            fields(inner).prop_map(Value::Object),
        ]
    })
}

fn fields(value: impl Strategy<Value = Value>) -> impl Strategy<Value = serde_json::Map<String, Value>> {
    proptest::collection::btree_map(text(), value, 0..3).prop_map(|fields| fields.into_iter().collect())
}

fn block() -> impl Strategy<Value = Content> {
    let extra = prop_oneof![2 => Just(serde_json::Map::new()), 1 => fields(value())];
    (0..5u8, text(), text(), proptest::option::of(text()), extra).prop_map(
        |(kind, a, b, c, extra)| match kind {
            0 => Content::Text { text: a, extra },
            1 => Content::Image { data: a, mime_type: b, extra },
            2 => Content::Audio { data: a, mime_type: b, extra },
            3 => {
                let mut resource = ResourceContents::text(a, b);
                resource.mime_type = c;
                Content::Resource { resource, extra }
            }
            _ => Content::ResourceLink { uri: a, name: b, extra },
        },
    )
}

proptest! {
    #[test]
    fn any_result_is_written_as_the_layers_write_it(
        content in proptest::collection::vec(block(), 0..4),
        structured_content in proptest::option::of(value()),
        is_error in any::<bool>(),
        meta in proptest::option::of(fields(value())),
        request_id in text(),
        rpc_id in proptest::option::of(prop_oneof![
            any::<i64>().prop_map(|id| id.to_string()),
            text().prop_map(|id| json!(id).to_string()),
        ]),
    ) {
        let result = CallToolResult { content, structured_content, is_error, meta };
        prop_assert_eq!(at_once(&request_id, rpc_id.as_deref(), &result), plain(&request_id, rpc_id.as_deref(), &result));
    }
}
