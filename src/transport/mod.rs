//! How a session reaches a CLI: one [`Transport`] opens one [`Connection`] per incarnation.
//!
//! A transport moves bytes and knows nothing of what they mean. Two are here: [`ChildProcess`], the real thing,
//! and [`memory`], a connected pair for tests and for embedding.
//!
//! ```text
//! Transport ──open(Launch)──► Connection { reader, writer, process }
//!                                            │       │        └─ wait · terminate · kill; drop kills
//!                                            │       └─ what the CLI reads (its stdin)
//!                                            └─ what the CLI writes (its stdout)
//! ```

mod argv;
mod locate;
mod memory;
mod process;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

pub(crate) use argv::fields::{fields, has_private};
pub(crate) use argv::{LaunchSpec, Resume, Way, continues, launch_for};
pub use memory::{MemoryCli, MemoryListener, MemoryTransport, memory};
pub use process::ChildProcess;

use crate::error::Result;
use crate::options::OsUser;

/// Opens a connection to a CLI, once for each incarnation of it.
///
/// A session that recovers from the death of its CLI calls [`open`](Transport::open) again, with the arguments
/// that make the new process resume the conversation.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use greenroom::transport::{ChildProcess, Connection, Launch, Transport};
///
/// /// Says what it is about to start.
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
    /// Starts one incarnation. Dropping the future gives the attempt up and leaves nothing behind.
    ///
    /// # Errors
    /// Whatever keeps the CLI from starting; the session's `start` returns it as it is.
    fn open(&self, launch: Launch) -> BoxFuture<'static, Result<Connection>>;
}

/// What one incarnation of the CLI is started with. Its `Debug` form has the names of variables only, and no argument's
/// JSON.
///
/// ```
/// # fn look(launch: &greenroom::transport::Launch) {
/// if launch.args.iter().any(|arg| arg.starts_with("--resume=")) {
///     println!("incarnation {} resumes", launch.epoch);
/// }
/// # }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Launch {
    /// Which incarnation of this session's CLI it is, counted from 1.
    pub epoch: u64,
    /// The executable, if the options name one; otherwise it is looked for.
    pub program: Option<PathBuf>,
    /// The runtime for an executable that is a script, by name or path; `node` when `None`.
    pub runtime: Option<PathBuf>,
    /// The runtime's own arguments, before the script; not used without one.
    pub runtime_args: Vec<String>,
    /// The arguments after the program's name. Values are in the `--flag=value` form.
    pub args: Vec<String>,
    /// Variables to set.
    pub env: BTreeMap<String, String>,
    /// Whether the variables above are added to the host's own (true) or stand alone (false).
    pub inherit_env: bool,
    /// Variables to take away from what is inherited.
    pub unset_env: Vec<String>,
    /// The user of the operating system to run as; the host's own when `None`.
    pub user: Option<OsUser>,
    /// The working directory; the host's own when `None`.
    pub cwd: Option<PathBuf>,
    /// Where each line of the CLI's stderr goes.
    pub stderr: StderrSink,
    /// The longest stderr line that is kept whole, in bytes; the rest of a longer one is dropped.
    pub stderr_line_bytes: usize,
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The environment and inline JSON may hold secrets: names only.
        let args: Vec<_> = self.args.iter().map(|arg| without_json(arg)).collect();
        f.debug_struct("Launch")
            .field("epoch", &self.epoch)
            .field("program", &self.program)
            .field("args", &args)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

/// An argument without its value, if that is JSON: MCP servers and settings that go by arguments.
fn without_json(arg: &str) -> Cow<'_, str> {
    match arg.split_once('=') {
        Some((flag, value)) if value.trim_start().starts_with('{') => format!("{flag}=...").into(),
        _ => arg.into(),
    }
}

/// Takes the CLI's stderr, a line at a time, without the line's end.
///
/// ```
/// use greenroom::transport::StderrSink;
///
/// let sink = StderrSink::new(|line| tracing::debug!(%line, "claude"));
/// sink.line("a warning");
/// ```
#[derive(Clone)]
pub struct StderrSink(Arc<dyn Fn(&str) + Send + Sync>);

impl StderrSink {
    /// A sink that calls `take` for each line. It is called on the task that reads stderr: it must not block.
    pub fn new(take: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    /// Hands one line to the sink.
    pub fn line(&self, line: &str) {
        (self.0)(line);
    }
}

impl fmt::Debug for StderrSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StderrSink")
    }
}

/// One incarnation of a CLI, connected.
///
/// Dropping it, or its [`process`](Connection::process), ends the CLI and everything that it started.
///
/// ```
/// # fn show(connection: &greenroom::transport::Connection) {
/// println!("connected to process {:?}", connection.process.pid());
/// # }
/// ```
pub struct Connection {
    /// What the CLI writes: its stdout.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// What the CLI reads: its stdin. Shutting it down is the CLI's end of input.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// The process behind the two.
    pub process: Box<dyn Process>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("pid", &self.process.pid()).finish_non_exhaustive()
    }
}

/// The process (or what stands for one) behind a [`Connection`]. Dropping it kills the whole group at once.
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
    /// The process id, where there is a process.
    fn pid(&self) -> Option<u32>;

    /// Waits for the process itself (not for what it started) to end, and reaps it. May be called again, and the
    /// future may be dropped and made anew.
    fn wait(&mut self) -> BoxFuture<'_, Exit>;

    /// Asks the whole process group to end (SIGTERM).
    fn terminate(&mut self);

    /// Ends the whole process group (SIGKILL). Also after the process itself has ended: what it started may live on.
    fn kill(&mut self);
}

/// How a CLI process ended.
///
/// ```
/// use greenroom::transport::Exit;
///
/// assert_eq!(Exit::Code(1).to_string(), "exited with code 1");
/// assert_eq!(Exit::Signal(9).to_string(), "was ended by signal 9");
/// assert!(Exit::Code(0).is_success());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// It was ended by this signal.
    Signal(i32),
    /// It is gone and nobody could say how.
    Unknown,
}

impl Exit {
    /// True for exit code 0.
    pub fn is_success(self) -> bool {
        self == Exit::Code(0)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exited with code {code}"),
            Exit::Signal(signal) => write!(f, "was ended by signal {signal}"),
            Exit::Unknown => f.write_str("is gone"),
        }
    }
}
