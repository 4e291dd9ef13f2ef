//! From a [`Launch`] to a running child, and the cause of a failed start.
//!
//! ```text
//! locate the executable ─────────► fork and execute ──┬─► Started
//! (a short-lived thread)     (the thread of `spawner.rs`) └─► find the cause (a short-lived thread)
//! ```

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Pid;

use super::exec;
use super::spawner::{Spawner, aside};
use crate::error::{Error, ErrorKind, Result};
use crate::transport::locate::{Located, ThisMachine, locate};
use crate::transport::process::contain::containment::Contained;
use crate::transport::process::exits::{self, WatchedChild};
use crate::transport::process::group::{Group, GroupGuard};
use crate::transport::process::guardian::{self, Watchdog};
use crate::transport::{ContainedBy, Launch};

/// The spawner of the whole process: a thousand sessions should not cost a thousand threads.
static SPAWNER: Spawner = Spawner::new();

/// A running child that leads its own process group. Dropping it kills the group.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
    pub(crate) group: GroupGuard,
    /// The file of the CLI: the script, if there is one.
    pub(crate) program: PathBuf,
}

/// Starts a child. Dropping the future kills the child if it has started.
pub(crate) async fn start(launch: Launch) -> Result<Started> {
    start_on(&SPAWNER, launch).await
}

pub(crate) async fn start_on(spawner: &'static Spawner, launch: Launch) -> Result<Started> {
    let look = move || -> Result<_> {
        let located = look_for(&launch)?;
        let watchdog = launch.watchdog.as_ref().map(Watchdog::number);
        let mut contained = Contained::prepare(launch.containment, watchdog)?;
        let mut command = command(&launch, &located);
        contained.apply(&mut command);
        Ok((command, contained, launch, located))
    };
    let (command, contained, launch, located) = aside(look).await??;
    let guarded = Guarded { grace: launch.exit_after_host, watchdog: launch.watchdog.clone() };
    let program = located.script.as_ref().unwrap_or(&located.program).clone();
    let inherits = launch.inherit_env;
    match spawner.run(move || fork(command, inherits, program, contained, guarded)).await? {
        Ok(started) => Ok(started),
        Err(error) => Err(aside(move || explain(error, &launch, &located)).await?),
    }
}

/// Finds the executable, and opens everything that the start will open, so that a file system that hangs does so here,
/// where no other start waits.
fn look_for(launch: &Launch) -> Result<Located> {
    let path = launch.env.get("PATH").map(AsRef::as_ref);
    let located = locate(launch.program.as_deref(), launch.runtime.as_deref(), path, &ThisMachine)?;
    // Errors are left to the start itself.
    start_of(&located.program);
    if let Some(cwd) = &launch.cwd {
        std::fs::metadata(cwd).ok();
    }
    Ok(located)
}

/// The bounds that the guardian sets to a child.
struct Guarded {
    /// The time for which it may outlive the host.
    grace: Duration,
    watchdog: Option<Watchdog>,
}

/// Reasons why a session with a watchdog does not start, and what helps.
const PASSED: (&str, &str) =
    ("the deadline of its watchdog has passed, or was never set", "extend the deadline of the watchdog");
const UNGUARDED: (&str, &str) = (
    "it has a watchdog, and no guardian runs that would end it at the deadline",
    "look for the log line about the guardian: the guardian's program may have been replaced, or the limit of processes is reached",
);
const LOOSE: (&str, &str) = (
    "it has a watchdog, and what it starts could not be found at the deadline",
    "choose `Containment::Auto`. If it is chosen, give the host a control group that it may write to, or the capability \
     `CAP_SYS_PTRACE` if the CLI runs as another user",
);

/// Blocks until the child executes its program. The calling thread must outlive the child.
fn fork(
    mut command: Command,
    inherits: bool,
    program: PathBuf,
    mut contained: Contained,
    guarded: Guarded,
) -> io::Result<Started> {
    let Guarded { grace, watchdog } = guarded;
    if watchdog.as_ref().is_some_and(|watchdog| !watchdog.holds()) {
        return Err(io::Error::other(PASSED.0));
    }
    let is_guarded = guardian::ready();
    if watchdog.is_some() && !is_guarded {
        return Err(io::Error::other(UNGUARDED.0));
    }
    die_with_parent(&mut command, is_guarded);
    exec::without_shell(&mut command, inherits)?;
    let mut child = command.spawn()?;
    let pid = Pid::from_child(&child);
    let confirmed = contained.confirm(pid);
    let is_loose = watchdog.is_some() && contained.by() == ContainedBy::Group;
    let group = GroupGuard::new(Group::new(pid, contained));
    // Before `exits::watch`: noticing the end makes the guardian forget the group, and a group that is added after that
    // would stay for ever.
    guardian::watch(pid, grace, watchdog.as_ref().map(Watchdog::number));
    if let Err(error) = exits::watch::<Group>(&group) {
        // Nobody else would reap the child.
        group.kill();
        group.wait_exit();
        return Err(error);
    }
    // From here on, dropping the group kills and reaps it.
    confirmed?;
    if is_loose {
        return Err(io::Error::other(LOOSE.0));
    }
    match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
        (Some(stdin), Some(stdout), Some(stderr)) => Ok(Started { stdin, stdout, stderr, group, program }),
        // Impossible, because all three are piped. Returning kills the child.
        _ => Err(io::Error::other("the CLI was started without pipes")),
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the place where processes are started")]
fn command(launch: &Launch, located: &Located) -> Command {
    let mut command = Command::new(&located.program);
    if let Some(script) = &located.script {
        command.args(&launch.runtime_args).arg(script);
    }
    command.args(&launch.args);
    if !launch.inherit_env {
        command.env_clear();
    }
    for name in &launch.unset_env {
        command.env_remove(name);
    }
    command.envs(&launch.env);
    if let Some(cwd) = &launch.cwd {
        command.current_dir(cwd);
    }
    if let Some(user) = launch.user {
        // Runs before `die_with_parent` in the child: changing the user clears the parent-death signal.
        command.uid(user.uid).gid(user.gid);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command
}

/// Sets the parent-death signal of the child, which fires when the thread that spawns the child ends: SIGTERM if a
/// guardian runs that kills the child later, so that the CLI can end its commands first; else SIGKILL.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn die_with_parent(command: &mut Command, guarded: bool) {
    use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

    let parent = getpid();
    let signal = if guarded { Signal::TERM } else { Signal::KILL };
    let ask = move || {
        set_parent_process_death_signal(Some(signal))?;
        // The signal does not fire for a parent that died before this call.
        if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: only async-signal-safe code may run between fork and exec. The closure makes two plain system calls and
    // builds an error from a number; it allocates nothing and takes no lock. Only the child itself can set the signal.
    unsafe {
        command.pre_exec(ask);
    }
}

/// Other systems have no parent-death signal.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn die_with_parent(_: &mut Command, _: bool) {}

/// Finds the cause of a failed start: the system has one error code for many (a missing directory, program or
/// interpreter).
fn explain(error: io::Error, launch: &Launch, located: &Located) -> Error {
    let spawn = |message: String, help: &str| Error::new(ErrorKind::Spawn, message).with_help(help);
    if let Some(cwd) = launch.cwd.as_deref()
        && let Some(trouble) = trouble_with_directory(cwd)
    {
        let message = format!("the CLI's working directory '{}' {trouble}", cwd.display());
        return spawn(message, "create the directory, or correct the option `cwd`").with_source(error);
    }
    if let Some(user) = launch.user
        && error.raw_os_error() == Some(Errno::PERM.raw_os_error())
    {
        let message = format!(
            "this process may not start the CLI as the user {} of the group {} (option `user`)",
            user.uid, user.gid
        );
        return spawn(message, "run the host as root, or leave the option `user` out").with_source(error);
    }
    let program = located.program.display();
    let error_text = error.to_string();
    for (reason, help) in [PASSED, UNGUARDED, LOOSE] {
        if error_text == reason {
            return spawn(format!("'{program}' was not started: {reason}"), help);
        }
    }
    let explained = match error.kind() {
        io::ErrorKind::NotFound if !located.program.exists() => {
            Error::new(ErrorKind::CliNotFound, format!("'{program}' was removed while the CLI was starting"))
                .with_help("it may be being updated: try again")
        }
        io::ErrorKind::NotFound => spawn(
            format!("'{program}' exists, but the interpreter or loader that it needs does not"),
            "install the build for this system (glibc or musl), or the interpreter in its first line",
        ),
        io::ErrorKind::PermissionDenied => spawn(
            format!("the system does not let this process execute '{program}'"),
            "check the permissions of the file and its directories, and the options of its mount (`noexec`)",
        ),
        io::ErrorKind::ArgumentListTooLong => spawn(
            "the CLI's arguments and environment are longer than the system takes".to_owned(),
            "give large settings and MCP configs as files",
        ),
        _ if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
            let (reason, help) = no_program(&located.program);
            spawn(format!("'{program}' is not a program of this system: {reason}"), help)
        }
        _ => Error::new(ErrorKind::Spawn, format!("'{program}' could not be started: {error_text}")),
    };
    explained.with_source(error)
}

/// The reason why the system takes a file for no program, and what helps.
fn no_program(path: &Path) -> (&'static str, &'static str) {
    /// `\x7fELF`, the class, the byte order, and the processor.
    fn build(start: &[u8]) -> Option<(&[u8], &[u8])> {
        start.starts_with(b"\x7fELF").then(|| start.get(4..6).zip(start.get(18..20)))?
    }
    let (start, own) =
        (start_of(path), std::env::current_exe().map(|own| start_of(&own)).unwrap_or_default());
    let again = "install it again, or name another executable in the option `cli_path`";
    match build(&start) {
        Some(other) if build(&own).is_some_and(|own| own != other) => (
            "it is a build for another processor",
            "install the build for this machine, or name another executable in the option `cli_path`",
        ),
        _ if start.is_empty() => ("the file is empty", again),
        _ if start.starts_with(b"\x7fELF") => ("the file is damaged or incomplete", again),
        _ if start.starts_with(b"#!") => {
            ("nor is the interpreter in its first line", "correct the first line of the file")
        }
        _ if !start.contains(&0) => (
            "it may be a script, but its first line names no interpreter",
            "add a first line such as `#!/bin/sh`, or install the build for this system",
        ),
        _ => (
            "its format is unknown here",
            "install the build for this system, or name another executable in the option `cli_path`",
        ),
    }
}

/// The part of a file by which the system tells the kind of program. Empty if the file cannot be read.
fn start_of(path: &Path) -> Vec<u8> {
    let mut start = Vec::new();
    if let Ok(file) = File::open(path) {
        file.take(256).read_to_end(&mut start).ok();
    }
    start
}

fn trouble_with_directory(path: &Path) -> Option<String> {
    match std::fs::metadata(path) {
        Ok(data) if data.is_dir() => None,
        Ok(_) => Some("is not a directory".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some("does not exist".to_owned()),
        Err(error) => Some(format!("cannot be used: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_vanished_is_named() {
        let located = Located { program: "/no/such/claude".into(), script: None };
        let error = explain(Errno::NOENT.into(), &Launch::new(1), &located);
        assert_eq!(error.kind(), ErrorKind::CliNotFound);
        let error = explain(Errno::NFILE.into(), &Launch::new(1), &located);
        assert!(error.to_string().contains("'/no/such/claude' could not be started"), "{error}");
    }
}
