//! The scenarios, in greenroom. `scenario.py` holds them in the Python SDK, under the same names.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use greenroom::mcp::ResourceContents;
use greenroom::options::SystemPrompt;
use greenroom::requests::ContextDetail;
use greenroom::session::Steered;
use greenroom::sessions::{LocalSessions, Page, SessionInfo, SessionMessages};
use greenroom::tool::{CallToolResult, Content, ToolAnnotations};
use greenroom::{
    Hook, NoArgs, Options, PermissionDecision, PermissionMode, PermissionRequest, Prompt, SessionBuilder,
    ToolContext, ToolDef, ToolServer, hook, query,
};
use greenroom_testkit::{ModelTurn, Script};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use crate::compare;
use crate::stage::{Stage, in_time};
use crate::told::{Talk, Told};

/// A picture of a single red pixel.
const PICTURE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";

#[derive(Deserialize, JsonSchema)]
struct Kind {
    kind: String,
}

#[derive(Deserialize, JsonSchema)]
struct Numbers {
    /// The first
    a: i64,
    /// The second
    b: i64,
}

fn text(text: &str) -> ModelTurn {
    ModelTurn::new().text(text)
}

/// A message of the model that calls the tool once for each of these arguments.
fn calls(tool: &str, arguments: impl IntoIterator<Item = Value>) -> ModelTurn {
    arguments
        .into_iter()
        .fold(ModelTurn::new(), |turn, arguments| turn.call(format!("mcp__desk__{tool}"), arguments))
}

fn kinds(tool: &str, kinds: &[&str]) -> ModelTurn {
    calls(tool, kinds.iter().map(|kind| json!({ "kind": kind })))
}

fn desk(tools: impl IntoIterator<Item = ToolDef>) -> ToolServer {
    tools.into_iter().fold(ToolServer::new("desk", "1.0.0"), ToolServer::add_tool)
}

fn echo() -> ToolDef {
    ToolDef::new("echo", "Say the arguments", async |args: Kind| args.kind)
}

/// As in Python, the model sees all tools at once.
fn builder(stage: &Stage) -> SessionBuilder {
    stage.builder().env("ENABLE_TOOL_SEARCH", "false")
}

/// A session with these options, written as in a config file.
fn with(stage: &Stage, options: Value) -> SessionBuilder {
    builder(stage).configure(|target| {
        let mut all = serde_json::to_value(&*target).unwrap();
        all.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        *target = serde_json::from_value::<Options>(all).unwrap();
    })
}

async fn ask(told: &Told, mut talk: Talk, prompts: &[&str]) {
    for prompt in prompts {
        told.say(&mut talk, *prompt).await;
    }
    talk.stop().await;
}

#[tokio::test]
async fn results() {
    let kinds = kinds(
        "give",
        &["text", "several", "nothing", "signs", "picture", "error", "errors", "raised", "long"],
    );
    let script =
        Script::new().turn(kinds).turn(calls("look", [json!({}), json!({})])).turn(text("That was all."));
    compare("results", script, async |stage, told| {
        let give = ToolDef::new("give", "Give a result of this kind", async |args: Kind| {
            Ok(match args.kind.as_str() {
                "text" => CallToolResult::new([Content::text("plain")]),
                "several" => CallToolResult::new(["one", "two", ""].map(Content::text)),
                "nothing" => CallToolResult::new([]),
                "signs" => CallToolResult::new([Content::text("ä\u{2028}🎭\t\u{1}\"\\<b>")]),
                "picture" => {
                    CallToolResult::new([Content::text("look:"), Content::image(PICTURE, "image/png")])
                }
                "error" => CallToolResult::error("the disk is full"),
                "errors" => {
                    let mut result = CallToolResult::new(["first", "second"].map(Content::text));
                    result.is_error = true;
                    result
                }
                "long" => CallToolResult::new([Content::text("0123456789".repeat(12_000))]),
                _ => return Err("it does not add up"),
            })
        });
        let look = ToolDef::new("look", "Look, and change nothing", async |_: NoArgs| "seen");
        let look = look
            .annotations(ToolAnnotations { title: Some("Look".into()), ..ToolAnnotations::default() })
            .read_only_hint(true);
        let server = desk([give, look]);
        let talk = Talk::start(builder(stage).mcp_server(server).allow_server_tools("desk")).await;
        ask(told, talk, &["Give."]).await;
    })
    .await;
}

#[tokio::test]
async fn rich_results() {
    let kinds = kinds("give", &["link", "file", "bytes", "sound", "structured"]);
    let script = Script::new().turn(kinds).turn(text("That was all."));
    compare("rich_results", script, async |stage, told| {
        let give =
            ToolDef::new("give", "Give a result of this kind", async |args: Kind| match args.kind.as_str() {
                "link" => CallToolResult::new([
                    Content::resource_link("file:///a.txt", "a").with("description", "The first")
                ]),
                "file" => CallToolResult::new([Content::resource(
                    ResourceContents::text("file:///a.txt", "inside").mime_type("text/plain"),
                )]),
                "bytes" => CallToolResult::new([
                    Content::text("bytes:"),
                    Content::resource(
                        ResourceContents::blob("file:///a.bin", "aGk=").mime_type("application/octet-stream"),
                    ),
                ]),
                "sound" => {
                    CallToolResult::new([Content::text("sound:"), Content::audio("aGk=", "audio/wav")])
                }
                _ => CallToolResult::new([Content::text("5")]).structured(json!({ "sum": 5 })),
            });
        let talk = Talk::start(builder(stage).mcp_server(desk([give])).allow_server_tools("desk")).await;
        ask(told, talk, &["Give."]).await;
    })
    .await;
}

#[tokio::test]
async fn arguments() {
    let add = calls(
        "add",
        [
            json!({ "a": 5, "b": 3 }),
            json!({ "a": 5, "b": 3, "c": "one more" }),
            json!({ "a": 5 }),
            json!({ "a": 5, "b": "three" }),
            json!({ "a": 5, "b": null }),
            json!({ "a": 5.0, "b": 3 }),
            json!({ "a": 9_007_199_254_740_993_i64, "b": 0 }),
            json!({}),
        ],
    );
    let echo = calls("echo", [json!({ "kind": "ä \u{1F3AD} \u{2028}" }), json!({ "Kind": "k" })]);
    let script = Script::new().turn(add).turn(echo).turn(calls("nope", [json!({})])).turn(text("I see."));
    compare("arguments", script, async |stage, told| {
        let add = ToolDef::new("add", "Add two numbers", async |args: Numbers| args.a + args.b);
        let echo = ToolDef::new("echo", "Say the arguments", async |args: Kind| {
            json!({ "kind": args.kind }).to_string()
        });
        let talk = Talk::start(builder(stage).mcp_server(desk([add, echo])).allow_server_tools("desk")).await;
        ask(told, talk, &["Try."]).await;
    })
    .await;
}

#[tokio::test]
async fn permissions() {
    let script = Script::new()
        .turn(kinds("echo", &["as it is", "changed", "no"]))
        .turn(text("Asked."))
        .turn(kinds("echo", &["stop", "never asked"]))
        .turn(kinds("echo", &["for good"]))
        .turn(kinds("echo", &["no more asking"]))
        .turn(text("Done."));
    compare("permissions", script, async |stage, told| {
        let asked = told.clone();
        let can_use_tool = move |request: PermissionRequest, _| {
            let raw = serde_json::to_value(&request).unwrap();
            let known = |name: &str| raw[name].clone();
            asked.asked(json!({
                "tool_name": request.tool_name,
                "input": request.input,
                "tool_use_id": request.tool_use_id,
                "suggestions": known("permission_suggestions"),
                "title": known("title"),
                "display_name": known("display_name"),
                "description": known("description"),
                "decision_reason": known("decision_reason"),
                "blocked_path": known("blocked_path"),
            }));
            async move {
                match request.input["kind"].as_str().unwrap() {
                    "as it is" => PermissionDecision::allow(),
                    "changed" => PermissionDecision::allow_with(json!({ "kind": "changed by the host" })),
                    "no" => PermissionDecision::deny("not on a Sunday"),
                    "for good" => request
                        .permission_suggestions
                        .into_iter()
                        .fold(PermissionDecision::allow(), PermissionDecision::update),
                    "stop" => PermissionDecision::deny_and_interrupt("that is enough"),
                    other => panic!("asked again for {other}"),
                }
            }
        };
        let talk = Talk::start(builder(stage).mcp_server(desk([echo()])).can_use_tool(can_use_tool)).await;
        ask(told, talk, &["Ask.", "Ask, and stop.", "Ask no more."]).await;
    })
    .await;
}

/// A hook that notes what it is told.
fn on<E>(told: &Told, event: E, answer: fn(&E::Input) -> hook::Output<E>) -> Hook
where
    E: hook::EventType,
    E::Input: Serialize,
{
    let told = told.clone();
    Hook::on(event, move |input, _| {
        told.asked(serde_json::to_value(&input).unwrap());
        let output = answer(&input);
        async move { output }
    })
}

#[tokio::test]
async fn hooks() {
    let script = Script::new()
        .turn(kinds("echo", &["as it is", "changed", "no"]))
        .turn(calls("wipe", [json!({})]))
        .turn(text("Done."))
        .turn(text("Goodbye."));
    compare("hooks", script, async |stage, told| {
        // Typed messages are serialised again, so that a field that is lost shows.
        let before = on(told, hook::PreToolUse, |input| match input.tool_input["kind"].as_str() {
            Some("no") => hook::PreToolUseOutput::deny("a hook says no"),
            Some("changed") => {
                hook::PreToolUseOutput::allow().updated_input(json!({ "kind": "changed by a hook" }))
            }
            _ => hook::PreToolUseOutput::allow(),
        });
        let after = on(told, hook::PostToolUse, |_| {
            hook::PostToolUseOutput::pass().additional_context("It was said on a Monday.")
        });
        let failed = on(told, hook::PostToolUseFailure, |_| {
            hook::PostToolUseFailureOutput::pass().additional_context("Fetch a screwdriver.")
        });
        let prompted = on(told, hook::UserPromptSubmit, |_| {
            hook::UserPromptSubmitOutput::pass().additional_context("The user is called Ada.")
        });
        let stopping = on(told, hook::Stop, |input| match input.stop_hook_active {
            true => hook::StopOutput::pass(),
            false => hook::StopOutput::block("Say goodbye first."),
        });
        let wipe = ToolDef::new("wipe", "Wipe the desk", async |_: NoArgs| Err::<(), _>("it is screwed on"));
        let builder = [before.matcher("mcp__desk__.*"), after, failed, prompted, stopping]
            .into_iter()
            .fold(builder(stage), SessionBuilder::hook);
        let talk = Talk::start(builder.mcp_server(desk([echo(), wipe]))).await;
        ask(told, talk, &["Go through the hooks."]).await;
    })
    .await;
}

/// Hooks that take long, that take too long, and that fail.
#[tokio::test]
async fn late_hooks() {
    let script = Script::new()
        .turn(calls("wipe", [json!({})]))
        .turn(kinds("echo", &["is late"]))
        .turn(kinds("echo", &["raises"]))
        .turn(text("Done."));
    compare("late_hooks", script, async |stage, told| {
        let slow = Hook::on(hook::PreToolUse, async |_, _| {
            tokio::time::sleep(Duration::from_secs(2)).await;
            hook::PreToolUseOutput::deny("the review says no")
        });
        let late = Hook::on(hook::PreToolUse, async |input, _| {
            if input.tool_input["kind"] == "raises" {
                return Err("the policy is lost");
            }
            tokio::time::sleep(Duration::from_secs(4)).await;
            Ok(hook::PreToolUseOutput::pass())
        });
        let late = late.matcher("mcp__desk__echo").timeout(Duration::from_secs(1));
        let wipe = ToolDef::new("wipe", "Wipe the desk", async |_: NoArgs| "wiped");
        let builder = builder(stage).hook(slow.matcher("mcp__desk__wipe")).hook(late);
        let builder = builder.mcp_server(desk([echo(), wipe])).allow_server_tools("desk");
        ask(told, Talk::start(builder).await, &["Wipe and echo."]).await;
    })
    .await;
}

#[tokio::test]
async fn conversation() {
    let script = ["One.", "Two.", "Three.", "Four.", "Five."]
        .into_iter()
        .fold(Script::new(), |script, answer| script.turn(text(answer)));
    let write = ModelTurn::new().call("Write", json!({ "file_path": "notes.txt", "content": "six" }));
    compare("conversation", script.turn(write).turn(text("Six.")), async |stage, told| {
        let options =
            json!({ "tools": ["Read", "Write"], "model": "claude-sonnet-4-5", "permission_mode": "default" });
        let mut talk = Talk::start(with(stage, options)).await;
        told.say(&mut talk, "First?").await;
        let picture = Prompt::blocks([
            json!({ "type": "text", "text": "Second, with a picture?" }),
            json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": PICTURE } }),
]);
        told.say(&mut talk, picture).await;
        talk.session.set_model(Some("claude-opus-4-1")).await.unwrap();
        told.say(&mut talk, "Third, to another model?").await;
        talk.session.set_model(None).await.unwrap();
        told.say(&mut talk, "Fourth, to the first model?").await;
        talk.session.set_permission_mode(PermissionMode::Plan).await.unwrap();
        told.say(&mut talk, "Fifth, as a plan?").await;
        talk.session.set_permission_mode(PermissionMode::AcceptEdits).await.unwrap();
        told.say(&mut talk, "Sixth, and write it down?").await;
        talk.stop().await;
    })
    .await;
}

#[tokio::test]
async fn prompt_text() {
    compare("prompt_text", Script::new().turn(text("Fine.")), async |stage, told| {
        let prompt = SystemPrompt::Text("Speak in rhymes.\nAlways.".into());
        let talk = Talk::start(builder(stage).system_prompt(prompt)).await;
        ask(told, talk, &["How are you?"]).await;
    })
    .await;
}

#[tokio::test]
async fn prompt_appended() {
    compare("prompt_appended", Script::new().turn(text("Fine.")), async |stage, told| {
        let prompt = SystemPrompt::Append("Speak in rhymes.".into());
        let talk = Talk::start(builder(stage).system_prompt(prompt)).await;
        ask(told, talk, &["How are you?"]).await;
    })
    .await;
}

#[tokio::test]
async fn prompt_for_all() {
    compare("prompt_for_all", Script::new().turn(text("Fine.")), async |stage, told| {
        let options = json!({
            "system_prompt": "claude_code",
            "exclude_dynamic_sections": true,
            "system_prompt_snapshot": false,
            "verbatim_prompts": true,
        });
        ask(told, Talk::start(with(stage, options)).await, &["What is in @notes.txt? /help"]).await;
    })
    .await;
}

#[tokio::test]
async fn interrupted() {
    let script = Script::new().turn(calls("hang", [json!({})])).turn(text("Still here."));
    compare("interrupted", script, async |stage, told| {
        let (said, mut hear) = mpsc::unbounded_channel();
        let hang = ToolDef::new("hang", "Wait for ever", move |_: NoArgs, cx: ToolContext| {
            let said = said.clone();
            async move {
                said.send(()).unwrap();
                cx.cancelled().await;
            }
        });
        let mut talk =
            Talk::start(builder(stage).mcp_server(desk([hang])).allow_tool("mcp__desk__hang")).await;
        let turn = talk.session.prompt("Hang.").await.unwrap();
        in_time("the call", hear.recv()).await.unwrap();
        in_time("the interrupt", talk.session.interrupt()).await.unwrap();
        told.finish(&mut talk, turn).await;
        ask(told, talk, &["Are you there?"]).await;
    })
    .await;
}

#[tokio::test]
async fn steered() {
    let script = Script::new()
        .turn(calls("wait", [json!({})]))
        .turn(text("The blue one it is."))
        .turn(text("Still here."));
    compare("steered", script, async |stage, told| {
        let (said, mut hear) = mpsc::unbounded_channel();
        let go = Arc::new(Notify::new());
        let going = go.clone();
        let wait = ToolDef::new("wait", "Wait for a word", move |_: NoArgs| {
            let (said, going) = (said.clone(), going.clone());
            async move {
                said.send(()).unwrap();
                going.notified().await;
                "waited"
            }
        });
        let mut talk =
            Talk::start(builder(stage).mcp_server(desk([wait])).allow_tool("mcp__desk__wait")).await;
        let turn = talk.session.prompt("Wait.").await.unwrap();
        in_time("the call", hear.recv()).await.unwrap();
        let mut messages = Vec::new();
        for message in ["Use the blue one.", "And hurry."] {
            messages.push(in_time("the message", talk.session.steer(message)).await.unwrap());
        }
        go.notify_one();
        told.finish(&mut talk, turn).await;
        for message in messages {
            let steered = in_time("its fate", message.outcome()).await.unwrap();
            assert!(matches!(steered, Steered::Joined { .. }), "{steered:?}");
        }
        ask(told, talk, &["Are you there?"]).await;
    })
    .await;
}

#[tokio::test]
async fn resumed() {
    let script = ["Noted.", "Blue.", "Blue, too.", "Still blue."]
        .into_iter()
        .fold(Script::new(), |script, answer| script.turn(text(answer)));
    compare("resumed", script, async |stage, told| {
        let talk = async |options: Value, prompt: &str| {
            let mut talk = Talk::start(with(stage, options)).await;
            told.say(&mut talk, prompt).await;
            let id = talk.session.session_id().unwrap();
            talk.stop().await;
            id
        };
        let first = talk(json!({}), "Remember blue.").await;
        let same = talk(json!({ "resume": first }), "Which colour?").await;
        let fork = talk(json!({ "resume": first, "fork_session": true }), "And which in the fork?").await;
        let newest = talk(json!({ "continue_conversation": true }), "And in the newest?").await;
        told.asked(json!({ "same": same == first, "forked": fork != first, "newest": newest == fork }));
    })
    .await;
}

#[tokio::test]
async fn agents() {
    let send = json!({ "description": "Look", "prompt": "Look ahead.", "subagent_type": "scout", "run_in_background": false });
    let script = Script::new()
        .turn(ModelTurn::new().call("Agent", send))
        .turn(text("It is clear."))
        .agent_turn(kinds("echo", &["from the scout"]))
        .agent_turn(text("All clear."));
    compare("agents", script, async |stage, told| {
        let scout = json!({
            "description": "Looks ahead",
            "prompt": "You are a scout.",
            "tools": ["Read", "mcp__desk__echo"],
            "disallowedTools": ["Write"],
            "model": "haiku",
            "maxTurns": 3,
            "effort": "low",
            "initialPrompt": "Look around first.",
            "permissionMode": "dontAsk",
            "memory": "project",
        });
        let options = json!({
            "agents": { "scout": scout },
            "allowed_tools": ["Agent"],
            "tools": ["Agent", "Read"],
            "forward_subagent_text": true,
        });
        let builder = with(stage, options).mcp_server(desk([echo()])).allow_server_tools("desk");
        ask(told, Talk::start(builder).await, &["Send the scout."]).await;
    })
    .await;
}

#[tokio::test]
async fn one_step() {
    let script = Script::new().turn(kinds("echo", &["hello"])).turn(text("Well.")).turn(text("Well again."));
    compare("one_step", script, async |stage, told| {
        let builder =
            with(stage, json!({ "max_turns": 1 })).mcp_server(desk([echo()])).allow_tool("mcp__desk");
        ask(told, Talk::start(builder).await, &["Echo.", "Go on."]).await;
    })
    .await;
}

#[tokio::test]
async fn output_schema() {
    let wrong = ModelTurn::new().call("StructuredOutput", json!({ "sum": "eight" }));
    let right = ModelTurn::new().call("StructuredOutput", json!({ "sum": 8 }));
    let script = Script::new().turn(wrong).turn(right).turn(text("Done."));
    compare("output_schema", script, async |stage, told| {
        let schema = json!({
            "type": "object",
            "properties": { "sum": { "type": "integer" } },
            "required": ["sum"],
            "additionalProperties": false,
        });
        let format = json!({ "type": "json_schema", "schema": schema });
        let talk = Talk::start(with(stage, json!({ "output_format": format }))).await;
        ask(told, talk, &["What is 5 + 3?"]).await;
    })
    .await;
}

#[tokio::test]
async fn built_in_tools() {
    let script = Script::new()
        .turn(ModelTurn::new().call("Write", json!({ "file_path": "notes.txt", "content": "one\ntwo\n" })))
        .turn(ModelTurn::new().call("Read", json!({ "file_path": "notes.txt" })))
        .turn(ModelTurn::new().call("Bash", json!({ "command": "echo $COLOUR", "description": "Say it" })))
        .turn(ModelTurn::new().call("Bash", json!({ "command": "rm notes.txt", "description": "Remove" })))
        .turn(ModelTurn::new().call("Bash", json!({ "command": "touch other", "description": "Touch" })))
        .turn(ModelTurn::new().call("Glob", json!({ "pattern": "*.txt" })))
        .turn(text("Used."));
    compare("built_in_tools", script, async |stage, told| {
        let options = json!({
            "tools": ["Read", "Write", "Bash", "Glob"],
            "allowed_tools": ["Read", "Write", "Glob", "Bash(echo:*)"],
            "disallowed_tools": ["Bash(rm:*)"],
            "permission_mode": "dontAsk",
            "additional_directories": [stage.home.path()],
            "effort": "low",
            "setting_sources": ["project"],
            "settings": { "env": { "COLOUR": "blue" } },
            "max_thinking_tokens": 2048,
        });
        let talk = Talk::start(with(stage, options)).await;
        ask(told, talk, &["Use them."]).await;
    })
    .await;
}

#[tokio::test]
async fn deferred_tools() {
    let search =
        ModelTurn::new().call("ToolSearch", json!({ "query": "select:mcp__desk__echo", "max_results": 5 }));
    let script = Script::new()
        .turn(search)
        .turn(kinds("echo", &["found"]))
        .turn(text("Found."))
        .turn(kinds("echo", &["again"]))
        .turn(text("Again."));
    compare("deferred_tools", script, async |stage, told| {
        let builder = stage.builder().mcp_server(desk([echo()])).allow_server_tools("desk");
        ask(told, Talk::start(builder).await, &["Search for the tool.", "Call it again."]).await;
    })
    .await;
}

#[tokio::test]
async fn one_shot() {
    let script = Script::new().turn(kinds("echo", &["hello"])).turn(text("Well."));
    compare("one_shot", script, async |stage, told| {
        std::fs::write(stage.cwd.path().join("notes.txt"), "noted").unwrap();
        let builder = builder(stage).mcp_server(desk([echo()])).allow_server_tools("desk");
        let mut turn = in_time("the query", query("Echo, /compact, @notes.txt.", builder)).await.unwrap();
        while let Some(message) = in_time("a message", turn.next()).await {
            told.note(&message);
        }
        in_time("the outcome", turn.outcome()).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn failed_calls() {
    let script = Script::new()
        .turn(ModelTurn::new().final_error(400, "invalid_request_error", "this cannot be"))
        .turn(text("Fine again."));
    compare("failed_calls", script, async |stage, told| {
        ask(told, Talk::start(builder(stage)).await, &["Fail.", "And now?"]).await;
    })
    .await;
}

/// The listed fields of a session. The SDK has one title; greenroom has the user's and the CLI's title apart.
fn described(info: &SessionInfo) -> Value {
    json!({
        "summary": info.summary,
        "custom_title": info.custom_title.as_ref().or(info.ai_title.as_ref()),
        "first_prompt": info.first_prompt,
        "git_branch": info.git_branch,
        "cwd": info.cwd,
        "tag": info.tag,
        "created": info.created.is_some(),
    })
}

fn written(messages: &SessionMessages) -> Value {
    let messages = messages.messages.iter().map(|one| {
        json!({
            "type": one.message.kind(),
            "message": one.message.value()["message"],
            "parent": one.parent_tool_use_id,
            "uuid": !one.uuid.is_empty(),
        })
    });
    messages.collect()
}

#[tokio::test]
async fn on_disk() {
    let send = json!({ "description": "Look", "prompt": "Look ahead.", "subagent_type": "scout", "run_in_background": false });
    let script = Script::new()
        .turn(ModelTurn::new().call("Agent", send))
        .turn(text("It is clear."))
        .turn(text("Go on."))
        .turn(text("Another one."))
        .turn(text("On and on."))
        .agent_turn(text("All clear."));
    compare("on_disk", script, async |stage, told| {
        let scout = json!({ "description": "Looks ahead", "prompt": "You are a scout.", "tools": ["Read"] });
        let options = json!({ "agents": { "scout": scout }, "tools": ["Agent", "Read"] });
        let mut talk = Talk::start(with(stage, options)).await;
        told.say(&mut talk, "Send the scout.").await;
        told.say(&mut talk, "And what now?").await;
        let first = talk.session.session_id().unwrap();
        talk.stop().await;
        let mut talk = Talk::start(builder(stage)).await;
        told.say(&mut talk, "/compact is a word; another session.").await;
        let second = talk.session.session_id().unwrap();
        talk.stop().await;

        let here = LocalSessions::at(stage.home.path().join(".claude")).in_directory(stage.cwd.path());
        let list = async |page| here.list(page).await.unwrap().iter().map(described).collect::<Value>();
        told.asked(list(Page::ALL).await);
        told.asked(list(Page::first(1).after(1)).await);
        told.asked(described(&here.info(&first).await.unwrap()));
        told.asked(json!(here.info("9f0bd1c4-3a5e-4c0e-8f6f-0d4a8f6a7b11").await.is_err()));
        let messages = here.messages(&first, Page::ALL).await.unwrap();
        told.asked(written(&messages));
        told.asked(written(&here.messages(&first, Page::first(2).after(1)).await.unwrap()));
        let mut of_agents = Vec::new();
        for agent in here.subagents(&first).await.unwrap() {
            let messages = here.subagent_messages(&first, &agent.agent_id, Page::ALL).await.unwrap();
            of_agents.push(written(&messages));
        }
        told.asked(of_agents.into());
        here.rename(&first, "  The scout's way ").await.unwrap();
        here.tag(&second, Some("kept")).await.unwrap();
        // Both were written to at the same moment.
        let sorted = async || {
            let mut both = list(Page::ALL).await;
            both.as_array_mut().unwrap().sort_by_key(|info| info["summary"].to_string());
            both
        };
        told.asked(sorted().await);
        here.tag(&second, None).await.unwrap();
        told.asked(described(&here.info(&second).await.unwrap()));
        let end =
            messages.messages.iter().filter(|one| one.message.kind() == "assistant").nth_back(1).unwrap();
        let fork = here.fork(&first, Some(&end.uuid), Some("A fork")).await.unwrap();
        told.asked(described(&here.info(&fork).await.unwrap()));
        told.asked(written(&here.messages(&fork, Page::ALL).await.unwrap()));
        here.delete(&first).await.unwrap();
        told.asked(sorted().await);
        ask(told, Talk::start(builder(stage).resume(fork)).await, &["Go on in the fork."]).await;
    })
    .await;
}

#[tokio::test]
async fn questions() {
    compare("questions", Script::new().turn(text("Hello.")), async |stage, told| {
        let options = json!({ "tools": ["Read", "Write"], "model": "claude-sonnet-4-5" });
        let mut talk = Talk::start(with(stage, options)).await;
        let info: Value = serde_json::from_str(talk.session.server_info().raw().get()).unwrap();
        for name in ["commands", "agents", "models", "output_style", "available_output_styles"] {
            told.asked(info[name].clone());
        }
        told.say(&mut talk, "Hello.").await;
        let raw = |raw: &RawValue| told.asked(serde_json::from_str(raw.get()).unwrap());
        raw(talk.session.mcp_status().await.unwrap().raw());
        raw(talk.session.context_usage(ContextDetail::Full).await.unwrap().raw());
        let refused = [
            talk.session.stop_task("none").await,
            talk.session.mcp_reconnect("none").await,
            talk.session.rewind_files("none").await.map(drop),
        ];
        for answer in refused {
            told.asked(answer.err().map(|error| error.to_string()).into());
        }
        talk.stop().await;
    })
    .await;
}

/// A plugin with a command and a skill.
const PLUGIN: [(&str, &str); 3] = [
    (".claude-plugin/plugin.json", r#"{ "name": "plug", "version": "1.0.0", "description": "A plugin" }"#),
    ("commands/greet.md", "---\ndescription: Greet\n---\nGreet $ARGUMENTS."),
    ("skills/knots/SKILL.md", "---\nname: knots\ndescription: How to tie knots\n---\nOver and under."),
];

/// Writes the files that every scenario finds in its home.
pub(crate) fn furnish(home: &Path) {
    for (file, text) in PLUGIN {
        let file = home.join("plug").join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
}

#[tokio::test]
async fn plugin() {
    let skill = ModelTurn::new().call("Skill", json!({ "skill": "plug:knots" }));
    let script = Script::new().turn(text("Hello, Ada.")).turn(skill).turn(text("Tied."));
    compare("plugin", script, async |stage, told| {
        let options = json!({
            "plugins": [{ "type": "local", "path": stage.home.path().join("plug") }],
            "skills": ["plug:knots"],
            "sandbox": { "enabled": false, "excludedCommands": ["docker"] },
            "settings": { "attribution": { "commit": "By nobody" } },
            "tools": ["Bash", "Skill"],
        });
        ask(told, Talk::start(with(stage, options)).await, &["/plug:greet Ada", "Tie a knot."]).await;
        let seen = stage.last_request().body().to_string();
        assert!(seen.contains("Greet Ada.") && seen.contains("Over and under."), "{seen}");
    })
    .await;
}

#[tokio::test]
async fn outside_server() {
    let shout = ModelTurn::new().call("mcp__outside__shout", json!({ "text": "hello" }));
    let script = Script::new().turn(shout).turn(text("Shouted."));
    compare("outside_server", script, async |stage, told| {
        let server = json!({
            "type": "stdio",
            "command": env!("CARGO_BIN_EXE_greenroom-fake-cli"),
            "env": { "FAKE_CLI": "mcp-server" },
        });
        let options = json!({ "mcp_servers": { "outside": server }, "strict_mcp_config": true });
        let builder = with(stage, options).allow_server_tools("outside");
        ask(told, Talk::start(builder).await, &["Shout."]).await;
        assert_eq!(stage.last_result().text, "HELLO");
    })
    .await;
}

#[tokio::test]
async fn started() {
    compare("started", Script::new().turn(text("Good morning to you.")), async |stage, told| {
        let hook = json!({ "type": "command", "command": "echo good morning" });
        let settings = json!({ "settings": { "hooks": { "SessionStart": [{ "hooks": [hook] }] } } });
        ask(told, Talk::start(with(stage, settings)).await, &["Good morning."]).await;
        let noticed = told.clone().into_value()["noticed"].to_string();
        assert!(noticed.contains("SessionStart:startup") && noticed.contains("hook_response"), "{noticed}");
    })
    .await;
}

#[tokio::test]
async fn replayed() {
    compare("replayed", Script::new().turn(text("One.")).turn(text("Two.")), async |stage, told| {
        let options = json!({ "replay_user_messages": true });
        ask(told, Talk::start(with(stage, options)).await, &["First?", "Second?"]).await;
        let heard = told.clone().into_value()["heard"].as_array().unwrap().len();
        assert_eq!(heard, 2, "each prompt is read once");
    })
    .await;
}
