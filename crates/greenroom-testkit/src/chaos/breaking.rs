//! Injects each kind of fault.

use greenroom::testing::Fault;
use greenroom::transport::Exit;
use serde_json::{Value, json};

use super::driver::Driver;
use crate::chaos::plan::FaultKind;
use crate::cli::hand::mcp_body;

impl Driver<'_> {
    pub(super) async fn break_something(&mut self, kind: FaultKind, n: u32) {
        match kind {
            FaultKind::HandlerPanic
            | FaultKind::HandlerHang
            | FaultKind::HandlerSlow
            | FaultKind::HandlerError => {
                self.call(Some(kind)).await;
            }
            FaultKind::ServerPanic => self.break_server(n, Fault::PanicServer),
            FaultKind::ServerKill => self.break_server(n, Fault::KillServer),
            FaultKind::RouterPanic => self.session.inject(Fault::PanicRouter),
            FaultKind::CallbacksPanic => self.session.inject(Fault::PanicCallbacks),
            FaultKind::PortPanic => self.session.inject(Fault::PanicPort),
            FaultKind::PortKill => self.session.inject(Fault::KillPort),
            FaultKind::CliExit => self.exit(Exit::Code(1 + i32::try_from(n % 125).unwrap_or(0)), n).await,
            FaultKind::CliSignal => self.exit(Exit::Signal([6, 9, 11, 15][n as usize % 4]), n).await,
            FaultKind::CliCloseStdout => {
                if let Some(mut end) = self.end.take() {
                    end.close_stdout();
                    self.deaf.push(end);
                    self.gone();
                }
            }
            FaultKind::CliHalfLine => {
                if let Some(end) = self.cli().await {
                    end.send_bytes(
                        br#"{"type":"control_request","request_id":"half","request":{"subty"#.to_vec(),
                    );
                }
                self.exit(Exit::Signal(9), 0).await;
            }
            FaultKind::CliNoise => {
                let noise: [&[u8]; 4] =
                    [b"[debug] a line for people\n", b"\n", b" \t\r\n", b"caf\xe9 \xff\n"];
                self.say(noise[n as usize % 4]).await;
            }
            FaultKind::CliGarbage => self.garbage(n).await,
            FaultKind::CliDuplicateId => {
                let id = match self.some_call(n) {
                    Some(id) => Some(id),
                    None => self.call(Some(FaultKind::HandlerSlow)).await,
                };
                if let Some(id) = id
                    && let Some(call) = self.open_call(&id)
                {
                    self.send(json!({ "type": "control_request", "request_id": id, "request": call.body }));
                }
            }
            FaultKind::CliWithdraw => {
                if let Some(id) = self.some_call(n) {
                    self.send(json!({ "type": "control_cancel_request", "request_id": id }));
                    self.open.retain(|open| open.request_id != id);
                }
            }
            FaultKind::CliCancel => {
                if let Some(id) = self.some_call(n) {
                    self.cancel(&id);
                }
            }
        }
    }

    fn break_server(&mut self, n: u32, fault: fn(String) -> Fault) {
        if let Some(at) = (n as usize).checked_rem(self.servers.len()) {
            self.session.inject(fault(self.servers[at].clone()));
        }
    }

    /// The CLI dies, for even `n` after the host has read all of its lines.
    async fn exit(&mut self, exit: Exit, n: u32) {
        if let Some(mut end) = self.end.take() {
            if n.is_multiple_of(2) {
                end.flushed().await;
            }
            end.exit(exit);
        }
        self.gone();
    }

    /// Sends a frame if a CLI runs.
    fn send(&mut self, frame: Value) {
        if let Some(end) = &mut self.end {
            end.send(frame);
        }
    }

    async fn say(&mut self, bytes: &[u8]) {
        if let Some(end) = self.cli().await {
            end.send_bytes(bytes.to_vec());
        }
    }

    async fn garbage(&mut self, n: u32) {
        match n % 6 {
            0 => self.say(b"{\"type\":\"control_request\",\"request_id\":\"torn\"\n").await,
            1 => self.say(b"{}\n").await,
            2 => {
                let nothing = json!({ "subtype": "success", "request_id": "nobody_asked", "response": {} });
                let frame = json!({ "type": "control_response", "response": nothing });
                self.say(format!("{frame}\n").as_bytes()).await;
            }
            3 => self.say(b"{\"type\":\"control_cancel_request\",\"request_id\":\"nothing\"}\n").await,
            4 => {
                self.ask(json!({ "subtype": "of_tomorrow", "n": n })).await;
            }
            _ => {
                let message = json!({ "jsonrpc": "2.0", "id": n, "method": "ping" });
                self.ask(mcp_body("nobody", message)).await;
            }
        }
    }

    /// A tool call in flight, chosen by `n`.
    fn some_call(&self, n: u32) -> Option<String> {
        let calls: Vec<_> = self.open.iter().filter(|open| open.call.is_some()).collect();
        Some(calls[(n as usize).checked_rem(calls.len())?].request_id.clone())
    }
}
