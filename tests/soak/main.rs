//! A hundred thousand requests in one session, while handlers, servers, the router, the port and the CLI die all the
//! time.
//!
//! Alone in its process, because it counts all of it: the live heap, tasks, file descriptors, children.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that shows its figures")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use greenroom::{Session, ToolContext, ToolServer};
use greenroom_testkit::invariants::Violation;
use greenroom_testkit::{Chaos, FaultKind, FaultMix, LeakCheck};
use serde_json::json;

/// The bytes that are in use.
struct Counted;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every request goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// At least so many control requests of the CLI.
const REQUESTS: u64 = 100_000;

/// Faults of handlers, which a plan has more often than others.
const HANDLERS: [FaultKind; 4] =
    [FaultKind::HandlerPanic, FaultKind::HandlerHang, FaultKind::HandlerSlow, FaultKind::HandlerError];

/// Steps of the plan that make as many requests.
const STEPS: usize = 9600;

/// Bytes by which the heap may grow from the first to the last tenth: records that the checks keep of each prompt
/// and of each request that died with its CLI, and noise.
const MARGIN_BYTES: usize = 1 << 20;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Echo {
    n: u64,
}

/// A state that says when it is dropped: how many of them live.
struct Alive(Arc<AtomicU64>);

impl Alive {
    fn new(living: &Arc<AtomicU64>) -> Self {
        living.fetch_add(1, Ordering::Relaxed);
        Self(living.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The open files and the child processes of this process.
fn left() -> BTreeSet<String> {
    let listed = |folder: &str| std::fs::read_dir(folder).into_iter().flatten().flatten();
    // The listing itself is an open file.
    let files = listed("/proc/self/fd").filter_map(|entry| {
        let target = std::fs::read_link(entry.path()).ok().filter(|target| !target.ends_with("fd"))?;
        Some(format!("file {:?} ({})", entry.file_name(), target.display()))
    });
    let children = listed("/proc/self/task").flat_map(|entry| {
        let pids = std::fs::read_to_string(entry.path().join("children")).unwrap_or_default();
        pids.split_whitespace().map(|pid| format!("process {pid}")).collect::<Vec<_>>()
    });
    files.chain(children).collect()
}

fn mean(samples: &[usize]) -> usize {
    samples.iter().sum::<usize>() / samples.len().max(1)
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_requests_in_a_storm_of_faults() {
    // Panics are part of it, and their texts are not worth reading.
    std::panic::set_hook(Box::new({
        let usual = std::panic::take_hook();
        move |panic| {
            let text = panic.payload().downcast_ref::<String>().cloned().unwrap_or_default();
            let text = panic.payload().downcast_ref::<&str>().map_or(text, |text| (*text).to_owned());
            if !text.contains("injected") {
                usual(panic);
            }
        }
    }));
    let (leaks, left_before) = (LeakCheck::tasks(), left());
    let started = Instant::now();
    let (living, heap) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));

    let (states, samples) = (living.clone(), heap.clone());
    let chaos = Chaos::new(move || {
        let servers = ["one", "two", "three"].map(|name| {
            let states = states.clone();
            ToolServer::new(name, "1.0.0")
                .tool("echo", "Echo", async |args: Echo, _: ToolContext<Alive>| args.n)
                .tool("nap", "Echo after a while", async |args: Echo, _: ToolContext<Alive>| {
                    tokio::time::sleep(Duration::from_millis(args.n % 20)).await;
                    args.n
                })
                .state(move || Alive::new(&states))
        });
        servers.into_iter().fold(Session::builder(), |builder, server| builder.mcp_server(server))
    });
    let chaos = ["one", "two", "three"].iter().fold(chaos, |chaos, server| {
        chaos.call(*server, "echo", |n| json!({ "n": n })).call(*server, "nap", |n| json!({ "n": n }))
    });
    let chaos = chaos
        .expect(|args, result| {
            let text = result["content"][0]["text"].as_str().unwrap_or_default();
            (Some(text) == args["n"].as_u64().map(|n| n.to_string()).as_deref())
                .then_some(())
                .ok_or_else(|| format!("{args} got {text}"))
        })
        .without_transcript()
        .watch(move || samples.lock().unwrap().push(LIVE.load(Ordering::Relaxed)));
    let mut mix = FaultMix::all().weights(&HANDLERS, 6);
    (mix.calls, mix.calls_at_once, mix.settles, mix.prompts, mix.steps) = (40, 64, 14, 4, STEPS);
    let run = chaos.run(&mix.plan(1)).await;

    let violations = &run.report.violations;
    let of = |kind: fn(&Violation) -> bool| violations.iter().filter(|violation| kind(violation)).count();
    let unanswered = of(|violation| matches!(violation, Violation::Unanswered { .. }));
    let twice = of(|violation| {
        matches!(violation, Violation::AnsweredTwice { .. } | Violation::AnsweredSilent { .. })
    });
    let crossing = of(|violation| matches!(violation, Violation::NotAsked { .. }));
    let leak = leaks.check(Duration::from_secs(60)).await;
    let left: Vec<String> = left().difference(&left_before).cloned().collect();
    let heap = heap.lock().unwrap();
    let tenth = heap.len() / 10;
    // Skip the very beginning, where tables grow to their size.
    let (first, last) = (mean(&heap[tenth / 10..tenth]), mean(&heap[heap.len() - tenth..]));
    let states = living.load(Ordering::Relaxed);

    let (counts, counters) = (&run.report.counts, &run.counters);
    println!("{} requests, {} of them tool calls; {} prompts", counts.requests, run.calls, run.prompts);
    println!(
        "{} deaths of the CLI, {} restarts of servers, {} of the router and the callbacks",
        counts.incarnations - 1,
        counters.server_restarts,
        counters.control_restarts
    );
    println!("{} panics, {} cancelled, {} aborted", counters.panics, counters.cancelled, counters.aborted);
    println!("unanswered {unanswered} ({} died with their CLI)", counts.open_at_end);
    println!("answered twice {twice}");
    println!("answers crossing an incarnation {crossing}");
    println!("orphans: {left:?} {}", leak.as_ref().err().map_or("0".into(), ToString::to_string));
    println!(
        "tasks, actors, file descriptors and children at the baseline: {}; states alive {states}",
        leak.is_ok() && left.is_empty()
    );
    println!("live heap {:.2} MiB in the first tenth, {:.2} MiB in the last", mib(first), mib(last));
    println!("{:.1} s", started.elapsed().as_secs_f64());

    assert!(run.is_fine(), "{}\n{:?}", run.report, run.problems);
    assert_eq!((unanswered, twice, crossing, states), (0, 0, 0, 0));
    if let Err(leak) = leak {
        panic!("{leak}");
    }
    assert!(left.is_empty(), "{left:?}");
    assert!(counts.requests >= REQUESTS, "{}", counts.requests);
    assert!(counts.incarnations > 100 && counters.server_restarts > 100 && counters.control_restarts > 100);
    assert!(last <= first + MARGIN_BYTES, "the heap grew: {heap:?}");
}
