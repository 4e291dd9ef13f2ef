//! HTTP requests as prompts, turns as streams of events, errors as status codes.
//!
//! | request | answer |
//! |---|---|
//! | `POST /users/NAME/prompts`, the prompt as the body | a stream of events: `text` (a string), and at last `outcome` (status, and the whole text or the error) |
//! | `GET /status` | the state of each live session, by the user's name |
//! | `GET /health` | 200, or 503 when the service stops |
//!
//! The name in the path stands for your authentication. In your service take the user from the login, and keep users away
//! from `/status`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header::RETRY_AFTER};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream::{Stream, unfold};
use greenroom::message::{Assembler, Delta};
use greenroom::{ErrorKind, Outcome};
use serde::Serialize;
use serde_json::json;

use crate::users::{CancelOnDrop, User, Users};

pub fn router(users: Arc<Users>) -> Router {
    Router::new()
        .route("/users/{name}/prompts", post(prompt))
        .route("/status", get(async |State(users): State<Arc<Users>>| Json(users.status().await)))
        .route("/health", get(async |State(users): State<Arc<Users>>| users.open().map(|()| "ok")))
        .with_state(users)
}

async fn prompt(
    State(users): State<Arc<Users>>,
    Path(name): Path<String>,
    prompt: String,
) -> Result<Sse<impl Stream<Item = Result<Event, axum::Error>>>, Failure> {
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-_@".contains(c);
    if name.len() > 64 || !name.chars().all(fits) || prompt.trim().is_empty() {
        let error = "send a prompt; a name has 1 to 64 letters, digits, '.', '-', '_' and '@'".into();
        return Err(Failure { status: 400, error, retry_after: None });
    }
    let turn = users.prompt(User { name }, prompt).await?;
    Ok(Sse::new(events(turn)).keep_alive(KeepAlive::default()))
}

/// The events of a turn: text as the model writes it, without the work of subagents, and the outcome.
///
/// A client that goes away drops the stream, and the stream drops the turn, which is cancelled: it costs money, nobody
/// reads the answer, and the user's next prompt would wait for it.
fn events(turn: CancelOnDrop) -> impl Stream<Item = Result<Event, axum::Error>> {
    unfold(Some((turn, Assembler::new())), async |unfinished| {
        let (mut turn, mut assembler) = unfinished?;
        while let Some(message) = turn.0.next().await {
            let deltas = assembler.feed(&message);
            let text: String =
                deltas.iter().filter(|delta| delta.is_main_thread()).filter_map(Delta::text).collect();
            if !text.is_empty() {
                // JSON, because a line break would end the event.
                return Some((Event::default().event("text").json_data(text), Some((turn, assembler))));
            }
        }
        let outcome = match turn.0.outcome().await.and_then(Outcome::into_result) {
            Ok(result) => json!({ "status": 200, "text": result.result }),
            Err(error) => json!(Failure::from(error)),
        };
        Some((Event::default().event("outcome").json_data(outcome), None))
    })
}

/// An error as the client sees it. The log has the rest, which is not for users: the CLI's stderr, and what to do.
#[derive(Debug, Serialize)]
pub struct Failure {
    pub status: u16,
    pub error: String,
    /// Seconds; set if the same request may succeed later.
    pub retry_after: Option<u64>,
}

impl From<greenroom::Error> for Failure {
    fn from(error: greenroom::Error) -> Self {
        tracing::warn!(?error, "a prompt has failed");
        let status = match error.kind() {
            ErrorKind::AtCapacity | ErrorKind::RateLimited => 429,
            ErrorKind::BudgetSpent => 402,
            ErrorKind::ContextFull => 413,
            ErrorKind::Stopped | ErrorKind::SessionFailed => 503,
            _ if error.is_retryable() => 503,
            // The service, or its machine, has to be changed.
            _ if error.is_caller() => 500,
            _ => 502,
        };
        let wait = error.retry_after().unwrap_or(Duration::from_secs(5));
        // Rounded up, so that a client is not too early.
        let retry_after = error.is_retryable().then(|| wait.as_secs_f64().ceil() as u64);
        Self { status, error: format!("{:?}", error.kind()), retry_after }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        tracing::error!(%error, "a user's folder cannot be created");
        Self { status: 500, error: "Io".into(), retry_after: None }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry_after = self.retry_after.map(|seconds| [(RETRY_AFTER, seconds.to_string())]);
        (status, retry_after, Json(self)).into_response()
    }
}
