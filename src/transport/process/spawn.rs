//! The command for a [`Launch`], and what a failure to start it means.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

use rustix::io::Errno;
use rustix::process::Pid;

use crate::error::{Error, ErrorKind, Result};
use crate::transport::Launch;
use crate::transport::locate::{Located, ThisMachine, locate};

/// A child that leads its own process group.
#[derive(Debug)]
pub(super) struct Spawned {
    pub(super) pid: Pid,
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// Looks for the executable and starts it. Blocks; the thread that calls it must outlive the child.
pub(super) fn spawn(launch: &Launch) -> Result<Spawned> {
    let path = launch.env.get("PATH").map(AsRef::as_ref);
    let located = locate(launch.program.as_deref(), launch.runtime.as_deref(), path, &ThisMachine)?;
    let mut child = command(launch, &located).spawn().map_err(|error| explain(error, launch, &located))?;
    let pid = Pid::from_child(&child);
    match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
        (Some(stdin), Some(stdout), Some(stderr)) => Ok(Spawned { pid, stdin, stdout, stderr }),
        _ => Err(without_pipes(child)),
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
        // Before the request below, which a change of the user would take back.
        command.uid(user.uid).gid(user.gid);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    die_with_parent(&mut command);
    command
}

/// Asks the system to kill the child when the thread that spawns it ends.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn die_with_parent(command: &mut Command) {
    use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

    let parent = getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A parent that died before the request was made is not noticed by it.
        if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: between fork and exec only what is async-signal-safe may run. The closure makes two plain
    // system calls and builds an error from a number; it allocates nothing and takes no lock. There is no
    // other way: the request has to be made by the child itself.
    unsafe {
        command.pre_exec(ask);
    }
}

/// Elsewhere there is no such request.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn die_with_parent(_: &mut Command) {}

/// All three are piped, so this does not happen; if it did, the child would not stay.
fn without_pipes(mut child: Child) -> Error {
    // One that has ended already is gone, and that is all that is wanted.
    child.kill().ok();
    child.wait().ok();
    Error::new(ErrorKind::Spawn, "the CLI was started without pipes")
}

/// The system has one code for many causes ("not found": the directory, the program, its interpreter). Says
/// which.
fn explain(error: io::Error, launch: &Launch, located: &Located) -> Error {
    if let Some(cwd) = launch.cwd.as_deref()
        && let Some(trouble) = trouble_with_directory(cwd)
    {
        let message = format!("the CLI's working directory '{}' {trouble}", cwd.display());
        return Error::new(ErrorKind::Spawn, message)
            .with_help("create the directory, or correct the option `cwd`")
            .with_source(error);
    }
    if let Some(user) = launch.user
        && error.raw_os_error() == Some(Errno::PERM.raw_os_error())
    {
        let message =
            format!("this process may not start another as the user {} of the group {}", user.uid, user.gid);
        return Error::new(ErrorKind::Spawn, message)
            .with_help("run the host as root, or leave the option `user` out")
            .with_source(error);
    }
    let program = located.program.display();
    let is_there = located.program.exists();
    let (kind, message, help) = match error.kind() {
        io::ErrorKind::NotFound if !is_there => (
            ErrorKind::CliNotFound,
            format!("'{program}' was there a moment ago and is gone"),
            "it may be being updated: try again",
        ),
        io::ErrorKind::NotFound => (
            ErrorKind::Spawn,
            format!("'{program}' exists, but the interpreter or loader that it needs does not"),
            "install the build for this system (glibc or musl), or the interpreter in its first line",
        ),
        io::ErrorKind::PermissionDenied => (
            ErrorKind::Spawn,
            format!("the system does not let '{program}' be executed"),
            "look at the rights of the file, of its directories, and of the mount that it is on",
        ),
        io::ErrorKind::ArgumentListTooLong => (
            ErrorKind::Spawn,
            "the CLI's arguments and environment are longer than the system takes".to_owned(),
            "give large settings and MCP configs as files",
        ),
        _ if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => (
            ErrorKind::Spawn,
            format!("'{program}' is not a program of this system"),
            "install the build for this system, or name another executable in the option `cli_path`",
        ),
        _ => {
            let message = format!("'{program}' could not be started: {error}");
            return Error::new(ErrorKind::Spawn, message).with_source(error);
        }
    };
    Error::new(kind, message).with_help(help).with_source(error)
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
    use crate::transport::StderrSink;

    fn sample() -> Launch {
        Launch {
            epoch: 1,
            program: None,
            args: Vec::new(),
            env: Default::default(),
            inherit_env: true,
            unset_env: Vec::new(),
            runtime: None,
            runtime_args: Vec::new(),
            user: None,
            cwd: None,
            stderr: StderrSink::new(|_| {}),
            stderr_line_bytes: 1024,
        }
    }

    /// What cannot be brought about everywhere: some C libraries hand such a file to a shell.
    #[test]
    fn a_file_in_another_format_is_named() {
        let launch = sample();
        let located = Located { program: "/bin/sh".into(), script: None };
        let error = explain(Errno::NOEXEC.into(), &launch, &located);
        assert_eq!(error.kind(), ErrorKind::Spawn);
        assert!(error.to_string().starts_with("'/bin/sh' is not a program of this system"), "{error}");
    }

    #[test]
    fn a_program_that_vanished_is_named() {
        let launch = sample();
        let located = Located { program: "/no/such/claude".into(), script: None };
        let error = explain(Errno::NOENT.into(), &launch, &located);
        assert_eq!(error.kind(), ErrorKind::CliNotFound);
        let error = explain(Errno::NFILE.into(), &launch, &located);
        assert!(error.to_string().contains("'/no/such/claude' could not be started"), "{error}");
    }
}
