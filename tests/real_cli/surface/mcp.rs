//! Resources, requests of a server to the CLI, and changes of the list of tools.

use greenroom::mcp::{ReadResource, ResourceDef, ResourceTemplateDef};
use greenroom::tool::{CallToolResult, Content};
use greenroom::transport::ChildProcess;
use greenroom::{Event, Json, NoArgs, ToolContext, ToolDef};
use greenroom_testkit::{Fault, Line, ModelTurn, Recorder, Script, ToolResultSeen, Wire};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::stage::{Stage, answers, calc, call, event, in_time, loaded, outcome, start, stop, text};

/// Results of calls that the model read, in order.
fn results(stage: &Stage) -> Vec<ToolResultSeen> {
    stage.model.requests().iter().flat_map(|request| request.tool_results()).collect()
}

fn grown() -> ToolDef {
    loaded(ToolDef::new("grown", "Has grown", async |_: NoArgs| "grown up"))
}

/// Waits until the CLI has asked for the list of tools this many times, and was answered.
async fn has_listed(recorder: &Recorder, times: usize) {
    in_time("the list of tools", async {
        let answers = || {
            let answers = |line: &Line| {
                let tools = &line.json().unwrap_or_default()["response"]["response"]["mcp_response"]["result"]
                    ["tools"];
                tools.is_array()
            };
            let transcript = recorder.transcript();
            let lines = transcript.entries.iter().filter_map(|entry| match &entry.wire {
                Wire::Host(line) => Some(line),
                _ => None,
            });
            lines.filter(|line| answers(line)).count()
        };
        while answers() < times {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_tool_added_by_a_tool_is_listed_and_called_by_the_next_cli_too() {
    let script = Script::new()
        .turn(call("grow", json!({})))
        .turn(text("It grows."))
        .turn(call("grown", json!({})))
        .turn(text("It has grown."))
        .turn(call("grown", json!({})))
        .turn(text("Still there."))
        .turn(call("grown", json!({})))
        .turn(text("It is gone."));
    let Some(stage) = Stage::new(script).await else { return };
    let grow = ToolDef::new("grow", "Grows", async |_: NoArgs, cx: ToolContext| {
        let server = cx.server_handle().ok_or("no session")?;
        server.add_tool(grown()).map_err(|_| "it has grown already")?;
        Ok::<_, &str>("growing")
    });
    let recorder = Recorder::around(ChildProcess::new());
    let builder = stage.builder().mcp_server(calc().add_tool(loaded(grow))).allow_server_tools("calc");
    let session = start(builder.transport(recorder.clone())).await;
    let mut events = session.events();
    answers(&session, "Grow.", "It grows.").await;
    // The CLI knew the list from its start, so it asks for the first time now.
    has_listed(&recorder, 1).await;
    answers(&session, "Try it.", "It has grown.").await;
    assert!(stage.last_request().tool_names().contains(&"mcp__calc__grown"));
    assert_eq!(stage.last_result().text, "grown up");

    session.inject(Fault::KillPort);
    event(&mut events, "the next CLI", |event| matches!(event, Event::CliRestarted { .. }).then_some(()))
        .await;
    answers(&session, "Again.", "Still there.").await;
    assert_eq!(stage.last_result().text, "grown up");
    has_listed(&recorder, 1).await;

    assert!(session.server("calc").unwrap().remove_tool("grown").unwrap());
    has_listed(&recorder, 2).await;
    answers(&session, "Once more.", "It is gone.").await;
    // The CLI goes on naming it to the model of this conversation, and knows that it is no more.
    let gone = stage.last_result();
    assert!(gone.is_error && gone.text.contains("grown"), "{gone:?}");
    stop(&session).await;
}

#[tokio::test]
async fn the_model_lists_and_reads_resources() {
    let read =
        |uri: &str| ModelTurn::new().call("ReadMcpResourceTool", json!({ "server": "calc", "uri": uri }));
    let list = || ModelTurn::new().call("ListMcpResourcesTool", json!({}));
    let script = Script::new()
        .turn(list())
        .turn(read("calc://motto"))
        .turn(read("calc://row/7"))
        .turn(read("calc://seal"))
        .turn(read("calc://none"))
        .turn(text("All read."))
        .turn(list())
        .turn(text("One more."));
    let Some(stage) = Stage::new(script).await else { return };
    let row =
        ResourceTemplateDef::new("calc://row/{n}", "row", async |read: ReadResource, _: ToolContext| {
            format!("row {}", read.variable("n").unwrap_or_default())
        });
    let server = calc()
        .resource(ResourceDef::text("calc://motto", "motto", "Count on it.").mime_type("text/plain"))
        .resource(ResourceDef::blob("calc://seal", "seal", b"\x00\xff\x00").mime_type("application/x-seal"))
        .resource_template(row);
    let session = stage.start(server).await;
    answers(&session, "Read.", "All read.").await;
    let results = results(&stage);
    let listed: Value = serde_json::from_str(&results[0].text).unwrap();
    let motto = json!({ "name": "motto", "uri": "calc://motto", "mimeType": "text/plain", "size": 12, "server": "calc" });
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]), (2, &motto), "templates are not listed");
    let contents =
        |at: usize| serde_json::from_str::<Value>(&results[at].text).unwrap()["contents"][0].clone();
    assert_eq!(contents(1)["text"], "Count on it.");
    assert_eq!(contents(2)["text"], "row 7", "a URI of a template is read all the same");
    let saved = contents(3)["blobSavedTo"].as_str().unwrap().to_owned();
    assert_eq!(std::fs::read(saved).unwrap(), b"\x00\xff\x00", "bytes are in a file");
    assert!(results[4].text.starts_with("Resource not found: calc://none"), "{}", results[4].text);

    session.server("calc").unwrap().add_resource(ResourceDef::<()>::text("calc://new", "new", "x")).unwrap();
    answers(&session, "List.", "One more.").await;
    assert!(stage.last_result().text.contains("calc://new"), "{}", stage.last_result().text);
    stop(&session).await;
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Sum {
    sum: f64,
}

#[tokio::test]
async fn the_model_reads_structured_content_and_a_result_may_end_the_turn() {
    let script = Script::new()
        .turn(call("both", json!({})))
        .turn(call("typed", json!({})))
        .turn(call("over", json!({})))
        .turn(text("Never said in that turn."));
    let Some(stage) = Stage::new(script).await else { return };
    let both = ToolDef::new("both", "Text and data", async |_: NoArgs| {
        CallToolResult::new([Content::text("as text")]).structured(json!({ "sum": 8.5 })).with_meta("mine", 1)
    });
    let typed = ToolDef::new("typed", "Data", async |_: NoArgs| Json(Sum { sum: 8.5 }));
    let over = ToolDef::new("over", "Ends the turn", async |_: NoArgs| {
        CallToolResult::new([Content::text("over")]).end_turn()
    });
    let server = calc().add_tool(loaded(both.output::<Sum>())).add_tool(loaded(typed)).add_tool(loaded(over));
    let session = stage.start(server).await;
    let ended = outcome(&session, "Compute.").await;
    assert_eq!((ended.is_completed(), ended.text()), (true, Some("")), "{ended:?}");
    let told: Vec<_> = results(&stage).into_iter().map(|result| result.text).collect();
    assert_eq!(told, [r#"{"sum":8.5}"#, r#"{"sum":8.5}"#], "the data is told, not the text beside it");
    stop(&session).await;
}
