//! The scripted model over a plain socket.

use std::time::{Duration, Instant};

use greenroom_testkit::{LeakCheck, MAX_REQUEST_BYTES, ModelRequest, ModelTurn, Script, ScriptedModel};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::wait::{SOON, within};

/// An HTTP answer, read to the end of its connection.
struct Got {
    status: u16,
    head: String,
    body: String,
}

impl Got {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn events(&self) -> Vec<Value> {
        assert!(self.head.contains("content-type: text/event-stream"), "{}", self.head);
        let blocks = self.body.split_terminator("\n\n").map(|block| {
            let (event, data) = block.split_once('\n').unwrap();
            let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(event, format!("event: {}", data["type"].as_str().unwrap()));
            data
        });
        blocks.collect()
    }
}

async fn connect(model: &ScriptedModel) -> TcpStream {
    TcpStream::connect(model.url().strip_prefix("http://").unwrap()).await.unwrap()
}

fn raw(method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
}

async fn read_answer(stream: &mut TcpStream) -> Got {
    let mut bytes = Vec::new();
    within(SOON, stream.read_to_end(&mut bytes)).await.unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, mut rest) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut body = String::new();
    if head.contains("transfer-encoding: chunked") {
        loop {
            let (size, tail) = rest.split_once("\r\n").unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            if size == 0 {
                break;
            }
            body.push_str(&tail[..size]);
            rest = &tail[size + 2..];
        }
    } else {
        body.push_str(rest);
    }
    Got { status, head: head.to_owned(), body }
}

async fn send(model: &ScriptedModel, method: &str, path: &str, headers: &str, body: &str) -> Got {
    let mut stream = connect(model).await;
    let headers = format!("connection: close\r\n{headers}");
    stream.write_all(raw(method, path, &headers, body).as_bytes()).await.unwrap();
    read_answer(&mut stream).await
}

async fn post(model: &ScriptedModel, body: Value) -> Got {
    send(model, "POST", "/v1/messages?beta=true", "", &body.to_string()).await
}

/// A request in the shape of the main conversation.
fn main_request(text: &str) -> Value {
    json!({
        "model": "claude-x",
        "tools": [{"name": "mcp__calc__add"}, {"name": "Read"}],
        "messages": [{"role": "user", "content": text}],
    })
}

fn streamed(mut request: Value) -> Value {
    request["stream"] = json!(true);
    request
}

async fn model(script: Script) -> ScriptedModel {
    ScriptedModel::start(script).await.unwrap()
}

/// Puts the content of a streamed answer together again.
fn assemble(events: &[Value]) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    let mut json_of_call = String::new();
    for event in events {
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!(event["index"], blocks.len());
                blocks.push(event["content_block"].clone());
                json_of_call.clear();
            }
            "content_block_delta" => {
                let (block, delta) = (blocks.last_mut().unwrap(), &event["delta"]);
                let mut add = |name: &str| {
                    let longer =
                        format!("{}{}", block[name].as_str().unwrap(), delta[name].as_str().unwrap());
                    block[name] = json!(longer);
                };
                match delta["type"].as_str().unwrap() {
                    "text_delta" => add("text"),
                    "thinking_delta" => add("thinking"),
                    "signature_delta" => add("signature"),
                    "input_json_delta" => json_of_call += delta["partial_json"].as_str().unwrap(),
                    other => panic!("delta {other}"),
                }
            }
            "content_block_stop" if !json_of_call.is_empty() => {
                blocks.last_mut().unwrap()["input"] = serde_json::from_str(&json_of_call).unwrap();
            }
            _ => {}
        }
    }
    blocks
}

#[tokio::test]
async fn a_turn_is_the_same_streamed_and_whole() {
    let turn = ModelTurn::new()
        .thinking("Hm, 漢字.")
        .text("Let me add: é ü — 🙂.")
        .text("")
        .call_with_id("toolu_a", "mcp__calc__add", json!({"a": 5, "b": [1, {"c": null}]}))
        .call_with_id("toolu_b", "Read", json!({}));
    let model = model(Script::new().repeat(2, turn)).await;

    let events = post(&model, streamed(main_request("add"))).await.events();
    let whole = post(&model, main_request("add")).await;

    assert_eq!(whole.status, 200);
    assert_eq!(Value::from(assemble(&events)), whole.json()["content"]);
    assert_eq!(whole.json()["stop_reason"], "tool_use");
    assert_eq!(whole.json()["model"], "claude-x");
    let texts = events.iter().filter(|event| event["delta"]["type"] == "text_delta").count();
    assert!(texts > 1, "a text is split over several deltas");
    let types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types.first(), Some(&"message_start"));
    assert_eq!(types[types.len() - 2..], ["message_delta", "message_stop"]);
    assert_eq!(events[types.len() - 2]["delta"]["stop_reason"], "tool_use");
    assert_ne!(events[0]["message"]["id"], whole.json()["id"]);
    assert_eq!(whole.json()["content"][4]["input"], json!({}));
}

#[tokio::test]
async fn each_main_request_takes_the_next_turn_and_is_recorded() {
    let script = Script::new().turn(ModelTurn::new().text("one")).turn(ModelTurn::new().text("two"));
    let model = model(script).await;
    assert_eq!(model.turns_left(), 2);
    let mut answers = Vec::new();
    for prompt in ["a", "b", "c"] {
        answers.push(post(&model, main_request(prompt)).await.json()["content"][0]["text"].clone());
    }
    assert_eq!(answers[..2], ["one", "two"]);
    assert!(answers[2].as_str().unwrap().contains("script is over"));
    assert_eq!(model.turns_left(), 0);
    let requests = model.requests();
    let seen: Vec<_> = requests.iter().filter_map(ModelRequest::last_user_text).collect();
    assert_eq!(seen, ["a", "b", "c"]);
    assert_eq!(requests[0].tool_names(), ["mcp__calc__add", "Read"]);
    assert_eq!(requests[0].model(), Some("claude-x"));
    assert!(!requests[0].is_streaming());
    assert_eq!(requests[1].body()["messages"][0]["content"], "b");

    // Taken requests are forgotten, but still count.
    assert_eq!(model.take_requests().len(), 3);
    assert!(within(SOON, model.wait_for_requests(3)).await.is_empty());
}

#[tokio::test]
async fn side_calls_take_no_turn() {
    let script = Script::new().turn(ModelTurn::new().text("main")).side_answer("A title");
    let model = model(script).await;
    let side = json!({"model": "m", "tools": [], "messages": [{"role": "user", "content": "title?"}]});
    assert_eq!(post(&model, side.clone()).await.json()["content"][0]["text"], "A title");
    let mut as_json = side.clone();
    as_json["output_config"] = json!({"format": {"type": "json_schema", "schema": {
        "type": "object", "properties": {"title": {"type": "string"}, "n": {"type": "number"}}}}});
    let answer = post(&model, as_json).await.json();
    assert_eq!(answer["content"][0]["text"], r#"{"title":"A title"}"#);
    assert_eq!((model.side_requests(), model.requests().len()), (2, 0));

    // A prompt suggestion has the shape of the main conversation.
    let suggest = main_request("[SUGGESTION MODE: Suggest what the user might type next.]");
    assert_eq!(post(&model, suggest).await.json()["content"][0]["text"], "A title");

    // A conversation without tools is none.
    let mut bare = side;
    bare["thinking"] = json!({"type": "adaptive"});
    assert_eq!(post(&model, bare).await.json()["content"][0]["text"], "main");
    assert_eq!((model.side_requests(), model.requests().len()), (3, 1));
}

#[tokio::test]
async fn subagents_have_turns_of_their_own() {
    let script = Script::new().turn(ModelTurn::new().text("main")).agent_turn(ModelTurn::new().text("agent"));
    let model = model(script).await;
    let ids = "x-claude-code-agent-id: a1\r\nx-claude-code-session-id: s1\r\n";
    let body = main_request("count").to_string();
    let agent = send(&model, "POST", "/v1/messages", ids, &body).await;
    assert_eq!(agent.json()["content"][0]["text"], "agent");
    assert_eq!(post(&model, main_request("x")).await.json()["content"][0]["text"], "main");
    let requests = model.requests();
    assert_eq!((requests[0].agent_id(), requests[0].session_id()), (Some("a1"), Some("s1")));
    assert_eq!(requests[1].agent_id(), None);
}

#[tokio::test]
async fn errors_have_the_shape_of_the_api() {
    let script = Script::new()
        .turn(ModelTurn::new().error(529, "overloaded_error", "busy"))
        .turn(ModelTurn::new().final_error(7, "api_error", "odd"))
        .turn(ModelTurn::new().text("recovered"));
    let model = model(script).await;
    let busy = post(&model, streamed(main_request("x"))).await;
    assert_eq!(busy.status, 529);
    let shape = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
    assert_eq!(busy.json(), shape);
    assert!(!busy.head.contains("x-should-retry"));
    let odd = post(&model, main_request("x")).await;
    assert_eq!(odd.status, 500);
    assert!(odd.head.contains("x-should-retry: false"));
    assert_eq!(post(&model, main_request("x")).await.json()["content"][0]["text"], "recovered");
}

#[tokio::test]
async fn the_rest_of_the_api() {
    let model = model(Script::new()).await;
    let body = main_request("x").to_string();
    let count = send(&model, "POST", "/v1/messages/count_tokens?beta=true", "", &body).await;
    assert!(count.json()["input_tokens"].as_u64().unwrap() > 0);
    let models = send(&model, "GET", "/v1/models?limit=5", "", "").await.json();
    assert_eq!(models["data"][0]["id"], models["first_id"]);
    assert_eq!(send(&model, "GET", "/v1/models/claude-x", "", "").await.json()["id"], "claude-x");
    for (method, path) in [("GET", "/v1/messages"), ("POST", "/v1/complete"), ("DELETE", "/")] {
        let got = send(&model, method, path, "", "").await;
        assert_eq!((got.status, &got.json()["error"]["type"]), (404, &json!("not_found_error")));
    }
    let got = send(&model, "POST", "/v1/messages", "", "{nonsense").await;
    assert_eq!((got.status, &got.json()["error"]["type"]), (400, &json!("invalid_request_error")));
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let model = model(Script::new()).await;
    let got = send(&model, "POST", "/v1/messages", "", &" ".repeat(MAX_REQUEST_BYTES + 1)).await;
    assert_eq!((got.status, &got.json()["error"]["type"]), (413, &json!("request_too_large")));
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn waiting_for_requests_ends_when_they_have_come() {
    let model = model(Script::new()).await;
    assert!(model.wait_for_requests(0).await.is_empty());
    let both = async {
        post(&model, main_request("a")).await;
        post(&model, main_request("b")).await;
    };
    let (requests, ()) = within(SOON, async { tokio::join!(model.wait_for_requests(2), both) }).await;
    assert_eq!(requests.len(), 2);
    assert_eq!(within(SOON, model.wait_for_requests(1)).await.len(), 2);
}

#[tokio::test]
async fn pauses_hold_the_answer_back() {
    let pause = Duration::from_millis(20);
    let turn = ModelTurn::new().pause_before(pause).pause_between(pause).text("ab");
    let model = model(Script::new().turn(turn)).await;
    let start = Instant::now();
    let events = post(&model, streamed(main_request("x"))).await.events();
    assert!(start.elapsed() >= pause * u32::try_from(events.len()).unwrap());
    assert_eq!(assemble(&events)[0]["text"], "ab");
}

#[tokio::test]
async fn a_client_that_hangs_up_in_mid_answer_leaves_nothing_behind() {
    let before = ModelTurn::new().pause_before(Duration::MAX).text("never");
    let between = ModelTurn::new().pause_between(Duration::MAX).text("hardly");
    let model = model(Script::new().turn(before).turn(between)).await;
    let only_the_acceptor = LeakCheck::tasks();
    for count in [1, 2] {
        let mut stream = connect(&model).await;
        let body = streamed(main_request("x")).to_string();
        stream.write_all(raw("POST", "/v1/messages", "", &body).as_bytes()).await.unwrap();
        assert_eq!(within(SOON, model.wait_for_requests(count)).await.len(), count);
    }
    only_the_acceptor.assert_none(SOON).await;
    within(SOON, model.stop()).await;
}

#[tokio::test]
async fn dropping_the_model_closes_port_and_connections() {
    let nothing = LeakCheck::tasks();
    let model = model(Script::new().turn(ModelTurn::new().pause_before(Duration::MAX))).await;
    let mut waiting = connect(&model).await;
    let mut idle = connect(&model).await;
    let request = raw("POST", "/v1/messages", "", &main_request("x").to_string());
    waiting.write_all(request.as_bytes()).await.unwrap();
    within(SOON, model.wait_for_requests(1)).await;
    let url = model.url();
    drop(model);
    nothing.assert_none(SOON).await;
    assert!(TcpStream::connect(url.strip_prefix("http://").unwrap()).await.is_err());
    for stream in [&mut waiting, &mut idle] {
        let mut rest = Vec::new();
        let read = within(SOON, stream.read_to_end(&mut rest)).await;
        assert!(read.is_err() || rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    }
}

#[tokio::test]
async fn what_the_user_said_is_found_among_what_the_cli_adds() {
    let model = model(Script::new()).await;
    let request = async |messages: Value| {
        post(&model, json!({"tools": [{"name": "Read"}], "messages": messages})).await;
        model.take_requests().remove(0)
    };
    let reminder = json!({"type": "text", "text": "<system-reminder>\nnever mind\n</system-reminder>"});
    let prompt = json!({"role": "user", "content": [reminder, {"type": "text", "text": "What is 5 + 3?"}]});
    let system = json!({"role": "system", "content": [{"type": "text", "text": "# Environment"}]});

    let first = request(json!([prompt, system])).await;
    assert_eq!(first.last_user_text(), Some("What is 5 + 3?"));
    assert!(first.tool_results().is_empty());

    let messages = json!([prompt, system, {"role": "assistant", "content": []}, {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "a",
            "content": [{"type": "text", "text": "8"}, {"type": "image"}, {"type": "text", "text": "9"}]},
        {"type": "tool_result", "tool_use_id": "b", "content": "boom", "is_error": true},
    ]}, system]);
    let after_calls = request(messages).await;
    assert_eq!(after_calls.last_user_text(), Some("What is 5 + 3?"));
    let results = after_calls.tool_results();
    assert_eq!(
        (results[0].tool_use_id.as_str(), results[0].is_error, results[0].text.as_str()),
        ("a", false, "8\n9")
    );
    assert_eq!(
        (results[1].tool_use_id.as_str(), results[1].is_error, results[1].text.as_str()),
        ("b", true, "boom")
    );
    assert_eq!(results[0].content[1]["type"], "image");

    assert_eq!(request(json!([])).await.last_user_text(), None);
    assert_eq!(request(json!("nonsense")).await.last_user_text(), None);
}
