//! A host for one tool server, driven from outside: prompts the CLI once and writes everything that happens to
//! stdout, one JSON object a line.
//!
//! ```text
//! cargo run --example host -- --cli PATH --prompt TEXT [--resume ID] [--env K=V]...
//! ```
//!
//! - `{"kind":"message","message":{…}}`: a message of the CLI, unchanged
//! - `{"kind":"event","event":{…}}`: a supervision event
//! - `{"kind":"outcome","outcome":{…}}`: the end of the turn
//!
//! Logs go to stderr. The program exits with 0 if the turn was completed and the session stopped in order.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what happens")]

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use greenroom::{Event, NoArgs, Outcome, Session, ToolContext, ToolDef, ToolServer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
struct Echo {
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Millis {
    ms: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Words {
    message: String,
}

#[derive(Deserialize, JsonSchema)]
struct Size {
    bytes: usize,
}

#[derive(Deserialize, JsonSchema)]
struct Steps {
    steps: u32,
    ms: u64,
}

/// State of the server; each restart makes a new one.
#[derive(Default)]
struct Bench {
    calls: AtomicU64,
}

impl Bench {
    fn count(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed) + 1
    }
}

type Cx = ToolContext<Bench>;

fn bench() -> ToolServer {
    let tool = |def: ToolDef<Bench>| def.always_load(true);
    ToolServer::new("bench", "1.0.0")
        .add_tool(
            tool(ToolDef::new("echo", "Say the text again", async |args: Echo, cx: Cx| {
                cx.count();
                args.text
            }))
            .read_only_hint(true),
        )
        .add_tool(
            tool(ToolDef::new("sleep", "Wait for some milliseconds", async |args: Millis, cx: Cx| {
                cx.count();
                tokio::time::sleep(Duration::from_millis(args.ms)).await;
                format!("slept {} ms", args.ms)
            }))
            .read_only_hint(true),
        )
        .add_tool(tool(ToolDef::new("fail", "Fail with this message", async |args: Words, cx: Cx| {
            cx.count();
            Err::<(), _>(args.message)
        })))
        .add_tool(tool(ToolDef::new("panic", "Panic with this message", async |args: Words, cx: Cx| -> () {
            cx.count();
            panic!("{}", args.message)
        })))
        .add_tool(tool(ToolDef::new("hang", "Wait until cancelled", async |_: NoArgs, cx: Cx| {
            cx.count();
            cx.cancelled().await;
            "cancelled"
        })))
        .add_tool(tool(ToolDef::blocking(
            "block",
            "Block a thread for some milliseconds",
            |args: Millis, cx: Cx| {
                cx.count();
                #[expect(clippy::disallowed_methods, reason = "blocking is what this tool is for")]
                std::thread::sleep(Duration::from_millis(args.ms));
                format!("blocked {} ms", args.ms)
            },
        )))
        .add_tool(tool(ToolDef::new("big", "A result of this size", async |args: Size, cx: Cx| {
            cx.count();
            "x".repeat(args.bytes)
        })))
        .add_tool(tool(ToolDef::new(
            "count",
            "How many calls since the state was made",
            async |_: NoArgs, cx: Cx| cx.count(),
        )))
        .add_tool(tool(ToolDef::new("progress", "Report progress in steps", async |args: Steps, cx: Cx| {
            cx.count();
            for step in 1..=args.steps {
                tokio::time::sleep(Duration::from_millis(args.ms)).await;
                cx.progress(f64::from(step), Some(f64::from(args.steps)), Some("working")).await;
            }
            format!("{} steps", args.steps)
        })))
        .state(Bench::default)
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line<'a> {
    Message { message: &'a greenroom::Message },
    Event { event: &'a Event },
    Outcome { outcome: &'a Outcome },
}

/// Writes a line and flushes stdout, so that the reader sees the line at once.
fn print(line: &Line<'_>) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    serde_json::to_writer(&mut stdout, line)?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}

struct Arguments {
    cli: Option<String>,
    prompt: String,
    resume: Option<String>,
    env: BTreeMap<String, String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut arguments = Arguments { cli: None, prompt: "hello".into(), resume: None, env: BTreeMap::new() };
    let mut words = std::env::args().skip(1);
    while let Some(flag) = words.next() {
        let mut value = || words.next().ok_or(format!("{flag} needs a value"));
        match flag.as_str() {
            "--cli" => arguments.cli = Some(value()?),
            "--prompt" => arguments.prompt = value()?,
            "--resume" => arguments.resume = Some(value()?),
            "--env" => {
                let pair = value()?;
                let (name, value) = pair.split_once('=').ok_or("--env takes NAME=VALUE")?;
                arguments.env.insert(name.to_owned(), value.to_owned());
            }
            _ => {
                return Err(format!(
                    "unknown argument {flag}; usage: host [--cli PATH] [--prompt TEXT] [--resume ID] [--env K=V]..."
                ));
            }
        }
    }
    Ok(arguments)
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    match run().await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("host: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let Arguments { cli, prompt, resume, env } = arguments()?;
    let mut builder = Session::builder()
        .mcp_server(bench())
        .allow_server_tools("bench")
        .envs(env)
        .on_stderr(|line| eprintln!("claude: {line}"));
    if let Some(cli) = cli {
        builder = builder.cli_path(cli);
    }
    if let Some(resume) = resume {
        builder = builder.resume(resume);
    }
    // An explicit PATH or HOME replaces the host's; the CLI inherits all other variables.
    // Subscribed before the start, to see the start of the first CLI.
    let mut events = builder.events();
    let session = builder.start().await?;
    let mut turn = session.prompt(prompt).await?;

    loop {
        tokio::select! {
            biased;
            Some(event) = events.next() => print(&Line::Event { event: &event })?,
            message = turn.next() => match message {
                Some(message) => print(&Line::Message { message: &message })?,
                None => break,
            },
        }
    }
    let outcome = turn.outcome().await?;
    print(&Line::Outcome { outcome: &outcome })?;
    let stopped = session.stop().await;
    drop(session);
    while let Some(event) = events.next().await {
        print(&Line::Event { event: &event })?;
    }
    stopped?;
    match outcome {
        Outcome::Completed { .. } => Ok(()),
        other => Err(other
            .into_result()
            .err()
            .map_or("the turn did not complete".into(), Box::<dyn std::error::Error>::from)),
    }
}
