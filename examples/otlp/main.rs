//! Traces and metrics of a session by OTLP, as a collector of OpenTelemetry takes them.
//!
//! `OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 cargo run --example otlp --features otel,metrics` exports to a collector of yours. Without
//! the variable the example plays one, and prints what it was sent.

#![allow(clippy::print_stdout, reason = "the example shows what was exported")]

mod collector;
mod export;

use greenroom::options::TraceOptions;
use greenroom::{NoArgs, Session, ToolServer};
use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let given = std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok();
    let played = collector::Collector::start()?;
    let telemetry = export::Telemetry::install(given.as_deref().unwrap_or(&played.endpoint()))?;

    let clock = ToolServer::new("clock", "1.0.0").tool("now", "The time", async |_: NoArgs| "noon");
    let script = Script::new()
        .turn(ModelTurn::new().call("mcp__clock__now", json!({})))
        .turn(ModelTurn::new().text("It is noon."));
    let cli = ScriptedCli::play(script);
    let session = Session::builder()
        .mcp_server(clock)
        .allow_server_tools("clock")
        .configure(|options| {
            options.trace = TraceOptions { agent_name: Some("support".into()), ..TraceOptions::default() };
        })
        .transport(cli.transport())
        .start()
        .await?;
    let outcome = session.prompt("What time is it?").await?.outcome().await?;
    println!("{}", outcome.text().unwrap_or("no answer"));
    session.stop().await?;

    // Exports what is left. It blocks its thread.
    tokio::task::spawn_blocking(move || telemetry.shutdown()).await??;
    if given.is_none() {
        for name in played.names() {
            println!("{name}");
        }
    }
    Ok(())
}
