//! The arguments of the program, and the stand-ins for the CLI and the model. A service of yours needs
//! `builder.cli_path(PATH)` alone.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use desk::Connect;
use desk::login::Logins;
use greenroom_fleet::backend::{LocalBackend, PostgresBackend, PostgresOptions};
use greenroom_fleet::web::Login;
use greenroom_fleet::{FleetBuilder, PromptId, Tenant};
use greenroom_testkit::{ModelTurn, Script, ScriptedClis};
use serde_json::json;
use tempfile::TempDir;

/// The arguments, each with a value.
const ARGUMENTS: [&str; 7] = ["--listen", "--login", "--data", "--script", "--cli", "--postgres", "--host"];

pub(crate) struct Arguments {
    values: HashMap<String, Vec<String>>,
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
        read.values.entry(word).or_default().push(value);
    }
    Ok(read)
}

fn lamp() -> Script {
    Script::new()
        .turn(ModelTurn::new().text("Let me look. ").call("mcp__orders__list", json!({})))
        .turn(ModelTurn::new().text("Your lamp arrives on Monday."))
        .turn(
            ModelTurn::new()
                .text("I ask whether I may. ")
                .call("mcp__orders__cancel", json!({ "order": 17 })),
        )
        .turn(ModelTurn::new().text("So be it."))
        .otherwise(ModelTurn::new().text("I am only a script, and this is all I know."))
}

impl Arguments {
    /// The value that was given last.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name)?.last().map(String::as_str)
    }

    /// The logins, as `SECRET:PERSON@TENANT`.
    pub(crate) fn logins(&self) -> Result<Logins, Box<dyn Error>> {
        let made_up =
            || ["anna@acme", "bela@umbrella"].map(|who| format!("{}:{who}", PromptId::new())).to_vec();
        let logins = self.values.get("--login").cloned().unwrap_or_else(made_up);
        let read = |text: String| {
            let parts = text.split_once(':').and_then(|(secret, who)| Some((secret, who.rsplit_once('@')?)));
            let (secret, (person, tenant)) = parts.ok_or(format!("{text} is no SECRET:PERSON@TENANT"))?;
            Ok((secret.to_owned(), Login::new(Tenant::new(tenant)?).person(person)))
        };
        Ok(Arc::new(logins.into_iter().map(read).collect::<Result<_, Box<dyn Error>>>()?))
    }

    /// The fleet with its backend: a file, or a database.
    pub(crate) async fn open(&self, desk: FleetBuilder) -> Result<FleetBuilder, Box<dyn Error>> {
        let data =
            std::path::absolute(self.get("--data").map_or(self.forgotten.path(), |data| data.as_ref()))?;
        let Some(address) = self.get("--postgres") else {
            return Ok(desk.backend(LocalBackend::open(data.join("fleet.redb")).await?));
        };
        let backend = PostgresBackend::connect(PostgresOptions::new(address)).await?;
        Ok(desk.backend(backend).host(self.get("--host").ok_or("--postgres needs --host NAME")?).folder(data))
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
