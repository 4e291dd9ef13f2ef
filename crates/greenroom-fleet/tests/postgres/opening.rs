//! What an opening is told by a real server that refuses, and what a node that runs is told.

use greenroom_fleet::BackendErrorKind;
use greenroom_fleet::backend::{PostgresBackend, PostgresOptions, Requests};

use crate::server::{self, Server};
use crate::wait::{SOON, in_time};
use crate::{connect_hastily, schema};

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_and_a_missing_tls_are_told_as_such() {
    let Some(server) = Server::of_its_own() else { return };
    let mut owner = server::raw(&server.address()).await;
    let hba: String = sqlx::query_scalar("SHOW hba_file").fetch_one(&mut owner).await.unwrap();
    let rules = format!(
        "CREATE ROLE guarded LOGIN PASSWORD 'right'; CREATE ROLE encrypted LOGIN; \
         COPY (SELECT unnest(ARRAY['host all guarded all scram-sha-256', 'hostssl all encrypted all trust', 'host all postgres all trust'])) \
         TO '{hba}'"
    );
    server::run(&mut owner, &rules).await;
    server.kill_and_start();
    let place = format!("127.0.0.1:{}", server.port());
    for (user, told) in [
        (
            "guarded:s3cret",
            "password authentication failed for user \"guarded\"; check the user and the password",
        ),
        ("guarded", "password authentication failed for user \"guarded\"; check the user and the password"),
        ("encrypted", "no encryption; if the server asks for TLS"),
    ] {
        let mut options = PostgresOptions::new(format!("postgres://{user}@{place}/postgres"));
        // Longer than the test waits: a connection that is tried again would be tried until then.
        options.connect_timeout = SOON * 2;
        let error = in_time("the refusal", PostgresBackend::connect(options)).await.unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Damaged, "{error}");
        let text = format!("{error:?}");
        assert!(text.contains(told) && text.contains(&place) && !text.contains("s3cret"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_server_is_told_why_there_is_no_connection() {
    let Some(server) = Server::of_its_own() else { return };
    let backend = connect_hastily(&server.address(), &schema()).await;
    let told = format!("no connection to PostgreSQL at 127.0.0.1:{}: Connection refused", server.port());
    drop(server);
    let refused = async {
        loop {
            // The connections that were open tell of the server's end first.
            let error = backend.queued().await.unwrap_err();
            assert_eq!(error.kind(), BackendErrorKind::Unavailable, "{error}");
            if error.to_string().contains(&told) {
                return;
            }
        }
    };
    in_time("the cause", refused).await;
}
