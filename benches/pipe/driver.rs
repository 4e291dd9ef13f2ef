//! The CLI of the benchmarks: one thread that does nothing but write calls and take answers, so that what is measured
//! is the host.
//!
//! [`Driver`] is the machine without IO; [`run`] plays it over this process's stdin and stdout, [`play`] over a pair
//! in memory.
//!
//! ```text
//! initialize ──► answered ──► prompt ──► [asleep: calls of `sleep`, then a call that shows that they are in]
//!     ──► calls, as many in flight as the window ──► [`wake`; all that slept are answered] ──► result
//! ```

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Instant;

use memchr::memmem;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// What is done in one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The length of the text that is echoed, in bytes.
    pub(crate) payload: usize,
    /// How many calls are in flight at once.
    pub(crate) window: usize,
    /// How many are measured; a tenth as many go before them.
    pub(crate) calls: usize,
    /// Over how many servers they go, in turn.
    pub(crate) servers: usize,
    /// How many partial messages stream past meanwhile.
    pub(crate) messages: usize,
    /// How many calls are asleep meanwhile.
    pub(crate) asleep: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self { payload: 64, window: 1, calls: 20_000, servers: 1, messages: 0, asleep: 0 }
    }
}

/// What a run has shown.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Shown {
    pub(crate) calls: usize,
    /// From the first measured call to the last answer.
    pub(crate) seconds: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    /// Answers that were wrong, came twice, or were for nothing.
    pub(crate) wrong: usize,
    /// Calls without an answer.
    pub(crate) missing: usize,
}

impl Shown {
    pub(crate) fn per_second(&self) -> f64 {
        self.calls as f64 / self.seconds
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Start,
    /// What is to sleep is on its way.
    Asleep,
    Warm,
    Measured,
    Waking,
    Done,
}

/// How many partial messages are written behind each call while some are left.
const MESSAGES_PER_CALL: usize = 20;

#[derive(Debug)]
pub(crate) struct Driver {
    plan: Plan,
    phase: Phase,
    /// What is read and not looked at yet.
    input: Vec<u8>,
    /// What is to be written, and how much of it is.
    out: Vec<u8>,
    written: usize,
    /// The moment at which each call was written, by number; `None` once it is answered.
    sent: Vec<Option<Instant>>,
    /// The first call of the running phase, and the first that is not in it.
    first: usize,
    end: usize,
    open: usize,
    /// Round trips of measured calls, in nanoseconds.
    times: Vec<u32>,
    begun: Instant,
    seconds: f64,
    messages_left: usize,
    wrong: usize,
    sleepers_open: usize,
    prompt_uuid: String,
    padding: String,
}

impl Driver {
    pub(crate) fn new(plan: Plan) -> Self {
        let padding = ".".repeat(plan.payload.saturating_sub(NUMBER_WIDTH));
        Self {
            phase: Phase::Start,
            input: Vec::with_capacity(1 << 18),
            out: Vec::with_capacity(1 << 18),
            written: 0,
            sent: Vec::new(),
            first: 0,
            end: 0,
            open: 0,
            times: Vec::with_capacity(plan.calls),
            begun: Instant::now(),
            seconds: 0.0,
            messages_left: plan.messages,
            wrong: 0,
            sleepers_open: 0,
            prompt_uuid: String::new(),
            padding,
            plan,
        }
    }

    /// What is to be written next.
    fn output(&self) -> &[u8] {
        &self.out[self.written..]
    }

    fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        }
    }

    /// Looks at all whole lines of the input.
    fn proceed(&mut self) {
        let input = std::mem::take(&mut self.input);
        let mut from = 0;
        for end in memchr::memchr_iter(b'\n', &input) {
            self.line(&input[from..end]);
            from = end + 1;
        }
        self.input = input;
        self.input.drain(..from);
        self.fill();
    }

    fn line(&mut self, line: &[u8]) {
        let head = &line[..line.len().min(64)];
        if memmem::find(head, b"\"control_response\"").is_some() {
            self.answered(line);
        } else if memmem::find(line, b"\"control_request\"").is_some() {
            self.asked(line);
        } else if memmem::find(line, b"\"type\":\"user\"").is_some() {
            self.prompt(line);
        }
    }

    fn answered(&mut self, line: &[u8]) {
        let number = memmem::find(line, b"\"request_id\":\"call_").map(|at| &line[at + 19..]);
        let Some(number) = number.map(digits) else { return };
        let Some(sent) = self.sent.get_mut(number).and_then(Option::take) else {
            self.wrong += 1;
            return;
        };
        // The text begins with the number of its call; so its echo shows that nothing was mixed up.
        let mut expected = String::with_capacity(24);
        write!(expected, "\"{number:0NUMBER_WIDTH$}").ok();
        let right = memmem::find(line, expected.as_bytes()).is_some() && line.len() > self.plan.payload;
        self.open -= 1;
        if number < self.sleepers_end() {
            self.sleepers_open -= 1;
            return;
        }
        self.wrong += usize::from(!right);
        if self.phase == Phase::Measured {
            let took = sent.elapsed().as_nanos();
            self.times.push(u32::try_from(took).unwrap_or(u32::MAX));
        }
    }

    /// The numbers below this one are those of the calls that sleep.
    fn sleepers_end(&self) -> usize {
        self.plan.asleep
    }

    fn asked(&mut self, line: &[u8]) {
        self.out.extend_from_slice(initialized(line).as_bytes());
    }

    fn frame(&mut self, frame: &serde_json::Value) {
        self.out.extend_from_slice(frame.to_string().as_bytes());
        self.out.push(b'\n');
    }

    fn prompt(&mut self, line: &[u8]) {
        let Ok(frame) = serde_json::from_slice::<serde_json::Value>(line) else { return };
        self.prompt_uuid = frame["uuid"].as_str().unwrap_or_default().to_owned();
        self.frame(&json!({ "type": "system", "subtype": "init", "session_id": "bench", "uuid": "u",
            "cwd": "/", "tools": [], "mcp_servers": [], "model": "bench", "permissionMode": "default",
            "slash_commands": [], "apiKeySource": "none", "claude_code_version": "0.0.0-bench",
            "output_style": "default", "skills": [], "plugins": [], "capabilities": ["sdk_mcp_manifests"] }));
        self.begin(Phase::Asleep, self.plan.asleep);
        self.fill();
    }

    fn begin(&mut self, phase: Phase, calls: usize) {
        self.phase = phase;
        self.first = self.sent.len();
        self.end = self.first + calls;
        self.begun = Instant::now();
    }

    /// Writes calls until the window is full, and goes on to the next phase when all are answered.
    fn fill(&mut self) {
        loop {
            let window = match self.phase {
                Phase::Start | Phase::Done => return,
                Phase::Asleep => usize::MAX,
                Phase::Warm | Phase::Measured | Phase::Waking => self.plan.window + self.sleepers_open,
            };
            while self.sent.len() < self.end && self.open < window {
                self.call();
            }
            if self.sent.len() < self.end || self.open > self.sleepers_open {
                return;
            }
            match self.phase {
                Phase::Start | Phase::Done => return,
                Phase::Asleep => self.begin(Phase::Warm, (self.plan.calls / 10).max(1)),
                Phase::Warm => self.begin(Phase::Measured, self.plan.calls),
                Phase::Measured => {
                    self.seconds = self.begun.elapsed().as_secs_f64();
                    self.begin(Phase::Waking, usize::from(self.plan.asleep > 0));
                }
                Phase::Waking if self.sleepers_open > 0 => return,
                Phase::Waking => self.finish(),
            }
        }
    }

    fn call(&mut self) {
        let number = self.sent.len();
        let tool = match self.phase {
            Phase::Asleep => "sleep",
            Phase::Waking => "wake",
            _ => "echo",
        };
        write_call(&mut self.out, number, number % self.plan.servers, tool, &self.padding);
        self.sent.push(Some(Instant::now()));
        self.open += 1;
        self.sleepers_open += usize::from(self.phase == Phase::Asleep);
        if self.messages_left > 0 && self.phase == Phase::Measured {
            let messages = MESSAGES_PER_CALL.min(self.messages_left);
            self.messages_left -= messages;
            for _ in 0..messages {
                self.out.extend_from_slice(MESSAGE);
            }
        }
    }

    fn finish(&mut self) {
        self.phase = Phase::Done;
        self.times.sort_unstable();
        let at = |part: f64| {
            let index = (self.times.len() as f64 * part) as usize;
            self.times
                .get(index.min(self.times.len().saturating_sub(1)))
                .map_or(f64::NAN, |time| f64::from(*time) / 1e3)
        };
        let shown = Shown {
            calls: self.times.len(),
            seconds: self.seconds,
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            wrong: self.wrong,
            missing: self.sent.iter().flatten().count(),
        };
        let text = serde_json::to_string(&shown).unwrap_or_default();
        let is_error = shown.wrong + shown.missing > 0;
        self.frame(&json!({ "type": "result", "subtype": "success", "is_error": is_error, "duration_ms": 0,
            "duration_api_ms": 0, "num_turns": 1, "result": text, "stop_reason": "end_turn", "session_id": "bench",
            "total_cost_usd": 0.0, "usage": {}, "modelUsage": {}, "permission_denials": [], "uuid": "r",
            "user_message_uuid": self.prompt_uuid }));
    }
}

/// The answer to a control request of the host, a line with its end: to `initialize`, one that knows of all in-process
/// servers.
pub(crate) fn initialized(line: &[u8]) -> String {
    let frame: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
    let mut response = json!({});
    if frame["request"]["subtype"] == "initialize" {
        let mut parked = json!({});
        for name in frame["request"]["sdkMcpServers"].as_array().into_iter().flatten() {
            parked[name.as_str().unwrap_or_default()] = json!("parked");
        }
        response = json!({ "commands": [], "claude_code_version": "0.0.0-bench", "pid": std::process::id(),
            "capabilities": ["sdk_mcp_manifests"], "sdk_mcp_manifests_parked": parked });
    }
    let answer = json!({ "type": "control_response", "response": { "subtype": "success",
        "request_id": frame["request_id"], "response": response } });
    format!("{answer}\n")
}

/// Writes a call whose text begins with its number.
pub(crate) fn write_call(out: &mut Vec<u8>, number: usize, server: usize, tool: &str, padding: &str) {
    let rpc = number + 2;
    let line = format_args!(
        concat!(
            r#"{{"type":"control_request","request_id":"call_{number}","request":{{"subtype":"mcp_message","#,
            r#""server_name":"bench{server}","message":{{"jsonrpc":"2.0","id":{rpc},"method":"tools/call","params":"#,
            r#"{{"name":"{tool}","arguments":{{"text":"{number:0width$}{padding}"}},"_meta":"#,
            r#"{{"claudecode/toolUseId":"toolu_{number}","progressToken":{rpc}}}}}}}}}}}"#,
            "\n"
        ),
        number = number,
        server = server,
        rpc = rpc,
        tool = tool,
        padding = padding,
        width = NUMBER_WIDTH,
    );
    // Writing to a `Vec` does not fail.
    out.write_fmt(line).ok();
}

/// How many digits the number of a call has in its text.
const NUMBER_WIDTH: usize = 12;

/// A piece of a message, as the model writes it.
const MESSAGE: &[u8] = b"{\"type\":\"stream_event\",\"event\":{\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
{\"type\":\"text_delta\",\"text\":\"a few words of the answer\"}},\"session_id\":\"bench\",\"parent_tool_use_id\":null,\
\"uuid\":\"6f1c2a34-5b6d-4e7f-8a90-b1c2d3e4f506\"}\n";

fn digits(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| byte.is_ascii_digit()).fold(0, |n, byte| n * 10 + usize::from(byte - b'0'))
}

/// Plays over stdin and stdout until the end of stdin.
pub(crate) fn run(plan: Plan) -> io::Result<()> {
    let mut driver = Driver::new(plan);
    let (stdin, stdout) = (io::stdin(), io::stdout());
    rustix::io::ioctl_fionbio(&stdin, true)?;
    rustix::io::ioctl_fionbio(&stdout, true)?;
    let mut chunk = vec![0; 1 << 18];
    loop {
        while !driver.output().is_empty() {
            match rustix::io::write(&stdout, driver.output()) {
                Ok(bytes) => driver.wrote(bytes),
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let mut both = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&stdout, PollFlags::OUT)];
        let waiting = if driver.output().is_empty() { &mut both[..1] } else { &mut both[..] };
        poll(waiting, None)?;
        match rustix::io::read(&stdin, &mut chunk) {
            Ok(0) => return Ok(()),
            Ok(bytes) => {
                driver.input.extend_from_slice(&chunk[..bytes]);
                driver.proceed();
            }
            Err(Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Plays over a pair in memory until the end of what it reads.
pub(crate) async fn play(
    plan: Plan,
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut driver = Driver::new(plan);
    let mut chunk = vec![0; 1 << 14];
    loop {
        let read = if driver.output().is_empty() {
            Some(reader.read(&mut chunk).await?)
        } else {
            tokio::select! {
                read = reader.read(&mut chunk) => Some(read?),
                written = writer.write(driver.output()) => {
                    driver.wrote(written?);
                    None
                }
            }
        };
        match read {
            Some(0) => return Ok(()),
            Some(bytes) => {
                driver.input.extend_from_slice(&chunk[..bytes]);
                driver.proceed();
            }
            None => {}
        }
    }
}
