//! `-- --guard`: fails if a figure is out of its bounds. Its figures do not depend on the speed of the machine: counts,
//! sizes, and ratios of hosts that run in turn. A figure that is out of its bounds is measured again before it fails.

use super::driver::Plan;
use super::greenroom_host::{Held, Result};
use super::report::median;
use super::rows::{self, FMT, GREENROOM, REGISTRY, Run, Side};

enum Bound {
    AtMost(f64),
    AtLeast(f64),
}
use Bound::{AtLeast, AtMost};

impl Bound {
    fn holds(&self, value: f64) -> bool {
        match *self {
            AtMost(bound) => value <= bound,
            AtLeast(bound) => value >= bound,
        }
    }
}

struct Guard {
    what: &'static str,
    bound: Bound,
    measure: fn() -> Result<f64>,
}

/// Ratios have wide bounds, around half or twice the figures of a machine with two shared cores.
const GUARDS: &[Guard] = &[
    // Equal on every machine, except for allocations that depend on the size of a read.
    Guard { what: "allocations for a call", bound: AtMost(11.0), measure: rows::allocations_per_call },
    // Bytes on the heap are equal on every machine as well; the slack is for pooled buffers.
    Guard {
        what: "bytes of an idle session",
        bound: AtMost(96_000.0),
        measure: || held(|held| held.session as f64),
    },
    Guard {
        what: "bytes of an idle server",
        bound: AtMost(16_000.0),
        measure: || held(|held| held.server as f64),
    },
    Guard {
        what: "bytes of a call in flight",
        bound: AtMost(2_500.0),
        measure: || held(|held| held.call as f64),
    },
    // A session in memory has no thread of its own; the runtime may start a thread during the measurement.
    Guard { what: "threads for each session", bound: AtMost(0.1), measure: || held(|held| held.threads) },
    // A session with a process has no thread of its own either.
    Guard {
        what: "threads for each session with a process",
        bound: AtMost(0.3),
        measure: || Ok(rows::run(&Side::processes(20, Plan { calls: 500, ..Plan::default() }))?.threads),
    },
    // Cost of the session over a bare loop when there is always a call to read.
    Guard {
        what: "64 in flight: calls/s of greenroom to tokio",
        bound: AtLeast(0.75),
        measure: || ratio(&on_one(GREENROOM, 64), &on_one("tokio", 64), |run| run.per_second),
    },
    // Compares with the pipe itself, so that a slow host `tokio` hides nothing.
    Guard {
        what: "64 in flight: calls/s of greenroom to limit",
        bound: AtLeast(0.07),
        measure: || ratio(&pipe(GREENROOM, 64), &pipe("limit", 64), |run| run.per_second),
    },
    // Cost of the session for a single call.
    Guard {
        what: "1 in flight: p50 of greenroom to tokio",
        bound: AtMost(2.2),
        measure: || ratio(&one_by_one(GREENROOM), &one_by_one("tokio"), |run| run.p50_us),
    },
    // More calls in flight make no call slower.
    Guard {
        what: "calls/s with 10,000 in flight to 64",
        bound: AtLeast(0.5),
        measure: || ratio(&pipe(GREENROOM, 10_000), &pipe(GREENROOM, 64), |run| run.per_second),
    },
    // A subscriber for spans does not change that. A scan of all open requests at each answer made this 2.8 to 3.8.
    Guard {
        what: "traced: p50 beside 10,000 calls to alone",
        bound: AtMost(2.0),
        measure: || Ok(median(times(|| rows::run(&asleep(FMT)).map(|run| run.p50_us / run.beside_p50_us))?)),
    },
    Guard {
        what: "beside 10,000 calls: p50 traced to untraced",
        bound: AtMost(2.0),
        measure: || ratio(&asleep(FMT), &asleep(GREENROOM), |run| run.p50_us),
    },
    // Cost of spans that a subscriber only keeps.
    Guard {
        what: "10,000 in flight: CPU with spans to without",
        bound: AtMost(1.5),
        measure: || ratio(&pipe(REGISTRY, 10_000), &pipe(GREENROOM, 10_000), |run| run.cpu_us),
    },
    // More sessions make no call slower.
    Guard {
        what: "calls/s of 1,000 sessions to one",
        bound: AtLeast(0.3),
        measure: || ratio(&in_memory(1_000, 10), &in_memory(1, 10_000), |run| run.per_second),
    },
];

/// Number of measurements of each side of a ratio, and of a figure that is out of its bounds.
const TIMES: usize = 3;

fn pipe(host: &'static str, window: usize) -> Side {
    Side::pipe(host, Plan { window, calls: 50_000, ..Plan::default() })
}

/// On one processor. With two processors, part of the time of a call may go into waking the other processor, and how much
/// depends on the machine. The bare loop of `tokio` never does that, so the ratio would say little about greenroom.
fn on_one(host: &'static str, window: usize) -> Side {
    Side::pipe(host, Plan { window, calls: 50_000, one_processor: true, ..Plan::default() })
}

fn one_by_one(host: &'static str) -> Side {
    Side::pipe(host, Plan { calls: 5_000, one_processor: true, ..Plan::default() })
}

/// Calls one by one, beside calls that sleep.
fn asleep(host: &'static str) -> Side {
    Side::pipe(host, Plan { asleep: 10_000, calls: 10_000, one_processor: true, ..Plan::default() })
}

fn in_memory(sessions: usize, window: usize) -> Side {
    Side::in_memory(sessions, Plan { window, calls: 100_000 / sessions, ..Plan::default() })
}

fn held(of: fn(&Held) -> f64) -> Result<f64> {
    Ok(of(&rows::held()?))
}

/// The median of the ratios of two hosts that run in turn.
fn ratio(ours: &Side, theirs: &Side, of: fn(&Run) -> f64) -> Result<f64> {
    Ok(median(times(|| Ok(of(&rows::run(ours)?) / of(&rows::run(theirs)?)))?))
}

fn times(measure: impl Fn() -> Result<f64>) -> Result<Vec<f64>> {
    (0..TIMES).map(|_| measure()).collect()
}

pub(crate) fn run() -> Result<()> {
    let mut failed = 0;
    for Guard { what, bound, measure } in GUARDS {
        let mut value = measure()?;
        for _ in 1..TIMES {
            if !bound.holds(value) {
                println!("{what}: {value:.2}, so it is measured again");
                value = measure()?;
            }
        }
        let (word, limit) = match bound {
            AtMost(limit) => ("at most", limit),
            AtLeast(limit) => ("at least", limit),
        };
        let verdict = if bound.holds(value) { "ok" } else { "FAILED" };
        println!("{verdict:6} {what:48} {value:>10.2}, {word} {limit}");
        failed += usize::from(!bound.holds(value));
    }
    if failed > 0 {
        return Err(format!("{failed} figures are far from what they should be").into());
    }
    Ok(())
}
