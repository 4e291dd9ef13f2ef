//! `Chaos` shrinks a plan that fails, and its report can be debugged with.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use greenroom::{Session, ToolContext, ToolServer};
use greenroom_testkit::{Chaos, Entry, FaultKind, FaultMix, FaultPlan, Line, Step, Transcript, Wire};
use serde_json::json;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Add {
    /// Number of calls before this one.
    before: u64,
}

/// A counter whose state is made anew when its server restarts.
fn counter() -> Chaos {
    Chaos::new(|| {
        let add = async |add: Add, cx: ToolContext<AtomicU64>| {
            format!("{} of {}", cx.fetch_add(1, Ordering::Relaxed), add.before)
        };
        Session::builder().mcp_server(
            ToolServer::new("counter", "1.0.0").tool("add", "Add 1", add).state(|| AtomicU64::new(0)),
        )
    })
    .call("counter", "add", |n| json!({ "before": n }))
}

/// Fails once the counter has forgotten a call.
fn that_forgets_nothing() -> Chaos {
    counter().expect(|args, result| {
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        let right = format!("{0} of {0}", args["before"]);
        (text == right).then_some(()).ok_or_else(|| format!("{text} calls were counted"))
    })
}

/// The text of the panic of a failing plan.
async fn report(chaos: Chaos, plan: &FaultPlan) -> String {
    let panic = AssertUnwindSafe(chaos.test_plan(plan)).catch_unwind().await.unwrap_err();
    panic.downcast_ref::<String>().unwrap().clone()
}

fn long_plan() -> FaultPlan {
    FaultPlan::new([
        Step::Prompt,
        Step::Calls(8),
        Step::Settle,
        Step::Fault(FaultKind::CliNoise, 1),
        Step::Calls(2),
        Step::Settle,
        Step::Fault(FaultKind::ServerKill, 0),
        Step::Prompt,
        Step::Calls(2),
    ])
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_fails_is_shrunk() {
    let chaos = that_forgets_nothing();
    chaos.test(&FaultMix::none(), 0..4).await;
    let run = chaos.run(&long_plan()).await;
    assert!(run.problems[0].contains("0 of 10 calls were counted"), "{run}");
    let smallest = chaos.shrink(run).await;
    let steps = &smallest.plan.steps;
    assert_eq!(
        *steps,
        [Step::Calls(1), Step::Settle, Step::Fault(FaultKind::ServerKill, 0), Step::Calls(1)],
        "{smallest}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_report_of_a_failing_plan_says_what_failed_first() {
    let text = report(that_forgets_nothing(), &long_plan()).await;
    let start =
        "a plan by hand fails, 9 steps:\n- the result of counter/add is not as expected: 0 of 10 calls";
    assert!(text.starts_with(start), "{text}");
    assert!(
        text.contains("the result of counter/add is not as expected: 0 of 1 calls were counted"),
        "{text}"
    );
    let code = "FaultPlan::new([Step::Calls(1), Step::Settle, Step::Fault(FaultKind::ServerKill, 0), Step::Calls(1)])";
    assert!(text.contains(&format!("To play it again:\n    chaos.test_plan(&{code}).await;")), "{text}");
    assert!(!text.to_lowercase().contains("every promise was kept"), "{text}");
    assert!(!text.contains(r#"\""#), "JSON is escaped twice: {text}");
    assert!(
        text.contains(r#"cli  > {"type":"control_request""#) || text.contains(r#"cli  > {"request""#),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_unexpected_result_is_reported_with_its_tool_and_arguments() {
    let chaos = counter().expect(|_, _| Err("not 7".into()));
    let text = report(chaos, &FaultPlan::new([Step::Calls(1)])).await;
    let start = "a plan by hand fails, 1 step:\n- the result of counter/add is not as expected: not 7\n  arguments {\"before\":0}\n";
    assert!(text.starts_with(start), "{text}");
    assert!(text.contains("\n  result {\"content\":[{"), "{text}");
    let run = counter().run(&FaultPlan::new([Step::Calls(1)])).await;
    assert!(run.to_string().contains("Every promise was kept."), "{run}");
}

#[test]
fn a_transcript_for_people_shows_json_as_it_is() {
    let line = Line::new("{\"type\":\"user\",\"text\":\"a\\nb\"}\u{1b}");
    assert_eq!(line.to_string(), "{\"type\":\"user\",\"text\":\"a\\nb\"}\\u{1b}");
    assert_eq!(Line::cut("{\"ty").to_string(), "{\"ty (cut)");
    let host = Wire::Host(Line::new(r#"{"type":"user"}"#));
    let transcript = Transcript { entries: vec![Entry { epoch: 1, at: Duration::ZERO, wire: host }] };
    assert!(transcript.to_string().contains(r#"host > {"type":"user"}"#), "{transcript}");
}
