//! The CLI and the application of a plan.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};

use super::handlers::HandlerFaults;
use super::run::{Progress, Run};
use super::{Chaos, PlannedCall};
use crate::actor::work::Task;
use crate::error::Result;
use crate::options::{Restart, Restarts};
use crate::report::{Counters, Outcome};
use crate::session::Session;
use crate::testkit::cli::ScriptedCli;
use crate::testkit::hand::{CliEnd, ScriptedListener};
use crate::testkit::invariants::Checker;
use crate::testkit::leak::LeakCheck;
use crate::testkit::plan::{FaultKind, FaultPlan, Step};
use crate::testkit::record::Recorder;
use crate::testkit::transcript::Transcript;

pub(super) struct Driver<'a> {
    chaos: &'a Chaos,
    pub(super) session: Session,
    pub(super) servers: Vec<String>,
    listener: ScriptedListener,
    pub(super) end: Option<CliEnd>,
    /// CLIs that closed their stdout and go on running.
    pub(super) deaf: Vec<CliEnd>,
    pub(super) faults: HandlerFaults,
    wire: Wiretap,
    /// What the CLI of the moment waits for, in the order in which it was asked.
    pub(super) open: BTreeMap<u64, Open>,
    by_id: HashMap<String, u64>,
    asked: u64,
    calls: u64,
    rpc_id: u64,
    /// The prompt of the running turn, and whether the CLI has begun with it.
    prompt: Option<Value>,
    begun: bool,
    turns: Vec<(usize, Task<Result<Outcome>>)>,
    prompted: usize,
    /// Prompts that have their outcome.
    ended: u64,
    outcomes: Vec<Outcome>,
    pub(super) problems: Vec<String>,
}

/// Something that was asked.
pub(super) struct Open {
    pub(super) request_id: String,
    /// For a tool call: its body, its JSON-RPC id, its arguments.
    pub(super) call: Option<(Value, u64, Value)>,
    pub(super) fault: Option<FaultKind>,
}

/// What was recorded, and what the checks say of it.
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

/// The CLI went away while something was waited for.
pub(super) struct CliGone;

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
        if let Err(leak) = leaks.check(chaos.patience).await {
            run.problems.push(leak.to_string());
        }
        run
    }

    async fn start(chaos: &'a Chaos) -> std::result::Result<Self, String> {
        let (transport, mut listener) = ScriptedCli::by_hand();
        let recorder = Recorder::around(transport);
        let faults = HandlerFaults::default();
        let mut builder = (chaos.builder)().transport(recorder.clone());
        let servers = builder.map_servers(|server| faults.in_server(server));
        if !chaos.keep_limits {
            // A period of nothing forgets every restart at once, so that the limit is never reached.
            let at_once = || Restart {
                intensity: 1,
                period: Duration::ZERO,
                backoff_min: Duration::ZERO,
                backoff_max: Duration::ZERO,
            };
            builder = builder.configure(|options| {
                let Restarts { cli, server, control, .. } = &mut options.restarts;
                (*cli, *server, *control) = (at_once(), at_once(), at_once());
            });
        }
        let starting = timeout(chaos.patience, async {
            tokio::join!(builder.start(), async {
                let mut end = listener.accept().await;
                end.handshake().await;
                end
            })
        });
        let (session, end) = starting.await.map_err(|_| "the session did not start in time")?;
        let session = session.map_err(|error| format!("the session did not start: {error}"))?;
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
            self.check();
        }
        if let Ok(Ok(snapshot)) = timeout(self.chaos.patience, self.session.snapshot()).await {
            run.counters = snapshot.counters;
            let owed = snapshot.router.map_or(0, |router| router.owed.len() + router.parked);
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
                self.check();
                if let Some(watch) = &self.chaos.watch {
                    let counts = self.wire.checker.report().counts;
                    watch(&Progress { step: index, calls: self.calls, counts });
                }
            }
        }
        self.take_what_is_there();
    }

    /// Everything is answered: whatever is not, is a violation.
    fn check(&mut self) {
        self.wire.read();
        let report = self.wire.checker.report();
        if !report.is_fine() {
            self.problems.push("the promises were broken when everything should have been answered".into());
        }
        self.faults.forget_all();
    }

    async fn prompt(&mut self) {
        match self.session.prompt(format!("prompt {}", self.prompted)).await {
            Ok(mut turn) => {
                let turn = Task::spawn(async move { turn.outcome().await });
                self.turns.push((self.prompted, turn));
                self.prompted += 1;
            }
            Err(error) if error.kind() == crate::ErrorKind::AtCapacity => {}
            Err(error) => self.problems.push(format!("a prompt was not accepted: {error}")),
        }
    }

    // ---- the CLI -------------------------------------------------------------------------------------------------

    /// The CLI of the moment, connected.
    pub(super) async fn cli(&mut self) -> Option<&mut CliEnd> {
        if self.end.is_none() {
            self.gone();
            let deadline = Instant::now() + self.chaos.patience;
            match timeout_at(deadline, accept(&mut self.listener, &self.session)).await {
                Ok(Some(end)) => self.end = Some(end),
                Ok(None) => {
                    let why = self
                        .session
                        .failure()
                        .map_or_else(|| "nobody knows why".into(), |error| error.to_string());
                    self.problems.push(format!("the session is no more: {why}"));
                }
                Err(_) => self.problems.push("the CLI was not started again in time".into()),
            }
        }
        self.end.as_mut()
    }

    /// What the CLI that is gone had asked will not be answered.
    pub(super) fn gone(&mut self) {
        self.end = None;
        self.open.clear();
        self.by_id.clear();
        self.prompt = None;
    }

    /// Asks the host something; `None` when there is no CLI to do so.
    pub(super) async fn ask(&mut self, body: Value, open: Option<Open>) -> Option<u64> {
        let number = self.asked;
        self.asked += 1;
        let end = self.cli().await?;
        let request_id = format!("chaos_{}_{number}", end.launch().epoch);
        let mut open = open.unwrap_or(Open { request_id: String::new(), call: None, fault: None });
        open.request_id.clone_from(&request_id);
        if let Some(fault) = open.fault {
            self.faults.plan(&request_id, fault, u32::try_from(number).unwrap_or(0));
        }
        self.by_id.insert(request_id.clone(), number);
        self.open.insert(number, open);
        let frame = json!({ "type": "control_request", "request_id": request_id, "request": body });
        self.end.as_mut()?.send(frame);
        Some(number)
    }

    pub(super) fn mcp(server: &str, message: Value) -> Value {
        json!({ "subtype": "mcp_message", "server_name": server, "message": message })
    }

    /// Begins the turn of the prompt that the CLI has, as one does that makes calls.
    fn begin(&mut self) {
        if let (Some(_), false, Some(end)) = (&self.prompt, self.begun, &mut self.end) {
            end.begin_turn();
            self.begun = true;
        }
    }

    /// A tool call, the next one in turn. Returns its number.
    pub(super) async fn call(&mut self, fault: Option<FaultKind>) -> Option<u64> {
        let calls = &self.chaos.calls;
        let n = self.calls;
        let at = usize::try_from(n).unwrap_or(0).checked_rem(calls.len())?;
        let PlannedCall { server, tool, arguments } = &calls[at];
        let (arguments, rpc_id) = (arguments(n), self.rpc_id);
        self.calls += 1;
        self.rpc_id += 1;
        let meta = json!({ "claudecode/toolUseId": format!("toolu_{rpc_id}") });
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        let body = Self::mcp(
            server,
            json!({ "jsonrpc": "2.0", "id": rpc_id, "method": "tools/call", "params": params }),
        );
        let open = Open { request_id: String::new(), call: Some((body.clone(), rpc_id, arguments)), fault };
        self.ask(body, Some(open)).await
    }

    /// Cancels a tool call, as the CLI does when its user interrupts.
    pub(super) async fn cancel(&mut self, number: u64) {
        let Some((body, rpc_id, _)) = self.open.get(&number).and_then(|open| open.call.as_ref()) else {
            return;
        };
        let server = body["server_name"].as_str().unwrap_or_default().to_owned();
        let params = json!({ "requestId": rpc_id, "reason": "chaos" });
        let message = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
        self.ask(Self::mcp(&server, message), None).await;
    }

    pub(super) fn forget(&mut self, number: u64) {
        if let Some(open) = self.open.remove(&number) {
            self.by_id.remove(&open.request_id);
        }
    }

    fn take_what_is_there(&mut self) {
        while let Some(end) = &mut self.end {
            match end.recv().now_or_never() {
                Some(Some(frame)) => self.frame(frame),
                Some(None) => self.gone(),
                None => return,
            }
        }
    }

    fn frame(&mut self, frame: Value) {
        match frame["type"].as_str() {
            Some("control_response") => {
                let id = frame["response"]["request_id"].as_str().unwrap_or_default();
                let Some(open) = self.by_id.remove(id).and_then(|number| self.open.remove(&number)) else {
                    return;
                };
                self.answered(&open, &frame["response"]);
            }
            Some("control_request") => {
                if let Some(end) = &mut self.end {
                    end.answer(&frame, json!({}));
                }
            }
            Some("user") => (self.prompt, self.begun) = (Some(frame), false),
            _ => {}
        }
    }

    fn answered(&mut self, open: &Open, response: &Value) {
        let (Some(expect), Some((_, _, arguments)), None) = (&self.chaos.expect, &open.call, open.fault)
        else {
            return;
        };
        let result = &response["response"]["mcp_response"]["result"];
        if result.is_object()
            && let Err(problem) = expect(arguments, result)
        {
            self.problems.push(format!("{}: {problem}: {result}", open.request_id));
        }
    }

    // ---- settling ------------------------------------------------------------------------------------------------

    /// Waits until every call is answered and every prompt has its outcome.
    async fn settle(&mut self) {
        let deadline = Instant::now() + self.chaos.patience;
        while self.problems.is_empty() {
            let settled = timeout_at(deadline, self.settle_once()).await;
            match settled {
                Ok(Ok(())) if self.turns.is_empty() => break,
                // Another CLI, or another prompt.
                Ok(Ok(()) | Err(CliGone)) => tokio::time::sleep(Duration::from_millis(1)).await,
                Err(_) => {
                    let open: Vec<_> = self.open.values().map(|open| open.request_id.as_str()).collect();
                    let turns: Vec<_> = self.turns.iter().map(|(number, _)| number).collect();
                    let text = format!("requests {open:?} have no answer, and prompts {turns:?} no outcome");
                    return self.problems.push(format!("after {:?} {text}", self.chaos.patience));
                }
            }
        }
        self.deaf.clear();
    }

    async fn settle_once(&mut self) -> std::result::Result<(), CliGone> {
        self.cli().await.ok_or(CliGone)?;
        let hanging = |open: &Open| open.fault == Some(FaultKind::HandlerHang);
        let hanging: Vec<u64> = self.open.iter().filter(|(_, open)| hanging(open)).map(|(n, _)| *n).collect();
        for number in hanging {
            self.cancel(number).await;
        }
        // What was asked before this is at least on its way to whoever answers.
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
        for (number, mut turn) in std::mem::take(&mut self.turns) {
            if !turn.is_finished() {
                waiting.push((number, turn));
                continue;
            }
            match turn.join().await {
                Some(Ok(outcome)) => {
                    self.ended += 1;
                    if self.chaos.keep_transcript {
                        self.outcomes.push(outcome);
                    }
                }
                Some(Err(error)) => self.problems.push(format!("prompt {number} has no outcome: {error}")),
                None => self.problems.push(format!("the turn of prompt {number} panicked")),
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
                // A CLI that is just being started goes, too.
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

/// The next CLI, its handshake done; `None` when the session is no more.
async fn accept(listener: &mut ScriptedListener, session: &Session) -> Option<CliEnd> {
    let accepting = async {
        loop {
            let mut end = listener.try_accept().await?;
            // Its own host may give it up during the handshake.
            while let Some(frame) = end.recv().await {
                if frame["request"]["subtype"] == "initialize" {
                    let answer = CliEnd::handshake_answer(&frame);
                    end.answer(&frame, answer);
                    return Some(end);
                }
            }
        }
    };
    tokio::select! {
        end = accepting => end,
        () = session.wait() => None,
    }
}
