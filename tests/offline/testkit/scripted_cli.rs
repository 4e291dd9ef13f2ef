//! The scripted CLI behaves between its model and the host as the real CLI does.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{SOON, within};
use crate::timeline;
use greenroom::hook::{OnFailure, PostToolUseOutput, PreToolUseOutput, StopOutput, UserPromptSubmitOutput};
use greenroom::transport::Exit;
use greenroom::{
    Hook, Message, NoArgs, Outcome, PermissionDecision, PermissionMode, Prompt, Session, SessionBuilder,
    ToolServer, hook,
};
use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
use serde_json::{Value, json};

fn clock() -> ToolServer {
    ToolServer::new("clock", "1.0.0").tool("now", "The time", async |_: NoArgs| "noon")
}

fn ask_for_the_time() -> ModelTurn {
    ModelTurn::new().call("mcp__clock__now", json!({}))
}

fn text(text: &str) -> ModelTurn {
    ModelTurn::new().text(text)
}

/// Prompts once; the outcome, and what the model read.
async fn play(builder: SessionBuilder, script: Script) -> (Outcome, Vec<String>) {
    let cli = ScriptedCli::play(script);
    let session = within(SOON, timeline::watched(builder, cli.transport()).start()).await.unwrap();
    let outcome = outcome(&session, "go").await;
    within(SOON, session.stop()).await.unwrap();
    (outcome, cli.tool_results())
}

async fn outcome(session: &Session, prompt: &str) -> Outcome {
    within(SOON, session.prompt(prompt)).await.unwrap().outcome().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn hooks_run_around_a_call_and_at_the_ends_of_a_turn() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = |what: String| seen.lock().unwrap().push(what);
    let hooks = [
        Hook::on(hook::SessionStart, {
            let seen = seen.clone();
            move |input, _cx| {
                seen.lock().unwrap().push(format!("start {}", input.source));
                async { hook::SessionStartOutput::pass() }
            }
        }),
        Hook::on(hook::PreToolUse, {
            let seen = seen.clone();
            move |input, _cx| {
                seen.lock().unwrap().push(format!("before {}", input.tool_name));
                async { PreToolUseOutput::pass() }
            }
        }),
        Hook::on(hook::PostToolUse, {
            let seen = seen.clone();
            move |input, _cx| {
                seen.lock().unwrap().push(format!("after {}", input.tool_response));
                async { PostToolUseOutput::pass().field("updatedToolOutput", "midnight") }
            }
        }),
        Hook::on(hook::Stop, async |input, _cx| match input.stop_hook_active {
            false => StopOutput::block("say more"),
            true => StopOutput::pass(),
        }),
    ];
    note("begin".into());
    let builder = hooks.into_iter().fold(Session::builder(), SessionBuilder::hook);
    let script = Script::new().turn(ask_for_the_time()).turn(text("Noon.")).turn(text("Noon sharp."));
    let (outcome, results) = play(builder.mcp_server(clock()).allow_server_tools("clock"), script).await;
    assert_eq!(outcome.text(), Some("Noon sharp."), "the first answer was not enough");
    assert_eq!(results, ["midnight"]);
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen[1..3], ["start startup", "before mcp__clock__now"]);
    assert!(seen[3].contains("noon"), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hook_may_forbid_a_call_rewrite_it_and_end_a_turn() {
    let script = || Script::new().turn(ask_for_the_time()).turn(text("Done."));
    let builder = || Session::builder().mcp_server(clock()).allow_server_tools("clock");

    let no = Hook::on(hook::PreToolUse, async |_, _cx| PreToolUseOutput::deny("no clocks"))
        .matcher("mcp__clock__.*");
    let (_, results) = play(builder().hook(no), script()).await;
    assert_eq!(results, ["error: no clocks"]);

    let other =
        Hook::on(hook::PreToolUse, async |_, _cx| PreToolUseOutput::deny("never asked")).matcher("Bash");
    let (_, results) = play(builder().hook(other), script()).await;
    assert_eq!(results, ["noon"]);

    let broken = Hook::on(hook::PreToolUse, async |_, _cx| Err::<PreToolUseOutput, _>("out of order"));
    let passing = broken.clone().on_failure(OnFailure::Continue);
    let (_, results) = play(builder().hook(passing), script()).await;
    assert_eq!(results, ["noon"], "its failure is passed over");
    let (_, results) = play(builder().hook(broken), script()).await;
    assert!(results[0].contains("out of order"), "{results:?}");

    let stop = Hook::on(hook::PreToolUse, async |_, _cx| PreToolUseOutput::end_turn("closing time"));
    let (outcome, results) = play(builder().hook(stop), script()).await;
    assert_eq!((outcome.text(), results.len()), (Some("closing time"), 0));

    let no_prompt =
        Hook::on(hook::UserPromptSubmit, async |_, _cx| UserPromptSubmitOutput::block("not today"));
    let (outcome, _) = play(builder().hook(no_prompt), script()).await;
    assert!(outcome.text().unwrap().contains("not today"), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_allowed_for_good_is_not_asked_again() {
    let asked = Arc::new(Mutex::new(0));
    let count = asked.clone();
    let builder = Session::builder().mcp_server(clock()).can_use_tool(move |request, _cx| {
        *count.lock().unwrap() += 1;
        async move { PermissionDecision::allow_always(&request) }
    });
    let script = Script::new().turn(ask_for_the_time()).turn(ask_for_the_time()).turn(text("Done."));
    let (_, results) = play(builder, script).await;
    assert_eq!(results, ["noon", "noon"]);
    assert_eq!(*asked.lock().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_mode_decides_where_no_rule_does() {
    let script =
        Script::new().turn(ask_for_the_time()).turn(text("No.")).turn(ask_for_the_time()).turn(text("Yes."));
    let cli = ScriptedCli::play(script);
    let builder = Session::builder().mcp_server(clock()).permission_mode(PermissionMode::DontAsk);
    let session = within(SOON, timeline::watched(builder, cli.transport()).start()).await.unwrap();
    outcome(&session, "go").await;
    session.set_permission_mode(PermissionMode::BypassPermissions).await.unwrap();
    outcome(&session, "go").await;
    within(SOON, session.stop()).await.unwrap();
    let results = cli.tool_results();
    assert!(results[0].contains("don't ask") && results[1] == "noon", "{results:?}");
}

#[tokio::test(start_paused = true)]
async fn messages_come_in_pieces_when_they_are_asked_for() {
    let cli = ScriptedCli::play(Script::new().turn(text("Good morning.")));
    let builder = Session::builder().configure(|options| options.include_partial_messages = true);
    let session = within(SOON, timeline::watched(builder, cli.transport()).start()).await.unwrap();
    let mut turn = session.prompt("go").await.unwrap();
    let mut pieces = String::new();
    let mut whole = Vec::new();
    while let Some(message) = turn.next().await {
        match &message {
            Message::StreamEvent(event) => {
                let event: Value = serde_json::to_value(event).unwrap();
                pieces.push_str(event["event"]["delta"]["text"].as_str().unwrap_or_default());
            }
            other => whole.extend(other.text().map(|text| text.to_owned())),
        }
    }
    assert_eq!(pieces, "Good morning.");
    assert!(whole.iter().any(|text| text == "Good morning."), "{whole:?}");
    within(SOON, session.stop()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_local_command_is_one_whole_message_and_no_turn() {
    let cli = ScriptedCli::play(Script::new().turn(text("A turn.")).local_command("cost", "nothing"));
    let builder = Session::builder().configure(|options| options.include_partial_messages = true);
    let session = within(SOON, timeline::watched(builder, cli.transport()).start()).await.unwrap();
    let mut turn = session.prompt("/cost of everything").await.unwrap();
    let mut kinds = Vec::new();
    while let Some(message) = turn.next().await {
        kinds.push(message.kind().to_owned());
    }
    let ended = turn.outcome().await.unwrap();
    assert_eq!(ended.text(), Some("nothing"));
    let result = ended.result().unwrap();
    assert_eq!((result.num_turns, result.local_command.as_deref()), (0, Some("cost")));
    assert!(
        kinds.contains(&"assistant".to_owned()) && !kinds.contains(&"stream_event".to_owned()),
        "{kinds:?}"
    );
    // Another word is a prompt, and so is a command in the middle of a line.
    for prompt in ["/costs", "what does /cost say?"] {
        outcome(&session, prompt).await;
    }
    assert_eq!(cli.turns_played(), 2);
    within(SOON, session.stop()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn servers_that_come_and_go_are_called_while_they_are_there() {
    let script = Script::new()
        .turn(ask_for_the_time())
        .turn(text("Not yet."))
        .turn(ask_for_the_time())
        .turn(text("Now."))
        .turn(ask_for_the_time())
        .turn(text("No more."));
    let cli = ScriptedCli::play(script);
    let builder = Session::builder()
        .permission_mode(PermissionMode::BypassPermissions)
        .configure(|options| options.allow_dangerously_skip_permissions = true);
    let session = within(SOON, timeline::watched(builder, cli.transport()).start()).await.unwrap();
    outcome(&session, "go").await;
    within(SOON, session.add_mcp_server(clock())).await.unwrap();
    outcome(&session, "go").await;
    within(SOON, session.remove_mcp_server("clock")).await.unwrap();
    outcome(&session, "go").await;
    within(SOON, session.stop()).await.unwrap();
    let missing = "error: No such tool available: mcp__clock__now";
    assert_eq!(cli.tool_results(), [missing, "noon", missing]);
}

#[tokio::test(start_paused = true)]
async fn the_scripted_cli_shows_its_prompts_and_its_launches() {
    let cli = ScriptedCli::play(Script::new().otherwise(text("Yes.")));
    let builder = Session::builder()
        .model("haiku")
        .configure(|options| options.title = Some("Sums".into()))
        .env("TOKEN", "s3cret")
        .cwd("/tmp")
        .mcp_server(clock());
    let session = within(SOON, timeline::watched(builder, cli.transport()).start()).await.unwrap();
    outcome(&session, "one").await;
    let picture = Prompt::blocks([
        json!({ "type": "text", "text": "two" }),
        json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "aGk=" } }),
    ]);
    within(SOON, session.prompt(picture)).await.unwrap().outcome().await.unwrap();
    assert_eq!(cli.prompts(), ["one", "two\n[image]"]);

    cli.crash(Exit::Signal(9));
    let launches = cli.wait_for_launches(2, SOON).await;
    outcome(&session, "three").await;
    assert_eq!(cli.prompts_by_launch(), [vec!["one", "two\n[image]"], vec!["three"]]);

    assert_eq!(launches.len(), 2);
    let first = &launches[0];
    assert_eq!((first.flag("model"), first.flag("resume")), (Some("haiku"), None));
    assert_eq!((first.env["TOKEN"].as_str(), first.cwd.as_deref()), ("s3cret", Some("/tmp".as_ref())));
    assert_eq!(first.initialize["subtype"], "initialize");
    assert_eq!(
        (&first.initialize["title"], &first.initialize["sdkMcpServers"]),
        (&json!("Sums"), &json!(["clock"]))
    );
    assert_eq!(launches[1].flag("resume"), session.session_id().as_deref());
    assert_eq!(launches[1].env["TOKEN"], "s3cret");
    within(SOON, session.stop()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_test_waits_for_what_the_scripted_cli_sees() {
    let cli = ScriptedCli::play(Script::new().turn(ask_for_the_time()).otherwise(text("Done.")));
    let builder = Session::builder().mcp_server(clock()).allow_server_tools("clock");
    let limit = Duration::from_secs(5);
    let (session, launches) =
        tokio::join!(timeline::watched(builder, cli.transport()).start(), cli.wait_for_launches(1, limit));
    assert!(launches[0].initialize.is_object());
    let session = session.unwrap();
    let _turn = within(SOON, session.prompt("go")).await.unwrap();
    assert_eq!(cli.wait_for_prompts(1, limit).await, ["go"]);
    assert_eq!(cli.wait_for_tool_results(1, limit).await, ["noon"]);

    let waiting = std::panic::AssertUnwindSafe(cli.wait_for_prompts(2, limit));
    let panic = futures_util::FutureExt::catch_unwind(waiting).await.unwrap_err();
    let said = panic.downcast_ref::<String>().unwrap();
    assert_eq!(said, "2 prompts did not come within 5s; the scripted CLI has seen 1: [\"go\"]");
    within(SOON, session.stop()).await.unwrap();
}
