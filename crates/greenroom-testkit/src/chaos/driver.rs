//! Plays a plan: the application, the settling after faults, and the checks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use greenroom::Outcome;
use greenroom::Result;
use greenroom::Session;
use greenroom::options::{Restart, Restarts};
use greenroom::testing::CallFault;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::run::Run;
use super::{Chaos, PATIENCE};
use crate::base::{lock, spawn};
use crate::chaos::plan::{FaultKind, FaultPlan, Step};
use crate::cli::ScriptedCli;
use crate::cli::hand::{CliEnd, ScriptedListener};
use crate::invariants::Checker;
use crate::leak::LeakCheck;
use crate::wire::record::Recorder;

pub(super) struct Driver<'a> {
    pub(super) chaos: &'a Chaos,
    pub(super) session: Session,
    pub(super) servers: Vec<String>,
    pub(super) listener: ScriptedListener,
    pub(super) end: Option<CliEnd>,
    /// CLIs that closed their stdout and still run.
    pub(super) deaf: Vec<CliEnd>,
    pub(super) faults: HandlerFaults,
    recorder: Recorder,
    checker: Checker,
    /// Unanswered requests of the current CLI, in the order in which they were sent.
    pub(super) open: Vec<OpenRequest>,
    /// The prompt of the running turn, and whether the CLI has started the turn.
    pub(super) prompt: Option<(Value, bool)>,
    turns: Vec<(usize, AbortOnDropHandle<Result<Outcome>>)>,
    prompted: usize,
    pub(super) run: Run,
}

/// The planned faults of calls, by request id.
type HandlerFaults = Arc<Mutex<HashMap<String, CallFault>>>;

/// A request without an answer.
pub(super) struct OpenRequest {
    pub(super) request_id: String,
    pub(super) call: Option<OpenCall>,
}

/// A tool call without an answer.
pub(super) struct OpenCall {
    pub(super) body: Value,
    pub(super) rpc_id: u64,
    pub(super) arguments: Value,
    pub(super) fault: Option<FaultKind>,
}

/// The CLI ended while the driver waited for a frame.
struct CliGone;

impl<'a> Driver<'a> {
    pub(super) async fn play(chaos: &'a Chaos, plan: &FaultPlan) -> Run {
        let leaks = LeakCheck::tasks();
        let mut run = match Self::start(chaos, plan).await {
            Ok(driver) => driver.finish().await,
            Err(problem) => Run { plan: plan.clone(), problems: vec![problem], ..Run::default() },
        };
        if let Err(leak) = leaks.check(PATIENCE).await {
            run.problems.push(leak);
        }
        run
    }

    async fn start(chaos: &'a Chaos, plan: &FaultPlan) -> std::result::Result<Self, String> {
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
            .inject_in_calls(move |request_id| lock(&planned).remove(request_id))
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
        Ok(Self {
            chaos,
            session,
            servers,
            listener,
            end: Some(end),
            deaf: Vec::new(),
            faults,
            recorder,
            checker: Checker::new(),
            open: Vec::new(),
            prompt: None,
            turns: Vec::new(),
            prompted: 0,
            run: Run { plan: plan.clone(), ..Run::default() },
        })
    }

    async fn finish(mut self) -> Run {
        for (index, step) in self.run.plan.steps.clone().iter().enumerate() {
            self.step(index, step).await;
            if !self.run.problems.is_empty() {
                break;
            }
        }
        if self.run.problems.is_empty() {
            self.settle().await;
        }
        if self.run.problems.is_empty() {
            self.check("at the end of the plan".into());
        }
        if let Ok(Ok(snapshot)) = timeout(PATIENCE, self.session.snapshot()).await {
            self.run.counters = snapshot.counters;
            let owed = snapshot.router.map_or(0, |router| router.owed.len());
            if self.run.problems.is_empty() && owed > 0 {
                self.run.problems.push(format!("{owed} requests are still on the router's list"));
            }
        }
        self.stop().await;
        self.read_wire();
        self.run.report = self.checker.report();
        self.run
    }

    /// Checks what went over the wire since the last time.
    fn read_wire(&mut self) {
        let new = self.recorder.take();
        new.entries.iter().for_each(|entry| self.checker.observe(entry));
        if self.chaos.keep_transcript {
            self.run.transcript.entries.extend(new.entries);
        }
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
                (self.chaos.watch)();
            }
        }
        self.take_frames();
    }

    /// Checks the transcript at a moment when every request must be answered.
    fn check(&mut self, moment: String) {
        self.read_wire();
        if !self.checker.report().is_fine() {
            self.run.problems.push(format!("found when everything should have been answered, {moment}"));
        }
        lock(&self.faults).clear();
    }

    async fn prompt(&mut self) {
        match self.session.prompt(format!("prompt {}", self.prompted)).await {
            Ok(mut turn) => {
                let turn = spawn(async move { turn.outcome().await });
                self.turns.push((self.prompted, turn));
                self.prompted += 1;
            }
            Err(error) if error.kind() == greenroom::ErrorKind::AtCapacity => {}
            Err(error) => self.run.problems.push(format!("a prompt was not accepted: {error}")),
        }
    }

    /// Waits until every call is answered and every prompt has an outcome.
    async fn settle(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.run.problems.is_empty() {
            let settled = timeout_at(deadline, self.settle_once()).await;
            match settled {
                Ok(Ok(())) if self.turns.is_empty() => break,
                // There is a new CLI, or another prompt.
                Ok(Ok(()) | Err(CliGone)) => tokio::time::sleep(Duration::from_millis(1)).await,
                Err(_) => {
                    let open: Vec<_> = self.open.iter().map(|open| open.request_id.as_str()).collect();
                    let turns: Vec<_> = self.turns.iter().map(|(number, _)| number).collect();
                    let text = format!("requests {open:?} have no answer, and prompts {turns:?} no outcome");
                    return self.run.problems.push(format!("after {:?} {text}", PATIENCE));
                }
            }
        }
        self.deaf.clear();
    }

    async fn settle_once(&mut self) -> std::result::Result<(), CliGone> {
        self.cli().await.ok_or(CliGone)?;
        let hangs = |call: &OpenCall| call.fault == Some(FaultKind::HandlerHang);
        let hanging = self.open.iter().filter(|open| open.call.as_ref().is_some_and(hangs));
        for request_id in hanging.map(|open| open.request_id.clone()).collect::<Vec<_>>() {
            self.cancel(&request_id);
        }
        self.answered_so_far().await?;
        while let Some((prompt, begun)) = self.prompt.take() {
            let end = self.end.as_mut().ok_or(CliGone)?;
            if !begun {
                end.begin_turn();
            }
            end.finish_turn(&prompt, "done");
            self.answered_so_far().await?;
        }
        self.take_outcomes().await;
        Ok(())
    }

    /// Waits until all requests are answered. Those before `chaos_settles` have at least reached their handlers when it is.
    async fn answered_so_far(&mut self) -> std::result::Result<(), CliGone> {
        self.ask(json!({ "subtype": "chaos_settles" })).await;
        while !self.open.is_empty() {
            let end = self.end.as_mut().ok_or(CliGone)?;
            let Some(frame) = end.recv().await else {
                self.gone();
                return Err(CliGone);
            };
            self.frame(frame);
        }
        Ok(())
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
                    self.run.prompts += 1;
                    if self.chaos.keep_transcript {
                        self.run.outcomes.push(outcome);
                    }
                }
                Ok(Err(error)) => self.run.problems.push(format!("prompt {number} has no outcome: {error}")),
                Err(_) => self.run.problems.push(format!("the turn of prompt {number} panicked")),
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
            Ok(Err(error)) => self.run.problems.push(format!("the session failed: {error}")),
            Err(_) => self.run.problems.push(format!("the session did not stop within {bound:?}")),
        }
    }
}
