//! Plays a fault plan against a session and checks that the promises hold.

mod asking;
mod breaking;
mod driver;
pub(super) mod plan;
mod run;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use greenroom::SessionBuilder;
use serde_json::Value;

use self::driver::Driver;
use crate::chaos::plan::{FaultMix, FaultPlan};

pub use run::Run;

/// Plays a [`FaultPlan`] against your sessions and their tools, on an in-memory CLI. Checks every promise in
/// [`invariants`](super::invariants), that each prompt has one outcome, and that no task is left behind.
///
/// Sessions get no restart limits, so that they survive the faults.
/// A run waits a lot, so use tokio's paused clock: `#[tokio::test(start_paused = true)]`.
///
/// ```
/// use greenroom_testkit::{Chaos, FaultMix};
/// use greenroom::{Session, ToolServer};
/// use serde_json::json;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Add { a: u64, b: u64 }
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?.block_on(async {
/// # std::panic::set_hook(Box::new(|_| {}));
/// let chaos = Chaos::new(|| {
///     let calc = ToolServer::new("calc", "1.0.0").tool("add", "Add", async |args: Add| args.a + args.b);
///     Session::builder().mcp_server(calc)
/// })
/// // The arguments of call number `n`, and a check of its result if no fault hit the call.
/// .call("calc", "add", |n| json!({ "a": n, "b": 1 }))
/// .expect(|args, result| {
///     let sum = args["a"].as_u64().unwrap_or_default() + 1;
///     (result["content"][0]["text"] == sum.to_string()).then_some(()).ok_or(format!("not {sum}"))
/// });
/// // A failing seed is shrunk and printed with its plan.
/// chaos.test(&FaultMix::all(), 0..4).await;
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Chaos {
    builder: Arc<dyn Fn() -> SessionBuilder + Send + Sync>,
    calls: Vec<PlannedCall>,
    expect: Option<Expect>,
    keep_transcript: bool,
    watch: Arc<dyn Fn() + Send + Sync>,
}

type Expect = Arc<dyn Fn(&Value, &Value) -> Result<(), String> + Send + Sync>;

/// A tool to call, with a function that makes the arguments.
#[derive(Clone)]
struct PlannedCall {
    server: String,
    tool: String,
    arguments: Arc<dyn Fn(u64) -> Value + Send + Sync>,
}

/// Longest wait for an answer or an outcome, after which it counts as missing.
const PATIENCE: Duration = Duration::from_secs(300);

/// Most plans that are tried to make a failing plan smaller.
const SHRINKS: usize = 300;

impl Chaos {
    /// Plays against the sessions of this builder; their transport is replaced.
    pub fn new(builder: impl Fn() -> SessionBuilder + Send + Sync + 'static) -> Self {
        Self {
            builder: Arc::new(builder),
            calls: Vec::new(),
            expect: None,
            keep_transcript: true,
            watch: Arc::new(|| ()),
        }
    }

    /// Adds a tool to call. Tools take turns; `arguments` gets the number of the call, counted from 0 over all tools.
    #[must_use]
    pub fn call(
        mut self,
        server: impl Into<String>,
        tool: impl Into<String>,
        arguments: impl Fn(u64) -> Value + Send + Sync + 'static,
    ) -> Self {
        let (server, tool) = (server.into(), tool.into());
        self.calls.push(PlannedCall { server, tool, arguments: Arc::new(arguments) });
        self
    }

    /// Checks the result of each call without a fault of its own, given its arguments. JSON-RPC errors are skipped,
    /// because faults around the call cause them.
    #[must_use]
    pub fn expect(
        mut self,
        expect: impl Fn(&Value, &Value) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.expect = Some(Arc::new(expect));
        self
    }

    /// Keeps no transcript and no outcomes, for very long plans.
    #[must_use]
    pub fn without_transcript(mut self) -> Self {
        self.keep_transcript = false;
        self
    }

    /// Calls `watch` each time when all requests are answered.
    #[must_use]
    pub fn watch(mut self, watch: impl Fn() + Send + Sync + 'static) -> Self {
        self.watch = Arc::new(watch);
        self
    }

    /// Plays one plan.
    pub async fn run(&self, plan: &FaultPlan) -> Run {
        Box::pin(Driver::play(self, plan)).await
    }

    /// Searches for a smaller plan that also fails. Returns the run of the smallest such plan.
    pub async fn shrink(&self, failed: Run) -> Run {
        let mut smallest = failed;
        let mut left = SHRINKS;
        'smaller: loop {
            for plan in smallest.plan.shrink() {
                if left == 0 {
                    return smallest;
                }
                left -= 1;
                let run = self.run(&plan).await;
                if !run.is_fine() {
                    smallest = run;
                    continue 'smaller;
                }
            }
            return smallest;
        }
    }

    /// Plays one plan, and shrinks it if it fails.
    ///
    /// # Panics
    /// If the plan fails, with the failures, the smallest plan that fails, how to play it again, and its transcript.
    pub async fn test_plan(&self, plan: &FaultPlan) -> Run {
        let run = self.run(plan).await;
        if run.is_fine() {
            return run;
        }
        let (plan, failures) = (run.plan.clone(), run.failures());
        let smallest = self.shrink(run).await;
        let shrunk = match smallest.plan == plan {
            true => "No smaller plan fails.".to_owned(),
            false => format!("A smaller plan fails, {smallest}"),
        };
        panic!(
            "{} fails, {}:{failures}\n\n{shrunk}\n\nTo play it again:\n    chaos.test_plan(&{}).await;\n\n\
             Its transcript (incarnation, time, side, line; `chaos_settles` is a request of Chaos itself):\n{}",
            plan.name(),
            plan.size(),
            smallest.plan.code(),
            smallest.transcript
        );
    }

    /// Plays the plans of these seeds, one after the other.
    ///
    /// # Panics
    /// As [`test_plan`](Chaos::test_plan), for the first seed that fails.
    pub async fn test(&self, mix: &FaultMix, seeds: Range<u64>) {
        for seed in seeds {
            self.test_plan(&mix.plan(seed)).await;
        }
    }
}
