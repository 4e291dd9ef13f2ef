//! One life of the service: from its start to its end, mostly by SIGKILL.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::protocol::{self, Line, Request, Wish};
use crate::wait::in_time;

pub(crate) struct Life {
    child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    last_id: u64,
}

impl Life {
    /// Starts the service, with some variables more.
    pub(crate) fn begin(scratch: &Path, number: u64, seed: u64, env: &[(&str, String)]) -> Self {
        let stderr = OpenOptions::new().append(true).create(true).open(scratch.join("stderr")).unwrap();
        #[expect(clippy::disallowed_methods, reason = "the service under test is a process")]
        let mut child = Command::new(env!("CARGO_BIN_EXE_greenroom-fleet-storm"))
            .args(["service", &number.to_string()])
            .env(protocol::SCRATCH, scratch)
            .env(protocol::SEED, seed.to_string())
            .env("TMPDIR", scratch.join("tmp"))
            .envs(env.iter().cloned())
            .current_dir(scratch)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, stdin, stdout, last_id: number << 32 }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it was not awaited")
    }

    /// Sends a request. Returns its id.
    pub(crate) async fn ask(&mut self, wish: Wish) -> u64 {
        self.last_id += 1;
        let mut line = serde_json::to_vec(&Request { id: self.last_id, wish }).unwrap();
        line.push(b'\n');
        // The service reads its requests in a thread, but the pipe may be full for a moment.
        in_time("the reading of a request", self.stdin.write_all(&line)).await.unwrap();
        self.last_id
    }

    /// The next line; `None` when the service has ended. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Line> {
        let line = self.stdout.next_line().await.unwrap()?;
        // The last line of a killed service may be cut.
        serde_json::from_str(&line).ok()
    }

    pub(crate) fn kill(&mut self) {
        self.child.start_kill().unwrap();
    }

    /// Waits for the end, and tells whether the service has ended by itself and well.
    pub(crate) async fn end(mut self) -> bool {
        in_time("the end of the service", self.child.wait()).await.unwrap().success()
    }
}
