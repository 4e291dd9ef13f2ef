//! The CLI's side of a plan: requests to the host, and the host's frames.

use std::time::Duration;

use futures_util::FutureExt;
use greenroom::Session;
use greenroom::testing::CallFault;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::driver::{Driver, OpenRequest};
use super::{PATIENCE, PlannedCall};
use crate::chaos::plan::FaultKind;
use crate::cli::hand::{CliEnd, ScriptedListener};

impl Driver<'_> {
    /// The current CLI; accepts the next one after a death.
    pub(super) async fn cli(&mut self) -> Option<&mut CliEnd> {
        if self.end.is_none() {
            self.gone();
            let deadline = Instant::now() + PATIENCE;
            match timeout_at(deadline, accept(&mut self.listener, &self.session)).await {
                Ok(Some(end)) => self.end = Some(end),
                Ok(None) => {
                    let why = self
                        .session
                        .failure()
                        .map_or_else(|| "for an unknown reason".into(), |error| error.to_string());
                    self.problems.push(format!("the session has ended: {why}"));
                }
                Err(_) => self.problems.push("the CLI was not started again in time".into()),
            }
        }
        self.end.as_mut()
    }

    /// Forgets the requests of a CLI that has ended: they get no answer.
    pub(super) fn gone(&mut self) {
        self.end = None;
        self.open.clear();
        self.by_id.clear();
        self.prompt = None;
    }

    /// Sends a control request and returns its number; `None` without a CLI.
    pub(super) async fn ask(&mut self, body: Value, open: Option<OpenRequest>) -> Option<u64> {
        let number = self.asked;
        self.asked += 1;
        let end = self.cli().await?;
        let request_id = format!("chaos_{}_{number}", end.launch().epoch);
        let mut open = open.unwrap_or_default();
        open.request_id.clone_from(&request_id);
        let fault = match open.fault {
            Some(FaultKind::HandlerPanic) => Some(CallFault::Panic),
            Some(FaultKind::HandlerHang) => Some(CallFault::Hang),
            Some(FaultKind::HandlerSlow) => Some(CallFault::Slow(Duration::from_millis(number % 2000))),
            Some(FaultKind::HandlerError) => Some(CallFault::Error),
            _ => None,
        };
        if let Some(fault) = fault {
            self.faults.plan(&request_id, fault);
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

    /// Starts the turn of the current prompt, as a CLI does before its first call.
    pub(super) fn begin(&mut self) {
        if let (Some(_), false, Some(end)) = (&self.prompt, self.begun, &mut self.end) {
            end.begin_turn();
            self.begun = true;
        }
    }

    /// Sends the next tool call and returns its number.
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
        let call = Some((body.clone(), rpc_id, arguments));
        let open = OpenRequest { request_id: String::new(), call, fault };
        self.ask(body, Some(open)).await
    }

    /// Cancels a tool call, as the CLI does on an interrupt of its user.
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

    pub(super) fn take_frames(&mut self) {
        while let Some(end) = &mut self.end {
            match end.recv().now_or_never() {
                Some(Some(frame)) => self.frame(frame),
                Some(None) => self.gone(),
                None => return,
            }
        }
    }

    pub(super) fn frame(&mut self, frame: Value) {
        match frame["type"].as_str() {
            Some("control_response") => {
                let id = frame["response"]["request_id"].as_str().unwrap_or_default();
                let Some(open) = self.by_id.remove(id).and_then(|number| self.open.remove(&number)) else {
                    return;
                };
                self.answered(open, &frame["response"]);
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

    fn answered(&mut self, open: OpenRequest, response: &Value) {
        let answer = &response["response"]["mcp_response"];
        let (Some(expect), Some((body, _, arguments)), None) = (&self.chaos.expect, &open.call, open.fault)
        else {
            return;
        };
        let result = &answer["result"];
        if result.is_object()
            && let Err(problem) = expect(arguments, result)
        {
            let server = body["server_name"].as_str().unwrap_or_default();
            let tool = body["message"]["params"]["name"].as_str().unwrap_or_default();
            let id = &open.request_id;
            self.problems.push(format!(
                "the result of {server}/{tool} is not as expected: {problem}\narguments {arguments}\nresult {result}\n\
                 request {id}"
            ));
        }
    }
}

/// Accepts the next CLI and answers its handshake; `None` if the session ends first.
async fn accept(listener: &mut ScriptedListener, session: &Session) -> Option<CliEnd> {
    let accepting = async {
        loop {
            let mut end = listener.try_accept().await?;
            // The host may give the CLI up during the handshake.
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
