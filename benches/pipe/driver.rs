//! The CLI of the benchmarks: one thread that writes calls and takes answers, as cheaply as possible, so that the
//! figures are the host's. It copies a prepared line for each call and fills in the numbers, looks for the numbers of
//! an answer where the answer before had them, and reads the clock once for each read.
//!
//! [`Driver`] is the machine without IO; [`run`] plays it over this process's stdin and stdout, [`play`] over a pair
//! in memory.
//!
//! ```text
//! initialize ──► answered ──► prompt ──► steps, one after another ──► result
//!
//! a step:   quick calls, as many in flight as the window, some with messages behind them, timed or not
//!           calls that fall asleep, all at once
//!           a call that wakes all that sleep; it ends when they are all answered
//! ```

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::Instant;

use memchr::memmem::{self, Finder};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::measure;

/// The work of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Length of the echoed text, in bytes.
    pub(crate) payload: usize,
    /// Number of calls in flight at once.
    pub(crate) window: usize,
    /// Number of measured calls; a tenth as many calls run before them, unmeasured.
    pub(crate) calls: usize,
    /// Number of servers that the calls go to, in turn.
    pub(crate) servers: usize,
    /// Number of partial messages that stream past meanwhile.
    pub(crate) messages: usize,
    /// Number of calls that are asleep meanwhile.
    pub(crate) asleep: usize,
    /// The driver opens the MCP session of each server first, as the CLI does. Hosts that answer nothing but calls do without.
    pub(crate) opens: bool,
    /// Host and driver share one processor, so that no figure includes the time to wake another processor.
    pub(crate) one_processor: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            payload: 64,
            window: 1,
            calls: 20_000,
            servers: 1,
            messages: 0,
            asleep: 0,
            opens: false,
            one_processor: false,
        }
    }
}

/// Number of rounds of a comparison. Each round runs calls with nothing beside them first, then the others.
const ROUNDS: usize = 10;

impl Plan {
    /// Number of all calls, measured or not.
    pub(crate) fn total(&self) -> usize {
        self.steps().iter().map(|step| step.calls()).sum()
    }

    /// Whether the run compares calls that have something beside them with calls that have nothing beside them.
    fn compares(&self) -> bool {
        self.asleep + self.messages > 0
    }

    fn steps(&self) -> VecDeque<Step> {
        let warm = Step::Quick { calls: (self.calls / 10).max(1), messages: 0, timed: Timed::No };
        let mut steps = VecDeque::from([warm]);
        if !self.compares() {
            steps.push_back(Step::Quick { calls: self.calls, messages: 0, timed: Timed::Yes });
            return steps;
        }
        let calls = self.calls / ROUNDS;
        for _ in 0..ROUNDS {
            steps.push_back(Step::Quick { calls, messages: 0, timed: Timed::Beside });
            if self.asleep > 0 {
                steps.push_back(Step::Sleep { calls: self.asleep });
                // A call behind the last message: its answer shows that the messages have arrived.
                steps.push_back(Step::Quick { calls: calls / 10, messages: 0, timed: Timed::No });
            }
            steps.push_back(Step::Quick { calls, messages: self.messages / ROUNDS, timed: Timed::Yes });
            if self.asleep > 0 {
                steps.push_back(Step::Wake);
            }
        }
        steps
    }
}

/// The figures of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Shown {
    pub(crate) calls: usize,
    /// Time from the first measured call to the last answer.
    pub(crate) seconds: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    /// The times of this run's calls that had nothing beside them; zero if the run compares nothing.
    pub(crate) beside_p50_us: f64,
    pub(crate) beside_p99_us: f64,
    /// Processor time of the driver for each call.
    pub(crate) driver_us: f64,
    /// Answers that were wrong, came twice, or belong to no call.
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
enum Timed {
    No,
    Yes,
    Beside,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The prompt has not come.
    Waiting,
    Quick {
        calls: usize,
        messages: usize,
        timed: Timed,
    },
    Sleep {
        calls: usize,
    },
    Wake,
    Done,
}

impl Step {
    fn calls(&self) -> usize {
        match *self {
            Self::Quick { calls, .. } | Self::Sleep { calls } => calls,
            Self::Wake => 1,
            Self::Waiting | Self::Done => 0,
        }
    }
}

/// Added to the number of each call, so that all numbers have equally many digits.
const FIRST: usize = 1_000_000;
const DIGITS: usize = 7;

fn digits(number: usize) -> [u8; DIGITS] {
    let mut digits = [b'0'; DIGITS];
    let mut left = FIRST + number;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    digits
}

fn number(digits: &[u8]) -> Option<usize> {
    let value =
        digits.iter().try_fold(0, |n, byte| byte.is_ascii_digit().then(|| n * 10 + usize::from(byte - b'0')));
    value?.checked_sub(FIRST)
}

/// The line of a call, without its number.
#[derive(Debug)]
pub(crate) struct Template {
    line: Vec<u8>,
    places: [usize; 5],
}

impl Template {
    /// For a call whose text begins with the call's number and has `payload` bytes.
    pub(crate) fn new(server: usize, tool: &str, payload: usize) -> Self {
        const PLACE: &str = "#######";
        let line = format!(
            concat!(
                r#"{{"type":"control_request","request_id":"call_{place}","request":{{"subtype":"mcp_message","#,
                r#""server_name":"bench{server}","message":{{"jsonrpc":"2.0","id":{place},"method":"tools/call","#,
                r#""params":{{"name":"{tool}","arguments":{{"text":"{place}{padding}"}},"_meta":"#,
                r#"{{"claudecode/toolUseId":"toolu_{place}","progressToken":{place}}}}}}}}}}}"#,
                "\n"
            ),
            place = PLACE,
            server = server,
            tool = tool,
            padding = padding(payload),
        );
        let mut found = memmem::find_iter(line.as_bytes(), PLACE.as_bytes());
        let places = std::array::from_fn(|_| found.next().unwrap_or_default());
        drop(found);
        Self { line: line.into_bytes(), places }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>, number: usize) {
        let digits = digits(number);
        let from = out.len();
        out.extend_from_slice(&self.line);
        for place in self.places {
            out[from + place..][..DIGITS].copy_from_slice(&digits);
        }
    }
}

fn padding(payload: usize) -> String {
    ".".repeat(payload.saturating_sub(DIGITS))
}

/// A piece of text in an answer, and its position in the answer before.
#[derive(Debug)]
struct Spot {
    finder: Finder<'static>,
    at: usize,
}

impl Spot {
    fn new(text: &'static str) -> Self {
        Self { finder: Finder::new(text), at: 0 }
    }

    /// Number of digits behind the text.
    fn digits<'a>(&mut self, line: &'a [u8]) -> Option<&'a [u8]> {
        let needle = self.finder.needle();
        if line.get(self.at..).is_none_or(|rest| !rest.starts_with(needle)) {
            self.at = self.finder.find(line)?;
        }
        line[self.at + needle.len()..].get(..DIGITS)
    }
}

/// Calls are written into the buffer while it has less than this.
const OUT: usize = 1 << 16;
/// Stands in for the time of a call that sleeps.
const SLEEPS: u64 = 1 << 63;
/// Each answer whose number is a multiple of this number is parsed as JSON and compared whole.
const READ_WHOLE: usize = 1024;

#[derive(Debug)]
pub(crate) struct Driver {
    plan: Plan,
    steps: VecDeque<Step>,
    step: Step,
    /// Number of calls of this step that are not written yet; `messages` likewise.
    calls_left: usize,
    messages_left: usize,
    messages_per_call: usize,
    /// Calls that are written and not answered, without the sleeping calls.
    open: usize,
    asleep: usize,
    /// Input: lines that were looked at, `start`, lines that were not, `end`, room.
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// No line ends between `start` and here.
    scanned: usize,
    /// Output, and the number of its bytes that are written.
    out: Vec<u8>,
    written: usize,
    origin: Instant,
    /// Nanoseconds from `origin` to the last look at the clock.
    now: u64,
    /// When each call was written, by number; zero once it is answered.
    sent: Vec<u64>,
    begun: u64,
    /// Time from the first timed call to the last answer.
    nanos: u64,
    /// Round trips, in nanoseconds.
    times: Vec<u32>,
    beside: Vec<u32>,
    wrong: usize,
    /// A line for each server.
    echo: Vec<Template>,
    sleep: Template,
    wake: Template,
    padding: String,
    id: Spot,
    rpc: Spot,
    text: Spot,
    prompt_uuid: String,
    /// Number of answers that open the MCP sessions and have not come.
    opening: usize,
}

impl Driver {
    /// A driver that reads `chunk` bytes at once.
    pub(crate) fn new(plan: Plan, read: usize) -> Self {
        let total = plan.total();
        Self {
            steps: plan.steps(),
            step: Step::Waiting,
            calls_left: 0,
            messages_left: 0,
            messages_per_call: 0,
            open: 0,
            asleep: 0,
            input: vec![0; read],
            start: 0,
            end: 0,
            scanned: 0,
            out: Vec::new(),
            written: 0,
            origin: Instant::now(),
            now: 1,
            sent: Vec::with_capacity(total),
            begun: 0,
            nanos: 0,
            times: Vec::with_capacity(plan.calls),
            beside: Vec::with_capacity(if plan.compares() { plan.calls } else { 0 }),
            wrong: 0,
            echo: (0..plan.servers).map(|server| Template::new(server, "echo", plan.payload)).collect(),
            sleep: Template::new(0, "sleep", plan.payload),
            wake: Template::new(0, "wake", plan.payload),
            padding: padding(plan.payload),
            id: Spot::new("\"request_id\":\"call_"),
            rpc: Spot::new("\"id\":"),
            text: Spot::new("\"text\":\""),
            prompt_uuid: String::new(),
            opening: 0,
            plan,
        }
    }

    /// The output that waits to be written.
    fn output(&self) -> &[u8] {
        &self.out[self.written..]
    }

    fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
            self.tick();
            self.fill();
        }
    }

    fn tick(&mut self) {
        self.now = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(SLEEPS - 1);
    }

    /// Room for a read of at least this many bytes.
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.input.len() - self.end < bytes {
            // The line is longer than one read.
            self.input.resize(self.input.len() * 2 + bytes, 0);
        }
        &mut self.input[self.end..]
    }

    /// Looks at all complete lines, after a read of this many bytes.
    fn read(&mut self, bytes: usize) {
        self.end += bytes;
        self.tick();
        let input = std::mem::take(&mut self.input);
        for at in memchr::memchr_iter(b'\n', &input[self.scanned..self.end]) {
            let end = self.scanned + at;
            self.line(&input[self.start..end]);
            self.start = end + 1;
        }
        self.input = input;
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        self.scanned = self.end;
        self.fill();
    }

    fn line(&mut self, line: &[u8]) {
        if line.starts_with(b"{\"type\":\"control_response\"") {
            return self.answered(line);
        }
        match serde_json::from_slice::<serde_json::Value>(line).unwrap_or_default() {
            // In another spelling, as Python writes it: with a space behind each colon.
            frame if frame["type"] == "control_response" => self.answered(frame.to_string().as_bytes()),
            frame if frame["type"] == "control_request" => {
                self.out.extend_from_slice(initialized(&frame).as_bytes());
            }
            frame if frame["type"] == "user" => self.prompt(&frame),
            _ => {}
        }
    }

    fn answered(&mut self, line: &[u8]) {
        let digits = self.id.digits(line);
        let Some(number) = digits.and_then(number) else { return self.opened() };
        let sent = self.sent.get_mut(number).map(std::mem::take).unwrap_or_default();
        if sent == 0 {
            self.wrong += 1;
            return;
        }
        if sent & SLEEPS != 0 {
            self.asleep -= 1;
            return;
        }
        self.open -= 1;
        // The text begins with the number of its call, so its echo shows that no two calls were mixed up.
        let right = line.len() > self.plan.payload
            && self.text.digits(line) == digits
            && self.rpc.digits(line) == digits
            && (!number.is_multiple_of(READ_WHOLE) || self.is_echo(line, number));
        self.wrong += usize::from(!right);
        let took = u32::try_from(self.now - sent).unwrap_or(u32::MAX);
        match self.step {
            Step::Quick { timed: Timed::Yes, .. } => self.times.push(took),
            Step::Quick { timed: Timed::Beside, .. } => self.beside.push(took),
            _ => {}
        }
    }

    /// Whether this is the whole answer of that call.
    fn is_echo(&self, line: &[u8], number: usize) -> bool {
        let Ok(frame) = serde_json::from_slice::<serde_json::Value>(line) else { return false };
        let rpc = &frame["response"]["response"]["mcp_response"];
        let text = rpc["result"]["content"][0]["text"].as_str();
        let echoed = text.and_then(|text| text.strip_suffix(self.padding.as_str()));
        frame["response"]["subtype"] == "success"
            && rpc["id"] == FIRST + number
            && echoed.is_some_and(|echoed| echoed.as_bytes() == digits(number))
    }

    fn frame(&mut self, frame: &serde_json::Value) {
        // Writing to a `Vec` does not fail.
        writeln!(self.out, "{frame}").ok();
    }

    fn prompt(&mut self, frame: &serde_json::Value) {
        self.prompt_uuid = frame["uuid"].as_str().unwrap_or_default().to_owned();
        self.frame(&json!({ "type": "system", "subtype": "init", "session_id": uuid::Uuid::new_v4().to_string(), "uuid": "u",
            "cwd": "/", "tools": [], "mcp_servers": [], "model": "bench", "permissionMode": "default",
            "slash_commands": [], "apiKeySource": "none", "claude_code_version": "999.0.0-bench",
            "output_style": "default", "skills": [], "plugins": [], "capabilities": ["sdk_mcp_manifests"] }));
        let servers = if self.plan.opens { self.plan.servers } else { 0 };
        self.opening = 2 * servers;
        for server in 0..servers {
            let mut send = |id: &str, message: serde_json::Value| {
                self.frame(&json!({ "type": "control_request", "request_id": format!("{id}_{server}"), "request": {
                    "subtype": "mcp_message", "server_name": format!("bench{server}"), "message": message } }));
            };
            send(
                "open",
                json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
                "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "bench", "version": "1" } } }),
            );
            send("opened", json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        }
        if self.opening == 0 {
            self.next_step();
            self.fill();
        }
    }

    /// An answer that is not to a call. The calls begin when each server has answered both messages that open its session.
    fn opened(&mut self) {
        if self.opening > 0 {
            self.opening -= 1;
            if self.opening == 0 {
                self.next_step();
            }
        }
    }

    fn next_step(&mut self) {
        self.step = self.steps.pop_front().unwrap_or(Step::Done);
        self.calls_left = self.step.calls();
        self.begun = self.now;
        if let Step::Quick { calls, messages, .. } = self.step {
            self.messages_left = messages;
            self.messages_per_call = messages.div_ceil(calls.max(1));
        }
        if self.step == Step::Done {
            self.finish();
        }
    }

    /// Writes calls until the window or the buffer is full, and goes on to the next step when all are answered.
    fn fill(&mut self) {
        loop {
            let window = match self.step {
                Step::Waiting | Step::Done => return,
                Step::Quick { .. } => self.plan.window,
                Step::Sleep { .. } | Step::Wake => usize::MAX,
            };
            while self.calls_left > 0 && self.open < window {
                if self.out.len() - self.written >= OUT {
                    return;
                }
                self.call();
            }
            let all = self.calls_left == 0 && self.open == 0;
            if !all || (self.step == Step::Wake && self.asleep > 0) {
                return;
            }
            if matches!(self.step, Step::Quick { timed: Timed::Yes, .. }) {
                self.nanos += self.now - self.begun;
            }
            self.next_step();
        }
    }

    fn call(&mut self) {
        let number = self.sent.len();
        self.calls_left -= 1;
        match self.step {
            Step::Sleep { .. } => {
                self.sleep.write(&mut self.out, number);
                self.sent.push(self.now | SLEEPS);
                self.asleep += 1;
                return;
            }
            Step::Wake => self.wake.write(&mut self.out, number),
            _ => self.echo[number % self.plan.servers].write(&mut self.out, number),
        }
        self.sent.push(self.now);
        self.open += 1;
        let messages = self.messages_per_call.min(self.messages_left);
        self.messages_left -= messages;
        for _ in 0..messages {
            self.out.extend_from_slice(MESSAGE);
        }
    }

    fn finish(&mut self) {
        let nanos = |times: &mut Vec<u32>, part: f64| {
            times.sort_unstable();
            let index = (times.len() as f64 * part) as usize;
            times.get(index.min(times.len().saturating_sub(1))).map_or(0.0, |time| f64::from(*time) / 1e3)
        };
        let shown = Shown {
            calls: self.times.len(),
            seconds: self.nanos as f64 / 1e9,
            driver_us: measure::cpu_seconds() * 1e6 / self.sent.len() as f64,
            p50_us: nanos(&mut self.times, 0.5),
            p99_us: nanos(&mut self.times, 0.99),
            p999_us: nanos(&mut self.times, 0.999),
            beside_p50_us: nanos(&mut self.beside, 0.5),
            beside_p99_us: nanos(&mut self.beside, 0.99),
            wrong: self.wrong,
            missing: self.sent.iter().filter(|sent| **sent != 0).count(),
        };
        let text = serde_json::to_string(&shown).unwrap_or_default();
        let is_error = shown.wrong + shown.missing > 0;
        self.frame(&json!({ "type": "result", "subtype": "success", "is_error": is_error, "duration_ms": 0,
            "duration_api_ms": 0, "num_turns": 1, "result": text, "stop_reason": "end_turn", "session_id": "bench",
            "total_cost_usd": 0.0, "usage": {}, "modelUsage": {}, "permission_denials": [], "uuid": "r",
            "user_message_uuid": self.prompt_uuid }));
    }
}

/// The answer to a control request of the host, as a line with its end. The answer to `initialize` names all in-process
/// servers.
pub(crate) fn initialized(frame: &serde_json::Value) -> String {
    let mut response = json!({});
    if frame["request"]["subtype"] == "initialize" {
        let mut parked = json!({});
        for name in frame["request"]["sdkMcpServers"].as_array().into_iter().flatten() {
            parked[name.as_str().unwrap_or_default()] = json!("parked");
        }
        response = json!({ "commands": [], "claude_code_version": "999.0.0-bench", "pid": std::process::id(),
            "capabilities": ["sdk_mcp_manifests"], "sdk_mcp_manifests_parked": parked });
    }
    let answer = json!({ "type": "control_response", "response": { "subtype": "success",
        "request_id": frame["request_id"], "response": response } });
    format!("{answer}\n")
}

/// A piece of a message, as the model writes it.
const MESSAGE: &[u8] = b"{\"type\":\"stream_event\",\"event\":{\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
{\"type\":\"text_delta\",\"text\":\"a few words of the answer\"}},\"session_id\":\"bench\",\"parent_tool_use_id\":null,\
\"uuid\":\"6f1c2a34-5b6d-4e7f-8a90-b1c2d3e4f506\"}\n";

/// Plays over stdin and stdout until the end of stdin.
pub(crate) fn run(plan: Plan) -> io::Result<()> {
    let mut driver = Driver::new(plan, 1 << 18);
    let (stdin, stdout) = (io::stdin(), io::stdout());
    // Without output this thread waits in `read`, otherwise in `poll`.
    rustix::io::ioctl_fionbio(&stdin, false)?;
    rustix::io::ioctl_fionbio(&stdout, true)?;
    loop {
        while !driver.output().is_empty() {
            match rustix::io::write(&stdout, driver.output()) {
                Ok(bytes) => driver.wrote(bytes),
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        if !driver.output().is_empty() {
            let mut both = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&stdout, PollFlags::OUT)];
            poll(&mut both, None)?;
            if both[0].revents().is_empty() {
                continue;
            }
        }
        match rustix::io::read(&stdin, driver.room(1 << 12))? {
            0 => return Ok(()),
            bytes => driver.read(bytes),
        }
    }
}

/// Plays over a pair in memory until the end of what it reads.
pub(crate) async fn play(
    plan: Plan,
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut driver = Driver::new(plan, 1 << 14);
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
                driver.room(bytes)[..bytes].copy_from_slice(&chunk[..bytes]);
                driver.read(bytes);
            }
            None => {}
        }
    }
}
