//! Content blocks of each type.

use greenroom::Message;
use greenroom::message::{ContentBlock, ToolResultContent};
use serde_json::value::RawValue;
use serde_json::{Value, json};

fn message(content: &str) -> Message {
    Message::parse(&format!(r#"{{"type":"user","message":{{"content":{content}}}}}"#)).unwrap()
}

fn parse(content: &Value) -> Vec<ContentBlock> {
    let message = message(&content.to_string());
    assert!(matches!(message, Message::User(_)), "{message:?}");
    message.content().to_vec()
}

#[test]
fn common_blocks_are_typed_in_any_order_of_keys() {
    let [said] = &parse(&json!("say \"hi\"\n"))[..] else { panic!() };
    assert_eq!(said.as_text(), Some("say \"hi\"\n"));
    let content = r#"[
        {"text": "a\tb", "citations": [], "type": "text"},
        {"thinking": "hm", "type": "thinking", "signature": "s"},
        {"input": {"a": [1, {"type": "x"}]}, "name": "Bash", "id": "t1", "type": "tool_use", "new": {}},
        {"tool_use_id": "toolu_1", "type": "tool_result", "content": [{"type": "text", "text": "8"}]},
        {"type": "tool_result", "content": "no", "is_error": true, "tool_use_id": "toolu_2"},
        {"type": "tool_result", "tool_use_id": "toolu_3"}
    ]"#;
    let wanted = [
        r#"Text { text: "a\tb", citations: [] }"#,
        r#"Thinking { thinking: "hm", signature: "s" }"#,
        r#"ToolUse { id: "t1", name: "Bash", input: Object {"a": Array [Number(1), Object {"type": String("x")}]} }"#,
        r#"ToolResult { tool_use_id: "toolu_1", content: Blocks([Text { text: "8", citations: [] }]), is_error: false }"#,
        r#"ToolResult { tool_use_id: "toolu_2", content: Text("no"), is_error: true }"#,
        r#"ToolResult { tool_use_id: "toolu_3", content: Blocks([]), is_error: false }"#,
    ];
    let message = message(content);
    assert_eq!(message.content().iter().map(|block| format!("{block:?}")).collect::<Vec<_>>(), wanted);
}

#[test]
fn unknown_blocks_and_misfits_are_kept_whole() {
    let content = json!([
        {"type": "image"},
        {"type": "redacted_thinking", "data": 3},
        {"type": "hologram", "text": {"deep": [1]}},
        {"type": "text", "text": 7},
        {"type": "text"},
        {"type": "tool_use", "id": "toolu_1", "name": "Bash"},
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": 4},
        {"no": "type"},
        {"type": 3},
        "bare",
        null
    ]);
    let blocks = parse(&content);
    let kept: Vec<Value> = blocks
        .iter()
        .map(|block| match block {
            ContentBlock::Unknown(value) => value.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(Value::Array(kept), content);
    assert_eq!(blocks[2].kind(), "hologram");
    assert_eq!(blocks[7].kind(), "");
}

#[test]
fn results_inside_of_results_do_not_recurse() {
    let mut content = json!("x");
    for _ in 0..60 {
        content = json!([{"type": "tool_result", "tool_use_id": "t", "content": content}]);
    }
    let blocks = parse(&content);
    let inner = blocks[0].as_tool_result().unwrap().content;
    let ToolResultContent::Blocks(inner) = inner else { panic!("{inner:?}") };
    assert!(matches!(inner[..], [ContentBlock::Unknown(_)]));

    let deep = |levels| {
        let content = (0..levels).fold(String::from("\"x\""), |content, _| {
            format!(r#"[{{"type":"tool_result","tool_use_id":"t","content":{content}}}]"#)
        });
        assert!(serde_json::from_str::<Box<RawValue>>(&content).is_ok());
        message(&content)
    };
    assert!(matches!(deep(200), Message::Other(other) if other.problem().is_some()));
    assert!(deep(5000).is_abridged());
}

#[test]
fn the_text_of_a_result_is_that_of_its_text_blocks() {
    let blocks = parse(&json!([{"type": "tool_result", "tool_use_id": "t", "content": [
        {"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}
    ]}]));
    assert_eq!(blocks[0].as_tool_result().unwrap().content.text(), "one\ntwo");
}

#[test]
fn rare_blocks_are_typed_or_kept_whole() {
    let content = json!([
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"type": "web_search_result"}]},
        {"type": "code_execution_tool_result", "tool_use_id": "s2", "content": {"stdout": "8"}},
        {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}},
        {"type": "text", "text": "8", "citations": [{"type": "char_location"}]},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}, "title": "T"}
    ]);
    let blocks = parse(&content);
    for (block, given) in blocks.iter().zip(content.as_array().unwrap()) {
        assert_eq!(block.kind(), given["type"].as_str().unwrap());
    }
    let ContentBlock::ServerToolUse { input, .. } = &blocks[0] else { panic!() };
    assert_eq!(input["query"], "q");
    for index in [1, 2] {
        let ContentBlock::ServerToolResult { content: found, .. } = &blocks[index] else { panic!() };
        assert_eq!(found, &content[index]["content"]);
    }
    let ContentBlock::Image { source, .. } = &blocks[3] else { panic!() };
    assert_eq!(source, &content[3]["source"]);
    let ContentBlock::Text { citations, .. } = &blocks[4] else { panic!() };
    assert_eq!(citations.len(), 1);
    for index in [5, 6] {
        assert_eq!(blocks[index], ContentBlock::Unknown(content[index].clone()));
    }
}
