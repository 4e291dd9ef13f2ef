//! A support desk with an agent for each customer.
//!
//! ```text
//! cargo run -p desk                   # with scripted CLIs: needs only Rust
//! cargo run -p desk -- --cli claude   # the real CLI and model, with ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN
//! ```
//!
//! It prints a link for each person. `--listen ADDRESS` (default: 127.0.0.1:8080), `--data FOLDER` for the fleet's file and the
//! customers' folders (default: a temporary folder, which is forgotten), `--script FILE` for another script of the scripted CLIs, as
//! JSON. The variable `DESK_LOGINS` has a `SECRET:PERSON@TENANT` for each person, separated by white space (default: one person of each
//! of two tenants). With `DESK_DATABASE=postgres://…` and `--host NAME` prompts and conversations are in a database, which services on
//! other hosts share.

mod arguments;

use std::error::Error;
use std::time::Duration;

use desk::{desk, router};
use tokio::signal::unix::{SignalKind, signal};

fn main() -> Result<(), Box<dyn Error>> {
    // Before anything else: this program is also the guardian, which ends the CLIs that a killed service leaves.
    greenroom::guardian::init();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve())
}

async fn serve() -> Result<(), Box<dyn Error>> {
    // First, so that no signal during the start is lost.
    let mut terminate = signal(SignalKind::terminate())?;
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).init();
    let arguments = arguments::read(std::env::args().skip(1))?;
    let logins = arguments::logins()?;
    let customers = desk(20, Duration::from_secs(600), arguments.connect()?);
    let fleet = arguments.open(customers).await?.start().await?;
    let listener =
        tokio::net::TcpListener::bind(arguments.get("--listen").unwrap_or("127.0.0.1:8080")).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    for (secret, login) in logins.iter() {
        let person = login.person.as_deref().unwrap_or("somebody");
        println!("{person} of {}: http://{address}/login/{secret}", login.tenant);
    }
    let ended = fleet.clone();
    let server = axum::serve(listener, router(fleet.clone(), logins));
    let server = server.with_graceful_shutdown(async move { _ = ended.wait().await });
    let mut serving = tokio::task::JoinSet::new();
    serving.spawn(server.into_future());

    tokio::select! {
        _ = terminate.recv() => println!("stopping"),
        _ = fleet.wait() => return Err("the fleet has ended by itself: see the log, and start the service again".into()),
    }
    // Meanwhile clients read their turns, new prompts are refused, and `/health/ready` says so.
    fleet.drain(Duration::from_secs(20)).await;
    // A client that does not read its stream gets a second more.
    tokio::time::timeout(Duration::from_secs(1), serving.join_next()).await.ok();
    Ok(())
}
