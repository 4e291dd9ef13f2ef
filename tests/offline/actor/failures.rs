//! The kinds of errors of failed turns. The test itself plays the CLI.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::*;
use greenroom::{Error, ErrorKind, Outcome, Session};
use serde_json::{Value, json};

/// Runs a turn that ends like this, and returns its error.
async fn error_of(says: &[Value], mut result: Value) -> Error {
    let (session, mut end, _listener) = start_by_hand(Session::builder()).await;
    let mut turn = session.prompt("Work.").await.unwrap();
    let given = within(SOON, end.expect("user")).await;
    end.begin_turn();
    says.iter().for_each(|message| end.message(message.clone()));
    result["type"] = json!("result");
    result["is_error"] = json!(true);
    result["user_message_uuids"] = json!([given["uuid"]]);
    end.message(result);
    let Outcome::Failed { error, result: Some(_), .. } = within(SOON, turn.outcome()).await.unwrap() else {
        panic!("it did not fail")
    };
    stop(session, end).await;
    error
}

/// The last message of a turn whose API call has failed.
fn said(error: &str) -> Value {
    json!({ "type": "assistant", "parent_tool_use_id": null, "error": error,
        "message": { "model": "<synthetic>", "content": [{ "type": "text", "text": "API Error" }] } })
}

/// The result of a turn whose API call has failed.
fn api_error(status: Option<u16>) -> Value {
    json!({ "subtype": "success", "result": "why", "terminal_reason": "api_error", "api_error_status": status })
}

fn failed(subtype: &str, terminal_reason: &str) -> Value {
    json!({ "subtype": subtype, "errors": ["why"], "terminal_reason": terminal_reason })
}

// Guards: the API refuses a call of the turn, the budget is spent, or the context is full
#[tokio::test(start_paused = true)]
async fn a_failed_turn_says_what_to_do() {
    use ErrorKind::*;
    let startup = |reason: &str| json!({ "subtype": "error_during_execution", "errors": ["why"], "startup_failure_reason": reason });
    let cases = [
        (vec![said("authentication_failed")], api_error(None), Unauthenticated),
        (vec![said("oauth_org_not_allowed")], api_error(Some(403)), Unauthenticated),
        (vec![], api_error(Some(401)), Unauthenticated),
        (vec![], startup("gateway_signin_required"), Unauthenticated),
        (vec![], startup("cwd_unavailable"), TurnFailed),
        (vec![said("billing_error")], api_error(Some(400)), NoCredit),
        (vec![said("rate_limit")], api_error(Some(429)), RateLimited),
        (vec![], api_error(Some(429)), RateLimited),
        (vec![said("overloaded")], api_error(Some(529)), Overloaded),
        (vec![], api_error(Some(500)), Overloaded),
        (vec![said("invalid_request")], api_error(Some(400)), TurnFailed),
        // A call that failed before is not why the turn failed.
        (
            vec![said("overloaded"), json!({ "type": "assistant", "message": { "content": [] } })],
            api_error(None),
            TurnFailed,
        ),
        // Nor is the call of a subagent.
        (
            vec![json!({ "type": "assistant", "parent_tool_use_id": "toolu_1", "error": "overloaded",
            "message": { "content": [] } })],
            api_error(None),
            TurnFailed,
        ),
        (vec![said("overloaded")], failed("error_max_turns", "max_turns"), TurnFailed),
        (vec![], failed("error_max_budget_usd", "budget_exhausted"), BudgetSpent),
        (vec![], failed("error_during_execution", "prompt_too_long"), ContextFull),
        (
            vec![],
            json!({ "subtype": "success", "result": "why", "terminal_reason": "blocking_limit" }),
            ContextFull,
        ),
    ];
    for (says, result, kind) in cases {
        let shown = format!("{says:?} {result}");
        let error = error_of(&says, result).await;
        assert_eq!(error.kind(), kind, "{shown}");
        assert!(error.to_string().starts_with("why"), "{error}");
        assert_eq!(error.help().is_some(), kind != TurnFailed, "{shown}");
        assert_eq!(error.is_retryable(), matches!(kind, RateLimited | Overloaded), "{shown}");
        assert_eq!(error.retry_after(), None, "{shown}");
    }
}

/// A change of the quota, in effect until the time in seconds since 1970.
fn quota(status: &str, resets_at: u64) -> Value {
    json!({ "type": "rate_limit_event", "rate_limit_info": { "status": status, "resetsAt": resets_at } })
}

// Guards: the API refuses a call of the turn, the budget is spent, or the context is full
#[tokio::test(start_paused = true)]
async fn a_rate_limit_says_when_it_is_reset() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let hour = quota("rejected", now + 3_600);
    let after = async |says: &[Value]| error_of(says, api_error(Some(429))).await.retry_after();

    let wait = after(&[quota("allowed_warning", 5), hour.clone(), said("rate_limit")]).await.unwrap();
    assert!((Duration::from_secs(3_000)..=Duration::from_secs(3_600)).contains(&wait), "{wait:?}");
    let passed = error_of(&[quota("rejected", now - 10), said("rate_limit")], api_error(Some(429))).await;
    assert_eq!(passed.retry_after(), None, "the time has passed");
    assert_eq!(passed.resets_at(), Some(UNIX_EPOCH + Duration::from_secs(now - 10)), "on the API's clock");
    assert_eq!(after(&[hour.clone(), quota("allowed", now + 9), said("rate_limit")]).await, None);
    let mut billed = hour.clone();
    billed["rate_limit_info"]["isUsingOverage"] = json!(true);
    assert_eq!(after(&[billed, said("rate_limit")]).await, None, "the quota is not why it failed");
    let other = error_of(&[hour, said("overloaded")], api_error(Some(529))).await;
    assert_eq!((other.retry_after(), other.resets_at()), (None, None), "the quota is not why it failed");
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_that_only_credit_clears_is_no_time_to_wait() {
    let mut event = quota("rejected", 5_000_000_000);
    event["rate_limit_info"]["errorCode"] = json!("credits_required");
    let error = error_of(&[event.clone(), said("rate_limit")], api_error(Some(429))).await;
    assert!(error.kind() == ErrorKind::NoCredit && !error.is_retryable() && error.retry_after().is_none());
    event["rate_limit_info"]["rateLimitType"] = json!("five_hour");
    let error = error_of(&[event, said("rate_limit")], api_error(Some(429))).await;
    assert!(error.kind() == ErrorKind::RateLimited && error.retry_after().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_is_told_once_and_holds_for_the_next_turns() {
    let (session, mut end, _listener) = start_by_hand(Session::builder()).await;
    for first in [true, false] {
        let mut turn = session.prompt("Work.").await.unwrap();
        let given = within(SOON, end.expect("user")).await;
        // An error from before the turn is none of the turn's.
        end.message(said("overloaded"));
        end.begin_turn();
        if first {
            end.message(quota("rejected", 5_000_000_000));
        }
        let mut result = api_error(Some(429));
        result["type"] = json!("result");
        result["is_error"] = json!(true);
        result["user_message_uuids"] = json!([given["uuid"]]);
        end.message(result);
        let error = within(SOON, turn.outcome()).await.unwrap().into_result().unwrap_err();
        assert!(error.kind() == ErrorKind::RateLimited && error.retry_after().is_some(), "{error:?}");
    }
    stop(session, end).await;
}
