use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::backend::{PostgresBackend, PostgresOptions};
use crate::wait::{self, in_time};

const SECRET: &str = "s3cret";

/// The error of an opening, which may try for longer than a test waits.
async fn refused(url: &str) -> BackendError {
    let mut options = PostgresOptions::new(url);
    options.connect_timeout = wait::SOON * 4;
    let error = in_time("the refusal", PostgresBackend::connect(options)).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains(SECRET), "{error:?}");
    error
}

/// A stand-in for a server without TLS, which answers each start of a connection with these bytes. Returns its port, and the number of
/// starts.
async fn server(answer: impl Fn(usize) -> Vec<u8> + Send + 'static) -> (u16, Arc<AtomicUsize>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, starts, mut tasks) = (listener.local_addr().unwrap().port(), Arc::default(), JoinSet::new());
    let counted: Arc<AtomicUsize> = Arc::clone(&starts);
    tasks.spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut client, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let mut length = client.read(&mut request).await.unwrap_or(0);
            if length == 8 {
                client.write_all(b"N").await.unwrap();
                length = client.read(&mut request).await.unwrap_or(0);
            }
            if length > 0 {
                let number = counted.fetch_add(1, Ordering::SeqCst);
                client.write_all(&answer(number)).await.unwrap();
                kept.push(client);
            }
        }
    });
    (port, starts, tasks)
}

/// The server's message of an error.
fn says(code: &str, text: &str) -> Vec<u8> {
    let fields = format!("SFATAL\0VFATAL\0C{code}\0M{text}\0\0");
    let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
    [b"E", length.as_slice(), fields.as_bytes()].concat()
}

fn url(port: u16) -> String {
    format!("postgres://fleet:{SECRET}@127.0.0.1:{port}/fleet")
}

#[tokio::test]
async fn a_port_without_a_server_is_told_with_its_place() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let error = refused(&url(port)).await;
    assert_eq!(error.kind(), BackendErrorKind::Unavailable);
    let told = format!("no PostgreSQL server listens at 127.0.0.1:{port}: check the port of the address");
    assert!(error.to_string().starts_with(&told), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let error = refused(&format!("postgres://fleet@localhost/fleet?host={}", folder.path().display())).await;
    let told = format!("no PostgreSQL server listens at {}/.s.PGSQL.5432", folder.path().display());
    assert!(error.to_string().starts_with(&told), "{error}");
}

#[tokio::test]
async fn a_host_that_does_not_resolve_is_told() {
    let error = refused(&format!("postgres://fleet:{SECRET}@no-such-host.invalid/fleet")).await;
    assert_eq!(error.kind(), BackendErrorKind::Unavailable);
    assert!(
        error
            .to_string()
            .contains("the host `no-such-host.invalid` of PostgreSQL's address does not resolve"),
        "{error}"
    );
}

#[tokio::test]
async fn an_address_of_something_else_is_refused_at_once() {
    for (url, told) in [
        (format!("mysql://fleet:{SECRET}@db/fleet"), "begins with `mysql://` is none of PostgreSQL"),
        (format!("http://fleet:{SECRET}@db"), "begins with `http://` is none of PostgreSQL"),
        ("/var/lib/agents/fleet.redb".to_owned(), "`LocalBackend::open` for a file"),
        (format!("fleet:{SECRET}@db://fleet"), "does not begin with `postgres://`"),
        (format!("host=db password={SECRET}"), "does not begin with `postgres://`"),
        (format!("postgres://fleet:{SECRET}@db:port/fleet"), "cannot be read: invalid port number"),
        (format!("postgres://fleet:{SECRET}@db/fleet?sslmode=maybe"), "cannot be read"),
    ] {
        let error = refused(&url).await;
        assert_eq!(error.kind(), BackendErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(told), "{error}");
    }
}

#[tokio::test]
async fn a_refusal_of_the_server_is_told_after_one_attempt() {
    let hba =
        "no pg_hba.conf entry for host \"127.0.0.1\", user \"fleet\", database \"fleet\", no encryption";
    for (code, text, advice) in [
        (
            "28P01",
            "password authentication failed for user \"fleet\"",
            "check the user and the password of the address",
        ),
        ("28000", hba, "if the server asks for TLS"),
        ("3D000", "database \"fleet\" does not exist", "create the database, or check the address"),
    ] {
        let (port, starts, _tasks) = server(move |_| says(code, text)).await;
        let error = refused(&url(port)).await;
        assert_eq!(error.kind(), BackendErrorKind::Damaged, "{error}");
        let told = format!("PostgreSQL at 127.0.0.1:{port} refuses the connection: {text}; {advice}");
        assert!(error.to_string().starts_with(&told), "{error}");
        assert_eq!(format!("{error:?}"), error.to_string(), "the cause is told once");
        assert_eq!(starts.load(Ordering::SeqCst), 1, "{error}");
    }
}

#[tokio::test]
async fn a_server_of_another_protocol_or_without_tls_is_told() {
    for greeting in ["HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (mut client, _) = listener.accept().await.unwrap();
            client.write_all(greeting.as_bytes()).await.unwrap();
            // The client is kept until the test has its error.
            listener.accept().await.unwrap();
        });
        let error = refused(&url(port)).await;
        assert_eq!(error.kind(), BackendErrorKind::Invalid, "{error}");
        assert!(
            error.to_string().contains("does not speak the protocol of PostgreSQL: check the port"),
            "{error}"
        );
    }
    let (port, _, _tasks) = server(|_| Vec::new()).await;
    let error = refused(&format!("{}?sslmode=require", url(port))).await;
    assert_eq!(error.kind(), BackendErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("no connection with TLS to PostgreSQL"), "{error}");
}

/// Tried far longer than a server that is not there: a server after a crash replays its log.
#[tokio::test]
async fn a_server_that_says_that_it_starts_is_tried_again() {
    let (port, starts, _tasks) = server(|number| match number {
        0..30 => says("57P03", "the database system is starting up"),
        _ => says("3D000", "database \"fleet\" does not exist"),
    })
    .await;
    let error = refused(&url(port)).await;
    assert!(error.to_string().contains("does not exist"), "{error}");
    assert_eq!(starts.load(Ordering::SeqCst), 31);
}

#[tokio::test]
async fn a_server_that_starts_for_too_long_is_told_by_its_words() {
    let (port, _, _tasks) = server(|_| says("57P03", "the database system is starting up")).await;
    let mut options = PostgresOptions::new(url(port));
    options.connect_timeout = Duration::from_secs(2);
    let error = in_time("the end", PostgresBackend::connect(options)).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("the database system is starting up; try again"), "{error}");
}

#[tokio::test]
async fn a_late_answer_has_the_failure_of_the_last_attempt_to_connect() {
    use super::super::address::Address;
    use sqlx::query;

    // The first connection is refused, and the next one is never answered.
    let (port, _, _tasks) =
        server(|number| if number == 0 { says("53300", "too many clients") } else { Vec::new() }).await;
    let connections = Connections::new(&Address::read(&url(port)).unwrap(), "", Duration::from_secs(1), 1);
    let refused = connections.answer(query("SELECT 1")).await.unwrap_err();
    assert!(error::of_request(refused).to_string().contains("too many clients"));
    let late = error::of_request(connections.answer(query("SELECT 1")).await.unwrap_err()).to_string();
    let told = "no connection was made within 1s; before that: too many clients";
    assert!(late.contains(told), "{late}");
}
