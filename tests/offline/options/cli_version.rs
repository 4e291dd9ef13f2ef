//! CLIs that are too old for greenroom.

use crate::common::{SOON, stop, within};
use greenroom::options::OLDEST_CLI;
use greenroom::{Error, ErrorKind, Session, SessionBuilder};
use greenroom_testkit::{CliEnd, ScriptedCli};
use serde_json::{Value, json};

/// Starts a session on a CLI that answers `initialize` with these fields.
async fn started(builder: SessionBuilder, answer: Value) -> (greenroom::Result<Session>, CliEnd) {
    let (transport, mut listener) = ScriptedCli::by_hand();
    within(SOON, async {
        tokio::join!(builder.transport(transport).start(), async {
            let mut end = listener.accept().await;
            let initialize = end.expect_request("initialize").await;
            end.answer(&initialize, answer);
            end
        })
    })
    .await
}

fn assert_tells_what_to_do(error: &Error, found: &str) {
    assert_eq!(error.kind(), ErrorKind::CliTooOld, "{error}");
    let text = error.to_string();
    assert!(text.contains(found) && text.contains(OLDEST_CLI) && text.contains("claude update"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_cli_that_is_too_old_fails_the_start_and_the_error_says_so() {
    for version in ["2.1.301", "2.1.99", "2.0.900", "1.0.86 (Claude Code)"] {
        let (session, _end) = started(Session::builder(), json!({ "claude_code_version": version })).await;
        assert_tells_what_to_do(&session.unwrap_err(), version);
    }
    for version in ["nightly", ""] {
        let (session, _end) = started(Session::builder(), json!({ "claude_code_version": version })).await;
        assert_eq!(session.unwrap_err().kind(), ErrorKind::CliTooOld, "{version:?}");
    }
    for version in [OLDEST_CLI, "2.1.1000", "2.2.0-beta.1", "2.2", "3.0.0"] {
        let (session, end) = started(Session::builder(), json!({ "claude_code_version": version })).await;
        stop(session.unwrap(), end).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cli_that_leaves_its_version_out_is_too_old() {
    for answer in [json!({ "pid": 7 }), json!({ "commands": [] })] {
        let (session, _end) = started(Session::builder(), answer).await;
        assert_tells_what_to_do(&session.unwrap_err(), "does not say its version");
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_cli_is_used_if_the_application_allows_it() {
    for answer in [json!({ "claude_code_version": "2.1.290" }), json!({})] {
        let builder = Session::builder().configure(|options| options.allow_old_cli = true);
        let (session, end) = started(builder, answer).await;
        stop(session.unwrap(), end).await;
    }
}
