//! A page on another node than the owner's, with real notifications.

use std::time::Duration;

use greenroom::Session;
use greenroom_fleet::{Fleet, Update};
use greenroom_testkit::ScriptedCli;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::wait::{SOON, within};
use crate::{connect, schema, server};

fn part(text: &str) -> Value {
    json!({ "type": "stream_event", "parent_tool_use_id": null, "event": {
        "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } } })
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_shown_on_another_node_while_it_is_written_and_a_message_goes_back() {
    let Some(address) = server::address() else { return };
    let (schema, folder) = (schema(), tempfile::tempdir().unwrap());
    let (transport, mut listener) = ScriptedCli::by_hand();
    let node = async || {
        let transport = transport.clone();
        let builder = Fleet::builder()
            .without_watchdog()
            .backend(connect(&address, &schema).await)
            .host("here")
            .folder(folder.path())
            .profile("default", move |_| Session::builder().transport(transport.clone()));
        within(SOON, builder.start()).await.unwrap()
    };
    let owner = node().await;
    let turn =
        within(SOON, owner.tenant("acme").unwrap().session("a").unwrap().prompt("hello")).await.unwrap();
    let mut cli = within(SOON, listener.accept()).await;
    cli.handshake().await;
    let prompt = within(SOON, cli.expect("user")).await;
    for state in ["queued", "started"] {
        cli.message(json!({ "type": "command_lifecycle", "command_uuid": prompt["uuid"], "state": state }));
    }
    cli.begin_turn();

    let other = node().await;
    let mut updates = other.operator().turn(turn.prompt_id()).updates();
    // A byte of it is six in JSON, and NUL is none that PostgreSQL takes.
    let (text, mut written) = ("\u{1}\u{0}\"é🙂 ".repeat(100), String::new());
    let heard = within(SOON, async {
        loop {
            cli.message(part(&text));
            written += &text;
            // The owner hears of the reader after a moment, and notifications may be lost.
            match timeout(Duration::from_millis(500), updates.next()).await {
                Ok(Some(Ok(Update::Delta { text, .. }))) => return text,
                Ok(other) => panic!("{other:?}"),
                Err(_) => {}
            }
        }
    })
    .await;
    assert!(written.contains(&heard), "{heard:?}");
    cli.message(json!({ "type": "assistant", "parent_tool_use_id": null,
        "message": { "model": "m", "content": [{ "type": "text", "text": written }] } }));
    let text = within(SOON, async {
        loop {
            match updates.next().await.unwrap().unwrap() {
                Update::Delta { .. } => {}
                Update::Text { text, .. } => return text,
                other => panic!("{other:?}"),
            }
        }
    });
    assert_eq!(text.await, written);

    let there = other.tenant("acme").unwrap().session("a").unwrap();
    let (steered, message) =
        within(SOON, async { tokio::join!(there.steer("be kind"), cli.expect("user")) }).await;
    steered.unwrap();
    assert!(message.to_string().contains("be kind"), "{message}");
    within(SOON, owner.drain(Duration::from_secs(1))).await;
    let end = within(SOON, updates.next()).await.unwrap().unwrap();
    assert!(matches!(&end, Update::Outcome { outcome, .. } if outcome.word() == "interrupted"), "{end:?}");
    within(SOON, other.drain(Duration::from_secs(1))).await;
}
