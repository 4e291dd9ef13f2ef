//! `Chaos` runs a check of the application, and its report can be debugged with.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use greenroom::{NoArgs, Session, ToolContext, ToolServer};
use greenroom_testkit::{
    AfterPlan, Chaos, Entry, FaultKind, FaultMix, FaultPlan, Line, Step, Transcript, Wire,
};
use serde_json::json;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A counter whose state is made anew when its server restarts.
fn counter() -> Chaos {
    Chaos::new(|| {
        let add = async |_: NoArgs, cx: ToolContext<AtomicU64>| cx.fetch_add(1, Ordering::Relaxed);
        let total = async |_: NoArgs, cx: ToolContext<AtomicU64>| cx.load(Ordering::Relaxed);
        let counter =
            ToolServer::new("counter", "1.0.0").tool("add", "Add 1", add).tool("total", "The sum", total);
        Session::builder().mcp_server(counter.state(|| AtomicU64::new(0)))
    })
    .call("counter", "add", |_| json!({}))
}

async fn nothing_is_forgotten(after: AfterPlan) -> Result<(), Failure> {
    let total: u64 = after.call("counter", "total", json!({})).await.text().parse()?;
    match total == after.calls {
        true => Ok(()),
        false => Err(format!("{total} of {} calls were counted", after.calls).into()),
    }
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
async fn a_check_of_the_application_fails_a_plan_which_is_shrunk() {
    let chaos = counter().check(nothing_is_forgotten);
    chaos.test(&FaultMix::none(), 0..4).await;
    let run = chaos.run(&long_plan()).await;
    assert_eq!(run.problems, ["the application's check failed: 2 of 12 calls were counted"]);
    let smallest = chaos.shrink(run).await;
    let steps = smallest.plan.steps();
    assert_eq!(steps, [Step::Calls(1), Step::Settle, Step::Fault(FaultKind::ServerKill, 0)], "{smallest}");
}

#[tokio::test(start_paused = true)]
async fn a_check_sees_outcomes_and_may_prompt_and_break_the_session() {
    let check = async |after: AfterPlan| {
        assert_eq!(after.outcomes.len(), 2);
        let outcome = after.session.prompt("and now?").await?.outcome().await?;
        assert_eq!(outcome.text(), Some("done"));
        after.session.inject(greenroom_testkit::Fault::KillPort);
        let outcome = after.session.prompt("again").await?.outcome().await?;
        assert_eq!(outcome.text(), Some("done"), "with the next CLI");
        assert!(after.call("counter", "no such tool", json!({})).await.is_error);
        Ok::<(), greenroom::Error>(())
    };
    counter().check(check).test_plan(&long_plan()).await;
}

#[tokio::test(start_paused = true)]
async fn a_check_that_panics_or_hangs_fails_the_plan() {
    let plan = FaultPlan::new([Step::Calls(1)]);
    let panics = counter().check(async |after: AfterPlan| -> Result<(), String> {
        panic!("{} calls", after.calls);
    });
    assert_eq!(panics.run(&plan).await.problems, ["the application's check panicked: 1 calls"]);
    let hangs = counter().check(async |_| std::future::pending::<Result<(), String>>().await);
    assert_eq!(hangs.run(&plan).await.problems, ["the application's check did not end within 300s"]);
}

#[tokio::test(start_paused = true)]
async fn the_report_of_a_failing_plan_says_what_failed_first() {
    let text = report(counter().check(nothing_is_forgotten), &long_plan()).await;
    let start =
        "a plan by hand fails, 9 steps:\n- the application's check failed: 2 of 12 calls were counted\n";
    assert!(text.starts_with(start), "{text}");
    assert!(text.contains("the application's check failed: 0 of 1 calls were counted"), "{text}");
    let code = "FaultPlan::new([Step::Calls(1), Step::Settle, Step::Fault(FaultKind::ServerKill, 0)])";
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
    let start = "a plan by hand fails, 1 step:\n- the result of counter/add is not as expected: not 7\n  arguments {}\n";
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
    let host = Wire::Host(Line::from(r#"{"type":"user"}"#));
    let transcript = Transcript::new([Entry::new(1, Duration::ZERO, host)]);
    assert!(transcript.to_string().contains(r#"host > {"type":"user"}"#), "{transcript}");
}
