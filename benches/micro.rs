//! Measures the parts of a call's way one by one: `cargo bench --bench micro`. Use it to see the effect of a change to
//! one part; `docs/performance.md` has the cost of a whole call.

use divan::counter::{BytesCount, ItemsCount};
use divan::{AllocProfiler, Bencher, black_box};
use greenroom::internals::{Books, LineCodec, McpDispatch, answer, is_call, is_frame};
use greenroom::{ToolDef, ToolServer};
use serde_json::value::RawValue;

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// Texts of a call: a small one and a large one.
const PAYLOADS: [usize; 2] = [64, 256 << 10];

fn message(payload: usize) -> String {
    let text = ".".repeat(payload);
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1000001,\"method\":\"tools/call\",\"params\":{{\"name\":\"echo\",\
         \"arguments\":{{\"text\":\"{text}\"}},\"_meta\":{{\"claudecode/toolUseId\":\"toolu_1000001\",\
         \"progressToken\":1000001}}}}}}"
    )
}

fn call(payload: usize) -> String {
    format!(
        "{{\"type\":\"control_request\",\"request_id\":\"call_1000001\",\"request\":{{\"subtype\":\"mcp_message\",\
         \"server_name\":\"bench0\",\"message\":{}}}}}\n",
        message(payload)
    )
}

const DELTA: &str = "{\"type\":\"stream_event\",\"event\":{\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
{\"type\":\"text_delta\",\"text\":\"a few words of the answer\"}},\"session_id\":\"bench\",\"parent_tool_use_id\":null,\
\"uuid\":\"6f1c2a34-5b6d-4e7f-8a90-b1c2d3e4f506\"}";

/// Bytes into lines: 64 lines in one read, or one line in several.
#[divan::bench(args = PAYLOADS)]
fn codec(bencher: Bencher<'_, '_>, payload: usize) {
    let chunk = call(payload).repeat(if payload > 4096 { 1 } else { 64 });
    let mut lines = LineCodec::new(64 << 20);
    bencher.counter(BytesCount::of_str(&chunk)).bench_local(|| {
        let mut bytes = 0;
        lines.push(black_box(chunk.as_bytes()), |line| bytes += line.map_or_else(|long| long, <[u8]>::len));
        bytes
    });
}

/// A line that is plainly a call, read in one pass.
#[divan::bench(args = PAYLOADS)]
fn envelope_call(bencher: Bencher<'_, '_>, payload: usize) {
    let line = call(payload);
    bencher.bench(|| is_call(black_box(line.trim_end().as_bytes())));
}

/// The line of a call, read layer by layer like any other request.
#[divan::bench(args = PAYLOADS)]
fn envelope_layers(bencher: Bencher<'_, '_>, payload: usize) {
    let line = call(payload);
    bencher.bench(|| is_frame(black_box(line.trim_end().as_bytes())));
}

/// A piece of a message, which goes to the conversation.
#[divan::bench]
fn envelope_message() -> bool {
    is_frame(black_box(DELTA.as_bytes()))
}

/// An answer as a line.
#[divan::bench(args = PAYLOADS)]
fn envelope_answer(bencher: Bencher<'_, '_>, payload: usize) {
    let text = || ".".repeat(payload);
    bencher.with_inputs(text).bench_values(|text| answer("call_1000001", "1000001", black_box(text)));
}

/// A number of requests that are entered in one read, and settled.
#[divan::bench(args = [1, 64, 10_000])]
fn ledger(bencher: Bencher<'_, '_>, requests: usize) {
    let books = Books::open();
    let request_ids: Vec<String> = (0..requests).map(|n| format!("call_{n:07}")).collect();
    bencher.counter(ItemsCount::new(requests)).bench_local(|| books.round(black_box(&request_ids)));
}

/// Turns a JSON-RPC message into a call.
#[divan::bench(args = PAYLOADS)]
fn dispatch(bencher: Bencher<'_, '_>, payload: usize) {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Echo {
        text: String,
    }
    let echo = ToolDef::new("echo", "Say it again", async |args: Echo| args.text);
    let mut dispatch = McpDispatch::new(&ToolServer::new("bench0", "1.0.0").add_tool(echo));
    let Ok(message) = RawValue::from_string(message(payload)) else { return };
    bencher.bench_local(|| dispatch.is_call(black_box(&message)));
}
