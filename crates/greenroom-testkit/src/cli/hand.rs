//! The CLI's end of an in-memory pipe, by hand.

mod turns;

use std::collections::VecDeque;

use greenroom::transport::{Exit, Launch, MemoryCli, MemoryListener};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use crate::base::spawn;

/// Waits for a session to start its CLI, and is that CLI: see
/// [`ScriptedCli::by_hand`](crate::ScriptedCli::by_hand).
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let (transport, mut cli) = greenroom_testkit::ScriptedCli::by_hand();
/// let (session, mut end) = tokio::join!(greenroom::Session::builder().transport(transport).start(), async {
///     let mut end = cli.accept().await;
///     end.handshake().await;
///     end
/// });
/// let session = session?;
/// let mut turn = session.prompt("hello").await?;
/// let prompt = end.expect("user").await;
/// end.finish_turn(&prompt, "hi");
/// assert_eq!(turn.outcome().await?.text(), Some("hi"));
/// let (stopped, ()) = tokio::join!(session.stop(), end.run_out());
/// stopped?;
/// # greenroom::Result::<()>::Ok(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ScriptedListener {
    listener: MemoryListener,
}

impl ScriptedListener {
    pub(crate) fn new(listener: MemoryListener) -> Self {
        Self { listener }
    }

    /// The next incarnation.
    ///
    /// # Panics
    /// When no session can come any more, because every transport was dropped.
    pub async fn accept(&mut self) -> CliEnd {
        match self.try_accept().await {
            Some(end) => end,
            None => panic!("no session starts a CLI any more: every transport was dropped"),
        }
    }

    /// The next incarnation; `None` when no session can come any more.
    pub async fn try_accept(&mut self) -> Option<CliEnd> {
        self.listener.accept().await.map(CliEnd::new)
    }
}

/// The CLI's end of one incarnation: what the host writes comes out, what the CLI would write goes in.
///
/// Its waiting methods panic with the whole transcript when the frame that is waited for can come no more. They
/// wait without a limit; on tokio's paused clock, wrap them in a timeout.
///
/// ```
/// # async fn example(end: &mut greenroom_testkit::CliEnd) {
/// let request_id = end.call_tool("calc", "add", serde_json::json!({ "a": 1, "b": 2 }));
/// let answer = end.answer_to(&request_id).await;
/// assert_eq!(answer["mcp_response"]["result"]["content"][0]["text"], "3");
/// # }
/// ```
#[derive(Debug)]
pub struct CliEnd {
    cli: MemoryCli,
    frames: mpsc::UnboundedReceiver<Value>,
    passed_over: VecDeque<Value>,
    out: mpsc::UnboundedSender<Out>,
    transcript: Vec<String>,
    next_id: u64,
    next_rpc_id: u64,
    session_id: String,
    _tasks: [AbortOnDropHandle<()>; 2],
}

#[derive(Debug)]
enum Out {
    Bytes(Vec<u8>),
    /// Everything before it was written.
    Flushed(oneshot::Sender<()>),
    Close,
}

impl CliEnd {
    fn new(mut cli: MemoryCli) -> Self {
        let (reader, mut writer) = cli.take_pipes();
        let (to_frames, frames) = mpsc::unbounded_channel();
        let (out, mut outgoing) = mpsc::unbounded_channel::<Out>();
        let reading = spawn(async move {
            let mut lines = BufReader::new(reader).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let frame = serde_json::from_str(&line)
                    .unwrap_or_else(|_| json!({ "type": "unreadable", "line": line }));
                if to_frames.send(frame).is_err() {
                    break;
                }
            }
        });
        let writing = spawn(async move {
            while let Some(out) = outgoing.recv().await {
                match out {
                    Out::Bytes(bytes) => {
                        if writer.write_all(&bytes).await.is_err() {
                            break;
                        }
                    }
                    // Whoever waited may have gone.
                    Out::Flushed(flushed) => drop(flushed.send(())),
                    Out::Close => break,
                }
            }
        });
        let given = |flag| cli.launch().args.iter().find_map(|arg| arg.strip_prefix(flag)).map(str::to_owned);
        // A fork without an id of its own has a new one.
        let forks = cli.launch().args.iter().any(|arg| arg == "--fork-session");
        let session_id = given("--session-id=")
            .or_else(|| given("--resume=").filter(|_| !forks))
            .unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        Self {
            cli,
            frames,
            passed_over: VecDeque::new(),
            out,
            transcript: Vec::new(),
            next_id: 1,
            next_rpc_id: 2,
            session_id,
            _tasks: [reading, writing],
        }
    }

    /// The launch with which it was started.
    pub fn launch(&self) -> &Launch {
        self.cli.launch()
    }

    /// The id of the conversation: the id that it was given (`--session-id`, `--resume`), or a new one. A fork has a new id
    /// if it was given none with `--session-id`.
    pub fn session_id(&self) -> &str {
        &self.session_id
    }

    /// Goes on with this conversation, in place of a new one.
    pub(crate) fn continues(&mut self, session_id: String) {
        self.session_id = session_id;
    }

    /// What was sent and received so far, a line each.
    pub fn transcript(&self) -> String {
        self.transcript.join("\n")
    }

    /// Writes a frame.
    pub fn send(&mut self, frame: Value) {
        self.transcript.push(format!("cli  > {frame}"));
        self.send_bytes(format!("{frame}\n").into_bytes());
    }

    /// Writes bytes as they are: half a line, two lines, or no JSON.
    pub fn send_bytes(&mut self, bytes: impl Into<Vec<u8>>) {
        // A host that reads no more is seen by what it does not answer.
        self.out.send(Out::Bytes(bytes.into())).ok();
    }

    /// Waits until the pipe to the host has taken all that was sent, or is broken.
    pub async fn flushed(&mut self) {
        let (done, flushed) = oneshot::channel();
        if self.out.send(Out::Flushed(done)).is_ok() {
            // An error means that the pipe is broken.
            flushed.await.ok();
        }
    }

    /// The next frame of the host; `None` when it has closed stdin, or is gone.
    pub async fn recv(&mut self) -> Option<Value> {
        match self.passed_over.pop_front() {
            Some(frame) => Some(frame),
            None => self.recv_new().await,
        }
    }

    async fn recv_new(&mut self) -> Option<Value> {
        let frame = self.frames.recv().await?;
        self.transcript.push(format!("host > {frame}"));
        Some(frame)
    }

    /// Gives frames back, for others to receive.
    pub(crate) fn put_back(&mut self, frames: Vec<Value>) {
        for frame in frames.into_iter().rev() {
            self.passed_over.push_front(frame);
        }
    }

    /// The next frame that fits. Those before it are kept for others.
    ///
    /// # Panics
    /// When the host closes stdin first.
    pub async fn expect_where(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.passed_over.iter().position(&fits)
            && let Some(frame) = self.passed_over.remove(at)
        {
            return frame;
        }
        loop {
            match self.recv_new().await {
                Some(frame) if fits(&frame) => return frame,
                Some(frame) => self.passed_over.push_back(frame),
                None => panic!(
                    "the host closed stdin, and {what} had not come. The transcript:\n{}",
                    self.transcript()
                ),
            }
        }
    }

    /// The next frame of this type.
    ///
    /// # Panics
    /// When the host closes stdin first.
    pub async fn expect(&mut self, kind: &str) -> Value {
        self.expect_where(&format!("a frame of type {kind}"), |frame| frame["type"] == kind).await
    }

    /// The next control request of this subtype.
    ///
    /// # Panics
    /// When the host closes stdin first.
    pub async fn expect_request(&mut self, subtype: &str) -> Value {
        let fits =
            |frame: &Value| frame["type"] == "control_request" && frame["request"]["subtype"] == subtype;
        self.expect_where(&format!("a control request {subtype}"), fits).await
    }

    /// Answers a control request of the host.
    pub fn answer(&mut self, request: &Value, response: Value) {
        let response =
            json!({ "subtype": "success", "request_id": request["request_id"], "response": response });
        self.send(json!({ "type": "control_response", "response": response }));
    }

    /// Answers a control request of the host with an error.
    pub fn refuse(&mut self, request: &Value, message: &str) {
        let response = json!({ "subtype": "error", "request_id": request["request_id"], "error": message });
        self.send(json!({ "type": "control_response", "response": response }));
    }

    /// Sends a control request and returns its id.
    pub fn request(&mut self, body: Value) -> String {
        let request_id = self.next_request_id();
        self.next_id += 1;
        self.send(json!({ "type": "control_request", "request_id": request_id, "request": body }));
        request_id
    }

    /// The id of the next control request.
    pub(crate) fn next_request_id(&self) -> String {
        format!("cli_{}_{}", self.cli.launch().epoch, self.next_id)
    }

    /// Sends a message to an in-process server and returns the id of the control request.
    pub fn mcp(&mut self, server: &str, message: Value) -> String {
        self.request(mcp_body(server, message))
    }

    /// Calls a tool as the CLI does and returns the id of the control request. The JSON-RPC ids count from 2.
    pub fn call_tool(&mut self, server: &str, tool: &str, arguments: Value) -> String {
        let body = self.tool_call(server, tool, &arguments, None);
        self.request(body)
    }

    /// The body of the request that calls a tool, with the next JSON-RPC id.
    pub(crate) fn tool_call(
        &mut self,
        server: &str,
        tool: &str,
        arguments: &Value,
        tool_use_id: Option<&str>,
    ) -> Value {
        let id = self.next_rpc_id();
        let tool_use_id = tool_use_id.map_or_else(|| format!("toolu_{id}"), str::to_owned);
        let meta = json!({ "claudecode/toolUseId": tool_use_id, "progressToken": id });
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        mcp_body(server, message)
    }

    /// Cancels a call as the CLI does, by its JSON-RPC id, and returns the id of the control request.
    pub fn cancel_call(&mut self, server: &str, rpc_id: u64) -> String {
        let params = json!({ "requestId": rpc_id, "reason": "scripted" });
        self.mcp(server, json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }))
    }

    /// A JSON-RPC id that was not used yet.
    pub(crate) fn next_rpc_id(&mut self) -> u64 {
        self.next_rpc_id += 1;
        self.next_rpc_id - 1
    }

    /// The JSON-RPC id of the last call.
    pub fn last_rpc_id(&self) -> u64 {
        self.next_rpc_id - 1
    }

    /// Waits for the answer to a control request: its `response`, or the whole inner object if it is an error.
    ///
    /// # Panics
    /// When the host closes stdin first.
    pub async fn answer_to(&mut self, request_id: &str) -> Value {
        let fits = |frame: &Value| {
            frame["type"] == "control_response" && frame["response"]["request_id"] == request_id
        };
        let frame = self.expect_where(&format!("the answer to {request_id}"), fits).await;
        let response = &frame["response"];
        if response["subtype"] == "success" { response["response"].clone() } else { response.clone() }
    }

    /// Calls a tool and waits for the JSON-RPC answer.
    ///
    /// # Panics
    /// When the host closes stdin first.
    pub async fn call(&mut self, server: &str, tool: &str, arguments: Value) -> Value {
        let request_id = self.call_tool(server, tool, arguments);
        self.answer_to(&request_id).await["mcp_response"].clone()
    }

    /// Waits until the host has closed stdin, then exits with code 0, as a CLI does. What comes until then is
    /// dropped.
    pub async fn run_out(mut self) {
        while self.recv().await.is_some() {}
        self.exit(Exit::Code(0));
    }

    /// Ends the process, once everything that was sent before is in the pipe. It does not wait for a host that reads
    /// no more: it ends as well when the host has closed its end, has sent SIGTERM, or has killed it.
    ///
    /// It returns at once; the process ends a little later.
    pub fn exit(self, exit: Exit) {
        let (done, flushed) = oneshot::channel();
        // When the writer has ended, `done` is dropped, which says the same.
        self.out.send(Out::Flushed(done)).ok();
        let leave = async move {
            // All of it, with the task that writes.
            let end = self;
            tokio::select! {
                _ = flushed => {}
                () = end.cli.terminated() => {}
                () = end.cli.killed() => {}
            }
            end.cli.exit(exit);
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "the host owns it: it ends when the host drops the process"
        )]
        drop(tokio::spawn(leave));
    }

    /// Closes stdout, and goes on running.
    pub fn close_stdout(&mut self) {
        // Closed already is closed.
        self.out.send(Out::Close).ok();
    }

    /// The process itself: its signals, and how it ends.
    pub fn process(&self) -> &MemoryCli {
        &self.cli
    }
}

pub(crate) fn mcp_body(server: &str, message: Value) -> Value {
    json!({ "subtype": "mcp_message", "server_name": server, "message": message })
}
