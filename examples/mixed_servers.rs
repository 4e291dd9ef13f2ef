//! Use servers inside and outside of this program in one session.
//!
//! ```text
//! cargo run --example mixed_servers                  # needs nothing but Rust
//! cargo run --example mixed_servers -- --cli claude  # on the real CLI, with a scripted model
//! ```
//!
//! The outside server is a process that the CLI starts and talks to; here the process is this program, started with
//! `serve`. The embedded CLI starts no processes: it calls only the inside server, and says so.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

mod common;

use std::io::{BufRead, Write};

use common::Failure;
use greenroom::options::ExternalServer;
use greenroom::{NoArgs, Session, ToolDef, ToolServer};
use greenroom_testkit::{ModelTurn, Script};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize, JsonSchema)]
struct Shout {
    text: String,
}

/// The inside server, which shares the state of this program.
fn inside() -> ToolServer {
    let visits = ToolDef::new("visits", "How many visitors there were", async |_: NoArgs| 17);
    ToolServer::new("inside", "1.0.0").add_tool(visits.always_load(true))
}

/// The outside server, which knows nothing of this program.
fn outside() -> ToolServer {
    let shout = ToolDef::new("shout", "Say it loudly", async |args: Shout| args.text.to_uppercase());
    ToolServer::new("outside", "1.0.0").add_tool(shout.always_load(true))
}

/// Serves MCP on stdin and stdout, a message on each line. `ToolServer::handle` answers a message.
async fn serve() -> Result<(), Failure> {
    let server = outside();
    for line in std::io::stdin().lock().lines() {
        if let Some(answer) = server.handle(serde_json::from_str(&line?)?).await {
            let mut stdout = std::io::stdout().lock();
            writeln!(stdout, "{answer}")?;
            stdout.flush()?;
        }
    }
    Ok(())
}

fn script() -> Script {
    let both = ModelTurn::new()
        .call("mcp__inside__visits", json!({}))
        .call("mcp__outside__shout", json!({ "text": "seventeen" }));
    Script::new().turn(both).turn(ModelTurn::new().text("There were SEVENTEEN of them."))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    if std::env::args().nth(1).as_deref() == Some("serve") {
        return serve().await;
    }
    let this_program = std::env::current_exe()?.to_string_lossy().into_owned();
    let builder = Session::builder()
        .mcp_server(inside())
        .external_mcp_server("outside", ExternalServer::stdio(this_program, ["serve"]).with_always_load(true))
        .allow_server_tools("inside")
        .allow_server_tools("outside");
    let stage = common::start(builder, script()).await?;

    let mut turn = stage.session.prompt("How many visitors, and loudly?").await?;
    while let Some(message) = turn.next().await {
        for result in message.tool_results() {
            println!("  result {}", result.content.text());
        }
    }
    println!("model  > {}", turn.outcome().await?.text().unwrap_or_default());

    // The CLI treats both servers alike.
    for server in &stage.session.mcp_status().await?.servers {
        println!("server : {} is {:?}", server.name, server.status);
    }
    stage.session.stop().await?;
    Ok(())
}
