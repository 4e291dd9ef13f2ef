//! From a [`Launch`] to a running child, and what a failure means.
//!
//! ```text
//! look for it ──────────────► fork and execute ──┬─► Started
//! (a thread that ends)  (the thread of `spawner.rs`) └─► what was the cause? (a thread that ends)
//! ```

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

use rustix::io::Errno;
use rustix::process::Pid;

use super::group::{Group, GroupGuard};
use super::spawner::{Spawner, aside};
use super::{exits, guardian};
use crate::error::{Error, ErrorKind, Result};
use crate::transport::Launch;
use crate::transport::locate::{Located, ThisMachine, locate};

/// One for the whole process: a thousand sessions should not cost a thousand threads.
static SPAWNER: Spawner = Spawner::new();

/// A child that runs and leads its own process group. Dropping it kills the group.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
    pub(super) group: GroupGuard,
}

/// Starts a child. Dropping the future ends the child if there is one by then.
pub(super) async fn start(launch: Launch) -> Result<Started> {
    let look = move || -> Result<_> {
        let located = look_for(&launch)?;
        Ok((command(&launch, &located), launch, located))
    };
    let (command, launch, located) = aside(look).await??;
    match SPAWNER.run(move || fork(command)).await? {
        Ok(started) => Ok(started),
        Err(error) => Err(aside(move || explain(error, &launch, &located)).await?),
    }
}

/// Finds the executable, and looks at all that its start will look at: what hangs or has to be fetched from afar
/// does so here, where nobody else waits.
fn look_for(launch: &Launch) -> Result<Located> {
    let path = launch.env.get("PATH").map(AsRef::as_ref);
    let located = locate(launch.program.as_deref(), launch.runtime.as_deref(), path, &ThisMachine)?;
    // The system reads this much to see what kind of program it is. Trouble is told by the start.
    if let Ok(program) = File::open(&located.program) {
        io::copy(&mut program.take(256), &mut io::sink()).ok();
    }
    if let Some(cwd) = &launch.cwd {
        std::fs::metadata(cwd).ok();
    }
    Ok(located)
}

/// Blocks until the child executes its program. The thread that calls this must outlive the child.
fn fork(mut command: Command) -> io::Result<Started> {
    let mut child = command.spawn()?;
    let group = GroupGuard::new(Group::new(Pid::from_child(&child)));
    // First, for whoever waits for the end has it forgotten: a number that is noted afterwards would be noted for ever.
    guardian::watch(group.group().id());
    if let Err(error) = exits::watch(group.group()) {
        // Nobody would reap it.
        group.kill();
        group.group().wait_for_leader();
        return Err(error);
    }
    match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
        (Some(stdin), Some(stdout), Some(stderr)) => Ok(Started { stdin, stdout, stderr, group }),
        // All three are piped, so this does not happen; if it did, the child would not stay.
        _ => Err(io::Error::other("it was started without pipes")),
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
