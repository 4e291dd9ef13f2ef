//! The session. One thread reads and writes in turn; what it wrote leaves when there is nothing more to read.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader};
use std::{env, mem, process};

use serde_json::{Value, json};

use crate::behaviour::{Behaviour, Count, flag};
use crate::process::{close_stdout, kill_self, linger};
use crate::turn::{Prompt, Turn, is_echo, text_of_call};
use crate::wire::{Uuids, What, Wire};

const VERSION: &str = "999.0.0-fake";

pub(crate) struct Cli {
    behaviour: Behaviour,
    count: Count,
    wire: Wire,
    servers: Vec<Server>,
    start: Start,
    waiting: VecDeque<Prompt>,
    turn: Option<Turn>,
}

struct Server {
    name: String,
    /// Known by its manifest, so that no handshake is needed.
    parked: bool,
    status: &'static str,
}

enum Start {
    NotAsked,
    /// The host's `initialize` is answered once this many handshakes are.
    Handshakes {
        left: usize,
        request_id: Value,
        answer: Value,
    },
    Done,
}

impl Cli {
    pub(crate) fn new(behaviour: Behaviour, count: Count) -> Self {
        let forks = env::args().any(|argument| argument == "--fork-session");
        let session_id = flag("--resume").filter(|_| !forks).or_else(|| flag("--session-id"));
        Self {
            behaviour,
            count,
            wire: Wire::new(Uuids::new(), session_id),
            servers: Vec::new(),
            start: Start::NotAsked,
            waiting: VecDeque::new(),
            turn: None,
        }
    }

    /// Serves the host until the end of stdin.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut stdin = BufReader::with_capacity(1 << 18, io::stdin().lock());
        let mut line = Vec::new();
        loop {
            if !stdin.buffer().contains(&b'\n') {
                self.wire.flush()?;
            }
            if self.behaviour.stop_reading && matches!(self.start, Start::Done) {
                self.wire.flush()?;
                linger();
            }
            line.clear();
            if stdin.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            if !line.trim_ascii().is_empty() {
                self.receive(serde_json::from_slice(&line)?)?;
                self.proceed()?;
            }
        }
    }

    fn receive(&mut self, mut frame: Value) -> io::Result<()> {
        match frame["type"].as_str().unwrap_or_default() {
            "user" if frame["shouldQuery"] != false => {
                let content = &frame["message"]["content"];
                let text = content.as_str().or(content[0]["text"].as_str()).unwrap_or_default().to_owned();
                self.waiting.push_back(Prompt { uuid: frame["uuid"].take(), text });
                Ok(())
            }
            "control_request" => {
                let request_id = frame["request_id"].take();
                self.asked(request_id, &frame["request"])
            }
            "control_response" => self.answered(&frame["response"]),
            _ => Ok(()),
        }
    }

    fn asked(&mut self, request_id: Value, request: &Value) -> io::Result<()> {
        match request["subtype"].as_str().unwrap_or_default() {
            "initialize" if self.behaviour.hang_initialize => Ok(()),
            "initialize" => match &self.behaviour.refuse_initialize {
                Some(error) => self.wire.refuse(request_id, error),
                None => self.initialize(request_id, request),
            },
            "interrupt" => {
                for rpc in self.wire.open_calls() {
                    self.wire.cancel(&self.behaviour.server, rpc)?;
                }
                let queued: Vec<_> = self.waiting.iter().map(|prompt| &prompt.uuid).collect();
                self.wire.answer(request_id, json!({"still_queued": queued}))?;
                self.finish(true)
            }
            "mcp_status" => self.wire.answer(request_id, json!({"mcpServers": server_rows(&self.servers)})),
            _ => self.wire.answer(request_id, json!({})),
        }
    }

    fn answered(&mut self, response: &Value) -> io::Result<()> {
        let Some(request) = self.wire.settle(response) else { return Ok(()) };
        if let What::Handshake(server) = request.what
            && let Start::Handshakes { left, .. } = &mut self.start
        {
            let well = response["response"]["mcp_response"]["result"].is_object();
            self.servers[server].status = if well { "connected" } else { "failed" };
            *left -= 1;
        }
        let Some(turn) = &mut self.turn else { return Ok(()) };
        match request.what {
            What::Handshake(_) | What::Notice => {}
            What::Call(number) => {
                let text = text_of_call(number, self.behaviour.payload);
                turn.call_answered(is_echo(response, request.rpc, &text));
            }
            What::Hang => turn.answer = Some(response.clone()),
            What::OfNoKnownSubtype => turn.refused += u64::from(response["subtype"] == "error"),
            What::Ping if turn.crash => kill_self(self.behaviour.crash_signal),
            What::Ping => {
                if let Some(rpc) = turn.to_cancel.take() {
                    self.wire.cancel(&self.behaviour.server, rpc)?;
                }
            }
        }
        Ok(())
    }

    /// Does what can be done without a further word of the host.
    fn proceed(&mut self) -> io::Result<()> {
        if matches!(self.start, Start::Handshakes { left: 0, .. }) {
            self.started()?;
        }
        while matches!(self.start, Start::Done) {
            if self.turn.is_none() {
                let Some(prompt) = self.waiting.pop_front() else { break };
                self.begin(prompt)?;
            }
            self.fill_window()?;
            if self.wire.open > 0 {
                break;
            }
            if self.turn.as_mut().is_some_and(|turn| mem::take(&mut turn.ping_last)) {
                self.ping()?;
            } else {
                self.finish(false)?;
            }
        }
        Ok(())
    }

    fn initialize(&mut self, request_id: Value, request: &Value) -> io::Result<()> {
        let mut answer = json!({"commands": [], "claude_code_version": VERSION, "pid": process::id()});
        answer["capabilities"] = capabilities();
        answer["sdk_mcp_manifests_parked"] = json!({});
        let waits = std::env::args().any(|arg| arg == "--await-initialize");
        for (field, applied) in [("mcpServers", "mcp_servers_applied"), ("settings", "settings_applied")] {
            if request.get(field).is_some() {
                answer[applied] = json!(waits);
            }
        }
        for name in request["sdkMcpServers"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let parked = request["sdkMcpServerManifests"][name].is_object();
            let status = if parked { "connected" } else { "pending" };
            self.servers.push(Server { name: name.to_owned(), parked, status });
            if parked {
                answer["sdk_mcp_manifests_parked"][name] = json!("parked");
            }
        }
        let left = self.servers.iter().filter(|server| !server.parked).count();
        self.start = Start::Handshakes { left, request_id, answer };
        for (index, server) in self.servers.iter().enumerate().filter(|(_, server)| !server.parked) {
            self.wire.handshake(index, &server.name, VERSION)?;
        }
        Ok(())
    }

    /// Answers `initialize` and ends the handshakes.
    fn started(&mut self) -> io::Result<()> {
        if let Start::Handshakes { request_id, answer, .. } = mem::replace(&mut self.start, Start::Done) {
            self.wire.answer(request_id, answer)?;
        }
        for server in self.servers.iter().filter(|server| !server.parked && server.status == "connected") {
            self.wire.notify(&server.name, "notifications/initialized", json!({}))?;
            self.wire.ask(What::Notice, &server.name, "tools/list", json!({}))?;
        }
        Ok(())
    }

    fn begin(&mut self, prompt: Prompt) -> io::Result<()> {
        self.wire.begin_turn();
        self.count.prompt()?;
        let behaviour = &self.behaviour;
        let crash = self.count.crashes_now(behaviour);
        let init = json!({"type": "system", "subtype": "init", "cwd": env::current_dir()?, "tools": [],
            "mcp_servers": server_rows(&self.servers), "model": "fake-model", "permissionMode": "default",
            "slash_commands": [], "apiKeySource": "none", "claude_code_version": VERSION,
            "output_style": "default", "skills": [], "plugins": [],
            "capabilities": capabilities()});
        self.wire.message(init)?;
        if behaviour.half_line && self.count.may_crash(behaviour) {
            self.wire.write(b"{\"type\":\"assistant\",\"message\":{\"role\":\"assi")?;
            self.wire.flush()?;
            process::exit(0);
        }
        if let Some(code) = behaviour.error_exit
            && self.count.may_crash(behaviour)
        {
            self.wire.message(json!({"type": "result", "subtype": "error_during_execution",
                "is_error": true, "errors": ["no credit is left"], "num_turns": 0,
                "user_message_uuid": prompt.uuid}))?;
            self.wire.flush()?;
            process::exit(code.into());
        }
        if crash && behaviour.calls == 0 {
            self.wire.flush()?;
            match behaviour.crash_code {
                Some(code) => process::exit(code.into()),
                None => kill_self(behaviour.crash_signal),
            }
        }
        if behaviour.close_stdout && self.count.may_crash(behaviour) {
            self.wire.flush()?;
            close_stdout();
            linger();
        }
        let message = json!({"id": self.wire.uuids.next(), "type": "message", "role": "assistant",
            "model": "fake-model", "content": [{"type": "text", "text": prompt.reply()}],
            "stop_reason": null, "usage": usage()});
        self.wire.message(json!({"type": "assistant", "message": message, "parent_tool_use_id": null,
            "user_message_uuid": prompt.uuid}))?;
        for _ in 0..behaviour.unknown_frames {
            self.wire.message(json!({"type": "fake_news", "payload": [1, {"two": null}]}))?;
            self.wire.request(What::OfNoKnownSubtype, 0, json!({"subtype": "fake_request"}))?;
        }
        let mut turn = Turn::new(prompt, behaviour, crash);
        if behaviour.cancel {
            let call = json!({"name": "hang", "arguments": {}});
            turn.to_cancel = Some(self.wire.ask(What::Hang, &behaviour.server, "tools/call", call)?.0);
        }
        self.turn = Some(turn);
        let must_ping = crash || behaviour.cancel;
        self.fill_window()?;
        if must_ping { self.ping() } else { Ok(()) }
    }

    /// Sends calls until the window is full.
    fn fill_window(&mut self) -> io::Result<()> {
        let behaviour = &self.behaviour;
        while let Some(turn) = &mut self.turn
            && turn.unsent > 0
            && self.wire.open < behaviour.window
        {
            let number = behaviour.calls - turn.unsent;
            turn.unsent -= 1;
            let text = text_of_call(number, behaviour.payload);
            let meta = json!({"claudecode/toolUseId": format!("toolu_{}_{number}", self.wire.turns)});
            let call = json!({"name": behaviour.tool, "arguments": {"text": text}, "_meta": meta});
            let (_, frame) = self.wire.ask(What::Call(number), &behaviour.server, "tools/call", call)?;
            if number == 0 && behaviour.duplicate_id {
                self.wire.send(&frame)?;
            }
        }
        Ok(())
    }

    fn ping(&mut self) -> io::Result<()> {
        self.wire.ask(What::Ping, &self.behaviour.server, "ping", json!({})).map(drop)
    }

    /// Ends the turn, if there is one, with its `result`.
    fn finish(&mut self, interrupted: bool) -> io::Result<()> {
        let Some(turn) = self.turn.take() else { return Ok(()) };
        let mut frame = json!({"type": "result", "subtype": "success", "is_error": false,
            "duration_ms": turn.started.elapsed().as_millis() as u64, "duration_api_ms": 0, "num_turns": 1,
            "stop_reason": "end_turn", "terminal_reason": "completed", "usage": usage(), "modelUsage": {},
            "total_cost_usd": self.wire.turns as f64 * 0.25, "permission_denials": [],
            "user_message_uuid": turn.prompt.uuid});
        if interrupted {
            frame["subtype"] = json!("error_during_execution");
            frame["is_error"] = json!(true);
            frame["terminal_reason"] = json!("aborted_tools");
            frame["errors"] = json!(["interrupted"]);
        } else {
            let (text, wrong) = turn.result(&self.behaviour, self.wire.duplicates, self.wire.unknown);
            frame["result"] = json!(text);
            frame["is_error"] = json!(wrong);
        }
        self.wire.message(frame)
    }
}

fn server_rows(servers: &[Server]) -> Value {
    servers
        .iter()
        .map(|server| json!({"name": server.name, "status": server.status, "source": "sdk"}))
        .collect()
}

fn capabilities() -> Value {
    json!(["sdk_mcp_manifests", "interrupt_receipt_v1"])
}

fn usage() -> Value {
    json!({"input_tokens": 10, "output_tokens": 5,
        "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0})
}
