//! Questions that stay open while no CLI runs.

use std::sync::Arc;

use greenroom::callback::CallbackContext;
use greenroom::permission::Answers;
use greenroom::report::DeferredCall;
use greenroom::store::MemoryStore;
use greenroom::{ErrorKind, Outcome, PermissionDecision, PermissionRequest, Session, SessionBuilder, Turn};
use greenroom_testkit::{ModelTurn, Script};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::callbacks::bash;
use crate::stage::{Stage, in_time, start, stop, text};

/// A question, and the way to its decision.
struct Asked {
    request: PermissionRequest,
    cx: CallbackContext,
    decide: oneshot::Sender<PermissionDecision>,
}

impl Asked {
    fn id(&self) -> &str {
        self.cx.tool_use_id().unwrap()
    }

    fn allow(self) {
        assert!(self.decide.send(PermissionDecision::allow()).is_ok());
    }
}

/// Has the session put its questions to the test.
fn asking(builder: SessionBuilder) -> (SessionBuilder, mpsc::UnboundedReceiver<Asked>) {
    let (ask, asked) = mpsc::unbounded_channel();
    let builder = builder.can_use_tool(move |request: PermissionRequest, cx: CallbackContext| {
        let (decide, decision) = oneshot::channel();
        ask.send(Asked { request, cx: cx.clone(), decide }).unwrap();
        async move {
            tokio::select! {
                decision = decision => decision.unwrap_or_else(|_| PermissionDecision::deny("nobody is there")),
                () = cx.cancelled() => PermissionDecision::deny("nobody waits"),
            }
        }
    });
    (builder, asked)
}

async fn question(asked: &mut mpsc::UnboundedReceiver<Asked>) -> Asked {
    in_time("a question", asked.recv()).await.unwrap()
}

/// Ends the session at a question, and returns the call.
async fn deferred(session: &Session, turn: &mut Turn, asked: Asked) -> DeferredCall {
    in_time("the deferral", session.defer(&asked.cx)).await.unwrap();
    let outcome = in_time("the outcome", turn.outcome()).await.unwrap();
    let Outcome::Deferred { call, usage } = outcome else { panic!("{outcome:?}") };
    // A CLI that has resumed the call has not asked the model.
    assert!(usage.accounted, "{usage:?}");
    assert_eq!((call.tool_use_id.as_str(), &call.input), (asked.id(), &*asked.request.input));
    in_time("the end of the session", session.wait()).await;
    assert!(session.failure().is_none());
    call
}

async fn resume(
    builder: SessionBuilder,
    call: &DeferredCall,
) -> (Session, Turn, mpsc::UnboundedReceiver<Asked>) {
    let (builder, asked) = asking(builder.resume_call(call.clone()));
    let session = start(builder).await;
    let turn = session.resumed_turn().await.unwrap().unwrap();
    assert!(session.resumed_turn().await.unwrap().is_none());
    (session, turn, asked)
}

async fn completes(turn: &mut Turn, answer: &str) {
    let outcome = in_time("the outcome", turn.outcome()).await.unwrap();
    assert_eq!(outcome.text(), Some(answer), "{outcome:?}");
}

fn ran(stage: &Stage) -> String {
    std::fs::read_to_string(stage.cwd.path().join("ran.txt")).unwrap_or_default()
}

// Guards: deferred
#[tokio::test]
async fn a_deferred_call_runs_once_in_the_session_that_resumes_it() {
    let script = Script::new().turn(bash("echo one >> ran.txt")).turn(text("It ran.")).turn(text("Yes."));
    let Some(stage) = Stage::new(script).await else { return };
    let (builder, mut asked) = asking(stage.builder());
    let session = start(builder).await;
    let mut turn = session.prompt("Run it.").await.unwrap();
    let first = question(&mut asked).await;
    in_time("the deferral", session.defer(&first.cx)).await.unwrap();
    let outcome = in_time("the outcome", turn.outcome()).await.unwrap();
    let Outcome::Deferred { call, usage } = outcome else { panic!("{outcome:?}") };
    assert!(usage.accounted && usage.cost_usd > 0.0, "{usage:?}");
    in_time("the end of the session", session.wait()).await;
    let requests = stage.model.requests().len();

    // Stored and read, as an application does.
    let call: DeferredCall = serde_json::from_value(serde_json::to_value(&call).unwrap()).unwrap();
    let (session, mut turn, mut asked) = resume(stage.builder(), &call).await;
    let mut next = session.prompt("Did it run?").await.unwrap();
    let again = question(&mut asked).await;
    assert_eq!((again.id(), &*again.request.input), (call.tool_use_id.as_str(), &call.input));
    assert_eq!((stage.model.requests().len(), ran(&stage)), (requests, String::new()));
    let input = json!({ "command": "echo changed >> ran.txt", "description": "-" });
    assert!(again.decide.send(PermissionDecision::allow_with(input)).is_ok());
    completes(&mut turn, "It ran.").await;
    completes(&mut next, "Yes.").await;
    assert_eq!((ran(&stage), stage.model.requests().len()), ("changed\n".to_owned(), requests + 2));
    stop(&session).await;
}

// Guards: deferred
#[tokio::test]
async fn a_turn_is_deferred_again_and_a_denial_is_read_by_the_model() {
    let script =
        Script::new().turn(bash("echo one >> ran.txt")).turn(bash("echo two >> ran.txt")).turn(text("Done."));
    let Some(stage) = Stage::new(script).await else { return };
    let (builder, mut asked) = asking(stage.builder());
    let session = start(builder).await;
    let mut turn = session.prompt("Run both.").await.unwrap();
    let first = deferred(&session, &mut turn, question(&mut asked).await).await;

    // The same call, twice.
    let (session, mut turn, mut asked) = resume(stage.builder(), &first).await;
    let again = deferred(&session, &mut turn, question(&mut asked).await).await;
    assert_eq!(again, first);
    let (session, mut turn, mut asked) = resume(stage.builder(), &first).await;
    question(&mut asked).await.allow();
    // The next call of the turn.
    let second = deferred(&session, &mut turn, question(&mut asked).await).await;
    assert_ne!(second.tool_use_id, first.tool_use_id);
    let (session, mut turn, mut asked) = resume(stage.builder(), &second).await;
    assert!(question(&mut asked).await.decide.send(PermissionDecision::deny("Not today.")).is_ok());
    completes(&mut turn, "Done.").await;
    assert_eq!(ran(&stage), "one\n");
    let read = stage.last_result();
    assert!(read.is_error && read.text.contains("Not today."), "{read:?}");
    stop(&session).await;
}

// Guards: deferred
#[tokio::test]
async fn a_call_is_resumed_from_a_store_after_its_host_was_killed() {
    let script = Script::new().turn(bash("echo one >> ran.txt")).turn(text("It ran.")).turn(text("Twice?"));
    let Some(stage) = Stage::new(script).await else { return };
    let store = Arc::new(MemoryStore::new());
    let stored = || stage.builder().session_store(store.clone());
    let (builder, mut asked) = asking(stored());
    let session = start(builder).await;
    let mut turn = session.prompt("Run it.").await.unwrap();
    let first = question(&mut asked).await;
    // Until the store has the call, there is nothing to go on with.
    let call = deferred(&session, &mut turn, first).await;
    let (builder, mut asked) = asking(stored().resume_call(call.clone()));
    let session = start(builder).await;
    question(&mut asked).await;
    session.kill().await;

    let named = DeferredCall::new(&*call.session_id, &*call.tool_use_id, "Bash", Value::Null);
    let (session, mut turn, mut asked) = resume(stored(), &named).await;
    question(&mut asked).await.allow();
    completes(&mut turn, "It ran.").await;
    assert_eq!(ran(&stage), "one\n");
    stop(&session).await;

    // It has run: it is not run again.
    let refused = stored().resume_call(call).start().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoOpenCall, "{refused}");
}

// Guards: deferred
#[tokio::test]
async fn other_calls_of_the_message_get_a_result_and_do_not_run() {
    let two = ModelTurn::new()
        .call("Bash", json!({ "command": "echo one >> ran.txt", "description": "-" }))
        .call("Bash", json!({ "command": "echo two >> ran.txt", "description": "-" }));
    let script = Script::new().turn(two).turn(text("Done."));
    let Some(stage) = Stage::new(script).await else { return };
    let (builder, mut asked) = asking(stage.builder());
    let session = start(builder).await;
    let mut turn = session.prompt("Run both.").await.unwrap();
    let call = deferred(&session, &mut turn, question(&mut asked).await).await;
    let (session, mut turn, mut asked) = resume(stage.builder(), &call).await;
    question(&mut asked).await.allow();
    completes(&mut turn, "Done.").await;
    assert_eq!(ran(&stage), "one\n");
    let results: Vec<_> = stage.last_request().tool_results().into_iter().map(|read| read.is_error).collect();
    assert_eq!(results.len(), 2, "{results:?}");
    assert_eq!(results.iter().filter(|is_error| **is_error).count(), 1);
    stop(&session).await;
}

#[tokio::test]
async fn questions_to_the_user_are_deferred_and_a_tool_that_is_gone_is_told() {
    let questions = json!({ "questions": [{
        "question": "Which port?", "header": "Port", "multiSelect": false,
        "options": [{ "label": "80", "description": "-" }, { "label": "443", "description": "-" }],
    }]});
    let script = Script::new()
        .turn(ModelTurn::new().call("AskUserQuestion", questions))
        .turn(text("443 it is."))
        .turn(bash("echo one >> ran.txt"));
    let Some(stage) = Stage::new(script).await else { return };
    let (builder, mut asked) = asking(stage.builder());
    let session = start(builder).await;
    let mut turn = session.prompt("Ask.").await.unwrap();
    let call = deferred(&session, &mut turn, question(&mut asked).await).await;
    let (session, mut turn, mut asked) = resume(stage.builder(), &call).await;
    let again = question(&mut asked).await;
    let answers = Answers::new().answer("Which port?", "443");
    let decision = PermissionDecision::answer_questions(answers);
    assert!(again.decide.send(decision).is_ok());
    completes(&mut turn, "443 it is.").await;
    assert!(stage.last_result().text.contains("443"));

    let mut turn = session.prompt("Run it.").await.unwrap();
    let call = deferred(&session, &mut turn, question(&mut asked).await).await;
    let without = stage.builder().configure(|options| options.disallowed_tools.push("Bash".into()));
    let (session, mut turn, _asked) = resume(without, &call).await;
    let outcome = in_time("the outcome", turn.outcome()).await.unwrap();
    let reason = outcome.result().and_then(|result| result.terminal_reason.clone());
    assert_eq!(reason.unwrap().as_str(), "tool_deferred_unavailable", "{outcome:?}");
    stop(&session).await;
}

#[tokio::test]
async fn what_cannot_be_deferred_is_refused_and_goes_on() {
    let task = json!({ "description": "-", "prompt": "Run it.", "subagent_type": "general-purpose" });
    let script = Script::new()
        .turn(ModelTurn::new().call("Agent", task))
        .agent_turn(bash("echo one >> ran.txt"))
        .agent_turn(text("I ran it."))
        .otherwise(text("Done."));
    let Some(stage) = Stage::new(script).await else { return };
    let (builder, mut asked) = asking(stage.builder());
    let session = start(builder).await;
    let mut turn = session.prompt("Have an agent run it.").await.unwrap();
    let of_agent = question(&mut asked).await;
    assert!(of_agent.cx.agent_id().is_some());
    let refused = in_time("the refusal", session.defer(&of_agent.cx)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotDeferrable, "{refused}");
    let detached = session.defer(&CallbackContext::detached()).await.unwrap_err();
    assert_eq!(detached.kind(), ErrorKind::NotDeferrable, "{detached}");
    of_agent.allow();
    completes(&mut turn, "Done.").await;
    stop(&session).await;
}
