//! The thread that starts a child and stays with it until it has ended.
//!
//! Why a thread of its own, and not a task:
//!
//! - The parent-death signal comes when the *thread* that forked ends, even if its process lives on. Worker
//!   and blocking threads of a runtime end with the runtime, or when idle: the CLI would be killed for no
//!   reason. The keeper ends after the child.
//! - Looking for the executable and forking block.
//! - The child must not be reaped before its group is killed (see `group.rs`), and must be reaped even when
//!   no runtime is left to do it.

use std::process::{ChildStderr, ChildStdin, ChildStdout};
use std::sync::Arc;
use std::thread;

use tokio::sync::{oneshot, watch};

use super::group::{Group, GroupGuard};
use super::spawn::{Spawned, spawn};
use crate::error::{Error, ErrorKind, Result};
use crate::transport::{Exit, Launch};

/// A child that runs. Dropping it kills the child's group.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
    pub(super) group: GroupGuard,
    /// Set once the child has exited.
    pub(super) exit: watch::Receiver<Option<Exit>>,
}

/// Starts a child on a new thread. Dropping the future ends the child if there is one by then.
pub(super) async fn start(launch: Launch) -> Result<Started> {
    let (reply, started) = oneshot::channel();
    thread::Builder::new().name("greenroom-cli".into()).spawn(move || keep(launch, reply)).map_err(
        |error| {
            let message = format!("no thread for the CLI: {error}");
            Error::new(ErrorKind::Spawn, message).with_source(error)
        },
    )?;
    started.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Spawn, "the thread of the CLI ended early")))
}

fn keep(launch: Launch, reply: oneshot::Sender<Result<Started>>) {
    if reply.is_closed() {
        return;
    }
    let Spawned { pid, stdin, stdout, stderr } = match spawn(&launch) {
        Ok(spawned) => spawned,
        Err(error) => return drop(reply.send(Err(error))),
    };
    drop(launch);
    let group = Group::new(pid);
    let (exits, exit) = watch::channel(None);
    let started = Started { stdin, stdout, stderr, group: GroupGuard::new(Arc::clone(&group)), exit };
    // When nobody wants it any more it comes back, is dropped, and that kills the child.
    drop(reply.send(Ok(started)));
    exits.send_replace(Some(group.wait_for_leader()));
}
