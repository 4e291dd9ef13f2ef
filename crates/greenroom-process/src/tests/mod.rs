//! Real processes in real time. Tests wait for events only: a line, an exit, or the end of a pipe, which comes when all
//! processes that hold the pipe have ended.

// Guards: no-orphans
// Guards: the host is stopped, or hangs, past the deadline of a session's watchdog
// Guards: no control group can be made
// Guards: the host is killed and started again at once

#![allow(clippy::disallowed_methods, reason = "helpers and hosts are started without the code under test")]

mod ends;
#[cfg(target_os = "linux")]
mod identity;
#[cfg(target_os = "linux")]
mod left;
mod parents;
mod starts;
mod streams;
#[cfg(target_os = "linux")]
mod threads;
#[cfg(target_os = "linux")]
mod users;

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command as StdCommand, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

use super::*;
use crate::contain::containment;
use crate::start::spawn::Started;
use crate::wait::{SOON, within};

#[track_caller]
pub(super) fn in_time<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    within(SOON, work)
}

/// `/bin/sh` with a script.
fn sh(script: &str) -> Command {
    program("/bin/sh", ["-c", script])
}

fn program<const N: usize>(program: impl AsRef<Path>, args: [&str; N]) -> Command {
    Command { args: args.map(Into::into).into(), ..Command::new(program.as_ref()) }
}

/// Starts a child without reading its stderr.
async fn started(command: Command) -> Started {
    in_time(crate::start::spawn::start(|| Ok::<_, Error>(command))).await.unwrap()
}

async fn start(launch: Command) -> Result<Child> {
    crate::spawn(|| Ok(launch)).await
}

async fn open(launch: Command) -> Child {
    in_time(start(launch)).await.unwrap()
}

async fn refused(launch: Command) -> Error {
    in_time(start(launch)).await.unwrap_err()
}

async fn wait(connection: &mut Child) -> Exit {
    in_time(connection.process.wait()).await
}

/// Reports that a test is skipped because this machine has no control groups; checks that the mark is used instead.
#[cfg(target_os = "linux")]
pub(super) fn say_no_cgroups() {
    use std::io::Write;
    let (thread, mut stderr) = (std::thread::current(), std::io::stderr());
    let test = thread.name().unwrap_or_default();
    writeln!(stderr, "{test}: no control group can be made on this machine; the mark is used instead")
        .unwrap();
    let contained = containment::Contained::prepare(Containment::Auto, None).unwrap();
    assert!(contained.leaf.is_none() && contained.mark.is_some());
}

/// Reads stdout until no process holds it open.
async fn to_the_end(reader: impl tokio::io::AsyncRead + Unpin) -> String {
    let (mut reader, mut text) = (reader, String::new());
    in_time(reader.read_to_string(&mut text)).await.unwrap();
    text
}

async fn expect_line(reader: &mut (impl tokio::io::AsyncBufRead + Unpin), expected: &str) {
    let mut line = String::new();
    in_time(reader.read_line(&mut line)).await.unwrap();
    assert_eq!(line, format!("{expected}\n"));
}

/// True while the process exists, also as a zombie.
fn exists(pid: u32) -> bool {
    test_kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap()).is_ok()
}

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn sink(&self) -> StderrSink {
        let seen = self.clone();
        Arc::new(move |line: &str| seen.0.lock().unwrap().push(line.to_owned()))
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// A named pipe, which tells when a process has ended that is not a child of this one.
struct Fifo(tempfile::TempDir);

impl Fifo {
    fn new() -> Self {
        let fifo = Self(tempfile::tempdir().unwrap());
        assert!(StdCommand::new("mkfifo").arg(fifo.path()).status().unwrap().success());
        fifo
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("fifo")
    }

    /// Prefixes the script: opens the pipe and writes `held` to it.
    fn held_by(&self, script: &str) -> String {
        format!("exec 3>'{}'; echo held >&3; {script}", self.path().display())
    }

    /// Waits until the script has opened the pipe.
    async fn opened(&self) -> Held {
        let path = self.path();
        let open = move || {
            let mut file = File::open(path).unwrap();
            let mut line = [0; 5];
            file.read_exact(&mut line).unwrap();
            assert_eq!(&line, b"held\n");
            Held(file)
        };
        blocking(open).await
    }
}

/// A named pipe that a process holds open.
struct Held(File);

impl Held {
    /// Waits until no process holds the pipe open.
    async fn closed(mut self) {
        let read = move || self.0.read_to_end(&mut Vec::new()).unwrap();
        assert_eq!(blocking(read).await, 0);
    }
}

/// Runs blocking work on a thread that, unlike a thread of a runtime, nobody joins if it takes too long.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (reply, done) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || drop(reply.send(work())));
    in_time(done).await.unwrap()
}
