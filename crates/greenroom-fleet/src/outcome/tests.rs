//! Outcomes and costs.

use std::time::Duration;

use greenroom::Prompt;
use greenroom::message::UsageTracker;
use serde_json::json;

use super::*;
use crate::stage::turn::{Played, result};

#[test]
fn an_outcome_becomes_a_record_and_is_read_back() {
    let answer = result(json!({ "subtype": "success", "result": "42", "num_turns": 3, "of_next_year": [1] }));
    let completed = outcome_of(&Ok(Outcome::Completed { result: answer.clone(), usage: Arc::default() }));
    let PromptOutcome::Completed { result: json, .. } = &completed else { panic!("{completed:?}") };
    assert_eq!(json["of_next_year"], json!([1]));
    assert_eq!((completed.text(), completed.is_completed()), (Some("42"), true));
    assert_eq!(completed.result().unwrap().num_turns, 3);

    let by = SessionInterruptedBy::Limit { limit: "turn".to_owned(), after: Duration::from_secs(9) };
    let interrupted =
        outcome_of(&Ok(Outcome::Interrupted { by, result: Some(answer), usage: Arc::default() }));
    let PromptOutcome::Interrupted { by: InterruptedBy::Session { cause }, .. } = &interrupted else {
        panic!("{interrupted:?}")
    };
    assert!(cause.contains("`timeouts.turn` of 9s"), "{cause}");
    assert_eq!((interrupted.text(), interrupted.is_completed()), (None, false));
    assert_eq!(interrupted.result().unwrap().num_turns, 3);

    let by_user =
        Outcome::Interrupted { by: SessionInterruptedBy::User, result: None, usage: Arc::default() };
    let by_user = outcome_of(&Ok(by_user));
    assert_eq!(by_user, PromptOutcome::Interrupted { by: InterruptedBy::User, result: None });
    let appended = outcome_of(&Ok(Outcome::Appended));
    assert_eq!(appended, PromptOutcome::Completed { result: Value::Null, transcript_lost: false });
    assert!(appended.result().is_none() && appended.text().is_none());
    let not_started = outcome_of(&Ok(Outcome::NotStarted { prompt: Prompt::text("hello") }));
    assert!(matches!(not_started, PromptOutcome::Interrupted { by: InterruptedBy::Session { .. }, .. }));
}

#[tokio::test(start_paused = true)]
async fn a_failed_turn_keeps_the_kind_and_the_text_of_its_error() {
    let mut played = Played::start().await;
    let mut turn = played.session.prompt("hello").await.unwrap();
    let prompt = played.cli.expect("user").await;
    played.cli.begin_turn();
    played.cli.fail_turn(&prompt, "prompt_too_long", "Prompt is too long");
    let outcome = outcome_of(&turn.outcome().await);
    let PromptOutcome::Failed { kind, message, result: Some(_) } = &outcome else { panic!("{outcome:?}") };
    assert_eq!(kind, "context_full");
    assert!(message.contains("too long"), "{message}");
    assert_eq!(outcome.result().unwrap().errors, ["Prompt is too long"]);
    let mut turn = played.session.prompt("and on").await.unwrap();
    played.cli.expect("user").await;
    played.cli.begin_turn();
    played.cli.exit(greenroom::transport::Exit::Signal(9));
    let outcome = outcome_of(&turn.outcome().await);
    assert!(
        matches!(outcome, PromptOutcome::Interrupted { by: InterruptedBy::Session { .. }, .. }),
        "{outcome:?}"
    );
}

#[test]
fn a_result_that_no_backend_can_keep_loses_only_the_fields_at_fault() {
    for deep in ["[".repeat(120) + &"]".repeat(120), "[".repeat(200) + &"]".repeat(200), "1e999".to_owned()] {
        let line = format!(
            r#"{{"type": "result", "subtype": "success", "result": "cut: \ud83d", "structured_output": {deep}}}"#
        );
        let Message::Result(result) = Message::parse(&line).unwrap() else { panic!("{line}") };
        let outcome = outcome_of(&Ok(Outcome::Completed { result, usage: Arc::default() }));
        let PromptOutcome::Completed { result, .. } = &outcome else { panic!("{outcome:?}") };
        assert_eq!(
            *result,
            json!({ "type": "result", "subtype": "success", "result": "cut: \u{fffd}" }),
            "{deep}"
        );
    }
}

#[test]
fn kinds_of_errors_are_written_in_snake_case() {
    assert_eq!(snake_case(ErrorKind::ContextFull), "context_full");
    assert_eq!(snake_case(ErrorKind::Io), "io");
    assert_eq!(snake_case(ErrorKind::NotTheProtocol), "not_the_protocol");
}

/// The metered cost and usage of a turn that a session ends with this result.
fn completed(tracker: &mut UsageTracker, fields: Value) -> (Option<u64>, Option<Usage>) {
    let result = result(fields);
    let usage = Arc::new(tracker.feed_result(&result));
    metered(&Ok(Outcome::Completed { result, usage }))
}

/// Costs of results in order, each with its total, and the cost since the last result if the CLI says so.
fn costs(results: &[(f64, Option<f64>)]) -> Vec<u64> {
    let mut tracker = UsageTracker::new();
    let cost = |(total, since): &(f64, Option<f64>)| {
        let mut fields = json!({ "subtype": "success", "total_cost_usd": total });
        match since {
            Some(0.0) => fields["model_usage_since_last_result"] = json!({}),
            Some(since) => fields["model_usage_since_last_result"] = json!({ "m": { "costUSD": since } }),
            None => {}
        }
        completed(&mut tracker, fields).0.unwrap()
    };
    results.iter().map(cost).collect()
}

#[test]
fn a_turn_costs_the_difference_of_two_totals() {
    assert_eq!(
        costs(&[(0.00022, None), (0.00044, None), (0.00044, None), (0.5, None)]),
        [220, 220, 0, 499_560]
    );
    // The conversation was cleared.
    assert_eq!(costs(&[(0.25, None), (0.125, None), (0.25, None)]), [250_000, 125_000, 125_000]);
    assert_eq!(costs(&[(0.25, Some(0.25)), (0.125, Some(0.01))]), [250_000, 10_000]);
    // The CLI was killed and resumed: its totals went on where the last orderly exit had left them.
    assert_eq!(costs(&[(0.75, Some(0.25)), (0.875, Some(0.5))]), [250_000, 500_000]);
}

#[test]
fn the_cost_before_a_resume_is_not_counted_again() {
    assert_eq!(costs(&[(10.5, Some(0.5)), (11.0, Some(0.5))]), [500_000, 500_000]);
    // Commands of the CLI call no model: the total is unknown at first, then that of the conversation.
    assert_eq!(costs(&[(0.0, Some(0.0)), (10.0, Some(0.0)), (10.5, Some(0.5))]), [0, 0, 500_000]);
    // A command of the CLI after a restart of the CLI.
    assert_eq!(costs(&[(5.0, None), (0.0, None), (5.5, None)]), [5_000_000, 0, 500_000]);
    // A CLI that does not say what it has spent since the last result.
    assert_eq!(costs(&[(10.5, None), (11.0, None)]), [10_500_000, 500_000]);
    assert_eq!(metered(&Ok(Outcome::Appended)), (Some(0), Some(Usage::default())));
}

#[test]
fn tokens_of_subagents_count_for_their_turn() {
    let mut tracker = UsageTracker::new();
    let mut used = |fields| completed(&mut tracker, fields).1.unwrap();
    let main_thread = json!({ "input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 4 });
    let tokens = |usage: Usage| [usage.input, usage.output, usage.cache_read, usage.cache_creation];
    let model = |input: u64| json!({ "inputTokens": input, "outputTokens": 20, "cacheReadInputTokens": 30, "cacheCreationInputTokens": 40 });
    assert_eq!(tokens(used(json!({ "subtype": "success", "usage": main_thread }))), [1, 2, 3, 4]);
    let first = json!({ "subtype": "success", "usage": main_thread, "modelUsage": { "a": model(10), "b": model(5) } });
    assert_eq!(tokens(used(first)), [15, 40, 60, 80]);
    // The totals of the conversation.
    let second = json!({ "subtype": "success", "usage": main_thread, "modelUsage": { "a": model(10), "b": model(6) } });
    assert_eq!(tokens(used(second)), [1, 0, 0, 0]);
}
