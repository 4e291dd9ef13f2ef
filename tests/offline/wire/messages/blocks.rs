//! Content blocks of each type.

use greenroom::Message;
use greenroom::message::{ContentBlock, MediaSource, ToolResultContent, WebSearchContent};
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
fn rare_blocks_are_typed() {
    let content = json!([
        {"type": "redacted_thinking", "data": "x"},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [
            {"type": "web_search_result", "url": "https://a", "title": "A", "page_age": null}
        ]},
        {"type": "web_search_tool_result", "tool_use_id": "s1",
            "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}},
        {"type": "code_execution_tool_result", "tool_use_id": "s2", "content": {"stdout": "8"}},
        {"type": "mcp_tool_use", "id": "m1", "name": "add", "server_name": "calc", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "m1", "content": [{"type": "text", "text": "8"}], "is_error": true},
        {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}, "title": "T"},
        {"type": "document", "source": {"type": "content", "content": []}},
        {"type": "search_result", "source": "https://a", "title": "A", "content": [{"type": "text", "text": "t"}]},
        {"type": "container_upload", "file_id": "f1"},
        {"type": "tool_reference", "tool_name": "add"},
        {"type": "compaction", "content": "what was said"},
        {"type": "text", "text": "8", "citations": [{"type": "char_location"}]}
    ]);
    let blocks = parse(&content);
    for (block, given) in blocks.iter().zip(content.as_array().unwrap()) {
        assert!(!matches!(block, ContentBlock::Unknown(_)), "{block:?}");
        assert_eq!(block.kind(), given["type"].as_str().unwrap());
        assert!(ContentBlock::KINDS.contains(&block.kind()));
    }
    let ContentBlock::WebSearchToolResult { content: found, .. } = &blocks[2] else { panic!() };
    assert!(matches!(found, WebSearchContent::Results(found) if found[0].title == "A"));
    let ContentBlock::WebSearchToolResult { content: failed, .. } = &blocks[3] else { panic!() };
    assert_eq!(failed, &WebSearchContent::Error("max_uses_exceeded".into()));
    let ContentBlock::McpToolResult { content: told, is_error, .. } = &blocks[6] else { panic!() };
    assert_eq!((&*told.text(), *is_error), ("8", true));
    let ContentBlock::Document { source, title, .. } = &blocks[8] else { panic!() };
    assert!(matches!(source, MediaSource::Text { data, .. } if data == "d") && title.as_deref() == Some("T"));
    let ContentBlock::Document { source: MediaSource::Other(kept), .. } = &blocks[9] else { panic!() };
    assert_eq!(kept, &content[9]["source"]);
    let ContentBlock::SearchResult { content: says, .. } = &blocks[10] else { panic!() };
    assert_eq!((says.len(), says[0].as_text()), (1, Some("t")));
    let ContentBlock::Text { citations, .. } = &blocks[14] else { panic!() };
    assert_eq!(citations.len(), 1);
}

#[test]
fn search_results_inside_of_search_results_do_not_recurse() {
    let mut content = json!([]);
    for _ in 0..60 {
        content = json!([{"type": "search_result", "source": "s", "title": "t", "content": content}]);
    }
    let ContentBlock::SearchResult { content: inner, .. } = &parse(&content)[0] else { panic!() };
    assert!(matches!(inner[..], [ContentBlock::Unknown(_)]));
}
