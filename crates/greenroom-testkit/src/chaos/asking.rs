//! The CLI's side of a plan: requests to the host, and the host's frames.

use std::time::Duration;

use futures_util::FutureExt;
use greenroom::Session;
use greenroom::testing::CallFault;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::driver::{Driver, OpenCall, OpenRequest};
use super::{PATIENCE, PlannedCall};
use crate::base::lock;
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
                    self.run.problems.push(format!("the session has ended: {why}"));
                }
                Err(_) => self.run.problems.push("the CLI was not started again in time".into()),
            }
        }
        self.end.as_mut()
    }

    /// Forgets the requests of a CLI that has ended: they get no answer.
    pub(super) fn gone(&mut self) {
        self.end = None;
        self.open.clear();
        self.prompt = None;
    }

    /// Sends a control request and awaits its answer.
    pub(super) async fn ask(&mut self, body: Value) {
        if let Some(end) = self.cli().await {
            let request_id = end.request(body);
            self.open.push(OpenRequest { request_id, call: None });
        }
    }

    /// Starts the turn of the current prompt, as a CLI does before its first call.
    pub(super) fn begin(&mut self) {
        if let (Some((_, begun @ false)), Some(end)) = (&mut self.prompt, &mut self.end) {
            end.begin_turn();
            *begun = true;
        }
    }

    /// Sends the next tool call and returns the id of the request.
    pub(super) async fn call(&mut self, fault: Option<FaultKind>) -> Option<String> {
        let n = self.run.calls;
        let calls = &self.chaos.calls;
        let PlannedCall { server, tool, arguments } =
            &calls[usize::try_from(n).unwrap_or(0).checked_rem(calls.len())?];
        self.run.calls += 1;
        let end = self.cli().await?;
        let arguments = arguments(n);
        let body = end.tool_call(server, tool, &arguments, None);
        let (request_id, rpc_id) = (end.next_request_id(), end.last_rpc_id());
        let planned = match fault {
            Some(FaultKind::HandlerPanic) => Some(CallFault::Panic),
            Some(FaultKind::HandlerHang) => Some(CallFault::Hang),
            Some(FaultKind::HandlerSlow) => Some(CallFault::Slow(Duration::from_millis(n % 2000))),
            Some(FaultKind::HandlerError) => Some(CallFault::Error),
            _ => None,
        };
        if let Some(planned) = planned {
            lock(&self.faults).insert(request_id.clone(), planned);
        }
        self.end.as_mut()?.request(body.clone());
        let call = Some(OpenCall { body, rpc_id, arguments, fault });
        self.open.push(OpenRequest { request_id: request_id.clone(), call });
        Some(request_id)
    }

    /// The tool call in flight with this request id.
    pub(super) fn open_call(&self, request_id: &str) -> Option<&OpenCall> {
        self.open.iter().find(|open| open.request_id == request_id)?.call.as_ref()
    }

    /// Cancels a tool call, as the CLI does on an interrupt of its user.
    pub(super) fn cancel(&mut self, request_id: &str) {
        let Some(OpenCall { body, rpc_id, .. }) = self.open_call(request_id) else { return };
        let (server, rpc_id) = (body["server_name"].as_str().unwrap_or_default().to_owned(), *rpc_id);
        if let Some(end) = &mut self.end {
            let request_id = end.cancel_call(&server, rpc_id);
            self.open.push(OpenRequest { request_id, call: None });
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
                let id = &frame["response"]["request_id"];
                let Some(at) = self.open.iter().position(|open| *id == open.request_id) else { return };
                let open = self.open.remove(at);
                self.answered(open, &frame["response"]);
            }
            Some("control_request") => {
                if let Some(end) = &mut self.end {
                    end.answer(&frame, json!({}));
                }
            }
            Some("user") => self.prompt = Some((frame, false)),
            _ => {}
        }
    }

    fn answered(&mut self, open: OpenRequest, response: &Value) {
        let answer = &response["response"]["mcp_response"];
        let (Some(expect), Some(OpenCall { body, arguments, fault: None, .. })) =
            (&self.chaos.expect, &open.call)
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
            self.run.problems.push(format!(
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
