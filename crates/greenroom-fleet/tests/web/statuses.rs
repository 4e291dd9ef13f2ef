//! Each error of a fleet has a status, and the table in the documentation says which.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::response::IntoResponse;
use greenroom_fleet::web::Problem;
use greenroom_fleet::{
    AnswerError, AttemptId, BackendError, BackendErrorKind, Decision, Denied, FleetError, NodeId,
    PromptError, PromptId, QuestionId, Refused, Tenant, Timestamp,
};

/// A text that no client may read.
const SECRET: &str = "/srv/secret: password authentication failed";

fn backend(kind: BackendErrorKind) -> BackendError {
    BackendError::new(kind, SECRET)
}

fn fleet_errors() -> Vec<FleetError> {
    let (node, why, secret) = (NodeId::new(), SECRET.to_owned(), || SECRET.to_owned());
    let kinds = [
        BackendErrorKind::Unavailable,
        BackendErrorKind::Closed,
        BackendErrorKind::InUse,
        BackendErrorKind::Version,
        BackendErrorKind::Damaged,
        BackendErrorKind::Invalid,
    ];
    let mut errors = vec![
        FleetError::Denied(Denied::new(SECRET)),
        FleetError::Invalid(secret()),
        FleetError::Name(Tenant::new("").unwrap_err()),
        FleetError::NotFound { what: "prompt", id: secret() },
        FleetError::Elsewhere { node },
        FleetError::OwnerSilent { node },
        FleetError::OwnerFailed { node, why },
        FleetError::OutcomeUnknown { node },
        FleetError::OwnerBusy { node },
        FleetError::State(secret()),
        FleetError::Ended,
    ];
    errors.extend(kinds.map(|kind| FleetError::Backend(backend(kind))));
    errors
}

fn prompt_errors() -> Vec<PromptError> {
    let (known, retry_after) = (|| SECRET.to_owned(), Duration::from_secs(60));
    let refused = [
        Refused::QueueFull { what: SECRET, of: SECRET, bound: 16 },
        Refused::TooLong { bytes: 2, bound: 1 },
        Refused::WaitingBytes { bound: 1 },
        Refused::KeptBytes { bound: 1 },
        Refused::TooManyNames { bound: 1 },
        Refused::TooFast { retry_after },
        Refused::OverBudget { retry_after },
        Refused::ProfileMismatch { known: known() },
        Refused::UnknownProfile(known()),
        Refused::KeyReused { prompt: PromptId::new() },
        Refused::Quarantined { why: known() },
        Refused::Deleting,
        Refused::Moving,
        Refused::Draining,
        Refused::Invalid(known()),
    ];
    let unknown = PromptError::Unknown {
        prompt: PromptId::new(),
        key: Some(known()),
        cause: backend(BackendErrorKind::Unavailable),
    };
    let others = [unknown, PromptError::Denied(Denied::new(SECRET))];
    refused.map(PromptError::Refused).into_iter().chain(others).collect()
}

fn answer_errors() -> Vec<AnswerError> {
    let (question, attempt) = (QuestionId::new(), AttemptId::new());
    let decision = Decision::Answered { answer: SECRET.into(), attempt, at: Timestamp::now() };
    let cause = backend(BackendErrorKind::Unavailable);
    vec![
        AnswerError::Denied(Denied::new(SECRET)),
        AnswerError::Misfit(SECRET.to_owned()),
        AnswerError::TooLate { question, decision },
        AnswerError::Gone(question),
        AnswerError::Unknown { attempt, cause: cause.clone() },
        AnswerError::Backend(cause),
    ]
}

fn problems() -> Vec<Problem> {
    let fleet = fleet_errors().into_iter().map(Problem::from);
    let prompts = prompt_errors().into_iter().map(Problem::from);
    fleet.chain(prompts).chain(answer_errors().into_iter().map(Problem::from)).collect()
}

/// A row of the table, without what follows.
fn row(problem: &Problem) -> String {
    let after = if problem.retry_after().is_some() { " yes " } else { " " };
    format!("| {} | `{}` |{after}|", problem.status().as_u16(), problem.code())
}

#[test]
fn the_table_of_statuses_has_each_problem_and_no_other() {
    let table = include_str!("../../src/web/statuses.md");
    let mut rows: BTreeSet<_> = problems().iter().map(row).collect();
    rows.insert("| 401 | `no_login` | |".to_owned());
    rows.insert("| 403 | `cross_origin` | |".to_owned());
    let documented: BTreeSet<_> = table
        .lines()
        .skip(2)
        .map(|line| line.rsplitn(3, '|').last().map(|row| format!("{row}|")).unwrap())
        .collect();
    assert_eq!(rows, documented);
}

#[test]
fn the_guide_has_the_same_table() {
    let guide = include_str!("../../../../docs/service.md").replace("`Login`", "[`Login`]");
    for line in include_str!("../../src/web/statuses.md").lines() {
        assert!(guide.contains(line), "docs/service.md has not the row {line}");
    }
}

#[tokio::test]
async fn no_text_of_an_error_reaches_a_client() {
    for problem in problems() {
        let (shown, status, after) = (problem.to_string(), problem.status(), problem.retry_after());
        let response = problem.into_response();
        assert_eq!(response.status(), status);
        let seconds = response.headers().get("retry-after").map(|after| after.to_str().unwrap().to_owned());
        assert_eq!(seconds, after.map(|after| after.as_secs().to_string()));
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let body = axum::body::to_bytes(response.into_body(), 4096).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["detail"], &body["status"]), (&shown.into(), &status.as_u16().into()));
        assert!(!body.to_string().contains("secret"), "{body}");
    }
}

#[tokio::test]
async fn a_client_comes_back_no_earlier_than_it_may() {
    let error = PromptError::Refused(Refused::OverBudget { retry_after: Duration::from_millis(1001) });
    assert_eq!(Problem::from(error).into_response().headers()["retry-after"], "2");
}
