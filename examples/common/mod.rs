//! Where the examples play: on the embedded CLI, on the real one with a scripted model, or on the real one with the
//! real model. They are the same program in each.

#![allow(dead_code, reason = "each example uses a part of it")]

use std::io::BufRead;
use std::path::PathBuf;

use greenroom::options::EnvPolicy;
use greenroom::testkit::{Script, ScriptedCli, ScriptedModel};
use greenroom::{Session, SessionBuilder};
use tempfile::TempDir;
use tokio::sync::mpsc;

pub(crate) type Failure = Box<dyn std::error::Error>;

/// A session, and what its stand-ins need to live.
pub(crate) struct Stage {
    pub(crate) session: Session,
    /// Whether a person's account is used.
    pub(crate) live: bool,
    _cli: Option<ScriptedCli>,
    _model: Option<ScriptedModel>,
    _home: Option<TempDir>,
}

/// Starts a session as the arguments of the program say.
pub(crate) async fn start(builder: SessionBuilder, script: Script) -> Result<Stage, Failure> {
    // The library reports what it does with `tracing`: try RUST_LOG=greenroom=debug.
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
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
                // Where it would leave sockets and logs.
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

/// The lines that somebody types. The thread that reads them ends with the program, or with the input.
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
