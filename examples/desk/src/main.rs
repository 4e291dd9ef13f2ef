//! A support desk with an agent for each customer.
//!
//! ```text
//! cargo run -p desk                   # with scripted CLIs: needs only Rust
//! cargo run -p desk -- --cli claude   # the real CLI and model, with ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN
//! ```
//!
//! It prints the people, and links for those that are made up. `--listen ADDRESS` (default: 127.0.0.1:8080), `--data FOLDER` for the fleet's file and the
//! customers' folders (default: a temporary folder, which is forgotten), `--script FILE` for another script of the scripted CLIs, as
//! JSON. The variable `DESK_LOGINS` has a `SECRET:PERSON@TENANT` for each person, separated by white space (default: one person of each
//! of two tenants). With `DESK_DATABASE=postgres://…` and `--host NAME` prompts and conversations are in a database, which services on
//! other hosts share.

mod arguments;

use std::error::Error;
use std::pin::pin;
use std::time::Duration;

use desk::{desk, router};
use greenroom_fleet::FleetEnd;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> Result<(), Box<dyn Error>> {
    // Before anything else: this program is also the guardian, which ends the CLIs that a killed service leaves.
    greenroom::guardian::init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(serve());
    // A tool that blocks a thread does not hold up the exit.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

async fn serve() -> Result<(), Box<dyn Error>> {
    // First, so that a signal ends the start, too.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut stop = pin!(async {
        tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} }
        tracing::info!("stopping");
    });
    // The service outlives the reader of its log: a line that cannot be written is dropped, without a line about it.
    tracing_subscriber::fmt().log_internal_errors(false).init();
    let arguments = arguments::read(std::env::args().skip(1))?;
    let logins = arguments::logins()?;
    // Before the fleet, so that no session starts if the port is taken.
    let address = arguments.get("--listen").unwrap_or("127.0.0.1:8080");
    let listener = tokio::net::TcpListener::bind(address).await?;
    let desk = desk(20, Duration::from_secs(600), arguments.connect()?);
    let fleet = tokio::select! { () = &mut stop => return Ok(()), fleet = arguments.start(desk) => fleet? };
    let address = listener.local_addr()?;
    tracing::info!("listening on http://{address}");
    let are_made_up = std::env::var_os("DESK_LOGINS").is_none();
    for (secret, login) in logins.iter() {
        let link = if are_made_up { format!(": http://{address}/login/{secret}") } else { String::new() };
        tracing::info!("{} of {}{link}", login.person.as_deref().unwrap_or_default(), login.tenant);
    }
    let ended = fleet.clone();
    let server = axum::serve(listener, router(fleet.clone(), logins));
    let server = server.with_graceful_shutdown(async move { _ = ended.wait().await });
    let mut serving = tokio::task::JoinSet::new();
    serving.spawn(server.into_future());

    tokio::select! {
        // Meanwhile clients read their turns, new prompts are refused, and `/health/ready` says so.
        () = stop => fleet.drain(Duration::from_secs(20)).await,
        _ = fleet.wait() => {}
    }
    // A client that does not read its stream gets a second more.
    tokio::time::timeout(Duration::from_secs(1), serving.join_next()).await.ok();
    // An error is exit code 1. A drain, also one that an operator asked for, is none.
    (fleet.wait().await == FleetEnd::Drained).then_some(()).ok_or("the fleet has ended by itself".into())
}
