//! From a [`Command`](crate::Command) to a running child, and the cause of a failed start.
//!
//! ```text
//! find the program ──────────────► fork and execute ──┬─► Started
//! (a short-lived thread)     (the thread of `spawner.rs`) └─► find the cause (a short-lived thread)
//! ```

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command as StdCommand, Stdio};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::Pid;

use super::exec;
use super::spawner::Spawner;
use crate::aside::aside;
use crate::contain::containment::Contained;
use crate::error::{Error, ErrorKind, Result};
use crate::exits::{self, WatchedChild};
use crate::group::{Group, GroupGuard};
use crate::guardian::{self, Watchdog};
use crate::{Command, ContainedBy};

/// The spawner of the whole process: a thousand children should not cost a thousand threads.
static SPAWNER: Spawner = Spawner::new();

/// Stdin, stdout and stderr.
pub(crate) type Pipes = (ChildStdin, ChildStdout, ChildStderr);

/// A running child that leads its own process group, and what was started. Dropping it kills the group.
pub(crate) type Started = (Pipes, GroupGuard, Command);

/// Starts a child. Dropping the future kills the child if it has started.
pub(crate) async fn start<E: From<Error> + Send + 'static>(
    find: impl FnOnce() -> Result<Command, E> + Send + 'static,
) -> Result<Started, E> {
    start_on(&SPAWNER, find).await
}

pub(crate) async fn start_on<E: From<Error> + Send + 'static>(
    spawner: &'static Spawner,
    find: impl FnOnce() -> Result<Command, E> + Send + 'static,
) -> Result<Started, E> {
    let look = move || -> Result<_, E> {
        let command = find()?;
        open_files(&command);
        let watchdog = command.watchdog.as_ref().map(Watchdog::number);
        let mut contained = Contained::prepare(command.containment, watchdog)?;
        let mut child = child_of(&command);
        contained.apply(&mut child);
        Ok((child, contained, command))
    };
    let (child, contained, mut command) = aside(look).await??;
    // Stays here: it may be code of the application, whose drop must not hold the spawner up.
    let stderr_sink = std::mem::replace(&mut command.stderr, Arc::new(|_| {}));
    let forked = spawner.run(move || {
        let forked = fork(child, &command, contained);
        (forked, command)
    });
    match forked.await? {
        (Ok((pipes, group)), command) => Ok((pipes, group, Command { stderr: stderr_sink, ..command })),
        (Err(error), command) => Err(aside(move || explain(error, &command)).await?.into()),
    }
}

/// Opens everything that the start will open, so that a file system that hangs does so here, where no other start waits.
fn open_files(command: &Command) {
    // Errors are left to the start itself.
    start_of(&command.program);
    if let Some(cwd) = &command.cwd {
        std::fs::metadata(cwd).ok();
    }
}

/// Reasons why a child with a watchdog is not started, and what helps.
const PASSED: (&str, &str) =
    ("the deadline of its watchdog has passed, or was never set", "extend the deadline of the watchdog");
const UNGUARDED: (&str, &str) = (
    "it has a watchdog, and no guardian runs that would end it at the deadline",
    "look for the log line about the guardian: the guardian's program may have been replaced, or the limit of processes is reached",
);
const LOOSE: (&str, &str) = (
    "it has a watchdog, and what it starts could not be found at the deadline",
    "choose `Containment::Auto`. If it is chosen, give the host a control group that it may write to, or the capability \
     `CAP_SYS_PTRACE` if the child runs as another user",
);

/// Blocks until the child executes its program. The calling thread must outlive the child.
fn fork(
    mut child: StdCommand,
    command: &Command,
    mut contained: Contained,
) -> io::Result<(Pipes, GroupGuard)> {
    let watchdog = command.watchdog.as_ref();
    if watchdog.is_some_and(|watchdog| !watchdog.holds()) {
        return Err(io::Error::other(PASSED.0));
    }
    let is_guarded = guardian::ready();
    if watchdog.is_some() && !is_guarded {
        return Err(io::Error::other(UNGUARDED.0));
    }
    prepare(&mut child, is_guarded, command.user.is_some());
    exec::without_shell(&mut child, command.inherit_env)?;
    let mut child = child.spawn()?;
    let pid = Pid::from_child(&child);
    let confirmed = contained.confirm(pid);
    let is_loose = watchdog.is_some() && contained.by == ContainedBy::Group;
    let group = GroupGuard::new(Group::new(pid, contained));
    // Before `exits::watch`: noticing the end makes the guardian forget the group, and a group that is added after that
    // would stay for ever.
    guardian::watch(pid, command.exit_after_host, watchdog.map(Watchdog::number));
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
        (Some(stdin), Some(stdout), Some(stderr)) => Ok(((stdin, stdout, stderr), group)),
        // Impossible, because all three are piped. Returning kills the child.
        _ => Err(io::Error::other("the child was started without pipes")),
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the place where processes are started")]
fn child_of(command: &Command) -> StdCommand {
    let mut child = StdCommand::new(&command.program);
    child.args(&command.args);
    if !command.inherit_env {
        child.env_clear();
    }
    for name in &command.unset_env {
        child.env_remove(name);
    }
    child.envs(&command.env);
    if let Some(cwd) = &command.cwd {
        child.current_dir(cwd);
    }
    if let Some(user) = command.user {
        // Runs before `prepare` in the child: changing the user clears the parent-death signal.
        child.uid(user.uid).gid(user.gid);
    }
    child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    child
}

/// Sets the parent-death signal of the child, which fires when the thread that spawns the child ends: SIGTERM if a
/// guardian runs that kills the child later, so that the child can end its commands first; else SIGKILL. On Linux, a child that
/// runs as another user gains no rights any more.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn prepare(command: &mut StdCommand, guarded: bool, as_user: bool) {
    use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

    let parent = getpid();
    let signal = if guarded { Signal::TERM } else { Signal::KILL };
    let ask = move || {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if as_user {
            rustix::thread::set_no_new_privs(true)?;
        }
        set_parent_process_death_signal(Some(signal))?;
        // The signal does not fire for a parent that died before this call.
        if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: only async-signal-safe code may run between fork and exec. The closure makes three plain system calls and
    // builds an error from a number; it allocates nothing and takes no lock. Only the child itself can set the signal.
    unsafe {
        command.pre_exec(ask);
    }
}

/// Other systems have no parent-death signal.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn prepare(_: &mut StdCommand, _: bool, _: bool) {}

/// Finds the cause of a failed start: the system has one error code for many (a missing directory, program or
/// interpreter).
fn explain(error: io::Error, command: &Command) -> Error {
    let failed = |kind, message: String, help: &str| Error::new(kind, message).with_help(help);
    let spawn = |message, help: &str| failed(ErrorKind::Spawn, message, help);
    let not_executable = |message, help: &str| failed(ErrorKind::NotExecutable, message, help);
    if let Some(cwd) = command.cwd.as_deref()
        && let Some(trouble) = trouble_with_directory(cwd)
    {
        let message = format!("the working directory '{}' {trouble}", cwd.display());
        return spawn(message, "create the directory, or name another one").with_source(error);
    }
    if let Some(user) = command.user
        && error.raw_os_error() == Some(Errno::PERM.raw_os_error())
    {
        let message = format!(
            "this process may not start a program as the user {} of the group {}",
            user.uid, user.gid
        );
        return spawn(message, "run this process as root, or name no user").with_source(error);
    }
    let program = command.program.display();
    let error_text = error.to_string();
    let watchdog =
        [(PASSED, ErrorKind::Spawn), (UNGUARDED, ErrorKind::NoGuardian), (LOOSE, ErrorKind::Spawn)];
    for ((reason, help), kind) in watchdog {
        if error_text == reason {
            return failed(kind, format!("'{program}' was not started: {reason}"), help);
        }
    }
    let explained = match error.kind() {
        io::ErrorKind::NotFound if !command.program.exists() => Error::new(
            ErrorKind::NotFound,
            format!("'{program}' does not exist, or was removed while it was starting"),
        )
        .with_help("give the path of the program; if it is being updated, try again"),
        io::ErrorKind::NotFound => not_executable(
            format!("'{program}' exists, but the interpreter or loader that it needs does not"),
            "install the build for this system (glibc or musl), or the interpreter in its first line",
        ),
        io::ErrorKind::PermissionDenied => not_executable(
            format!("the system does not let this process execute '{program}'"),
            "check the permissions of the file and its directories, and the options of its mount (`noexec`)",
        ),
        io::ErrorKind::ArgumentListTooLong => spawn(
            format!("the arguments and the environment of '{program}' are longer than the system takes"),
            "pass large values in files",
        ),
        _ if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
            let (reason, help) = no_program(&command.program);
            not_executable(format!("'{program}' is not a program of this system: {reason}"), help)
        }
        _ if is_exhausted(&error) => failed(
            ErrorKind::NoResources,
            format!("the system has no room for the process of '{program}': {error_text}"),
            "raise the limits of memory, processes (`ulimit -u`, `pids.max`) and open files (`ulimit -n`), or start fewer programs",
        ),
        _ => Error::new(ErrorKind::Spawn, format!("'{program}' could not be started: {error_text}")),
    };
    explained.with_source(error)
}

/// True if the system has no memory, process or open file left.
fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [Errno::NOMEM, Errno::AGAIN, Errno::MFILE, Errno::NFILE];
    error.raw_os_error().is_some_and(|code| exhausted.iter().any(|errno| errno.raw_os_error() == code))
}

/// The reason why the system takes a file for no program, and what helps.
fn no_program(path: &Path) -> (&'static str, &'static str) {
    /// `\x7fELF`, the class, the byte order, and the processor.
    fn build(start: &[u8]) -> Option<(&[u8], &[u8])> {
        start.starts_with(b"\x7fELF").then(|| start.get(4..6).zip(start.get(18..20)))?
    }
    let (start, own) =
        (start_of(path), std::env::current_exe().map(|own| start_of(&own)).unwrap_or_default());
    let again = "install it again, or name another program";
    match build(&start) {
        Some(other) if build(&own).is_some_and(|own| own != other) => (
            "it is a build for another processor",
            "install the build for this machine, or name another program",
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
        _ => ("its format is unknown here", "install the build for this system, or name another program"),
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
    fn a_system_without_room_is_no_fault_of_the_program() {
        let command = Command::new("/bin/sh");
        for errno in [Errno::NOMEM, Errno::AGAIN, Errno::MFILE, Errno::NFILE] {
            let error = explain(io::Error::from(errno), &command);
            assert_eq!(error.kind(), ErrorKind::NoResources, "{errno}");
            assert!(error.help().is_some_and(|help| help.contains("pids.max")), "{error}");
        }
        let unguarded = explain(io::Error::other(UNGUARDED.0), &command);
        assert_eq!(unguarded.kind(), ErrorKind::NoGuardian);
    }

    #[test]
    fn a_program_that_vanished_is_named() {
        let command = Command::new("/no/such/program");
        let error = explain(Errno::NOENT.into(), &command);
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let error = explain(Errno::IO.into(), &command);
        assert!(error.to_string().contains("'/no/such/program' could not be started"), "{error}");
    }
}
