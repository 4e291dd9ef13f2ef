//! The command on PostgreSQL.

use std::sync::Once;

use greenroom_fleet::backend::{PostgresBackend, Requests};
use greenroom_fleet::testkit::{ScratchPostgres, ScratchPostgresError};

use crate::stage::{accepted, asking, command, ended, joined, name};

/// A server. `None`: there is none, which one line says.
async fn server() -> Option<ScratchPostgres> {
    match ScratchPostgres::start().await {
        Ok(server) => Some(server),
        Err(ScratchPostgresError::NotInstalled) => {
            const REQUIRED: &str = "GREENROOM_REQUIRE_POSTGRES";
            assert!(
                std::env::var_os(REQUIRED).is_none(),
                "PostgreSQL is not installed, and {REQUIRED} is set"
            );
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                let note =
                    "command: the tests on PostgreSQL are not run and count as passed: install PostgreSQL\n";
                std::io::Write::write_all(&mut std::io::stderr(), note.as_bytes()).unwrap();
            });
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_looks_after_a_fleet_in_a_database() {
    let Some(server) = server().await else { return };
    let options = server.options().await.unwrap();
    let backend = PostgresBackend::connect(options.clone()).await.unwrap();
    let node = joined(&backend, "here").await;
    let question = asking(&backend, "acme/asks", node, "Which size?").await.to_string();
    let prompt = accepted(&backend, "acme/waits").await.to_string();
    let greenroom = async |arguments: &[&str]| {
        let mut command = command(arguments);
        command.env("GREENROOM_DATABASE", &options.url);
        ended(command).await
    };
    let nodes = greenroom(&["nodes", "--json"]).await.objects();
    assert_eq!((&nodes[0]["id"], &nodes[0]["live"]), (&node.to_string().into(), &1.into()));
    let names = greenroom(&["names"]).await.done();
    assert!(
        names.starts_with("acme/asks\trunning\t") && names.contains("\nacme/waits\twaiting\t"),
        "{names}"
    );
    assert!(greenroom(&["questions"]).await.done().starts_with(&question));
    greenroom(&["answer", &question, "--dismiss"]).await.done();
    greenroom(&["quarantine", "acme/waits", "it loops"]).await.done();
    assert!(greenroom(&["stuck"]).await.done().contains("it loops"));
    assert!(
        greenroom(&["top"]).await.done().starts_with("nodes 1  queued 1  tenants 1  stuck 1  questions 0\n")
    );
    greenroom(&["unquarantine", "acme/waits"]).await.done();
    greenroom(&["drop", &prompt, "sent by a loop"]).await.done();
    assert_eq!(greenroom(&["vacuum", "0s"]).await.done(), "1 prompts are forgotten\n");
    assert!(
        greenroom(&["account", "acme"]).await.done().starts_with("acme: 2 sessions, 1 live; 0 prompts and")
    );
    greenroom(&["drain", &node.to_string()]).await.done();
    assert!(backend.nodes(None, 10).await.unwrap()[0].asked_to_drain);
    // Another database, to which a tenant at rest moves.
    let other = server.options().await.unwrap();
    backend.leave(node).await.unwrap();
    accepted(&backend, "beta/b").await;
    let mut busy = command(&["move", "beta"]);
    busy.env("GREENROOM_DATABASE", &options.url).env("GREENROOM_TO_DATABASE", &other.url);
    let busy = ended(busy).await;
    assert!(busy.code == 1 && busy.error.contains("have it sleep"), "{busy:?}");
    let there = PostgresBackend::connect(other).await.unwrap();
    assert_eq!(there.name_record(name("beta/b")).await.unwrap(), None);
    let wrong = greenroom(&["--schema", "pg_wrong", "nodes"]).await;
    assert_eq!(wrong.code, 2, "{wrong:?}");
}
