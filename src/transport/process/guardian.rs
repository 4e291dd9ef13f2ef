//! The guardian: one small process that outlives the host, to end what the host can end no more.
//!
//! A host that is killed takes its CLIs along where the system knows a parent-death signal, but not what they
//! have started. So each process that starts a CLI also starts a guardian, at its first CLI:
//!
//! ```text
//! host ──pipe: "+ID" at the start of a group, "-ID" before its leader is reaped──► guardian
//!   └─ is gone, so the pipe ends ─────────────────────────► SIGKILL to each group that is left, and exit
//! ```
//!
//! - Only the host holds the writing end (close-on-exec), so the pipe ends when the host does, by whatever
//!   cause, an ordinary exit among them. A fork of the host that executes nothing else holds it as well; then
//!   it ends with the last of them.
//! - Lines are read in order and before the end, so nothing is killed whose `-ID` was written. A group that
//!   was not taken off has either members, or a leader that was the host's to reap a moment ago: its number
//!   has not been given to anyone else.
//! - It is in a process group of its own and ignores what a terminal or a supervisor sends to all. A session
//!   of its own would do no more, and less in one case: a guardian that is stopped is continued by the system
//!   when its group is orphaned, which is when the host ends.
//! - It is a shell, for we have no program of our own to start: `/bin/sh`, with builtins alone, because there
//!   may be no `PATH`. A host without one goes on without a guardian.
//! - Nobody waits for it. A line is written if there is room for it; a guardian that is gone, or so far
//!   behind that the pipe is full, is replaced by one that is told of all groups.

#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;

const SHELL: &str = "/bin/sh";

/// `$*` are the groups that are there when it starts. Descriptors that the host inherited and hands on without
/// knowing are closed, as far as a shell can.
const SCRIPT: &str = r#"# greenroom-guardian: kills what is left of CLIs whose host is gone
trap '' HUP INT QUIT TERM USR1 USR2 ALRM TSTP TTIN TTOU
exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
groups=" $* "
while read -r line; do
  id=${line#?}
  case $line in
    +*) groups="$groups$id " ;;
    -*) case $groups in *" $id "*) groups=${groups%%" $id "*}" "${groups#*" $id "} ;; esac ;;
  esac
done
for id in $groups; do kill -KILL "-$id"; done
"#;

/// What the shell calls itself.
const NAME: &str = "greenroom-guardian";

/// One for the whole process and not for each session, because there is one host to outlive, and because a
/// thousand sessions should not cost a thousand shells.
static GUARDIAN: Mutex<Guardian> = Mutex::new(Guardian::new(SHELL));

/// From now on the group ends with this process. To be called as soon as it is there.
pub(super) fn watch(group: Pid) {
    // What is told is told without the lock.
    let warning = lock().watch(group);
    match warning {
        None => {}
        Some(Warning::Replaced(error)) => tracing::warn!(%error, "lost the guardian, and started another"),
        Some(Warning::Missing(error)) => tracing::warn!(
            %error,
            "no guardian: should this process be killed, what its CLIs have started may stay"
        ),
    }
}

/// The group is no matter of ours any more. To be called before its number can be given to another.
pub(super) fn forget(group: Pid) {
    lock().forget(group);
}

fn lock() -> MutexGuard<'static, Guardian> {
    GUARDIAN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the host should know.
#[derive(Debug)]
enum Warning {
    /// There is no guardian. Told once.
    Missing(io::Error),
    /// The one before has ended, or does not read.
    Replaced(io::Error),
}

/// The host's side. When it is dropped the guardian takes the host for dead.
#[derive(Debug)]
struct Guardian {
    shell: &'static str,
    /// Whose children `running` and the groups are: a fork of the host finds them in its memory as well.
    host: u32,
    running: Option<Running>,
    groups: BTreeSet<i32>,
    /// That there is none has been told.
    warned: bool,
}

#[derive(Debug)]
struct Running {
    child: Child,
    lines: ChildStdin,
}

impl Guardian {
    const fn new(shell: &'static str) -> Self {
        Self { shell, host: 0, running: None, groups: BTreeSet::new(), warned: false }
    }

    fn watch(&mut self, group: Pid) -> Option<Warning> {
        self.notice_a_fork();
        self.groups.insert(group.as_raw_pid());
        let lost = self.tell('+', group).err();
        if self.running.is_none()
            && let Err(error) = self.start()
        {
            let first = !std::mem::replace(&mut self.warned, true);
            return first.then_some(Warning::Missing(error));
        }
        lost.map(Warning::Replaced)
    }

    fn forget(&mut self, group: Pid) {
        self.notice_a_fork();
        self.groups.remove(&group.as_raw_pid());
        if self.tell('-', group).is_err() && !self.groups.is_empty() {
            // If it fails, the next group tries again, and tells.
            self.start().ok();
        }
    }

    /// Leaves everything to the parent, which has it still.
    fn notice_a_fork(&mut self) {
        let host = std::process::id();
        if self.host != host {
            *self = Self { host, ..Self::new(self.shell) };
        }
    }

    fn start(&mut self) -> io::Result<()> {
        #[expect(clippy::disallowed_methods, reason = "it is no child that anyone waits for, and no CLI")]
        let mut command = Command::new(self.shell);
        command.args(["-c", SCRIPT, NAME]).args(self.groups.iter().map(i32::to_string));
        command.env_clear().current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let Some(lines) = child.stdin.take() else {
            return Err(io::Error::other("it was started without a pipe"));
        };
        rustix::io::ioctl_fionbio(&lines, true)?;
        self.running = Some(Running { child, lines });
        Ok(())
    }

    /// Writes a line, if there is a guardian. One that cannot be written to is given up.
    fn tell(&mut self, sign: char, group: Pid) -> io::Result<()> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let told = running.tell(sign, group);
        if told.is_err()
            && let Some(running) = self.running.take()
        {
            running.give_up();
        }
        told
    }
}

impl Running {
    fn tell(&mut self, sign: char, group: Pid) -> io::Result<()> {
        // The pipe alone does not say: a process that another thread is just starting may hold the reading end.
        if let Some(status) = self.child.try_wait()? {
            return Err(io::Error::other(format!("it has ended ({status})")));
        }
        // Shorter than `PIPE_BUF`, so it is written whole or not at all.
        let line = format!("{sign}{}\n", group.as_raw_pid());
        rustix::io::retry_on_intr(|| rustix::io::write(&self.lines, line.as_bytes()))?;
        Ok(())
    }

    fn give_up(self) {
        let Self { mut child, lines } = self;
        // Only while its number is surely its own: someone else in this process may have reaped it.
        if matches!(child.try_wait(), Ok(None)) {
            child.kill().ok();
            child.wait().ok();
        }
        // Only now: had it run still, it would have taken this for the end of the host.
        drop(lines);
    }
}
