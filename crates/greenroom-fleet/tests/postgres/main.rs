//! The backend in PostgreSQL, on a real server.
//!
//! The library was broken in these ways, one at a time, and each time at least the test beside it has failed:
//!
//! | what was broken | test |
//! |---|---|
//! | a commit looks at its rows without a lock | `lost::a_begin_waits_for_a_claim_and_is_then_refused` |
//! | an append of entries checks the name without the term | `transcripts::an_append_of_an_owner_of_an_earlier_term_writes_nothing` |
//! | `begin` locks the row of its node for itself | `lost::turns_and_renewals_go_on_while_the_row_of_their_node_is_shared` |
//! | the fence counts from the reply to a renewal | `a_node_whose_renewals_fail_gives_up_after_four_fifths_of_its_lease` of the keeper |
//! | moments are those of the node's clock | `locks::moments_are_those_of_the_servers_clock` |
//! | a node counts as alive while it is connected, as with an advisory lock | `stopped` of the tests of nodes |
//! | hints alone lead to a look | `a_lost_hint_is_found_by_the_next_look` of the keeper |
//! | a repeated `begin` has another id | `a_begin_whose_reply_is_lost_sends_once` of the scenes |
//! | the folder of an earlier term is used | `a_folder_of_an_earlier_term_is_not_read_and_is_removed` of the fleet |

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "tests")]

mod commands;
mod fleet;
mod load;
mod locks;
mod lost;
mod missing;
mod moving;
mod nodes;
mod opening;
mod pooler;
mod proxy;
mod quotas;
#[path = "../support/memory.rs"]
#[allow(
    dead_code,
    clippy::disallowed_methods,
    reason = "other tests use the rest; the runtime of a test ends with its tasks"
)]
mod remembering;
mod rights;
mod scratch;
mod server;
mod stopped;
#[path = "../support/moving.rs"]
mod tenants;
mod transcripts;
mod updates;
mod views;
#[path = "../../../../tests/support/wait.rs"]
mod wait;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use greenroom_fleet::backend::{PostgresBackend, PostgresOptions};
use greenroom_fleet::testkit::{BackendViolation, backend_conformance};

/// A schema that no other test uses.
fn schema() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("test_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// A backend whose server may be ten times as slow as the defaults allow.
async fn connect(address: &str, schema: &str) -> PostgresBackend {
    connect_with(address, schema, Duration::from_secs(20)).await
}

/// A backend that soon gives up a request without an answer, for tests that keep the answer back.
async fn connect_hastily(address: &str, schema: &str) -> PostgresBackend {
    connect_with(address, schema, Duration::from_secs(2)).await
}

async fn connect_with(address: &str, schema: &str, statement_timeout: Duration) -> PostgresBackend {
    let mut options = PostgresOptions::new(address);
    options.schema = schema.to_owned();
    options.connections = 4;
    (options.statement_timeout, options.connect_timeout) = (statement_timeout, wait::SOON);
    PostgresBackend::connect(options).await.unwrap()
}

fn listed(broken: Vec<BackendViolation>) -> Vec<&'static str> {
    panic!("{}", broken.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_backend_in_postgres_keeps_the_promises() {
    let Some(address) = server::address() else { return };
    let schema = schema();
    let open = async |store| Arc::new(connect(&address, &format!("{schema}_{store}")).await) as _;
    backend_conformance(open).await.unwrap_or_else(listed);
}
