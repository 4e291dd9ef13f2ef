//! A service with an agent session for each user of each tenant: `service.rs` has the sessions, the login and the requests.

mod service;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::time::Duration;

use axum::Router;
use greenroom_fleet::backend::{LocalBackend, PostgresBackend, PostgresOptions};
use greenroom_fleet::{Fleet, FleetBuilder};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The time for running turns at SIGTERM. The platform gives ten seconds more: see `deploy/`.
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
    // Before the start, so that a signal during the start is not lost.
    let stop = stop_signal()?;
    tracing_subscriber::fmt::init();
    let logins = service::logins(&variable("API_KEYS")?)?;
    // Before the fleet, so that no session starts if the port is taken.
    let listener = TcpListener::bind(variable("LISTEN")?).await?;
    let fleet = open(service::sessions()).await?.start().await?;
    println!("listening on http://{}", listener.local_addr()?);
    let router = service::router(fleet.clone(), logins);
    run(fleet, listener, router, stop).await
}

/// Serves until `stop`, then drains the fleet. Fails if the fleet ends by itself.
async fn run(fleet: Fleet, listener: TcpListener, router: Router, stop: impl Future) -> Result<()> {
    let ended = fleet.clone();
    // Serves during the drain: clients read the ends of their turns, and `/health/ready` answers 503.
    let server =
        axum::serve(listener, router).with_graceful_shutdown(async move { _ = ended.wait().await });
    let mut serving = JoinSet::new();
    serving.spawn(server.into_future());
    tokio::select! {
        _ = stop => println!("stopping"),
        _ = fleet.wait() => return Err("the fleet has ended by itself: the log says why".into()),
    }
    fleet.drain(DRAIN).await;
    // A client that does not read its answer has one second more.
    let sent = timeout(Duration::from_secs(1), serving.join_next());
    sent.await.ok();
    Ok(())
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
    })
}

fn variable(name: &str) -> Result<String> {
    std::env::var(name).map_err(|error| format!("the environment variable {name}: {error}").into())
}
