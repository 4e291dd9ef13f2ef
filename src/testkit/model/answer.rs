//! HTTP around it: which request is answered how.

use std::convert::Infallible;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::sleep;
use tracing::debug;

use super::super::script::ModelError;
use super::request::ModelRequest;
use super::stream::{Events, Message};
use super::{MAX_REQUEST_BYTES, Shared};

pub(super) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The part of the API that is here.
pub(super) async fn answer(request: Request<Incoming>, shared: &Shared) -> Answer {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    match (&head.method, path) {
        (&Method::POST, "/v1/messages") => match read(body).await {
            Ok((body, _)) => messages(ModelRequest::new(&head.headers, body), shared).await,
            Err(answer) => answer,
        },
        (&Method::POST, "/v1/messages/count_tokens") => match read(body).await {
            Ok((_, bytes)) => json_answer(StatusCode::OK, &json!({"input_tokens": tokens(bytes)})),
            Err(answer) => answer,
        },
        (&Method::GET, "/v1/models") => {
            let model = model_info("claude-scripted");
            let id = &model["id"];
            json_answer(
                StatusCode::OK,
                &json!({"data": [model], "has_more": false, "first_id": id, "last_id": id}),
            )
        }
        (&Method::GET, path) if path.starts_with("/v1/models/") => {
            json_answer(StatusCode::OK, &model_info(path.trim_start_matches("/v1/models/")))
        }
        (method, path) => error_answer(
            StatusCode::NOT_FOUND,
            "not_found_error",
            &format!("the scripted model has no {method} {path}"),
        ),
    }
}

/// Answers a request for a message with what the script says.
async fn messages(request: ModelRequest, shared: &Shared) -> Answer {
    let (turn, number) = shared.take_turn(&request);
    debug!(number, agent = request.agent_id(), "the scripted model answers");
    if !turn.pause().is_zero() {
        sleep(turn.pause()).await;
    }
    if let Some(error) = turn.failure() {
        return failure(error);
    }
    let message = Message { turn: &turn, request: &request, id: format!("msg_script_{number}") };
    if request.is_streaming() {
        let events = Events { waiting: message.events().into(), gap: turn.gap(), pause: None };
        let mut answer = Response::new(events.boxed_unsync());
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        answer
    } else {
        json_answer(StatusCode::OK, &message.whole())
    }
}

/// Reads a JSON body; an error is the answer to give instead. Also says how many bytes it had.
async fn read(mut body: Incoming) -> Result<(Value, usize), Answer> {
    let mut bytes = Vec::new();
    let mut total = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| invalid_request(&format!("the body ended early: {error}")))?;
        let Some(data) = frame.data_ref() else { continue };
        total += data.len();
        // What is too much is read all the same and dropped: an answer in mid-request would be lost, because
        // closing a connection that has unread bytes resets it.
        if total <= MAX_REQUEST_BYTES {
            bytes.extend_from_slice(data);
        } else {
            bytes = Vec::new();
        }
    }
    if total > MAX_REQUEST_BYTES {
        let message =
            format!("{total} bytes are more than the {MAX_REQUEST_BYTES} that the scripted model takes");
        return Err(error_answer(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", &message));
    }
    match serde_json::from_slice(&bytes) {
        Ok(body) => Ok((body, total)),
        Err(error) => Err(invalid_request(&format!("the body is not JSON: {error}"))),
    }
}

fn model_info(id: &str) -> Value {
    json!({"type": "model", "id": id, "display_name": "Scripted model", "created_at": "2026-01-01T00:00:00Z"})
}

/// About as many tokens as `bytes` of JSON are, never none.
pub(super) fn tokens(bytes: usize) -> usize {
    bytes / 4 + 1
}

fn failure(error: &ModelError) -> Answer {
    let status = match StatusCode::from_u16(error.status) {
        Ok(status) if status.is_client_error() || status.is_server_error() => status,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut answer = error_answer(status, &error.kind, &error.message);
    if let Some(should_retry) = error.should_retry {
        let value = HeaderValue::from_static(if should_retry { "true" } else { "false" });
        answer.headers_mut().insert("x-should-retry", value);
    }
    answer
}

fn invalid_request(message: &str) -> Answer {
    error_answer(StatusCode::BAD_REQUEST, "invalid_request_error", message)
}

fn error_answer(status: StatusCode, kind: &str, message: &str) -> Answer {
    json_answer(status, &json!({"type": "error", "error": {"type": kind, "message": message}}))
}

fn json_answer(status: StatusCode, body: &Value) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body.to_string())).boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

// The message
