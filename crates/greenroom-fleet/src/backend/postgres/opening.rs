//! The first connection: tried again while the server may come, with the cause soon if it does not.
//!
//! ```text
//!            ┌──────────── Again::Soon, within a second ───────────────┐
//!            │ ┌─────────── Again::Patiently, within the limit ──────┐ │
//!            ▼ ▼                                                     │ │
//!  reach: does a PostgreSQL listen? ──► connect: does PostgreSQL take the user and the database? ──► a connection
//!            └───────────── Again::Never, or too late: the cause ──────┘
//! ```

use std::time::{Duration, Instant};

use backon::{ExponentialBuilder, Retryable};
use sqlx::PgConnection;

use super::connection::Connections;
use super::error::{self, Again};
use crate::error::{BackendError, BackendErrorKind};
use crate::registry::Result;

/// The time for which a server is tried again that nobody has heard of, such as one that is being restarted.
const SOON: Duration = Duration::from_secs(1);

/// The time after which such a server is missing: an attempt that begins within the time above ends within this one.
const REACHED: Duration = Duration::from_millis(1800);

/// A first connection. A server that refuses, or that is not there, is told with its cause within two seconds. A server that says that it
/// starts, ends or is full is tried again until the limit.
pub(super) async fn first(connections: &Connections, limit: Duration) -> Result<PgConnection> {
    let pauses = ExponentialBuilder::default()
        .with_factor(1.0)
        .with_min_delay(Duration::from_millis(100))
        .with_jitter()
        .without_max_times();
    let begun = Instant::now();
    let attempt = || async {
        let time = REACHED.saturating_sub(begun.elapsed().min(SOON)).min(limit);
        connections.address().reach(time).await.map_err(|error| {
            let again = if error.is_unavailable() { Again::Soon } else { Again::Never };
            (again, error)
        })?;
        let connected = connections.connect().await;
        connected.map_err(|error| (error::again(&error), error::of_connection(error, connections.address())))
    };
    let (mut cause, mut is_there) = (None, false);
    let attempts = attempt
        .retry(pauses)
        .when(|(again, _)| {
            is_there |= *again == Again::Patiently;
            *again != Again::Never && begun.elapsed() < if is_there { limit } else { SOON.min(limit) }
        })
        .notify(|(_, error), _| cause = Some(error.clone()));
    let connected = tokio::time::timeout(limit, attempts).await;
    connected.unwrap_or_else(|_| {
        let silent = || {
            let text = format!(
                "the server at {} takes connections and does not answer within {limit:?}: it is overloaded or stopped, or it is no \
                 PostgreSQL server",
                connections.address()
            );
            (Again::Never, BackendError::new(BackendErrorKind::Unavailable, text))
        };
        Err(cause.map_or_else(silent, |cause| (Again::Never, cause)))
    })
    .map_err(|(_, error)| error)
}

#[cfg(test)]
mod tests;
