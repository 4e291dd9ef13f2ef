//! Secrets go to the CLI in `initialize`, and to a CLI that does not support that by arguments or files.

use crate::common::{SOON, event, start_by_hand, stop, within};
use greenroom::options::{Delivery, ExternalServer, OLDEST_CLI};
use greenroom::transport::Exit;
use greenroom::{Error, ErrorKind, Event, Session, SessionBuilder};
use greenroom_testkit::{CliEnd, ScriptedCli};
use serde_json::json;

const SECRET: &str = "hunter2";

/// A session with a secret in a server and in settings.
fn secretive() -> SessionBuilder {
    Session::builder()
        .external_mcp_server("web", ExternalServer::http("https://x").with_header("Authorization", SECRET))
        .settings(json!({ "env": { "TOKEN": SECRET } }))
}

fn args(end: &CliEnd) -> String {
    end.launch().args.join(" ")
}

/// Starts a session whose first CLI is played by `play`, and whose second does the handshake, by arguments.
async fn started_twice(play: impl AsyncFnOnce(CliEnd)) {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let mut builder = secretive().transport(transport);
    let mut events = builder.events();
    let starting = within(SOON, async {
        tokio::join!(builder.start(), async {
            let first = listener.accept().await;
            assert!(args(&first).contains("--await-initialize"), "{}", args(&first));
            assert!(!args(&first).contains(SECRET), "{}", args(&first));
            play(first).await;
            let mut second = listener.accept().await;
            (second.handshake().await, second)
        })
    });
    let (session, (initialize, second)) = starting.await;
    let session = session.unwrap();
    assert!(!args(&second).contains("initialize"), "{}", args(&second));
    assert!(!args(&second).contains(SECRET), "{}", args(&second));
    for flag in ["--mcp-config=", "--settings="] {
        let file = second.launch().args.iter().find_map(|arg| arg.strip_prefix(flag)).unwrap();
        assert!(std::fs::read_to_string(file).unwrap().contains(SECRET));
    }
    assert!(!initialize.to_string().contains(SECRET), "{initialize}");
    let reregistered = |event: &Event| match event {
        Event::CliReregistered { epoch } => Some(*epoch),
        _ => None,
    };
    assert_eq!(event(&mut events, reregistered).await, 1);
    assert_eq!(crate::common::counters(&session).await.cli_restarts, 0, "that was no crash");
    stop(session, second).await;
}

// Guards: the CLI takes secrets only by arguments
#[tokio::test(start_paused = true)]
async fn a_cli_that_knows_no_such_flag_is_told_by_arguments() {
    started_twice(async |first| {
        (first.launch().command.stderr)("error: unknown option '--await-initialize'");
        first.exit(Exit::Code(1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cli_that_does_not_say_that_it_took_them_is_told_by_arguments() {
    started_twice(async |mut first| {
        let initialize = first.expect_request("initialize").await;
        assert_eq!(initialize["request"]["settings"]["env"]["TOKEN"], SECRET);
        assert_eq!(initialize["request"]["mcpServers"]["web"]["headers"]["Authorization"], SECRET);
        first.answer(&initialize, json!({ "claude_code_version": OLDEST_CLI, "settings_applied": true }));
        first.run_out().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn settings_that_were_seen_and_not_taken_are_not_gone_without() {
    started_twice(async |mut first| {
        let initialize = first.expect_request("initialize").await;
        let answer = json!({ "claude_code_version": OLDEST_CLI, "settings_applied": false, "mcp_servers_applied": true });
        first.answer(&initialize, answer);
        first.run_out().await;
    })
    .await;
}

/// Starts a session that must not tell by arguments, with one CLI.
async fn refused(play: impl AsyncFnOnce(CliEnd)) -> Error {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let builder = secretive().configure(|options| options.delivery = Delivery::Initialize);
    let (started, ()) = within(SOON, async {
        tokio::join!(builder.transport(transport).start(), async { play(listener.accept().await).await })
    })
    .await;
    started.map(drop).unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn without_arguments_an_old_cli_is_refused() {
    let error = refused(async |mut cli| {
        let initialize = cli.expect_request("initialize").await;
        cli.answer(&initialize, json!({ "claude_code_version": OLDEST_CLI }));
        cli.run_out().await;
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::InitializeRefused);
    assert!(error.to_string().contains("`mcpServers`"), "{error}");

    let error = refused(async |cli| {
        (cli.launch().command.stderr)("error: unknown option '--await-initialize'");
        cli.exit(Exit::Code(1));
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::CliExited);
    assert!(error.to_string().contains("--await-initialize"), "{error}");
    assert!(error.to_string().contains("update the CLI"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn servers_that_the_cli_did_not_take_are_told_of() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let mut builder =
        Session::builder().external_mcp_server("web", ExternalServer::http("https://x")).transport(transport);
    let mut events = builder.events();
    let (session, cli) = within(SOON, async {
        tokio::join!(builder.start(), async {
            let mut cli = listener.accept().await;
            let initialize = cli.expect_request("initialize").await;
            cli.answer(
                &initialize,
                json!({ "claude_code_version": OLDEST_CLI, "mcp_servers_applied": false }),
            );
            cli
        })
    })
    .await;
    let lost = |event: &Event| match event {
        Event::SettingLost { subtype, reason, .. } => Some((subtype.clone(), reason.clone())),
        _ => None,
    };
    let (subtype, reason) = event(&mut events, lost).await;
    assert_eq!(subtype, "initialize");
    assert!(reason.contains("`mcpServers`"), "{reason}");
    stop(session.unwrap(), cli).await;
}

#[tokio::test(start_paused = true)]
async fn prompts_say_that_they_are_verbatim_when_they_are() {
    for verbatim in [false, true] {
        let builder = Session::builder().configure(|options| options.verbatim_prompts = verbatim);
        let (session, mut cli, _listener) = start_by_hand(builder).await;
        let _turn = session.prompt("@file").await.unwrap();
        let prompt = cli.expect("user").await;
        assert_eq!(prompt.get("client_composed"), verbatim.then_some(&json!(true)));
        cli.finish_turn(&prompt, "Fine.");
        stop(session, cli).await;
    }
}
