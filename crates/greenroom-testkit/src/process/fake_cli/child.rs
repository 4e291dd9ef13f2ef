//! The process of a fake CLI: plays the script on in-memory pipes. This module copies between them and the real pipes,
//! and misbehaves on the way.
//!
//! ```text
//!   stdin ──lines──► stops reading? ──► memory ──► Player
//!   stdout ◄── deeds after the line that they belong to ◄── memory ◄──┘
//! ```

use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::sync::Arc;

use greenroom::transport::{Connection, Exit, Launch, Transport};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, watch};

use super::behaviour::{At, Behaviour, Deed, Start};
use super::home::{BEGINS, HOME, Part, Visit};
use super::system;
use crate::ScriptedCli;
use crate::base::spawn;
use crate::cli::play::Player;
use crate::cli::seen::Seen;

/// Is the fake CLI, and never returns, in a process that was started to be it. Does nothing anywhere else.
///
/// This is what [`fake_cli!`](crate::fake_cli) calls; nobody else has to.
pub fn main_if_asked() {
    let Some(asked) = std::env::var_os(HOME) else { return };
    match be_the_cli(&asked) {
        Ok(exit) => system::end(exit),
        Err(error) => {
            system::say(&format!("the fake CLI: {error}"));
            system::end(Exit::Code(1));
        }
    }
}

fn be_the_cli(asked: &OsString) -> io::Result<Exit> {
    let (visit, part) = Visit::pay(Path::new(asked))?;
    // The test harness may have written half a line before.
    io::stdout().write_all(format!("\n{BEGINS}\n").as_bytes())?;
    io::stdout().flush()?;
    let behaviour = &part.behaviour;
    system::ignore_sigterm(behaviour.ignore_sigterm);
    if behaviour.fork {
        system::fork()?;
        system::ignore_sigterm(behaviour.ignore_sigterm);
    }
    for line in &behaviour.stderr {
        system::say(line);
    }
    system::flood_stderr(behaviour.flood_stderr)?;
    match behaviour.start {
        Some(Start::Exit(code)) => return Ok(Exit::Code(code)),
        Some(Start::Garbage) => system::garbage(),
        Some(Start::HangInitialize) | None => {}
    }
    let ignores_eof = behaviour.ignore_sigterm;
    // One thread, so that the order of the player's work and its output is always the same.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let exit = runtime.block_on(play(visit, part))?;
    if ignores_eof {
        system::linger();
    }
    Ok(exit)
}

async fn play(visit: Visit, part: Part) -> io::Result<Exit> {
    let Part { script, old, behaviour, args, epoch } = part;
    let (transport, mut listener) = ScriptedCli::by_hand();
    let mut launch = Launch::new(epoch);
    launch.args = args;
    launch.command.env = std::env::vars().collect();
    launch.command.inherit_env = false;
    launch.command.stderr = Arc::new(system::say);
    launch.command.stderr_line_bytes = usize::MAX;
    let Connection { reader, mut writer, process: mut player_process } =
        transport.open(launch).await.map_err(io::Error::other)?;
    let end = listener.accept().await;
    let seen = Seen::new(visit.position());
    let player = Player::new(end, Arc::new(script), seen.clone(), !old);
    let (_never, crashes) = watch::channel((0, Exit::Unknown));
    let _playing = spawn(player.run(crashes));

    let mut stdin = lines_of_stdin(&behaviour);
    let _reading = spawn(async move {
        while let Some(line) = stdin.recv().await {
            if writer.write_all(&line).await.is_err() {
                break;
            }
        }
        // A player that is gone needs no end of input.
        writer.shutdown().await.ok();
    });
    let exit_code = behaviour.exit_code;
    let mut stdout = Stdout { visit, behaviour, seen, prompts: 0, calls: 0 };
    let mut lines = BufReader::new(reader);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).await? > 0 {
        stdout.line(&line)?;
        line.clear();
    }
    Ok(match player_process.wait().await {
        Exit::Code(0) => Exit::Code(exit_code),
        exit => exit,
    })
}

/// The lines of stdin, with their ends, read by a thread that writes nothing.
fn lines_of_stdin(behaviour: &Behaviour) -> mpsc::UnboundedReceiver<Vec<u8>> {
    let (lines, taken) = mpsc::unbounded_channel();
    let hang = behaviour.start == Some(Start::HangInitialize);
    let stop = behaviour.stop_reading;
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        loop {
            let mut line = Vec::new();
            match stdin.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let is_initialize = (hang || stop) && is_initialize(&line);
            // A runtime that has ended has taken the process along, or is about to.
            if !(hang && is_initialize) && lines.send(line).is_err() {
                return;
            }
            if stop && is_initialize {
                system::linger();
            }
        }
    });
    taken
}

fn is_initialize(line: &[u8]) -> bool {
    serde_json::from_slice(line).is_ok_and(|frame: Value| frame["request"]["subtype"] == "initialize")
}

/// Stdout of the process, with its misbehaviour.
struct Stdout {
    visit: Visit,
    behaviour: Behaviour,
    seen: Seen,
    prompts: u64,
    calls: u64,
}

impl Stdout {
    /// Writes a line of the player.
    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        let frame: Value = serde_json::from_slice(line).unwrap_or_default();
        let moment = self.moment(&frame);
        // When a turn has only begun, what it plays is not played yet: the player is ahead of what is written here.
        if !matches!(moment, Some(At::Prompt(_))) && frame["type"] != "command_lifecycle" {
            self.visit.save(&self.seen.position())?;
        }
        self.write(line)?;
        if self.behaviour.ask_twice && frame["type"] == "control_request" {
            self.write(line)?;
        }
        if let Some(moment) = moment {
            for (at, deed) in self.behaviour.deeds.clone() {
                if at.is(moment) {
                    self.perform(&deed)?;
                }
            }
        }
        Ok(())
    }

    /// The moment that this frame shows.
    fn moment(&mut self, frame: &Value) -> Option<At> {
        if frame["type"] == "system" && frame["subtype"] == "init" {
            self.prompts += 1;
            return Some(At::Prompt(self.prompts));
        }
        if frame["type"] == "control_request" && frame["request"]["message"]["method"] == "tools/call" {
            self.calls += 1;
            return Some(At::Call(self.calls));
        }
        None
    }

    fn perform(&self, deed: &Deed) -> io::Result<()> {
        match deed {
            Deed::Bytes(bytes) => self.write(bytes),
            Deed::LongLine(bytes) => self.long_line(*bytes),
            Deed::Flood { line, times } => self.flood(line, *times),
            Deed::CloseStdout => {
                system::close_stdout();
                system::linger();
            }
            Deed::End(exit) => system::end(*exit),
        }
    }

    /// A message of so many bytes, without ever holding it.
    fn long_line(&self, bytes: usize) -> io::Result<()> {
        let (start, end) = (br#"{"type":"of_another_age","filler":""#.as_slice(), b"\"}".as_slice());
        let mut left = bytes.saturating_sub(start.len() + end.len());
        let filler = [b'x'; 64 << 10];
        self.write(start)?;
        while left > 0 {
            let now = left.min(filler.len());
            self.write(&filler[..now])?;
            left -= now;
        }
        self.write(end)?;
        self.write(b"\n")
    }

    fn flood(&self, line: &str, times: u64) -> io::Result<()> {
        let mut lines = String::new();
        for number in 0..times {
            lines.push_str(&line.replace("{n}", &number.to_string()));
            lines.push('\n');
            if lines.len() > 64 << 10 || number + 1 == times {
                self.write(lines.as_bytes())?;
                lines.clear();
            }
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        stdout.flush()
    }
}
