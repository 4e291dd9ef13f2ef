//! Heap that a session holds when its CLI floods it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::alone;
use crate::bare::{Bare, MIB};
use crate::common::{SOON, event, within};
use crate::count::{HELD, PEAK};
use greenroom::options::{Limits, Restart, Timeouts};
use greenroom::report::Counters;
use greenroom::session::MessageOrGap;
use greenroom::{Event, NoArgs, Session, SessionBuilder, ToolContext, ToolServer};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

fn clock() -> ToolServer {
    ToolServer::new("clock", "1.0.0").tool("now", "The time", async |_: NoArgs| "noon")
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

/// Asserts that the flood makes the process hold at most `bound` bytes more than before. Returns the counters.
async fn most_held(
    what: &str,
    bound: usize,
    builder: SessionBuilder,
    flood: impl AsyncFnOnce(&mut Bare),
) -> Counters {
    let _alone = alone().await;
    let mut bare = Bare::start(builder).await;
    // Warms up: allocations that happen once are not counted.
    bare.calls("warm").await;
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    flood(&mut bare).await;
    let peak = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    bare.calls("after").await;
    let kept = HELD.load(Ordering::Relaxed).saturating_sub(before);
    println!("{what}: {:.2} MiB at most (bound {:.2}), {:.2} MiB kept", mib(peak), mib(bound), mib(kept));
    assert!(peak <= bound, "{what}: {:.2} MiB were held, {:.2} allowed", mib(peak), mib(bound));
    within(SOON, bare.session.snapshot()).await.unwrap().counters
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / MIB as f64
}

/// Allowance for the reader's buffers besides a line, and for the rest of the session.
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
        // The line ends after all, so that a call can follow.
        cli.write(b"\n").await;
        cli.calls("then").await;
    })
    .await;
    assert_eq!(counters.overlong_lines, 1);
}

// Guards: a line that is no JSON, a blank line
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
async fn unknown_frames_hold_no_more_than_the_message_lane() {
    let lane = 16 * MIB;
    let counters = most_held("100,000 unknown frames", lane + A_FEW, hasty(), async |cli| {
        for number in 0..100_000 {
            cli.write(format!("{{\"type\":\"of_another_age\",\"number\":{number}}}\n").as_bytes()).await;
        }
        cli.calls("then").await;
        // The call overtakes messages, which are read beside it.
        let read = async {
            while cli.session.snapshot().await.unwrap().counters.messages < 100_000 {
                tokio::task::yield_now().await;
            }
        };
        within(SOON, read).await;
    })
    .await;
    assert_eq!(counters.messages, 100_000);
}

// Guards: an unknown control request
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_unknown_requests_is_answered_and_costs_little() {
    let asked = 100_000;
    // As many as may be in flight are open, each with what it takes to answer it; and their answers wait to be read.
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
            within(SOON, async { tokio::join!(ask, count) }).await;
            cli.calls("then").await;
        },
    )
    .await;
    assert_eq!(counters.unknown_requests + counters.at_capacity, asked, "{counters:?}");
}

/// A CLI that sends requests and never reads is killed before its answers fill the host's memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cli_that_asks_and_does_not_read_is_given_up() {
    let _alone = alone().await;
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
    let ((), gone) = within(SOON, async { tokio::join!(flood, gone) }).await;
    let peak = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    println!("a CLI that asks and does not read: {:.2} MiB at most; {gone:?}", mib(peak));
    assert!(peak <= A_FEW, "{:.2} MiB were held", mib(peak));
}

/// Allowance for a line of 1 MB that is read, parsed and answered.
const A_LINE: usize = 4 * MIB;

fn frame(request_id: &str, server: &str, message: &Value) -> Vec<u8> {
    let frame = json!({ "type": "control_request", "request_id": request_id, "request": {
        "subtype": "mcp_message", "server_name": server, "message": message,
    } });
    format!("{frame}\n").into_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_messages_of_1_mb_hold_no_more_than_the_bytes_kept() {
    let limits = Limits::default();
    let bound = limits.kept_bytes + limits.message_lane_bytes + A_LINE + A_FEW;
    let sent = 150;
    let counters = most_held("150 messages of 1 MB, not read", bound, hasty(), async |cli| {
        let mut messages = cli.session.messages();
        for _ in 0..sent {
            cli.long_line(MIB).await;
        }
        let read = async {
            while cli.session.snapshot().await.unwrap().counters.messages < sent {
                tokio::task::yield_now().await;
            }
        };
        within(SOON, read).await;
        let kept = (limits.kept_bytes / MIB) as u64;
        match within(SOON, messages.next()).await {
            Some(MessageOrGap::Missed(count)) => assert_eq!(count, sent - kept),
            other => panic!("{other:?}"),
        }
        for _ in 0..kept {
            assert!(matches!(within(SOON, messages.next()).await, Some(MessageOrGap::Message(_))));
        }
    })
    .await;
    assert_eq!(counters.messages, sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_events_with_reasons_of_1_mb_cost_little() {
    let waits = ToolServer::new("waits", "1")
        .tool("wait", "Waits", async |_: NoArgs, cx: ToolContext| cx.cancelled().await);
    most_held("60 reasons of 1 MB", 3 * A_LINE + A_FEW, hasty().mcp_server(waits), async |cli| {
        let mut events = cli.session.events();
        let reason = "x".repeat(MIB);
        for id in 0..60 {
            let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
                "params": { "name": "wait", "arguments": {} } });
            cli.write(&frame(&format!("call{id}"), "waits", &call)).await;
            let cancel = format!(
                "{{\"type\":\"control_request\",\"request_id\":\"cancel{id}\",\"request\":{{\"subtype\":\"mcp_message\",\"server_name\":\"waits\",\"message\":{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id},\"reason\":\"{reason}\"}}}}}}}}\n"
            );
            cli.write(cancel.as_bytes()).await;
            drop(cancel);
            cli.calls_and_awaits(&format!("after{id}"), Some(&format!("cancel{id}"))).await;
        }
        for _ in 0..60 {
            event(&mut events, |event| matches!(event, Event::CallCancelled { .. }).then_some(())).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_that_never_end_cost_no_more_than_those_told_apart() {
    let lane = MIB;
    let builder = hasty().configure(|options| options.limits.message_lane_bytes = lane);
    let agents = 60_000;
    let id = "x".repeat(1000);
    most_held("60,000 agents that never end", lane + A_LINE + A_FEW, builder, async |cli| {
        for number in 0..agents {
            let started = format!(
                "{{\"type\":\"system\",\"subtype\":\"task_started\",\"task_id\":\"{number}{id}\",\"task_type\":\"local_agent\"}}\n"
            );
            cli.write(started.as_bytes()).await;
        }
        let read = async {
            while cli.session.snapshot().await.unwrap().counters.messages < agents {
                tokio::task::yield_now().await;
            }
        };
        within(SOON, read).await;
    })
    .await;
}
