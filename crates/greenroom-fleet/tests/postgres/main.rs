//! The backend in PostgreSQL, on a real server.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "tests")]

mod commands;
mod compare;
mod fleet;
mod load;
mod locks;
mod lost;
mod missing;
mod moving;
mod nodes;
mod pooler;
mod proxy;
#[path = "../support/memory.rs"]
#[allow(
    dead_code,
    clippy::disallowed_methods,
    reason = "other tests use the rest; the runtime of a test ends with its tasks"
)]
mod remembering;
mod rights;
mod server;
mod transcripts;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use greenroom_fleet::backend::{PostgresBackend, PostgresOptions};
use greenroom_fleet::testkit::{BackendViolation, backend_conformance};

/// A schema that no other test uses.
fn schema() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("test_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

async fn connect(address: &str, schema: &str) -> PostgresBackend {
    let mut options = PostgresOptions::new(address);
    options.schema = schema.to_owned();
    options.connections = 4;
    PostgresBackend::connect(options).await.unwrap()
}

fn listed(broken: Vec<BackendViolation>) -> Vec<&'static str> {
    panic!("{}", broken.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_backend_in_postgres_keeps_the_promises() {
    let Some(address) = server::address() else { return };
    let make = async || Arc::new(connect(&address, &schema()).await) as _;
    backend_conformance(make).await.unwrap_or_else(listed);
}
