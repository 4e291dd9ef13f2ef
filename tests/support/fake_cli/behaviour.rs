//! The behaviour that a test asks for, and the count of incarnations and prompts.

use std::path::PathBuf;
use std::str::FromStr;
use std::{env, fs, io};

use serde_json::{Value, json};

/// The behaviours named in `FAKE_CLI`; the head of `main.rs` says what each one does.
#[derive(Default)]
pub(crate) struct Behaviour {
    pub(crate) calls: u64,
    pub(crate) window: u64,
    pub(crate) payload: usize,
    pub(crate) server: String,
    pub(crate) tool: String,
    pub(crate) duplicate_id: bool,
    pub(crate) cancel: bool,
    pub(crate) unknown_frames: u64,
    pub(crate) hang_initialize: bool,
    pub(crate) refuse_initialize: Option<String>,
    pub(crate) exit_at_once: Option<u8>,
    pub(crate) stderr: Vec<String>,
    pub(crate) garbage: bool,
    pub(crate) garbage_then_ok: bool,
    pub(crate) flood_stderr: usize,
    pub(crate) print_args: Option<PathBuf>,
    pub(crate) crash_on_prompt: Option<u64>,
    pub(crate) crash_times: Option<u64>,
    pub(crate) crash_code: Option<u8>,
    pub(crate) crash_signal: i32,
    pub(crate) close_stdout: bool,
    pub(crate) error_exit: Option<u8>,
    pub(crate) half_line: bool,
    pub(crate) state: Option<PathBuf>,
    pub(crate) ignore_term: bool,
    pub(crate) stop_reading: bool,
    pub(crate) fork: bool,
    pub(crate) fork_away: bool,
    pub(crate) move_away: bool,
    pub(crate) fork_chains: u32,
    pub(crate) hold: Option<PathBuf>,
    pub(crate) mcp_server: bool,
    /// Set for the child of `fork`: ignore SIGTERM and wait.
    pub(crate) sleep: bool,
}

impl Behaviour {
    pub(crate) fn from_env() -> Result<Self, String> {
        let list = env::var("FAKE_CLI").unwrap_or_default();
        let mut this = Self {
            window: 1,
            server: "bench".into(),
            tool: "echo".into(),
            crash_signal: 9,
            ..Self::default()
        };
        for entry in list.split(';').filter(|entry| !entry.is_empty()) {
            let (key, value) = entry.split_once('=').unwrap_or((entry, ""));
            match key {
                "calls" => this.calls = number(entry, value)?,
                "window" => this.window = number::<u64>(entry, value)?.max(1),
                "payload" => this.payload = number(entry, value)?,
                "server" => this.server = value.to_owned(),
                "tool" => this.tool = value.to_owned(),
                "duplicate-id" => this.duplicate_id = true,
                "cancel" => this.cancel = true,
                "unknown-frames" => this.unknown_frames = number(entry, value)?,
                "hang-initialize" => this.hang_initialize = true,
                "refuse-initialize" => this.refuse_initialize = Some(value.to_owned()),
                "exit-at-once" => this.exit_at_once = Some(number(entry, value)?),
                "stderr" => this.stderr.push(value.to_owned()),
                "garbage" => this.garbage = true,
                "garbage-then-ok" => this.garbage_then_ok = true,
                "flood-stderr" => this.flood_stderr = number(entry, value)?,
                "print-args" => this.print_args = Some(value.into()),
                "crash-on-prompt" => this.crash_on_prompt = Some(number(entry, value)?),
                "crash-times" => this.crash_times = Some(number(entry, value)?),
                "crash-code" => this.crash_code = Some(number(entry, value)?),
                "crash-signal" => this.crash_signal = number(entry, value)?,
                "close-stdout" => this.close_stdout = true,
                "error-exit" => this.error_exit = Some(number(entry, value)?),
                "half-line" => this.half_line = true,
                "state" => this.state = Some(value.into()),
                "ignore-term" => this.ignore_term = true,
                "stop-reading" => this.stop_reading = true,
                "fork" => this.fork = true,
                "fork-away" => this.fork_away = true,
                "move-away" => this.move_away = true,
                "fork-chains" => this.fork_chains = number(entry, value)?,
                "hold" => this.hold = Some(value.into()),
                "mcp-server" => this.mcp_server = true,
                "sleep" => this.sleep = true,
                _ => return Err(format!("unknown behaviour `{entry}`")),
            }
        }
        if this.duplicate_id {
            this.calls = this.calls.max(1);
        }
        Ok(this)
    }
}

fn number<N: FromStr>(entry: &str, value: &str) -> Result<N, String> {
    value.parse().map_err(|_| format!("`{entry}` needs a number"))
}

/// Number of incarnations that have started and of prompts that they were given, this incarnation included.
pub(crate) struct Count {
    file: Option<PathBuf>,
    incarnations: u64,
    prompts: u64,
}

impl Count {
    pub(crate) fn load(behaviour: &Behaviour) -> io::Result<Self> {
        let file = behaviour.state.clone();
        let before: Value = match file.as_ref().map(fs::read) {
            Some(Ok(text)) => serde_json::from_slice(&text).unwrap_or_default(),
            _ => Value::Null,
        };
        let at = |key: &str| before[key].as_u64().unwrap_or(0);
        let this = Self { incarnations: at("incarnations") + 1, prompts: at("prompts"), file };
        this.save()?;
        Ok(this)
    }

    pub(crate) fn prompt(&mut self) -> io::Result<()> {
        self.prompts += 1;
        self.save()
    }

    fn save(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        fs::write(file, json!({"incarnations": self.incarnations, "prompts": self.prompts}).to_string())
    }

    /// Whether this incarnation is one of those that may end badly.
    pub(crate) fn may_crash(&self, behaviour: &Behaviour) -> bool {
        behaviour.crash_times.is_none_or(|times| self.incarnations <= times)
    }

    /// Whether the prompt counted last is one to crash on.
    pub(crate) fn crashes_now(&self, behaviour: &Behaviour) -> bool {
        let Some(prompt) = behaviour.crash_on_prompt else { return false };
        match behaviour.crash_times {
            None => self.prompts == prompt,
            Some(_) => self.prompts >= prompt && self.may_crash(behaviour),
        }
    }
}

/// The value of a flag, given as `--flag=value` or `--flag value`.
pub(crate) fn flag(name: &str) -> Option<String> {
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.strip_prefix(name) {
            Some("") => return arguments.next(),
            Some(rest) if rest.starts_with('=') => return Some(rest[1..].to_owned()),
            _ => {}
        }
    }
    None
}
