//! What waits for whom, and whose clock counts: statements of somebody else hold locks, and set the server's clock.

#![allow(clippy::disallowed_methods, reason = "psql is no CLI of a session")]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use greenroom_fleet::backend::{Backend, PostgresBackend, Requests};
use greenroom_fleet::{AttemptId, Begin, NodeId, Owned, Ownership, Timestamp};
use tokio::task::JoinSet;

use crate::nodes::{HOUR, accepted, joined, owner};
use crate::{connect, schema, server};

/// Somebody else's connection.
struct Psql {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Psql {
    fn connect(address: &str) -> Self {
        let mut child = Command::new(server::program("psql"))
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"])
            .arg(address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, stdin, stdout: BufReader::new(stdout) }
    }

    /// Runs statements, and returns when they are done.
    fn run(&mut self, statements: &str) {
        writeln!(self.stdin, "{statements};\n\\echo done").unwrap();
        let done = self.stdout.by_ref().lines().map(Result::unwrap).any(|line| line == "done");
        assert!(done, "psql has ended at {statements}");
    }
}

impl Drop for Psql {
    fn drop(&mut self) {
        // An error: it has ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

async fn begin(backend: &PostgresBackend, owner: &Ownership, name: &str) -> Owned<Option<serde_json::Value>> {
    let prompt = accepted(backend, name).await;
    let begin = Begin {
        owner: owner.clone(),
        prompt,
        attempt: AttemptId::new(),
        quota: greenroom_fleet::Quota::default(),
        credential: None,
    };
    backend.begin(begin).await.unwrap()
}

async fn renews(backend: &PostgresBackend, node: NodeId) {
    let renewed = backend.renew(node, HOUR, false).await.unwrap();
    assert!(matches!(renewed, Owned::Done(_)), "{renewed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_begin_that_waits_for_its_name_holds_up_no_renewal() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let backend = connect(&address, &schema).await;
    let node = joined(&backend).await;
    let prompt = accepted(&backend, "a").await;
    let owner = owner(&backend, node, "a").await;
    let mut other = Psql::connect(&address);
    other.run(&format!("BEGIN; {}", server::lock_of_name(&schema, "a")));
    let begin = Begin {
        owner,
        prompt,
        attempt: AttemptId::new(),
        quota: greenroom_fleet::Quota::default(),
        credential: None,
    };
    let (theirs, mut beginning) = (backend.clone(), JoinSet::new());
    beginning.spawn(async move { theirs.begin(begin).await.unwrap() });
    server::until_a_request_waits_for_a_lock(&address).await;
    for _ in 0..3 {
        renews(&backend, node).await;
    }
    assert!(beginning.try_join_next().is_none(), "a begin locks the row of its name");
    other.run("COMMIT");
    assert!(matches!(beginning.join_next().await.unwrap().unwrap(), Owned::Done(Some(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn moments_are_those_of_the_servers_clock() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    drop(connect(&address, &schema).await);
    let ahead = HOUR.as_millis();
    Psql::connect(&address).run(&format!(
        "CREATE OR REPLACE FUNCTION {schema}.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS \
         $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint + {ahead} $$"
    ));
    let backend = connect(&address, &schema).await;
    let node = joined(&backend).await;
    let owner = owner_of_new_name(&backend, node).await;
    let begun = begin(&backend, &owner, "a").await;
    assert!(matches!(begun, Owned::Done(Some(_))), "{begun:?}");
    let (server, here) = (backend.now(), Timestamp::now());
    assert!(server.since(here) > HOUR - Duration::from_secs(60), "{server:?}, and {here:?} here");
    let record = &backend.nodes(None, 10).await.unwrap()[0];
    assert!(record.lease_until.since(here) > HOUR + HOUR - Duration::from_secs(60), "{record:?}");
    assert!(!backend.declare_dead(node, record.renewals).await.unwrap(), "its lease lasts an hour");
}

async fn owner_of_new_name(backend: &PostgresBackend, node: NodeId) -> Ownership {
    accepted(backend, "a").await;
    owner(backend, node, "a").await
}
