//! Questions that stay open while no CLI runs, on the in-memory transport.

use std::sync::Arc;
use std::time::Duration;

use greenroom::callback::CallbackContext;
use greenroom::report::DeferredCall;
use greenroom::store::MemoryStore;
use greenroom::transport::Exit;
use greenroom::{
    Error, ErrorKind, NoArgs, Outcome, PermissionDecision, PermissionRequest, Session, SessionBuilder,
    ToolServer,
};
use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

struct Asked {
    cx: CallbackContext,
    decide: oneshot::Sender<PermissionDecision>,
}

struct Stage {
    cli: ScriptedCli,
    store: Arc<MemoryStore>,
    /// The sums that were asked of the tool.
    ran: mpsc::UnboundedReceiver<()>,
    run: mpsc::UnboundedSender<()>,
}

impl Stage {
    fn new(script: Script) -> Self {
        let (run, ran) = mpsc::unbounded_channel();
        Self { cli: ScriptedCli::play(script.transcripts()), store: Arc::default(), ran, run }
    }

    /// A session with the tool `mcp__shop__refund`, whose questions go to the test.
    fn builder(&self) -> (SessionBuilder, mpsc::UnboundedReceiver<Asked>) {
        self.builder_with(false)
    }

    fn builder_with(&self, hangs: bool) -> (SessionBuilder, mpsc::UnboundedReceiver<Asked>) {
        let (ask, asked) = mpsc::unbounded_channel();
        let run = self.run.clone();
        let shop = ToolServer::new("shop", "1.0.0").tool("refund", "Refund", move |_: NoArgs| {
            run.send(()).unwrap();
            async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                "refunded"
            }
        });
        let builder = Session::builder()
            .mcp_server(shop)
            .transport(self.cli.transport())
            .session_store(self.store.clone())
            .can_use_tool(move |_: PermissionRequest, cx: CallbackContext| {
                let (decide, decision) = oneshot::channel();
                ask.send(Asked { cx: cx.clone(), decide }).unwrap();
                async move {
                    tokio::select! {
                        decision = decision => decision.unwrap_or_else(|_| PermissionDecision::deny("nobody")),
                        () = cx.cancelled() => PermissionDecision::deny("too late"),
                    }
                }
            });
        (builder, asked)
    }

    async fn deferred(&self) -> DeferredCall {
        let (builder, mut asked) = self.builder();
        let session = builder.start().await.unwrap();
        let mut turn = session.prompt("Refund it.").await.unwrap();
        let question = asked.recv().await.unwrap();
        session.defer(&question.cx).await.unwrap();
        let outcome = turn.outcome().await.unwrap();
        session.wait().await;
        let Outcome::Deferred { call, .. } = outcome else { panic!("{outcome:?}") };
        // Nobody waits for this handler's answer any more.
        assert!(question.cx.cancellation().is_cancelled());
        call
    }
}

fn refund() -> ModelTurn {
    ModelTurn::new().call("mcp__shop__refund", json!({}))
}

fn refused(refused: Result<impl Sized, Error>, why: &str) {
    let error = refused.err().unwrap();
    assert!(error.kind() == ErrorKind::NotDeferrable && error.to_string().contains(why), "{error}");
}

// Guards: deferred
#[tokio::test(start_paused = true)]
async fn a_deferred_call_runs_when_it_is_allowed_and_the_turn_goes_on() {
    let mut stage = Stage::new(Script::new().turn(refund()).turn(ModelTurn::new().text("Refunded.")));
    let call = stage.deferred().await;
    assert_eq!((call.tool_name.as_str(), stage.cli.turns_played()), ("mcp__shop__refund", 1));
    tokio::time::sleep(Duration::from_secs(14 * 86_400)).await;

    let (builder, mut asked) = stage.builder();
    let session = builder.resume_call(call.clone()).start().await.unwrap();
    let mut turn = session.resumed_turn().await.unwrap().unwrap();
    // A prompt waits for the turn.
    let mut next = session.prompt("And now?").await.unwrap();
    let again = asked.recv().await.unwrap();
    assert_eq!(again.cx.tool_use_id(), Some(call.tool_use_id.as_str()));
    assert_eq!((stage.cli.turns_played(), stage.ran.try_recv().is_err()), (1, true));
    again.decide.send(PermissionDecision::allow()).unwrap();
    assert_eq!(turn.outcome().await.unwrap().text(), Some("Refunded."));
    assert!(next.outcome().await.unwrap().is_completed());
    assert_eq!((stage.ran.try_recv(), stage.ran.try_recv().is_err()), (Ok(()), true));
    session.stop().await.unwrap();
}

// Guards: deferred
#[tokio::test(start_paused = true)]
async fn a_call_that_was_decided_is_not_resumed_again() {
    let stage = Stage::new(Script::new().turn(refund()).turn(ModelTurn::new().text("As you wish.")));
    let call = stage.deferred().await;
    let (builder, mut asked) = stage.builder();
    let session = builder.resume_call(call.clone()).start().await.unwrap();
    let mut turn = session.resumed_turn().await.unwrap().unwrap();
    let denied = PermissionDecision::deny("Not today.");
    asked.recv().await.unwrap().decide.send(denied).unwrap();
    assert_eq!(turn.outcome().await.unwrap().text(), Some("As you wish."));
    assert_eq!(stage.cli.tool_results(), ["error: Not today."]);
    session.stop().await.unwrap();

    let error = stage.builder().0.resume_call(call.clone()).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoOpenCall, "{error}");
    let unknown = DeferredCall::new(&*call.session_id, "toolu_unknown", "Bash", Value::Null);
    let error = stage.builder().0.resume_call(unknown).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoOpenCall, "{error}");
    let other = stage.builder().0.resume(uuid::Uuid::new_v4().to_string()).resume_call(call);
    assert_eq!(other.start().await.unwrap_err().kind(), ErrorKind::InvalidOption);
}

/// A resumed CLI that dies after the call was allowed.
// Guards: deferred
#[tokio::test(start_paused = true)]
async fn a_call_whose_cli_died_after_it_was_allowed_is_not_run_again() {
    let mut stage = Stage::new(Script::new().turn(refund()).turn(ModelTurn::new().text("I do not know.")));
    let call = stage.deferred().await;
    // The tool does not return before the CLI dies.
    let (builder, mut asked) = stage.builder_with(true);
    let session = builder.resume_call(call.clone()).start().await.unwrap();
    let mut turn = session.resumed_turn().await.unwrap().unwrap();
    asked.recv().await.unwrap().decide.send(PermissionDecision::allow()).unwrap();
    stage.ran.recv().await.unwrap();
    stage.cli.crash(Exit::Signal(9));
    let outcome = turn.outcome().await.unwrap();
    assert!(matches!(outcome, Outcome::Interrupted { .. }), "{outcome:?}");
    session.wait().await;
    assert!(session.failure().is_some());
    assert!(asked.try_recv().is_err());

    // The conversation goes on without the call, which the CLI does not ask for again.
    let (builder, mut asked) = stage.builder();
    let session = builder.resume(call.session_id.clone()).start().await.unwrap();
    let outcome = session.prompt("And?").await.unwrap().outcome().await.unwrap();
    assert_eq!(outcome.text(), Some("I do not know."));
    assert!(asked.try_recv().is_err() && stage.ran.try_recv().is_err());
    session.stop().await.unwrap();
    let error = stage.builder().0.resume_call(call).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoOpenCall, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_cli_that_does_not_go_on_ends_the_turn() {
    let stage = Stage::new(Script::new().turn(refund()));
    let call = stage.deferred().await;
    // It resumes the conversation, and knows nothing of deferred calls.
    let cli = ScriptedCli::play(Script::new());
    let (builder, _asked) = stage.builder();
    let session = builder.transport(cli.transport()).resume_call(call).start().await.unwrap();
    let outcome = session.resumed_turn().await.unwrap().unwrap().outcome().await.unwrap();
    let Outcome::Failed { error, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(error.kind(), ErrorKind::NoOpenCall, "{error}");
    session.wait().await;
    assert!(session.failure().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_question_that_cannot_be_deferred_stays_as_it_is() {
    let stage = Stage::new(Script::new().turn(refund()).turn(ModelTurn::new().text("Done.")));
    let (builder, mut asked) = stage.builder();
    let session = builder.start().await.unwrap();
    let mut turn = session.prompt("Refund it.").await.unwrap();
    let question = asked.recv().await.unwrap();
    refused(session.defer(&CallbackContext::detached()).await, "not open");
    question.decide.send(PermissionDecision::allow()).unwrap();
    assert_eq!(turn.outcome().await.unwrap().text(), Some("Done."));
    refused(session.defer(&question.cx).await, "not open");
    session.stop().await.unwrap();

    // Without a transcript there is nothing to go on with.
    let cli = ScriptedCli::play(Script::new().turn(refund()).turn(ModelTurn::new().text("Done.")));
    let (builder, mut asked) = stage.builder();
    let session = builder.transport(cli.transport()).start().await.unwrap();
    let mut turn = session.prompt("Refund it.").await.unwrap();
    let question = asked.recv().await.unwrap();
    refused(session.defer(&question.cx).await, "the transcript does not have the call");
    question.decide.send(PermissionDecision::allow()).unwrap();
    assert_eq!(turn.outcome().await.unwrap().text(), Some("Done."));
    session.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_gone_ends_the_turn_that_goes_on() {
    let stage = Stage::new(Script::new().turn(refund()));
    let call = stage.deferred().await;
    let builder = Session::builder().transport(stage.cli.transport()).session_store(stage.store.clone());
    let session = builder.resume_call(call).start().await.unwrap();
    let outcome = session.resumed_turn().await.unwrap().unwrap().outcome().await.unwrap();
    let reason = outcome.result().and_then(|result| result.terminal_reason.clone()).unwrap();
    assert_eq!(reason.as_str(), "tool_deferred_unavailable", "{outcome:?}");
    session.stop().await.unwrap();
}
