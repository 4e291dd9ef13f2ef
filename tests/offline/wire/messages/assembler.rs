//! Partial and complete messages, in order and with gaps.

use greenroom::Message;
use greenroom::message::{Assembler, ContentBlock, DeltaKind};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::parse;

fn event(event: Value) -> Message {
    parse(&json!({"type": "stream_event", "event": event, "api_message_id": "m1"}))
}

fn of_thread(message: &Message, thread: &str) -> Message {
    let mut value = message.value();
    value["parent_tool_use_id"] = thread.into();
    parse(&value)
}

fn start(id: &str) -> Message {
    let message = json!({"type": "message_start", "message": {"id": id, "model": "m", "content": []}});
    parse(&json!({"type": "stream_event", "event": message}))
}

fn begin(index: usize, block: Value) -> Message {
    event(json!({"type": "content_block_start", "index": index, "content_block": block}))
}

fn add(index: usize, delta: Value) -> Message {
    event(json!({"type": "content_block_delta", "index": index, "delta": delta}))
}

fn text(index: usize, text: &str) -> Message {
    add(index, json!({"type": "text_delta", "text": text}))
}

fn stop(index: usize) -> Message {
    event(json!({"type": "content_block_stop", "index": index}))
}

fn said(block: Value) -> Message {
    parse(&json!({"type": "assistant", "message": {"id": "m1", "content": [block]}}))
}

fn end() -> [Message; 2] {
    [
        event(
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}),
        ),
        event(json!({"type": "message_stop"})),
    ]
}

fn feed(assembler: &mut Assembler, messages: &[Message]) -> Vec<DeltaKind> {
    messages.iter().flat_map(|message| assembler.feed(message)).map(|delta| delta.kind).collect()
}

#[test]
fn a_message_grows_and_is_complete_at_its_end() {
    let mut assembler = Assembler::new();
    let mut messages = vec![
        start("m1"),
        begin(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        add(0, json!({"type": "thinking_delta", "thinking": "hm"})),
        add(0, json!({"type": "signature_delta", "signature": "s"})),
        said(json!({"type": "thinking", "thinking": "hm", "signature": "s"})),
        stop(0),
        begin(1, json!({"type": "text", "text": ""})),
        text(1, "Let me "),
        text(1, "add."),
        said(json!({"type": "text", "text": "Let me add."})),
        stop(1),
        begin(2, json!({"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}})),
        add(2, json!({"type": "input_json_delta", "partial_json": "{\"a\""})),
        add(2, json!({"type": "input_json_delta", "partial_json": ": 5}"})),
        said(json!({"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 5}})),
        stop(2),
    ];
    messages.extend(end());
    let deltas = feed(&mut assembler, &messages);
    let words: Vec<String> = deltas
        .iter()
        .map(|kind| match kind {
            DeltaKind::MessageStart => "start".into(),
            DeltaKind::BlockStart { index, kind, .. } => format!("{index} {kind}"),
            DeltaKind::Text { text, .. } => text.clone(),
            DeltaKind::Thinking { thinking, .. } => thinking.clone(),
            DeltaKind::InputJson { partial_json, .. } => partial_json.clone(),
            DeltaKind::BlockComplete { index, .. } => format!("{index} complete"),
            DeltaKind::MessageComplete { stop_reason, .. } => format!("end {stop_reason:?}"),
            other => panic!("{other:?}"),
        })
        .collect();
    let wanted = [
        "start",
        "0 thinking",
        "hm",
        "0 complete",
        "1 text",
        "Let me ",
        "add.",
        "1 complete",
        "2 tool_use",
        "{\"a\"",
        ": 5}",
        "2 complete",
        "end Some(\"tool_use\")",
    ];
    assert_eq!(words, wanted);
    let whole = |at: usize| match &deltas[at] {
        DeltaKind::BlockComplete { block, .. } => block,
        other => panic!("{other:?}"),
    };
    assert!(matches!(whole(3), ContentBlock::Thinking { thinking, .. } if thinking == "hm"));
    assert_eq!(whole(7).as_text(), Some("Let me add."));
    assert_eq!(whole(11).as_tool_use().unwrap().input, &json!({"a": 5}));
}

#[test]
fn stream_events_alone_complete_a_message() {
    let mut assembler = Assembler::new();
    let messages = [
        start("m1"),
        begin(0, json!({"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}})),
        add(0, json!({"type": "input_json_delta", "partial_json": "{\"a\": 5}"})),
        stop(0),
    ];
    let deltas = feed(&mut assembler, &messages);
    let DeltaKind::BlockComplete { block, .. } = deltas.last().unwrap() else { panic!("{deltas:?}") };
    assert_eq!(block.as_tool_use().unwrap().input, &json!({"a": 5}));
    // A call without arguments has no deltas.
    let empty = [begin(1, json!({"type": "tool_use", "id": "t2", "name": "now", "input": {}})), stop(1)];
    let deltas = feed(&mut assembler, &empty);
    assert!(
        matches!(&deltas[1], DeltaKind::BlockComplete { block, .. } if block.as_tool_use().unwrap().input == &json!({}))
    );
}

#[test]
fn truncated_arguments_are_never_complete() {
    let mut assembler = Assembler::new();
    let messages = [
        start("m1"),
        begin(0, json!({"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}})),
        add(0, json!({"type": "input_json_delta", "partial_json": "{\"a\": "})),
        stop(0),
    ];
    let deltas = feed(&mut assembler, &messages);
    assert!(!deltas.iter().any(|kind| matches!(kind, DeltaKind::BlockComplete { .. })), "{deltas:?}");
    let call = json!({"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 5}});
    let deltas = feed(&mut assembler, &[said(call)]);
    assert!(matches!(&deltas[..], [DeltaKind::BlockComplete { index: 0, .. }]), "{deltas:?}");
}

#[test]
fn threads_do_not_mix() {
    let (mut assembler, mut main, mut agent) = (Assembler::new(), String::new(), String::new());
    for message in [
        start("m1"),
        of_thread(&start("m2"), "toolu_1"),
        begin(0, json!({"type": "text", "text": ""})),
        of_thread(&begin(0, json!({"type": "text", "text": ""})), "toolu_1"),
        text(0, "main"),
        of_thread(&text(0, "agent"), "toolu_1"),
        text(0, " thread"),
    ] {
        let value = message.value();
        let message = if value["parent_tool_use_id"] == "toolu_1" {
            let mut value = value;
            value["api_message_id"] = "m2".into();
            parse(&value)
        } else {
            message
        };
        for delta in assembler.feed(&message) {
            assert_eq!(delta.is_main_thread(), delta.api_message_id.as_deref() == Some("m1"), "{delta:?}");
            if delta.is_main_thread() { &mut main } else { &mut agent }.extend(delta.text());
        }
    }
    assert_eq!((main.as_str(), agent.as_str()), ("main thread", "agent"));
}

#[test]
fn a_message_that_is_cut_off_is_aborted() {
    let mut assembler = Assembler::new();
    feed(&mut assembler, &[start("m1"), begin(0, json!({"type": "text", "text": ""})), text(0, "I th")]);
    let deltas = feed(&mut assembler, &[start("m2")]);
    assert_eq!(deltas, [DeltaKind::MessageAborted, DeltaKind::MessageStart]);
    let result = Message::parse(r#"{"type":"result","subtype":"success"}"#).unwrap();
    assert_eq!(feed(&mut assembler, &[result]), [DeltaKind::MessageAborted]);
    assert_eq!(feed(&mut assembler, &[start("m3")]), [DeltaKind::MessageStart]);
}

#[test]
fn complete_messages_alone_give_deltas() {
    let mut assembler = Assembler::new();
    let deltas = feed(
        &mut assembler,
        &[said(json!({"type": "text", "text": "a"})), said(json!({"type": "text", "text": "b"}))],
    );
    let texts: Vec<_> = deltas
        .iter()
        .filter_map(|kind| match kind {
            DeltaKind::Text { index, text, .. } => Some((*index, text.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(texts, [(0, "a"), (1, "b")]);
}

proptest! {
    /// Whichever partial messages are missing, the deltas add up to the text.
    #[test]
    fn deltas_add_up_to_the_text(
        blocks in proptest::collection::vec(proptest::collection::vec("[a-z ]{0,4}", 0..5), 1..4),
        lost in proptest::collection::vec(any::<bool>(), 40),
        ids in any::<bool>(),
    ) {
        let mut messages = vec![start("m1")];
        let mut wanted = String::new();
        for (index, pieces) in blocks.iter().enumerate() {
            let full = pieces.concat();
            messages.push(begin(index, json!({"type": "text", "text": ""})));
            messages.extend(pieces.iter().map(|piece| text(index, piece)));
            messages.push(said(json!({"type": "text", "text": full})));
            messages.push(stop(index));
            wanted += &full;
        }
        messages.extend(end());
        let (mut assembler, mut missed, mut told) = (Assembler::new(), false, String::new());
        for (message, lost) in messages.iter().zip(lost.iter().chain(std::iter::repeat(&false))) {
            let partial = matches!(message, Message::StreamEvent(_));
            if partial && *lost {
                missed = true;
                continue;
            }
            if std::mem::take(&mut missed) {
                assembler.missed();
            }
            let mut message = message.clone();
            if partial && !ids {
                let mut value = message.value();
                value.as_object_mut().unwrap().remove("api_message_id");
                message = parse(&value);
            }
            for delta in assembler.feed(&message) {
                prop_assert!(!matches!(delta.kind, DeltaKind::BlockReplaced { .. }), "{delta:?}");
                told.extend(delta.text());
            }
        }
        prop_assert_eq!(told, wanted);
    }
}
