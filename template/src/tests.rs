//! The service over HTTP, on a scripted CLI. Needs neither the real CLI nor a login.

use std::net::SocketAddr;
use std::time::Duration;

use greenroom::transport::MemoryTransport;
use greenroom_fleet::Fleet;
use greenroom_fleet::backend::MemoryBackend;
use greenroom_fleet::testkit::FleetFault;
use greenroom_testkit::{CliEnd, ModelTurn, Script, ScriptedCli, ScriptedListener};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::{Result, run, service};

/// The service in memory while `client` runs, which gets the service's address. The service stops when `client` drops the sender,
/// and its fleet has ended then.
async fn serve(
    transport: MemoryTransport,
    client: impl AsyncFnOnce(SocketAddr, Fleet, oneshot::Sender<()>),
) -> Result<()> {
    serve_on(MemoryBackend::new(), transport, client).await
}

async fn serve_on(
    backend: MemoryBackend,
    transport: MemoryTransport,
    client: impl AsyncFnOnce(SocketAddr, Fleet, oneshot::Sender<()>),
) -> Result<()> {
    let session = move |cx: &_| service::session(cx).transport(transport.clone());
    let sessions = service::sessions().profile("default", session);
    let fleet = sessions.backend(backend).start().await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let router = service::router(fleet.clone(), service::logins("acme:made-up")?);
    let (stop, stopped) = oneshot::channel();
    let service = async {
        let ended = run(fleet.clone(), listener, router, stopped).await;
        assert!(timeout(Duration::ZERO, fleet.wait()).await.is_ok());
        ended
    };
    let both = async { tokio::join!(service, client(address, fleet.clone(), stop)).0 };
    timeout(Duration::from_secs(120), both).await?
}

/// Sends a request with a key and these other headers, and returns the answer.
async fn send(address: SocketAddr, line: &str, key: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {key}\r\ncontent-length: {length}\r\n{headers}connection: close\r\n\r\n"
    );
    let request = format!("{head}{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

async fn get(address: SocketAddr, path: &str) -> String {
    send(address, &format!("GET {path}"), "made-up", "", "").await
}

/// Sends a prompt of ada, and returns the path of the events of its turn.
async fn prompt(address: SocketAddr, text: &str) -> String {
    let answer = send(address, "POST /sessions/ada/prompts", "made-up", "", text).await;
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    let location = |line: &str| line.strip_prefix("location: ").map(str::to_owned);
    answer.lines().find_map(location).unwrap()
}

/// The CLI that the fleet starts next. The test plays it.
async fn accept(listener: &mut ScriptedListener) -> CliEnd {
    let mut cli = listener.accept().await;
    cli.handshake().await;
    cli
}

#[tokio::test]
async fn a_prompt_is_answered_with_a_tool_that_knows_the_customer() {
    let script = Script::new()
        .turn(ModelTurn::new().call("mcp__account__owner", json!({})))
        .turn(ModelTurn::new().text("You are ada."));
    let cli = ScriptedCli::play(script);
    let ended = serve(cli.transport(), async |address, _, _stop| {
        let ready = send(address, "GET /health/ready", "", "", "").await;
        assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
        let events = prompt(address, "Who am I?").await;
        let events = get(address, &events).await;
        assert!(events.contains(r#""outcome":"completed""#), "{events}");
        assert!(events.contains("You are ada."), "{events}");
    });
    ended.await.unwrap();
    assert_eq!(cli.prompts(), ["Who am I?"]);
    assert_eq!(cli.tool_results(), ["ada"]);
}

#[tokio::test]
async fn a_request_without_a_known_key_or_of_another_origin_is_refused() {
    let cli = ScriptedCli::play(Script::new());
    let ended = serve(cli.transport(), async |address, _, _stop| {
        let line = "POST /sessions/ada/prompts";
        for key in ["guessed", ""] {
            let answer = send(address, line, key, "", "Who am I?").await;
            assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        }
        let foreign = "origin: http://other\r\n";
        let answer = send(address, line, "made-up", foreign, "Who am I?").await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    });
    ended.await.unwrap();
    assert_eq!(cli.prompts(), [""; 0]);
}

#[test]
fn bad_keys_are_refused_without_showing_them() {
    assert_eq!(service::logins("acme:one acme:two").unwrap().len(), 2);
    for keys in [
        "sesame",
        "acme:",
        ":sesame",
        "acme:made-up sesame",
        "acme:sesame umbrella:sesame",
    ] {
        let error = service::logins(keys).unwrap_err().to_string();
        assert!(error.contains("`API_KEYS`"), "{keys}: {error}");
        assert!(!error.contains("sesame"), "{keys}: {error}");
    }
}

#[tokio::test]
async fn a_stop_lets_the_running_turn_end() {
    let (transport, mut clis) = ScriptedCli::by_hand();
    let ended = serve(transport, async |address, _, stop| {
        let (events, mut cli) = tokio::join!(prompt(address, "Who am I?"), accept(&mut clis));
        let asked = cli.expect("user").await;
        cli.begin_turn();
        drop(stop);
        // The service goes on to answer while it drains.
        let is_ready = async || {
            let ready = get(address, "/health/ready").await;
            !ready.starts_with("HTTP/1.1 503")
        };
        while is_ready().await {}
        cli.finish_turn(&asked, "You are ada.");
        let (events, ()) = tokio::join!(get(address, &events), cli.run_out());
        assert!(events.contains(r#""outcome":"completed""#), "{events}");
        assert!(events.contains("You are ada."), "{events}");
    });
    ended.await.unwrap();
}

#[tokio::test]
async fn a_turn_that_a_drain_cuts_off_goes_on_after_the_restart() {
    let backend = MemoryBackend::new();
    let mut events = String::new();
    let (transport, mut clis) = ScriptedCli::by_hand();
    // An operator's drain is no error.
    let ended = serve_on(
        backend.clone(),
        transport,
        async |address, fleet, mut stop| {
            let (turn, mut cli) = tokio::join!(prompt(address, "Who am I?"), accept(&mut clis));
            events = turn;
            cli.expect("user").await;
            cli.begin_turn();
            tokio::join!(fleet.drain(Duration::ZERO), cli.run_out());
            // The service has ended, and was not told to stop.
            stop.closed().await;
        },
    );
    ended.await.unwrap();

    let (transport, mut clis) = ScriptedCli::by_hand();
    let ended = serve_on(backend, transport, async |address, _, stop| {
        let mut cli = accept(&mut clis).await;
        let asked = cli.expect("user").await;
        assert!(asked.to_string().contains(service::GO_ON), "{asked}");
        cli.begin_turn();
        cli.finish_turn(&asked, "You are ada.");
        let events = get(address, &events).await;
        assert!(events.contains(r#""outcome":"completed""#), "{events}");
        drop(stop);
        cli.run_out().await;
    });
    ended.await.unwrap();
}

#[tokio::test]
async fn a_fleet_that_fails_is_an_error() {
    let cli = ScriptedCli::play(Script::new());
    let ended = serve(cli.transport(), async |_, fleet, mut stop| {
        fleet.inject(FleetFault::Supervisor);
        // The service was not told to stop.
        stop.closed().await;
    });
    assert!(ended.await.unwrap_err().to_string().contains("by itself"));
}
