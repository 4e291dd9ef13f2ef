//! A node: a service of `tests/storm` as a process.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::Stdio;

use greenroom_fleet::NodeId;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::protocol::{self, Line, NodeOf, Request, Wish};
use crate::proxy::Proxy;

/// A line of a node, by its number; `None` when the node has ended.
pub(crate) type Heard = (u64, Option<Line>);

/// The disturbance of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    /// Stopped until then.
    Stopped(Instant),
    /// Cut off from the database until then.
    Cut(Instant),
    /// It was told to drain.
    Draining,
}

pub(crate) struct Node {
    pub(crate) number: u64,
    pub(crate) proxy: Proxy,
    /// Its id, once it has joined.
    pub(crate) id: Option<NodeId>,
    /// It has said that its fleet is open.
    pub(crate) ready: bool,
    pub(crate) trouble: Trouble,
    /// The moment since which nothing was wrong with it.
    pub(crate) well_since: Instant,
    child: Child,
    requests: mpsc::Sender<Vec<u8>>,
    _tasks: JoinSet<()>,
    last_id: u64,
}

impl Node {
    pub(crate) fn start(
        scratch: &Path,
        number: u64,
        seed: u64,
        of: &NodeOf,
        proxy: Proxy,
        heard: mpsc::Sender<Heard>,
        variables: &[(&str, &str)],
    ) -> Self {
        let slots = format!("slots-{number}");
        std::fs::create_dir(scratch.join(&slots)).unwrap();
        let stderr = OpenOptions::new().append(true).create(true).open(scratch.join("stderr")).unwrap();
        #[expect(clippy::disallowed_methods, reason = "the service under test is a process")]
        let mut child = Command::new(env!("CARGO_BIN_EXE_greenroom-fleet-storm"))
            .args(["service", &number.to_string()])
            .env(protocol::SCRATCH, scratch)
            .env(protocol::SEED, seed.to_string())
            .env(protocol::NODE, serde_json::to_string(of).unwrap())
            .env(protocol::SLOTS, slots)
            .envs(variables.iter().copied())
            .env("TMPDIR", scratch.join("tmp"))
            .current_dir(scratch)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // The last line of a killed service may be cut.
            while let Ok(Some(line)) = stdout.next_line().await {
                let Ok(line) = serde_json::from_str(&line) else { continue };
                if heard.send((number, Some(line))).await.is_err() {
                    return;
                }
            }
            // An error: the driver has ended.
            heard.send((number, None)).await.ok();
        });
        let mut stdin = child.stdin.take().unwrap();
        // A stopped node reads nothing, and the driver must not wait for it.
        let (requests, mut waiting) = mpsc::channel::<Vec<u8>>(4096);
        tasks.spawn(async move {
            while let Some(line) = waiting.recv().await {
                if stdin.write_all(&line).await.is_err() {
                    return;
                }
            }
        });
        Self {
            number,
            proxy,
            id: None,
            ready: false,
            trouble: Trouble::None,
            well_since: Instant::now(),
            child,
            requests,
            _tasks: tasks,
            last_id: number << 32,
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().expect("it was not awaited").cast_signed()).unwrap()
    }

    /// Sends a request. Returns its id.
    pub(crate) fn ask(&mut self, wish: Wish) -> u64 {
        self.last_id += 1;
        let mut line = serde_json::to_vec(&Request { id: self.last_id, wish }).unwrap();
        line.push(b'\n');
        // An error: it has ended, or reads nothing, and its end gives the request back.
        self.requests.try_send(line).ok();
        self.last_id
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // An error: it has ended.
        kill_process(self.pid(), signal).ok();
    }

    /// Waits until the process is gone.
    pub(crate) async fn gone(&mut self) {
        self.child.wait().await.unwrap();
    }
}
