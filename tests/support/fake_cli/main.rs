//! A stand-in for the `claude` CLI: a real process that speaks its protocol on stdin and stdout, as well or
//! as badly as a test asks for.
//!
//! The stand-in answers `initialize`, and each prompt with `system/init`, an assistant text and a `result`. It answers
//! every other control request with success, and exits with 0 at the end of stdin. A line that is not JSON
//! makes it exit with 1, as the real CLI does. It never reads while it writes.
//!
//! The arguments are the CLI's own flags, so the behaviour comes from the environment: `FAKE_CLI` is a list
//! of `key` or `key=value`, separated by `;`. An unknown key is an error (exit code 2). Behaviours combine.
//!
//! Tool calls, made on each prompt:
//! - `calls=N`: N calls. Each must be answered once, with its own JSON-RPC id and with its argument `text` as
//!   the text of the result. The `result` frame then holds, as JSON text, `{"calls", "answered",
//!   "duplicates", "unknown", "errors", "micros"}`, and `first_error` if there was one; `is_error` says
//!   whether anything was wrong. It is written once a `ping` sent after the last answer was answered, and
//!   `duplicates` and `unknown` count over the whole life of the process, so that late ones show as well.
//! - `window=W`: the most calls in flight (default 1). `payload=BYTES`: the least length of `text`.
//! - `server=NAME` (default `bench`), `tool=NAME` (default `echo`): whom to call.
//! - `duplicate-id`: the first call is sent twice, in two equal lines (`calls` is then at least 1).
//! - `cancel`: calls the tool `hang`, sends `notifications/cancelled` once a later `ping` was answered, and
//!   adds the answer that came for the call to the JSON as `answer`.
//! - `unknown-frames=N`: N frames of an unknown type and N control requests of an unknown subtype come before
//!   all that; the JSON says as `refused` how many of the requests got an error.
//!
//! Start:
//! - `hang-initialize`: never answers `initialize`. `refuse-initialize=TEXT`: answers it with this error.
//! - `exit-at-once=CODE`: exits before it reads anything.
//! - `stderr=TEXT`: writes this line to stderr at start; may be repeated.
//! - `flood-stderr=BYTES`: writes that much to stderr before it reads anything.
//! - `garbage`: writes lines that are not JSON, slowly, for ever, and reads nothing.
//! - `garbage-then-ok`: writes several kinds of such lines once, then behaves.
//! - `print-args=PATH`: appends its arguments, without the program's name, to the file as one line of JSON.
//!
//! End:
//! - `crash-on-prompt=K`: kills itself on the K-th prompt: after `system/init` or, with calls, when the first window
//!   of calls is in flight and a `ping` sent behind it was answered. `crash-signal=N` names the signal (default 9).
//!   With `crash-code=N` and without calls, it exits with this code instead.
//! - `close-stdout`: on a prompt, after `system/init`, closes stdout and stays.
//! - `error-exit=CODE`: on a prompt, after `system/init`, writes an error result and exits with this code.
//! - `half-line`: on a prompt, after `system/init`, writes half a frame without a newline and exits with 0.
//! - `state=PATH`: counts prompts and incarnations in this file, across restarts. Without it, a process
//!   counts alone.
//! - `crash-times=N`: only the first N incarnations end by `exit-at-once`, `error-exit`, `half-line`, `close-stdout`
//!   or `crash-on-prompt` (then on their first prompt from the K-th on).
//! - `ignore-term`: ignores SIGTERM and the end of stdin.
//! - `stop-reading`: reads nothing after `initialize`.
//! - `fork`: starts a process that inherits stdin, stdout and stderr and ignores SIGTERM, and writes
//!   `grandchild PID` to stderr before anything else.
//! - `fork-away`: the same in a process group of its own, as the commands of the CLI's Bash tool.
//! - `move-away`: the same, and then moves to the process group of the process that it started.
//! - `fork-chains=N`: starts N chains of processes, each of which starts the next one after 2 ms, in a session of its own,
//!   and exits. The chains end when nobody reads the pipe of `hold` any more.
//! - `hold=PATH`: opens this named pipe, says `held` in it, and keeps it open for as long as this process, or the
//!   ones that it started, live: the reader sees the end when all are gone.
//!
//! Instead of all that:
//! - `mcp-server`: is no CLI but an MCP server on stdio, with a tool `shout`.
//!
//! A behaviour that lasts for ever ends after ten minutes, so that a failed test leaves nothing behind for
//! long.

mod behaviour;
mod cli;
mod mcp;
mod process;
mod turn;
mod wire;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use behaviour::{Behaviour, Count};

fn main() -> ExitCode {
    // For the tests of guardians: their hosts are tests, and have no `main` of their own.
    greenroom::guardian::init();
    let behaviour = match Behaviour::from_env() {
        Ok(behaviour) => behaviour,
        Err(error) => {
            process::say(&format!("FAKE_CLI: {error}"));
            return ExitCode::from(2);
        }
    };
    match run(behaviour) {
        Ok(code) => code,
        Err(error) => {
            process::say(&format!("fake cli: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(behaviour: Behaviour) -> io::Result<ExitCode> {
    let held = behaviour.hold.as_deref().map(process::hold).transpose()?;
    if behaviour.fork {
        process::fork(process::Group::Same)?;
    }
    if behaviour.fork_away {
        process::fork(process::Group::New)?;
    }
    if behaviour.move_away {
        process::join_group_of(process::fork(process::Group::New)?)?;
    }
    if let Some(pipe) = held {
        process::fork_chains(behaviour.fork_chains, pipe)?;
    }
    if behaviour.ignore_term || behaviour.sleep {
        process::ignore_sigterm(true);
    }
    if behaviour.sleep {
        process::linger();
    }
    if behaviour.mcp_server {
        mcp::serve()?;
        return Ok(ExitCode::SUCCESS);
    }
    for line in &behaviour.stderr {
        process::say(line);
    }
    if let Some(path) = &behaviour.print_args {
        let arguments = serde_json::Value::from_iter(std::env::args().skip(1));
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)?
            .write_all(format!("{arguments}\n").as_bytes())?;
    }
    flood(behaviour.flood_stderr)?;
    let count = Count::load(&behaviour)?;
    if let Some(code) = behaviour.exit_at_once
        && count.may_crash(&behaviour)
    {
        return Ok(ExitCode::from(code));
    }
    if behaviour.garbage {
        for _ in 0..30_000 {
            io::stdout().write_all(b"this line is not for you\n")?;
            std::thread::park_timeout(Duration::from_millis(20));
        }
        return Ok(ExitCode::SUCCESS);
    }
    if behaviour.garbage_then_ok {
        io::stdout()
            .write_all(b"[SandboxDebug] started\n\n{\"type\": \"broken\n\xff\xfe\nnull\n42\n[1,2]\n{}\n")?;
    }
    let ignores_eof = behaviour.ignore_term;
    cli::Cli::new(behaviour, count).run()?;
    if ignores_eof {
        process::linger();
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes that many bytes to stderr, in lines of 80.
fn flood(bytes: usize) -> io::Result<()> {
    let line = [[b'x'; 79].as_slice(), b"\n"].concat();
    io::stderr().write_all(&line.repeat(bytes / 80 + 1)[..bytes])
}
