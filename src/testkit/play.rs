//! How a script is played to a host: what the CLI does between the model and the tools.
//!
//! ```text
//! prompt ─► UserPromptSubmit ─► model turn ─► its calls ─► model turn … ─► Stop ─► result
//!                                   ▲            │                          │
//!                                   │            ▼                          │ block
//!                                   │  PreToolUse ─► rules, can_use_tool    │
//!                                   │     ─► the tool ─► PostToolUse        │
//!                                   └───────────────────────────────────────┘
//! ```
//!
//! - `hooks`: the host's hooks
//! - `servers`: the in-process servers: how they come and go, their tools, resources and prompts
//! - `rules`: which call may run
//! - `say`: what the model says, whole and in pieces

mod hooks;
mod rules;
mod say;
mod servers;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

use self::hooks::Hooks;
use self::rules::Rules;
use self::servers::Servers;
use super::hand::CliEnd;
use super::script::{Item, ModelTurn, Script};
use crate::transport::Exit;

/// How far a script has been played, over all incarnations.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Position {
    pub(crate) next: usize,
    pub(crate) results: Vec<String>,
}

pub(crate) struct Player {
    end: CliEnd,
    script: Arc<Script>,
    position: Arc<Mutex<Position>>,
    knows_sdk_servers: bool,
    servers: Servers,
    hooks: Hooks,
    rules: Rules,
    prompts: VecDeque<Value>,
    /// Whether the host asked for an answer of a certain shape, and the answer.
    wants_structured: bool,
    structured: Option<Value>,
    turns: u64,
}

/// Why a turn is given up.
enum Stop {
    Interrupted,
    /// A hook wants no more of it, for this reason.
    ByHook(String),
    HostGone,
}

impl Player {
    pub(crate) fn new(
        end: CliEnd,
        script: Arc<Script>,
        position: Arc<Mutex<Position>>,
        knows_sdk_servers: bool,
    ) -> Self {
        let rules = Rules::of(&end.launch().args);
        let wants_structured = end.launch().args.iter().any(|arg| arg.starts_with("--json-schema="));
        Self {
            end,
            script,
            position,
            knows_sdk_servers,
            servers: Servers::default(),
            hooks: Hooks::default(),
            rules,
            prompts: VecDeque::new(),
            wants_structured,
            structured: None,
            turns: 0,
        }
    }

    /// Plays one incarnation to its end.
    pub(crate) async fn run(mut self, mut crashes: watch::Receiver<(u64, Exit)>) {
        crashes.mark_unchanged();
        let exit = tokio::select! {
            () = self.serve() => Exit::Code(0),
            // The one who can crash it is dropped with it.
            Ok(()) = crashes.changed() => crashes.borrow().1,
        };
        self.end.exit(exit);
    }

    async fn serve(&mut self) {
        self.servers_by_config().await;
        loop {
            match self.prompts.pop_front() {
                Some(prompt) => {
                    if matches!(self.turn(&prompt).await, Err(Stop::HostGone)) {
                        return;
                    }
                }
                None => match self.end.recv().await {
                    Some(frame) => drop(self.frame(frame)),
                    None => return,
                },
            }
        }
    }

    /// A frame outside of what a turn waits for. True if it interrupts.
    fn frame(&mut self, frame: Value) -> bool {
        match frame["type"].as_str() {
            Some("user") => self.prompts.push_back(frame),
            Some("control_request") => return self.asked(&frame),
            Some("control_response") => self.server_answered(&frame["response"]),
            _ => {}
        }
        false
    }

    fn asked(&mut self, frame: &Value) -> bool {
        let request = &frame["request"];
        match request["subtype"].as_str() {
            Some("initialize") => {
                self.hooks = Hooks::of(request);
                self.wants_structured |= request["jsonSchema"].is_object();
                if self.knows_sdk_servers {
                    self.servers_by_initialize(request);
                    self.end.answer(frame, CliEnd::handshake_answer(frame));
                } else {
                    self.end.answer(frame, json!({ "commands": [] }));
                }
            }
            Some("mcp_status") => self.end.answer(frame, json!({ "mcpServers": self.servers.status() })),
            Some("mcp_set_servers") => self.set_servers(frame),
            Some("mcp_message") => self.server_says(frame),
            Some("set_permission_mode") => {
                self.rules.set_mode(request["mode"].as_str().unwrap_or_default());
                self.end.answer(frame, json!({}));
            }
            Some("apply_flag_settings") => {
                self.rules.apply_settings(&request["settings"]);
                self.end.answer(frame, json!({}));
            }
            Some("interrupt") => {
                self.end.answer(frame, json!({ "still_queued": [] }));
                return true;
            }
            _ => self.end.answer(frame, json!({})),
        }
        false
    }

    /// One prompt: model turns until one calls no tool and nobody wants more.
    async fn turn(&mut self, prompt: &Value) -> Result<(), Stop> {
        self.end.begin_turn();
        self.structured = None;
        self.turns += 1;
        let played = self.prompted(prompt).await;
        match &played {
            Err(Stop::Interrupted) => self.end.fail_turn(prompt, "aborted_tools", "interrupted"),
            Err(Stop::ByHook(reason)) => {
                self.end.finish_turn_with(prompt, reason, json!({ "terminal_reason": "hook_stopped" }))
            }
            Ok(()) | Err(Stop::HostGone) => {}
        }
        played
    }

    async fn prompted(&mut self, prompt: &Value) -> Result<(), Stop> {
        if self.turns == 1 {
            let source = if self.end.resumed() { "resume" } else { "startup" };
            self.hook("SessionStart", None, json!({ "source": source })).await?;
        }
        let content = &prompt["message"]["content"];
        let text = content.as_str().or(content[0]["text"].as_str()).unwrap_or_default().to_owned();
        let said = self.hook("UserPromptSubmit", None, json!({ "prompt": text, "source": "sdk" })).await?;
        if let Some(reason) = hooks::blocked(&said) {
            self.end.finish_turn(prompt, &format!("Operation stopped by hook: {reason}"));
            return Ok(());
        }
        self.prompt_of_server(&text).await?;
        self.model_turns(prompt).await
    }

    async fn model_turns(&mut self, prompt: &Value) -> Result<(), Stop> {
        // Whether a hook has kept the turn from ending before.
        let mut again = false;
        loop {
            let turn = self.next_turn();
            if !turn.pause().is_zero() {
                self.pause(&turn).await?;
            }
            if let Some(failure) = turn.failure() {
                let text = format!("API Error: {} {}", failure.status, failure.message);
                self.end.message(json!({
                    "type": "result", "subtype": "success", "is_error": true, "result": text, "num_turns": 1,
                    "duration_ms": 0, "duration_api_ms": 0, "api_error_status": failure.status,
                    "terminal_reason": "api_error", "user_message_uuids": [prompt["uuid"]],
                }));
                return Ok(());
            }
            self.say(&turn);
            if turn.has_calls() {
                self.calls(&turn).await?;
                continue;
            }
            let input = json!({ "stop_hook_active": again, "last_assistant_message": turn.joined_text() });
            let said = self.hook("Stop", None, input).await?;
            if hooks::blocked(&said).is_some() {
                again = true;
                continue;
            }
            let more =
                self.structured.take().map_or(json!({}), |value| json!({ "structured_output": value }));
            self.end.finish_turn_with(prompt, &turn.joined_text(), more);
            return Ok(());
        }
    }

    fn next_turn(&self) -> ModelTurn {
        let mut position = self.position.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        position.next += 1;
        self.script.turn_at(position.next - 1)
    }

    async fn pause(&mut self, turn: &ModelTurn) -> Result<(), Stop> {
        let until = tokio::time::sleep(turn.pause());
        tokio::pin!(until);
        loop {
            tokio::select! {
                () = &mut until => return Ok(()),
                frame = self.end.recv() => match frame {
                    Some(frame) => {
                        if self.frame(frame) {
                            return Err(Stop::Interrupted);
                        }
                    }
                    None => return Err(Stop::HostGone),
                },
            }
        }
    }

    /// The calls of one model turn: read-only ones at once, all others one after another.
    async fn calls(&mut self, turn: &ModelTurn) -> Result<(), Stop> {
        let mut waiting: Vec<Waiting> = Vec::new();
        let mut results = Vec::new();
        for item in turn.calls() {
            let Item::Call { name, input, id } = item else { continue };
            let id = id.clone().unwrap_or_default();
            let input = match self.permitted(name, input, &id).await? {
                Ok(input) => input,
                Err(denied) => {
                    results.push(self.result(&id, &denied, true));
                    continue;
                }
            };
            if let Some((text, is_error)) = self.built_in(name, &input).await? {
                results.push(self.ended(name, &input, &id, text, is_error).await?);
                continue;
            }
            self.settle_servers().await?;
            let Some((server, tool)) = self.servers.find(name) else {
                results.push(self.result(&id, &format!("No such tool available: {name}"), true));
                continue;
            };
            let request = self.end.call_tool_as(&server, &tool, &input, &id);
            let rpc_id = self.end.last_rpc_id();
            waiting.push(Waiting { request, server, rpc_id, name: name.clone(), input, id });
            if !self.servers.is_read_only(name) {
                self.collect(&mut waiting, &mut results).await?;
            }
        }
        self.collect(&mut waiting, &mut results).await?;
        self.position.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).results.extend(results);
        Ok(())
    }

    async fn collect(&mut self, waiting: &mut Vec<Waiting>, results: &mut Vec<String>) -> Result<(), Stop> {
        let requests: Vec<String> = waiting.iter().map(|call| call.request.clone()).collect();
        for request in requests {
            let answer = match self.wait_for(&request).await {
                Ok(answer) => answer,
                Err(stop) => {
                    for call in waiting.drain(..) {
                        self.end.cancel_call(&call.server, call.rpc_id);
                    }
                    return Err(stop);
                }
            };
            let Waiting { name, input, id, .. } = waiting.remove(0);
            let (text, is_error) = read_answer(&answer);
            results.push(self.ended(&name, &input, &id, text, is_error).await?);
        }
        Ok(())
    }

    /// A tool has run: the hooks hear of it, then the model.
    async fn ended(
        &mut self,
        name: &str,
        input: &Value,
        id: &str,
        text: String,
        is_error: bool,
    ) -> Result<String, Stop> {
        let mut told = json!({ "tool_name": name, "tool_input": input, "tool_use_id": id });
        let (event, field, value) = if is_error {
            ("PostToolUseFailure", "error", json!(text))
        } else {
            ("PostToolUse", "tool_response", json!([{ "type": "text", "text": text }]))
        };
        told[field] = value;
        let said = self.hook(event, Some(name), told).await?;
        let text = hooks::replaced(&said).unwrap_or(text);
        Ok(self.result(id, &text, is_error))
    }

    /// Waits for the answer to a request while everything else is served.
    async fn wait_for(&mut self, request_id: &str) -> Result<Value, Stop> {
        let mut others = Vec::new();
        let outcome = loop {
            let Some(frame) = self.end.recv().await else { break Err(Stop::HostGone) };
            if frame["type"] == "control_response" {
                if frame["response"]["request_id"] == request_id {
                    break Ok(frame["response"].clone());
                }
                if self.is_of_server(&frame) {
                    self.server_answered(&frame["response"]);
                } else {
                    others.push(frame);
                }
            } else if self.frame(frame) {
                break Err(Stop::Interrupted);
            }
        };
        self.end.put_back(others);
        outcome
    }
}

/// A call that is not answered yet.
struct Waiting {
    request: String,
    server: String,
    rpc_id: u64,
    name: String,
    input: Value,
    id: String,
}

/// What the model reads of an answer.
fn read_answer(answer: &Value) -> (String, bool) {
    if answer["subtype"] == "error" {
        return (answer["error"].as_str().unwrap_or_default().to_owned(), true);
    }
    let response = &answer["response"]["mcp_response"];
    if let Some(message) = response["error"]["message"].as_str() {
        return (message.to_owned(), true);
    }
    let result = &response["result"];
    let blocks = result["content"].as_array().into_iter().flatten();
    let text: Vec<String> =
        blocks.map(|block| block["text"].as_str().map_or_else(|| block.to_string(), str::to_owned)).collect();
    (text.join("\n"), result["isError"] == true)
}
