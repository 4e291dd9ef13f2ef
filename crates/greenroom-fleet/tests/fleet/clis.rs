//! Scripted CLIs that do what their prompts say, one for each name.
//!
//! | prompt | what the CLI does |
//! |---|---|
//! | `wait 30` | answers after 30 s |
//! | `hold` | answers when it is interrupted |
//! | `listen` | the same, and takes messages into the turn |
//! | `write 5` | writes `0 1 2 3 4 `, a number each second, and answers |
//! | `hold 0.5` | the same, and tells a cost of 0.5 dollars |
//! | `deaf` | never answers |
//! | `cost 0.5` | answers, at a cost of 0.5 dollars |
//! | `local` | answers without the model, as `/cost` does |
//! | `background 60` | answers, and has a background agent for 60 s |
//! | `background on` | answers, and has a background agent from then on |
//! | `background off` | answers, and its background agent has ended |
//! | `own 20 60` | answers, and begins a turn by itself after 20 s, which takes 60 s |
//! | `own 20 60 0.5` | the same, and the turn costs 0.5 dollars; an interrupted one half of it |
//! | `own 20 die` | answers, begins a turn by itself after 20 s, and dies in it |
//! | `own 20 none` | answers, and after 20 s tells that it has asked the model nothing |
//! | `ask` | asks for a permission, and answers `re: ask` and the decision, or when it is interrupted |
//! | `die` | dies in the turn |
//! | `die idle` | answers, and dies one second later |
//! | anything else | answers `re: ` and the prompt |

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::BoxFuture;
use greenroom::transport::{Connection, Conversations, Exit, Launch, MemoryTransport, Transport};
use greenroom::{Error, Result};
use greenroom_testkit::{CliEnd, ScriptedCli};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// The CLIs of a test, for all its fleets.
#[derive(Clone, Default)]
pub(crate) struct Clis(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

type OnRead = Arc<dyn Fn(&str, &str) + Send + Sync>;
type Api = Arc<dyn Fn(&str) -> Option<ApiFailure> + Send + Sync>;

/// A failure of the API, as a CLI tells it.
#[derive(Clone, Copy)]
pub(crate) struct ApiFailure {
    status: u16,
    error: &'static str,
    /// When the limit is reset, in seconds since 1970.
    resets_at: Option<u64>,
    /// The model has said something before.
    worked: bool,
}

impl ApiFailure {
    pub(crate) const KEY: Self = Self::of(401, "authentication_failed");
    pub(crate) const FORBIDDEN: Self = Self::of(403, "authentication_failed");
    pub(crate) const OVERLOADED: Self = Self::of(529, "overloaded");
    pub(crate) const CREDIT: Self = Self::of(400, "billing_error");

    const fn of(status: u16, error: &'static str) -> Self {
        Self { status, error, resets_at: None, worked: false }
    }

    /// A rate limit that is reset at a moment in seconds since 1970.
    pub(crate) fn limit(resets_at: u64) -> Self {
        Self { resets_at: Some(resets_at), ..Self::of(429, "rate_limit") }
    }

    /// The API fails with this error after the model has said something.
    pub(crate) fn after_work(self) -> Self {
        Self { worked: true, ..self }
    }
}

#[derive(Default)]
struct State {
    transports: HashMap<String, MemoryTransport>,
    prompts: Vec<(String, String)>,
    /// Messages that were read in a turn.
    steered: Vec<(String, String)>,
    /// Names, and the ids of the conversations.
    launches: Vec<(String, String)>,
    live: HashMap<String, usize>,
    most_live: usize,
    /// Names with two CLIs at one moment.
    overlaps: Vec<String>,
    /// Names whose CLIs die after their start.
    failing: HashSet<String>,
    /// Told of each prompt that a CLI reads, with the name.
    on_read: Option<OnRead>,
    /// Every prompt is answered at once.
    plain: bool,
    /// The API rejects the key of CLIs that start now.
    rejecting: bool,
    /// Fails the turns of a name.
    api: Option<Api>,
    /// CLIs do not start, for this cause.
    not_starting: Option<Error>,
    /// Starts that were refused.
    refused: usize,
}

impl Clis {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    /// The transport of a name.
    pub(crate) fn transport(&self, name: &str) -> MemoryTransport {
        let mut state = self.state();
        if let Some(known) = state.transports.get(name) {
            return known.clone();
        }
        let (transport, mut listener) = ScriptedCli::by_hand();
        state.transports.insert(name.to_owned(), transport.clone());
        let (clis, name) = (self.clone(), name.to_owned());
        tokio::spawn(async move {
            while let Some(end) = listener.try_accept().await {
                let (clis, name) = (clis.clone(), name.clone());
                tokio::spawn(async move { clis.play(name, end).await });
            }
        });
        transport
    }

    /// The transport of a name, which fails while CLIs do not start.
    pub(crate) fn breakable(&self, name: &str) -> Breakable {
        Breakable { clis: self.clone(), transport: self.transport(name) }
    }

    /// CLIs of [`breakable`](Self::breakable) transports fail to start by this error; `None`: they start.
    pub(crate) fn fail_to_start(&self, error: Option<Error>) {
        self.state().not_starting = error;
    }

    /// Starts that have failed so.
    pub(crate) fn refused_starts(&self) -> usize {
        self.state().refused
    }

    /// Whether the API rejects the key of CLIs that start from now on.
    pub(crate) fn reject_keys(&self, rejects: bool) {
        self.state().rejecting = rejects;
    }

    /// Has the API fail the turns of names, from now on.
    pub(crate) fn fail_api(&self, fails: impl Fn(&str) -> Option<ApiFailure> + Send + Sync + 'static) {
        self.state().api = Some(Arc::new(fails));
    }

    /// The prompts that CLIs have read, with their names.
    pub(crate) fn prompts(&self) -> Vec<(String, String)> {
        self.state().prompts.clone()
    }

    /// The messages that CLIs have read in their turns, with their names.
    pub(crate) fn steered(&self) -> Vec<(String, String)> {
        self.state().steered.clone()
    }

    /// The prompts that the CLIs of a name have read.
    pub(crate) fn prompts_of(&self, name: &str) -> Vec<String> {
        self.prompts().into_iter().filter(|(of, _)| of == name).map(|(_, text)| text).collect()
    }

    /// The starts of a name's CLI, all in one conversation.
    pub(crate) fn starts_of(&self, name: &str) -> usize {
        let state = self.state();
        let ids: Vec<_> = state.launches.iter().filter(|(of, _)| of == name).map(|(_, id)| id).collect();
        assert!(ids.windows(2).all(|two| two[0] == two[1]), "two conversations: {ids:?}");
        ids.len()
    }

    pub(crate) fn live(&self) -> usize {
        self.state().live.values().sum()
    }

    /// The most CLIs that were live at one moment. No name had two.
    pub(crate) fn most_live(&self) -> usize {
        let state = self.state();
        assert_eq!(state.overlaps, [""; 0], "names with two CLIs at one moment");
        state.most_live
    }

    /// Whether the CLI of a name, from its next start on, dies a tenth of a second after the start.
    pub(crate) fn fail_after_start(&self, name: &str, fails: bool) {
        let failing = &mut self.state().failing;
        if fails {
            failing.insert(name.to_owned());
        } else {
            failing.remove(name);
        }
    }

    /// CLIs that answer every prompt at once, whatever it says.
    pub(crate) fn plain() -> Self {
        let clis = Self::default();
        clis.state().plain = true;
        clis
    }

    /// Has a function told of each prompt that a CLI reads, with the name, before the CLI does anything with it.
    pub(crate) fn on_read(&self, told: impl Fn(&str, &str) + Send + Sync + 'static) {
        self.state().on_read = Some(Arc::new(told));
    }

    /// Waits until the CLIs have read as many prompts.
    pub(crate) async fn read(&self, count: usize) {
        self.until("prompts", |state| state.prompts.len() >= count).await;
    }

    /// Waits until the CLIs have read as many messages in their turns.
    pub(crate) async fn heard(&self, count: usize) {
        self.until("messages", |state| state.steered.len() >= count).await;
    }

    /// Waits until no CLI is left.
    pub(crate) async fn gone(&self) {
        self.until("the end of all CLIs", |state| state.live.values().sum::<usize>() == 0).await;
    }

    async fn until(&self, what: &str, done: impl Fn(&State) -> bool) {
        crate::wait::in_time(what, async {
            loop {
                let changed = self.0.changed.notified();
                if done(&self.state()) {
                    return;
                }
                changed.await;
            }
        })
        .await;
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.0.changed.notify_waiters();
    }

    async fn play(&self, name: String, end: CliEnd) {
        let conversation = end.session_id().to_owned();
        self.change(|state| {
            state.launches.push((name.clone(), conversation));
            let live = state.live.entry(name.clone()).or_default();
            *live += 1;
            if *live > 1 {
                state.overlaps.push(name.clone());
            }
            state.most_live = state.most_live.max(state.live.values().sum());
        });
        let rejected = self.state().rejecting;
        let mut player = Player { clis: self, name: &name, end, cost: 0.0, rejected };
        let exit = player.serve().await;
        // Before the process ends: the fleet may start the next one as soon as it has.
        self.change(|state| *state.live.get_mut(&name).unwrap() -= 1);
        player.end.exit(exit);
    }
}

struct Player<'a> {
    clis: &'a Clis,
    name: &'a str,
    end: CliEnd,
    cost: f64,
    /// The API rejects the key that the CLI was started with.
    rejected: bool,
}

/// A transport that fails while CLIs do not start.
#[derive(Clone)]
pub(crate) struct Breakable {
    clis: Clis,
    transport: MemoryTransport,
}

impl Transport for Breakable {
    fn open(&self, launch: Launch) -> BoxFuture<'static, Result<Connection>> {
        let mut state = self.clis.state();
        match state.not_starting.clone() {
            Some(error) => {
                state.refused += 1;
                Box::pin(async move { Err(error) })
            }
            None => self.transport.open(launch),
        }
    }

    fn conversations(&self) -> Conversations {
        self.transport.conversations()
    }
}

/// What ends a wait.
enum Ended {
    Time,
    Interrupted,
    Exit(Exit),
}

impl Player<'_> {
    async fn serve(&mut self) -> Exit {
        self.end.handshake().await;
        if self.clis.state().failing.contains(self.name) {
            self.wait(Some(Duration::from_millis(100))).await;
            return Exit::Signal(9);
        }
        loop {
            let Some(frame) = self.end.recv().await else { return Exit::Code(0) };
            if frame["type"] == "user" {
                if let Some(exit) = self.turn(&frame).await {
                    return exit;
                }
            } else {
                self.control(&frame);
            }
        }
    }

    /// Answers a control request. True if it interrupts.
    fn control(&mut self, frame: &Value) -> bool {
        if frame["type"] != "control_request" {
            return false;
        }
        let request = &frame["request"];
        let interrupts = request["subtype"] == "interrupt";
        let answer = match request["subtype"].as_str() {
            Some("interrupt") => json!({ "still_queued": [], "cancelled": [] }),
            Some("cancel_async_message") => {
                json!({ "cancelled": false, "message_uuid": request["message_uuid"] })
            }
            _ => json!({}),
        };
        self.end.answer(frame, answer);
        interrupts
    }

    async fn turn(&mut self, prompt: &Value) -> Option<Exit> {
        let text = text_of(prompt);
        let (on_read, plain, api) = {
            let state = self.clis.state();
            (state.on_read.clone(), state.plain, state.api.clone())
        };
        let failure = api.and_then(|api| api(self.name)).or(self.rejected.then_some(ApiFailure::KEY));
        if let Some(told) = on_read {
            told(self.name, &text);
        }
        self.clis.change(|state| state.prompts.push((self.name.to_owned(), text.clone())));
        self.end.begin_turn();
        let seconds = |text: &str| Duration::from_secs(text.parse().unwrap());
        let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
        match (word, rest) {
            _ if failure.is_some() => failure.into_iter().for_each(|failure| self.reject(prompt, failure)),
            _ if plain => self.finish(prompt, &text),
            ("wait", time) => match self.wait(Some(seconds(time))).await {
                Ended::Time => self.finish(prompt, &text),
                Ended::Interrupted => self.end.fail_turn(prompt, "aborted_tools", "interrupted"),
                Ended::Exit(exit) => return Some(exit),
            },
            ("listen", "") => {
                self.lifecycle(prompt, "queued");
                self.lifecycle(prompt, "started");
                if let Ended::Exit(exit) = self.wait(None).await {
                    return Some(exit);
                }
                self.end.fail_turn(prompt, "aborted_tools", "interrupted");
                self.lifecycle(prompt, "completed");
            }
            ("hold", "") => match self.wait(None).await {
                Ended::Interrupted => self.end.fail_turn(prompt, "aborted_tools", "interrupted"),
                Ended::Exit(exit) => return Some(exit),
                Ended::Time => unreachable!("it waits without a limit"),
            },
            ("write", count) => {
                self.part(json!({
                    "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" },
                }));
                let mut written = String::new();
                for number in 0..count.parse::<u64>().unwrap() {
                    match self.wait(Some(Duration::from_secs(1))).await {
                        Ended::Time => {}
                        Ended::Interrupted => {
                            self.end.fail_turn(prompt, "aborted_tools", "interrupted");
                            return None;
                        }
                        Ended::Exit(exit) => return Some(exit),
                    }
                    let text = format!("{number} ");
                    written += &text;
                    self.part(json!({
                        "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text },
                    }));
                }
                self.say(&written);
                self.finish(prompt, &text);
            }
            ("hold", dollars) => match self.wait(None).await {
                Ended::Interrupted => {
                    self.cost += dollars.parse::<f64>().unwrap();
                    self.end.message(json!({
                        "type": "result", "subtype": "error_during_execution", "is_error": true, "errors": ["interrupted"],
                        "num_turns": 1, "duration_ms": 0, "duration_api_ms": 0, "terminal_reason": "aborted_tools",
                        "total_cost_usd": self.cost, "user_message_uuids": [prompt["uuid"]],
                    }));
                }
                Ended::Exit(exit) => return Some(exit),
                Ended::Time => unreachable!("it waits without a limit"),
            },
            ("deaf", "") => loop {
                if let Ended::Exit(exit) = self.wait(None).await {
                    return Some(exit);
                }
            },
            ("local", "") => self.complete(prompt, &text),
            ("cost", dollars) => {
                self.cost += dollars.parse::<f64>().unwrap();
                self.finish(prompt, &text);
            }
            ("background", "on") => self.background(prompt, &text),
            ("background", "off") => {
                self.background_ends();
                self.finish(prompt, &text);
                self.state("idle");
            }
            ("background", time) => {
                self.background(prompt, &text);
                if let Ended::Exit(exit) = self.wait(Some(seconds(time))).await {
                    return Some(exit);
                }
                self.background_ends();
                self.state("idle");
            }
            ("own", rest) => {
                self.finish(prompt, &text);
                self.state("idle");
                return self.own(rest).await;
            }
            ("ask", "") => {
                let asks = json!({
                    "subtype": "can_use_tool", "tool_name": "Bash", "input": { "command": "ls" }, "tool_use_id": "toolu_1",
                });
                let asks = self.end.request(asks);
                loop {
                    let Some(frame) = self.end.recv().await else { return Some(Exit::Code(0)) };
                    let response = &frame["response"];
                    if self.control(&frame) {
                        self.end.fail_turn(prompt, "aborted_tools", "interrupted");
                        break;
                    } else if response["request_id"] == asks {
                        let decided = response["response"]["behavior"].as_str().unwrap();
                        self.finish(prompt, &format!("ask {decided}"));
                        break;
                    }
                }
            }
            ("die", "") => return Some(Exit::Signal(9)),
            ("die", "idle") => {
                self.finish(prompt, &text);
                if let Ended::Exit(exit) = self.wait(Some(Duration::from_secs(1))).await {
                    return Some(exit);
                }
                return Some(Exit::Signal(9));
            }
            _ => self.finish(prompt, &text),
        }
        None
    }

    /// Begins a turn by itself, as CLI 2.1.330 does when a background task has ended.
    async fn own(&mut self, rest: &str) -> Option<Exit> {
        let words: Vec<_> = rest.split(' ').collect();
        let seconds = |word: &str| Duration::from_secs(word.parse().unwrap());
        if let Ended::Exit(exit) = self.wait(Some(seconds(words[0]))).await {
            return Some(exit);
        }
        self.state("running");
        self.end.begin_turn();
        let origin = json!({ "kind": "task-notification" });
        match words[1] {
            "die" => {
                self.say("I die.");
                return Some(Exit::Signal(9));
            }
            "none" => {
                self.end.message(json!({
                    "type": "result", "subtype": "success", "is_error": false, "result": "", "num_turns": 0, "origin": origin,
                    "duration_ms": 0, "duration_api_ms": 0, "total_cost_usd": self.cost,
                }));
            }
            time => {
                self.say("The task has ended.");
                let ended = self.wait(Some(seconds(time))).await;
                let cost: f64 = words.get(2).map_or(0.0, |dollars| dollars.parse().unwrap());
                match ended {
                    Ended::Time => {
                        self.cost += cost;
                        self.end.message(json!({
                            "type": "result", "subtype": "success", "is_error": false, "result": "I am done.", "num_turns": 1,
                            "duration_ms": 0, "duration_api_ms": 0, "total_cost_usd": self.cost,
                            "terminal_reason": "completed", "origin": origin,
                            "usage": { "input_tokens": 1, "output_tokens": 1 },
                        }));
                    }
                    Ended::Interrupted => {
                        self.cost += cost / 2.0;
                        self.end.message(json!({
                            "type": "result", "subtype": "error_during_execution", "is_error": true, "errors": ["interrupted"],
                            "num_turns": 1, "duration_ms": 0, "duration_api_ms": 0, "terminal_reason": "aborted_streaming",
                            "total_cost_usd": self.cost, "origin": origin,
                        }));
                    }
                    Ended::Exit(exit) => return Some(exit),
                }
            }
        }
        self.state("idle");
        None
    }

    /// Handles the host's frames for a time, or until an interrupt comes.
    async fn wait(&mut self, time: Option<Duration>) -> Ended {
        let until = tokio::time::Instant::now() + time.unwrap_or(Duration::from_secs(1 << 30));
        loop {
            let frame = tokio::select! {
                () = tokio::time::sleep_until(until) => return Ended::Time,
                frame = self.end.recv() => frame,
            };
            match frame {
                Some(frame) if self.control(&frame) => return Ended::Interrupted,
                Some(frame) if frame["type"] == "user" => self.steered(&frame),
                Some(_) => {}
                None => return Ended::Exit(Exit::Code(0)),
            }
        }
    }

    fn steered(&mut self, message: &Value) {
        self.lifecycle(message, "queued");
        self.lifecycle(message, "started");
        let steered = (self.name.to_owned(), text_of(message));
        self.clis.change(|state| state.steered.push(steered));
    }

    fn lifecycle(&mut self, prompt: &Value, state: &str) {
        let uuid = &prompt["uuid"];
        self.end.message(json!({ "type": "command_lifecycle", "command_uuid": uuid, "state": state }));
    }

    /// Answers, and has a background agent.
    fn background(&mut self, prompt: &Value, text: &str) {
        self.end.message(json!({
            "type": "system", "subtype": "task_started", "task_id": "t", "task_type": "local_agent",
        }));
        self.state("running");
        self.finish(prompt, text);
        self.state("idle");
    }

    fn background_ends(&mut self) {
        self.end.message(json!({
            "type": "system", "subtype": "task_notification", "task_id": "t", "status": "completed",
        }));
        self.state("running");
    }

    fn state(&mut self, state: &str) {
        self.end.message(json!({
            "type": "system", "subtype": "session_state_changed", "state": state, "sdk_host_only": true,
        }));
    }

    fn reject(&mut self, prompt: &Value, failure: ApiFailure) {
        let ApiFailure { status, error, resets_at, worked } = failure;
        if worked {
            self.say("Let me see.");
        }
        if let Some(resets_at) = resets_at {
            let info = json!({ "status": "rejected", "resetsAt": resets_at, "rateLimitType": "five_hour" });
            self.end.message(json!({ "type": "rate_limit_event", "rate_limit_info": info }));
        }
        let text = format!("API Error: {status}");
        self.end.message(json!({
            "type": "assistant", "error": error, "api_error_status": status, "parent_tool_use_id": null,
            "message": { "role": "assistant", "model": "<synthetic>", "content": [{ "type": "text", "text": text }] },
        }));
        self.end.message(json!({
            "type": "result", "subtype": "success", "is_error": true, "result": text, "num_turns": 1, "duration_ms": 0,
            "duration_api_ms": 0, "total_cost_usd": self.cost, "api_error_status": status, "terminal_reason": "api_error",
            "user_message_uuids": [prompt["uuid"]],
        }));
    }

    fn part(&mut self, event: Value) {
        self.end.message(json!({ "type": "stream_event", "parent_tool_use_id": null, "event": event }));
    }

    fn say(&mut self, text: &str) {
        self.end.message(json!({
            "type": "assistant", "message": { "role": "assistant", "content": [{ "type": "text", "text": text }] },
            "parent_tool_use_id": null,
        }));
    }

    fn finish(&mut self, prompt: &Value, text: &str) {
        self.say(&format!("re: {text}"));
        self.complete(prompt, text);
    }

    fn complete(&mut self, prompt: &Value, text: &str) {
        self.end.message(json!({
            "type": "result", "subtype": "success", "is_error": false, "result": format!("re: {text}"), "num_turns": 1,
            "duration_ms": 0, "duration_api_ms": 0, "total_cost_usd": self.cost, "terminal_reason": "completed",
            "usage": { "input_tokens": 1, "output_tokens": 1 }, "user_message_uuids": [prompt["uuid"]],
        }));
    }
}

fn text_of(prompt: &Value) -> String {
    let content = &prompt["message"]["content"];
    match content.as_str() {
        Some(text) => text.to_owned(),
        None => content[0]["text"].as_str().unwrap().to_owned(),
    }
}
