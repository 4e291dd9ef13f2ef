//! A CLI that plays a script in memory.

pub(super) mod clis;
pub(super) mod hand;
pub(crate) mod model_turn;
pub(super) mod play;
pub(super) mod script;
pub(super) mod seen;
pub(super) mod usage;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use greenroom::testing::Delivered;
use greenroom::transport::{Exit, MemoryTransport, StderrSink, memory};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use self::hand::ScriptedListener;
use self::play::Player;
use self::script::Script;
use self::seen::{Seen, SeenState};
use crate::base::{lock, spawn};

/// A CLI together with its model, played from a [`Script`] over an in-memory transport: no process, no network, and
/// no time of its own, so that it works with tokio's paused clock.
///
/// Behaves to a host as the real CLI does: the handshake; permissions by rules, modes and `can_use_tool`; the hooks
/// `SessionStart`, `UserPromptSubmit`, `PreToolUse`, `PostToolUse`, `PostToolUseFailure` and `Stop`; calls one after
/// another unless their tools are read-only; servers and tools that come and go; the tools `ListMcpResourcesTool`,
/// `ReadMcpResourceTool`, `AskUserQuestion` and `StructuredOutput`;
/// partial messages; `interrupt`; `--resume`; what becomes of each prompt (`command_lifecycle`), and prompts that join
/// the running turn ([`Session::steer`](greenroom::Session::steer)); cost and usage of a conversation. It has no other tools of
/// its own. The script goes on where it was when a CLI is restarted, and a CLI that is started with `--resume`, `--continue`,
/// `--fork-session` or the id of a conversation goes on with that [conversation](ScriptedCli::conversation). It plays for one session at a time: another one that is started meanwhile
/// waits for its turn, up to [`Timeouts::start`](greenroom::options::Timeouts::start).
///
/// ```
/// use greenroom::{NoArgs, Session, ToolServer};
/// use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let clock = ToolServer::new("clock", "1.0.0").tool("now", "The time", async |_: NoArgs| "noon");
/// let cli = ScriptedCli::play(
///     Script::new()
///         .turn(ModelTurn::new().call("mcp__clock__now", serde_json::json!({})))
///         .turn(ModelTurn::new().text("It is noon.")),
/// );
/// let session = Session::builder()
///     .mcp_server(clock)
///     .allow_server_tools("clock")
///     .transport(cli.transport())
///     .start()
///     .await?;
/// let mut turn = session.prompt("What time is it?").await?;
/// assert_eq!(turn.outcome().await?.text(), Some("It is noon."));
/// assert_eq!(cli.tool_results(), ["noon"]);
/// session.stop().await?;
/// # greenroom::Result::<()>::Ok(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ScriptedCli {
    transport: MemoryTransport,
    seen: Seen,
    crash: watch::Sender<Exit>,
    /// The stderr of the CLI that is played at the moment.
    stderr: Arc<Mutex<Option<StderrSink>>>,
    _accepting: AbortOnDropHandle<()>,
}

impl ScriptedCli {
    /// Plays a script. Must be called on a tokio runtime.
    pub fn play(script: Script) -> Self {
        let (transport, mut listener) = Self::by_hand();
        let seen = Seen::new();
        let (crash, crashes) = watch::channel(Exit::Unknown);
        let shared = seen.clone();
        let script = Arc::new(script);
        let stderr = Arc::new(Mutex::new(None));
        let current = stderr.clone();
        let accepting = spawn(async move {
            while let Some(end) = listener.try_accept().await {
                *lock(&current) = Some(end.launch().command.stderr.clone());
                // Incarnations do not overlap: the host starts the next after this one has ended.
                Player::new(end, script.clone(), shared.clone()).run(crashes.clone()).await;
                *lock(&current) = None;
            }
        });
        Self { transport, seen, crash, stderr, _accepting: accepting }
    }

    /// A transport, and the CLI's end of it for the test itself to play.
    pub fn by_hand() -> (MemoryTransport, ScriptedListener) {
        let (transport, listener) = memory();
        (transport, ScriptedListener::new(listener))
    }

    /// The transport to give to a session.
    pub fn transport(&self) -> MemoryTransport {
        self.transport.clone()
    }

    /// Ends the CLI that is running, as a crash does.
    pub fn crash(&self, exit: Exit) {
        self.crash.send_replace(exit);
    }

    /// The texts of all tool results that the model has seen, in order; errors with `error: ` before them.
    pub fn tool_results(&self) -> Vec<String> {
        self.seen.look(|seen| seen.results.clone())
    }

    /// Number of the script's turns that were played.
    pub fn turns_played(&self) -> usize {
        self.seen.look(|seen| seen.turns)
    }

    /// The conversation of the last [launch](ScriptedCli::launches), as the model would read it, a line each. It begins
    /// with what the launch has resumed, so it shows whether a session remembers. A launch with another id, or with the
    /// id of a conversation that this `ScriptedCli` has not played, begins an empty conversation.
    ///
    /// | a line | is |
    /// |---|---|
    /// | `user: TEXT` | a prompt, in the form of [`prompts`](ScriptedCli::prompts), when its turn begins or it joins a turn |
    /// | `assistant: TEXT`, `thinking: TEXT` | a block of the model |
    /// | `call: TOOL ARGUMENTS` | a tool call, with its arguments as JSON |
    /// | `result: TEXT`, `error: TEXT` | the result of a call |
    ///
    /// ```
    /// use greenroom::Session;
    /// use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let text = |text: &str| ModelTurn::new().text(text);
    /// let cli = ScriptedCli::play(Script::new().turn(text("Hello, Ada.")).turn(text("Ada.")));
    /// let session = Session::builder().transport(cli.transport()).start().await?;
    /// session.prompt("I am Ada.").await?.outcome().await?;
    /// let id = session.session_id();
    /// session.stop().await?;
    ///
    /// let woken = Session::builder().configure(|options| options.resume = id).transport(cli.transport()).start().await?;
    /// woken.prompt("Who am I?").await?.outcome().await?;
    /// assert_eq!(
    ///     cli.conversation(),
    ///     ["user: I am Ada.", "assistant: Hello, Ada.", "user: Who am I?", "assistant: Ada."]
    /// );
    /// woken.stop().await?;
    /// # greenroom::Result::<()>::Ok(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn conversation(&self) -> Vec<String> {
        self.seen.look(|seen| seen.conversation().lines.clone())
    }

    /// The texts of all prompts that the CLI has read, in order and over all launches. The texts of a prompt are joined
    /// with line breaks, and `[image]` and the like stand for its other blocks. A prompt that was sent again after a
    /// crash is there twice.
    pub fn prompts(&self) -> Vec<String> {
        self.seen.look(prompts)
    }

    /// As [`prompts`](ScriptedCli::prompts), with a list for each [launch](ScriptedCli::launches).
    pub fn prompts_by_launch(&self) -> Vec<Vec<String>> {
        self.seen.look(|seen| seen.launches.iter().map(|launch| launch.prompts.clone()).collect())
    }

    /// Every launch of the CLI, in order: arguments, environment, working directory, and the fields of `initialize`.
    /// A restart adds a launch, and so does a further session. Secrets are as they are.
    ///
    /// ```
    /// use std::time::Duration;
    /// use greenroom::Session;
    /// use greenroom_testkit::{Script, ScriptedCli};
    /// use greenroom::transport::Exit;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let cli = ScriptedCli::play(Script::new());
    /// let session = Session::builder().model("haiku").env("TOKEN", "s3cret").transport(cli.transport()).start().await?;
    /// session.prompt("Hello").await?.outcome().await?;
    /// assert_eq!(cli.prompts(), ["Hello"]);
    ///
    /// cli.crash(Exit::Signal(9));
    /// let launches = cli.wait_for_launches(2, Duration::from_secs(60)).await;
    /// assert_eq!(launches[0].flag("model"), Some("haiku"));
    /// assert_eq!(launches[0].env["TOKEN"], "s3cret");
    /// assert_eq!(launches[0].initialize["subtype"], "initialize");
    /// assert_eq!(launches[1].flag("resume"), session.session_id().as_deref());
    /// session.stop().await?;
    /// # greenroom::Result::<()>::Ok(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn launches(&self) -> Vec<Delivered> {
        self.seen.look(|seen| seen.launches.iter().map(|launch| launch.delivered.clone()).collect())
    }

    /// Waits until the CLI has read this many prompts, and returns [all prompts](ScriptedCli::prompts).
    ///
    /// # Panics
    /// If they do not come within the limit, with those that came.
    pub async fn wait_for_prompts(&self, count: usize, limit: Duration) -> Vec<String> {
        self.seen.wait_for(count, "prompts", limit, prompts).await
    }

    /// Waits until the CLI was launched this many times and each launch was sent `initialize`. Returns those
    /// [launches](ScriptedCli::launches).
    ///
    /// # Panics
    /// If they do not come within the limit, with those that came.
    pub async fn wait_for_launches(&self, count: usize, limit: Duration) -> Vec<Delivered> {
        let told = |seen: &SeenState| {
            let launches = seen.launches.iter().map(|launch| &launch.delivered);
            launches.filter(|delivered| !delivered.initialize.is_null()).cloned().collect()
        };
        self.seen.wait_for(count, "launches", limit, told).await
    }

    /// Waits until the model has seen this many tool results, and returns [all results](ScriptedCli::tool_results).
    ///
    /// # Panics
    /// If they do not come within the limit, with those that came.
    pub async fn wait_for_tool_results(&self, count: usize, limit: Duration) -> Vec<String> {
        self.seen.wait_for(count, "tool results", limit, |seen| seen.results.clone()).await
    }
}

fn prompts(seen: &SeenState) -> Vec<String> {
    seen.launches.iter().flat_map(|launch| launch.prompts.iter().cloned()).collect()
}

impl Drop for ScriptedCli {
    /// Ends the CLI that is played, and tells the session why on its stderr.
    fn drop(&mut self) {
        let stderr = lock(&self.stderr).take();
        if let Some(stderr) = stderr {
            stderr(
                "the `ScriptedCli` was dropped before the session ended: keep the `ScriptedCli` in a variable until the \
                 session has stopped",
            );
        }
    }
}
