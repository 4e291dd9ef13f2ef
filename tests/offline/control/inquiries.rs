//! The inquiry handler: it gets what the other handlers leave open, and nothing that they decide.

use std::time::Duration;

use crate::common::*;
use crate::timeline;
use greenroom::callback::{CallbackContext, DialogAnswer, ElicitationAnswer, Inquiry, InquiryAnswer};
use greenroom::permission::Answers;
use greenroom::{ErrorKind, Event, PermissionDecision, Session, SessionBuilder};
use greenroom_testkit::{CliEnd, ModelTurn, Script, ScriptedCli};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// Asks something and waits for the answer.
async fn ask(end: &mut CliEnd, body: Value) -> Value {
    let request_id = end.request(body);
    within(SOON, end.answer_to(&request_id)).await
}

fn may_run(tool: &str) -> Value {
    json!({
        "subtype": "can_use_tool", "tool_name": tool, "input": { "command": "ls" },
        "permission_suggestions": [{ "type": "setMode", "mode": "plan", "destination": "session" }],
    })
}

fn question() -> Value {
    let question =
        json!({ "question": "Which port?", "header": "Port", "options": [], "multiSelect": false });
    json!({ "subtype": "can_use_tool", "tool_name": "AskUserQuestion", "input": { "questions": [question] } })
}

fn elicitation() -> Value {
    json!({ "subtype": "elicitation", "mcp_server_name": "crm", "message": "Who are you?" })
}

fn dialog(kind: &str) -> Value {
    json!({ "subtype": "request_user_dialog", "dialog_kind": kind, "payload": {} })
}

/// A person who answers each inquiry with what fits, and tells the kinds.
fn asking(builder: SessionBuilder) -> (SessionBuilder, mpsc::UnboundedReceiver<&'static str>) {
    let (tell, told) = mpsc::unbounded_channel();
    let builder = builder.on_inquiry(move |inquiry: Inquiry, _cx: CallbackContext| {
        tell.send(inquiry.kind()).unwrap();
        async move {
            match inquiry {
                Inquiry::Permission { request } => InquiryAnswer::allow_always(&request),
                Inquiry::Questions { questions } => {
                    InquiryAnswer::Answered(Answers::new().answer(questions[0].question.as_str(), "80"))
                }
                Inquiry::Elicitation { .. } => InquiryAnswer::Accepted { content: json!({ "name": "Ada" }) },
                Inquiry::Dialog { .. } => InquiryAnswer::Completed { result: json!("retry") },
                other => panic!("{other:?}"),
            }
        }
    });
    (builder, told)
}

/// The answers to one request of each kind.
async fn answers_of_all(end: &mut CliEnd) -> [Value; 4] {
    [
        ask(end, may_run("Bash")).await,
        ask(end, question()).await,
        ask(end, elicitation()).await,
        ask(end, dialog("retry")).await,
    ]
}

fn of_the_person() -> [Value; 4] {
    let mut answered = question()["input"].clone();
    answered["answers"] = json!({ "Which port?": "80" });
    [
        json!({
            "behavior": "allow", "updatedInput": { "command": "ls" }, "decisionClassification": "user_permanent",
            "updatedPermissions": [{ "type": "setMode", "mode": "plan", "destination": "session" }],
        }),
        json!({ "behavior": "allow", "updatedInput": answered }),
        json!({ "action": "accept", "content": { "name": "Ada" } }),
        json!({ "behavior": "completed", "result": "retry" }),
    ]
}

const ALL: [&str; 4] = ["permission", "questions", "elicitation", "dialog"];

fn drain(told: &mut mpsc::UnboundedReceiver<&'static str>) -> Vec<&'static str> {
    std::iter::from_fn(|| told.try_recv().ok()).collect()
}

// Guards: a handler leaves a request open, or there is none
#[tokio::test(start_paused = true)]
async fn without_other_handlers_the_inquiry_handler_gets_every_kind() {
    let (builder, mut told) = asking(Session::builder().inquiry_dialogs(["retry"]));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    assert!(end.launch().args.contains(&"--permission-prompt-tool=stdio".to_owned()), "the CLI asks");
    assert_eq!(answers_of_all(&mut end).await, of_the_person());
    assert_eq!(drain(&mut told), ALL);
    stop(session, end).await;
}

// Guards: a handler leaves a request open, or there is none
#[tokio::test(start_paused = true)]
async fn requests_that_handlers_leave_open_go_to_the_inquiry_handler() {
    let builder = Session::builder()
        .can_use_tool(async |_, _| PermissionDecision::undecided())
        .on_elicitation(async |_, _| ElicitationAnswer::Undecided)
        .on_dialog(["retry"], async |_, _| DialogAnswer::Undecided)
        .inquiry_dialogs(["retry"]);
    let (builder, mut told) = asking(builder);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    assert_eq!(answers_of_all(&mut end).await, of_the_person());
    assert_eq!(drain(&mut told), ALL);
    stop(session, end).await;
}

// Guards: a handler leaves a request open, or there is none
#[tokio::test(start_paused = true)]
async fn what_a_handler_decides_is_no_inquiry() {
    // The inquiry handler is set first and last: the order does not matter.
    let (builder, mut told) = asking(Session::builder().inquiry_dialogs(["retry"]));
    let builder = builder
        .can_use_tool(async |_, _| PermissionDecision::deny("the policy"))
        .on_question(async |_, _| Answers::new().answer("Which port?", "1"))
        .on_elicitation(async |_, _| ElicitationAnswer::Decline)
        .on_dialog(["retry"], async |_, _| DialogAnswer::Cancelled);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let [permission, question, elicitation, dialog] = answers_of_all(&mut end).await;
    assert_eq!(permission, json!({ "behavior": "deny", "message": "the policy" }));
    assert_eq!(question["updatedInput"]["answers"], json!({ "Which port?": "1" }));
    assert_eq!(elicitation, json!({ "action": "decline" }));
    assert_eq!(dialog, json!({ "behavior": "cancelled" }));
    assert!(drain(&mut told).is_empty());
    stop(session, end).await;
}

// Guards: a handler leaves a request open, or there is none
#[tokio::test(start_paused = true)]
async fn undecided_without_an_inquiry_handler_denies() {
    let builder = Session::builder()
        .can_use_tool(async |_, _| PermissionDecision::undecided())
        .on_elicitation(async |_, _| ElicitationAnswer::Undecided)
        .on_dialog(["retry"], async |_, _| DialogAnswer::Undecided);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let [permission, question, elicitation, dialog] = answers_of_all(&mut end).await;
    let text = "the host's permission handler left the call undecided, and the host has nobody to ask";
    assert_eq!(permission, json!({ "behavior": "deny", "message": text }));
    assert_eq!(question, permission);
    assert_eq!(elicitation, json!({ "action": "decline" }));
    assert_eq!(dialog, json!({ "behavior": "cancelled" }));
    stop(session, end).await;
}

// Guards: a handler leaves a request open, or there is none
#[tokio::test(start_paused = true)]
async fn an_answer_of_the_wrong_kind_denies_and_is_told() {
    let builder = Session::builder()
        .on_inquiry(async |inquiry, _| match inquiry {
            Inquiry::Questions { .. } => InquiryAnswer::allow(),
            _ => InquiryAnswer::Answered(Answers::new()),
        })
        .inquiry_dialogs(["retry"]);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    let [permission, question, elicitation, dialog] = answers_of_all(&mut end).await;
    let text = "the inquiry handler failed: the inquiry `permission` was answered with `answered`, which answers \
                `questions` only";
    assert_eq!(permission, json!({ "behavior": "deny", "message": text }));
    let text = question["message"].as_str().unwrap();
    assert!(
        text.contains("`questions` was answered with `allowed`, which answers `permission` only"),
        "{text}"
    );
    assert_eq!(elicitation, json!({ "action": "cancel" }));
    assert_eq!(dialog, json!({ "behavior": "cancelled" }));
    let failed = event(&mut events, |event| match event {
        Event::CallbackFailed { callback, message, .. } => Some((*callback, message.clone())),
        _ => None,
    });
    let (callback, message) = failed.await;
    assert!(callback == "inquiry" && message.contains("`permission` was answered"), "{message}");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn refusals_of_a_person_fit_every_inquiry() {
    for (answer, elicited, said) in [
        (InquiryAnswer::deny("not today"), "decline", "not today"),
        (InquiryAnswer::Dismissed, "cancel", "the user closed the request without an answer"),
    ] {
        let builder = Session::builder().inquiry_dialogs(["retry"]).on_inquiry(move |_, _| {
            let answer = answer.clone();
            async move { answer }
        });
        let (session, mut end, _listener) = start_by_hand(builder).await;
        let denied = json!({ "behavior": "deny", "message": said });
        let cancelled = json!({ "behavior": "cancelled" });
        let expected = [denied.clone(), denied, json!({ "action": elicited }), cancelled];
        assert_eq!(answers_of_all(&mut end).await, expected);
        stop(session, end).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_inquiry_handler_denies_with_its_text() {
    let builder = Session::builder()
        .can_use_tool(async |request, _| match request.tool_name.as_str() {
            "Bash" => PermissionDecision::undecided(),
            _ => PermissionDecision::allow(),
        })
        .on_inquiry(async |_, _| Err::<InquiryAnswer, _>("the page is down"));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let answer = ask(&mut end, may_run("Bash")).await;
    let text = "the permission handler failed: it left the request to the inquiry handler, which failed: the page is \
                down";
    assert_eq!(answer, json!({ "behavior": "deny", "message": text }));
    assert_eq!(ask(&mut end, may_run("Read")).await["behavior"], "allow");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_limit_and_the_withdrawal_of_an_inquiry_reach_its_handler() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let limit = Duration::from_secs(60);
    let builder = Session::builder()
        .on_inquiry(move |_, cx: CallbackContext| {
            let tell = tell.clone();
            async move {
                cx.cancelled().await;
                tell.send(cx.request_id().to_owned()).unwrap();
                InquiryAnswer::allow()
            }
        })
        .configure(|options| options.timeouts.permission = Some(limit));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let withdrawn = end.request(may_run("Bash"));
    settled(&mut end).await;
    end.send(json!({ "type": "control_cancel_request", "request_id": withdrawn }));
    assert_eq!(within(SOON, told.recv()).await.unwrap(), withdrawn);
    let answer = ask(&mut end, may_run("Bash")).await;
    assert_eq!(answer["message"], "the inquiry handler did not answer within 60s");
    within(SOON, told.recv()).await.unwrap();
    stop(session, end).await;
}

/// The kinds of dialogs that the CLI is told, and the arguments that it is started with.
async fn announced(builder: SessionBuilder) -> (Value, Vec<String>) {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let (session, (end, initialize)) = within(SOON, async {
        tokio::join!(builder.transport(transport).start(), async {
            let mut end = listener.accept().await;
            let initialize = end.handshake().await;
            (end, initialize)
        })
    })
    .await;
    let args = end.launch().args.clone();
    stop(session.unwrap(), end).await;
    (initialize["request"]["supportedDialogKinds"].clone(), args)
}

#[tokio::test(start_paused = true)]
async fn the_cli_is_told_the_kinds_of_dialogs_of_both_handlers() {
    let named = || Session::builder().inquiry_dialogs(["retry", "refusal"]);
    let own =
        |builder: SessionBuilder| builder.on_dialog(["retry", "own"], async |_, _| DialogAnswer::Cancelled);
    let (kinds, _) = announced(asking(own(named())).0).await;
    assert_eq!(kinds, json!(["retry", "own", "refusal"]));
    let (kinds, _) = announced(asking(named()).0).await;
    assert_eq!(kinds, json!(["retry", "refusal"]));
    let (kinds, _) = announced(named()).await;
    assert_eq!(kinds, Value::Null, "nobody would answer them");
    let (kinds, _) = announced(asking(Session::builder()).0).await;
    assert_eq!(kinds, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_dialog_goes_to_the_handler_that_names_its_kind() {
    let builder = Session::builder()
        .on_dialog(["own"], async |_, _| DialogAnswer::Completed(json!("own")))
        .inquiry_dialogs(["other"]);
    let (builder, mut told) = asking(builder);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    assert_eq!(ask(&mut end, dialog("own")).await["result"], "own");
    assert_eq!(ask(&mut end, dialog("other")).await["result"], "retry");
    let unknown = end.request(dialog("unknown"));
    assert!(answers(&settled(&mut end).await, &unknown).is_empty(), "the CLI settles it");
    assert_eq!(drain(&mut told), ["dialog"]);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn an_inquiry_handler_does_not_compete_with_a_permission_prompt_tool() {
    let tool = "mcp__desk__approve";
    let prompted =
        || Session::builder().configure(|options| options.permission_prompt_tool_name = Some(tool.into()));
    let (_, args) = announced(asking(prompted()).0).await;
    assert!(args.contains(&format!("--permission-prompt-tool={tool}")), "{args:?}");
    // Two that decide are still a contradiction.
    let both = prompted().can_use_tool(async |_, _| PermissionDecision::allow());
    assert_eq!(both.start().await.unwrap_err().kind(), ErrorKind::InvalidOption);
}

#[tokio::test]
async fn a_person_decides_on_a_tool_call_of_the_model() {
    let script = Script::new()
        .turn(ModelTurn::new().call("Bash", json!({ "command": "rm -r build" })))
        .turn(ModelTurn::new().text("Then not."));
    let cli = ScriptedCli::play(script);
    let builder = Session::builder().on_inquiry(async |inquiry: Inquiry, _| {
        let stored = serde_json::to_string(&inquiry).unwrap();
        assert!(stored.contains("rm -r build"), "{stored}");
        serde_json::from_str::<InquiryAnswer>(r#"{"kind":"denied","message":"keep it"}"#)
    });
    let session = timeline::watched(builder, cli.transport()).start().await.unwrap();
    let outcome = session.prompt("Clean up.").await.unwrap().outcome().await.unwrap();
    assert_eq!(outcome.text(), Some("Then not."));
    assert!(cli.tool_results()[0].contains("keep it"), "{:?}", cli.tool_results());
    session.stop().await.unwrap();
}

#[test]
fn configure_reads_options_as_well() {
    let given = Session::builder().cwd("/given");
    for (builder, expected) in [(given, "/given"), (Session::builder(), "/default")] {
        let mut cwd = None;
        let builder = builder.configure(|options| {
            if options.cwd.is_none() {
                options.cwd = Some("/default".into());
            }
        });
        let _ = builder.configure(|options| cwd.clone_from(&options.cwd));
        assert_eq!(cwd.unwrap(), std::path::Path::new(expected));
    }
}
