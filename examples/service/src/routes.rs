//! HTTP requests as prompts, turns as streams of events, errors as status codes.
//!
//! | request | answer |
//! |---|---|
//! | `POST /users/NAME/prompts`, the prompt as the body | a stream of events: `text` (a string), `tool` (name and input), and at last `outcome` (status, and the whole text or the error) |
//! | `GET /status` | the state of each live session, by the user's name |
//! | `GET /health` | 200, or 503 when the service stops |
//!
//! The name in the path stands for your authentication. In your service take the user from the login, and keep users away
//! from `/status`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header::RETRY_AFTER};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream::{Stream, poll_fn};
use greenroom::message::{ContentBlock, Delta, DeltaKind};
use greenroom::{ErrorKind, Outcome, Turn};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::users::{User, Users};

type EventResult = Result<Event, axum::Error>;

pub fn router(users: Arc<Users>) -> Router {
    Router::new()
        .route("/users/{name}/prompts", post(prompt))
        .route("/status", get(async |State(users): State<Arc<Users>>| Json(users.status().await)))
        .route("/health", get(health))
        .with_state(users)
}

async fn health(State(users): State<Arc<Users>>) -> Result<&'static str, Failure> {
    if users.stopping.is_cancelled() { Err(Failure::stopping()) } else { Ok("ok") }
}

async fn prompt(
    State(users): State<Arc<Users>>,
    Path(name): Path<String>,
    prompt: String,
) -> Result<Sse<impl Stream<Item = EventResult>>, Failure> {
    if prompt.trim().is_empty() {
        return Err(Failure::new(StatusCode::BAD_REQUEST, "the body has no prompt", None));
    }
    let user = User::named(name)?;
    let ((events, mut received), (accept, accepted)) = (mpsc::channel(16), oneshot::channel());
    // A task, because a client that goes away drops this handler. The sends below fail then, and the turn is cancelled.
    users.streams.clone().spawn(async move {
        match users.prompt(user, prompt).await {
            Ok(turn) => {
                accept.send(Ok(())).ok();
                tell(turn, events).await;
            }
            Err(failure) => drop(accept.send(Err(failure))),
        }
    });
    accepted.await.unwrap_or_else(|_| Err(Failure::stopping()))?;
    Ok(Sse::new(poll_fn(move |cx| received.poll_recv(cx))).keep_alive(KeepAlive::default()))
}

/// Sends the events of a turn. When the client goes away, the turn is cancelled: it costs money, nobody reads the
/// answer, and the user's next prompt would wait for it.
async fn tell(mut turn: Turn, events: mpsc::Sender<EventResult>) {
    let telling = async {
        let mut deltas = turn.deltas();
        while let Some(delta) = deltas.next().await {
            if let Some(event) = event(&delta) {
                // Fails when the client has gone, and then the other branch below ends this one.
                events.send(event).await.ok();
            }
        }
        turn.outcome().await.and_then(Outcome::into_result)
    };
    let outcome = tokio::select! {
        outcome = telling => outcome,
        () = events.closed() => return turn.cancel().await,
    };
    let body = match outcome {
        Ok(result) => json!({ "status": 200, "text": result.result }),
        Err(error) => Failure::from(error).body(),
    };
    events.send(Event::default().event("outcome").json_data(body)).await.ok();
}

/// The event for a piece of the answer: text as the model writes it, and tool calls. The work of subagents is left out.
fn event(delta: &Delta) -> Option<EventResult> {
    let (name, data) = match &delta.kind {
        _ if !delta.is_main_thread() => return None,
        DeltaKind::Text { text, .. } => ("text", json!(text)),
        DeltaKind::BlockComplete { block: ContentBlock::ToolUse { name, input, .. }, .. } => {
            ("tool", json!({ "name": name, "input": input }))
        }
        _ => return None,
    };
    // JSON, because a line break would end the event.
    Some(Event::default().event(name).json_data(data))
}

/// An error as the client sees it. The log has the rest, which is not for users: the CLI's stderr, and what to do.
#[derive(Debug)]
pub struct Failure {
    status: StatusCode,
    error: String,
    /// Seconds; set if the same request may succeed later.
    retry_after: Option<u64>,
}

impl Failure {
    pub fn new(status: StatusCode, error: impl Into<String>, retry_after: Option<u64>) -> Self {
        Self { status, error: error.into(), retry_after }
    }

    pub fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Stopping", Some(5))
    }

    fn body(&self) -> Value {
        json!({ "status": self.status.as_u16(), "error": self.error, "retry_after": self.retry_after })
    }
}

impl From<greenroom::Error> for Failure {
    fn from(error: greenroom::Error) -> Self {
        tracing::warn!(?error, "a prompt has failed");
        let status = match error.kind() {
            ErrorKind::AtCapacity | ErrorKind::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::BudgetSpent => StatusCode::PAYMENT_REQUIRED,
            ErrorKind::ContextFull => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::Timeout | ErrorKind::StartTimeout => StatusCode::GATEWAY_TIMEOUT,
            ErrorKind::Stopped | ErrorKind::SessionFailed => StatusCode::SERVICE_UNAVAILABLE,
            _ if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
            // The service, or its machine, has to be changed.
            _ if error.is_caller() => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_GATEWAY,
        };
        let wait = error.retry_after().unwrap_or(Duration::from_secs(5));
        // Rounded up, so that a client is not too early.
        let retry_after = error.is_retryable().then(|| wait.as_secs_f64().ceil() as u64);
        Self::new(status, format!("{:?}", error.kind()), retry_after)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        tracing::error!(%error, "a user's folder cannot be created");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Io", None)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
