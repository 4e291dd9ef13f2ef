//! Health for load balancers and supervisors.

use std::time::Duration;

use axum::Router;
use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::routing::get;
use tokio::time::timeout;

use crate::error::FleetError;
use crate::face::fleet::Fleet;
use crate::face::snapshot::SnapshotQuery;

/// The time for the answer of the backend.
const ANSWER: Duration = Duration::from_secs(2);

/// The routes `/health/live` and `/health/ready`.
///
/// | request | 200 | 503 |
/// |---|---|---|
/// | `GET /health/live` | the process answers | never: restart a process that gives no answer |
/// | `GET /health/ready` | send requests here | `draining`; `degraded` while causes keep the sessions of every profile from starting, until a lone node needs a prompt to try again; `backend` while the backend does not answer within 2 s |
///
/// Add them outside of the login: they name no tenant. The body is one word.
pub fn health<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Fleet: FromRef<S>,
{
    Router::new().route("/health/live", get("live")).route("/health/ready", get(ready))
}

async fn ready(State(fleet): State<Fleet>) -> (StatusCode, &'static str) {
    let operator = fleet.operator();
    let Ok(snapshot) = timeout(ANSWER, operator.snapshot(SnapshotQuery::active().limit(0))).await else {
        return (StatusCode::SERVICE_UNAVAILABLE, "backend");
    };
    match snapshot {
        Ok(snapshot) if snapshot.draining => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        // A rejected key of one tenant does not make the node unready.
        Ok(_) if fleet.is_held_back() => (StatusCode::SERVICE_UNAVAILABLE, "degraded"),
        Ok(_) => (StatusCode::OK, "ready"),
        Err(FleetError::Ended) => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        Err(error) => {
            tracing::warn!(%error, "the fleet is not ready");
            (StatusCode::SERVICE_UNAVAILABLE, "backend")
        }
    }
}
