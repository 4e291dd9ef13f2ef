//! Conversations of the scripted CLI: what is remembered over restarts, and what it costs.

use crate::common::{SOON, within};
use crate::timeline;
use greenroom::message::{ModelUsage, ResultMessage, Typed, UsageTracker};
use greenroom::transport::Exit;
use greenroom::{Hook, NoArgs, Outcome, Session, SessionBuilder, ToolServer, hook};
use greenroom_testkit::{ModelTurn, Script, ScriptedCli, ScriptedClis, Usage};
use serde_json::json;

fn text(text: &str) -> ModelTurn {
    ModelTurn::new().text(text)
}

fn cost(cost_usd: f64) -> Usage {
    Usage { cost_usd, ..Usage::default() }
}

async fn start(builder: SessionBuilder, cli: &ScriptedCli) -> Session {
    within(SOON, timeline::watched(builder, cli.transport()).start()).await.unwrap()
}

async fn ask(session: &Session, prompt: &str) -> Outcome {
    within(SOON, session.prompt(prompt)).await.unwrap().outcome().await.unwrap()
}

async fn result(session: &Session, prompt: &str) -> Typed<ResultMessage> {
    ask(session, prompt).await.result().unwrap().clone()
}

/// Total cost, tokens of the turn (input, output, from the cache, into the cache), tokens of the conversation.
fn figures(result: &Typed<ResultMessage>) -> (f64, [u64; 4], [u64; 4]) {
    let turn = result.usage.as_ref().unwrap();
    let all: &ModelUsage = &result.model_usage["scripted"];
    let of_turn = [
        turn.input_tokens,
        turn.output_tokens,
        turn.cache_read_input_tokens,
        turn.cache_creation_input_tokens,
    ];
    let of_all =
        [all.input_tokens, all.output_tokens, all.cache_read_input_tokens, all.cache_creation_input_tokens];
    assert_eq!(all.cost_usd, result.total_cost_usd);
    (result.total_cost_usd.unwrap(), of_turn, of_all)
}

#[tokio::test(start_paused = true)]
async fn a_turn_has_its_tokens_and_the_conversation_has_its_cost() {
    let call = ModelTurn::new().call("mcp__clock__now", json!({})).usage(Usage {
        cost_usd: 0.25,
        input_tokens: 10,
        output_tokens: 2,
        cache_read_input_tokens: 300,
        cache_creation_input_tokens: 40,
    });
    let noon = text("Noon.").usage(Usage { cost_usd: 0.5, input_tokens: 1, output_tokens: 3, ..cost(0.0) });
    let script = Script::new().turn(call).turn(noon).turn(text("Still noon.").usage(cost(1.0)));
    let cli = ScriptedCli::play(script.otherwise(text("Over.")));
    let clock = ToolServer::new("clock", "1.0.0").tool("now", "The time", async |_: NoArgs| "noon");
    let builder = Session::builder().mcp_server(clock).allow_server_tools("clock");
    let session = start(builder.clone(), &cli).await;

    // Both answers of the model are one turn.
    let first = result(&session, "What time is it?").await;
    assert_eq!(figures(&first), (0.75, [11, 5, 300, 40], [11, 5, 300, 40]));
    let second = result(&session, "And now?").await;
    assert_eq!(figures(&second), (1.75, [0; 4], [11, 5, 300, 40]));
    let since = second.model_usage_since_last_result.as_ref().unwrap();
    assert_eq!(since["scripted"].cost_usd, Some(1.0));
    let mut tracker = UsageTracker::new();
    assert_eq!([&first, &second].map(|end| tracker.feed_result(end).cost_usd), [0.75, 1.0]);

    // The script says nothing about this turn: a token of each kind. The totals go on over a restart of the CLI.
    cli.crash(Exit::Signal(9));
    cli.wait_for_launches(2, SOON).await;
    assert_eq!(figures(&result(&session, "And now?").await), (1.75, [1, 1, 0, 0], [12, 6, 300, 40]));
    within(SOON, session.stop()).await.unwrap();

    // Another conversation begins at 0.
    let session = start(builder, &cli).await;
    assert_eq!(figures(&result(&session, "Hello").await), (0.0, [1, 1, 0, 0], [1, 1, 0, 0]));
    within(SOON, session.stop()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_resumed_conversation_costs_nothing_before_the_model_is_called() {
    let script = Script::new().turn(text("Hi.").usage(cost(0.5))).turn(text("Yes.").usage(cost(0.25)));
    let cli = ScriptedCli::play(script.local_command("cost", "nothing"));
    let session = start(Session::builder(), &cli).await;
    ask(&session, "Hello").await;
    cli.crash(Exit::Signal(9));
    cli.wait_for_launches(2, SOON).await;
    let local = result(&session, "/cost").await;
    assert_eq!((local.total_cost_usd, local.model_usage.len()), (Some(0.0), 0));
    assert_eq!(result(&session, "Still there?").await.total_cost_usd, Some(0.75));
    within(SOON, session.stop()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_fails_or_is_interrupted_reports_what_was_spent() {
    let hang = ToolServer::new("door", "1.0.0")
        .tool("wait", "Waits", async |_: NoArgs| std::future::pending::<()>().await);
    let script = Script::new()
        .turn(ModelTurn::new().call("mcp__door__wait", json!({})).usage(cost(0.5)))
        .turn(ModelTurn::new().error(403, "permission_error", "no"));
    let cli = ScriptedCli::play(script);
    let session = start(Session::builder().mcp_server(hang).allow_server_tools("door"), &cli).await;
    let mut turn = within(SOON, session.prompt("Wait.")).await.unwrap();
    while turn.next().await.is_some_and(|message| message.kind() != "assistant") {}
    session.interrupt().await.unwrap();
    let outcome = within(SOON, turn.outcome()).await.unwrap();
    assert_eq!(outcome.result().unwrap().total_cost_usd, Some(0.5), "{outcome:?}");
    let failed = result(&session, "Again.").await;
    assert_eq!((failed.total_cost_usd, failed.api_error_status), (Some(0.5), Some(403)));
    within(SOON, session.stop()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_session_that_resumes_remembers_and_a_new_one_does_not() {
    let clock = ToolServer::new("clock", "1.0.0").tool("now", "The time", async |_: NoArgs| "noon");
    let script = Script::new()
        .turn(ModelTurn::new().thinking("A clock.").call("mcp__clock__now", json!({})))
        .turn(text("It is noon, Ada."))
        .turn(text("Ada."))
        .turn(text("A copy knows you, too."))
        .turn(text("Who are you?"));
    let cli = ScriptedCli::play(script);
    assert_eq!(cli.conversation(), [""; 0]);
    let builder = || Session::builder().mcp_server(clock.clone()).allow_server_tools("clock");
    let session = start(builder(), &cli).await;
    ask(&session, "I am Ada. What time is it?").await;
    let id = session.session_id();
    within(SOON, session.stop()).await.unwrap();
    let first = [
        "user: I am Ada. What time is it?",
        "thinking: A clock.",
        "call: mcp__clock__now {}",
        "result: noon",
        "assistant: It is noon, Ada.",
    ];
    assert_eq!(cli.conversation(), first);

    let resume = |fork: bool| {
        let id = id.clone();
        builder().configure(move |options| (options.resume, options.fork_session) = (id, fork))
    };
    let woken = start(resume(false), &cli).await;
    ask(&woken, "Who am I?").await;
    let both = [&first[..], &["user: Who am I?", "assistant: Ada."]].concat();
    assert_eq!(cli.conversation(), both);
    assert_eq!(woken.session_id(), id);
    within(SOON, woken.stop()).await.unwrap();

    let fork = start(resume(true), &cli).await;
    ask(&fork, "And you?").await;
    assert_eq!(
        cli.conversation(),
        [&both[..], &["user: And you?", "assistant: A copy knows you, too."]].concat()
    );
    assert_ne!(fork.session_id(), id);
    within(SOON, fork.stop()).await.unwrap();

    let stranger = start(builder(), &cli).await;
    ask(&stranger, "Who am I?").await;
    assert_eq!(cli.conversation(), ["user: Who am I?", "assistant: Who are you?"]);
    within(SOON, stranger.stop()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_conversation_is_found_by_its_id_and_as_the_last_one() {
    let cli = ScriptedCli::play(Script::new().otherwise(text("Yes.")));
    let said = ["user: one", "assistant: Yes.", "user: two", "assistant: Yes."];
    let id = greenroom::conversation_id("customer-42");
    let conversation = || Session::builder().conversation(id.clone());
    for prompt in ["one", "two"] {
        let session = start(conversation(), &cli).await;
        ask(&session, prompt).await;
        within(SOON, session.stop()).await.unwrap();
    }
    assert_eq!(cli.conversation(), said);

    let builder = Session::builder().configure(|options| options.continue_conversation = true);
    let session = start(builder, &cli).await;
    ask(&session, "three").await;
    assert_eq!((session.session_id(), cli.conversation().len()), (Some(id), 6));
    within(SOON, session.stop()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_a_hook_blocks_is_not_remembered() {
    let cli = ScriptedCli::play(Script::new().otherwise(text("Yes.")));
    let no = Hook::on(hook::UserPromptSubmit, async |input, _cx| match input.prompt.as_str() {
        "secret" => hook::UserPromptSubmitOutput::block("not here"),
        _ => hook::UserPromptSubmitOutput::pass(),
    });
    let session = start(Session::builder().hook(no), &cli).await;
    for prompt in ["secret", "open"] {
        ask(&session, prompt).await;
    }
    assert_eq!(cli.conversation(), ["user: open", "assistant: Yes."]);
    within(SOON, session.stop()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_key_has_a_script_of_its_own_which_goes_on_over_restarts() {
    let clis =
        ScriptedClis::new(|key| Script::new().turn(text(&format!("I am {key}."))).turn(text("Still.")));
    let begin = async |key: &str, id: Option<String>| {
        let builder = Session::builder().configure(move |options| options.resume = id);
        within(SOON, timeline::watched(builder, clis.transport(key)).start()).await.unwrap()
    };
    // Both at once: each key has a CLI.
    let (ada, bob) = (begin("ada", None).await, begin("bob", None).await);
    assert_eq!(ask(&ada, "Who?").await.text(), Some("I am ada."));
    assert_eq!(ask(&bob, "Who?").await.text(), Some("I am bob."));
    let id = ada.session_id();
    within(SOON, ada.stop()).await.unwrap();

    let ada = begin("ada", id).await;
    assert_eq!(ask(&ada, "And now?").await.text(), Some("Still."));
    assert_eq!(clis.cli("ada").conversation().len(), 4);
    assert_eq!(clis.clone().cli("bob").prompts(), ["Who?"]);
    assert_eq!(clis.cli("eve").launches().len(), 0);
    for session in [ada, bob] {
        within(SOON, session.stop()).await.unwrap();
    }
}
