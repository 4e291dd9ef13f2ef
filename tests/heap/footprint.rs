//! An idle session costs bytes on the heap and nothing else. Each test counts what its own thread
//! allocates, which is all there is of a session on the in-memory transport and a current-thread runtime.

use std::sync::Arc;
use std::time::Duration;

use crate::alone;
use crate::count::{asked_here, held_here};
use futures_util::future::join_all;
use greenroom::options::OLDEST_CLI;
use greenroom::transport::{Exit, MemoryCli, MemoryListener, MemoryTransport, memory};
use greenroom::{Session, ToolDef, ToolServer};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Bytes that an idle session with one tool server may hold.
const SESSION: isize = 72 << 10;

/// Bytes that each further idle tool server, of three tools, may hold.
const SERVER: isize = 12 << 10;

/// Bytes that a session may hold in addition after it was busy: tables and queues of requests, which do not grow from
/// turn to turn.
const BUSY: isize = 72 << 10;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Echo {
    text: String,
}

fn server(name: String) -> ToolServer {
    let awake = Arc::new(Notify::new());
    let sleeper = awake.clone();
    let echo = ToolDef::new("echo", "Say it again", async |args: Echo| args.text);
    let sleep = ToolDef::new("sleep", "Sleep until woken", move |_: Echo| {
        let sleeper = sleeper.clone();
        async move { sleeper.notified().await }
    });
    let wake = ToolDef::new("wake", "Wake what sleeps", move |args: Echo| {
        let awake = awake.clone();
        async move {
            awake.notify_waiters();
            args.text
        }
    });
    ToolServer::new(name, "1.0.0").add_tool(echo).add_tool(sleep).add_tool(wake)
}

/// The CLI's side of a session. It holds nothing but the pipes.
struct Cli {
    cli: MemoryCli,
    reader: Box<dyn AsyncRead + Send + Unpin>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
}

impl Cli {
    async fn accept(listener: &mut MemoryListener) -> Self {
        let mut cli = listener.accept().await.unwrap();
        let (reader, writer) = cli.take_pipes();
        let mut cli = Self { cli, reader, writer };
        let initialize = cli.read(1).await.remove(0);
        let servers = initialize["request"]["sdkMcpServers"].as_array().cloned().unwrap_or_default();
        let parked: Value =
            servers.iter().map(|name| (name.as_str().unwrap().to_owned(), json!("parked"))).collect();
        let response = json!({ "claude_code_version": OLDEST_CLI, "commands": [], "capabilities": ["sdk_mcp_manifests"], "sdk_mcp_manifests_parked": parked });
        cli.write(&json!({ "type": "control_response", "response": {
            "subtype": "success", "request_id": initialize["request_id"], "response": response } }))
            .await;
        cli
    }

    /// Reads `lines` lines, and asserts that no more were written.
    async fn read(&mut self, lines: usize) -> Vec<Value> {
        let mut reader = BufReader::new(&mut self.reader);
        let mut read = Vec::new();
        for _ in 0..lines {
            let mut line = String::new();
            reader.read_line(&mut line).await.unwrap();
            read.push(serde_json::from_str(&line).unwrap());
        }
        assert!(reader.buffer().is_empty());
        read
    }

    async fn write(&mut self, frame: &Value) {
        self.writer.write_all(format!("{frame}\n").as_bytes()).await.unwrap();
    }

    /// Plays a turn with concurrent calls and long messages.
    async fn turn(&mut self, calls: usize) {
        let prompt = self.read(1).await.remove(0);
        for number in 0..calls {
            let params = json!({ "name": "echo", "arguments": { "text": "x".repeat(1000) } });
            let message = json!({ "jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params });
            let request = json!({ "subtype": "mcp_message", "server_name": "server0", "message": message });
            let frame = json!({ "type": "control_request", "request_id": format!("call_{number}"), "request": request });
            self.write(&frame).await;
        }
        let answers = self.read(calls).await;
        assert!(answers.iter().all(|answer| answer["response"]["subtype"] == "success"));
        for number in 0..20 {
            let content = json!([{ "type": "text", "text": "y".repeat(100_000) }]);
            let message = json!({ "id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": "m", "content": content });
            self.write(&json!({ "type": "assistant", "message": message, "uuid": number.to_string(), "session_id": "s" })).await;
        }
        self.write(&json!({
            "type": "result", "subtype": "success", "is_error": false, "result": "z".repeat(5000), "num_turns": 1,
            "duration_ms": 0, "duration_api_ms": 0, "total_cost_usd": 0.0, "session_id": "s",
            "usage": { "input_tokens": 1, "output_tokens": 1 }, "user_message_uuids": [prompt["uuid"]],
        }))
        .await;
    }
}

struct Sessions {
    transport: MemoryTransport,
    listener: MemoryListener,
    running: Vec<(Session, Cli)>,
}

impl Sessions {
    async fn start(servers: usize, sessions: usize) -> Self {
        let (transport, listener) = memory();
        // The pipes are the stand-in's. They keep the largest buffer that they needed, so it has to be small.
        let transport = transport.with_buffer_bytes(4 << 10);
        let mut all = Self { transport, listener, running: Vec::with_capacity(sessions) };
        for _ in 0..sessions {
            let servers = (0..servers).map(|number| server(format!("server{number}")));
            let builder = servers.fold(Session::builder(), |builder, server| builder.mcp_server(server));
            let starting = builder.transport(all.transport.clone()).start();
            let (session, cli) = tokio::join!(starting, Cli::accept(&mut all.listener));
            all.running.push((session.unwrap(), cli));
        }
        quiet().await;
        all
    }

    async fn stop(self) {
        join_all(self.running.into_iter().map(|(session, Cli { cli, reader, writer })| async move {
            drop((reader, writer));
            cli.exit(Exit::Code(0));
            session.stop().await.unwrap();
        }))
        .await;
        quiet().await;
    }
}

/// Lets all work finish: the paused clock advances only when no task can run.
async fn quiet() {
    tokio::time::sleep(Duration::from_secs(3600)).await;
}

/// Bytes that `sessions` sessions hold, with `servers` servers each.
async fn idle(servers: usize, sessions: usize) -> isize {
    let before = held_here();
    let all = Sessions::start(servers, sessions).await;
    let bytes = held_here() - before;
    all.stop().await;
    bytes
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_and_an_idle_tool_server_hold_no_more_than_is_promised() {
    let _alone = alone().await;
    const MANY: isize = 20;
    // Warm up: allocations that happen once for each process.
    idle(2, 2).await;
    let one = idle(1, 1).await;
    let session = (idle(1, 1 + MANY as usize).await - one) / MANY;
    let server = (idle(1 + MANY as usize, 1).await - one) / MANY;
    println!("an idle session holds {session} bytes, each further tool server {server}");
    assert!(session <= SESSION, "an idle session holds {session} bytes");
    assert!(server <= SERVER, "an idle tool server holds {server} bytes");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_busy_once_holds_little_again() {
    let _alone = alone().await;
    const SESSIONS: usize = 10;
    let mut all = Sessions::start(1, SESSIONS).await;
    let mut before = held_here();
    let mut more = Vec::new();
    for _ in 0..3 {
        for (session, cli) in &mut all.running {
            let (result, ()) = tokio::join!(
                async {
                    let mut turn = session.prompt("go").await.unwrap();
                    while turn.next().await.is_some() {}
                    turn.outcome().await.unwrap().into_result().unwrap()
                },
                cli.turn(500)
            );
            drop(result);
        }
        quiet().await;
        more.push((held_here() - before) / SESSIONS as isize);
        before = held_here();
    }
    println!("a session that was busy holds so many bytes more, turn after turn: {more:?}");
    assert!(more[0] <= BUSY && more[1] <= 4 << 10 && more[2] <= 1 << 10, "{more:?}");
    all.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_who_keeps_up_costs_next_to_nothing() {
    let _alone = alone().await;
    let all = Sessions::start(1, 1).await;
    let before = held_here();
    let mut subscribed: Vec<_> =
        (0..10).map(|_| (all.running[0].0.events(), all.running[0].0.messages())).collect();
    let each = (held_here() - before) / 10;
    assert!(each <= 1 << 10, "a subscriber holds {each} bytes");
    all.stop().await;
    while subscribed[0].0.next().await.is_some() {}
}

#[tokio::test(start_paused = true)]
async fn idle_sessions_do_nothing() {
    let _alone = alone().await;
    let all = Sessions::start(1, 100).await;
    let metrics = Handle::current().metrics();
    let before = (metrics.worker_park_count(0), asked_here());
    quiet().await;
    let (parks, allocations) = (metrics.worker_park_count(0) - before.0, asked_here() - before.1);
    assert!(parks <= 10, "100 idle sessions woke {parks} times within an hour");
    assert!(allocations <= 10, "100 idle sessions allocated {allocations} times within an hour");
    all.stop().await;
}
