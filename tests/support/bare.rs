//! A session whose CLI is two bare pipes.

#![allow(dead_code, clippy::unwrap_used, reason = "in the helpers of tests, too")]

use greenroom::options::OLDEST_CLI;
use greenroom::transport::{MemoryCli, memory};
use greenroom::{Session, SessionBuilder};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

use crate::wait::{SOON, within};

pub(crate) const MIB: usize = 1 << 20;

static PIECE: [u8; 16 << 10] = [b'x'; 16 << 10];

/// The other end of the pipes, bare: what is written here is held nowhere.
pub(crate) struct Bare {
    pub(crate) session: Session,
    _cli: MemoryCli,
    pub(crate) stdin: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    pub(crate) stdout: Box<dyn AsyncWrite + Send + Unpin>,
    line: String,
}

impl Bare {
    pub(crate) async fn start(builder: SessionBuilder) -> Self {
        let (transport, mut listener) = memory();
        let (session, (cli, stdin, stdout)) = within(SOON, async {
            tokio::join!(builder.transport(transport).start(), async {
                let mut cli = listener.accept().await.unwrap();
                let (stdin, mut stdout) = cli.take_pipes();
                let mut stdin = BufReader::new(stdin);
                let mut line = String::new();
                stdin.read_line(&mut line).await.unwrap();
                let initialize: Value = serde_json::from_str(&line).unwrap();
                let answer = json!({ "type": "control_response", "response": {
                    "subtype": "success", "request_id": initialize["request_id"], "response": {
                        "claude_code_version": OLDEST_CLI, "commands": [], "capabilities": ["sdk_mcp_manifests"],
                        "sdk_mcp_manifests_parked": { "clock": "parked" },
                    },
                } });
                stdout.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
                (cli, stdin, stdout)
            })
        })
        .await;
        Self { session: session.unwrap(), _cli: cli, stdin, stdout, line: String::new() }
    }

    /// The next frame of the host.
    pub(crate) async fn recv(&mut self) -> Value {
        self.line.clear();
        within(SOON, self.stdin.read_line(&mut self.line)).await.unwrap();
        serde_json::from_str(&self.line).unwrap()
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        within(SOON, self.stdout.write_all(bytes)).await.unwrap();
    }

    /// So many bytes of a line, in pieces.
    pub(crate) async fn filler(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let now = bytes.min(PIECE.len());
            self.write(&PIECE[..now]).await;
            bytes -= now;
        }
    }

    /// A line of exactly this length, its end not counted: a message whose type nobody knows.
    pub(crate) async fn long_line(&mut self, bytes: usize) {
        let (start, end) = (br#"{"type":"of_another_age","filler":""#, b"\"}\n");
        self.write(start).await;
        self.filler(bytes - start.len() - (end.len() - 1)).await;
        self.write(end).await;
    }

    /// The tool is called and answers, behind everything that was written before.
    pub(crate) async fn calls(&mut self, id: &str) {
        self.calls_and_awaits(id, None).await;
    }

    /// Calls the tool, then reads until the call and this other request are answered, in either order.
    pub(crate) async fn calls_and_awaits(&mut self, id: &str, other: Option<&str>) {
        let call = json!({ "type": "control_request", "request_id": id, "request": {
            "subtype": "mcp_message", "server_name": "clock", "message": {
                "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "now", "arguments": {} },
            },
        } });
        self.write(format!("{call}\n").as_bytes()).await;
        let (mut called, mut awaited) = (false, other.is_none());
        while !(called && awaited) {
            let frame = self.recv().await;
            let answered = frame["response"]["request_id"].as_str();
            if answered == Some(id) {
                let result = &frame["response"]["response"]["mcp_response"]["result"];
                assert_eq!(result["content"][0]["text"], "noon", "{frame}");
                called = true;
            } else if answered.is_some() && answered == other {
                awaited = true;
            }
        }
    }
}
