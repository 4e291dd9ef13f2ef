//! The error of a handler: a status, a code for programs and a text for customers.

use std::fmt;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::error::{BackendError, BackendErrorKind, FleetError, PromptError};
use crate::question::AnswerError;
use crate::request::Refused;

/// The time after which a request that found the fleet busy or cut off is worth another attempt.
const SOON: Duration = Duration::from_secs(1);

/// The error of a handler, as the client may see it. Each error of a fleet becomes one by `?`.
///
/// See the [table of statuses](crate::web#statuses). The response is `application/problem+json`, such as
/// `{"title":"Too Many Requests","status":429,"code":"queue_full","detail":"Too many messages wait. Try again in a moment."}`.
///
/// ```
/// use greenroom_fleet::FleetError;
/// use greenroom_fleet::web::Problem;
///
/// let problem = Problem::from(FleetError::Ended);
/// assert_eq!((problem.status().as_u16(), problem.code()), (503, "draining"));
/// assert!(problem.retry_after().is_some());
/// ```
#[derive(Clone, Debug)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: &'static str,
    retry_after: Option<Duration>,
    /// The error itself, for the log.
    cause: String,
}

impl Problem {
    fn new(status: StatusCode, code: &'static str, detail: &'static str) -> Self {
        Self { status, code, detail, retry_after: None, cause: detail.to_owned() }
    }

    fn retry(mut self, after: impl Into<Option<Duration>>) -> Self {
        self.retry_after = after.into();
        self
    }

    fn caused_by(mut self, cause: &dyn fmt::Display) -> Self {
        self.cause = cause.to_string();
        self
    }

    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The kind of the problem in snake case, for programs.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The time after which the same request may succeed, if it may.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    pub(super) fn no_login() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "no_login", "You are not logged in.")
            .caused_by(&"the request has no `Login` in its extensions: is the route inside of your login?")
    }

    fn denied() -> Self {
        Self::new(StatusCode::FORBIDDEN, "denied", "You may not do this.")
    }

    pub(super) fn cross_origin() -> Self {
        let detail = "A page of another site sent this request.";
        Self::new(StatusCode::FORBIDDEN, "cross_origin", detail)
    }

    pub(super) fn not_found() -> Self {
        let detail = "This does not exist, or is not kept any more.";
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    pub(super) fn invalid_name() -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_name", "This is no name of a session.")
    }

    pub(super) fn internal(cause: &dyn fmt::Display) -> Self {
        let detail = "Something is wrong on our side.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail).caused_by(cause)
    }

    pub(super) fn unavailable() -> Self {
        let detail = "The service is busy. Try again in a moment.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail).retry(SOON)
    }

    fn draining() -> Self {
        let detail = "The service is restarting. Try again in a moment.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "draining", detail).retry(SOON)
    }

    fn not_accepted(refused: &Refused) -> Self {
        let problem = |status, code, detail| Self::new(status, code, detail);
        let busy = |code, detail| problem(StatusCode::TOO_MANY_REQUESTS, code, detail);
        let conflict = |code, detail| problem(StatusCode::CONFLICT, code, detail);
        let problem = match refused {
            Refused::QueueFull { .. } | Refused::WaitingBytes { .. } => {
                busy("queue_full", "Too many messages wait. Try again in a moment.")
            }
            Refused::KeptBytes { .. } => busy("store_full", "Too much is kept. Try again later."),
            Refused::TooFast { .. } => {
                busy("too_fast", "Too many messages were sent. Try again in a moment.")
            }
            Refused::OverBudget { .. } => busy("over_budget", "The budget is spent. Try again later."),
            Refused::TooLong { .. } => {
                problem(StatusCode::PAYLOAD_TOO_LARGE, "too_long", "This message is too long.")
            }
            Refused::TooManyNames { .. } => conflict("too_many_sessions", "There are too many sessions."),
            Refused::KeyReused { .. } => {
                conflict("key_reused", "This key was used for another message before.")
            }
            Refused::Deleting => {
                conflict("deleting", "This session is being deleted. Try again in a moment.")
            }
            Refused::Quarantined { .. } => {
                let detail = "This session is paused until somebody has looked at it. Try again later.";
                problem(StatusCode::SERVICE_UNAVAILABLE, "quarantined", detail)
            }
            Refused::Moving => Self::unavailable(),
            Refused::Draining => Self::draining(),
            Refused::Invalid(_) => {
                problem(StatusCode::BAD_REQUEST, "invalid_prompt", "This message cannot be kept as it is.")
            }
            Refused::ProfileMismatch { .. } | Refused::UnknownProfile(_) => Self::internal(refused),
        };
        problem.retry(refused.retry_after())
    }
}

impl From<PromptError> for Problem {
    fn from(error: PromptError) -> Self {
        let problem = match &error {
            PromptError::Refused(refused) => Self::not_accepted(refused),
            PromptError::Denied(_) => Self::denied(),
            PromptError::Unknown { .. } => {
                let detail = "It is not known whether the message arrived. Send it again with its key.";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "unknown", detail).retry(SOON)
            }
        };
        problem.caused_by(&error)
    }
}

impl From<FleetError> for Problem {
    fn from(error: FleetError) -> Self {
        let problem = match &error {
            FleetError::Denied(_) => Self::denied(),
            FleetError::Name(_) => Self::invalid_name(),
            FleetError::NotFound { .. } => Self::not_found(),
            FleetError::State(_) => {
                let detail = "This is not possible at the moment.";
                Self::new(StatusCode::CONFLICT, "conflict", detail)
            }
            FleetError::Ended => Self::draining(),
            FleetError::Elsewhere { .. } | FleetError::OwnerSilent { .. } | FleetError::OwnerBusy { .. } => {
                Self::unavailable()
            }
            FleetError::OutcomeUnknown { .. } => {
                let detail = "It is not known whether this was done. Look before you send it again.";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "outcome_unknown", detail)
            }
            FleetError::Backend(backend) => Self::of_backend(backend),
            FleetError::Invalid(_)
            | FleetError::OwnerFailed { .. }
            | FleetError::Files(_)
            | FleetError::Session(_) => Self::internal(&error),
        };
        problem.caused_by(&error)
    }
}

impl From<AnswerError> for Problem {
    fn from(error: AnswerError) -> Self {
        let problem = match &error {
            AnswerError::Denied(_) => Self::denied(),
            AnswerError::Misfit(_) => {
                let detail = "This answer does not fit the question, which stays open.";
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "misfit", detail)
            }
            AnswerError::TooLate { .. } => {
                Self::new(StatusCode::CONFLICT, "too_late", "The question was decided before.")
            }
            AnswerError::Gone(_) => Self::not_found(),
            AnswerError::Unknown { .. } => Self::unavailable(),
            AnswerError::Backend(backend) => Self::of_backend(backend),
        };
        problem.caused_by(&error)
    }
}

impl Problem {
    fn of_backend(error: &BackendError) -> Self {
        match error.kind() {
            BackendErrorKind::Unavailable => Self::unavailable(),
            BackendErrorKind::Invalid => {
                Self::new(StatusCode::BAD_REQUEST, "invalid", "The request cannot be carried out as it is.")
            }
            _ => Self::internal(error),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.detail)
    }
}

impl std::error::Error for Problem {}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, code, cause) = (self.status, self.code, &self.cause);
        if status.is_server_error() {
            tracing::warn!(status = status.as_u16(), code, cause, "a request failed");
        } else {
            tracing::debug!(status = status.as_u16(), code, cause, "a request was refused");
        }
        let title = status.canonical_reason();
        let body = json!({ "title": title, "status": status.as_u16(), "code": code, "detail": self.detail });
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"))];
        // A whole number of seconds, and no attempt too early.
        let after = self.retry_after.map(|after| after.as_secs_f64().ceil());
        let after = after.map(|seconds| [(header::RETRY_AFTER, seconds.to_string())]);
        (status, kind, after, body.to_string()).into_response()
    }
}
