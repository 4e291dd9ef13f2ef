//! A web service with an agent session for each user.
//!
//! ```text
//! cargo run -p service                          # with a scripted model: needs only Rust
//! cargo run -p service -- --cli claude          # the real CLI with a scripted model
//! cargo run -p service -- --cli claude --live   # the real model, with ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN
//!
//! curl -N localhost:8080/users/ada/prompts -d 'Where is my lamp?'
//! ```
//!
//! `--listen ADDRESS` (default: 127.0.0.1:8080), `--data FOLDER` for the users' folders (default: a temporary folder,
//! which forgets the conversations), `--script FILE` for another script of the scripted model, as JSON.

mod arguments;

use std::time::Duration;

use service::{Users, router};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // First, so that no signal during the start is lost.
    let mut terminate = signal(SignalKind::terminate())?;
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).init();
    let arguments = arguments::read(std::env::args().skip(1))?;
    let users = Users::new(arguments.data()?, 20, Duration::from_secs(600), arguments.connect().await?);
    let listener = tokio::net::TcpListener::bind(&arguments.listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let server = axum::serve(listener, router(users.clone()));
    let server = server.with_graceful_shutdown(users.stopping.clone().cancelled_owned());
    let serving = users.tasks.spawn(server.into_future());

    terminate.recv().await;
    println!("stopping");
    // At once: no more connections, and the end of all sessions. Their turns end, and so do the streams of the turns. A
    // client that does not read its stream gets a second more.
    users.stop().await;
    tokio::time::timeout(Duration::from_secs(1), serving).await.ok();
    Ok(())
}
