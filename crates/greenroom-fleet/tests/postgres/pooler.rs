//! PgBouncer between a node and the server.

#![allow(clippy::disallowed_methods, reason = "the pooler is no CLI, and its start may hold up a thread")]

use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::time::Duration;

use greenroom_fleet::backend::{PostgresBackend, PostgresOptions, Requests};
use greenroom_fleet::{BackendErrorKind, Change, Name};

use crate::nodes::accepted;
use crate::wait::{found, in_time};
use crate::{connect, schema, server};

struct Pooler {
    address: String,
    process: Child,
    _folder: tempfile::TempDir,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// A pooler before the server at an address. `None`: PgBouncer is not installed, which the first test says in one line.
async fn pooler(address: &str, mode: &str) -> Option<Pooler> {
    let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"]
        .into_iter()
        .find(|program| std::fs::exists(program).unwrap());
    let Some(program) = program else {
        static SAID: Once = Once::new();
        server::not_run(&SAID, "the tests on a pooler", "PgBouncer", "install PgBouncer");
        return None;
    };
    let folder = tempfile::Builder::new().prefix("greenroom-pooler-").tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let place = server::socket(address);
    let settings = folder.path().join("pgbouncer.ini");
    let text = format!(
        "[databases]\n* = host={} port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
         unix_socket_dir =\nauth_type = any\npool_mode = {mode}\ndefault_pool_size = 20\n{}",
        place.ip(),
        place.port(),
        // It refuses to run for root.
        if rustix::process::geteuid().is_root() { "user = postgres\n" } else { "" },
    );
    std::fs::write(&settings, text).unwrap();
    let process = Command::new(program)
        .arg(&settings)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let address = server::through(address, port);
    let pooler = Pooler { address, process, _folder: folder };
    found("the pooler", || std::net::TcpStream::connect(("127.0.0.1", port)).ok()).await;
    Some(pooler)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_in_session_mode_carries_requests_and_hints() {
    let Some(address) = server::address() else { return };
    let Some(pooler) = pooler(&address, "session").await else { return };
    let schema = schema();
    let (here, there) = (connect(&pooler.address, &schema).await, connect(&address, &schema).await);
    let mut changes = here.changes();
    in_time("a hint through the pooler", async {
        loop {
            // The same statement on several connections, each of which prepares it.
            let prompt = accepted(&here, "a").await;
            assert!(there.prompt_record(prompt).await.unwrap().is_some());
            accepted(&there, "b").await;
            let heard = tokio::time::timeout(Duration::from_secs(1), async {
                while changes.recv().await.unwrap() != Change::Queued("acme/b".parse::<Name>().unwrap()) {}
            });
            if heard.await.is_ok() {
                return;
            }
        }
    })
    .await;
    here.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_in_transaction_mode_is_refused() {
    let Some(address) = server::address() else { return };
    let Some(pooler) = pooler(&address, "transaction").await else { return };
    for _ in 0..3 {
        let mut options = PostgresOptions::new(&pooler.address);
        options.schema = schema();
        let error = PostgresBackend::connect(options).await.unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("use its session mode"), "{error}");
    }
}
