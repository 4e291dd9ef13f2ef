//! The stand-in CLIs of the model test, and the journal of what they have seen.
//!
//! Each activation has a transport of its own, so that the library's own guard of conversations does not hide two owners from the
//! journal. A stand-in reads the fate of each turn from the prompt's text: see [`Turn`].

mod death;
mod turn;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use greenroom::testkit::{CliEnd, ScriptedCli, ScriptedListener};
use greenroom::transport::Exit;
use greenroom::{NoArgs, Session, SessionBuilder, ToolServer};
use greenroom_fleet::{ActivationContext, Term};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use death::SlowDeath;
pub(crate) use turn::*;

/// The time in which a stand-in dies that nobody waits for, starts, and exits at the end of its input.
const DYING: Duration = Duration::from_millis(5);
const STARTING: Duration = Duration::from_millis(400);
const LEAVING: Duration = Duration::from_millis(30);
/// The bounds that the journal checks at each moment.
#[derive(Clone, Debug)]
pub(crate) struct Caps {
    pub(crate) live: usize,
    pub(crate) starting: usize,
    pub(crate) tenants: BTreeMap<String, usize>,
    /// The time in which a tool call is answered, however slow the backend is.
    pub(crate) call: Duration,
}

/// What the stand-ins of a case have seen.
#[derive(Clone)]
pub(crate) struct Journal {
    state: Arc<Mutex<JournalState>>,
    crash: watch::Sender<(u64, String)>,
}

pub(crate) struct JournalState {
    caps: Caps,
    /// Live stand-ins: name, tenant, conversation, and whether each is starting.
    live: BTreeMap<u64, Live>,
    next: u64,
    /// The prompts that reached a CLI, by the first part of their text, with the names of their sessions.
    pub(crate) reached: BTreeMap<String, Vec<String>>,
    /// The sessions of the turns that have begun, in their order.
    pub(crate) order: Vec<String>,
    /// Prompts whose result a CLI has told.
    pub(crate) finished: BTreeMap<String, u32>,
    terms: BTreeMap<String, Term>,
    violations: Vec<String>,
    pub(crate) launches: u64,
    pub(crate) calls: u64,
    /// Launches that are to fail.
    pub(crate) fail_starts: u32,
}

#[derive(Clone, Debug)]
struct Live {
    name: String,
    tenant: String,
    conversation: String,
    starting: bool,
}

impl JournalState {
    pub(crate) fn violations(&self) -> &[String] {
        &self.violations
    }
}

impl Journal {
    pub(crate) fn new(caps: Caps) -> Self {
        let state = JournalState {
            caps,
            live: BTreeMap::new(),
            next: 0,
            reached: BTreeMap::new(),
            order: Vec::new(),
            finished: BTreeMap::new(),
            terms: BTreeMap::new(),
            violations: Vec::new(),
            launches: 0,
            calls: 0,
            fail_starts: 0,
        };
        Self { state: Arc::new(Mutex::new(state)), crash: watch::Sender::new((0, String::new())) }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, JournalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a promise was broken.
    pub(crate) fn violate(&self, what: impl Into<String>) {
        self.state().violations.push(what.into());
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    /// Live stand-ins, for a message.
    pub(crate) fn live(&self) -> Vec<String> {
        self.state().live.values().map(|live| format!("{live:?}")).collect()
    }

    /// Crashes the CLI of a name, if it lives.
    pub(crate) fn crash(&self, name: &str) {
        self.crash.send_modify(|crash| *crash = (crash.0 + 1, name.to_owned()));
    }

    /// The session of a new activation, with its stand-ins.
    pub(crate) fn activate(&self, cx: &ActivationContext) -> SessionBuilder {
        let (name, term) = (cx.name().as_str().to_owned(), cx.term());
        let before = self.state().terms.insert(name.clone(), term);
        if before.is_some_and(|before| before >= term) {
            self.violate(format!("one-owner: {name} is activated with term {term} after {before:?}"));
        }
        let (transport, listener) = ScriptedCli::by_hand();
        tokio::spawn(self.clone().accept(listener, name, cx.tenant().to_owned()));
        let probe = ToolServer::new("probe", "1.0.0").tool("echo", "Echoes", async |_: NoArgs| "echo");
        Session::builder().mcp_server(probe).allow_server_tools("probe").transport(SlowDeath(transport))
    }

    async fn accept(self, mut listener: ScriptedListener, name: String, tenant: String) {
        while let Some(end) = listener.try_accept().await {
            let life = self.begin(&name, &tenant, &end);
            tokio::spawn(StandIn { journal: self.clone(), life, end, frames: VecDeque::new() }.run());
        }
    }

    fn begin(&self, name: &str, tenant: &str, end: &CliEnd) -> Life {
        let mut state = self.state();
        state.launches += 1;
        let (number, conversation) = (state.next, end.session_id().to_owned());
        state.next += 1;
        let (name, tenant) = (name.to_owned(), tenant.to_owned());
        let twice = state.live.values().any(|live| live.name == name || live.conversation == conversation);
        if twice {
            let text = format!("one-owner: two live CLIs of {name}: {:?}", state.live);
            state.violations.push(text);
        }
        // A session that starts its CLI again is no activation.
        let starting = end.launch().epoch == 1;
        state.live.insert(number, Live { name, tenant: tenant.clone(), conversation, starting });
        let live = state.live.len();
        if live > state.caps.live {
            let text = format!("capped: {live} live CLIs: {:?}", state.live);
            state.violations.push(text);
        }
        let of_tenant = state.live.values().filter(|live| live.tenant == tenant).count();
        let cap = state.caps.tenants.get(&tenant).copied().unwrap_or(usize::MAX);
        if of_tenant > cap {
            let text = format!("capped: {of_tenant} live CLIs of tenant {tenant}: {:?}", state.live);
            state.violations.push(text);
        }
        let starting = state.live.values().filter(|live| live.starting).count();
        if starting > state.caps.starting {
            let text = format!("capped: {starting} CLIs start at once: {:?}", state.live);
            state.violations.push(text);
        }
        Life { journal: self.clone(), number }
    }
}

/// The life of a stand-in in the journal. Its end is the end of the process.
struct Life {
    journal: Journal,
    number: u64,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.journal.state().live.remove(&self.number);
    }
}

struct StandIn {
    journal: Journal,
    life: Life,
    end: CliEnd,
    /// Frames that came during a turn and wait for its end.
    frames: VecDeque<Value>,
}

/// The host has closed stdin, or has killed the process.
struct HostGone;

impl StandIn {
    async fn run(mut self) {
        let name = {
            let state = self.journal.state();
            state.live.get(&self.life.number).map(|live| live.name.clone()).unwrap_or_default()
        };
        let mut crashes = self.journal.crash.subscribe();
        crashes.mark_unchanged();
        let crashed = async move {
            while crashes.changed().await.is_ok() {
                if crashes.borrow_and_update().1 == name {
                    return;
                }
            }
            std::future::pending().await
        };
        let exit = tokio::select! {
            biased;
            exit = self.serve() => exit,
            () = crashed => Exit::Signal(11),
        };
        let Self { life, end, .. } = self;
        if exit == Exit::Code(0) {
            // A process that was killed has ended.
            tokio::select! {
                () = tokio::time::sleep(LEAVING) => {}
                () = end.process().killed() => {}
            }
        }
        drop(life);
        end.process().exit(exit);
    }

    async fn serve(&mut self) -> Exit {
        let fails = {
            let mut state = self.journal.state();
            let fails = state.fail_starts > 0;
            state.fail_starts = state.fail_starts.saturating_sub(1);
            fails
        };
        tokio::select! {
            () = tokio::time::sleep(STARTING) => {}
            () = self.end.process().killed() => return Exit::Signal(9),
        }
        if fails {
            return Exit::Code(1);
        }
        loop {
            let frame = match self.frames.pop_front() {
                Some(frame) => frame,
                None => match self.end.recv().await {
                    Some(frame) => frame,
                    None => return Exit::Code(0),
                },
            };
            match frame["type"].as_str() {
                Some("control_request") => drop(self.answer(&frame)),
                Some("user") => match self.turn(&frame).await {
                    Ok(true) => {}
                    Ok(false) => return Exit::Signal(11),
                    Err(HostGone) => return Exit::Code(0),
                },
                _ => {}
            }
        }
    }

    /// Answers a control request. True if it interrupts.
    fn answer(&mut self, frame: &Value) -> bool {
        match frame["request"]["subtype"].as_str() {
            Some("initialize") => {
                let mut answer = json!({
                    "claude_code_version": "0.0.0-scripted", "commands": [], "hooks_applied": true,
                    "capabilities": ["sdk_mcp_manifests", "interrupt_receipt_v1"], "mcp_servers_applied": true,
                });
                let manifests = frame["request"]["sdkMcpServerManifests"].as_object();
                let parked: serde_json::Map<_, _> = manifests
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| (name.clone(), json!("parked")))
                    .collect();
                answer["sdk_mcp_manifests_parked"] = Value::Object(parked);
                self.end.answer(frame, answer);
                if let Some(live) = self.journal.state().live.get_mut(&self.life.number) {
                    live.starting = false;
                }
                false
            }
            Some("interrupt") => {
                self.end.answer(frame, json!({ "still_queued": [] }));
                true
            }
            _ => {
                self.end.answer(frame, json!({}));
                false
            }
        }
    }

    /// Plays the turn of a prompt. `false`: the CLI crashes.
    async fn turn(&mut self, prompt: &Value) -> Result<bool, HostGone> {
        let content = &prompt["message"]["content"];
        let text = content.as_str().or(content[0]["text"].as_str()).unwrap_or_default();
        let Some(turn) = Turn::parse(text) else {
            self.journal.violate(format!("a CLI got a prompt that nobody sent: {prompt}"));
            return Ok(true);
        };
        self.end.begin_turn();
        self.say(&turn.id);
        // It has begun when the host can see that: a CLI that dies before has done nothing.
        self.end.flushed().await;
        {
            let mut state = self.journal.state();
            let name = state.live.get(&self.life.number).map(|live| live.name.clone()).unwrap_or_default();
            state.order.push(name.clone());
            state.reached.entry(turn.id.clone()).or_default().push(name);
        }
        let over = tokio::time::sleep(Duration::from_millis(turn.millis));
        tokio::pin!(over);
        if turn.kind == Kind::Call && self.call().await? {
            self.end.fail_turn(prompt, "aborted_tools", "interrupted");
            return Ok(true);
        }
        loop {
            tokio::select! {
                biased;
                frame = self.end.recv() => {
                    if self.during_turn(frame.ok_or(HostGone)?) {
                        self.end.fail_turn(prompt, "aborted_tools", "interrupted");
                        return Ok(true);
                    }
                }
                () = &mut over => break,
            }
        }
        if turn.kind == Kind::Call && self.call().await? {
            self.end.fail_turn(prompt, "aborted_tools", "interrupted");
            return Ok(true);
        }
        if turn.kind == Kind::Crash {
            return Ok(false);
        }
        *self.journal.state().finished.entry(turn.id.clone()).or_default() += 1;
        self.end.finish_turn(prompt, &turn.id);
        Ok(true)
    }

    /// True if the frame interrupts the turn.
    fn during_turn(&mut self, frame: Value) -> bool {
        match frame["type"].as_str() {
            Some("control_request") => return self.answer(&frame),
            Some("user") => {
                self.journal.violate(format!("a prompt came while a turn ran: {frame}"));
                self.frames.push_back(frame);
            }
            _ => {}
        }
        false
    }

    /// Calls the tool of the profile, whose answer waits for nothing. True if the turn was interrupted meanwhile.
    async fn call(&mut self) -> Result<bool, HostGone> {
        let request = self.end.call_tool("probe", "echo", json!({}));
        let began = Instant::now();
        let mut interrupted = false;
        loop {
            let frame = self.end.recv().await.ok_or(HostGone)?;
            if frame["type"] == "control_response" && frame["response"]["request_id"] == *request {
                break;
            }
            interrupted |= self.during_turn(frame);
        }
        let took = began.elapsed();
        let limit = {
            let mut state = self.journal.state();
            state.calls += 1;
            state.caps.call
        };
        if took > limit {
            self.journal.violate(format!("isolated: a tool call was answered after {took:?}"));
        }
        Ok(interrupted)
    }

    fn say(&mut self, text: &str) {
        let message = json!({
            "id": format!("msg_{text}"), "type": "message", "role": "assistant", "model": "scripted",
            "content": [{ "type": "text", "text": text }], "stop_reason": null,
            "usage": { "input_tokens": 1, "output_tokens": 1 },
        });
        self.end.message(json!({ "type": "assistant", "parent_tool_use_id": null, "message": message }));
    }
}
