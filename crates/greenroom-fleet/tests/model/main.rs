//! The model-based test of the fleet: sequences of operations, faults and restarts, over a model of what the fleet promises.
//!
//! | backend | its clock | a killed node | operations of a case | cases |
//! |---|---|---|--:|--:|
//! | memory | tokio's, paused | is dead when the service starts again | 500 | 10 |
//! | a map behind a lock (`tests/support`) | tokio's, paused | counts as alive until its lease is over | 500 | 2 |
//! | SQLite (`tests/support`) | tokio's, paused | counts as alive until its lease is over | 500 | 2 |
//! | a file | the real one | is dead when the service starts again | 60 | 2 |
//! | PostgreSQL | the server's | counts as alive until its lease is over | 60 | 2 |
//!
//! A process that is killed leaves a copy of its file behind. On PostgreSQL commits that it had sent may be carried out later.
//! A file cannot be taken over while its process runs; the others can be.
//!
//! - `GREENROOM_FLEET_MODEL_CASES`: the number of cases in memory, over 50 names; the other backends have a fifth of them. 200 are
//!   100,000 operations in memory.
//! - `GREENROOM_FLEET_MODEL_SURVEY=1`: print what fails and go on.
//! - `GREENROOM_FLEET_MODEL_SEED`: the seed that the message of a failure names. Names and ids are random all the same, and files are
//!   touched on threads, so a rare failure may need several runs.
//!
//! # What the tests were seen to catch
//!
//! Each promise was broken in the library on purpose, one change at a time, and a test has caught it. Repeat that after a change of the
//! rules: make the change of a row, run the test, and undo the change. Cases are counted from seed 0 on, and two run at once. Seconds are
//! those until the failure was told, in a debug build on a busy machine with two cores; `GREENROOM_FLEET_MODEL_SHRINK=0` leaves out the
//! search for a shorter case.
//!
//! The rules, in `src/registry`, and an accept of `src/face`, in memory:
//!
//! | promise | what was broken | the change | cases | seconds |
//! |---|---|---|--:|--:|
//! | one-owner | an owner's request is taken without a look at its term and node | `mod.rs`, `owned`: answers `Ok(Some(record))` at its end | 2 | 3 |
//! | one-owner | a node that is dead or not known may claim | `names.rs`, `claim`: takes the default `NodeRow` for such a node | 2 | 5 |
//! | accepted-is-kept | a continuation is not put back into the queue | `lost.rs`, `give_up_turn`: `put_prompt` in place of `enqueue` | 1 | 18 |
//! | accepted-is-kept | `recover` leaves the running turn of a lost owner as it is | `lost.rs`, `lose_owner`: without `give_up_turn` | 1 | 16 |
//! | accepted-is-kept | an accept without a reply counts as accepted | `face/session.rs`, `prompt`: an error of `accept` makes a `FleetTurn` | 1 | 8 |
//! | never-run-twice | a prompt that had begun is queued again when its owner is lost | `lost.rs`, `give_up_turn`: queues each prompt again, with `begins` and `continuations` set to 0 | 1 | 12 |
//! | never-run-twice | keys are not looked up | `prompts.rs`, `accept`: `same` is `None` | 2 | 1 |
//! | never-run-twice | the content of a key is not compared | `prompts.rs`, `accept`: `Some(_) => Accepted::Duplicate(same)` | 2 | 3 |
//!
//! Requests that run at once, on the map behind a lock, where others come between the read and the commit of a request:
//!
//! | promise | what was broken | the change | cases | seconds |
//! |---|---|---|--:|--:|
//! | accepted-is-kept | a commit does not look whether the rows of its request have changed | `map/txn.rs`, `end`: `expected` is empty | 4 | 21 |
//!
//! Over SQLite, a run of 70 seconds did not catch the first row of the rules.
//!
//! Other parts of the fleet were last broken before the rules became functions of rows. The cases of crash-safe are those of
//! `the_fleet_keeps_its_promises_on_a_file`. A number in brackets is that of the scene in `promises`.
//!
//! | promise | what was broken | cases |
//! |---|---|--:|
//! | capped | `actor/name`: the slot is freed before the session has ended | 1 |
//! | capped | `actor/supervisor`: an admission that is started again knows no holders | 1 |
//! | capped | `admission`: the cap of a tenant is not checked | 1 |
//! | fair | `admission`: no session yields between its turns | 1 |
//! | fair | `admission`: a tenant stays in its place after a grant | (1) |
//! | fair | `admission`: a tenant that begins to ask is put behind all others | (1) |
//! | drain-bounded | `actor/supervisor`: a drain has no deadline | 1 |
//! | drain-bounded | `actor/supervisor`: a drain takes prompts back that wait | 1 |
//! | drain-bounded | `actor/supervisor`: the end is told before the sessions have ended, after a drain or after a failure | 1 |
//! | crash-safe | `backend/local`: commits are not durable | 1 |
//! | crash-safe | `backend/local`: a group of several requests is answered and not committed | 1 |
//! | crash-safe | `opening`: names of dead nodes are not recovered | 1 |
//! | isolated | `face/session`: an interrupt asks the backend first | 1 |
//! | isolated | `actor/supervisor`: a message is handled by asking the backend | 2 |
//!
//! Two of the rules were broken on other backends as well, before requests ran at once on the map behind a lock:
//!
//! | promise | what was broken | backend | cases |
//! |---|---|---|--:|
//! | one-owner | an owner's request is taken without a look at its term and node | a map behind a lock | 2 |
//! | one-owner | the same | PostgreSQL | 1 |
//! | never-run-twice | keys are not looked up | a map behind a lock | 1 |
//! | never-run-twice | the same | SQLite | 1 |

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in the helpers of tests, too")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "says what was run, and what does not end")]
#![allow(
    clippy::disallowed_methods,
    reason = "stand-ins outlive the fleet that started them; the guard has a thread of its own"
)]

mod cli;
mod driver;
mod model;
mod ops;
mod promises;
#[path = "../postgres/server.rs"]
#[allow(dead_code, reason = "the tests of the backend use the rest")]
mod server;
#[path = "../support/shelf.rs"]
mod shelf;
#[path = "../support/sqlite.rs"]
mod sqlite;
#[path = "../../../../tests/support/wait.rs"]
mod wait;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use self::driver::{Case, Store};
use self::model::Answers;
use self::ops::{Op, Restart, Step, hurried, steps};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs a case. The text of an error has all that was violated.
fn run(case: Case, steps: &[Step]) -> Result<driver::Report, String> {
    let report = catch_unwind(AssertUnwindSafe(|| case.run(steps)))
        .map_err(|panic| format!("the test itself panicked: {:?}", panic.downcast_ref::<String>()))?;
    if report.violations.is_empty() { Ok(report) } else { Err(report.violations.join("\n")) }
}

/// The operations of a case by its seed.
fn drawn(seed: u64, count: usize) -> Vec<Step> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    steps(count).new_tree(&mut runner).unwrap().current()
}

/// Looks for a shorter case that fails, for a bounded time: leaves out halves, quarters and so on. Answers with the case and its
/// failure.
fn shrunk(mut steps: Vec<Step>, case: impl Fn() -> Case, mut what: String) -> (Vec<Step>, String) {
    let until = Instant::now() + Duration::from_secs(setting("GREENROOM_FLEET_MODEL_SHRINK", 30));
    let mut size = steps.len() / 2;
    while size > 0 && Instant::now() < until {
        let (mut at, before) = (0, steps.len());
        while at < steps.len() && Instant::now() < until {
            let mut shorter = steps.clone();
            shorter.drain(at..(at + size).min(steps.len()));
            match run(case(), &shorter) {
                Err(found) => (steps, what) = (shorter, found),
                Ok(_) => at += size,
            }
        }
        if size > 1 || steps.len() == before {
            size /= 2;
        }
    }
    (steps, what)
}

/// The text of panics that are injected.
const INJECTED: &str = "told to panic";

/// The seed after the last case.
const OVER: u64 = u64::MAX - 1;

/// Ends the process if a case runs for minutes: the paused clock stands still while something spins.
fn guard(seed: Arc<AtomicU64>) {
    std::thread::spawn(move || {
        let mut last = (u64::MAX, 0);
        loop {
            std::thread::sleep(Duration::from_secs(10));
            let now = seed.load(Ordering::Relaxed);
            if now == OVER {
                return;
            }
            last = if now == last.0 { (now, last.1 + 1) } else { (now, 0) };
            if last.1 >= 30 {
                eprintln!("the case with GREENROOM_FLEET_MODEL_SEED={now} does not end");
                std::process::abort();
            }
        }
    });
}

/// Leaves the panics that the test injects into actors out of the output: each would have a backtrace.
fn quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let text = panic.payload().downcast_ref::<&str>().copied().unwrap_or_default();
            if text != INJECTED {
                tell(panic);
            }
        }));
    });
}

/// Cases that run at once, each in a thread of its own.
const AT_ONCE: usize = 2;

#[derive(Default)]
struct Totals {
    operations: usize,
    launches: u64,
    calls: u64,
    answers: Answers,
}

/// Runs cases until there is no further one.
fn work(
    test: &str,
    next: impl Fn() -> Option<u64>,
    draw: impl Fn(u64) -> Vec<Step>,
    case: impl Fn() -> Case,
    totals: &Mutex<Totals>,
) {
    let current = Arc::new(AtomicU64::new(0));
    guard(current.clone());
    while let Some(seed) = next() {
        current.store(seed, Ordering::Relaxed);
        let steps = draw(seed);
        match run(case(), &steps) {
            Ok(report) => {
                let mut totals = totals.lock().unwrap();
                totals.operations += steps.len();
                totals.launches += report.launches;
                totals.calls += report.calls;
                totals.answers += report.answers;
            }
            Err(what) if setting("GREENROOM_FLEET_MODEL_SURVEY", 0) > 0 => println!("seed {seed}: {what}"),
            Err(what) => {
                let (steps, shorter) = shrunk(steps, &case, what.clone());
                let steps: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
                current.store(OVER, Ordering::Relaxed);
                panic!(
                    "{what}\n\nreplay: GREENROOM_FLEET_MODEL_SEED={seed} GREENROOM_FLEET_MODEL_CASES=1 \
                     cargo test -p greenroom-fleet --test model -- --exact {test}\n\nshorter, {} operations:\n{}\n{shorter}",
                    steps.len(),
                    steps.join("\n"),
                );
            }
        }
    }
    current.store(OVER, Ordering::Relaxed);
}

fn explore(cases: u64, draw: impl Fn(u64) -> Vec<Step> + Sync, case: impl Fn() -> Case + Sync) {
    quiet();
    let first = setting("GREENROOM_FLEET_MODEL_SEED", 0);
    let (next, totals) = (AtomicU64::new(first), Mutex::new(Totals::default()));
    let next = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < first + cases);
    let test = std::thread::current();
    let test = test.name().unwrap_or_default();
    // A worker that fails lets the scope panic when the others have ended.
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| work(test, next, &draw, &case, &totals));
        }
    });
    let Totals { operations, launches, calls, answers } = totals.into_inner().unwrap();
    println!("{operations} operations, {launches} launches, {calls} calls, {answers:?}");
}

/// The number of cases in memory. The other backends are slower, and have a fifth of them.
fn cases() -> u64 {
    setting("GREENROOM_FLEET_MODEL_CASES", 10)
}

fn fewer_cases() -> u64 {
    (cases() / 5).max(1)
}

/// Few operations for the real clock. Every 15th is a restart, taken in turn from `restarts`.
fn drawn_for_the_real_clock(seed: u64, restarts: &[Restart]) -> Vec<Step> {
    let mut steps: Vec<Step> = drawn(seed, 60).into_iter().map(hurried).collect();
    let restarts = restarts.iter().cycle();
    for (step, restart) in steps.iter_mut().skip(14).step_by(15).zip(restarts) {
        step.op = Op::Restart(*restart);
    }
    steps
}

#[test]
fn the_fleet_keeps_its_promises_under_faults_and_restarts() {
    explore(cases(), |seed| drawn(seed, 500), || Case::on(Store::memory()));
}

#[test]
fn the_fleet_keeps_its_promises_on_a_file() {
    let draw = |seed| drawn_for_the_real_clock(seed, &[Restart::Kill]);
    explore(fewer_cases(), draw, || Case::on(Store::file()));
}

#[test]
fn the_fleet_keeps_its_promises_on_a_map_behind_a_lock() {
    explore(fewer_cases(), |seed| drawn(seed, 500), || Case::on(Store::shelf()));
}

#[test]
fn the_fleet_keeps_its_promises_over_sqlite() {
    explore(fewer_cases(), |seed| drawn(seed, 500), || Case::on(Store::sqlite()));
}

#[test]
fn the_fleet_keeps_its_promises_on_postgres() {
    let Some(address) = server::address() else { return };
    let draw = |seed| drawn_for_the_real_clock(seed, &[Restart::Kill, Restart::TakeOver]);
    explore(fewer_cases(), draw, || Case::on(Store::postgres(&address)));
}
