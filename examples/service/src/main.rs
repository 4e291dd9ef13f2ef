//! A web service with an agent session for each user.
//!
//! ```text
//! cargo run -p service                          # with a scripted model: needs only Rust
//! cargo run -p service -- --cli claude          # the real CLI with a scripted model
//! cargo run -p service -- --cli claude --live   # the real model, with ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN
//!
//! curl -Ni localhost:8080/users/ada/prompts -d 'Where is my lamp?'
//! ```
//!
//! `--listen ADDRESS` (default: 127.0.0.1:8080), `--data FOLDER` for the fleet's file and the users' folders
//! (default: a temporary folder, which is forgotten), `--script FILE` for another script of the scripted model, as JSON.

mod arguments;

use std::time::Duration;

use greenroom_fleet::backend::LocalBackend;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // First, so that no signal during the start is lost.
    let mut terminate = signal(SignalKind::terminate())?;
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).init();
    let arguments = arguments::read(std::env::args().skip(1))?;
    let backend = LocalBackend::open(arguments.data()?.join("fleet.redb")).await?;
    let users = service::users(20, Duration::from_secs(600), arguments.connect().await?);
    let fleet = users.backend(backend).start().await?;
    let listener = tokio::net::TcpListener::bind(&arguments.listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let ended = fleet.clone();
    let server = axum::serve(listener, service::router(fleet.clone()));
    let server = server.with_graceful_shutdown(async move { ended.wait().await });
    let mut serving = tokio::task::JoinSet::new();
    serving.spawn(server.into_future());

    tokio::select! {
        _ = terminate.recv() => println!("stopping"),
        () = fleet.wait() => return Err("the fleet has ended by itself: see the log, and start the service again".into()),
    }
    // Meanwhile clients read their turns, new prompts are refused, and `/health` says so.
    fleet.drain(Duration::from_secs(20)).await;
    // A client that does not read its stream gets a second more.
    tokio::time::timeout(Duration::from_secs(1), serving.join_next()).await.ok();
    Ok(())
}
