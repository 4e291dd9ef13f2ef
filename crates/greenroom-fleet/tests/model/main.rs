//! The model-based test of the fleet: sequences of operations, faults and restarts, over a model of what the fleet promises.
//!
//! - `GREENROOM_FLEET_MODEL_CASES`: the number of cases (default: 50; a case has up to 300 operations).
//! - `GREENROOM_FLEET_MODEL_SURVEY=1`: print what fails and go on.
//! - `GREENROOM_FLEET_MODEL_SEED`: the seed that the message of a failure names. Names and ids are random all the same, and files are
//!   touched on threads, so a rare failure may need several runs.

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

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use self::driver::Case;
use self::model::Answers;
use self::ops::{Step, hurried, steps};

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
fn drawn(seed: u64, most: usize) -> Vec<Step> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    steps(most).new_tree(&mut runner).unwrap().current()
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
            if last.1 >= 12 {
                eprintln!("the case with GREENROOM_FLEET_MODEL_SEED={now} does not end");
                std::process::abort();
            }
        }
    });
}

fn explore(cases: u64, draw: impl Fn(u64) -> Vec<Step>, case: impl Fn() -> Case) {
    let first = setting("GREENROOM_FLEET_MODEL_SEED", 0);
    let current = Arc::new(AtomicU64::new(first));
    guard(current.clone());
    let (mut operations, mut launches, mut calls) = (0, 0, 0);
    let mut answers = Answers::default();
    for seed in first..first + cases {
        current.store(seed, Ordering::Relaxed);
        let steps = draw(seed);
        operations += steps.len();
        match run(case(), &steps) {
            Ok(report) => {
                launches += report.launches;
                calls += report.calls;
                answers += report.answers;
            }
            Err(what) if setting("GREENROOM_FLEET_MODEL_SURVEY", 0) > 0 => println!("seed {seed}: {what}"),
            Err(what) => {
                let (steps, shorter) = shrunk(steps, &case, what.clone());
                let steps: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
                panic!(
                    "GREENROOM_FLEET_MODEL_SEED={seed} GREENROOM_FLEET_MODEL_CASES=1\n{what}\n\nshorter, {} operations:\n{}\n{shorter}",
                    steps.len(),
                    steps.join("\n"),
                );
            }
        }
    }
    println!("{operations} operations, {launches} launches, {calls} calls, {answers:?}");
    current.store(OVER, Ordering::Relaxed);
}

#[test]
fn the_fleet_keeps_its_promises_under_faults_and_restarts() {
    explore(setting("GREENROOM_FLEET_MODEL_CASES", 50), |seed| drawn(seed, 300), Case::in_memory);
}

#[test]
fn the_fleet_keeps_its_promises_on_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let files = AtomicU64::new(0);
    let case = || {
        let file = files.fetch_add(1, Ordering::Relaxed);
        Case::in_file(folder.path().join(format!("fleet-{file}.redb")))
    };
    let draw = |seed| drawn(seed, 60).into_iter().map(hurried).collect();
    explore(2, draw, case);
}
