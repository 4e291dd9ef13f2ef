//! The service over HTTP, on a scripted CLI. Needs neither the real CLI nor a login.

use std::net::SocketAddr;
use std::time::Duration;

use greenroom_fleet::Fleet;
use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::{Result, run, service};

/// The service in memory while `client` runs, which gets the service's address. The service stops when `client` drops the sender,
/// and its fleet has ended then.
async fn serve(
    cli: &ScriptedCli,
    client: impl AsyncFnOnce(SocketAddr, Fleet, oneshot::Sender<()>),
) -> Result<()> {
    let transport = cli.transport();
    let session = move |cx: &_| service::session(cx).transport(transport.clone());
    let sessions = service::sessions().profile("default", session);
    let fleet = sessions.start().await?;
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

/// Sends a request with a key.
async fn send(address: SocketAddr, line: &str, key: &str, body: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {key}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    let request = format!("{head}{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    BufReader::new(stream)
}

/// The rest of an answer.
async fn rest(mut answer: BufReader<TcpStream>) -> String {
    let mut text = String::new();
    answer.read_to_string(&mut text).await.unwrap();
    text
}

/// Sends a prompt of ada, and the request for the events of its turn.
async fn prompt(address: SocketAddr, text: &str) -> BufReader<TcpStream> {
    let answer = rest(send(address, "POST /sessions/ada/prompts", "made-up", text).await).await;
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    let location = |line: &str| line.strip_prefix("location: ").map(str::to_owned);
    let events = answer.lines().find_map(location).unwrap();
    send(address, &format!("GET {events}"), "made-up", "").await
}

/// The model calls the tool, and then it answers.
fn script() -> Script {
    Script::new().turn(ModelTurn::new().call("mcp__account__owner", json!({})))
}

#[tokio::test]
async fn a_prompt_is_answered_with_a_tool_that_knows_the_user() {
    let cli = ScriptedCli::play(script().turn(ModelTurn::new().text("You are ada.")));
    let ended = serve(&cli, async |address, _, _stop| {
        let ready = rest(send(address, "GET /health/ready", "", "").await).await;
        assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
        let events = rest(prompt(address, "Who am I?").await).await;
        assert!(events.contains(r#""outcome":"completed""#), "{events}");
        assert!(events.contains("You are ada."), "{events}");
    });
    ended.await.unwrap();
    assert_eq!(cli.prompts(), ["Who am I?"]);
    assert_eq!(cli.tool_results(), ["ada"]);
}

#[tokio::test]
async fn a_request_without_a_known_key_is_refused() {
    let cli = ScriptedCli::play(Script::new());
    let ended = serve(&cli, async |address, _, _stop| {
        let line = "POST /sessions/ada/prompts";
        let answer = rest(send(address, line, "guessed", "Who am I?").await).await;
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    });
    ended.await.unwrap();
}

#[tokio::test]
async fn a_stop_lets_the_running_turn_end() {
    // The model takes longer for its answer than the service takes to end without a turn.
    let slow = ModelTurn::new().text("You are ada.");
    let cli = ScriptedCli::play(script().turn(slow.pause_before(Duration::from_secs(3))));
    let ended = serve(&cli, async |address, _, stop| {
        let mut events = prompt(address, "Who am I?").await;
        let mut line = String::new();
        while !line.ends_with("event: tool_call\n") {
            assert_ne!(events.read_line(&mut line).await.unwrap(), 0, "{line}");
        }
        drop(stop);
        let events = rest(events).await;
        assert!(events.contains(r#""outcome":"completed""#), "{events}");
    });
    ended.await.unwrap();
}

#[tokio::test]
async fn a_fleet_that_ends_by_itself_is_an_error() {
    let cli = ScriptedCli::play(Script::new());
    let ended = serve(&cli, async |_, fleet, mut stop| {
        fleet.drain(Duration::ZERO).await;
        // The service was not told to stop.
        stop.closed().await;
    });
    assert!(ended.await.unwrap_err().to_string().contains("by itself"));
}
