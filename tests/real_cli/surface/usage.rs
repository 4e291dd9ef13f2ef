//! Money and tokens: what outcomes and transcripts say is what the scripted model has counted.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use greenroom::message::{AgentUsage, TokenUsage, TurnUsage, UsageTracker};
use greenroom::sessions::{LocalSessions, project_key};
use greenroom::store::{MemoryStore, StoredSessions};
use greenroom::{Message, Outcome, Session, ToolServer};
use greenroom_testkit::{ModelRequest, ModelTurn, Script, Usage};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::snapshot::reported_cli;
use crate::stage::{Stage, answers, calc, call, found, hang, hears, in_time, outcome, start, stop, text};

/// Tokens: input, output, from the cache, into the cache.
type Tokens = [u64; 4];

fn tokens(used: TokenUsage) -> Tokens {
    [used.input, used.output, used.cache_read, used.cache_creation]
}

fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
    let (cache_read_input_tokens, cache_creation_input_tokens) = (input_tokens * 20, input_tokens / 4);
    Usage {
        input_tokens,
        output_tokens,
        cache_read_input_tokens,
        cache_creation_input_tokens,
        ..Usage::default()
    }
}

/// What the model has counted for these requests.
fn counted<'a>(requests: impl IntoIterator<Item = &'a ModelRequest>) -> Tokens {
    let mut sum = Usage { input_tokens: 0, output_tokens: 0, ..Usage::default() };
    requests.into_iter().for_each(|request| sum += request.usage());
    [sum.input_tokens, sum.output_tokens, sum.cache_read_input_tokens, sum.cache_creation_input_tokens]
}

fn by_agent(requests: &[ModelRequest]) -> BTreeMap<String, Tokens> {
    let agents = requests.iter().filter_map(ModelRequest::agent_id);
    let of = |id: &str| counted(requests.iter().filter(|request| request.agent_id() == Some(id)));
    agents.map(|id| (id.to_owned(), of(id))).collect()
}

fn of_agents(agents: &[AgentUsage]) -> BTreeMap<String, Tokens> {
    agents.iter().map(|agent| (agent.agent_id.clone().unwrap(), tokens(agent.total()))).collect()
}

fn of(outcome: &Outcome) -> TurnUsage {
    outcome.usage().unwrap_or_else(|| panic!("{outcome:?}")).clone()
}

fn all(tracker: &UsageTracker) -> TokenUsage {
    tracker.models().values().copied().sum()
}

fn same_money(left: f64, right: f64) {
    assert!((left - right).abs() < 1e-9, "{left} and {right}");
}

/// A script in which the model starts three subagents; the third calls a tool that never returns.
fn three_subagents() -> Script {
    let agent = |name: &str| json!({"description": name, "prompt": name, "subagent_type": "general-purpose", "run_in_background": false});
    let agents = ["one", "two", "three"];
    let start = agents.iter().fold(ModelTurn::new(), |turn, name| turn.call("Agent", agent(name)));
    // Which subagent comes first is not known, so two of them may call the tool and end.
    Script::new()
        .turn(text("Hello.").usage(usage(100, 10)))
        .turn(start.usage(usage(110, 11)))
        .turn(text("And on.").usage(usage(120, 12)))
        .turn(text("Afresh.").usage(usage(130, 13)))
        .otherwise(text("Resumed.").usage(usage(140, 14)))
        .agent_turn(call("add", json!({"a": 1, "b": 1})).usage(usage(1000, 50)))
        .agent_turn(call("add", json!({"a": 1, "b": 2})).usage(usage(500, 20)))
        .agent_turn(call("hang", json!({})).usage(usage(700, 30)))
        .agent_turn(text("Done.").usage(usage(600, 25)))
        .agent_turn(text("Done, too.").usage(usage(800, 35)))
}

fn server() -> (ToolServer, tokio::sync::mpsc::UnboundedReceiver<&'static str>) {
    let (tool, hear) = hang();
    (calc().add_tool(tool), hear)
}

/// Three subagents, one of them cut off by an interrupt; then `/clear`, an orderly end, and a resume.
#[tokio::test]
async fn usage_of_three_subagents_is_what_the_model_has_counted() {
    let Some(stage) = Stage::new(three_subagents()).await else { return };
    let (server, mut hear) = server();
    let store = Arc::new(MemoryStore::new());
    let builder = |server: ToolServer| {
        let builder = stage.builder().mcp_server(server).allow_server_tools("calc").allow_tool("Agent");
        builder.session_store(store.clone())
    };
    let session = start(builder(server)).await;
    let mut sum = of(&outcome(&session, "Hello").await).total();
    let id = session.session_id().unwrap();

    let mut turn = in_time("the prompt", session.prompt("Have it done by three.")).await.unwrap();
    hears(&mut hear, "called").await;
    // Both others have ended: all seven requests so far are answered.
    in_time("the subagents", stage.model.wait_for_requests(7)).await;
    let agents_ended = async {
        let mut ended = 0;
        while ended < 2 {
            let message = turn.next().await.expect("the turn goes on");
            let result = message.tool_results().any(|_| message.is_main_thread());
            ended += usize::from(result);
        }
    };
    in_time("the ends of two subagents", agents_ended).await;
    in_time("the interrupt", session.interrupt()).await.unwrap();
    let interrupted = in_time("the end", turn.outcome()).await.unwrap();
    assert!(matches!(interrupted, Outcome::Interrupted { .. }), "{interrupted:?}");
    let used = of(&interrupted);
    let requests = stage.model.requests();
    assert!(used.accounted, "{used:?}");
    assert_eq!(tokens(used.total()), counted(&requests[1..]));
    assert_eq!(tokens(used.main), counted(&requests[1..2]));
    assert_eq!(of_agents(&used.agents), by_agent(&requests));
    assert_eq!(used.agents.len(), 3, "{used:?}");
    for agent in &used.agents {
        assert_eq!(agent.agent_type.as_deref(), Some("general-purpose"), "{agent:?}");
        assert!(agent.tool_use_id.is_some() && agent.total().cost_usd > 0.0, "{agent:?}");
    }
    let of_agents_in_all: f64 = used.agents.iter().map(|agent| agent.total().cost_usd).sum();
    assert!(of_agents_in_all < used.cost_usd, "{used:?}");
    sum += used.total();

    let next = outcome(&session, "And on?").await;
    sum += of(&next).total();
    let told = next.result().unwrap().total_cost_usd.unwrap();
    same_money(sum.cost_usd, told);
    outcome(&session, "/clear").await;
    let after = outcome(&session, "Who?").await;
    same_money(of(&after).cost_usd, after.result().unwrap().total_cost_usd.unwrap());
    sum += of(&after).total();
    let cleared = session.session_id().unwrap();
    stop(&session).await;
    let session = start(builder(calc()).resume(&cleared)).await;
    let resumed = outcome(&session, "Still there?").await;
    sum += of(&resumed).total();
    stop(&session).await;
    let requests = stage.model.requests();
    assert_eq!((tokens(sum), stage.model.side_requests()), (counted(&requests), 0));
    let told_after_clear = resumed.result().unwrap().total_cost_usd.unwrap();
    same_money(sum.cost_usd, told + told_after_clear);

    // The transcripts say the same, on disk and in the store.
    let disk = LocalSessions::at(stage.home.path().join(".claude"));
    let stored = StoredSessions::new(store, project_key(stage.cwd.path()));
    for (id, money, tokens_of) in [
        (&id, told, counted(&requests[..requests.len() - 2])),
        (&cleared, told_after_clear, counted(&requests[requests.len() - 2..])),
    ] {
        let mut trackers = vec![in_time("the store", stored.usage(id)).await.unwrap()];
        if *id == cleared {
            assert!(trackers[0].agents().is_empty());
        } else {
            // A session that is resumed from a store writes elsewhere.
            trackers.push(in_time("the disk", disk.usage(id)).await.unwrap());
        }
        for tracker in trackers {
            same_money(tracker.total_cost_usd(), money);
            assert_eq!(tokens(all(&tracker)), tokens_of);
            let agents = if *id == cleared { &[] } else { &requests[..] };
            assert_eq!(of_agents(tracker.agents()), by_agent(agents));
        }
    }
}

/// A turn that SIGKILL cuts off has no result, and the totals of the resumed CLI know nothing of it.
#[tokio::test]
async fn usage_of_a_crash_is_what_the_model_has_counted() {
    let script = Script::new()
        .turn(text("Hello.").usage(usage(100, 10)))
        .turn(call("hang", json!({})).usage(usage(110, 11)))
        .turn(text("Again.").usage(usage(5000, 600)))
        .otherwise(text("And on.").usage(usage(120, 12)));
    let Some(stage) = Stage::new(script).await else { return };
    let (server, mut hear) = server();
    let builder = stage.builder().mcp_server(server).allow_server_tools("calc");
    // The final tokens of a message of the main thread come as a partial message.
    let session = start(builder.configure(|options| options.include_partial_messages = true)).await;
    let mut used = vec![of(&outcome(&session, "Hello").await)];
    let id = session.session_id().unwrap();
    let mut turn = in_time("the prompt", session.prompt("Hang.")).await.unwrap();
    hears(&mut hear, "called").await;
    let said = async {
        while let Some(message) = turn.next().await {
            if matches!(&message, Message::StreamEvent(piece) if piece.event_type() == "message_stop") {
                return;
            }
        }
    };
    in_time("the end of the message", said).await;
    // The CLI writes its transcript in batches.
    let transcript = transcript_of(&stage, &id);
    found("the call in the transcript", || {
        let written = std::fs::read_to_string(&transcript).unwrap_or_default();
        written.contains("\"msg_script_1\"").then_some(())
    })
    .await;
    kill(&session).await;
    let cut_off = in_time("the end", turn.outcome()).await.unwrap();
    let first = &used[0];
    let (was_told, price) = (of(&cut_off), first.cost_usd / tokens(first.total()).iter().sum::<u64>() as f64);
    assert!(!was_told.accounted, "{was_told:?}");
    assert!(was_told.cost_usd > 0.0 && price > 0.0, "{was_told:?}");
    used.push(was_told);
    // The totals of the new process begin with those of the last orderly exit: there was none.
    answers(&session, "Again?", "Again.").await;
    let last = outcome(&session, "And on?").await;
    stop(&session).await;
    let requests = stage.model.requests();
    let sum: TokenUsage = used.iter().map(TurnUsage::total).sum();
    assert_eq!(tokens(sum), counted(&requests[..2]));
    let told = last.result().unwrap().total_cost_usd.unwrap();

    let disk = LocalSessions::at(stage.home.path().join(".claude"));
    let on_disk = in_time("the disk", disk.usage(&id)).await.unwrap();
    // The CLI has noted what it told; the messages of the one that was killed are there, too.
    assert!(on_disk.total_cost_usd() > told, "{} and {told}", on_disk.total_cost_usd());
    assert_eq!(tokens(all(&on_disk)), counted(&requests));
    same_cents(on_disk.total_cost_usd(), told + sum.cost_usd);
}

fn same_cents(left: f64, right: f64) {
    assert!((left - right).abs() < 0.005, "{left} and {right}");
}

fn transcript_of(stage: &Stage, id: &str) -> PathBuf {
    let projects = stage.home.path().join(".claude/projects");
    projects.join(project_key(stage.cwd.path())).join(format!("{id}.jsonl"))
}

async fn kill(session: &Session) {
    let pid = reported_cli(session).await.pid.unwrap();
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
}
