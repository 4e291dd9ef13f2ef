//! Number of allocations for each message.

use crate::alone;
use crate::common::{SOON, within};
use crate::count::asked_here;
use greenroom::options::OLDEST_CLI;
use greenroom::{Message, Session, transport};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

const PIECE: &str = concat!(
    r#"{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","#,
    r#""text":"a few words of the answer"}},"session_id":"s","parent_tool_use_id":null,"#,
    "\"uuid\":\"6f1c2a34-5b6d-4e7f-8a90-b1c2d3e4f506\"}\n"
);

#[tokio::test]
async fn partial_messages_take_at_most_five_allocations_each() {
    const MESSAGES: usize = 4000;
    let _alone = alone().await;
    let (transport, mut listener) = transport::memory();
    let (session, (_cli, mut stdin, mut stdout)) = within(SOON, async {
        tokio::join!(Session::builder().transport(transport).start(), async {
            let mut cli = listener.accept().await.unwrap();
            let (stdin, mut stdout) = cli.take_pipes();
            let mut stdin = BufReader::new(stdin);
            let mut line = String::new();
            stdin.read_line(&mut line).await.unwrap();
            let initialize: Value = serde_json::from_str(&line).unwrap();
            let answer = json!({ "type": "control_response", "response": {
                "subtype": "success", "request_id": initialize["request_id"], "response": { "claude_code_version": OLDEST_CLI },
            } });
            stdout.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
            (cli, stdin, stdout)
        })
    })
    .await;
    let session = session.unwrap();
    let mut turn = session.prompt("talk").await.unwrap();
    within(SOON, stdin.read_line(&mut String::new())).await.unwrap();
    // The first message warms up: allocations that happen once are not counted.
    let lines = PIECE.repeat(MESSAGES);
    let mut shown = 0;
    for part in [PIECE, &lines] {
        let count = part.len() / PIECE.len();
        let before = asked_here();
        let reads = async {
            for _ in 0..count {
                let message = turn.next().await.unwrap();
                let Message::StreamEvent(piece) = &message else { panic!("{message:?}") };
                shown += piece.text_delta().unwrap().len();
            }
        };
        within(SOON, async {
            tokio::join!(reads, async { stdout.write_all(part.as_bytes()).await.unwrap() })
        })
        .await;
        let asked = asked_here() - before;
        assert!(count == 1 || asked <= 5 * count, "{asked} allocations for {count} messages");
    }
    assert!(shown > MESSAGES);
}
