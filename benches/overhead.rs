//! What a tool call and an idle server cost. `cargo bench --bench overhead` prints:
//!
//! - the time of a call over a real pipe, one at a time and 64 at once: the whole round trip, with the fake CLI's
//!   share in it
//! - the memory of an idle in-process server: what it holds on the heap, from a session with 1,000 servers
//!
//! The figures are for reading, not for asserting: nothing here fails when a machine is slow.

#![allow(clippy::print_stdout, reason = "it prints figures")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use greenroom::testkit::{Script, ScriptedCli};
use greenroom::{NoArgs, Result, Session, SessionBuilder, ToolDef, ToolServer};
use serde::Deserialize;

/// Counts the bytes that are held on the heap.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed on to the system allocator as it came; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those that the system allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Deserialize, schemars::JsonSchema)]
struct Echo {
    text: String,
}

fn bench_server() -> ToolServer {
    ToolServer::new("bench", "1.0.0")
        .add(ToolDef::new("echo", "Say it again", async |args: Echo| args.text).read_only_hint(true))
}

/// Calls over a real pipe, in microseconds each, as the fake CLI measured them.
async fn calls(window: usize, calls: usize) -> Result<f64> {
    let session = Session::builder()
        .mcp_server(bench_server())
        .allow_server_tools("bench")
        .cli_path(env!("CARGO_BIN_EXE_greenroom-fake-cli"))
        .env("FAKE_CLI", format!("calls={calls};window={window};payload=64"))
        .start()
        .await?;
    let mut turn = session.prompt("go").await?;
    let result = turn.outcome().await?.into_result()?;
    session.stop().await?;
    let told: serde_json::Value =
        serde_json::from_str(result.result.as_deref().unwrap_or("{}")).unwrap_or_default();
    Ok(told["micros"].as_f64().unwrap_or(f64::NAN) / calls as f64)
}

/// What a session with this many idle servers holds on the heap, in bytes.
async fn held(servers: usize) -> Result<usize> {
    let before = HELD.load(Ordering::Relaxed);
    let cli = ScriptedCli::play(Script::new());
    let builder = (0..servers).fold(Session::builder(), |builder: SessionBuilder, n| {
        let idle = ToolServer::new(format!("idle{n}"), "1.0.0").tool("noop", "Nothing", async |_: NoArgs| ());
        builder.mcp_server(idle)
    });
    let session = builder.transport(cli.transport()).start().await?;
    // All servers have answered once: nothing is still being made.
    session.snapshot().await?;
    let held = HELD.load(Ordering::Relaxed) - before;
    session.stop().await?;
    Ok(held)
}

#[tokio::main]
async fn main() -> Result<()> {
    calls(64, 1_000).await?;
    println!("call, 1 in flight:   {:>8.1} µs", calls(1, 20_000).await?);
    println!("call, 64 in flight:  {:>8.1} µs", calls(64, 100_000).await?);
    let (few, many) = (held(1).await?, held(1_001).await?);
    println!("idle session:        {:>8} bytes", few);
    println!("idle server:         {:>8} bytes", (many - few) / 1_000);
    Ok(())
}
