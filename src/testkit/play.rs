//! How a script is played to a host: what the CLI does between the model and the tools.

use std::collections::HashSet;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

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
    servers: HashSet<String>,
    read_only: HashSet<String>,
    prompts: VecDeque<Value>,
}

/// Why a wait inside a turn was given up.
enum Stop {
    Interrupted,
    HostGone,
}

impl Player {
    pub(crate) fn new(
        end: CliEnd,
        script: Arc<Script>,
        position: Arc<Mutex<Position>>,
        knows_sdk_servers: bool,
    ) -> Self {
        Self {
            end,
            script,
            position,
            knows_sdk_servers,
            servers: HashSet::new(),
            read_only: HashSet::new(),
            prompts: VecDeque::new(),
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

    /// Takes the servers of `--mcp-config`, with the handshake that comes before anything else.
    async fn servers_by_config(&mut self) {
        let configs: Vec<Value> = self
            .end
            .launch()
            .args
            .iter()
            .filter_map(|arg| serde_json::from_str(arg.strip_prefix("--mcp-config=")?).ok())
            .collect();
        for config in configs {
            let Some(servers) = config["mcpServers"].as_object() else { continue };
            for (name, server) in servers {
                if server["type"] != "sdk" {
                    continue;
                }
                let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "scripted" } });
                self.end.mcp(
                    name,
                    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }),
                );
                self.end.mcp(name, json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
                let listed = self.end.mcp(name, json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
                let tools = self.end.answer_to(&listed).await;
                self.take_server(name, &tools["mcp_response"]["result"]);
            }
        }
    }

    fn take_server(&mut self, name: &str, tools_list: &Value) {
        self.servers.insert(name.to_owned());
        for tool in tools_list["tools"].as_array().into_iter().flatten() {
            if tool["annotations"]["readOnlyHint"] == true
                && let Some(tool) = tool["name"].as_str()
            {
                self.read_only.insert(format!("mcp__{name}__{tool}"));
            }
        }
    }

    /// A frame outside of what a turn waits for. True if it interrupts.
    fn frame(&mut self, frame: Value) -> bool {
        match frame["type"].as_str() {
            Some("user") => self.prompts.push_back(frame),
            Some("control_request") => return self.asked(&frame),
            _ => {}
        }
        false
    }

    fn asked(&mut self, frame: &Value) -> bool {
        let request = &frame["request"];
        match request["subtype"].as_str() {
            Some("initialize") if self.knows_sdk_servers => {
                if let Some(manifests) = request["sdkMcpServerManifests"].as_object() {
                    for (name, manifest) in manifests {
                        self.take_server(name, &manifest["toolsListResult"]);
                    }
                }
                self.end.answer(frame, CliEnd::handshake_answer(frame));
            }
            Some("initialize") => self.end.answer(frame, json!({ "commands": [] })),
            Some("mcp_status") => {
                let rows: Vec<Value> =
                    self.servers.iter().map(|name| json!({ "name": name, "status": "connected" })).collect();
                self.end.answer(frame, json!({ "mcpServers": rows }));
            }
            Some("interrupt") => {
                self.end.answer(frame, json!({ "still_queued": [] }));
                return true;
            }
            _ => self.end.answer(frame, json!({})),
        }
        false
    }

    /// One prompt: model turns until one calls no tool.
    async fn turn(&mut self, prompt: &Value) -> Result<(), Stop> {
        self.end.begin_turn();
        let played = self.model_turns(prompt).await;
        if matches!(played, Err(Stop::Interrupted)) {
            self.end.fail_turn(prompt, "aborted_tools", "interrupted");
        }
        played
    }

    async fn model_turns(&mut self, prompt: &Value) -> Result<(), Stop> {
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
            for item in turn.items() {
                self.say(item);
            }
            if !turn.has_calls() {
                self.end.finish_turn(prompt, &turn.joined_text());
                return Ok(());
            }
            self.calls(&turn).await?;
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

    fn say(&mut self, item: &Item) {
        let block = match item {
            Item::Text(text) => json!({ "type": "text", "text": text }),
            Item::Thinking(text) => json!({ "type": "thinking", "thinking": text, "signature": "" }),
            Item::Call { name, input, id } => {
                json!({ "type": "tool_use", "id": id, "name": name, "input": input })
            }
        };
        self.end.message(json!({
            "type": "assistant", "parent_tool_use_id": null,
            "message": {
                "id": "msg_scripted", "type": "message", "role": "assistant", "model": "scripted", "content": [block],
                "stop_reason": null, "usage": { "input_tokens": 1, "output_tokens": 1 },
            },
        }));
    }

    /// The calls of one model turn: read-only ones at once, all others one after another.
    async fn calls(&mut self, turn: &ModelTurn) -> Result<(), Stop> {
        let mut waiting: Vec<(String, String, u64, String)> = Vec::new();
        let mut results = Vec::new();
        for item in turn.calls() {
            let Item::Call { name, input, id } = item else { continue };
            let id = id.clone().unwrap_or_default();
            let input = match self.permitted(name, input, &id).await? {
                Ok(input) => input,
                Err(denied) => {
                    self.result(&id, &denied, true);
                    results.push(format!("error: {denied}"));
                    continue;
                }
            };
            let Some((server, tool)) = self.find(name) else {
                let text = format!("No such tool available: {name}");
                self.result(&id, &text, true);
                results.push(format!("error: {text}"));
                continue;
            };
            let request = self.call(&server, &tool, &input, &id);
            waiting.push((request, server, self.end.last_rpc_id(), id));
            if !self.read_only.contains(name) {
                self.collect(&mut waiting, &mut results).await?;
            }
        }
        self.collect(&mut waiting, &mut results).await?;
        self.position.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).results.extend(results);
        Ok(())
    }

    fn find(&self, name: &str) -> Option<(String, String)> {
        self.servers.iter().find_map(|server| {
            let tool = name.strip_prefix(&crate::tool::server::ServerSpec::prefix(server))?;
            Some((server.clone(), tool.to_owned()))
        })
    }

    fn call(&mut self, server: &str, tool: &str, input: &Value, id: &str) -> String {
        self.end.call_tool_as(server, tool, input, id)
    }

    async fn collect(
        &mut self,
        waiting: &mut Vec<(String, String, u64, String)>,
        results: &mut Vec<String>,
    ) -> Result<(), Stop> {
        let requests: Vec<String> = waiting.iter().map(|(request, ..)| request.clone()).collect();
        for request in requests {
            let answer = match self.wait_for(&request).await {
                Ok(answer) => answer,
                Err(stop) => {
                    for (_, server, rpc_id, _) in waiting.drain(..) {
                        self.end.cancel_call(&server, rpc_id);
                    }
                    return Err(stop);
                }
            };
            let (.., id) = waiting.remove(0);
            let (text, is_error) = read_answer(&answer);
            self.result(&id, &text, is_error);
            results.push(if is_error { format!("error: {text}") } else { text });
        }
        Ok(())
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
                others.push(frame);
            } else if self.frame(frame) {
                break Err(Stop::Interrupted);
            }
        };
        self.end.put_back(others);
        outcome
    }

    /// Whether a call may run, and with which arguments.
    async fn permitted(
        &mut self,
        name: &str,
        input: &Value,
        id: &str,
    ) -> Result<Result<Value, String>, Stop> {
        let args = &self.end.launch().args;
        let allowed = args
            .iter()
            .filter_map(|arg| arg.strip_prefix("--allowedTools="))
            .flat_map(|rules| rules.split(','));
        let fits = |rule: &str| {
            rule.strip_suffix('*')
                .map_or(rule == name, |start| start.ends_with("__") && name.starts_with(start))
        };
        if allowed.into_iter().any(fits)
            || args.iter().any(|arg| arg == "--permission-mode=bypassPermissions")
        {
            return Ok(Ok(input.clone()));
        }
        if !args.iter().any(|arg| arg == "--permission-prompt-tool=stdio") {
            return Ok(Err(format!(
                "Claude requested permissions to use {name}, but you haven't granted it yet."
            )));
        }
        let body = json!({ "subtype": "can_use_tool", "tool_name": name, "input": input, "tool_use_id": id });
        let request = self.end.request(body);
        let answer = self.wait_for(&request).await?;
        let decision = &answer["response"];
        if decision["behavior"] == "allow" {
            return Ok(Ok(decision.get("updatedInput").unwrap_or(input).clone()));
        }
        if decision["interrupt"] == true {
            return Err(Stop::Interrupted);
        }
        let message = decision["message"].as_str().or(answer["error"].as_str()).unwrap_or("denied");
        Ok(Err(message.to_owned()))
    }

    fn result(&mut self, id: &str, text: &str, is_error: bool) {
        let content = json!([{ "type": "text", "text": text }]);
        self.end.message(json!({
            "type": "user", "parent_tool_use_id": null,
            "message": { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error },
            ] },
        }));
    }
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
