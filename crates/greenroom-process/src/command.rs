//! Which program to start, and how.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::guardian::Watchdog;
use crate::{Containment, OsUser};

/// Receives the lines of a child's stderr, without their ends. It must not block.
pub type StderrSink = Arc<dyn Fn(&str) + Send + Sync>;

/// A program to start. `Debug` shows the names of variables without their values, and no arguments: either may be secret.
#[derive(Clone)]
#[non_exhaustive]
pub struct Command {
    /// The path of the program. A name is not searched on `PATH`.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables to set.
    pub env: BTreeMap<String, String>,
    /// True, the default: `env` is added to the environment of this process. False: `env` replaces it.
    pub inherit_env: bool,
    /// Variables to remove from the inherited environment.
    pub unset_env: Vec<String>,
    /// The user to run as. `None`: that of this process.
    pub user: Option<OsUser>,
    /// The working directory. `None`: that of this process.
    pub cwd: Option<PathBuf>,
    /// The way in which descendants are found when the child ends.
    pub containment: Containment,
    /// Time for the child to exit after this process has ended. Default: none.
    pub exit_after_host: Duration,
    /// Bounds the life of the child by a deadline.
    pub watchdog: Option<Watchdog>,
    /// Receives each line of stderr. By default they are dropped.
    pub stderr: StderrSink,
    /// The longest line of stderr that is kept whole, in bytes; the rest of a longer line is dropped. Default: 1,024.
    pub stderr_line_bytes: usize,
}

impl Command {
    /// The program at this path without arguments, in the environment of this process.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            inherit_env: true,
            unset_env: Vec::new(),
            user: None,
            cwd: None,
            containment: Containment::default(),
            exit_after_host: Duration::ZERO,
            watchdog: None,
            stderr: Arc::new(|_| {}),
            stderr_line_bytes: 1024,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("program", &self.program)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}
