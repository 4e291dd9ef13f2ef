//! The stand-in CLIs of the model test, and the journal of what they have seen.
//!
//! Each activation has a transport of its own, so that the library's own guard of conversations does not hide two owners from the
//! journal. A stand-in reads the fate of each turn from the prompt's text: see [`Turn`].

mod death;
mod journal;
mod turn;

use std::collections::VecDeque;
use std::time::Duration;

use greenroom::transport::Exit;
use greenroom_testkit::CliEnd;
use serde_json::{Value, json};
use tokio::time::Instant;

use journal::Life;
pub(crate) use journal::{Caps, Journal, Taken};
pub(crate) use turn::*;

/// The time in which a stand-in dies that nobody waits for, starts, and exits at the end of its input.
const DYING: Duration = Duration::from_millis(5);
const STARTING: Duration = Duration::from_millis(400);
const LEAVING: Duration = Duration::from_millis(30);

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
                    "claude_code_version": "999.0.0-scripted", "commands": [], "hooks_applied": true,
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
        self.journal.state().turn_begins(self.life.number, &turn.id);
        let over = tokio::time::sleep(Duration::from_millis(turn.millis));
        tokio::pin!(over);
        if turn.kind == Kind::Call && self.call().await? {
            self.journal.state().turn_ends(self.life.number);
            self.end.fail_turn(prompt, "aborted_tools", "interrupted");
            return Ok(true);
        }
        loop {
            tokio::select! {
                biased;
                frame = self.end.recv() => {
                    if self.during_turn(frame.ok_or(HostGone)?) {
                        self.journal.state().turn_ends(self.life.number);
                        self.end.fail_turn(prompt, "aborted_tools", "interrupted");
                        return Ok(true);
                    }
                }
                () = &mut over => break,
            }
        }
        if turn.kind == Kind::Call && self.call().await? {
            self.journal.state().turn_ends(self.life.number);
            self.end.fail_turn(prompt, "aborted_tools", "interrupted");
            return Ok(true);
        }
        if turn.kind == Kind::Crash {
            return Ok(false);
        }
        *self.journal.state().finished.entry(turn.id.clone()).or_default() += 1;
        self.journal.state().turn_ends(self.life.number);
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
        self.journal.state().calls += 1;
        self.journal.answered("a tool call", began.elapsed());
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
