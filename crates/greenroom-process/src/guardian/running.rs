//! A guardian that runs, and the lines that it is told.

use std::io;
#[cfg(target_os = "linux")]
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::acknowledgements::Acknowledgements;
use super::boot_time::BootTime;
#[cfg(target_os = "linux")]
use super::program::VARIABLE;

const SCRIPT: &str = include_str!("guardian.sh");

/// `$0` of the shell.
const NAME: &str = "greenroom-guardian";

/// A month in milliseconds, which every shell can count to.
const LONGEST: u64 = 30 * 24 * 60 * 60 * 1000;

/// A group that the guardian ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    /// In milliseconds.
    pub(super) grace: u64,
    /// The number of the watchdog; `0` if there is none.
    pub(super) watchdog: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    pub(super) until: BootTime,
    /// The guardian acknowledges the deadline by this number.
    pub(super) seq: u64,
}

#[derive(Debug)]
pub(super) struct GuardianProcess {
    pub(super) child: Child,
    pub(super) lines: ChildStdin,
    pub(super) since: Instant,
    /// `None`: the guardian is a shell.
    pub(super) acknowledgements: Option<Arc<Acknowledgements>>,
}

impl Watched {
    pub(super) fn new(grace: Duration, watchdog: Option<u64>) -> Self {
        let grace = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX).min(LONGEST);
        Self { grace, watchdog: watchdog.unwrap_or_default() }
    }

    /// Shorter than `PIPE_BUF`, as all lines, so it is written whole or not at all.
    pub(super) fn line(self, sign: char, group: i32, is_program: bool) -> String {
        let Self { grace, watchdog } = self;
        if is_program {
            format!("{sign}{group}/{grace}/{watchdog}\n")
        } else {
            format!("{sign}{group}/{grace}\n")
        }
    }
}

impl Deadline {
    pub(super) fn line(self, watchdog: u64) -> String {
        format!("!{watchdog}/{}/{}\n", self.until.nanos(), self.seq)
    }
}

/// The command of a guardian: the program, or a shell that runs the script.
#[expect(clippy::disallowed_methods, reason = "the guardian is started by itself, and nothing waits for it")]
pub(super) fn command(program: Option<&Path>, shell: &str, path: &str) -> Command {
    #[cfg(target_os = "linux")]
    if let Some(program) = program {
        let mut command = Command::new(program);
        command.arg0(NAME).env_clear().env("PATH", path).env(VARIABLE, env!("CARGO_PKG_VERSION"));
        // The program may need it to find its libraries.
        if let Some(folders) = std::env::var_os("LD_LIBRARY_PATH") {
            command.env("LD_LIBRARY_PATH", folders);
        }
        return command;
    }
    _ = program;
    let mut command = Command::new(shell);
    command.args(["-c", SCRIPT, NAME]).env_clear().env("PATH", path);
    command
}

impl GuardianProcess {
    pub(super) fn tell(&mut self, line: &str) -> io::Result<()> {
        // A write may succeed after the guardian has ended: a process that another thread is starting holds the reading
        // end.
        if let Some(status) = self.child.try_wait()? {
            return Err(io::Error::other(format!("it has ended ({status})")));
        }
        rustix::io::retry_on_intr(|| rustix::io::write(&self.lines, line.as_bytes()))?;
        Ok(())
    }

    pub(super) fn kill(self) {
        let Self { mut child, lines, .. } = self;
        // Only while the process id surely is the guardian's: someone else in this process may have reaped it.
        if matches!(child.try_wait(), Ok(None)) {
            child.kill().ok();
            child.wait().ok();
        }
        // Last: a guardian that still runs takes the end of the pipe for the end of the host.
        drop(lines);
    }
}
