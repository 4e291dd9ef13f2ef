//! A turn as server-sent events.

use std::future::ready;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response, Sse};
use futures_util::StreamExt;
use tokio::time::timeout;

use super::headers::LastEventId;
use super::problem::Problem;
use crate::error::FleetError;
use crate::face::turn::FleetTurn;
use crate::update::{Update, UpdateId};

/// The time for the answer of the backend, before the first event.
const ANSWER: Duration = Duration::from_secs(10);

/// Proxies such as nginx would hold events back.
const UNBUFFERED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// Streams a turn as server-sent events, from the event after the last one that the client has seen.
///
/// Each event is an [`Update`] as JSON, with its [name](Update::event_name) and its [id](Update::id). Events without an id are not sent
/// again. The event `outcome` is the last one: the page closes its `EventSource` then, and one that connects again nevertheless gets the
/// status 204, which makes the browser stop. A stream that ends without an outcome was cut off, by a deploy for instance, and a browser
/// connects again by itself. The event `heartbeat` keeps a silent connection open.
///
/// The stream has the inputs and the results of tools, so it is for staff. For end customers, filter
/// [`FleetTurn::updates`].
///
/// A client that goes away changes nothing: the turn goes on.
///
/// # Errors
/// 404 for a turn that is not known to its tenant or no longer kept, and 503 if the backend does not answer within 10 s.
pub async fn events(turn: FleetTurn, last: LastEventId) -> Result<Response, Problem> {
    // After the first event no status can be sent any more.
    timeout(ANSWER, turn.record()).await.map_err(|_| Problem::unavailable())??;
    if last.0 == Some(UpdateId::END) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let updates = turn.updates().after(last.0).into_stream();
    let events = updates.filter_map(|update| ready(event(update)));
    Ok(([UNBUFFERED], Sse::new(events)).into_response())
}

/// `None` for an error, which is the last item: the client connects again.
fn event(update: Result<Update, FleetError>) -> Option<Result<Event, axum::Error>> {
    let update = update.inspect_err(|error| tracing::warn!(%error, "a turn was not read to its end")).ok()?;
    let event = Event::default().event(update.event_name());
    let event = update.id().into_iter().fold(event, |event, id| event.id(id.to_string()));
    Some(event.json_data(update))
}
