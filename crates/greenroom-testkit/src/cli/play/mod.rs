//! Plays a script to a host, as the CLI does between the model and the tools.
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
//! - `calls`: the tool calls of a model turn
//! - `hooks`: the host's hooks
//! - `servers`: in-process servers, with their tools and resources
//! - `prompts`: queued prompts, and prompts that join a turn
//! - `rules`: permissions of calls
//! - `say`: messages of the model, whole and partial
//! - `transcript`: the transcript, and a call that was deferred

mod calls;
mod hooks;
mod prompts;
mod rules;
mod say;
mod servers;
mod transcript;

use std::sync::Arc;

use greenroom::transport::Exit;
use serde_json::{Value, json};
use tokio::sync::watch;

use self::hooks::Hooks;
use self::prompts::{Prompts, text_of};
use self::rules::Rules;
use self::servers::Servers;
use self::transcript::Transcript;
use super::hand::CliEnd;
use super::model_turn::{Item, ModelTurn};
use super::script::Script;
use super::seen::Seen;
use super::usage::Usage;

pub(crate) struct Player {
    end: CliEnd,
    script: Arc<Script>,
    seen: Seen,
    servers: Servers,
    hooks: Hooks,
    rules: Rules,
    prompts: Prompts,
    /// Whether the host asked for structured output, and the output.
    wants_structured: bool,
    structured: Option<Value>,
    turns: u64,
    /// Since the last result.
    spent: Usage,
    is_initialized: bool,
    /// Whether this launch has called the model.
    has_called: bool,
    /// Whether this launch goes on with a conversation.
    has_resumed: bool,
    transcript: Transcript,
}

/// The reason why a turn ends early.
enum Stop {
    Interrupted,
    /// A prompt of priority `now` came.
    Overtaken,
    /// A hook ended the turn, for this reason.
    ByHook(String),
    HostGone,
}

impl Player {
    pub(crate) fn new(mut end: CliEnd, script: Arc<Script>, seen: Seen) -> Self {
        let resumes = resumed(&end.launch().args, &seen);
        let forks = end.launch().args.iter().any(|arg| arg == "--fork-session");
        if let Some(resumes) = resumes.as_ref().filter(|_| !forks) {
            end.continues(resumes.clone());
        }
        seen.launched(end.launch(), end.session_id(), resumes.as_deref());
        let transcript = match script.writes_transcripts {
            true => Transcript::of(end.launch(), end.session_id()),
            false => Transcript::default(),
        };
        let rules = Rules::of(&end.launch().args);
        let wants_structured = end.launch().args.iter().any(|arg| arg.starts_with("--json-schema="));
        Self {
            end,
            script,
            seen,
            servers: Servers::default(),
            hooks: Hooks::default(),
            rules,
            prompts: Prompts::default(),
            wants_structured,
            structured: None,
            turns: 0,
            spent: Usage::NOTHING,
            is_initialized: false,
            has_called: false,
            has_resumed: resumes.is_some(),
            transcript,
        }
    }

    /// Plays one incarnation to its end.
    pub(crate) async fn run(mut self, mut crashes: watch::Receiver<Exit>) {
        crashes.mark_unchanged();
        let exit = tokio::select! {
            () = self.serve() => Exit::Code(0),
            // The sender of crashes is dropped with this player.
            Ok(()) = crashes.changed() => *crashes.borrow(),
        };
        self.end.exit(exit);
    }

    async fn serve(&mut self) {
        while !self.is_initialized {
            match self.end.recv().await {
                Some(frame) => drop(self.frame(frame)),
                None => return,
            }
        }
        if matches!(self.go_on().await, Err(Stop::HostGone)) {
            return;
        }
        loop {
            match self.next_prompt() {
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

    /// Handles a frame that no turn waits for. True if it interrupts.
    fn frame(&mut self, frame: Value) -> bool {
        match frame["type"].as_str() {
            Some("user") => self.prompt_queued(frame),
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
                self.seen.initialized(request);
                self.is_initialized = true;
                self.hooks = Hooks::of(request);
                self.wants_structured |= request["jsonSchema"].is_object();
                self.servers_by_initialize(request);
                self.end.answer(frame, CliEnd::handshake_answer(frame));
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
            Some("cancel_async_message") => {
                let uuid = &request["message_uuid"];
                let cancelled = !self.drop_queued(Some(uuid)).is_empty();
                self.end.answer(frame, json!({ "cancelled": cancelled, "message_uuid": uuid }));
            }
            Some("interrupt") => {
                let cancelled = match request["cancel_queued"] == true {
                    true => json!({ "cancelled": self.drop_queued(None) }),
                    false => json!({}),
                };
                let mut receipt = json!({ "still_queued": self.still_queued() });
                if let (Value::Object(receipt), Value::Object(cancelled)) = (&mut receipt, cancelled) {
                    receipt.extend(cancelled);
                }
                self.end.answer(frame, receipt);
                return true;
            }
            _ => self.end.answer(frame, json!({})),
        }
        false
    }

    /// Plays one prompt: model turns until one has no tool call and no hook continues the turn.
    async fn turn(&mut self, prompt: &Value) -> Result<(), Stop> {
        self.end.begin_turn();
        self.structured = None;
        self.turns += 1;
        let played = self.prompted(prompt).await;
        let mut done = "cancelled";
        match &played {
            Err(Stop::Interrupted) => {
                self.joined_end(done);
                let fields = self.result_fields();
                self.end.fail_turn_with("aborted_tools", "interrupted", fields);
            }
            Err(Stop::Overtaken) => {
                self.finish(prompt, "", json!({ "terminal_reason": "aborted_tools", "num_turns": 2 }))
            }
            Err(Stop::ByHook(reason)) => {
                done = "completed";
                self.finish(prompt, reason, json!({ "terminal_reason": "hook_stopped" }));
            }
            Ok(()) => done = "completed",
            Err(Stop::HostGone) => return played,
        }
        self.turn_ended(done);
        played
    }

    /// Writes the result of the turn.
    fn finish(&mut self, prompt: &Value, text: &str, fields: Value) {
        self.joined_end("completed");
        let mut all = self.result_fields();
        if let (Value::Object(all), Value::Object(fields)) = (&mut all, fields) {
            all.extend(fields);
        }
        self.end.finish_turn_with(prompt, text, all);
    }

    /// The fields of a result that name the turn's prompts and what the turn and the conversation have cost. As with CLI
    /// 2.1.328, the totals of a resumed conversation are 0 until this launch calls the model.
    fn result_fields(&mut self) -> Value {
        let spent = std::mem::replace(&mut self.spent, Usage::NOTHING);
        let total = self.seen.look(|seen| seen.conversation().spent);
        let mut fields = json!({
            "user_message_uuids": self.prompts.uuids(), "usage": spent.tokens(), "total_cost_usd": 0.0,
            "modelUsage": {}, "model_usage_since_last_result": {},
        });
        if self.has_called {
            fields["total_cost_usd"] = json!(total.cost_usd);
            fields["modelUsage"] = total.by_model();
        }
        if spent != Usage::NOTHING {
            fields["model_usage_since_last_result"] = spent.by_model();
        }
        fields
    }

    async fn prompted(&mut self, prompt: &Value) -> Result<(), Stop> {
        if self.turns == 1 {
            let source = if self.has_resumed { "resume" } else { "startup" };
            self.hook("SessionStart", None, json!({ "source": source })).await?;
        }
        let text = text_of(prompt);
        if let Some((command, output)) = self.script.clone().local_command_of(&text) {
            self.remember_prompts();
            self.say_locally(output);
            self.finish(prompt, output, json!({ "num_turns": 0, "local_command": command }));
            return Ok(());
        }
        let said = self.hook("UserPromptSubmit", None, json!({ "prompt": text, "source": "sdk" })).await?;
        if let Some(reason) = hooks::blocked(&said) {
            self.finish(prompt, &format!("Operation stopped by hook: {reason}"), json!({}));
            return Ok(());
        }
        self.remember_prompts();
        self.model_turns(prompt).await
    }

    async fn model_turns(&mut self, prompt: &Value) -> Result<(), Stop> {
        // Whether a hook has continued the turn before.
        let mut again = false;
        loop {
            let turn = self.next_turn();
            if !turn.pause_before.is_zero() {
                self.pause(&turn).await?;
            }
            if let Some(failure) = &turn.error {
                let text = format!("API Error: {} {}", failure.status, failure.message);
                let fields = json!({ "is_error": true, "api_error_status": failure.status, "terminal_reason": "api_error" });
                self.finish(prompt, &text, fields);
                return Ok(());
            }
            let usage = turn.usage.unwrap_or(Usage::UNSAID);
            self.has_called = true;
            self.spent += usage;
            self.seen.spent(usage);
            self.say(&turn, usage);
            if turn.calls().next().is_some() {
                self.calls(&turn).await?;
                self.take_in().await?;
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
            self.finish(prompt, &turn.joined_text(), more);
            return Ok(());
        }
    }

    fn next_turn(&self) -> ModelTurn {
        self.script.turn_at(self.seen.next_turn())
    }

    async fn pause(&mut self, turn: &ModelTurn) -> Result<(), Stop> {
        let until = tokio::time::sleep(turn.pause_before);
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

    /// Waits for the answer to a request, and handles all other frames meanwhile.
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

/// The conversation that a CLI with these arguments goes on with. The real CLI refuses to begin a conversation under an id that
/// is in use, and a session then resumes it: here it is resumed at once.
fn resumed(args: &[String], seen: &Seen) -> Option<String> {
    let flag = |name| args.iter().find_map(|arg| arg.strip_prefix(name)).map(str::to_owned);
    match flag("--resume=") {
        Some(id) => Some(id),
        None if args.iter().any(|arg| arg == "--continue") => seen.last_conversation(),
        None => flag("--session-id=").filter(|id| seen.knows(id)),
    }
}
