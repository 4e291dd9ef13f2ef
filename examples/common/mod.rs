//! Starts the sessions of the examples: on the embedded CLI, on the real CLI with a scripted model, or on the real CLI
//! with the real model.

#![allow(dead_code, reason = "each example uses a part of it")]

use std::io::BufRead;
use std::path::PathBuf;

use greenroom::options::EnvPolicy;
use greenroom::{Session, SessionBuilder};
use greenroom_testkit::{Script, ScriptedCli, ScriptedModel};
use tempfile::TempDir;
use tokio::sync::mpsc;

pub(crate) type Failure = Box<dyn std::error::Error>;

/// A session, with its stand-ins and folders.
pub(crate) struct Stage {
    pub(crate) session: Session,
    /// Whether the session uses a person's account.
    pub(crate) live: bool,
    _cli: Option<ScriptedCli>,
    _model: Option<ScriptedModel>,
    _home: Option<TempDir>,
}

/// Starts a session by the arguments of the program.
pub(crate) async fn start(builder: SessionBuilder, script: Script) -> Result<Stage, Failure> {
    start_with(builder, script, &std::env::args().skip(1).collect::<Vec<_>>()).await
}

/// Starts a session by these arguments.
pub(crate) async fn start_with(
    builder: SessionBuilder,
    script: Script,
    arguments: &[String],
) -> Result<Stage, Failure> {
    // The library writes `tracing` events: try RUST_LOG=greenroom=debug.
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let cli = ScriptedCli::play(script);
            let session = builder.transport(cli.transport()).start().await?;
            Ok(Stage { session, live: false, _cli: Some(cli), _model: None, _home: None })
        }
        ["--cli", path] => {
            let model = ScriptedModel::start(script).await?;
            let home = tempfile::tempdir()?;
            let session = builder
                .cli_path(path)
                .cwd(home.path())
                .envs(model.env())
                .env("HOME", home.path().to_string_lossy())
                // The CLI puts sockets and logs here.
                .env("TMPDIR", home.path().to_string_lossy())
                .env("PATH", std::env::var("PATH").unwrap_or_default())
                .configure(|options| options.env_policy = EnvPolicy::Clean)
                .start()
                .await?;
            Ok(Stage { session, live: false, _cli: None, _model: Some(model), _home: Some(home) })
        }
        ["--cli", path, "--live"] => {
            let session = builder.cli_path(PathBuf::from(path)).start().await?;
            Ok(Stage { session, live: true, _cli: None, _model: None, _home: None })
        }
        _ => Err("the arguments are [--cli PATH [--live]]".into()),
    }
}

/// Reads lines from stdin. The reading thread ends with the program or with the input.
pub(crate) fn typed_lines() -> mpsc::Receiver<String> {
    let (typed, lines) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if typed.blocking_send(line).is_err() {
                break;
            }
        }
    });
    lines
}
