//! What a message costs: the heap is asked a bounded number of times for each.

#![allow(clippy::unwrap_used, reason = "in the helpers of tests, too")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{SOON, within};
use greenroom::{Message, Session, transport};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

/// Counts how often the heap is asked.
struct Heap;

static ASKED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed on to the system allocator as it came; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are those that the system allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ASKED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static HEAP: Heap = Heap;

const PIECE: &str = concat!(
    r#"{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","#,
    r#""text":"a few words of the answer"}},"session_id":"s","parent_tool_use_id":null,"#,
    "\"uuid\":\"6f1c2a34-5b6d-4e7f-8a90-b1c2d3e4f506\"}\n"
);

#[tokio::test]
async fn a_partial_message_that_is_read_and_shown_asks_the_heap_five_times_at_most() {
    const MESSAGES: usize = 4000;
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
                "subtype": "success", "request_id": initialize["request_id"], "response": { "commands": [] },
            } });
            stdout.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
            (cli, stdin, stdout)
        })
    })
    .await;
    let session = session.unwrap();
    let mut turn = session.prompt("talk").await.unwrap();
    within(SOON, stdin.read_line(&mut String::new())).await.unwrap();
    // Everything that is made once is made with the first.
    let lines = PIECE.repeat(MESSAGES);
    let mut shown = 0;
    for part in [PIECE, &lines] {
        let count = part.len() / PIECE.len();
        let before = ASKED.load(Ordering::Relaxed);
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
        let asked = ASKED.load(Ordering::Relaxed) - before;
        assert!(count == 1 || asked <= 5 * count, "{asked} allocations for {count} messages");
    }
    assert!(shown > MESSAGES);
}
