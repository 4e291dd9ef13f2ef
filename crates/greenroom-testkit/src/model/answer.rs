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

use super::request::ModelRequest;
use super::stream::{ModelMessage, paced, tokens};
use super::{MAX_REQUEST_BYTES, Shared};
use crate::cli::model_turn::ModelError;

pub(super) type HttpAnswer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The part of the API that is here.
pub(super) async fn answer(request: Request<Incoming>, shared: &Shared) -> HttpAnswer {
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
async fn messages(request: ModelRequest, shared: &Shared) -> HttpAnswer {
    let (turn, number) = shared.take_turn(&request);
    debug!(number, agent = request.agent_id(), "the scripted model answers");
    if !turn.pause_before.is_zero() {
        sleep(turn.pause_before).await;
    }
    if let Some(error) = &turn.error {
        return failure(error);
    }
    let message = ModelMessage { turn: &turn, request: &request, id: format!("msg_script_{number}") };
    if request.is_streaming() {
        let events = paced(message.events(), turn.pause_between);
        let mut answer = Response::new(events.boxed_unsync());
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        answer
    } else {
        json_answer(StatusCode::OK, &message.whole())
    }
}

/// Reads a JSON body; an error is the answer to give instead. Also says how many bytes it had.
async fn read(mut body: Incoming) -> Result<(Value, usize), HttpAnswer> {
    let mut bytes = Vec::new();
    let mut total = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| invalid_request(&format!("the body ended early: {error}")))?;
        let Some(data) = frame.data_ref() else { continue };
        total += data.len();
        // Read and drop the rest of a request that is too large: closing a connection with unread bytes resets it, and
        // the answer would be lost.
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

fn failure(error: &ModelError) -> HttpAnswer {
    let status = match StatusCode::from_u16(error.status) {
        Ok(status) if status.is_client_error() || status.is_server_error() => status,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut answer = error_answer(status, &error.kind, &error.message);
    if let Some(should_retry) = error.should_retry {
        let value = HeaderValue::from_static(if should_retry { "true" } else { "false" });
        answer.headers_mut().insert("x-should-retry", value);
    }
    if let Some(resets_at) = error.resets_at {
        let headers = answer.headers_mut();
        headers.insert("anthropic-ratelimit-unified-reset", HeaderValue::from(resets_at));
        headers.insert("anthropic-ratelimit-unified-status", HeaderValue::from_static("rejected"));
        let claim = HeaderValue::from_static("five_hour");
        headers.insert("anthropic-ratelimit-unified-representative-claim", claim);
    }
    answer
}

fn invalid_request(message: &str) -> HttpAnswer {
    error_answer(StatusCode::BAD_REQUEST, "invalid_request_error", message)
}

fn error_answer(status: StatusCode, kind: &str, message: &str) -> HttpAnswer {
    json_answer(status, &json!({"type": "error", "error": {"type": kind, "message": message}}))
}

fn json_answer(status: StatusCode, body: &Value) -> HttpAnswer {
    let mut answer = Response::new(Full::new(Bytes::from(body.to_string())).boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
