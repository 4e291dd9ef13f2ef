//! A service with an agent session for each customer of each tenant: `service.rs` has the sessions, the login and the requests.

mod service;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use greenroom_fleet::backend::{LocalBackend, PostgresBackend, PostgresOptions};
use greenroom_fleet::{Fleet, FleetBuilder, FleetEnd};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The time for running turns at SIGTERM. The process ends at most ten seconds later. `deploy/` gives it 90 seconds in all.
const DRAIN: Duration = Duration::from_secs(60);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    // First: this program is also the guardian, which ends the CLIs of a service that is killed.
    greenroom::guardian::init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(serve());
    // A tool that blocks a thread does not hold up the exit.
    runtime.shutdown_timeout(Duration::from_secs(1));
    // An error is exit code 1, so the platform starts the service again.
    ended
}

async fn serve() -> Result<()> {
    // Before the start, so that a signal ends it.
    let mut stop = pin!(stop_signal()?);
    // The service outlives the reader of its log: a line that cannot be written is dropped, without a line about it.
    tracing_subscriber::fmt().log_internal_errors(false).init();
    let logins = service::logins(&variable("API_KEYS")?)?;
    // Before the fleet, so that no session starts if the port is taken.
    let listener = TcpListener::bind(variable("LISTEN")?).await?;
    let fleet = async { Ok(open(service::sessions()).await?.start().await?) };
    let fleet: Result<Fleet> = tokio::select! {
        _ = &mut stop => return Ok(()),
        fleet = fleet => fleet,
    };
    let fleet = fleet?;
    tracing::info!("listening on http://{}", listener.local_addr()?);
    let router = service::router(fleet.clone(), logins);
    run(fleet, listener, router, stop).await
}

/// Serves until `stop`, then drains the fleet. Serves until the end of the fleet if that comes first, and fails if no operator
/// asked for it.
async fn run(fleet: Fleet, listener: TcpListener, router: Router, stop: impl Future) -> Result<()> {
    let ended = fleet.clone();
    // Serves during the drain: clients read the ends of their turns, and `/health/ready` answers 503.
    let server =
        axum::serve(listener, router).with_graceful_shutdown(async move { _ = ended.wait().await });
    let mut serving = JoinSet::new();
    serving.spawn(server.into_future());
    tokio::select! {
        _ = stop => fleet.drain(DRAIN).await,
        _ = fleet.wait() => {}
    }
    // A client that does not read its answer has one second more.
    let sent = timeout(Duration::from_secs(1), serving.join_next());
    sent.await.ok();
    match fleet.wait().await {
        FleetEnd::Drained => Ok(()),
        _ => Err("the fleet has ended by itself: the log says why".into()),
    }
}

/// Keeps the fleet in PostgreSQL if `DATABASE_URL` is set, and else in a file. The files of the sessions are in `DATA_DIR`.
async fn open(sessions: FleetBuilder) -> Result<FleetBuilder> {
    let folder = std::path::absolute(variable("DATA_DIR")?)?;
    std::fs::create_dir_all(&folder)?;
    if std::env::var_os("DATABASE_URL").is_none() {
        return Ok(sessions.backend(LocalBackend::open(folder.join("fleet.redb")).await?));
    }
    let backend = PostgresBackend::connect(PostgresOptions::new(variable("DATABASE_URL")?)).await?;
    // The host keeps its name over restarts, and no other machine or container has it.
    let sessions = sessions.backend(backend).host(variable("FLEET_HOST")?);
    Ok(sessions.folder(folder.join("sessions")))
}

/// Waits for SIGTERM or Ctrl-C. Catches both from the call on.
fn stop_signal() -> Result<impl Future> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} }
        tracing::info!("stopping");
    })
}

fn variable(name: &str) -> Result<String> {
    // The error does not show the value, which may be a secret.
    std::env::var(name).map_err(|_| format!("`{name}` is not set, or is not UTF-8").into())
}
