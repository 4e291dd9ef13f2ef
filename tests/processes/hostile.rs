//! A CLI that does everything wrong with its bytes, over pipes in memory. `sessions` has what it does as a process.

use std::time::Duration;

use crate::common::counters;
use crate::wait::{SOON, within};
use futures_util::future::BoxFuture;
use greenroom::options::{Restart, Timeouts};
use greenroom::transport::{Connection, Exit, Launch, MemoryTransport, Transport};
use greenroom::{Outcome, Session, SessionBuilder, Turn};
use greenroom_testkit::{CliEnd, ModelTurn, Script, ScriptedCli};
use serde_json::json;

const MIB: usize = 1 << 20;

/// A session whose waits are short.
fn hasty() -> SessionBuilder {
    let short = Duration::from_millis(300);
    Session::builder().configure(|options| {
        options.lock_dir = crate::locks();
        options.restarts.cli =
            Restart { backoff_min: Duration::ZERO, backoff_max: Duration::ZERO, ..Restart::default() };
        options.timeouts = Timeouts {
            drain: short,
            exit_after_eof: short,
            exit_after_term: short,
            cancel_grace: short,
            ..Timeouts::default()
        };
    })
}

/// A session whose CLI is played by the test.
async fn by_hand() -> (Session, CliEnd) {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let (session, end) = tokio::join!(hasty().transport(transport).start(), async {
        let mut end = listener.accept().await;
        end.handshake().await;
        end
    });
    (session.unwrap(), end)
}

async fn outcome(turn: &mut Turn) -> Outcome {
    within(SOON, turn.outcome()).await.unwrap()
}

#[tokio::test]
async fn what_is_no_utf8_is_a_message_with_replaced_characters() {
    let (session, mut end) = by_hand().await;
    let mut turn = session.prompt("hello").await.unwrap();
    let prompt = end.expect("user").await;
    end.begin_turn();
    let message = br#"{"type":"assistant","parent_tool_use_id":null,"message":{"id":"msg_broken","type":"message","role":"assistant","model":"scripted","content":[{"type":"text","text":"caf"#;
    end.send_bytes([message.as_slice(), b"\xE9 \xF0\x9F\x8E\"}]}}\n\xFF\xFE\n"].concat());
    end.finish_turn(&prompt, "hi");
    let mut texts = Vec::new();
    while let Some(message) = within(SOON, turn.next()).await {
        texts.extend(message.text().map(|text| text.to_string()));
    }
    assert!(texts.iter().any(|text| text.starts_with("caf\u{FFFD} ")), "{texts:?}");
    assert_eq!(outcome(&mut turn).await.text(), Some("hi"));
    assert_eq!(counters(&session).await.malformed_lines, 0);
    let (stopped, ()) = tokio::join!(session.stop(), end.run_out());
    stopped.unwrap();
}

#[tokio::test]
async fn an_exit_code_at_the_end_of_input_is_no_crash() {
    let (session, mut end) = by_hand().await;
    let (stopped, ()) = tokio::join!(within(SOON, session.stop()), async {
        while end.recv().await.is_some() {}
        end.exit(Exit::Code(9));
    });
    stopped.unwrap();
}

#[tokio::test]
async fn what_was_sent_before_an_exit_is_read() {
    let (session, mut end) = by_hand().await;
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
    let mut turn = session.prompt("hello").await.unwrap();
    assert_eq!(outcome(&mut turn).await.text(), Some("né 语 🎭 \u{2028}"));
    session.stop().await.unwrap();
}
