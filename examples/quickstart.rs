//! A first session: three tools, one conversation.
//!
//! ```text
//! cargo run --example quickstart                        # needs nothing but Rust
//! cargo run --example quickstart -- --cli claude        # on the real CLI, with a scripted model
//! cargo run --example quickstart -- --cli claude --live # the real CLI and the real model, on your account
//! ```
//!
//! The model is asked for a sum, for a quotient that a tool refuses, and for something that makes a tool panic.
//! Watch the third: the call of the panicked tool is answered, the model reads the answer, and the session goes on.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what happens")]

use std::process::ExitCode;
use std::time::Duration;

use greenroom::message::ContentBlock;
use greenroom::{Message, Session, SessionBuilder, ToolServer};
use greenroom_testkit::{ModelTurn, Script, ScriptedCli, ScriptedModel};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

// The arguments of a tool are a type. The model is told its fields and their doc comments.
#[derive(Deserialize, JsonSchema)]
struct Numbers {
    /// The first number
    a: f64,
    /// The second number
    b: f64,
}

// A tool is an async closure. It returns anything that can become a result; the model reads an `Err` as a failure.
fn calculator() -> ToolServer {
    ToolServer::new("calc", "1.0.0")
        .tool("add", "Add two numbers", async |n: Numbers| n.a + n.b)
        .tool("divide", "Divide a by b", async |n: Numbers| match n.b {
            0.0 => Err("cannot divide by zero"),
            b => Ok(n.a / b),
        })
        .tool("boom", "A tool with a bug in it", async |n: Numbers| -> f64 {
            panic!("index {} out of bounds", n.a)
        })
        // The model sees these tools from the start. Without this line the CLI hides them behind its tool search: the
        // model has to look for them first, and an error of such a tool comes with the CLI's advice about the search.
        .always_load(true)
}

// The script of the model. It plays on the embedded CLI and, through a Messages API on loopback, on the real CLI.
fn script() -> Script {
    Script::new()
        .turn(ModelTurn::new().text("Let me add.").call("mcp__calc__add", json!({ "a": 5, "b": 3 })))
        .turn(
            ModelTurn::new().text("Now let me divide.").call("mcp__calc__divide", json!({ "a": 1, "b": 0 })),
        )
        .turn(ModelTurn::new().text("And the last one.").call("mcp__calc__boom", json!({ "a": 7, "b": 0 })))
        .turn(ModelTurn::new().text("5 + 3 is 8; one cannot divide by zero; and the third tool has a bug."))
}

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failure> {
    // The library writes `tracing` events: try RUST_LOG=greenroom=debug.
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    // The default panic hook would print the panic, which is part of the lesson, in the middle of the conversation.
    std::panic::set_hook(Box::new(|_| {}));

    let builder = Session::builder()
        .mcp_server(calculator())
        // Without this the CLI asks before each call.
        .allow_server_tools("calc")
        .configure(|options| options.timeouts.tool = Some(Duration::from_secs(30)));

    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let cli = ScriptedCli::play(script());
            converse(builder.transport(cli.transport())).await
        }
        ["--cli", path] => {
            let model = ScriptedModel::start(script()).await?;
            let home = tempfile::tempdir()?;
            let builder = builder
                .cli_path(path)
                .cwd(home.path())
                .envs(model.env())
                .env("HOME", home.path().to_string_lossy())
                // The CLI puts sockets and logs here.
                .env("TMPDIR", home.path().to_string_lossy())
                .env("PATH", std::env::var("PATH").unwrap_or_default())
                .configure(|options| options.env_policy = greenroom::options::EnvPolicy::Clean);
            converse(builder).await
        }
        ["--cli", path, "--live"] => converse(builder.cli_path(path)).await,
        _ => Err("usage: quickstart [--cli PATH [--live]]".into()),
    }
}

async fn converse(builder: SessionBuilder) -> Result<(), Failure> {
    let session = builder.start().await?;
    let mut events = session.events();

    let question = "What is 5 + 3? And 1 / 0? Then call boom.";
    println!("you    > {question}");
    let mut turn = session.prompt(question).await?;
    while let Some(message) = turn.next().await {
        show(&message);
    }
    let result = turn.outcome().await?.into_result();
    if let Ok(result) = &result {
        println!("outcome: {}", result.result.as_deref().unwrap_or_default());
    }

    // Counts of the whole session.
    let snapshot = session.snapshot().await?;
    println!(
        "{} requests, {} answered, {} panic",
        snapshot.counters.requests, snapshot.counters.answered, snapshot.counters.panics
    );
    session.stop().await?;
    // Events of the supervision tree.
    while let Some(event) = events.next().await {
        println!("event  : {}", serde_json::to_string(&event)?);
    }
    // A failed turn, for example of an account without a login, says in its error what to do.
    result?;
    Ok(())
}

fn show(message: &Message) {
    for block in message.content() {
        match block {
            ContentBlock::Text { text, .. } => println!("model  > {text}"),
            ContentBlock::ToolUse { name, input, .. } => println!("  call   {name} {input}"),
            ContentBlock::ToolResult { content, is_error, .. } => {
                println!("  {} {}", if *is_error { "error " } else { "result" }, content.text());
            }
            _ => {}
        }
    }
}
