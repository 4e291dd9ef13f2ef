//! The arguments of the program, and the stand-ins for the CLI and the model. A service of yours needs
//! `builder.cli_path(PATH)` alone.
//!
//! Secrets are in the environment, because every user of the machine can read the arguments of a process.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use desk::Connect;
use desk::login::Logins;
use greenroom_fleet::backend::{LocalBackend, PostgresBackend, PostgresOptions};
use greenroom_fleet::web::Login;
use greenroom_fleet::{Fleet, FleetBuilder, PromptId, Tenant};
use greenroom_testkit::{ModelTurn, Script, ScriptedClis};
use serde_json::json;
use tempfile::TempDir;

/// The arguments, each with a value.
const ARGUMENTS: [&str; 5] = ["--listen", "--data", "--script", "--cli", "--host"];

pub(crate) struct Arguments {
    values: HashMap<String, String>,
    /// The data without `--data`.
    forgotten: TempDir,
}

pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Result<Arguments, Box<dyn Error>> {
    let mut read = Arguments { values: HashMap::new(), forgotten: tempfile::tempdir()? };
    while let Some(word) = words.next() {
        if !ARGUMENTS.contains(&word.as_str()) {
            return Err(format!("{word} is no argument of this program").into());
        }
        let value = words.next().ok_or(format!("a value is missing after {word}"))?;
        read.values.insert(word, value);
    }
    Ok(read)
}

fn lamp() -> Script {
    let ask = ModelTurn::new().text("I ask whether I may. ");
    Script::new()
        .turn(ModelTurn::new().text("Let me look. ").call("mcp__orders__list", json!({})))
        .turn(ModelTurn::new().text("Your lamp arrives on Monday."))
        .turn(ask.call("mcp__orders__cancel", json!({ "order": 17 })))
        .turn(ModelTurn::new().text("So be it."))
        .otherwise(ModelTurn::new().text("I am only a script, and this is all I know."))
}

/// A variable of the environment. The error does not show its value.
fn variable(name: &str) -> Result<Option<String>, String> {
    let value = std::env::var_os(name).map(std::ffi::OsString::into_string).transpose();
    value.map_err(|_| format!("{name} is not UTF-8"))
}

/// The logins of `DESK_LOGINS`: `SECRET:PERSON@TENANT`, separated by white space. Without it they are made up.
pub(crate) fn logins() -> Result<Logins, Box<dyn Error>> {
    let made_up = || ["anna@acme", "bela@umbrella"].map(|who| format!("{}:{who}", PromptId::new())).join(" ");
    let mut logins = HashMap::new();
    // The errors repeat no secret.
    for login in variable("DESK_LOGINS")?.unwrap_or_else(made_up).split_whitespace() {
        let parts = login.split_once(':').and_then(|(secret, who)| Some((secret, who.rsplit_once('@')?)));
        let parts = parts.filter(|(secret, (person, tenant))| ![secret, person, tenant].contains(&&""));
        let (secret, (person, tenant)) = parts.ok_or("a login of DESK_LOGINS is no SECRET:PERSON@TENANT")?;
        if logins.insert(secret.to_owned(), Login::new(Tenant::new(tenant)?).person(person)).is_some() {
            return Err("a secret stands twice in DESK_LOGINS".into());
        }
    }
    Ok(Arc::new(logins))
}

impl Arguments {
    /// The value of an argument; the last one counts.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Starts the fleet on its backend: a file, or the database of `DESK_DATABASE`.
    pub(crate) async fn start(&self, desk: FleetBuilder) -> Result<Fleet, Box<dyn Error>> {
        let data = std::path::absolute(self.get("--data").map_or(self.forgotten.path(), str::as_ref))?;
        let desk = match (variable("DESK_DATABASE")?, self.get("--host")) {
            (None, None) => desk.backend(LocalBackend::open(data.join("fleet.redb")).await?),
            (Some(address), Some(host)) => {
                let backend = PostgresBackend::connect(PostgresOptions::new(address)).await?;
                desk.backend(backend).host(host).folder(data)
            }
            _ => return Err("set both DESK_DATABASE and --host, or neither".into()),
        };
        Ok(desk.start().await?)
    }

    /// How a session gets its CLI.
    pub(crate) fn connect(&self) -> Result<Connect, Box<dyn Error>> {
        let script = match self.get("--script") {
            Some(file) => serde_json::from_slice(&std::fs::read(file)?)?,
            None => lamp(),
        };
        let Some(cli) = self.get("--cli").map(str::to_owned) else {
            // A scripted CLI for each customer, which outlives the customer's sessions.
            let clis = ScriptedClis::new(move |_| script.clone());
            return Ok(Box::new(move |builder, customer| builder.transport(clis.transport(customer))));
        };
        Ok(Box::new(move |builder, _| builder.cli_path(&cli)))
    }
}
