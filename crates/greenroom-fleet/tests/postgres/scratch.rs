//! The scratch server that services use in their tests.

use std::path::Path;

use greenroom_fleet::backend::{PostgresBackend, Requests};
use greenroom_fleet::testkit::{ScratchPostgres, ScratchPostgresError};

use crate::nodes::accepted;
use crate::server::{self, Server};

#[tokio::test(flavor = "multi_thread")]
async fn a_test_has_a_fleet_on_postgres_by_one_call_or_is_told_what_to_install() {
    let postgres = match ScratchPostgres::start().await {
        Ok(postgres) => postgres,
        Err(missing @ ScratchPostgresError::NotInstalled) => {
            // Says so in the line that all tests share.
            assert_eq!(server::address(), None);
            assert!(missing.to_string().contains("install its server"), "{missing}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    // Each backend has a database of its own.
    let (first, other) = (postgres.backend().await.unwrap(), postgres.backend().await.unwrap());
    accepted(&first, "a").await;
    assert_eq!((first.queued().await.unwrap(), other.queued().await.unwrap()), (1, 0));
    // Two nodes on one database.
    let options = postgres.options().await.unwrap();
    let here = PostgresBackend::connect(options.clone()).await.unwrap();
    let there = PostgresBackend::connect(options).await.unwrap();
    accepted(&here, "a").await;
    assert_eq!(there.queued().await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scratch_server_ends_with_its_value_and_leaves_no_files() {
    let Some(server) = Server::of_its_own() else { return };
    let mut owner = server::raw(&server.address()).await;
    let data: String = sqlx::query_scalar("SHOW data_directory").fetch_one(&mut owner).await.unwrap();
    let (folder, port) = (Path::new(&data).parent().unwrap(), server.port());
    assert!(folder.exists());
    drop(server);
    assert!(!folder.exists());
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
}
