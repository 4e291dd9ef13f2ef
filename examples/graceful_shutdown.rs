//! Stop a service in order while calls are in flight.
//!
//! ```text
//! cargo run --example graceful_shutdown        # needs nothing but Rust
//! ```
//!
//! At SIGTERM the service takes no new prompts, lets the running turn finish within `timeouts.drain`, and then ends the
//! CLI. In this lesson the service sends the signal to itself.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what happens")]

use std::sync::Arc;
use std::time::Duration;

use greenroom::{NoArgs, Outcome, Session, ToolContext, ToolDef, ToolServer};
use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    // Comes first, so that a signal during the start is not lost.
    let mut terminate = signal(SignalKind::terminate())?;

    let begun = Arc::new(Notify::new());
    let state = begun.clone();
    let orders = ToolServer::new("orders", "1.0.0")
        .add_tool(
            ToolDef::new("ship", "Ship an order", |_: NoArgs, cx: ToolContext<Arc<Notify>>| async move {
                cx.state().notify_one();
                // Half of an order must not be shipped: the time to drain lets the call finish.
                tokio::time::sleep(Duration::from_millis(300)).await;
                println!("orders : shipped");
                "shipped"
            })
            .read_only_hint(true),
        )
        .state(move || state.clone());

    let cli = ScriptedCli::play(
        Script::new()
            .turn(ModelTurn::new().call("mcp__orders__ship", json!({})).call("mcp__orders__ship", json!({})))
            .turn(ModelTurn::new().text("Both orders are on their way.")),
    );
    let session = Session::builder()
        .mcp_server(orders)
        .allow_server_tools("orders")
        .transport(cli.transport())
        .configure(|options| options.timeouts.drain = Duration::from_secs(5))
        .start()
        .await?;

    let mut in_flight = session.prompt("Ship both orders.").await?;
    let mut waiting = session.prompt("And a third one.").await?;
    begun.notified().await;
    println!("someone: kill -TERM {}", std::process::id());
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM)?;

    // The service's main loop: serves until the signal comes.
    terminate.recv().await;
    let snapshot = session.snapshot().await?;
    println!("service: told to end, with {} calls in flight", snapshot.calls().count());
    let began = tokio::time::Instant::now();
    session.stop().await?;
    println!(
        "service: ended in {} ms; it may have taken {:?}",
        began.elapsed().as_millis(),
        session.shutdown_bound()
    );

    println!("turn   : {}", in_flight.outcome().await?.text().unwrap_or_default());
    match waiting.outcome().await? {
        // The next start of the service resumes this conversation.
        Outcome::NotStarted { prompt } => {
            println!("turn   : never sent, here it is back: {:?}", prompt.content)
        }
        other => println!("turn   : {other:?}"),
    }
    match session.prompt("One more?").await {
        Err(error) => println!("prompt : {error}"),
        Ok(_) => println!("prompt : accepted, which it should not be"),
    }
    Ok(())
}
