//! A CLI that dies and comes back, and a CLI that dies too often.
//!
//! ```text
//! cargo run --example crash_loop        # needs nothing but Rust
//! ```
//!
//! The first session's CLI is killed three times in the middle of a tool call. Each time the turn ends as
//! interrupted, the session starts another CLI with `--resume`, and the next prompt is answered in the same
//! conversation. The second session may restart its CLI twice in a minute. The third death ends this session, and its
//! error says why.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what happens")]

use std::sync::Arc;
use std::time::Duration;

use greenroom::options::Restart;
use greenroom::transport::Exit;
use greenroom::{Event, NoArgs, Outcome, Session, ToolContext, ToolServer};
use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
use serde_json::json;
use tokio::sync::Notify;

type Failure = Box<dyn std::error::Error>;

/// A tool that works until its call is cancelled. The tool says when it has begun.
fn worker(begun: Arc<Notify>) -> ToolServer {
    ToolServer::new("worker", "1.0.0")
        .tool("work", "Work for a long time", |_: NoArgs, cx: ToolContext<Arc<Notify>>| async move {
            cx.state().notify_one();
            // The death of the CLI reaches the handler as a cancellation.
            cx.cancelled().await;
            println!("  worker : nobody waits for this call any more; cleaning up");
        })
        .state(move || begun.clone())
}

async fn start(cli: &ScriptedCli, begun: &Arc<Notify>, restart: Restart) -> greenroom::Result<Session> {
    Session::builder()
        .mcp_server(worker(begun.clone()))
        .allow_server_tools("worker")
        .transport(cli.transport())
        .configure(|options| options.restarts.cli = restart)
        .start()
        .await
}

/// Sends a prompt, and kills the CLI as soon as the tool works.
async fn crash(session: &Session, cli: &ScriptedCli, begun: &Notify) -> Result<Outcome, Failure> {
    let mut turn = session.prompt("Work, please.").await?;
    begun.notified().await;
    println!("  someone: kill -9");
    cli.crash(Exit::Signal(9));
    Ok(turn.outcome().await?)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let begun = Arc::new(Notify::new());
    let short =
        |intensity| Restart { intensity, backoff_min: Duration::from_millis(20), ..Restart::default() };

    println!("A CLI that dies three times:");
    let works = ModelTurn::new().call("mcp__worker__work", json!({}));
    let cli =
        ScriptedCli::play(Script::new().repeat(3, works.clone()).turn(ModelTurn::new().text("Still here.")));
    let session = start(&cli, &begun, short(5)).await?;
    let mut events = session.events();
    for _ in 0..3 {
        if let Outcome::Interrupted { by, .. } = crash(&session, &cli, &begun).await? {
            println!("  turn   : interrupted by {by}");
        }
        while let Some(event) = events.next().await {
            if let Event::CliRestarted { epoch, session_id } = event {
                println!("  session: incarnation {epoch} has resumed {}", session_id.unwrap_or_default());
                break;
            }
        }
    }
    let mut turn = session.prompt("Are you there?").await?;
    println!("  turn   : {}", turn.outcome().await?.text().unwrap_or_default());
    session.stop().await?;

    println!("\nA CLI that dies more often than it may:");
    let cli = ScriptedCli::play(Script::new().repeat(9, works));
    let session = start(&cli, &begun, short(2)).await?;
    let waiting = loop {
        if let Outcome::Interrupted { by, .. } = crash(&session, &cli, &begun).await? {
            println!("  turn   : interrupted by {by}");
        }
        // The third death exceeded the limit.
        match tokio::time::timeout(Duration::from_millis(10), session.wait()).await {
            Ok(()) => break session.prompt("Anyone?").await,
            Err(_) => continue,
        }
    };
    if let Some(failure) = session.failure() {
        println!("  session: {failure}");
        println!("           kind: {:?}", failure.kind());
    }
    if let Err(refused) = waiting {
        println!("  prompt : {:?}", refused.kind());
    }
    Ok(())
}
