//! A CLI of the storm. It takes a slot and its name before anything else, notes each prompt when it begins, and is
//! slow to start and to end, each in its own way.
//!
//! The slot and the name are locked files. The system releases a lock at the death of the last process that holds it,
//! before the parent can notice the death. So the locks count the CLIs as exactly as the system does, children
//! included.

use std::collections::VecDeque;
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use greenroom_fleet::Name;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::protocol::{Dice, Entry, LIFE, LINGER, LIVE, NAME, PACE, SEED, SLOTS, note, started};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How a CLI behaves. Times are in milliseconds.
struct Character {
    /// Before it answers `initialize`.
    start: u64,
    /// After SIGTERM. `None`: it ends at once, as the system does it.
    after_term: Option<u64>,
    /// After the end of its input.
    after_input: u64,
    /// A process that outlives the CLI until somebody kills it.
    child: Option<Child>,
}

#[derive(Clone, Copy, PartialEq)]
enum Child {
    InItsGroup,
    /// In a group of its own, as the commands of the CLI's Bash tool.
    Away,
}

impl Character {
    fn of(dice: &mut Dice) -> Self {
        if let Some(linger) = std::env::var(LINGER).ok().and_then(|linger| linger.parse().ok()) {
            return Self { start: 0, after_term: Some(linger), after_input: linger, child: None };
        }
        Self {
            start: if dice.percent(60) { dice.below(20) } else { dice.below(500) },
            after_term: match dice.below(10) {
                0..5 => None,
                5..8 => Some(dice.below(1200)),
                // Until the guardian, or the next service, kills it.
                _ => Some(60_000),
            },
            after_input: match dice.below(10) {
                0..7 => 0,
                7..9 => dice.below(400),
                _ => 60_000,
            },
            child: match dice.below(100) {
                0..8 => Some(Child::InItsGroup),
                8..12 => Some(Child::Away),
                _ => None,
            },
        }
    }
}

/// Waits, whatever wakes the thread before. The pace of a CLI is an input of the test.
fn pause(milliseconds: u64) {
    let end = Instant::now() + Duration::from_millis(milliseconds);
    while let Some(rest) = end.checked_duration_since(Instant::now()) {
        thread::park_timeout(rest);
    }
}

/// A process that a CLI has started: it stays until it is killed, and for ten minutes if nobody does that.
pub(crate) fn stay() -> Result<()> {
    pause(600_000);
    Ok(())
}

pub(crate) fn run(scratch: &Path) -> Result<()> {
    let (pid, name) = (process::id(), std::env::var(NAME)?.parse::<Name>()?);
    let life = std::env::var(LIFE)?.parse()?;
    let Some((slot, place)) = slot(scratch)? else {
        note(scratch, &Entry::OverTheCap { pid, name, life })?;
        return Err("more CLIs live than may".into());
    };
    let Some(own) = locked(&scratch.join("names").join(name.session()))? else {
        note(scratch, &Entry::TwoOfAName { pid, name, life })?;
        return Err("another CLI of the name lives".into());
    };
    let born = started(pid).ok_or("this process has no start")?;
    note(scratch, &Entry::Started { pid, started: born, name, life, slot })?;
    let mut dice = Dice::new(std::env::var(SEED)?.parse::<u64>()? ^ u64::from(pid) << 32 ^ born);
    let character = Character::of(&mut dice);
    if let Some(after_term) = character.after_term {
        outlive_sigterm(after_term)?;
    }
    if let Some(child) = character.child {
        start_child(scratch, child, &[&place, &own])?;
    }
    let after_input = character.after_input;
    Cli { scratch, dice, character, waiting: VecDeque::new(), session: session_id()? }.serve()?;
    pause(after_input);
    drop((place, own));
    Ok(())
}

/// Takes the first free slot. `None`: there is none, so more than [`LIVE`] CLIs live.
///
/// Other CLIs may take and free slots meanwhile. As long as no more than `LIVE` live, each one that looks has a free
/// slot ahead: it goes past a slot only while another CLI holds it, and a CLI that starts later begins at the first
/// slot.
fn slot(scratch: &Path) -> io::Result<Option<(usize, File)>> {
    let folder = scratch.join(std::env::var(SLOTS).as_deref().unwrap_or("slots"));
    for slot in 0..LIVE {
        if let Some(place) = locked(&folder.join(slot.to_string()))? {
            return Ok(Some((slot, place)));
        }
    }
    Ok(None)
}

/// Locks a file until the end of this process. `None`: another process holds it.
fn locked(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().append(true).create(true).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Goes on for some time after SIGTERM.
fn outlive_sigterm(milliseconds: u64) -> Result<()> {
    let (ready, waits) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            let terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
            let Ok(mut terminate) = terminate else { return };
            // An error: the CLI has given up waiting, and ends.
            ready.send(()).ok();
            terminate.recv().await;
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
            process::exit(143);
        });
    });
    Ok(waits.recv()?)
}

fn start_child(scratch: &Path, kind: Child, held: &[&File]) -> Result<()> {
    for file in held {
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty())?;
    }
    #[expect(clippy::disallowed_methods, reason = "this program stands for one that greenroom did not write")]
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("child").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if kind == Child::Away {
        command.process_group(0);
    }
    let child = command.spawn()?;
    if let Some(started) = started(child.id()) {
        note(scratch, &Entry::Child { pid: child.id(), started })?;
    }
    for file in held {
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok(())
}

/// The conversation that greenroom asks for, by `--flag value` or `--flag=value`.
fn session_id() -> Result<String> {
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        for flag in ["--session-id", "--resume"] {
            match argument.strip_prefix(flag) {
                Some("") => return Ok(arguments.next().ok_or("no conversation is named")?),
                Some(id) => return Ok(id.trim_start_matches('=').to_owned()),
                None => {}
            }
        }
    }
    Err("no conversation is named".into())
}

/// The protocol of the `claude` CLI, as far as a fleet needs it.
struct Cli<'a> {
    scratch: &'a Path,
    dice: Dice,
    character: Character,
    waiting: VecDeque<(Value, String)>,
    session: String,
}

impl Cli<'_> {
    /// Serves its host until the end of its input.
    fn serve(&mut self) -> Result<()> {
        let (lines, input) = mpsc::sync_channel(64);
        thread::spawn(move || {
            for line in io::stdin().lock().lines() {
                let Ok(line) = line else { return };
                if lines.send(line).is_err() {
                    return;
                }
            }
        });
        loop {
            match self.waiting.front().cloned() {
                Some((prompt, text)) => self.turn(&prompt, &text, &input)?,
                None => match input.recv() {
                    Ok(line) => self.receive(&line)?,
                    Err(_) => return Ok(()),
                },
            }
        }
    }

    fn receive(&mut self, line: &str) -> Result<()> {
        let mut frame: Value = serde_json::from_str(line)?;
        match frame["type"].as_str() {
            Some("user") => {
                let content = &frame["message"]["content"];
                let text = content.as_str().or(content[0]["text"].as_str()).unwrap_or_default().to_owned();
                self.waiting.push_back((frame["uuid"].take(), text));
                Ok(())
            }
            Some("control_request") => {
                let answer = match frame["request"]["subtype"].as_str() {
                    Some("initialize") => {
                        pause(self.character.start);
                        json!({"commands": [], "claude_code_version": "999.0.0-storm", "pid": process::id(),
                            "capabilities": capabilities(), "sdk_mcp_manifests_parked": {}})
                    }
                    Some("interrupt") => json!({"still_queued": []}),
                    _ => json!({}),
                };
                let response =
                    json!({"subtype": "success", "request_id": frame["request_id"], "response": answer});
                say(&json!({"type": "control_response", "response": response}))
            }
            _ => Ok(()),
        }
    }

    /// Answers the first prompt that waits, or is interrupted in it.
    fn turn(&mut self, prompt: &Value, text: &str, input: &mpsc::Receiver<String>) -> Result<()> {
        self.message(
            json!({"type": "system", "subtype": "init", "cwd": std::env::current_dir()?, "tools": [],
            "mcp_servers": [], "model": "storm", "permissionMode": "default", "slash_commands": [],
            "apiKeySource": "none", "claude_code_version": "999.0.0-storm", "output_style": "default",
            "skills": [], "plugins": [], "capabilities": capabilities()}),
        )?;
        // Noted before anything is done with the prompt, and after the sign that this CLI has begun with it: a session sends a
        // prompt again, once, to the next CLI if a CLI died without a sign.
        let (uuid, text) = (prompt.to_string(), text.to_owned());
        note(self.scratch, &Entry::Prompted { pid: process::id(), uuid, text: text.clone() })?;
        let pace = match std::env::var(PACE).ok().and_then(|pace| pace.parse().ok()) {
            Some(pace) => pace,
            None if self.dice.percent(80) => self.dice.below(60),
            None => self.dice.below(1500),
        };
        let mut interrupted = false;
        // An error: the time has passed, or the input has ended.
        if let Ok(line) = input.recv_timeout(Duration::from_millis(pace)) {
            interrupted = line.contains("\"interrupt\"");
            self.receive(&line)?;
        }
        remember(&text)?;
        let message = json!({"id": Uuid::new_v4().to_string(), "type": "message", "role": "assistant",
            "model": "storm", "content": [{"type": "text", "text": text}], "stop_reason": null, "usage": usage()});
        self.message(json!({"type": "assistant", "message": message, "parent_tool_use_id": null,
            "user_message_uuid": prompt}))?;
        let mut result = json!({"type": "result", "subtype": "success", "is_error": false, "duration_ms": pace,
            "duration_api_ms": 0, "num_turns": 1, "stop_reason": "end_turn", "terminal_reason": "completed",
            "usage": usage(), "modelUsage": {}, "total_cost_usd": 0.25, "permission_denials": [],
            "result": text, "user_message_uuid": prompt});
        if interrupted {
            result["subtype"] = json!("error_during_execution");
            result["is_error"] = json!(true);
            result["terminal_reason"] = json!("aborted_tools");
        }
        self.waiting.pop_front();
        self.message(result)
    }

    fn message(&self, mut frame: Value) -> Result<()> {
        frame["uuid"] = json!(Uuid::new_v4().to_string());
        frame["session_id"] = json!(self.session);
        say(&frame)
    }
}

fn say(frame: &Value) -> Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, frame)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

fn capabilities() -> Value {
    json!(["sdk_mcp_manifests", "interrupt_receipt_v1"])
}

fn usage() -> Value {
    json!({"input_tokens": 10, "output_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0})
}

/// Leaves files where a CLI does: in its configuration folder and in its working directory.
fn remember(text: &str) -> io::Result<()> {
    let config = std::env::var_os("CLAUDE_CONFIG_DIR").ok_or(io::ErrorKind::NotFound)?;
    let folder = Path::new(&config).join("projects");
    fs::create_dir_all(&folder)?;
    OpenOptions::new().append(true).create(true).open(folder.join("memory"))?.write_all(text.as_bytes())?;
    fs::write("notes", text)
}
