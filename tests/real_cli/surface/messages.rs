//! Frames of the real CLI are known, typed, and serialised unchanged; and the views made of many frames are right.

use std::collections::BTreeSet;
use std::fs;

use greenroom::message::{
    ApiErrorKind, Assembler, ContentBlock, Delta, DeltaKind, SystemDetail, TerminalReason, UsageTracker,
};
use greenroom::options::SettingSource;
use greenroom::session::{MessageOrGap, PromptPriority};
use greenroom::transport::ChildProcess;
use greenroom::{Message, Outcome, Prompt};
use greenroom_testkit::{ModelTurn, Recorder, Script, Transcript, Wire};
use serde_json::{Value, json};

use crate::stage::{Stage, answers, calc, call, hang, hears, in_time, outcome, start, stop, text};

/// Messages and content blocks that no SDK types: they are read as JSON.
const UNTYPED: [&str; 13] = [
    "autocompact_state",
    "post_turn_summary",
    "task_summary",
    "session_metadata",
    "session_title_changed",
    "vcs_state_changed",
    "per_turn_effort_changed",
    "late_allow_not_run",
    "redacted_thinking",
    "document",
    "search_result",
    "tool_reference",
    "compaction",
];

/// Types of lines that are no messages of the conversation.
const FRAMES: [&str; 4] = ["control_request", "control_response", "control_cancel_request", "keep_alive"];

/// Every message in the transcript; each has come back unchanged, and is of a type and a subtype that is known.
fn checked(transcript: &Transcript) -> Vec<Message> {
    let mut messages = Vec::new();
    for entry in &transcript.entries {
        let Wire::Cli(line) = &entry.wire else { continue };
        let line = line.text();
        let value: Value = serde_json::from_str(&line).unwrap();
        let kind = value["type"].as_str().unwrap();
        if FRAMES.contains(&kind) {
            continue;
        }
        let message = Message::parse(&line).unwrap();
        assert_eq!(serde_json::to_string(&message).unwrap(), line);
        assert_eq!(message.value(), value);
        let name = message.subtype().unwrap_or(kind);
        let unknown =
            matches!(message, Message::Other(_)) || message.system() == Some(&SystemDetail::Unknown);
        assert!(!unknown || UNTYPED.contains(&name), "a type that is not known: {line}");
        let mut unknown = message.content().iter().filter(|block| matches!(block, ContentBlock::Unknown(_)));
        assert!(unknown.all(|block| UNTYPED.contains(&block.kind())), "a block that is not known: {line}");
        messages.push(message);
    }
    messages
}

/// Types and subtypes of the messages.
fn kinds(messages: &[Message]) -> BTreeSet<String> {
    let name = |message: &Message| match message.subtype() {
        Some(subtype) => format!("{}/{subtype}", message.kind()),
        None => message.kind().to_owned(),
    };
    messages.iter().map(name).collect()
}

#[tokio::test]
async fn every_frame_with_everything_switched_on_is_known_and_unchanged() {
    let agent = json!({ "description": "count", "prompt": "Count to 3", "subagent_type": "general-purpose" });
    let shell = json!({ "command": "echo counted", "description": "count", "run_in_background": true });
    let script = Script::new()
        .turn(
            ModelTurn::new()
                .thinking("Let me see.")
                .text("I add.")
                .call("mcp__calc__add", json!({"a": 5, "b": 3})),
        )
        .turn(text("8."))
        .turn(ModelTurn::new().call("Agent", agent))
        .turn(text("It counts."))
        .turn(text("It has counted."))
        .turn(ModelTurn::new().call("Bash", shell))
        .turn(text("It runs."))
        .otherwise(text("Well."))
        .agent_turn(call("add", json!({"a": 1, "b": 1})))
        .agent_turn(text("one two three"));
    let Some(stage) = Stage::new(script).await else { return };
    fs::create_dir_all(stage.home.path().join(".claude")).unwrap();
    let hook = |command: &str| json!([{ "hooks": [{ "type": "command", "command": command }] }]);
    let settings = json!({ "hooks": {
        "SessionStart": hook("echo welcome"), "PreToolUse": hook("exit 0"), "Stop": hook("echo bye"),
    } });
    fs::write(stage.home.path().join(".claude/settings.json"), settings.to_string()).unwrap();
    let recorder = Recorder::around(ChildProcess::new());
    let builder =
        stage.builder().mcp_server(calc()).allow_server_tools("calc").allow_tool("Bash").allow_tool("Agent");
    let session = start(builder.transport(recorder.clone()).configure(|options| {
        options.include_partial_messages = true;
        options.include_hook_events = true;
        options.forward_subagent_text = true;
        options.prompt_suggestions = true;
        options.agent_progress_summaries = true;
        options.setting_sources = Some(vec![SettingSource::User]);
    }))
    .await;
    answers(&session, "How much is 5 + 3?", "8.").await;
    answers(&session, "Let somebody count.", "It counts.").await;
    in_time("the end of the run", session.wait_idle()).await;
    outcome(&session, "Count in the shell.").await;
    outcome(&session, "/compact").await;
    outcome(&session, "/clear").await;
    outcome(&session, "/usage").await;
    stop(&session).await;

    let messages = checked(&recorder.transcript());
    let kinds = kinds(&messages);
    for kind in [
        "assistant",
        "user",
        "stream_event",
        "result/success",
        "command_lifecycle",
        "conversation_reset",
        "system/init",
        "system/status",
        "system/hook_started",
        "system/hook_response",
        "system/task_started",
        "system/task_notification",
        "system/background_tasks_changed",
        "system/session_state_changed",
    ] {
        assert!(kinds.contains(kind), "no {kind} in {kinds:?}");
    }

    // Views made of many messages.
    let calls: Vec<_> = messages.iter().flat_map(Message::tool_uses).collect();
    let add = calls.iter().find(|call| call.name == "mcp__calc__add").unwrap();
    let result = messages.iter().flat_map(Message::tool_results).find(|result| result.tool_use_id == add.id);
    assert_eq!(result.map(|result| (result.content.text(), result.is_error)), Some(("8".into(), false)));

    let (mut assembler, mut told, mut said) = (Assembler::new(), String::new(), String::new());
    for message in &messages {
        said.extend(message.text().filter(|_| message.is_main_thread()));
        for delta in assembler.feed(message) {
            assert!(
                !matches!(delta.kind, DeltaKind::BlockReplaced { .. } | DeltaKind::MessageAborted),
                "{delta:?}"
            );
            told.extend(delta.text().filter(|_| delta.is_main_thread()));
        }
    }
    assert_eq!(told, said);

    let mut tracker = UsageTracker::new();
    let costs: Vec<f64> =
        messages.iter().filter_map(|message| tracker.feed(message)).map(|turn| turn.cost_usd).collect();
    assert!(costs[0] > 0.0 && costs.iter().all(|cost| *cost >= 0.0), "{costs:?}");
    let of_task = messages.iter().filter_map(Message::result).filter_map(|result| result.origin.as_ref());
    assert!(
        of_task.clone().any(|origin| origin.kind == "task-notification"),
        "{:?}",
        of_task.collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn frames_of_turns_that_fail_or_are_interrupted_are_known_too() {
    let script = Script::new()
        .turn(ModelTurn::new().error(529, "overloaded_error", "busy"))
        .turn(text("After all."))
        .turn(ModelTurn::new().final_error(403, "permission_error", "odd"))
        .turn(call("hang", json!({})))
        .otherwise(text("Well."));
    let Some(stage) = Stage::new(script).await else { return };
    let (tool, mut hear) = hang();
    let recorder = Recorder::around(ChildProcess::new());
    let builder = stage.builder().mcp_server(calc().add_tool(tool)).allow_server_tools("calc");
    let session = start(builder.env("CLAUDE_CODE_MAX_RETRIES", "2").transport(recorder.clone())).await;
    answers(&session, "Busy?", "After all.").await;
    let failed = outcome(&session, "Odd?").await;
    assert!(matches!(failed, Outcome::Failed { .. }), "{failed:?}");
    let mut turn = in_time("the prompt", session.prompt("Hang.")).await.unwrap();
    hears(&mut hear, "called").await;
    in_time("the interrupt", session.interrupt()).await.unwrap();
    let outcome = in_time("the end", turn.outcome()).await.unwrap();
    let result = outcome.result().unwrap();
    assert_eq!(result.terminal_reason, Some(TerminalReason::AbortedTools));
    stop(&session).await;

    let messages = checked(&recorder.transcript());
    let kinds = kinds(&messages);
    for kind in ["system/api_retry", "result/success", "result/error_during_execution"] {
        assert!(kinds.contains(kind), "no {kind} in {kinds:?}");
    }
    let retry = messages.iter().find_map(|message| match message.system() {
        Some(SystemDetail::ApiRetry(retry)) => Some(retry),
        _ => None,
    });
    assert_eq!(retry.unwrap().error_status, Some(529));
    let error = messages.iter().find_map(|message| match message {
        Message::Assistant(said) => said.error.clone(),
        _ => None,
    });
    assert_eq!(error, Some(ApiErrorKind::AuthenticationFailed));
    let hung =
        messages.iter().flat_map(Message::tool_uses).find(|call| call.name == "mcp__calc__hang").unwrap();
    let mut results = messages.iter().flat_map(Message::tool_results);
    assert!(results.find(|result| result.tool_use_id == hung.id).unwrap().is_error);
}

#[tokio::test]
async fn prompts_are_taken_as_they_say() {
    let Some(stage) = Stage::new(Script::new().otherwise(text("Well."))).await else { return };
    let session = start(stage.builder()).await;
    let ask = async |prompt: Prompt| {
        let mut turn = in_time("accepting the prompt", session.prompt(prompt)).await.unwrap();
        in_time("the turn", turn.outcome()).await.unwrap()
    };
    let said = || {
        let request = stage.last_request();
        let messages = &request.body()["messages"];
        messages
            .as_array()
            .unwrap()
            .iter()
            .filter(|message| message["role"] == "user")
            .map(Value::to_string)
            .collect::<String>()
    };

    // The prompt is appended; the model is not asked.
    let noted = ask(Prompt { should_query: Some(false), ..Prompt::text("The build is green.") }).await;
    assert!(noted.is_completed() && noted.text() == Some(""), "{noted:?}");
    assert_eq!((noted.result().unwrap().num_turns, stage.model.requests().len()), (0, 0));
    let asked = ask(Prompt {
        origin: Some(json!({ "kind": "human" })),
        priority: Some(PromptPriority::Next),
        ..Prompt::text("How is the build?")
    })
    .await;
    assert_eq!(asked.text(), Some("Well."));
    assert!(asked.result().unwrap().origin.as_ref().unwrap().is_human());
    assert!(said().contains("The build is green.") && said().contains("How is the build?"));

    // A command that is none, and a file that is none.
    let verbatim = ask(Prompt { verbatim: Some(true), ..Prompt::text("/usage of @home") }).await;
    assert_eq!(verbatim.text(), Some("Well."));
    assert!(said().contains("/usage of @home"));

    let made = ask(Prompt { synthetic: true, ..Prompt::text("Made by a program.") }).await;
    assert_eq!(made.result().unwrap().origin.as_ref().unwrap().kind, "unclassified");
    assert!(said().contains("NOT USER INPUT"));

    let source = json!({ "type": "text", "media_type": "text/plain", "data": "remember" });
    let mut look = Prompt { pasted_content: vec!["a long log".into()], ..Prompt::text("Look.") };
    look.content.push(json!({ "type": "document", "source": source, "title": "Notes" }));
    ask(look).await;
    assert!(
        said().contains("a long log") && said().contains("pasted_content") && said().contains("remember"),
        "{}",
        said()
    );
    stop(&session).await;
}

#[tokio::test]
async fn a_chat_shows_an_answer_while_it_is_written() {
    let script = Script::new().turn(text("A rather long answer, in pieces.")).turn(text("In one."));
    let Some(stage) = Stage::new(script).await else { return };
    let session = start(stage.builder().configure(|options| options.include_partial_messages = true)).await;
    let mut all = session.messages();
    let mut turn = in_time("the prompt", session.prompt("Say something.")).await.unwrap();
    let (mut deltas, mut said, mut pieces): (_, String, u32) = (turn.deltas(), String::new(), 0);
    while let Some(text) = in_time("a delta", deltas.next_text()).await {
        said += &text;
        pieces += 1;
    }
    assert_eq!(said, "A rather long answer, in pieces.");
    assert!(pieces > 1, "in one piece");
    assert!(matches!(in_time("a message", all.next()).await, Some(MessageOrGap::Message(_))));
    let mut turn = in_time("the prompt", session.prompt("And in one?")).await.unwrap();
    let mut deltas = turn.deltas();
    let mut complete = false;
    while let Some(Delta { kind, .. }) = in_time("a delta", deltas.next()).await {
        complete |= matches!(kind, DeltaKind::MessageComplete { stop_reason: Some(reason), .. } if reason == "end_turn");
    }
    assert!(complete);
    stop(&session).await;
}

// Guards: the CLI warns or runs hooks before `start` returns
#[tokio::test]
async fn hooks_of_the_start_are_read_after_the_start() {
    let Some(stage) = Stage::new(Script::new().turn(text("Hello."))).await else { return };
    let hook = json!({ "type": "command", "command": "echo good morning" });
    let settings = json!({ "hooks": { "SessionStart": [{ "hooks": [hook] }] } });
    let mut builder = stage.builder().settings(settings);
    let mut from_the_start = builder.messages();
    let session = start(builder).await;
    let answer = in_time("the answer of the hook", async {
        loop {
            let Some(MessageOrGap::Message(message)) = from_the_start.next().await else {
                panic!("it is missing")
            };
            if let Some(SystemDetail::HookResponse(response)) = message.system() {
                return response.output.clone();
            }
        }
    });
    assert_eq!(answer.await, "good morning\n");
    answers(&session, "Hello?", "Hello.").await;
    stop(&session).await;
}

#[tokio::test]
async fn each_prompt_is_replayed_once_under_its_uuid() {
    let Some(stage) = Stage::new(Script::new().turn(text("One.")).turn(text("Two."))).await else { return };
    let session = start(stage.builder().configure(|options| options.replay_user_messages = true)).await;
    for (prompt, answer) in [("First?", "One."), ("Second?", "Two.")] {
        let mut turn = session.prompt(prompt).await.unwrap();
        let uuid = turn.prompt_uuid().to_owned();
        let mut replays = Vec::new();
        while let Some(message) = in_time("a message", turn.next()).await {
            match message {
                Message::User(user) if user.is_replay => {
                    replays.push((user.uuid().map(str::to_owned), user.text()));
                }
                _ => {}
            }
        }
        assert_eq!(replays, [(Some(uuid), prompt.to_owned())]);
        assert_eq!(in_time("the outcome", turn.outcome()).await.unwrap().text(), Some(answer));
    }
    stop(&session).await;
}
