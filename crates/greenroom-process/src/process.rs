//! A running child.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use crate::command::Command;
use crate::error::{Error, ErrorKind};
use crate::group::GroupGuard;
use crate::guardian::Watchdog;
use crate::identity::ProcessIdentity;
use crate::start::spawn::start;
use crate::stderr::StderrTask;
use crate::types::{ContainedBy, Exit, Leftover};

/// A child that was started.
#[derive(Debug)]
#[non_exhaustive]
pub struct Child {
    /// The child's stdin. Dropping it is the end of the child's input; shutting it down does nothing.
    pub stdin: ChildStdin,
    /// The child's stdout.
    pub stdout: ChildStdout,
    /// The child's process.
    pub process: Process,
}

/// Starts a child as the leader of a process group. `find` says what to start; it runs on a thread of its own, where it may look
/// for files as long as it has to. Dropping the future kills a child that has started.
///
/// # Errors
/// The errors of `find`. [`ErrorKind::NotFound`] if the program does not exist (a name is not searched on `PATH`).
/// [`ErrorKind::Spawn`] if the program cannot be started, or cannot be held by the chosen
/// [`Containment`](crate::Containment) or watchdog.
pub async fn spawn<E>(find: impl FnOnce() -> Result<Command, E> + Send + 'static) -> Result<Child, E>
where
    E: From<Error> + Send + 'static,
{
    let ((stdin, stdout, stderr), group, command) = start(find).await?;
    tracing::debug!(pid = group.pid(), "started a child");
    let stdin = ChildStdin::from_std(stdin).map_err(pipe_failed)?;
    let stdout = ChildStdout::from_std(stdout).map_err(pipe_failed)?;
    let stderr = ChildStderr::from_std(stderr).map_err(pipe_failed)?;
    let stderr = StderrTask::start(stderr, command.stderr, command.stderr_line_bytes, Arc::clone(&group));
    let process = Process { group, stderr, program: command.program, _watchdog: command.watchdog };
    Ok(Child { stdin, stdout, process })
}

fn pipe_failed(error: io::Error) -> Error {
    Error::new(ErrorKind::Spawn, format!("tokio cannot use the pipes of a child: {error}"))
        .with_help("start it inside a tokio runtime with IO enabled (`enable_all`)")
        .with_source(error)
}

/// The process of a child. Dropping it kills the child and everything that the child has started.
///
/// # When the child ends
///
/// - [`kill`](Process::kill), and dropping the `Process`, send SIGKILL to the child, to its process group, and to every other
///   descendant that [`Command::containment`] finds. This works without a running runtime.
/// - When the host ends for whatever reason, even by SIGKILL, the system sends SIGTERM to the child on Linux and FreeBSD; on
///   other systems the guardian does. After [`Command::exit_after_host`] the guardian sends SIGKILL to what is left.
///
/// A child that has exited stays a zombie until it is killed or dropped, so that the id of its process group is not
/// reused and no signal reaches a stranger.
///
/// # Descendants
///
/// A descendant may leave the process group, for instance by a session of its own. So each child gets a random mark in the
/// variable `GREENROOM_INCARNATION`, which descendants inherit, and a control group (cgroup v2) below the host's own,
/// if the host may make one. [`Containment`](crate::Containment) says what each of them finds and misses.
///
/// # The guardian
///
/// The guardian is one small process for each host, whatever the number of children: the host's own program if
/// [`guardian::init`](crate::guardian::init) was called, else a `/bin/sh` with a short script. It is started before the first
/// child, in a process group of its own. It sleeps until the host has ended, waits for the children
/// to exit, kills what is left, removes the host's control groups, and exits. A guardian that is killed is replaced at
/// once. Without `/bin/sh` a warning is logged once, and the system sends SIGKILL instead of SIGTERM to the children.
///
/// The guardian is a child of the host: a host that waits for *all* its children waits for ever. A fork of the host
/// that executes no other program, made after the first child, keeps the guardian waiting like the host itself.
#[derive(Debug)]
pub struct Process {
    // Fields are dropped in order: the group is killed first.
    group: GroupGuard,
    stderr: StderrTask,
    program: PathBuf,
    /// Keeps the deadline.
    _watchdog: Option<Watchdog>,
}

impl Process {
    /// The process id.
    pub fn pid(&self) -> u32 {
        self.group.pid()
    }

    /// The file of the program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Waits until the child has ended and its stderr up to then has gone to the sink. Does not wait for its descendants, nor
    /// for the end of stderr, which they may hold open. May be called again, also after its future was dropped.
    pub async fn wait(&mut self) -> Exit {
        let exit = self.group.exited().await;
        self.stderr.drained().await;
        exit
    }

    /// Asks the whole process group to end (SIGTERM).
    pub fn terminate(&mut self) {
        self.group.terminate();
    }

    /// Kills the child and everything that it has started (SIGKILL). Call it after the child has ended, too: its descendants may
    /// live on.
    pub fn kill(&mut self) {
        self.group.kill();
    }

    /// The way in which descendants are found.
    pub fn contained_by(&self) -> ContainedBy {
        self.group.descendants.contained.by
    }

    /// The identity of the process, by which a later host recognises it on this machine.
    pub fn identity(&self) -> &ProcessIdentity {
        &self.group.identity
    }

    /// After [`kill`](Process::kill): waits until no descendant is left, and returns those that were found outside the
    /// process group. Also returns if descendants are left that cannot be ended. May be called again, also after its future
    /// was dropped.
    pub async fn cleared(&mut self) -> Vec<Leftover> {
        self.group.descendants.swept().await
    }

    /// After [`kill`](Process::kill): a function that returns the killed processes that still run, the child among them, or
    /// `None` if it is not known whether one does. It may block, and it outlives the `Process`.
    pub fn left(&self) -> impl Fn() -> Option<Vec<Leftover>> + Send + Sync + use<> {
        let group = Arc::clone(&self.group);
        move || group.left()
    }
}
