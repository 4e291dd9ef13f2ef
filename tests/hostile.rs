//! A CLI that does everything wrong, as a real process where a process is what goes wrong, and over bare pipes where
//! bytes are.
//!
//! The tests that say how much memory is held count every allocation of this binary, so nothing runs beside them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "in the helpers of tests, too"
)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{event, within};
use futures_util::future::BoxFuture;
use greenroom::testkit::{FakeCli, ModelTurn, Script, ScriptedCli};
use greenroom::transport::{Connection, Exit, Launch, MemoryCli, MemoryTransport, Transport, memory};
use greenroom::{
    Counters, ErrorKind, Event, ExitCause, InterruptedBy, Limits, NoArgs, Outcome, Restart, Session,
    SessionBuilder, Timeouts, ToolServer, Turn,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::RwLock;

greenroom::fake_cli!();

/// Far more than anything here takes.
const LIMIT: Duration = Duration::from_secs(120);

const MIB: usize = 1 << 20;

/// Tests that measure memory take this alone, all others together.
static ALONE: RwLock<()> = RwLock::const_new(());

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

async fn start(cli: &FakeCli) -> Session {
    within(LIMIT, hasty().transport(cli.transport()).start()).await.unwrap()
}

async fn prompt(session: &Session) -> Outcome {
    let mut turn = session.prompt("What time is it?").await.unwrap();
    outcome(&mut turn).await
}

async fn outcome(turn: &mut Turn) -> Outcome {
    within(LIMIT, turn.outcome()).await.unwrap()
}

/// The session calls its tool and says so.
async fn works(session: &Session) {
    let outcome = prompt(session).await;
    assert_eq!(outcome.text(), Some("It is noon."), "{outcome:?}");
}

async fn counters(session: &Session) -> Counters {
    within(LIMIT, session.snapshot()).await.unwrap().counters
}

/// Stops within the bound that the session states, and leaves nobody behind.
async fn stop(session: Session, cli: FakeCli) {
    let begun = Instant::now();
    within(LIMIT, session.stop()).await.unwrap();
    assert!(begun.elapsed() <= session.shutdown_bound(), "{:?}", begun.elapsed());
    within(LIMIT, cli.gone()).await;
}

/// How the CLI ended that a turn needed.
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
    let _together = ALONE.read().await;
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
    let _together = ALONE.read().await;
    let cli = FakeCli::play_old(script(1));
    let session = start(&cli).await;
    works(&session).await;
    assert_eq!(cli.incarnations(), 2, "it is started once more with the config");
    stop(session, cli).await;
}

#[tokio::test]
async fn stop_ends_a_cli_that_ignores_sigterm_and_its_grandchildren_that_hold_the_pipes() {
    let _together = ALONE.read().await;
    let cli = FakeCli::play(script(1)).ignore_sigterm().fork_grandchild();
    let session = start(&cli).await;
    works(&session).await;
    stop(session, cli).await;
}

#[tokio::test]
async fn a_grandchild_that_holds_the_pipes_delays_neither_the_crash_nor_the_restart() {
    let _together = ALONE.read().await;
    let cli = FakeCli::play(script(1)).fork_grandchild().crash_on_prompt(1, Exit::Code(3)).times(1);
    let session = start(&cli).await;
    assert_eq!(exit(&prompt(&session).await), Exit::Code(3));
    works(&session).await;
    stop(session, cli).await;
}

#[tokio::test]
async fn the_cli_exits_or_is_killed_and_the_session_goes_on() {
    let _together = ALONE.read().await;
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
    let _together = ALONE.read().await;
    let cli = FakeCli::play(script(2)).crash_in_call(1, Exit::Signal(9)).times(1);
    let session = start(&cli).await;
    assert_eq!(exit(&prompt(&session).await), Exit::Signal(9));
    // The model's first turn was played; the second goes on after it.
    assert_eq!(prompt(&session).await.text(), Some("It is noon."));
    works(&session).await;
    assert_eq!(cli.tool_results(), ["noon"]);
    stop(session, cli).await;
}

#[tokio::test]
async fn the_cli_closes_stdout_and_lives_on() {
    let _together = ALONE.read().await;
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

#[tokio::test]
async fn the_cli_stops_reading_stdin() {
    let _together = ALONE.read().await;
    let cli = FakeCli::play(script(2)).stop_reading_after_initialize().times(1);
    let builder = hasty().configure(|options| options.timeouts.stdin_stall = Duration::from_millis(300));
    let session = within(LIMIT, builder.transport(cli.transport()).start()).await.unwrap();
    // More than a pipe holds.
    let mut turn = session.prompt("x".repeat(4 * MIB)).await.unwrap();
    match outcome(&mut turn).await {
        Outcome::Interrupted {
            by: InterruptedBy::CliExit { cause: ExitCause::StdinBroken { .. } }, ..
        } => {}
        // No CLI began with it, so it may have been sent to the next.
        Outcome::Completed { .. } => {}
        other => panic!("{other:?}"),
    }
    works(&session).await;
    assert_eq!(cli.incarnations(), 2);
    stop(session, cli).await;
}

#[tokio::test]
async fn half_a_line_and_an_exit() {
    let _together = ALONE.read().await;
    let cli = FakeCli::play(script(1)).half_line_then_exit().times(1);
    let session = start(&cli).await;
    assert_eq!(exit(&prompt(&session).await), Exit::Code(0));
    works(&session).await;
    assert_eq!(counters(&session).await.malformed_lines, 1);
    stop(session, cli).await;
}

#[tokio::test]
async fn what_is_no_utf8_is_a_message_with_replaced_characters() {
    let _together = ALONE.read().await;
    let cli = FakeCli::play(script(1)).invalid_utf8();
    let session = start(&cli).await;
    let mut turn = session.prompt("What time is it?").await.unwrap();
    let mut texts = Vec::new();
    while let Some(message) = within(LIMIT, turn.next()).await {
        texts.extend(message.text().map(|text| text.to_string()));
    }
    assert!(texts.iter().any(|text| text.starts_with("caf\u{FFFD} ")), "{texts:?}");
    assert_eq!(outcome(&mut turn).await.text(), Some("It is noon."));
    stop(session, cli).await;
}

#[tokio::test]
async fn a_request_id_that_is_in_flight_and_answers_to_nobody() {
    let _together = ALONE.read().await;
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
    let _together = ALONE.read().await;
    let cli = FakeCli::play(script(1)).flood_stderr(8 * MIB).stderr("here I am");
    let session = start(&cli).await;
    works(&session).await;
    stop(session, cli).await;
}

#[tokio::test]
async fn a_cli_that_floods_stdout_with_requests_is_answered_and_calls_its_tool() {
    let _together = ALONE.read().await;
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
    let _together = ALONE.read().await;
    let brief = Duration::from_secs(2);
    for (cli, kind) in [
        (FakeCli::play(script(0)).exit_at_start(3, "your licence has run out"), ErrorKind::CliExited),
        (FakeCli::play(script(0)).hang_initialize().fork_grandchild(), ErrorKind::StartTimeout),
        (FakeCli::play(script(0)).garbage(), ErrorKind::NotTheProtocol),
    ] {
        let builder = hasty().configure(|options| options.timeouts.start = brief);
        let error = within(LIMIT, builder.transport(cli.transport()).start()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error:?}");
        if kind == ErrorKind::CliExited {
            assert!(
                error.stderr().unwrap().contains("licence") && error.to_string().contains("code 3"),
                "{error}"
            );
        }
        within(LIMIT, cli.gone()).await;
    }
}

#[tokio::test]
async fn an_exit_code_at_the_end_of_input_is_no_crash() {
    let _together = ALONE.read().await;
    let cli = FakeCli::play(script(1)).exit_code(9);
    let session = start(&cli).await;
    works(&session).await;
    stop(session, cli).await;
}

// ---- over pipes in memory ---------------------------------------------------------------------------------

#[tokio::test]
async fn what_was_sent_before_an_exit_is_read() {
    let _together = ALONE.read().await;
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
    let _together = ALONE.read().await;
    let (transport, mut listener) = ScriptedCli::by_hand();
    let starting = hasty().transport(Deaf(transport)).start();
    let (started, ()) = within(LIMIT, async {
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
    let _together = ALONE.read().await;
    let script = Script::new().turn(ModelTurn::new().text("né 语 🎭 \u{2028}"));
    let cli = ScriptedCli::play(script);
    let session = hasty().transport(cli.transport().with_buffer_bytes(1)).start().await.unwrap();
    assert_eq!(prompt(&session).await.text(), Some("né 语 🎭 \u{2028}"));
    session.stop().await.unwrap();
}

// ---- memory -----------------------------------------------------------------------------------------------

/// Counts the bytes that are held on the heap, and the most that ever were.
struct Heap;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn took(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(held, Ordering::Relaxed);
}

fn gave(bytes: usize) {
    HELD.fetch_sub(bytes, Ordering::Relaxed);
}

// SAFETY: every call is handed on to the system allocator as it came; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller's promises are those that the system allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        gave(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // What is large is moved by the system without a copy, so it is held once.
        if size > layout.size() {
            took(size - layout.size())
        } else {
            gave(layout.size() - size)
        }
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static HEAP: Heap = Heap;

static PIECE: [u8; 16 << 10] = [b'x'; 16 << 10];

/// The other end of the pipes, bare: what is written here is held nowhere.
struct Bare {
    session: Session,
    _cli: MemoryCli,
    stdin: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    stdout: Box<dyn AsyncWrite + Send + Unpin>,
    line: String,
}

impl Bare {
    async fn start(builder: SessionBuilder) -> Self {
        let (transport, mut listener) = memory();
        let (session, (cli, stdin, stdout)) = within(LIMIT, async {
            tokio::join!(builder.transport(transport).start(), async {
                let mut cli = listener.accept().await.unwrap();
                let (stdin, mut stdout) = cli.take_pipes();
                let mut stdin = BufReader::new(stdin);
                let mut line = String::new();
                stdin.read_line(&mut line).await.unwrap();
                let initialize: Value = serde_json::from_str(&line).unwrap();
                let answer = json!({ "type": "control_response", "response": {
                    "subtype": "success", "request_id": initialize["request_id"], "response": {
                        "commands": [], "capabilities": ["sdk_mcp_manifests"],
                        "sdk_mcp_manifests_parked": { "clock": "parked" },
                    },
                } });
                stdout.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
                (cli, stdin, stdout)
            })
        })
        .await;
        Self { session: session.unwrap(), _cli: cli, stdin, stdout, line: String::new() }
    }

    /// The next frame of the host.
    async fn recv(&mut self) -> Value {
        self.line.clear();
        within(LIMIT, self.stdin.read_line(&mut self.line)).await.unwrap();
        serde_json::from_str(&self.line).unwrap()
    }

    async fn write(&mut self, bytes: &[u8]) {
        within(LIMIT, self.stdout.write_all(bytes)).await.unwrap();
    }

    /// So many bytes of a line, in pieces.
    async fn filler(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let now = bytes.min(PIECE.len());
            self.write(&PIECE[..now]).await;
            bytes -= now;
        }
    }

    /// A line of exactly this length, its end not counted: a message whose type nobody knows.
    async fn long_line(&mut self, bytes: usize) {
        let (start, end) = (br#"{"type":"of_another_age","filler":""#, b"\"}\n");
        self.write(start).await;
        self.filler(bytes - start.len() - (end.len() - 1)).await;
        self.write(end).await;
    }

    /// The tool is called and answers, behind everything that was written before.
    async fn calls(&mut self, id: &str) {
        let call = json!({ "type": "control_request", "request_id": id, "request": {
            "subtype": "mcp_message", "server_name": "clock", "message": {
                "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "now", "arguments": {} },
            },
        } });
        self.write(format!("{call}\n").as_bytes()).await;
        loop {
            let frame = self.recv().await;
            if frame["response"]["request_id"] == id {
                let result = &frame["response"]["response"]["mcp_response"]["result"];
                assert_eq!(result["content"][0]["text"], "noon", "{frame}");
                return;
            }
        }
    }
}

/// Takes the whole binary for itself, and says how many bytes more than at its beginning were held at most.
async fn most_held(
    what: &str,
    bound: usize,
    builder: SessionBuilder,
    flood: impl AsyncFnOnce(&mut Bare),
) -> Counters {
    let _alone = ALONE.write().await;
    let mut bare = Bare::start(builder).await;
    // Everything that is made once is made.
    bare.calls("warm").await;
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    flood(&mut bare).await;
    let peak = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    bare.calls("after").await;
    let kept = HELD.load(Ordering::Relaxed).saturating_sub(before);
    println!("{what}: {:.2} MiB at most (bound {:.2}), {:.2} MiB kept", mib(peak), mib(bound), mib(kept));
    assert!(peak <= bound, "{what}: {:.2} MiB were held, {:.2} allowed", mib(peak), mib(bound));
    within(LIMIT, bare.session.snapshot()).await.unwrap().counters
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / MIB as f64
}

/// What the reader may hold besides a line, and the session besides the reader.
const A_FEW: usize = 4 * MIB;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_over_the_bound_costs_no_more_than_the_bound() {
    let line = 64 * MIB;
    let counters = most_held("a line one byte over 64 MiB", line + A_FEW, hasty(), async |cli| {
        cli.long_line(line + 1).await;
        cli.calls("then").await;
    })
    .await;
    assert_eq!(counters.overlong_lines, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_under_the_bound_costs_itself_and_the_message_that_it_becomes() {
    let line = 64 * MIB;
    let counters = most_held("a message of 64 MiB", 2 * line + A_FEW, hasty(), async |cli| {
        cli.long_line(line).await;
        cli.calls("then").await;
    })
    .await;
    assert_eq!((counters.overlong_lines, counters.messages), (0, 1), "{counters:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_never_ends_costs_no_more_than_the_bound() {
    let line = MIB;
    let builder = hasty().configure(|options| options.limits.line_bytes = line);
    let counters = most_held("256 MiB of a line, with 1 MiB allowed", line + A_FEW, builder, async |cli| {
        cli.filler(256 * MIB).await;
        // Here it ends after all, for nothing could be said behind it otherwise.
        cli.write(b"\n").await;
        cli.calls("then").await;
    })
    .await;
    assert_eq!(counters.overlong_lines, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_blank_lines_cost_nothing() {
    let counters = most_held("a million blank lines", A_FEW, hasty(), async |cli| {
        let lines = [b'\n'; 1000];
        for _ in 0..1000 {
            cli.write(&lines).await;
        }
        cli.calls("then").await;
    })
    .await;
    assert!(counters.noise_lines >= 1_000_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_unknown_frames_cost_no_more_than_the_lane_of_messages() {
    let lane = 16 * MIB;
    let counters = most_held("100,000 unknown frames", lane + A_FEW, hasty(), async |cli| {
        for number in 0..100_000 {
            cli.write(format!("{{\"type\":\"of_another_age\",\"number\":{number}}}\n").as_bytes()).await;
        }
        cli.calls("then").await;
    })
    .await;
    assert_eq!(counters.messages, 100_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_unknown_requests_are_each_answered_and_cost_little() {
    let asked = 100_000;
    // As many as may be in flight are on their way to the router, each with what it takes to answer it; and their
    // answers wait to be read.
    let limits = Limits::default();
    let on_the_way = limits.calls_in_flight * (1 << 10) + limits.lines_queued * 256;
    let counters = most_held(
        "100,000 unknown requests",
        on_the_way + A_FEW,
        hasty(),
        async |cli| {
            let Bare { stdin, stdout, .. } = cli;
            let ask = async {
                for number in 0..asked {
                    let request = format!(
                        "{{\"type\":\"control_request\",\"request_id\":\"flood_{number}\",\"request\":{{\"subtype\":\"of_another_age\"}}}}\n"
                    );
                    stdout.write_all(request.as_bytes()).await.unwrap();
                }
            };
            let count = async {
                let mut line = String::new();
                for _ in 0..asked {
                    line.clear();
                    stdin.read_line(&mut line).await.unwrap();
                    assert!(line.contains("flood_") && line.contains("error"), "{line}");
                }
            };
            within(LIMIT, async { tokio::join!(ask, count) }).await;
            cli.calls("then").await;
        },
    )
    .await;
    assert_eq!(counters.unknown_requests + counters.at_capacity, asked, "{counters:?}");
}

/// The other way round: a CLI that asks and never reads is given up, and does not fill the host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cli_that_asks_and_does_not_read_is_given_up() {
    let _alone = ALONE.write().await;
    let mut builder = hasty().configure(|options| {
        options.limits.lines_queued = 1000;
        options.limits.calls_in_flight = 1000;
    });
    let mut events = builder.events();
    let mut cli = Bare::start(builder).await;
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let flood = async {
        for number in 0_u64.. {
            let request = format!(
                "{{\"type\":\"control_request\",\"request_id\":\"flood_{number}\",\"request\":{{\"subtype\":\"of_another_age\"}}}}\n"
            );
            if cli.stdout.write_all(request.as_bytes()).await.is_err() {
                break;
            }
        }
    };
    let gone = event(&mut events, |event| matches!(event, Event::CliExited { .. }).then(|| event.clone()));
    let ((), gone) = within(LIMIT, async { tokio::join!(flood, gone) }).await;
    let peak = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    println!("a CLI that asks and does not read: {:.2} MiB at most; {gone:?}", mib(peak));
    assert!(peak <= A_FEW, "{:.2} MiB were held", mib(peak));
}

#[tokio::test]
async fn a_test_file_without_the_fake_cli_is_told_so() {
    let _together = ALONE.read().await;
    let cli = FakeCli::play(script(0)).in_module("elsewhere");
    let error = within(LIMIT, hasty().transport(cli.transport()).start()).await.unwrap_err();
    assert!(error.to_string().contains("elsewhere::greenroom_fake_cli"), "{error}");
    assert!(error.help().unwrap().contains("greenroom::fake_cli!()"), "{error:?}");
}
