//! Plays the CLI's side of a transcript back.

mod differ;
mod player;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use greenroom::transport::MemoryTransport;
use tokio_util::task::AbortOnDropHandle;

use self::player::ReplayPlayer;
use super::transcript::Transcript;
use crate::base::{lock, spawn};
use crate::cli::ScriptedCli;

/// A CLI that does what a recorded one did: a session that was recorded with the real CLI becomes an offline test.
///
/// Each incarnation of the session gets the next incarnation of the transcript. What the CLI wrote is written in the
/// recorded order; wherever the host had written something, the replay waits until the host of today writes the
/// corresponding frame: a control request of the same subtype, the answer to the same request of the CLI, the next
/// prompt. Ids that the host makes up (of its requests, of prompts) are rewritten in what the CLI says. No time is
/// spent between lines. Where the CLI crashed, it crashes again.
///
/// [`differences`](Replay::differences) lists what the host does differently: another result of a tool, another prompt,
/// a missing frame.
///
/// ```
/// use greenroom_testkit::{ModelTurn, Recorder, Replay, Script, ScriptedCli};
/// use greenroom::{NoArgs, Session, ToolServer};
///
/// fn clock(time: &'static str) -> ToolServer {
///     ToolServer::new("clock", "1.0.0").tool("now", "The time", move |_: NoArgs| async move { time })
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let cli = ScriptedCli::play(
/// #     Script::new()
/// #         .turn(ModelTurn::new().call("mcp__clock__now", serde_json::json!({})))
/// #         .turn(ModelTurn::new().text("It is noon.")),
/// # );
/// # let recorder = Recorder::around(cli.transport());
/// # let builder = Session::builder().mcp_server(clock("noon")).allow_server_tools("clock");
/// # let session = builder.transport(recorder.clone()).start().await?;
/// # session.prompt("What time is it?").await?.outcome().await?;
/// # session.stop().await?;
/// # let transcript = recorder.transcript();
/// // `transcript` was recorded, or read from a file.
/// let replay = Replay::of(&transcript);
/// let builder = Session::builder().mcp_server(clock("midnight")).allow_server_tools("clock");
/// let session = builder.transport(replay.transport()).start().await?;
/// let outcome = session.prompt("What time is it?").await?.outcome().await?;
/// assert_eq!(outcome.text(), Some("It is noon.")); // the CLI says what it said
/// session.stop().await?;
///
/// let differences = replay.differences(); // and the tool does not
/// assert!(differences[0].contains("midnight"), "{differences:?}");
/// # greenroom::Result::<()>::Ok(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Replay {
    transport: MemoryTransport,
    state: Arc<Mutex<State>>,
    _playing: AbortOnDropHandle<()>,
}

/// Progress of a replay, and its differences.
#[derive(Debug, Default)]
struct State {
    differences: Vec<String>,
    waiting_for: Option<String>,
    left: usize,
}

/// Default time limit for a frame of the host.
const PATIENCE: Duration = Duration::from_secs(60);

impl Replay {
    /// Plays this transcript. Must be called on a tokio runtime. A frame of the host that does not come within a
    /// minute, on the clock of tokio, ends the incarnation that waits for it.
    pub fn of(transcript: &Transcript) -> Self {
        Self::with_patience(transcript, PATIENCE)
    }

    /// A replay with this time limit for each frame of the host.
    pub fn with_patience(transcript: &Transcript, patience: Duration) -> Self {
        let (transport, mut listener) = ScriptedCli::by_hand();
        let state = Arc::new(Mutex::new(State { left: transcript.entries().len(), ..State::default() }));
        let (transcript, shared) = (transcript.clone(), state.clone());
        let playing = spawn(async move {
            for epoch in transcript.epochs() {
                let Some(end) = listener.try_accept().await else { return };
                let entries = transcript.entries().iter().filter(|entry| entry.epoch == epoch);
                ReplayPlayer::new(end, shared.clone(), patience).play(entries).await;
            }
            while let Some(end) = listener.try_accept().await {
                let epoch = end.launch().epoch;
                lock(&shared).differences.push(format!("incarnation {epoch} is not in the transcript"));
                drop(end);
            }
        });
        Self { transport, state, _playing: playing }
    }

    /// The transport to give to a session.
    pub fn transport(&self) -> MemoryTransport {
        self.transport.clone()
    }

    /// Differences between the host and the recording, in words. A redacted value equals any value.
    pub fn differences(&self) -> Vec<String> {
        lock(&self.state).differences.clone()
    }

    /// The frame of the host that the replay waits for now.
    pub fn waiting_for(&self) -> Option<String> {
        lock(&self.state).waiting_for.clone()
    }

    /// Whether the whole transcript was played.
    pub fn is_over(&self) -> bool {
        lock(&self.state).left == 0
    }

    /// Panics unless the whole transcript was played and the host did what was recorded.
    ///
    /// # Panics
    /// With the differences.
    pub fn assert_same(&self) {
        let state = lock(&self.state);
        assert!(
            state.differences.is_empty(),
            "the host did not do what was recorded:\n- {}",
            state.differences.join("\n- ")
        );
        let waiting = state.waiting_for.as_deref().unwrap_or("the next incarnation");
        assert!(
            state.left == 0,
            "{} entries of the transcript were not played: it waits for {waiting}",
            state.left
        );
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        f.debug_struct("Replay")
            .field("left", &state.left)
            .field("waiting_for", &state.waiting_for)
            .field("differences", &state.differences)
            .finish_non_exhaustive()
    }
}
