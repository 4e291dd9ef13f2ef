//! The service over HTTP, on a scripted CLI. Needs neither the real CLI nor a login.

use std::net::SocketAddr;
use std::time::Duration;

use greenroom_fleet::Fleet;
use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::{Result, run, service};

/// The service in memory while `client` runs, which gets the service's address. The service stops when `client` drops the sender.
async fn serve(
    cli: &ScriptedCli,
    client: impl AsyncFnOnce(SocketAddr, Fleet, oneshot::Sender<()>),
) -> Result<()> {
    let transport = cli.transport();
    let sessions = service::sessions();
    let fleet = sessions
        .profile("default", move |cx| {
            service::session(cx).transport(transport.clone())
        })
        .start()
        .await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let router = service::router(fleet.clone(), service::logins("acme:made-up")?);
    let (stop, stopped) = oneshot::channel();
    let both = async {
        tokio::join!(
            run(fleet.clone(), listener, router, stopped),
            client(address, fleet, stop)
        )
        .0
    };
    tokio::time::timeout(Duration::from_secs(120), both).await?
}

/// Sends a request, and returns its whole answer.
async fn request(address: SocketAddr, line: &str, key: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {key}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream
        .write_all(format!("{head}{body}").as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_prompt_is_answered_with_a_tool_that_knows_the_user() {
    let script = Script::new()
        .turn(ModelTurn::new().call("mcp__account__owner", json!({})))
        .turn(ModelTurn::new().text("You are ada."));
    let cli = ScriptedCli::play(script);
    let ended = serve(&cli, async |address, _, _stop| {
        let ready = request(address, "GET /health/ready", "", "").await;
        assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
        let refused = request(
            address,
            "POST /sessions/ada/prompts",
            "guessed",
            "Who am I?",
        )
        .await;
        assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");

        let accepted = request(
            address,
            "POST /sessions/ada/prompts",
            "made-up",
            "Who am I?",
        )
        .await;
        assert!(accepted.starts_with("HTTP/1.1 202"), "{accepted}");
        let location = accepted
            .lines()
            .find_map(|line| line.strip_prefix("location: "))
            .unwrap();
        let events = request(address, &format!("GET {location}"), "made-up", "").await;
        assert!(events.contains(r#""outcome":"completed""#), "{events}");
        assert!(events.contains("You are ada."), "{events}");
    });
    ended.await.unwrap();
    assert_eq!(cli.tool_results(), ["ada"]);
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
