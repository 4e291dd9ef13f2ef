//! A scripted CLI that is a real process: the test binary itself, started once more.
//!
//! - `behaviour.rs`: how it misbehaves, as plain data
//! - `home.rs`: the folder by which the test and its processes know of each other
//! - `child.rs`: what runs in the process
//! - `system.rs`: what only a process can do

mod behaviour;
mod child;
mod home;
mod system;

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use greenroom::transport::{ChildProcess, Connection, Exit, Launch, Transport};
use greenroom::{Error, ErrorKind, Result};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use self::behaviour::{At, Behaviour, Deed, Start};
use self::home::{BEGINS, FakeHome, HOME, Plan};
use crate::cli::script::Script;

pub use child::main_if_asked;

/// The name of the test that [`fake_cli!`](crate::fake_cli) defines.
const TEST: &str = "greenroom_fake_cli";

/// A CLI together with its model, played from a [`Script`] by a real process: real pipes, signals and exit codes, and
/// as much misbehaviour as a test asks for.
///
/// No binary comes with it. The process is your own test binary, started once more to run nothing but the test that
/// [`fake_cli!`](crate::fake_cli) defines, which is the CLI then. So the test file needs that macro, once, at its top
/// level:
///
/// ```no_run
/// use greenroom_testkit::{FakeCli, ModelTurn, Script};
/// use greenroom::transport::Exit;
/// use greenroom::{NoArgs, Session, ToolServer};
///
/// greenroom_testkit::fake_cli!();
///
/// #[tokio::test]
/// async fn the_session_outlives_its_cli() -> greenroom::Result<()> {
///     let script = Script::new()
///         .turn(ModelTurn::new().call("mcp__clock__now", serde_json::json!({})))
///         .turn(ModelTurn::new().text("It is noon."));
///     // The first process dies on its first prompt; the second plays the script.
///     let cli = FakeCli::play(script).crash_on_prompt(1, Exit::Signal(9)).times(1);
///     let session = Session::builder()
///         .mcp_server(ToolServer::new("clock", "1.0.0").tool("now", "The time", async |_: NoArgs| "noon"))
///         .allow_server_tools("clock")
///         .transport(cli.transport())
///         .start()
///         .await?;
///     assert!(session.prompt("What time is it?").await?.outcome().await?.text().is_none());
///     let mut again = session.prompt("What time is it?").await?;
///     assert_eq!(again.outcome().await?.text(), Some("It is noon."));
///     assert_eq!((cli.incarnations(), cli.tool_results()), (2, vec!["noon".to_owned()]));
///     session.stop().await
/// }
/// # fn main() {}
/// ```
///
/// It plays what [`ScriptedCli`](crate::ScriptedCli) plays, by the same player, and the script goes on where
/// it was when a process follows another. Prompts and calls are counted from 1, anew in each process. Misbehaviours
/// combine. What a test harness writes of its own accord (`running 1 test`) does not reach the session.
///
/// It takes real time, so it does not go together with tokio's paused clock. What is said here to last for ever ends
/// after ten minutes, so that a test that fails leaves nothing behind for long.
#[derive(Clone)]
pub struct FakeCli {
    script: Script,
    old: bool,
    behaviour: Behaviour,
    times: Option<u64>,
    test: String,
    home: Arc<FakeHome>,
}

impl FakeCli {
    /// Plays a script, and behaves.
    ///
    /// # Panics
    /// When the system gives no temporary folder.
    pub fn play(script: Script) -> Self {
        let home = match FakeHome::new() {
            Ok(home) => Arc::new(home),
            Err(error) => panic!("no temporary folder for the fake CLI: {error}"),
        };
        Self { script, old: false, behaviour: Behaviour::default(), times: None, test: TEST.to_owned(), home }
    }

    /// The same as an older CLI, which knows in-process servers by `--mcp-config` only.
    pub fn play_old(script: Script) -> Self {
        Self { old: true, ..Self::play(script) }
    }

    /// Names the module in which [`fake_cli!`](crate::fake_cli) was written, if it is not the top level of the test
    /// file: `tests`, or `session::tests`.
    #[must_use]
    pub fn in_module(mut self, path: &str) -> Self {
        self.test = format!("{path}::{TEST}");
        self
    }

    /// Only the first `incarnations` processes misbehave; those after them behave.
    #[must_use]
    pub fn times(mut self, incarnations: u64) -> Self {
        self.times = Some(incarnations);
        self
    }

    /// Writes this line to stderr at its start.
    #[must_use]
    pub fn stderr(mut self, line: impl Into<String>) -> Self {
        self.behaviour.stderr.push(line.into());
        self
    }

    /// Writes that many bytes to stderr at its start, in lines of 80.
    #[must_use]
    pub fn flood_stderr(mut self, bytes: usize) -> Self {
        self.behaviour.flood_stderr = bytes;
        self
    }

    /// Writes this line to stderr and exits with this code before it reads anything.
    #[must_use]
    pub fn exit_at_start(self, code: i32, stderr: impl Into<String>) -> Self {
        self.start(Start::Exit(code)).stderr(stderr)
    }

    /// Writes lines that are no frames, slowly, for ever, and reads nothing.
    #[must_use]
    pub fn garbage(self) -> Self {
        self.start(Start::Garbage)
    }

    /// Never answers `initialize`.
    #[must_use]
    pub fn hang_initialize(self) -> Self {
        self.start(Start::HangInitialize)
    }

    /// Reads nothing more once it has read `initialize`, which it answers.
    #[must_use]
    pub fn stop_reading_after_initialize(mut self) -> Self {
        self.behaviour.stop_reading = true;
        self
    }

    /// Ignores SIGTERM, and the end of its stdin.
    #[must_use]
    pub fn ignore_sigterm(mut self) -> Self {
        self.behaviour.ignore_sigterm = true;
        self
    }

    /// Starts a process of its own that inherits stdin, stdout and stderr, ignores SIGTERM, and lives until someone
    /// kills it. [`gone`](FakeCli::gone) waits for it, too.
    #[must_use]
    pub fn fork_grandchild(mut self) -> Self {
        self.behaviour.fork = true;
        self
    }

    /// Exits with this code, instead of 0, when its stdin is closed.
    #[must_use]
    pub fn exit_code(mut self, code: i32) -> Self {
        self.behaviour.exit_code = code;
        self
    }

    /// Ends like this on its `n`-th prompt, after `system/init` and before the model is asked: the script's turn is
    /// still to be played.
    #[must_use]
    pub fn crash_on_prompt(self, n: u64, exit: Exit) -> Self {
        self.deed(At::Prompt(n), Deed::End(exit))
    }

    /// Ends like this when it has sent its `n`-th tool call.
    #[must_use]
    pub fn crash_in_call(self, n: u64, exit: Exit) -> Self {
        self.deed(At::Call(n), Deed::End(exit))
    }

    /// On its first prompt, after `system/init`, writes half a frame and exits.
    #[must_use]
    pub fn half_line_then_exit(self) -> Self {
        let half = r#"{"type":"assistant","message":{"role":"assis"#;
        self.deed(At::Prompt(1), Deed::Bytes(half.into())).deed(At::Prompt(1), Deed::End(Exit::Code(0)))
    }

    /// Closes its stdout on its first prompt, after `system/init`, and lives on.
    #[must_use]
    pub fn close_stdout(self) -> Self {
        self.deed(At::Prompt(1), Deed::CloseStdout)
    }

    /// On each prompt, after `system/init`, writes a message whose text is no UTF-8, and a line that is nothing at all.
    #[must_use]
    pub fn invalid_utf8(self) -> Self {
        let mut bytes = br#"{"type":"assistant","parent_tool_use_id":null,"message":{"id":"msg_broken","type":"message","role":"assistant","model":"scripted","content":[{"type":"text","text":"caf"#.to_vec();
        bytes.extend(b"\xE9 \xF0\x9F\x8E\"}]}}\n\xFF\xFE\n");
        self.deed(At::EachPrompt, Deed::Bytes(bytes))
    }

    /// On each prompt, after `system/init`, writes a message of an unknown type that is this many bytes long, its end
    /// not counted.
    #[must_use]
    pub fn long_line(self, bytes: usize) -> Self {
        self.deed(At::EachPrompt, Deed::LongLine(bytes))
    }

    /// On each prompt, after `system/init`, writes this line so many times. `{n}` in it is the number of the line,
    /// counted from 0.
    ///
    /// ```
    /// use greenroom_testkit::{FakeCli, Script};
    ///
    /// let asks = r#"{"type":"control_request","request_id":"flood_{n}","request":{"subtype":"of_another_age"}}"#;
    /// let cli = FakeCli::play(Script::new()).flood_stdout(asks, 100_000);
    /// # let _ = cli;
    /// ```
    #[must_use]
    pub fn flood_stdout(self, line: impl Into<String>, times: u64) -> Self {
        self.deed(At::EachPrompt, Deed::Flood { line: line.into(), times })
    }

    /// On each prompt, after `system/init`, answers and withdraws requests that nobody made.
    #[must_use]
    pub fn answer_nobody(self) -> Self {
        let bytes = concat!(
            r#"{"type":"control_response","response":{"subtype":"success","request_id":"nobody","response":{}}}"#,
            "\n",
            r#"{"type":"control_cancel_request","request_id":"nothing"}"#,
            "\n"
        );
        self.deed(At::EachPrompt, Deed::Bytes(bytes.into()))
    }

    /// Writes each of its control requests twice, under the same id.
    #[must_use]
    pub fn ask_twice(mut self) -> Self {
        self.behaviour.ask_twice = true;
        self
    }

    fn start(mut self, start: Start) -> Self {
        self.behaviour.start = Some(start);
        self
    }

    fn deed(mut self, at: At, deed: Deed) -> Self {
        self.behaviour.deeds.push((at, deed));
        self
    }

    /// The transport to give to a session. It starts what has been asked for up to now, whatever program the session
    /// names.
    pub fn transport(&self) -> FakeCliTransport {
        let plan = Plan {
            script: self.script.clone(),
            old: self.old,
            behaviour: self.behaviour.clone(),
            times: self.times,
        };
        FakeCliTransport { plan: Arc::new(plan), test: self.test.clone(), home: Arc::clone(&self.home) }
    }

    /// How many processes were started.
    pub fn incarnations(&self) -> u64 {
        self.home.incarnations()
    }

    /// The arguments of each process that was started, as the CLI would have got them.
    pub fn args(&self) -> Vec<Vec<String>> {
        self.home.args()
    }

    /// The texts of all tool results that the model has seen, in order; errors with `error: ` before them.
    pub fn tool_results(&self) -> Vec<String> {
        self.home.position().results
    }

    /// How many of the script's turns were played.
    pub fn turns_played(&self) -> usize {
        self.home.position().next
    }

    /// Waits until every process of this CLI is gone, those that it started among them. One that has only just been
    /// started, and has not said a word yet, is not waited for.
    pub async fn gone(&self) {
        self.home.gone().await;
    }
}

impl fmt::Debug for FakeCli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeCli").field("incarnations", &self.incarnations()).finish_non_exhaustive()
    }
}

/// Starts the processes of a [`FakeCli`]. Clones start processes of the same.
#[derive(Clone)]
pub struct FakeCliTransport {
    plan: Arc<Plan>,
    test: String,
    home: Arc<FakeHome>,
}

impl fmt::Debug for FakeCliTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeCliTransport").field("test", &self.test).finish_non_exhaustive()
    }
}

impl Transport for FakeCliTransport {
    fn open(&self, mut launch: Launch) -> BoxFuture<'static, Result<Connection>> {
        let this = self.clone();
        Box::pin(async move {
            let folder = this.home.announce(&this.plan, &launch).map_err(failed)?;
            launch.program = Some(std::env::current_exe().map_err(failed)?);
            launch.args = system::only_test(&this.test);
            launch.command.env.insert(HOME.to_owned(), folder.display().to_string());
            let mut connection = ChildProcess::new().open(launch).await?;
            connection.reader = after_the_harness(connection.reader, &this.test).await?;
            // The folder stays for as long as a process may look into it.
            Ok(connection.keeping(this.home))
        })
    }
}

/// What the CLI writes, without what the test harness has written before.
async fn after_the_harness(
    reader: Box<dyn AsyncRead + Send + Unpin>,
    test: &str,
) -> Result<Box<dyn AsyncRead + Send + Unpin>> {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while line.trim_ascii_end() != BEGINS.as_bytes() {
        line.clear();
        if reader.read_until(b'\n', &mut line).await.map_err(failed)? == 0 {
            let message = format!("this test binary has no test `{test}`, as which the fake CLI runs");
            let help = "write `greenroom_testkit::fake_cli!();` at the top level of the test file, or name its module with \
                        `FakeCli::in_module`";
            return Err(Error::new(ErrorKind::Spawn, message).with_help(help));
        }
    }
    Ok(Box::new(reader))
}

fn failed(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Spawn, format!("the fake CLI cannot be started: {error}")).with_source(error)
}

/// Defines the test as which a [`FakeCli`](crate::FakeCli) runs. Written once at the top level of a test file
/// (or in a module: [`FakeCli::in_module`](crate::FakeCli::in_module)); without it, a fake CLI does not start.
///
/// As a test it does nothing and passes.
#[macro_export]
macro_rules! fake_cli {
    () => {
        #[test]
        fn greenroom_fake_cli() {
            $crate::main_if_asked();
        }
    };
}
