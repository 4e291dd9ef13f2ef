//! The real thing: the CLI as a child process.
//!
//! - `spawn.rs`: from a launch to a running child, and what a failure means
//! - `spawner.rs`: the one thread that starts them all, and why it is one
//! - `exits.rs`: who waits for their ends; `pidfd.rs`: one thread for all
//! - `group.rs`: signals to the process group, never to a group that is not ours any more
//! - `guardian.rs`: one process per host that outlives it, to kill the groups that it leaves
//! - `stdin.rs`: a stdin that closes when it is shut down
//! - `stderr.rs`: stderr as lines

mod exits;
mod group;
mod guardian;
#[cfg(target_os = "linux")]
mod pidfd;
mod spawn;
mod spawner;
mod stderr;
mod stdin;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use self::group::GroupGuard;
use self::spawn::{Started, start};
use self::stderr::StderrTask;
use self::stdin::Stdin;
use super::{Connection, Exit, Launch, Process, Transport};
use crate::error::{Error, ErrorKind, Result};

#[cfg(not(unix))]
compile_error!("greenroom starts the CLI in a Unix process group: Windows is not supported yet");

/// The CLI as a child process, in a process group of its own. Unix only.
///
/// The executable is [`Launch::program`]. Without one, `claude` is looked for on `PATH` (the one in
/// [`Launch::env`], or else the host's) and then where installers put it. A `.js`, `.mjs`, `.cjs` or `.ts`
/// file is started with `node`.
///
/// # What ends it
///
/// - [`Process::kill`], and dropping the [`Process`]: SIGKILL to the whole group, so to everything that the
///   CLI started, unless it left the group (`setsid`). This does not need the runtime to be alive.
/// - The end of the host, by whatever cause, SIGKILL among them: a guardian then kills what is left of the
///   group. On Linux and FreeBSD the system itself also kills the CLI, without the guardian.
///
/// A CLI that has exited stays a zombie until it is killed or dropped as well. Its number is also that of its
/// group, and a number that is not given back cannot be given to a stranger: no signal ever goes astray.
///
/// # The guardian
///
/// The guardian is one small process for each host, whatever the number of sessions: `/bin/sh` with a few
/// lines of its builtins, started along with the first CLI, in a process group of its own. It sleeps until
/// the host is gone, kills the groups that are left, and ends. One that is killed is replaced when the next
/// CLI starts. Without a `/bin/sh` there is none; a warning is logged, once.
///
/// It is a child of the host: a host that waits for *all* its children to end waits for ever. A fork of the
/// host that executes no other program, made after the first CLI, counts as the host as well.
///
/// # What it needs
///
/// A Tokio runtime with IO enabled, and two threads for the whole host, which begin with the first CLI, sleep
/// most of the time and stay. They belong to no runtime:
///
/// - `greenroom-cli` starts all CLIs, one after another. It has to stay: the system's promise to kill a child
///   when its parent dies is in truth about the *thread* that started the child, and threads of a runtime come
///   and go.
/// - `greenroom-exits` waits for the ends of all CLIs. It needs the pidfds of Linux 5.4; elsewhere, and where a
///   filter of system calls refuses them, a thread `greenroom-wait` for each running CLI does that.
///
/// What may hang is looked at before on a thread that ends with the look (`greenroom-look`): a file system that
/// is out of reach holds up the starts that need it. If one hangs later than that, others wait behind it for
/// as long as somebody waits for it, which is until the future of [`open`](Transport::open) is dropped. A
/// session drops it when its limit for the start has passed.
///
/// ```
/// use greenroom::transport::{ChildProcess, Transport};
///
/// let transport: Box<dyn Transport> = Box::new(ChildProcess::new());
/// # let _ = transport;
/// ```
#[derive(Clone, Debug, Default)]
pub struct ChildProcess {
    _room_to_grow: (),
}

impl ChildProcess {
    /// The transport. All that there is to choose is in the [`Launch`].
    pub fn new() -> Self {
        Self::default()
    }
}

impl Transport for ChildProcess {
    /// Fails with [`ErrorKind::CliNotFound`] when there is no executable, and with [`ErrorKind::Spawn`] when
    /// there is one and it cannot be started.
    fn open(&self, launch: Launch) -> BoxFuture<'static, Result<Connection>> {
        Box::pin(async move {
            let (sink, line_bytes) = (launch.stderr.clone(), launch.stderr_line_bytes);
            let Started { stdin, stdout, stderr, group } = start(launch).await?;
            tracing::debug!(pid = group.pid(), "started the CLI");
            let stdin = ChildStdin::from_std(stdin).map_err(pipe_failed)?;
            let stdout = ChildStdout::from_std(stdout).map_err(pipe_failed)?;
            let stderr = ChildStderr::from_std(stderr).map_err(pipe_failed)?;
            let stderr = StderrTask::start(stderr, sink, line_bytes, Arc::clone(group.group()));
            Ok(Connection {
                reader: Box::new(stdout),
                writer: Box::new(Stdin::new(stdin)),
                process: Box::new(Child { group, stderr }),
            })
        })
    }
}

fn pipe_failed(error: io::Error) -> Error {
    Error::new(ErrorKind::Spawn, format!("the pipes to the CLI cannot be used: {error}")).with_source(error)
}

/// One child. Dropped in the order of the fields: the group is killed first.
struct Child {
    group: GroupGuard,
    stderr: StderrTask,
}

impl Process for Child {
    fn pid(&self) -> Option<u32> {
        Some(self.group.pid())
    }

    /// Resolves once the process has ended, and once the stderr that it had written by then has gone to the
    /// sink. Stderr is not read to its end, for what the CLI started may hold it open.
    fn wait(&mut self) -> BoxFuture<'_, Exit> {
        Box::pin(async {
            let exit = self.group.group().exited().await;
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
}
