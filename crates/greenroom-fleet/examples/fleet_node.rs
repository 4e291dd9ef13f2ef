//! A node of a fleet on PostgreSQL. Start it several times, each with a host name of its own, and talk to sessions from any of them:
//!
//! ```console
//! $ createdb fleet
//! $ cargo run -p greenroom-fleet --features postgres --example fleet_node -- postgres://localhost/fleet one
//! ann: My lamp is green.
//! ann: Noted. (completed)
//! ```
//!
//! Each line of the input is a session's name, a colon and a prompt. The end of the input drains the node; the other nodes go on with
//! its sessions. The transcripts are in the database, so a session remembers on each node what it was told on another one. Kill a
//! node with `kill -9`: after its lease of 30 s, the others run its sessions. `FLEET_SCHEMA` names another schema than the default.

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use greenroom::Session;
use greenroom_fleet::backend::{PostgresBackend, PostgresOptions};
use greenroom_fleet::{Fleet, FleetError, FleetTurn};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinSet;

fn main() -> Result<(), Box<dyn Error>> {
    // Before anything else: the guardian ends the CLIs of this node if the node is killed or stopped.
    greenroom::guardian::init();
    let mut arguments = std::env::args().skip(1);
    let (Some(database), Some(host)) = (arguments.next(), arguments.next()) else {
        return Err(
            "give the address of the database and a name for this host: postgres://localhost/fleet one"
                .into(),
        );
    };
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(&database, &host))
}

async fn run(database: &str, host: &str) -> Result<(), Box<dyn Error>> {
    let mut options = PostgresOptions::new(database);
    if let Ok(schema) = std::env::var("FLEET_SCHEMA") {
        options.schema = schema;
    }
    let backend = PostgresBackend::connect(options).await?;
    let fleet = Fleet::builder()
        .backend(backend)
        .host(host)
        .folder(std::env::temp_dir().join(format!("fleet-{host}")))
        .profile("default", |_| Session::builder())
        .start()
        .await?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut answers = JoinSet::new();
    while let Some(line) = lines.next_line().await? {
        let Some((name, text)) = line.split_once(':') else {
            writeln!(std::io::stderr(), "a line is a name, a colon and a prompt")?;
            continue;
        };
        match fleet.tenant("default")?.session(name.trim())?.prompt(text.trim()).await {
            Ok(turn) => drop(answers.spawn(answer(name.trim().to_owned(), turn))),
            Err(error) => writeln!(std::io::stderr(), "{error}")?,
        }
    }
    // What does not end in this time goes on at another node, or is interrupted.
    fleet.drain(Duration::from_secs(20)).await;
    while let Some(answered) = answers.join_next().await {
        answered??;
    }
    Ok(())
}

async fn answer(name: String, mut turn: FleetTurn) -> Result<(), FleetError> {
    let outcome = turn.outcome().await?;
    // An error: nobody reads any more.
    writeln!(std::io::stdout(), "{name}: {} ({})", outcome.text().unwrap_or_default(), outcome.word()).ok();
    Ok(())
}
