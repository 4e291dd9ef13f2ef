//! Plays a plan: the application, the settling after faults, and the checks.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use greenroom::Outcome;
use greenroom::Result;
use greenroom::Session;
use greenroom::options::{Restart, Restarts};
use greenroom::report::Counters;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::handlers::HandlerFaults;
use super::run::{Progress, Run};
use super::{Chaos, PATIENCE};
use crate::base::spawn;
use crate::chaos::plan::{FaultKind, FaultPlan, Step};
use crate::cli::ScriptedCli;
use crate::cli::hand::{CliEnd, ScriptedListener};
use crate::invariants::Checker;
use crate::leak::LeakCheck;
use crate::wire::record::Recorder;
use crate::wire::transcript::Transcript;

pub(super) struct Driver<'a> {
    pub(super) chaos: &'a Chaos,
    pub(super) session: Session,
    pub(super) servers: Vec<String>,
    pub(super) listener: ScriptedListener,
    pub(super) end: Option<CliEnd>,
    /// CLIs that closed their stdout and still run.
    pub(super) deaf: Vec<CliEnd>,
    pub(super) faults: HandlerFaults,
    wire: Wiretap,
    /// Unanswered requests of the current CLI, by number.
    pub(super) open: BTreeMap<u64, OpenRequest>,
    pub(super) by_id: HashMap<String, u64>,
    pub(super) asked: u64,
    pub(super) calls: u64,
    pub(super) rpc_id: u64,
    /// The prompt of the running turn, and whether the CLI has started the turn.
    pub(super) prompt: Option<Value>,
    pub(super) begun: bool,
    turns: Vec<(usize, AbortOnDropHandle<Result<Outcome>>)>,
    prompted: usize,
    /// Number of prompts with an outcome.
    ended: u64,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) problems: Vec<String>,
}

/// A request without an answer.
#[derive(Default)]
pub(super) struct OpenRequest {
    pub(super) request_id: String,
    /// For a tool call: body, JSON-RPC id and arguments.
    pub(super) call: Option<(Value, u64, Value)>,
    pub(super) fault: Option<FaultKind>,
}

/// Records the wire and checks it.
struct Wiretap {
    recorder: Recorder,
    checker: Checker,
    kept: Option<Transcript>,
}

impl Wiretap {
    fn read(&mut self) {
        let new = self.recorder.take();
        new.entries().iter().for_each(|entry| self.checker.observe(entry));
        if let Some(kept) = &mut self.kept {
            kept.extend(new.entries().iter().cloned());
        }
    }
}

/// The CLI ended while the driver waited for a frame.
struct CliGone;

impl<'a> Driver<'a> {
    pub(super) async fn play(chaos: &'a Chaos, plan: &FaultPlan) -> Run {
        let leaks = LeakCheck::tasks();
        let mut run = Run {
            plan: plan.clone(),
            problems: Vec::new(),
            report: Default::default(),
            transcript: Transcript::default(),
            calls: 0,
            prompts: 0,
            outcomes: Vec::new(),
            counters: Counters::default(),
        };
        match Self::start(chaos).await {
            Ok(driver) => driver.finish(plan, &mut run).await,
            Err(problem) => run.problems.push(problem),
        }
        if let Err(leak) = leaks.check(PATIENCE).await {
            run.problems.push(leak.to_string());
        }
        run
    }

    async fn start(chaos: &'a Chaos) -> std::result::Result<Self, String> {
        let (transport, mut listener) = ScriptedCli::by_hand();
        let recorder = Recorder::around(transport);
        let faults = HandlerFaults::default();
        let planned = faults.clone();
        // A period of zero forgets every restart at once, so the limit is never reached.
        let at_once = || Restart {
            intensity: 1,
            period: Duration::ZERO,
            backoff_min: Duration::ZERO,
            backoff_max: Duration::ZERO,
        };
        let builder = (chaos.builder)()
            .transport(recorder.clone())
            .inject_in_calls(move |request_id| planned.take(request_id))
            .configure(|options| {
                let Restarts { cli, server, control, .. } = &mut options.restarts;
                (*cli, *server, *control) = (at_once(), at_once(), at_once());
            });
        let starting = timeout(PATIENCE, async {
            tokio::join!(builder.start(), async {
                let mut end = listener.accept().await;
                end.handshake().await;
                end
            })
        });
        let (session, end) = starting.await.map_err(|_| "the session did not start in time")?;
        let session = session.map_err(|error| format!("the session did not start: {error}"))?;
        let snapshot = session.snapshot().await.map_err(|error| format!("the session has ended: {error}"))?;
        let servers = snapshot.servers.into_iter().map(|server| server.name).collect();
        let kept = chaos.keep_transcript.then(Transcript::default);
        Ok(Self {
            chaos,
            session,
            servers,
            listener,
            end: Some(end),
            deaf: Vec::new(),
            faults,
            wire: Wiretap { recorder, checker: Checker::new(), kept },
            open: BTreeMap::new(),
            by_id: HashMap::new(),
            asked: 0,
            calls: 0,
            rpc_id: 1,
            prompt: None,
            begun: false,
            turns: Vec::new(),
            prompted: 0,
            ended: 0,
            outcomes: Vec::new(),
            problems: Vec::new(),
        })
    }

    async fn finish(mut self, plan: &FaultPlan, run: &mut Run) {
        for (index, step) in plan.steps().iter().enumerate() {
            self.step(index, step).await;
            if !self.problems.is_empty() {
                break;
            }
        }
        if self.problems.is_empty() {
            self.settle().await;
        }
        if self.problems.is_empty() {
            self.check("at the end of the plan".into());
        }
        if let Ok(Ok(snapshot)) = timeout(PATIENCE, self.session.snapshot()).await {
            run.counters = snapshot.counters;
            let owed = snapshot.router.map_or(0, |router| router.owed.len());
            if self.problems.is_empty() && owed > 0 {
                self.problems.push(format!("{owed} requests are still on the router's list"));
            }
        }
        self.stop().await;
        self.wire.read();
        run.report = self.wire.checker.report();
        run.transcript = self.wire.kept.take().unwrap_or_default();
        run.calls = self.calls;
        run.prompts = self.ended;
        run.outcomes = std::mem::take(&mut self.outcomes);
        run.problems.append(&mut self.problems);
    }

    async fn step(&mut self, index: usize, step: &Step) {
        match step {
            Step::Prompt => self.prompt().await,
            Step::Calls(count) => {
                self.begin();
                for _ in 0..*count {
                    self.call(None).await;
                }
            }
            Step::Fault(kind, n) => self.break_something(*kind, *n).await,
            Step::Settle => {
                self.settle().await;
                self.check(format!("in step {}", index + 1));
                if let Some(watch) = &self.chaos.watch {
                    let counts = self.wire.checker.report().counts;
                    watch(&Progress { step: index, calls: self.calls, counts });
                }
            }
        }
        self.take_frames();
    }

    /// Checks the transcript at a moment when every request must be answered.
    fn check(&mut self, moment: String) {
        self.wire.read();
        let report = self.wire.checker.report();
        if !report.is_fine() {
            self.problems.push(format!("found when everything should have been answered, {moment}"));
        }
        self.faults.forget_all();
    }

    async fn prompt(&mut self) {
        match self.session.prompt(format!("prompt {}", self.prompted)).await {
            Ok(mut turn) => {
                let turn = spawn(async move { turn.outcome().await });
                self.turns.push((self.prompted, turn));
                self.prompted += 1;
            }
            Err(error) if error.kind() == greenroom::ErrorKind::AtCapacity => {}
            Err(error) => self.problems.push(format!("a prompt was not accepted: {error}")),
        }
    }

    /// Waits until every call is answered and every prompt has an outcome.
    async fn settle(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.problems.is_empty() {
            let settled = timeout_at(deadline, self.settle_once()).await;
            match settled {
                Ok(Ok(())) if self.turns.is_empty() => break,
                // There is a new CLI, or another prompt.
                Ok(Ok(()) | Err(CliGone)) => tokio::time::sleep(Duration::from_millis(1)).await,
                Err(_) => {
                    let open: Vec<_> = self.open.values().map(|open| open.request_id.as_str()).collect();
                    let turns: Vec<_> = self.turns.iter().map(|(number, _)| number).collect();
                    let text = format!("requests {open:?} have no answer, and prompts {turns:?} no outcome");
                    return self.problems.push(format!("after {:?} {text}", PATIENCE));
                }
            }
        }
        self.deaf.clear();
    }

    async fn settle_once(&mut self) -> std::result::Result<(), CliGone> {
        self.cli().await.ok_or(CliGone)?;
        let hanging = |open: &OpenRequest| open.fault == Some(FaultKind::HandlerHang);
        let hanging: Vec<u64> = self.open.iter().filter(|(_, open)| hanging(open)).map(|(n, _)| *n).collect();
        for number in hanging {
            self.cancel(number).await;
        }
        // Requests before this one have at least reached their handlers when it is answered.
        self.ask(json!({ "subtype": "chaos_settles" }), None).await;
        while !self.open.is_empty() {
            self.next_frame().await?;
        }
        while let Some(prompt) = self.prompt.take() {
            let end = self.end.as_mut().ok_or(CliGone)?;
            if !self.begun {
                end.begin_turn();
            }
            end.finish_turn(&prompt, "done");
            self.ask(json!({ "subtype": "chaos_settles" }), None).await;
            while !self.open.is_empty() {
                self.next_frame().await?;
            }
        }
        self.take_outcomes().await;
        Ok(())
    }

    async fn next_frame(&mut self) -> std::result::Result<(), CliGone> {
        let end = self.end.as_mut().ok_or(CliGone)?;
        match end.recv().await {
            Some(frame) => {
                self.frame(frame);
                Ok(())
            }
            None => {
                self.gone();
                Err(CliGone)
            }
        }
    }

    async fn take_outcomes(&mut self) {
        let mut waiting = Vec::new();
        for (number, turn) in std::mem::take(&mut self.turns) {
            if !turn.is_finished() {
                waiting.push((number, turn));
                continue;
            }
            match turn.await {
                Ok(Ok(outcome)) => {
                    self.ended += 1;
                    if self.chaos.keep_transcript {
                        self.outcomes.push(outcome);
                    }
                }
                Ok(Err(error)) => self.problems.push(format!("prompt {number} has no outcome: {error}")),
                Err(_) => self.problems.push(format!("the turn of prompt {number} panicked")),
            }
        }
        self.turns = waiting;
    }

    async fn stop(&mut self) {
        self.deaf.clear();
        let bound = self.session.shutdown_bound() + Duration::from_secs(1);
        let end = self.end.take();
        let stopping = async {
            let run_out = async {
                if let Some(end) = end {
                    end.run_out().await;
                }
                // Also ends a CLI that is being started.
                while let Some(end) = self.listener.try_accept().await {
                    end.run_out().await;
                }
            };
            tokio::select! {
                stopped = self.session.stop() => stopped,
                () = async { run_out.await; std::future::pending().await } => Ok(()),
            }
        };
        match timeout(bound, stopping).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.problems.push(format!("the session failed: {error}")),
            Err(_) => self.problems.push(format!("the session did not stop within {bound:?}")),
        }
    }
}
