//! The tools for fault injection: each finds what it is there to find, and says so in words.

use std::time::Duration;

use crate::common::*;
use greenroom::transport::Exit;
use greenroom::{NoArgs, Session, SessionBuilder, ToolServer};
use greenroom_testkit::invariants::{Report, Violation};
use greenroom_testkit::{
    Chaos, Entry, FaultKind, FaultMix, FaultPlan, LeakCheck, Line, Recorder, ScriptedCli, Step, Transcript,
    Wire, invariants,
};
use serde_json::{Value, json};

/// A session with a clock whose tool `now` returns `time`.
fn clock(time: &'static str) -> SessionBuilder {
    let clock = ToolServer::new("clock", "1.0.0")
        .tool("now", "The time", move |_: NoArgs| async move { time })
        .tool("boom", "Panics", async |_: NoArgs| -> String { panic!("kaboom") });
    Session::builder().mcp_server(clock).allow_server_tools("clock")
}

// ---- transcripts -------------------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_recorder_keeps_both_directions_of_every_incarnation() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let recorder = Recorder::around(transport);
    let (session, mut end) = tokio::join!(clock("noon").transport(recorder.clone()).start(), async {
        let mut end = listener.accept().await;
        end.handshake().await;
        end
    });
    let session = session.unwrap();
    assert_eq!(text(&call(&mut end, "clock", "now", json!({})).await), "noon");
    end.send_bytes(b"noise \xff\n{\"type\":\"half".to_vec());
    end.flushed().await;
    end.exit(Exit::Signal(9));
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    stop(session, end).await;

    let transcript = recorder.transcript();
    let of = |epoch: u64| transcript.entries.iter().filter(move |entry| entry.epoch == epoch);
    assert!(matches!(&of(1).next().unwrap().wire, Wire::Opened { args } if !args.is_empty()));
    assert!(of(1).any(|entry| matches!(&entry.wire, Wire::Cli(line) if line.bytes == b"noise \xff")));
    assert!(of(1).any(|entry| matches!(&entry.wire, Wire::Cli(line) if !line.is_whole)));
    assert!(matches!(of(1).next_back().unwrap().wire, Wire::Ended { exit: Some(Exit::Signal(9)) }));
    assert!(matches!(of(2).next_back().unwrap().wire, Wire::Ended { exit: Some(Exit::Code(0)) }));
    let answered = transcript.to_string();
    assert!(answered.contains("host > ") && answered.contains("noon"), "{answered}");

    let report = invariants::check(&transcript);
    report.assert_fine();
    assert_eq!((report.counts.incarnations, report.counts.requests, report.counts.answers), (2, 1, 1));
}

// ---- invariants: each fails on a transcript that breaks it -----------------------------------------------------

fn opened(epoch: u64) -> (u64, Wire) {
    (epoch, Wire::Opened { args: Vec::new() })
}

fn ended(epoch: u64) -> (u64, Wire) {
    (epoch, Wire::Ended { exit: None })
}

fn cli(epoch: u64, frame: Value) -> (u64, Wire) {
    (epoch, Wire::Cli(Line::new(frame.to_string())))
}

fn host(epoch: u64, frame: Value) -> (u64, Wire) {
    (epoch, Wire::Host(Line::new(frame.to_string())))
}

fn asks(epoch: u64, id: &str) -> (u64, Wire) {
    let message = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call" });
    let request = json!({ "subtype": "mcp_message", "server_name": "calc", "message": message });
    cli(epoch, json!({ "type": "control_request", "request_id": id, "request": request }))
}

fn asks_silent(epoch: u64, id: &str) -> (u64, Wire) {
    let request = json!({ "subtype": "remote_tool_call" });
    cli(epoch, json!({ "type": "control_request", "request_id": id, "request": request }))
}

fn withdraws(epoch: u64, id: &str) -> (u64, Wire) {
    cli(epoch, json!({ "type": "control_cancel_request", "request_id": id }))
}

fn answers_with(epoch: u64, id: &str, rpc_id: Value) -> (u64, Wire) {
    let answer = json!({ "mcp_response": { "jsonrpc": "2.0", "id": rpc_id, "result": {} } });
    let response = json!({ "subtype": "success", "request_id": id, "response": answer });
    host(epoch, json!({ "type": "control_response", "response": response }))
}

fn answers_it(epoch: u64, id: &str) -> (u64, Wire) {
    answers_with(epoch, id, json!(7))
}

fn prompts(epoch: u64, uuid: &str) -> (u64, Wire) {
    host(epoch, json!({ "type": "user", "uuid": uuid }))
}

fn begins(epoch: u64) -> (u64, Wire) {
    cli(epoch, json!({ "type": "system", "subtype": "init" }))
}

fn check(entries: impl IntoIterator<Item = (u64, Wire)>) -> Report {
    let entries = entries.into_iter().map(|(epoch, wire)| Entry { epoch, at: Duration::ZERO, wire });
    invariants::check(&Transcript { entries: entries.collect() })
}

/// The one violation of this transcript.
fn violation(entries: impl IntoIterator<Item = (u64, Wire)>) -> Violation {
    let report = check(entries);
    assert_eq!(report.violations.len(), 1, "{report}");
    assert!(!report.is_fine() && report.to_string().contains("1 violation"), "{report}");
    report.violations[0].clone()
}

#[test]
fn a_request_without_an_answer_is_found_unless_it_needs_none() {
    let found = violation([opened(1), asks(1, "a")]);
    assert!(matches!(&found, Violation::Unanswered { request_id, .. } if request_id == "a"));

    check([opened(1), asks(1, "a"), answers_it(1, "a")]).assert_fine();
    check([opened(1), asks(1, "a"), withdraws(1, "a")]).assert_fine();
    check([opened(1), asks(1, "a"), answers_it(1, "a"), withdraws(1, "a")]).assert_fine();
    check([opened(1), asks_silent(1, "a")]).assert_fine();
    check([opened(1), asks(1, "a"), asks(1, "a"), answers_it(1, "a")]).assert_fine();
    let report = check([opened(1), asks(1, "a"), ended(1)]);
    report.assert_fine();
    assert_eq!((report.open_at_end, report.counts.open_at_end), (vec![(1, "a".into())], 1));
}

#[test]
fn a_second_answer_is_found() {
    let twice = violation([opened(1), asks(1, "a"), answers_it(1, "a"), answers_it(1, "a")]);
    assert_eq!(twice, Violation::AnsweredTwice { epoch: 1, request_id: "a".into() });
    let again = [asks(1, "a"), answers_it(1, "a"), asks(1, "a"), answers_it(1, "a")];
    check([opened(1)].into_iter().chain(again)).assert_fine();
    let silent = violation([opened(1), asks_silent(1, "a"), answers_it(1, "a")]);
    assert!(matches!(silent, Violation::AnsweredSilent { .. }));
}

#[test]
fn an_answer_that_crosses_an_incarnation_is_found() {
    let crossing = violation([opened(1), asks(1, "a"), ended(1), opened(2), answers_it(2, "a")]);
    assert_eq!(crossing, Violation::NotAsked { epoch: 2, request_id: "a".into(), asked_by: Some(1) });
    assert!(crossing.to_string().starts_with("fenced: "), "{crossing}");
    let made_up = violation([opened(1), answers_it(1, "b")]);
    assert!(matches!(made_up, Violation::NotAsked { asked_by: None, .. }));
    assert!(matches!(violation([opened(1), opened(2)]), Violation::TwoAtOnce { epoch: 2, living: 1 }));
}

#[test]
fn an_answer_with_another_json_rpc_id_is_found() {
    let other = violation([opened(1), asks(1, "a"), answers_with(1, "a", json!(8))]);
    assert!(matches!(&other, Violation::OtherRpcId { asked: Some(asked), .. } if asked == "7"));
    let spelled = violation([opened(1), asks(1, "a"), answers_with(1, "a", json!("7"))]);
    assert!(spelled.to_string().starts_with("lossless: "), "{spelled}");
}

#[test]
fn a_torn_line_is_found_unless_its_incarnation_ended_with_it() {
    let torn = (1, Wire::Host(Line::new("{\"type\":\"user\"{\"type\":\"user\"}")));
    assert!(matches!(violation([opened(1), torn]), Violation::TornLine { .. }));
    let no_object = (1, Wire::Host(Line::new("[1]")));
    assert!(matches!(violation([opened(1), no_object]), Violation::TornLine { .. }));
    let cut = (1, Wire::Host(Line::cut("{\"ty")));
    assert!(matches!(violation([opened(1), cut.clone()]), Violation::TornLine { .. }));
    let report = check([opened(1), cut, ended(1)]);
    report.assert_fine();
    assert_eq!(report.counts.cut, 1);
}

#[test]
fn a_prompt_that_is_written_twice_is_found() {
    let twice = violation([opened(1), prompts(1, "u"), prompts(1, "u")]);
    assert!(matches!(twice, Violation::PromptTwice { epoch: 1, first: 1, .. }));
    let begun = violation([opened(1), prompts(1, "u"), begins(1), ended(1), opened(2), prompts(2, "u")]);
    assert!(matches!(begun, Violation::PromptAgainAfterBegin { epoch: 2, first: 1, .. }));
    let report = check([opened(1), prompts(1, "u"), ended(1), opened(2), prompts(2, "u")]);
    report.assert_fine();
    assert_eq!((report.counts.prompts, report.counts.prompts_again), (2, 1));
}

// ---- plans and chaos ---------------------------------------------------------------------------------------------

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Echo {
    n: u64,
}

/// Two servers whose tools say what they are told.
fn echoes() -> Chaos {
    Chaos::new(|| {
        let quick = ToolServer::new("quick", "1.0.0").tool("echo", "Echo", async |args: Echo| args.n);
        let patient = ToolServer::new("patient", "1.0.0").tool("echo", "Echo", async |args: Echo| {
            tokio::time::sleep(Duration::from_millis(args.n % 50)).await;
            args.n
        });
        Session::builder().mcp_server(quick).mcp_server(patient)
    })
    .call("quick", "echo", |n| json!({ "n": n }))
    .call("patient", "echo", |n| json!({ "n": n }))
    .expect(|args, result| {
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        (Some(text) == args["n"].as_u64().map(|n| n.to_string()).as_deref())
            .then_some(())
            .ok_or_else(|| format!("{args} was answered with {text}"))
    })
}

#[test]
fn a_seed_makes_the_same_plan_for_ever() {
    let plan = FaultMix::all().plan(7);
    assert_eq!(plan, FaultMix::all().plan(7));
    assert_ne!(plan.steps, FaultMix::all().plan(8).steps);
    assert_eq!(serde_json::from_str::<FaultPlan>(&serde_json::to_string(&plan).unwrap()).unwrap(), plan);
    let text = plan.to_string();
    assert!(text.starts_with("the plan of seed 7, 60 steps:\n   1. "), "{text}");
    // If this fails, seeds that others have written down mean something else now.
    let first: Vec<String> = plan.steps[..4].iter().map(Step::to_string).collect();
    assert_eq!(first, PLAN_OF_SEED_7);
}

const PLAN_OF_SEED_7: [&str; 4] =
    ["prompt", "fault cli_exit (10699)", "prompt", "fault callbacks_panic (48894)"];

fn of_steps(steps: usize, mix: FaultMix) -> FaultMix {
    FaultMix { steps, ..mix }
}

/// The number of steps and of calls in them.
fn size(plan: &FaultPlan) -> u32 {
    plan.steps.iter().map(|step| if let Step::Calls(count) = step { 1 + count } else { 1 }).sum()
}

#[test]
fn a_mix_says_what_may_happen() {
    let plan = of_steps(300, FaultMix::none().weights(&[FaultKind::HandlerPanic, FaultKind::HandlerHang], 1))
        .plan(1);
    let of = |kind| plan.steps.iter().filter(|step| matches!(step, Step::Fault(k, _) if *k == kind)).count();
    assert!(of(FaultKind::HandlerPanic) > 0 && of(FaultKind::HandlerHang) > 0);
    assert_eq!(of(FaultKind::CliExit) + of(FaultKind::RouterPanic) + of(FaultKind::ServerKill), 0);
    let plan = of_steps(3000, FaultMix::all()).plan(1);
    let all = FaultKind::ALL
        .iter()
        .filter(|kind| plan.steps.iter().any(|step| matches!(step, Step::Fault(k, _) if k == *kind)));
    assert_eq!(all.count(), FaultKind::ALL.len(), "everything may happen");
}

#[test]
fn a_plan_shrinks_to_its_single_steps() {
    let plan = FaultMix::all().plan(3);
    let smaller: Vec<FaultPlan> = plan.shrink().collect();
    assert_eq!(smaller[0].steps.len(), plan.steps.len() / 2);
    assert!(smaller.iter().all(|smaller| size(smaller) < size(&plan)));
    assert!(FaultPlan::new([Step::Settle]).shrink().all(|smaller| smaller.steps.is_empty()));
    assert_eq!(FaultPlan::new([]).shrink().count(), 0);
    // Shrinking keeps the steps that matter: here, two faults that only fail together.
    let fails = |plan: &FaultPlan| {
        let has = |kind| plan.steps.iter().any(|step| matches!(step, Step::Fault(k, _) if *k == kind));
        has(FaultKind::RouterPanic) && has(FaultKind::CliExit)
    };
    let mut found = of_steps(400, FaultMix::all()).plan(1);
    while let Some(smaller) = found.shrink().find(|smaller| fails(smaller)) {
        found = smaller;
    }
    assert_eq!(found.steps.len(), 2, "{found}");
}

#[tokio::test(start_paused = true)]
async fn after_every_plan_the_promises_hold_and_nothing_is_left() {
    let (mut calls, mut incarnations, mut panics) = (0, 0, 0);
    for seed in 0..96 {
        let run = echoes().test_plan(&FaultMix::all().plan(seed)).await;
        calls += run.calls;
        incarnations += run.report.counts.incarnations;
        panics += run.counters.panics;
    }
    println!("{calls} calls, {incarnations} incarnations, {panics} panics");
    assert!(calls > 5_000 && incarnations > 300 && panics > 100, "the plans do break something");
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_fault_alone_breaks_no_promise() {
    for kind in FaultKind::ALL {
        let mix = of_steps(40, FaultMix::none().weights(&[kind], 10));
        echoes().test(&mix, 0..3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn chaos_finds_a_tool_that_is_wrong_and_makes_its_plan_small() {
    // A tool that forgets its manners after the 20th call.
    let wrong = Chaos::new(|| {
        let calls = std::sync::atomic::AtomicU64::new(0);
        let server = ToolServer::new("quick", "1.0.0").tool("echo", "Echo", move |args: Echo| {
            let late = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 20;
            async move { if late { 0 } else { args.n + 1 } }
        });
        Session::builder().mcp_server(server)
    })
    .call("quick", "echo", |n| json!({ "n": n }))
    .expect(|_, result| {
        (result["content"][0]["text"] != "0").then_some(()).ok_or_else(|| "the count is lost".to_owned())
    });
    let run = wrong.run(&FaultMix::none().plan(5)).await;
    assert!(!run.is_fine() && run.to_string().contains("the count is lost"), "{run}");
    let smallest = wrong.shrink(run.clone()).await;
    assert!(size(&smallest.plan) < size(&run.plan) && !smallest.is_fine(), "{smallest}");
    assert!(smallest.plan.steps.iter().all(|step| matches!(step, Step::Calls(_))), "{}", smallest.plan);
}

#[tokio::test(start_paused = true)]
async fn a_leak_is_told() {
    let leaks = LeakCheck::tasks();
    leaks.check(Duration::ZERO).await.unwrap();
    #[allow(clippy::disallowed_methods, reason = "it is what is to be found")]
    let task = tokio::spawn(std::future::pending::<()>());
    let leak = leaks.check(Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(leak.to_string(), "left behind: 1 tasks, where there were 0");
    task.abort();
    leaks.assert_none(Duration::from_secs(1)).await;
}
