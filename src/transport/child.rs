//! The CLI as a child process of this one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use greenroom_process::Child;

use super::locate::{Located, ThisMachine, locate};
use super::{
    Command, Connection, ContainedBy, Exit, Launch, Leftover, Leftovers, Process, ProcessIdentity, Transport,
};
use crate::error::{Error, ErrorKind, Result};

/// Runs the CLI as a child process in a process group of its own. This is the transport of a session unless you give it
/// another. Unix only.
///
/// The executable is [`Launch::program`]. Without one, `claude` is looked for on `PATH` (the `PATH` in [`Launch::command`],
/// or else the host's) and then in the usual install folders. A `.js`, `.mjs`, `.cjs` or `.ts` file runs under `node`.
///
/// # When the CLI ends
///
/// - [`Process::kill`], and dropping the [`Process`], send SIGKILL to the CLI, to its process group, and to every other
///   descendant that [`Command::containment`] finds. This works without a running runtime.
/// - When the host ends for whatever reason, even by SIGKILL, the system sends SIGTERM to the CLI on Linux and FreeBSD; on
///   other systems the guardian does. After [`Command::exit_after_host`] the guardian sends SIGKILL to what is left.
///
/// The CLI starts each command of its Bash tool in a session of its own, so the process group alone misses them:
/// [`Containment`](crate::options::Containment) says what each way of finding them misses.
///
/// # The guardian
///
/// The guardian is one small process for each host, whatever the number of sessions: the host's own program if
/// [`guardian::init`](crate::guardian::init) was called, else a `/bin/sh` with a short script. It is started before the first CLI,
/// waits for the end of the host, and kills what the host has left. A host that waits for *all* its children waits for ever.
///
/// # Requirements
///
/// A Tokio runtime with IO enabled, and two threads for the whole host, which sleep most of the time and belong to no runtime. The
/// crate `greenroom-process` does all this for any program, and documents it.
#[derive(Clone, Debug, Default)]
pub struct ChildProcess {
    _room_to_grow: (),
}

impl ChildProcess {
    /// The transport. It has no settings of its own: all of them are in the [`Launch`].
    pub fn new() -> Self {
        Self::default()
    }
}

impl Transport for ChildProcess {
    /// Fails with [`ErrorKind::CliNotFound`] if there is no executable, with [`ErrorKind::CliNotExecutable`],
    /// [`ErrorKind::NoResources`] or [`ErrorKind::NoGuardian`], and with [`ErrorKind::Spawn`] if it cannot be started for
    /// another reason.
    fn open(&self, launch: Launch) -> BoxFuture<'static, Result<Connection>> {
        Box::pin(async move {
            let script = Arc::new(OnceLock::new());
            let found = script.clone();
            let Child { stdin, stdout, process, .. } =
                greenroom_process::spawn(move || command(launch, &found)).await?;
            Ok(Connection {
                reader: Box::new(stdout),
                writer: Box::new(stdin),
                process: Box::new(CliProcess { process, script: script.get().cloned() }),
            })
        })
    }
}

/// Finds the executable. Tells the CLI, if it is a script that a runtime runs.
fn command(launch: Launch, found: &OnceLock<PathBuf>) -> Result<Command> {
    let path = launch.command.env.get("PATH").map(AsRef::as_ref);
    let Located { program, script } =
        locate(launch.program.as_deref(), launch.runtime.as_deref(), path, &ThisMachine)?;
    let mut command = launch.command;
    command.program = program;
    if let Some(script) = script {
        command.args.extend(launch.runtime_args.into_iter().map(Into::into));
        command.args.push(script.clone().into());
        // Set once.
        found.set(script).ok();
    }
    command.args.extend(launch.args.into_iter().map(Into::into));
    Ok(command)
}

impl From<greenroom_process::Error> for Error {
    fn from(error: greenroom_process::Error) -> Self {
        let kind = match error.kind() {
            greenroom_process::ErrorKind::NotFound => ErrorKind::CliNotFound,
            greenroom_process::ErrorKind::NotExecutable => ErrorKind::CliNotExecutable,
            greenroom_process::ErrorKind::NoResources => ErrorKind::NoResources,
            greenroom_process::ErrorKind::NoGuardian => ErrorKind::NoGuardian,
            _ => ErrorKind::Spawn,
        };
        let mut cli = Error::new(kind, error.message());
        if let Some(help) = error.help() {
            cli = cli.with_help(help);
        }
        match error.into_source() {
            Some(source) => cli.with_source(source),
            None => cli,
        }
    }
}

struct CliProcess {
    process: greenroom_process::Process,
    /// The CLI, if it is a script that a runtime runs.
    script: Option<PathBuf>,
}

impl Process for CliProcess {
    fn pid(&self) -> Option<u32> {
        Some(self.process.pid())
    }

    fn wait(&mut self) -> BoxFuture<'_, Exit> {
        Box::pin(self.process.wait())
    }

    fn terminate(&mut self) {
        self.process.terminate();
    }

    fn kill(&mut self) {
        self.process.kill();
    }

    fn program(&self) -> Option<&Path> {
        Some(self.script.as_deref().unwrap_or(self.process.program()))
    }

    fn contained_by(&self) -> Option<ContainedBy> {
        Some(self.process.contained_by())
    }

    fn identity(&self) -> Option<ProcessIdentity> {
        Some(self.process.identity().clone())
    }

    fn cleared(&mut self) -> BoxFuture<'_, Vec<Leftover>> {
        Box::pin(self.process.cleared())
    }

    fn left(&self) -> Leftovers {
        let (pid, left) = (self.process.pid(), self.process.left());
        Leftovers::new(move || {
            let mut left = left()?;
            left.iter_mut()
                .filter(|left| left.pid == pid)
                .for_each(|cli| "the CLI".clone_into(&mut cli.name));
            Some(left)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn executable(path: &Path, text: &str) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn arguments(command: &Command) -> Vec<&str> {
        command.args.iter().map(|arg| arg.to_str().unwrap()).collect()
    }

    #[test]
    fn the_cli_is_searched_on_the_path_that_it_will_have() {
        let folder = tempfile::tempdir().unwrap();
        executable(&folder.path().join("claude"), "#!/bin/sh\n");
        let mut launch = Launch::new(1);
        launch.command.env.insert("PATH".into(), folder.path().to_str().unwrap().into());
        launch.args = vec!["--verbose".into(), "--x=a b".into()];
        let script = OnceLock::new();
        let command = command(launch, &script).unwrap();
        assert_eq!(command.program, folder.path().join("claude"));
        assert_eq!(arguments(&command), ["--verbose", "--x=a b"]);
        assert_eq!(script.get(), None);
    }

    #[test]
    fn a_script_runs_under_its_runtime_with_the_runtimes_arguments_first() {
        let folder = tempfile::tempdir().unwrap();
        let (runtime, cli) = (folder.path().join("bun"), folder.path().join("cli.js"));
        executable(&runtime, "#!/bin/sh\n");
        std::fs::write(&cli, "").unwrap();
        let mut launch = Launch::new(1);
        (launch.program, launch.runtime) = (Some(cli.clone()), Some(runtime.clone()));
        (launch.runtime_args, launch.args) = (vec!["--smol".into()], vec!["--verbose".into()]);
        let script = OnceLock::new();
        let command = command(launch, &script).unwrap();
        assert_eq!(command.program, runtime);
        assert_eq!(arguments(&command), ["--smol", cli.to_str().unwrap(), "--verbose"]);
        assert_eq!(script.get(), Some(&cli));
    }

    #[test]
    fn everything_of_a_launch_is_in_the_command() {
        let lines = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = lines.clone();
        let mut launch = Launch::new(1);
        launch.program = Some("/bin/sh".into());
        launch.command.env.insert("A".into(), "b".into());
        (launch.command.inherit_env, launch.command.unset_env) = (false, vec!["C".into()]);
        (launch.command.user, launch.command.cwd) =
            (Some(crate::options::OsUser::new(1, 2)), Some("/tmp".into()));
        launch.command.containment = crate::options::Containment::Mark;
        launch.command.exit_after_host = std::time::Duration::from_secs(7);
        launch.command.watchdog = Some(crate::guardian::Watchdog::without_deadline());
        launch.command.stderr = Arc::new(move |line| seen.lock().unwrap().push(line.to_owned()));
        launch.command.stderr_line_bytes = 9;
        let command = command(launch, &OnceLock::new()).unwrap();
        (command.stderr)("said");
        assert_eq!(*lines.lock().unwrap(), ["said"]);
        assert_eq!(command.env, [("A".to_owned(), "b".to_owned())].into());
        assert!(!command.inherit_env && command.unset_env == ["C"] && command.watchdog.is_some());
        assert_eq!(command.user, Some(crate::options::OsUser::new(1, 2)));
        assert_eq!(command.cwd, Some("/tmp".into()));
        assert_eq!(command.containment, crate::options::Containment::Mark);
        assert_eq!((command.exit_after_host.as_secs(), command.stderr_line_bytes), (7, 9));
    }

    #[tokio::test]
    async fn an_error_of_the_start_keeps_its_kind_and_its_help() {
        let mut launch = Launch::new(1);
        launch.program = Some("/bin/sh".into());
        launch.command.cwd = Some("/no/such/folder".into());
        let error = ChildProcess::new().open(launch).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Spawn);
        assert!(
            error.to_string().contains("the working directory '/no/such/folder' does not exist"),
            "{error}"
        );
        assert!(error.help().is_some() && std::error::Error::source(&error).is_some());
    }

    #[test]
    fn a_file_that_is_not_executable_is_no_cli() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut launch = Launch::new(1);
        launch.program = Some(file.path().to_owned());
        let error = command(launch, &OnceLock::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CliNotFound);
        assert!(error.to_string().contains("is not executable"), "{error}");
    }
}
