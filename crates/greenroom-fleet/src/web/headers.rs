//! Headers of requests that a fleet understands.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::face::prompt::FleetPrompt;
use crate::update::UpdateId;

/// The id of the last event that the client has seen, from the header `Last-Event-ID`. A browser's `EventSource` sends it when it
/// connects again. An invalid id is ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastEventId(pub Option<UpdateId>);

impl<S: Sync> FromRequestParts<S> for LastEventId {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok())))
    }
}

/// The key of a prompt, from the header `Idempotency-Key`: a prompt that is sent again with its key is not asked again.
///
/// ```
/// use greenroom_fleet::FleetSession;
/// use greenroom_fleet::web::{IdempotencyKey, Problem};
///
/// async fn prompt(session: FleetSession, key: IdempotencyKey, text: String) -> Result<String, Problem> {
///     Ok(session.prompt(key.of(text)).await?.prompt_id().to_string())
/// }
/// # let _ = prompt;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdempotencyKey(pub Option<String>);

impl IdempotencyKey {
    /// A prompt with this key, or without one.
    pub fn of(self, prompt: impl Into<FleetPrompt>) -> FleetPrompt {
        self.0.into_iter().fold(prompt.into(), FleetPrompt::key)
    }
}

impl<S: Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        // The same text for the same bytes, which need not be UTF-8.
        let key = parts.headers.get("idempotency-key");
        Ok(Self(key.map(|key| key.as_bytes().escape_ascii().to_string())))
    }
}
