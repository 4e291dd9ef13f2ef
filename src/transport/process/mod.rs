//! The CLI as a child process: how it is started, watched and ended together with everything that it has started.
//!
//! From the bottom up; each file uses those above it:
//!
//! - `stdin.rs`: a stdin that closes when it is shut down
//! - `start/spawner.rs`: the one thread that starts all CLIs
//! - `exits.rs`: the one thread that waits for the ends of all children
//! - `numbers.rs`: the numbers of processes
//! - `environment.rs`: looks at the environment of all processes
//! - `contain/`: finds every descendant by a control group (`cgroup.rs`) and a variable that descendants inherit (`mark.rs`);
//!   `containment.rs` combines the two
//! - `contain/ending.rs`: stops and kills the processes that have a mark, or another variable
//! - `variable.rs`: finds and kills processes by a variable of their environment, for the application
//! - `contain/sweep.rs`: kills the descendants that have left the process group
//! - `guardian/`: one process for each host that outlives the host and ends what it leaves behind
//! - `identity.rs`: the identity of a CLI's process, for a host that comes after this one
//! - `group.rs`: the process group of one CLI; sends signals only while its id is not reused
//! - `stderr.rs`: stderr as lines
//! - `start/exec.rs`: executes a program without the shell that the C library would take for a file that is no program
//! - `start/spawn.rs`: from a launch to a running child, and the cause of a failed start

mod contain;
pub(crate) mod environment;
mod exits;
mod group;
pub mod guardian;
pub(crate) mod identity;
mod numbers;
mod start;
mod stderr;
mod stdin;
#[cfg(test)]
mod tests;
pub(crate) mod variable;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use self::group::GroupGuard;
use self::identity::ProcessIdentity;
use self::start::spawn::{Started, start};
use self::stderr::StderrTask;
use self::stdin::Stdin;
use super::{Connection, ContainedBy, Exit, Launch, Leftover, Leftovers, Process, Transport};
use crate::error::{Error, ErrorKind, Result};

#[cfg(not(unix))]
compile_error!("greenroom starts the CLI in a Unix process group: Windows is not supported yet");

/// Runs the CLI as a child process in a process group of its own. This is the transport of a session unless you give it
/// another. Unix only.
///
/// The executable is [`Launch::program`]. Without one, `claude` is looked for on `PATH` (the `PATH` in [`Launch::env`],
/// or else the host's) and then in the usual install folders. A `.js`, `.mjs`, `.cjs` or `.ts` file runs under `node`.
///
/// # When the CLI ends
///
/// - [`Process::kill`], and dropping the [`Process`], send SIGKILL to the CLI, to its process group, and to every other
///   descendant that [`Launch::containment`] finds. This works without a running runtime.
/// - When the host ends for whatever reason, even by SIGKILL, the system sends SIGTERM to the CLI on Linux and FreeBSD; on
///   other systems the guardian does. After [`Launch::exit_after_host`] the guardian sends SIGKILL to what is left.
///
/// A CLI that has exited stays a zombie until it is killed or dropped, so that the id of its process group is not
/// reused and no signal reaches a stranger.
///
/// # Descendants
///
/// The CLI starts each command of its Bash tool in a session of its own. So each incarnation gets a random mark in the
/// variable `GREENROOM_INCARNATION`, which descendants inherit, and a control group (cgroup v2) below the host's own,
/// if the host may make one. [`Containment`](crate::options::Containment) says what each of them finds and misses.
///
/// # The guardian
///
/// The guardian is one small process for each host, whatever the number of sessions: the host's own program if
/// [`guardian::init`](crate::guardian::init) was called, else a `/bin/sh` with a short script. It is started before the first CLI, in a process group of its own. It sleeps until the host has ended, waits for the CLIs
/// to exit, kills what is left, removes the host's control groups, and exits. A guardian that is killed is replaced at
/// once. Without `/bin/sh` a warning is logged once, and the system sends SIGKILL instead of SIGTERM to the CLI.
///
/// The guardian is a child of the host: a host that waits for *all* its children waits for ever. A fork of the host
/// that executes no other program, made after the first CLI, keeps the guardian waiting like the host itself.
///
/// # Requirements
///
/// A Tokio runtime with IO enabled, and two threads for the whole host. They start with the first CLI, sleep most of
/// the time, and never end; they belong to no runtime:
///
/// - `greenroom-cli` starts all CLIs, one after another. The parent-death signal of the system fires when the *thread* that
///   started a child ends, and threads of a runtime come and go.
/// - `greenroom-exits` waits for the ends of all CLIs. It needs pidfds (Linux 5.4); without them each running CLI has a
///   thread `greenroom-wait`, and the guardian has `greenroom-guard`.
///
/// A third thread, `greenroom-sweep`, runs only while descendants of a CLI that ended are being killed.
///
/// Before each start, a short-lived thread (`greenroom-look`) opens the files that the start needs, so a file system
/// that hangs delays only the starts that need it. If the start itself hangs, other starts wait behind it until its
/// future ([`open`](Transport::open)) is dropped; a session drops the future after
/// [`Timeouts::start`](crate::options::Timeouts::start).
#[derive(Clone, Debug, Default)]
pub struct ChildProcess {
    _room_to_grow: (),
}

impl ChildProcess {
    /// The transport. It has no settings of its own: all of them are in the [`Launch`].
    pub fn new() -> Self {
        Self::default()
    }
}

impl Transport for ChildProcess {
    /// Fails with [`ErrorKind::CliNotFound`] if there is no executable, and with [`ErrorKind::Spawn`] if it cannot be
    /// started.
    fn open(&self, launch: Launch) -> BoxFuture<'static, Result<Connection>> {
        Box::pin(async move {
            let (sink, line_bytes) = (launch.stderr.clone(), launch.stderr_line_bytes);
            let Started { stdin, stdout, stderr, group, program } = start(launch).await?;
            tracing::debug!(pid = group.pid(), "started the CLI");
            let stdin = ChildStdin::from_std(stdin).map_err(pipe_failed)?;
            let stdout = ChildStdout::from_std(stdout).map_err(pipe_failed)?;
            let stderr = ChildStderr::from_std(stderr).map_err(pipe_failed)?;
            let stderr = StderrTask::start(stderr, sink, line_bytes, Arc::clone(&group));
            Ok(Connection {
                reader: Box::new(stdout),
                writer: Box::new(Stdin::new(stdin)),
                process: Box::new(CliProcess { group, stderr, program }),
            })
        })
    }
}

fn pipe_failed(error: io::Error) -> Error {
    Error::new(ErrorKind::Spawn, format!("tokio cannot use the pipes of the CLI: {error}"))
        .with_help("start the session inside a tokio runtime with IO enabled (`enable_all`)")
        .with_source(error)
}

/// Fields are dropped in order: the group is killed first.
struct CliProcess {
    group: GroupGuard,
    stderr: StderrTask,
    program: PathBuf,
}

impl Process for CliProcess {
    fn pid(&self) -> Option<u32> {
        Some(self.group.pid())
    }

    /// Resolves once the process has ended and its stderr up to then has gone to the sink. Does not wait for the end of
    /// stderr, which descendants may hold open.
    fn wait(&mut self) -> BoxFuture<'_, Exit> {
        Box::pin(async {
            let exit = self.group.exited().await;
            self.stderr.drained().await;
            exit
        })
    }

    fn terminate(&mut self) {
        self.group.terminate();
    }

    fn kill(&mut self) {
        self.group.kill();
    }

    fn program(&self) -> Option<&Path> {
        Some(&self.program)
    }

    fn contained_by(&self) -> Option<ContainedBy> {
        Some(self.group.descendants().contained().by())
    }

    fn identity(&self) -> Option<ProcessIdentity> {
        Some(self.group.identity().clone())
    }

    fn cleared(&mut self) -> BoxFuture<'_, Vec<Leftover>> {
        Box::pin(self.group.descendants().swept())
    }

    fn left(&self) -> Leftovers {
        let group = Arc::clone(&self.group);
        Leftovers(Some(Arc::new(move || group.left())))
    }
}
