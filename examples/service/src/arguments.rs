//! The arguments of the program, and the stand-ins for the CLI and the model. A service of yours needs one of the three
//! ways to a CLI: `builder.cli_path(PATH)`.

use std::error::Error;
use std::path::PathBuf;

use greenroom::options::EnvPolicy;
use greenroom_testkit::{ModelTurn, Script, ScriptedClis, ScriptedModel};
use serde_json::json;
use service::Connect;
use tempfile::TempDir;

pub(crate) struct Arguments {
    pub(crate) listen: String,
    data: Option<PathBuf>,
    /// The data without `--data`.
    forgotten: TempDir,
    script: Option<PathBuf>,
    cli: Option<PathBuf>,
    live: bool,
}

pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Result<Arguments, Box<dyn Error>> {
    let listen = "127.0.0.1:8080".to_owned();
    let forgotten = tempfile::tempdir()?;
    let mut read = Arguments { listen, data: None, forgotten, script: None, cli: None, live: false };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("a value is missing after {word}"));
        match word.as_str() {
            "--listen" => read.listen = value()?,
            "--data" => read.data = Some(value()?.into()),
            "--script" => read.script = Some(value()?.into()),
            "--cli" => read.cli = Some(value()?.into()),
            "--live" => read.live = true,
            _ => return Err(format!("{word} is no argument of this program").into()),
        }
    }
    if read.live && read.cli.is_none() {
        return Err("--live needs --cli PATH".into());
    }
    Ok(read)
}

fn lamp() -> Script {
    Script::new()
        .turn(ModelTurn::new().text("Let me look. ").call("mcp__orders__list", json!({})))
        .turn(ModelTurn::new().text("Your lamp arrives on Monday."))
        .otherwise(ModelTurn::new().text("I am only a script, and this is all I know."))
}

impl Arguments {
    /// The folder for the fleet's file and the users' folders.
    pub(crate) fn data(&self) -> std::io::Result<PathBuf> {
        std::path::absolute(self.data.as_deref().unwrap_or(self.forgotten.path()))
    }

    /// How a session gets its CLI.
    pub(crate) async fn connect(&self) -> Result<Connect, Box<dyn Error>> {
        let script = match &self.script {
            Some(file) => serde_json::from_slice(&std::fs::read(file)?)?,
            None => lamp(),
        };
        let Some(cli) = self.cli.clone() else {
            // A scripted CLI for each user, which outlives the user's sessions.
            let clis = ScriptedClis::new(move |_| script.clone());
            return Ok(Box::new(move |builder, user| builder.transport(clis.transport(user))));
        };
        if self.live {
            return Ok(Box::new(move |builder, _| builder.cli_path(&cli)));
        }
        let (model, path) = (ScriptedModel::start(script).await?, std::env::var("PATH")?);
        Ok(Box::new(move |builder, _| {
            let builder = builder.cli_path(&cli).envs(model.env()).env("PATH", &path);
            builder.configure(|options| options.env_policy = EnvPolicy::Clean)
        }))
    }
}
