//! Choose how a session reaches its CLI: as a child process, in memory, or in a way of your own.
//!
//! A [`Transport`] opens one [`Connection`] for each incarnation of the CLI. A transport moves bytes and does not interpret them. There are two: [`ChildProcess`] starts the CLI, and [`memory`]
//! makes a connected pair for tests and for embedding. Write your own to run the CLI elsewhere, for instance over SSH.
//!
//! ```text
//! Transport ──open(Launch)──► Connection { reader, writer, process }
//!                                            │       │        └─ wait · terminate · kill; drop kills
//!                                            │       └─ what the CLI reads (its stdin)
//!                                            └─ what the CLI writes (its stdout)
//! ```

mod argv;
mod child;
mod locate;
mod memory;
pub(crate) mod private;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

pub(crate) use argv::fields::{fields, has_private};
pub(crate) use argv::{Channel, LaunchSpec, Resume, continues, launch_for, opens};
pub use child::ChildProcess;
/// Processes, from the crate `greenroom-process`, whose child here is a CLI. [`Session::process`](crate::Session::process) has the
/// identity of the current one.
pub use greenroom_process::{
    Command, ContainedBy, Exit, Leftover, ProcessIdentity, StderrSink, kill_processes_of_user,
    kill_processes_with, processes_of_user, processes_with, remove_ipc_of_user,
};
pub use memory::{MemoryCli, MemoryListener, MemoryTransport, memory};

use crate::blocking::caught::DropElsewhere;
use crate::error::Result;

/// Opens a connection to a CLI, one for each incarnation.
///
/// After the death of its CLI, a session calls [`open`](Transport::open) again with arguments that make the new process
/// resume the conversation.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use greenroom::transport::{ChildProcess, Connection, Launch, Transport};
///
/// /// Logs each start of the CLI.
/// struct Announced(ChildProcess);
///
/// impl Transport for Announced {
///     fn open(&self, launch: Launch) -> BoxFuture<'static, greenroom::Result<Connection>> {
///         tracing::info!(?launch, "starting the CLI");
///         self.0.open(launch)
///     }
/// }
/// ```
pub trait Transport: Send + Sync + 'static {
    /// Starts one incarnation. Dropping the future cancels the start and leaves no process behind.
    ///
    /// # Errors
    /// Any reason why the CLI cannot start; the session's `start` returns the error unchanged.
    fn open(&self, launch: Launch) -> BoxFuture<'static, Result<Connection>>;

    /// Where the CLIs of this transport keep their conversations, so that no two live sessions open the same one
    /// ([`ErrorKind::SessionInUse`](crate::ErrorKind::SessionInUse)). Default: [`Conversations::OfUser`]. A transport
    /// that wraps another should return that one's value.
    fn conversations(&self) -> Conversations {
        Conversations::OfUser
    }
}

impl<T: Transport> Transport for DropElsewhere<T> {
    fn open(&self, launch: Launch) -> BoxFuture<'static, Result<Connection>> {
        T::open(self, launch)
    }

    fn conversations(&self) -> Conversations {
        T::conversations(self)
    }
}

/// Where the CLIs of a [`Transport`] keep their conversations. The same id in two places means two conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Conversations {
    /// In the configuration folder of the user, where any `claude` finds them. Sessions of other processes count.
    OfUser,
    /// In a place that only this transport knows: see [`apart`](Conversations::apart).
    Apart(u64),
}

impl Conversations {
    /// A new place that no other transport knows.
    pub fn apart() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self::Apart(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Arguments, environment and settings of one incarnation. `Debug` shows the names of variables without values, and no
/// JSON of arguments.
#[derive(Clone)]
#[non_exhaustive]
pub struct Launch {
    /// Number of this incarnation within its session, counted from 1.
    pub epoch: u64,
    /// The executable; `None` if the transport should look for it.
    pub program: Option<PathBuf>,
    /// The runtime for an executable that is a script, by name or path. `None`: `node`.
    pub runtime: Option<PathBuf>,
    /// Arguments of the runtime, before the script. Ignored for an executable that is no script.
    pub runtime_args: Vec<String>,
    /// Arguments of the CLI, each value as `--flag=value`. Under
    /// [`Delivery::Arguments`](crate::options::Delivery::Arguments), and with a CLI that takes nothing in `initialize`,
    /// some arguments name files of this machine (`--mcp-config`, `--settings`). A transport that runs the CLI on
    /// another machine has to copy these files.
    pub args: Vec<String>,
    /// The rest of the process: its environment, user, working directory, containment and stderr. The program and the
    /// arguments in it are empty; a transport that starts a child sets them.
    pub command: Command,
}

impl Launch {
    /// The default CLI without arguments, in the host's environment: for tests of a transport of yours.
    pub fn new(epoch: u64) -> Self {
        Self {
            epoch,
            program: None,
            runtime: None,
            runtime_args: Vec::new(),
            args: Vec::new(),
            command: Command::new(""),
        }
    }
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The environment and inline JSON may hold secrets.
        let args: Vec<_> = self.args.iter().map(|arg| without_json(arg)).collect();
        f.debug_struct("Launch")
            .field("epoch", &self.epoch)
            .field("program", &self.program)
            .field("args", &args)
            .field("env", &self.command.env.keys().collect::<Vec<_>>())
            .field("cwd", &self.command.cwd)
            .finish_non_exhaustive()
    }
}

/// Replaces a JSON value of an argument (MCP servers, settings) by `...`.
fn without_json(arg: &str) -> Cow<'_, str> {
    match arg.split_once('=') {
        Some((flag, value)) if value.trim_start().starts_with('{') => format!("{flag}=...").into(),
        _ => arg.into(),
    }
}

/// The names of flags, without values: a system prompt or an extra argument may be secret.
pub(crate) fn flags(args: &[String]) -> Vec<&str> {
    let named = args.iter().filter(|arg| arg.starts_with("--"));
    named.map(|arg| arg.split_once('=').map_or(arg.as_str(), |(name, _)| name)).collect()
}

/// A connection to one incarnation of a CLI.
///
/// Dropping the connection, or its [`process`](Connection::process), ends the CLI and everything that it has started.
pub struct Connection {
    /// The CLI's stdout.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// The CLI's stdin. It is shut down and then dropped at the end of the CLI's input.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// The CLI's process.
    pub process: Box<dyn Process>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("pid", &self.process.pid()).finish_non_exhaustive()
    }
}

/// The CLI's process (or a stand-in) behind a [`Connection`]. Dropping it kills the whole process group at once.
///
/// ```
/// use greenroom::transport::{Exit, Process};
///
/// async fn end(mut process: Box<dyn Process>) -> Exit {
///     process.terminate();
///     process.wait().await
/// }
/// # let _ = end;
/// ```
pub trait Process: Send + 'static {
    /// The process id; `None` if there is no real process.
    fn pid(&self) -> Option<u32>;

    /// Waits until the CLI itself has ended, and reaps it. Does not wait for its descendants. May be called again, also
    /// after its future was dropped.
    fn wait(&mut self) -> BoxFuture<'_, Exit>;

    /// Asks the whole process group to end (SIGTERM).
    fn terminate(&mut self);

    /// Kills the process and everything that it has started (SIGKILL). Call it after the process has ended, too: its
    /// descendants may live on.
    fn kill(&mut self);

    /// The file of the CLI, for error texts. `None` if it is not known, or there is no real process. A process that wraps
    /// another one returns that of the inner process.
    fn program(&self) -> Option<&Path> {
        None
    }

    /// The way in which its descendants are found. `None` if there is no real process. A process that wraps another one
    /// returns that of the inner process.
    fn contained_by(&self) -> Option<ContainedBy> {
        None
    }

    /// The identity of the process, by which a later host recognises it on this machine. `None` if there is no real
    /// process, or if the process runs on another machine. A process that wraps another one returns that of the inner
    /// process.
    fn identity(&self) -> Option<ProcessIdentity> {
        None
    }

    /// After [`kill`](Process::kill): waits until no descendant is left, and returns those that were found outside the
    /// process group. Also returns if descendants are left that cannot be ended. May be called again, also after its future
    /// was dropped. A process that wraps another one waits for the inner process.
    fn cleared(&mut self) -> BoxFuture<'_, Vec<Leftover>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// After [`kill`](Process::kill): a way to ask which of the killed processes still run, the CLI itself among them. The
    /// session asks after [`Timeouts::reap`](crate::options::Timeouts::reap), and when it stops. By default there is no such
    /// way: then it is not known whether a process runs that has not ended within `reap`. A process that wraps another one
    /// returns that of the inner process.
    fn left(&self) -> Leftovers {
        Leftovers::default()
    }
}

/// Tells which processes of a killed CLI still run. Outlives the [`Process`].
#[derive(Clone, Default)]
pub struct Leftovers(Option<Arc<dyn Fn() -> Option<Vec<Leftover>> + Send + Sync>>);

impl Leftovers {
    /// `ask` returns the processes that still run, or `None` if it does not know whether one does. It should take
    /// milliseconds: a session calls it in a task if [`Process::cleared`] has ended in time, else on a blocking thread, where it
    /// waits at most [`Timeouts::child_stop`](crate::options::Timeouts::child_stop).
    pub fn new(ask: impl Fn() -> Option<Vec<Leftover>> + Send + Sync + 'static) -> Self {
        let ask = DropElsewhere::new(ask);
        Self(Some(Arc::new(move || {
            let ask = &*ask;
            ask()
        })))
    }

    /// The processes that run at this moment. `None`: it is not known whether one does. May block.
    pub fn ask(&self) -> Option<Vec<Leftover>> {
        self.0.as_ref().and_then(|ask| ask())
    }

    /// False for the default, which has no way to ask.
    pub(crate) fn can_be_asked(&self) -> bool {
        self.0.is_some()
    }
}

impl fmt::Debug for Leftovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leftovers")
    }
}
