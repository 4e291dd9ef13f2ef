//! A CLI that does everything wrong, as a real process where a process is what goes wrong, and over bare pipes where
//! bytes are.

use std::time::Duration;

use crate::common::counters;
use crate::timeline;
use crate::wait::{SOON, within};
use futures_util::future::BoxFuture;
use greenroom::options::{Restart, Timeouts};
use greenroom::report::{ExitCause, InterruptedBy};
use greenroom::transport::{Connection, Exit, Launch, MemoryTransport, Transport};
use greenroom::{ErrorKind, NoArgs, Outcome, Session, SessionBuilder, ToolServer, Turn};
use greenroom_testkit::{FakeCli, ModelTurn, Script, ScriptedCli};
use serde_json::json;

const MIB: usize = 1 << 20;

// ---- as a process -----------------------------------------------------------------------------------------

fn clock() -> ToolServer {
    ToolServer::new("clock", "1.0.0").tool("now", "The time", async |_: NoArgs| "noon")
}

/// A prompt that needs the tool, so many times.
fn script(prompts: usize) -> Script {
    (0..prompts).fold(Script::new(), |script, _| {
        script
            .turn(ModelTurn::new().text("Let me see.").call("mcp__clock__now", json!({})))
            .turn(ModelTurn::new().text("It is noon."))
    })
}

/// A session whose waits are short and whose CLI is restarted at once.
fn hasty() -> SessionBuilder {
    let short = Duration::from_millis(300);
    Session::builder().mcp_server(clock()).allow_server_tools("clock").configure(|options| {
        options.lock_dir = crate::locks();
        options.restarts.cli =
            Restart { backoff_min: Duration::ZERO, backoff_max: Duration::ZERO, ..Restart::default() };
        options.timeouts = Timeouts {
            drain: short,
            exit_after_eof: short,
            exit_after_term: short,
            cancel_grace: short,
            // On a busy machine the search for processes may take seconds, and `stop` says then that it knows nothing.
            reap: SOON,
            ..Timeouts::default()
        };
    })
}

async fn start(cli: &FakeCli) -> Session {
    within(SOON, timeline::watched(hasty(), cli.transport()).start()).await.unwrap()
}

async fn prompt(session: &Session) -> Outcome {
    let mut turn = session.prompt("What time is it?").await.unwrap();
    outcome(&mut turn).await
}

async fn outcome(turn: &mut Turn) -> Outcome {
    within(SOON, turn.outcome()).await.unwrap()
}

/// The session calls its tool and says so.
async fn works(session: &Session) {
    let outcome = prompt(session).await;
    assert_eq!(outcome.text(), Some("It is noon."), "{outcome:?}");
}

/// Stops, and leaves nobody behind.
async fn stop(session: Session, cli: FakeCli) {
    within(SOON, session.stop()).await.unwrap();
    within(SOON, cli.gone()).await;
}

/// The exit of the CLI that interrupted a turn.
fn exit(outcome: &Outcome) -> Exit {
    match outcome {
        Outcome::Interrupted {
            by: InterruptedBy::CliExit { cause: ExitCause::Exited { exit, .. } }, ..
        } => *exit,
        other => panic!("not interrupted by the CLI's end: {other:?}"),
    }
}

#[tokio::test]
async fn a_fake_cli_that_behaves_plays_its_script() {
    let cli = FakeCli::play(script(2));
    let session = start(&cli).await;
    works(&session).await;
    works(&session).await;
    assert_eq!((cli.tool_results(), cli.turns_played()), (vec!["noon".to_owned(); 2], 4));
    assert_eq!((cli.incarnations(), counters(&session).await.malformed_lines), (1, 0));
    assert!(cli.args()[0].iter().any(|arg| arg.starts_with("--allowedTools=")), "{:?}", cli.args());
    stop(session, cli).await;
}

#[tokio::test]
async fn a_fake_cli_that_is_old_learns_of_servers_by_mcp_config() {
    let cli = FakeCli::play_old(script(1));
    let session = start(&cli).await;
    works(&session).await;
    assert_eq!(cli.incarnations(), 2, "it is started once more with the config");
    stop(session, cli).await;
}

// Guards: `stop()`
#[tokio::test]
async fn stop_ends_a_cli_that_ignores_sigterm_and_its_grandchildren() {
    let cli = FakeCli::play(script(1)).ignore_sigterm().fork_grandchild();
    let session = start(&cli).await;
    works(&session).await;
    stop(session, cli).await;
}

#[tokio::test]
async fn a_grandchild_that_holds_the_pipes_does_not_delay_the_restart() {
    let cli = FakeCli::play(script(1)).fork_grandchild().crash_on_prompt(1, Exit::Code(3)).times(1);
    let session = start(&cli).await;
    assert_eq!(exit(&prompt(&session).await), Exit::Code(3));
    works(&session).await;
    stop(session, cli).await;
}

// Guards: the CLI exits, is killed, closes stdout, stops reading stdin
#[tokio::test]
async fn the_cli_exits_or_is_killed_and_the_session_goes_on() {
    for end in
        [Exit::Code(0), Exit::Code(7), Exit::Code(255), Exit::Signal(9), Exit::Signal(15), Exit::Signal(6)]
    {
        let cli = FakeCli::play(script(2)).crash_on_prompt(2, end).times(1);
        let session = start(&cli).await;
        works(&session).await;
        assert_eq!(exit(&prompt(&session).await), end);
        works(&session).await;
        let resumed = &cli.args()[1];
        assert!(resumed.iter().any(|arg| arg.starts_with("--resume=")), "{resumed:?}");
        assert_eq!(cli.tool_results(), ["noon", "noon"]);
        stop(session, cli).await;
    }
}

#[tokio::test]
async fn the_cli_is_killed_while_a_tool_runs_and_the_session_goes_on() {
    let cli = FakeCli::play(script(2)).crash_in_call(1, Exit::Signal(9)).times(1);
    let session = start(&cli).await;
    assert_eq!(exit(&prompt(&session).await), Exit::Signal(9));
    // The model's first turn was played; the second goes on after it.
    assert_eq!(prompt(&session).await.text(), Some("It is noon."));
    works(&session).await;
    assert_eq!(cli.tool_results(), ["noon"]);
    stop(session, cli).await;
}

// Guards: the CLI exits, is killed, closes stdout, stops reading stdin
#[tokio::test]
async fn the_cli_closes_stdout_and_lives_on() {
    let cli = FakeCli::play(script(1)).close_stdout().times(1);
    let session = start(&cli).await;
    match prompt(&session).await {
        Outcome::Interrupted {
            by: InterruptedBy::CliExit { cause: ExitCause::StdoutClosed { .. } }, ..
        } => {}
        other => panic!("{other:?}"),
    }
    works(&session).await;
    stop(session, cli).await;
}

// Guards: the CLI exits, is killed, closes stdout, stops reading stdin
#[tokio::test]
async fn the_cli_stops_reading_stdin() {
    let cli = FakeCli::play(script(2)).stop_reading_after_initialize().times(1);
    let builder = hasty().configure(|options| options.timeouts.stdin_stall = Duration::from_secs(2));
    let session = within(SOON, builder.transport(cli.transport()).start()).await.unwrap();
    // More than a pipe holds.
    let mut turn = session.prompt("x".repeat(4 * MIB)).await.unwrap();
    match outcome(&mut turn).await {
        Outcome::Interrupted {
            by: InterruptedBy::CliExit { cause: ExitCause::StdinBroken { .. } }, ..
        } => {}
        // No CLI has begun with the prompt, so the next CLI may have got it.
        Outcome::Completed { .. } => {}
        other => panic!("{other:?}"),
    }
    works(&session).await;
    assert_eq!(cli.incarnations(), 2);
    stop(session, cli).await;
}

#[tokio::test]
async fn half_a_line_and_an_exit() {
    let cli = FakeCli::play(script(1)).half_line_then_exit().times(1);
    let session = start(&cli).await;
    assert_eq!(exit(&prompt(&session).await), Exit::Code(0));
    works(&session).await;
    assert_eq!(counters(&session).await.malformed_lines, 1);
    stop(session, cli).await;
}

#[tokio::test]
async fn what_is_no_utf8_is_a_message_with_replaced_characters() {
    let cli = FakeCli::play(script(1)).invalid_utf8();
    let session = start(&cli).await;
    let mut turn = session.prompt("What time is it?").await.unwrap();
    let mut texts = Vec::new();
    while let Some(message) = within(SOON, turn.next()).await {
        texts.extend(message.text().map(|text| text.to_string()));
    }
    assert!(texts.iter().any(|text| text.starts_with("caf\u{FFFD} ")), "{texts:?}");
    assert_eq!(outcome(&mut turn).await.text(), Some("It is noon."));
    stop(session, cli).await;
}

#[tokio::test]
async fn a_request_id_that_is_in_flight_and_answers_to_nobody() {
    let cli = FakeCli::play(script(1)).ask_twice().answer_nobody();
    let session = start(&cli).await;
    works(&session).await;
    let counters = counters(&session).await;
    assert_eq!((counters.unmatched_responses, counters.unmatched_cancels), (1, 1), "{counters:?}");
    assert_eq!(cli.tool_results(), ["noon"]);
    stop(session, cli).await;
}

#[tokio::test]
async fn a_cli_that_floods_stderr() {
    let cli = FakeCli::play(script(1)).flood_stderr(8 * MIB).stderr("here I am");
    let session = start(&cli).await;
    works(&session).await;
    stop(session, cli).await;
}

#[tokio::test]
async fn a_cli_that_floods_stdout_with_requests_is_answered_and_calls_its_tool() {
    let asks =
        r#"{"type":"control_request","request_id":"flood_{n}","request":{"subtype":"of_another_age"}}"#;
    let cli = FakeCli::play(script(1)).flood_stdout(asks, 10_000).flood_stdout("", 10_000).long_line(MIB);
    let session = start(&cli).await;
    works(&session).await;
    let counters = counters(&session).await;
    assert_eq!(counters.unknown_requests + counters.at_capacity, 10_000, "{counters:?}");
    assert!(counters.noise_lines >= 10_000, "{counters:?}");
    stop(session, cli).await;
}

#[tokio::test]
async fn a_cli_that_does_not_start_is_a_typed_error() {
    // A CLI that says nothing or nonsense is waited for until the limit, which leaves a busy machine time to start it.
    let (limit, brief) = (SOON * 2, Duration::from_secs(5));
    for (cli, limit, kind) in [
        (FakeCli::play(script(0)).exit_at_start(3, "your licence has run out"), limit, ErrorKind::CliExited),
        (FakeCli::play(script(0)).hang_initialize().fork_grandchild(), brief, ErrorKind::StartTimeout),
        (FakeCli::play(script(0)).garbage(), brief, ErrorKind::NotTheProtocol),
    ] {
        let builder = hasty().configure(|options| options.timeouts.start = limit);
        let error = within(SOON, builder.transport(cli.transport()).start()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error:?}");
        if kind == ErrorKind::CliExited {
            assert!(
                error.stderr().unwrap().contains("licence") && error.to_string().contains("code 3"),
                "{error}"
            );
        }
        within(SOON, cli.gone()).await;
    }
}

#[tokio::test]
async fn an_exit_code_at_the_end_of_input_is_no_crash() {
    let cli = FakeCli::play(script(1)).exit_code(9);
    let session = start(&cli).await;
    works(&session).await;
    stop(session, cli).await;
}

// ---- over pipes in memory ---------------------------------------------------------------------------------

#[tokio::test]
async fn what_was_sent_before_an_exit_is_read() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let (session, mut end) = tokio::join!(hasty().transport(transport).start(), async {
        let mut end = listener.accept().await;
        end.handshake().await;
        end
    });
    let session = session.unwrap();
    let mut turn = session.prompt("hello").await.unwrap();
    let prompt = end.expect("user").await;
    end.begin_turn();
    // More than a pipe holds.
    end.message(json!({ "type": "of_another_age", "filler": "x".repeat(MIB) }));
    end.finish_turn(&prompt, "hi");
    end.exit(Exit::Code(1));
    assert_eq!(outcome(&mut turn).await.text(), Some("hi"));
}

/// A host that does not read.
struct Deaf(MemoryTransport);

impl Transport for Deaf {
    fn open(&self, launch: Launch) -> BoxFuture<'static, greenroom::Result<Connection>> {
        let opening = self.0.open(launch);
        Box::pin(async move { Ok(Connection { reader: Box::new(tokio::io::empty()), ..opening.await? }) })
    }
}

#[tokio::test]
async fn an_exit_does_not_wait_for_a_host_that_reads_no_more() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let starting = hasty().transport(Deaf(transport)).start();
    let (started, ()) = within(SOON, async {
        tokio::join!(starting, async {
            let mut end = listener.accept().await;
            end.send(json!({ "type": "of_another_age", "filler": "x".repeat(MIB) }));
            end.exit(Exit::Code(4));
        })
    })
    .await;
    started.unwrap_err();
}

/// Characters of up to four bytes, in reads of one byte each.
#[tokio::test]
async fn utf8_that_is_split_between_reads_is_whole() {
    let script = Script::new().turn(ModelTurn::new().text("né 语 🎭 \u{2028}"));
    let cli = ScriptedCli::play(script);
    let session = hasty().transport(cli.transport().with_buffer_bytes(1)).start().await.unwrap();
    assert_eq!(prompt(&session).await.text(), Some("né 语 🎭 \u{2028}"));
    session.stop().await.unwrap();
}

#[tokio::test]
async fn a_test_file_without_the_fake_cli_is_told_so() {
    let cli = FakeCli::play(script(0)).in_module("elsewhere");
    let error = within(SOON, hasty().transport(cli.transport()).start()).await.unwrap_err();
    assert!(error.to_string().contains("elsewhere::greenroom_fake_cli"), "{error}");
    assert!(error.help().unwrap().contains("greenroom_testkit::fake_cli!()"), "{error:?}");
}
