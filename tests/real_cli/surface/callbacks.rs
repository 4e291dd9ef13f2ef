//! Permissions, hooks, elicitations and dialogs: what the CLI asks of the application.

use std::sync::{Arc, Mutex};

use greenroom::hook::{
    PermissionRequestOutput, PostToolUseOutput, PreToolUseOutput, StopOutput, UserPromptSubmitOutput,
};
use greenroom::permission::{Answers, Unanswered};
use greenroom::{Event, Hook, Outcome, PermissionDecision, PermissionRequest, SessionBuilder, hook};
use greenroom_testkit::{ModelTurn, Script, ToolResultSeen};
use serde_json::{Value, json};

use crate::stage::{Stage, answers, calc, call, outcome, start, stop, text};

/// Observations, in order.
#[derive(Clone)]
struct Seen<T>(Arc<Mutex<Vec<T>>>);

impl<T> Seen<T> {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn note(&self, what: T) {
        self.0.lock().unwrap().push(what);
    }

    fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

pub(crate) fn bash(command: &str) -> ModelTurn {
    ModelTurn::new().call("Bash", json!({ "command": command, "description": "Do it" }))
}

pub(crate) fn add() -> ModelTurn {
    call("add", json!({ "a": 2, "b": 3 }))
}

impl Stage {
    /// A session with the tool `add`, which needs no permission.
    pub(crate) fn adding(&self) -> SessionBuilder {
        self.builder().mcp_server(calc()).allow_server_tools("calc")
    }

    pub(crate) fn read(&self) -> ToolResultSeen {
        self.last_result()
    }
}

#[tokio::test]
async fn permissions_are_as_the_handler_decides() {
    let script = Script::new()
        .turn(bash("touch changed.txt"))
        .turn(text("one"))
        .turn(bash("touch denied.txt"))
        .turn(text("two"))
        .turn(bash("touch ended.txt"))
        .turn(bash("touch always.txt"))
        .turn(text("four"))
        .turn(bash("touch always.txt"))
        .turn(text("five"));
    let Some(stage) = Stage::new(script).await else { return };
    let asked = Seen::new();
    let note = asked.clone();
    let builder = stage.builder().can_use_tool(
        move |request: PermissionRequest, cx: greenroom::callback::CallbackContext| {
            note.note(request.clone());
            async move {
                assert_eq!(cx.tool_use_id(), request.tool_use_id.as_deref());
                assert!(cx.session_id().is_some());
                match request.input["command"].as_str().unwrap() {
                    "touch changed.txt" => PermissionDecision::allow_with(
                        json!({ "command": "echo changed", "description": "-" }),
                    ),
                    "touch denied.txt" => PermissionDecision::deny("not today"),
                    "touch ended.txt" => PermissionDecision::deny_and_interrupt("enough"),
                    _ => PermissionDecision::allow_always(&request),
                }
            }
        },
    );
    let session = start(builder).await;

    answers(&session, "change it", "one").await;
    assert_eq!(stage.read().text, "changed", "the arguments were those of the handler");
    let request = asked.take().remove(0);
    assert_eq!((request.tool_name.as_str(), request.display_name.as_deref()), ("Bash", Some("Bash")));
    assert!(request.blocked_path.as_ref().is_some_and(|path| path.ends_with("changed.txt")));
    let suggestions = &request.permission_suggestions;
    assert!(
        !suggestions.is_empty() && suggestions.iter().all(|update| update.extra.is_empty()),
        "{request:?}"
    );

    answers(&session, "deny it", "two").await;
    let read = stage.read();
    assert!(read.is_error && read.text == "not today", "{read:?}");

    let ended = outcome(&session, "end it").await;
    assert!(matches!(ended, Outcome::Interrupted { .. }), "{ended:?}");

    asked.take();
    answers(&session, "always", "four").await;
    answers(&session, "again", "five").await;
    assert_eq!(asked.take().len(), 1, "the suggestions keep the CLI from asking again");
    let exists = |name: &str| stage.cwd.path().join(name).exists();
    let made = ["changed.txt", "denied.txt", "ended.txt", "always.txt"].map(exists);
    assert_eq!(made, [false, false, false, true]);
    stop(&session).await;
}

#[tokio::test]
async fn hooks_deny_rewrite_and_add() {
    let script = Script::new()
        .turn(call("add", json!({ "a": 6, "b": 6 })))
        .turn(text("denied"))
        .turn(add())
        .turn(text("changed"))
        .turn(text("first try"))
        .turn(text("second try"));
    let Some(stage) = Stage::new(script).await else { return };
    let pre = Hook::on(hook::PreToolUse, async |input, cx: greenroom::callback::CallbackContext| {
        assert_eq!(cx.tool_use_id(), Some(input.tool_use_id.as_str()));
        assert!(input.mcp_server.is_some_and(|server| server.is_in_process()));
        match input.tool_input["a"].as_f64() {
            Some(6.0) => PreToolUseOutput::deny("no sixes"),
            _ => PreToolUseOutput::allow().updated_input(json!({ "a": 20, "b": 22 })),
        }
    });
    let post = Hook::on(hook::PostToolUse, async |input, _| {
        assert_eq!(input.tool_input["a"], 20.0, "hooks after the call see what was called");
        assert_eq!(input.tool_response[0]["text"], "42");
        PostToolUseOutput::pass()
            .additional_context("The calculator was cleaned today.")
            .updated_tool_output(json!([{ "type": "text", "text": "forty-two" }]))
    });
    let prompt = Hook::on(hook::UserPromptSubmit, async |input, cx: greenroom::callback::CallbackContext| {
        assert_eq!(cx.tool_use_id(), None, "the CLI sends an id here that names no call");
        match input.prompt.as_str() {
            "forbidden" => UserPromptSubmitOutput::block("not this one"),
            _ => UserPromptSubmitOutput::pass().additional_context("The person likes brevity."),
        }
    });
    let stops = Seen::new();
    let note = stops.clone();
    let stop_hook = Hook::on(hook::Stop, move |input, _| {
        note.note((input.stop_hook_active, input.last_assistant_message.clone().unwrap_or_default()));
        async move {
            match (input.stop_hook_active, input.last_assistant_message.as_deref()) {
                (false, Some("first try")) => StopOutput::block("say it better"),
                _ => StopOutput::pass(),
            }
        }
    });
    let builder = stage.adding().hook(pre.matcher("mcp__calc__.*"));
    let session = start(builder.hook(post).hook(prompt).hook(stop_hook)).await;

    answers(&session, "sixes", "denied").await;
    let read = stage.read();
    assert!(read.is_error && read.text.contains("no sixes"), "{read:?}");

    answers(&session, "add", "changed").await;
    let request = stage.last_request();
    assert_eq!(stage.read().text, "forty-two");
    let told = json!(request.messages()).to_string();
    assert!(told.contains("The calculator was cleaned today."), "{told}");
    assert!(told.contains("The person likes brevity."), "{told}");

    stops.take();
    answers(&session, "speak", "second try").await;
    let told = json!(stage.last_request().messages()).to_string();
    assert!(told.contains("say it better"), "{told}");
    assert_eq!(stops.take(), [(false, "first try".to_owned()), (true, "second try".to_owned())]);

    let asked = stage.model.requests().len();
    let blocked = outcome(&session, "forbidden").await;
    assert_eq!(stage.model.requests().len(), asked, "the prompt did not reach the model: {blocked:?}");
    stop(&session).await;
}

#[tokio::test]
async fn a_permission_hook_decides_before_a_handler_that_is_still_thinking() {
    let script =
        Script::new().turn(bash("touch a.txt")).turn(text("no")).turn(bash("touch b.txt")).turn(text("yes"));
    let Some(stage) = Stage::new(script).await else { return };
    let hook = Hook::on(hook::PermissionRequest, async |input, _| {
        PermissionRequestOutput::decide(match input.tool_input["command"].as_str() {
            Some("touch a.txt") => PermissionDecision::deny("says the hook"),
            _ => PermissionDecision::allow_with(json!({ "command": "echo from the hook" })),
        })
    });
    let withdrawn = Seen::new();
    let note = withdrawn.clone();
    let builder =
        stage.builder().hook(hook).can_use_tool(move |_, cx: greenroom::callback::CallbackContext| {
            let note = note.clone();
            async move {
                cx.cancelled().await;
                note.note(());
                PermissionDecision::deny("too late")
            }
        });
    let session = start(builder).await;
    answers(&session, "a", "no").await;
    let read = stage.read();
    assert!(read.is_error && read.text.contains("says the hook"), "{read:?}");
    answers(&session, "b", "yes").await;
    assert_eq!(stage.read().text, "from the hook");
    stop(&session).await;
    assert_eq!(withdrawn.take().len(), 2, "the CLI withdraws what the hook has decided");
}

fn questions() -> ModelTurn {
    let options =
        json!([{ "label": "80", "description": "The usual" }, { "label": "8080", "description": "Not so" }]);
    let question = |text: &str, many: bool| json!({ "question": text, "header": "Port", "multiSelect": many, "options": options });
    let input = json!({ "questions": [question("Which port?", false), question("Which ports?", true), question("Why?", false)] });
    ModelTurn::new().call("AskUserQuestion", input)
}

#[tokio::test]
async fn questions_of_the_model_are_answered() {
    let script = Script::new()
        .turn(questions())
        .turn(text("thanks"))
        .turn(bash("touch a.txt"))
        .turn(text("well"))
        .turn(questions())
        .turn(text("thanks"));
    let Some(stage) = Stage::new(script).await else { return };
    let session = start(stage.builder().on_question(async |questions, _| {
        assert!(questions[1].multi_select && questions[0].options[1].label == "8080");
        Answers::new()
            .answer(questions[0].question.as_str(), "8080")
            .notes("Which port?", "there is a proxy")
            .choose("Which ports?", ["80", "8080"])
            .unanswered("Why?", Unanswered::Skipped)
    }))
    .await;
    answers(&session, "ask", "thanks").await;
    let read = stage.read();
    assert!(!read.is_error, "{read:?}");
    for part in [r#""Which port?"="8080""#, "there is a proxy", r#""Which ports?"="80, 8080""#] {
        assert!(read.text.contains(part), "no {part} in {read:?}");
    }
    answers(&session, "touch", "well").await;
    assert!(stage.read().is_error, "nobody decides on anything else");
    stop(&session).await;

    let session = start(stage.builder().can_use_tool(async |request: PermissionRequest, _| {
        let questions = request.questions().ok_or("not a question")?;
        let answers = questions.iter().map(|question| question.question.clone());
        Ok::<_, &str>(PermissionDecision::answer_questions(
            answers.fold(Answers::new(), |answers, question| answers.answer(question, "who knows")),
        ))
    }))
    .await;
    answers(&session, "ask", "thanks").await;
    assert!(stage.read().text.contains(r#""Why?"="who knows""#), "{:?}", stage.read());
    stop(&session).await;
}

/// Every event that can be brought about here arrives, fits its type, and has no field that the type does not know.
#[tokio::test]
async fn what_hooks_are_told_fits_their_types() {
    let script =
        Script::new()
            .turn(bash("mkdir sub"))
            .turn(ModelTurn::new().call("Read", json!({ "file_path": "/nonexistent" })))
            .turn(ModelTurn::new().call(
                "Agent",
                json!({ "description": "d", "prompt": "p", "subagent_type": "general-purpose" }),
            ))
            .turn(text("done"))
            .otherwise(text("fine"))
            .agent_turn(text("sub done"));
    let Some(stage) = Stage::new(script).await else { return };
    std::fs::create_dir_all(stage.cwd.path().join(".claude/commands")).unwrap();
    std::fs::write(stage.cwd.path().join(".claude/commands/greet.md"), "Say hello to $ARGUMENTS").unwrap();
    let seen = Seen::new();
    let mut builder = stage
        .builder()
        .can_use_tool(async |_, _| PermissionDecision::allow())
        .configure(|options| options.setting_sources = Some(vec!["project".into()]));
    macro_rules! all {
        ($($event:ident)*) => { $(
            let note = seen.clone();
            builder = builder.hook(Hook::on(hook::$event, move |input, _| {
                note.note((stringify!($event), input.extra.clone()));
                async move { hook::Output::pass() }
            }));
        )* };
    }
    all!(
        PreToolUse PostToolUse PostToolUseFailure PostToolBatch PermissionRequest PermissionDenied UserPromptSubmit
        UserPromptExpansion SessionStart SessionEnd Setup Stop StopFailure SubagentStart SubagentStop PreCompact
        PostCompact PreModelSwitch PostModelSwitch Notification Elicitation ElicitationResult TaskCreated TaskCompleted
        TeammateIdle ConfigChange InstructionsLoaded CwdChanged FileChanged DirectoryAdded MessageDisplay
    );
    let mut events = builder.events();
    let session = start(builder).await;
    answers(&session, "work", "done").await;
    answers(&session, "/greet bob", "fine").await;
    outcome(&session, "/compact").await;
    session.requests().control(json!({ "subtype": "set_model", "model": "haiku" })).await.unwrap();
    stop(&session).await;
    while let Some(event) = events.next().await {
        assert!(!matches!(event, Event::CallbackFailed { .. } | Event::HooksNotApplied { .. }), "{event:?}");
    }
    let seen = seen.take();
    // Fields that are null are kept in `extra`, so that they are written as they came.
    for (event, extra) in &seen {
        assert!(extra.values().all(Value::is_null), "{event} has {extra:?}");
    }
    for event in [
        "PreToolUse",
        "PostToolUse",
        "PostToolUseFailure",
        "PostToolBatch",
        "PermissionRequest",
        "UserPromptSubmit",
        "UserPromptExpansion",
        "SessionStart",
        "Stop",
        "SubagentStart",
        "SubagentStop",
        "PreCompact",
        "PostCompact",
        "PreModelSwitch",
        "PostModelSwitch",
        "MessageDisplay",
    ] {
        assert!(seen.iter().any(|(name, _)| *name == event), "no {event}: {seen:?}");
    }
}
