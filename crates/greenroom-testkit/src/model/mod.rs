//! A Messages API on loopback that plays a [`Script`] to the real `claude` CLI.

mod answer;
mod prefix;
mod request;
mod stream;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use greenroom::{Error, ErrorKind, Result};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use self::answer::answer;
use super::cli::model_turn::ModelTurn;
use super::cli::script::Script;
use super::cli::usage::Usage;
use crate::base::lock;

pub use self::prefix::PrefixChange;
pub use self::request::{ModelRequest, ToolResultSeen};

/// The largest request body that [`ScriptedModel`] takes: 64 MiB. A larger one is not kept in memory, and is
/// answered with status 413.
pub const MAX_REQUEST_BYTES: usize = 64 * 1024 * 1024;

/// Pause after a failed `accept`, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// The header with which the CLI marks the requests of a subagent.
const AGENT_ID: &str = "x-claude-code-agent-id";

/// The header with which the CLI names its session.
const SESSION_ID: &str = "x-claude-code-session-id";

/// A model that does what a [`Script`] says: a Messages API on a free port of 127.0.0.1, for the real CLI.
///
/// Give the CLI [`env`](ScriptedModel::env), a `HOME` of its own and nothing else, and it runs offline: the
/// script decides what it says and which tools it calls, and [`requests`](ScriptedModel::requests) shows what
/// the model was told.
///
/// ```
/// use greenroom_testkit::{ModelTurn, Script, ScriptedModel};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> greenroom::Result<()> {
/// let model = ScriptedModel::start(
///     Script::new()
///         .turn(ModelTurn::new().text("Let me add.").call("mcp__calc__add", json!({"a": 5, "b": 3})))
///         .turn(ModelTurn::new().text("5 + 3 is 8.")),
/// )
/// .await?;
///
/// assert!(model.url().starts_with("http://127.0.0.1:"));
/// assert_eq!(model.env()["ANTHROPIC_BASE_URL"], model.url());
/// assert!(model.requests().is_empty());
/// model.stop().await;
/// # Ok(())
/// # }
/// ```
///
/// # Which request takes a turn
///
/// - A request of the main conversation takes the next turn of the script when it arrives, even when the CLI
///   hangs up before it has the whole answer, as it does on an interrupt. One that the CLI sends again after
///   an error takes the turn after it.
/// - A request of a subagent (it carries the header `x-claude-code-agent-id`) takes the next
///   [`agent_turn`](Script::agent_turn).
/// - A side call, such as the one for a title, takes none, and is answered with [`Script::side_answer`]. A
///   request is a side call when it has neither tools, nor `thinking`, nor `context_management`: so the
///   conversation of a CLI that was started without any tools is no side call. A request for a prompt suggestion
///   (`Options::prompt_suggestions`) is a side call too, because the CLI sends it at any moment after a turn.
/// - `/compact` and the control request `side_question` go out in the shape of the main conversation, and
///   take a turn.
///
/// # What else it answers
///
/// `POST /v1/messages/count_tokens` with a number that grows with the request, `GET /v1/models` with one
/// model, and everything else with an error in the shape of the API. Nothing checks the API key.
///
/// # When it ends
///
/// Dropping it closes the port and every connection as soon as the runtime runs its tasks again;
/// [`stop`](ScriptedModel::stop) returns when nothing is left.
#[derive(Debug)]
pub struct ScriptedModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Ends the acceptor and the connections.
    stop: CancellationToken,
    /// The acceptor and the connections: all tasks there are.
    tasks: TaskTracker,
}

impl ScriptedModel {
    /// Listens on a free port of 127.0.0.1 and plays `script` from its first turn.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when it cannot listen there.
    ///
    /// # Panics
    /// Outside a tokio runtime, or in one without IO.
    pub async fn start(script: Script) -> Result<Self> {
        let listen = async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = listen.await.map_err(|error: std::io::Error| {
            Error::new(ErrorKind::Io, "the scripted model cannot listen on 127.0.0.1").with_source(error)
        })?;
        let model = Self {
            address,
            shared: Arc::new(Shared { script, played: Mutex::default(), arrived: watch::Sender::new(0) }),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let (shared, stop, tasks) = (model.shared.clone(), model.stop.clone(), model.tasks.clone());
        model.tasks.spawn(accept(listener, shared, stop, tasks));
        Ok(model)
    }

    /// Where it listens: `http://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The environment variables that make a CLI talk to this model and to nobody else.
    ///
    /// They hold: the address, an API key that is made up, the switches that turn off updates, telemetry and
    /// other side traffic, `NO_PROXY` in both spellings, and `TZ`: a time zone in which it is noon, because a CLI tells
    /// the model at midnight that the date has changed. Add a `HOME` of your own, so that the CLI reads
    /// no settings of the user, and start it without the rest of your environment: a variable such as
    /// `CLAUDE_CODE_USE_BEDROCK` would lead it elsewhere.
    pub fn env(&self) -> BTreeMap<String, String> {
        [
            ("ANTHROPIC_BASE_URL", self.url().as_str()),
            ("ANTHROPIC_API_KEY", "made-up-key-of-the-scripted-model"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("DISABLE_AUTOUPDATER", "1"),
            ("DISABLE_ERROR_REPORTING", "1"),
            ("DISABLE_TELEMETRY", "1"),
            ("TZ", noon().as_str()),
            ("NO_PROXY", "127.0.0.1,localhost"),
            ("no_proxy", "127.0.0.1,localhost"),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
    }

    /// The requests that took a turn, in the order in which they arrived; those of subagents are among them.
    ///
    /// Each holds the whole conversation up to it, and they are kept until
    /// [`take_requests`](ScriptedModel::take_requests).
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.shared.played().requests.clone()
    }

    /// Returns what [`requests`](ScriptedModel::requests) would, and forgets it: for long runs.
    pub fn take_requests(&self) -> Vec<ModelRequest> {
        std::mem::take(&mut self.shared.played().requests)
    }

    /// Number of side calls so far.
    pub fn side_requests(&self) -> usize {
        self.shared.played().side_calls
    }

    /// Number of turns left in the main conversation.
    pub fn turns_left(&self) -> usize {
        self.shared.script.turns.len().saturating_sub(self.shared.played().main)
    }

    /// Waits until `count` requests have taken a turn since the start, and returns those that
    /// [`take_requests`](ScriptedModel::take_requests) has not forgotten.
    ///
    /// Waits without a limit: wrap it in a timeout.
    pub async fn wait_for_requests(&self, count: usize) -> Vec<ModelRequest> {
        let mut arrived = self.shared.arrived.subscribe();
        if arrived.wait_for(|arrived| *arrived >= count).await.is_err() {
            // Cannot be: the sender is in `self.shared`.
            warn!("the scripted model lost count of its requests");
        }
        self.requests()
    }

    /// Closes the port and all connections, and returns when nothing is left of them.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// State shared by all connections.
#[derive(Debug)]
struct Shared {
    script: Script,
    played: Mutex<Played>,
    /// Number of requests that have taken a turn.
    arrived: watch::Sender<usize>,
}

/// Progress of the script.
#[derive(Debug, Default)]
struct Played {
    requests: Vec<ModelRequest>,
    /// Requests of the main conversation so far: the index of its next turn.
    main: usize,
    /// Requests of subagents so far: the index of their next turn.
    agents: usize,
    side_calls: usize,
    /// Answers so far; numbers the next message id.
    answers: u64,
}

impl Shared {
    fn played(&self) -> MutexGuard<'_, Played> {
        lock(&self.played)
    }

    /// Records a request and says what it is answered with, and under which number.
    fn take_turn(&self, request: &ModelRequest) -> (ModelTurn, u64) {
        let mut played = self.played();
        let number = played.answers;
        played.answers += 1;
        if request.is_side_call() {
            played.side_calls += 1;
            return (self.side_turn(request), number);
        }
        let turn = if request.agent_id().is_some() {
            played.agents += 1;
            self.script.agent_turn_at(played.agents - 1)
        } else {
            played.main += 1;
            self.script.turn_at(played.main - 1)
        };
        let usage = if turn.error.is_none() { stream::usage_of(&turn, request) } else { Usage::NOTHING };
        played.requests.push(request.clone().answered_with(usage));
        // Under the lock, so that the count never runs ahead of what `requests` shows.
        self.arrived.send_modify(|arrived| *arrived += 1);
        (turn, number)
    }

    /// The answer to a side call: the text, or JSON when the call asks for that.
    fn side_turn(&self, request: &ModelRequest) -> ModelTurn {
        let text = self.script.side_answer.as_str();
        let format = &request.body()["output_config"]["format"];
        if format["type"] != "json_schema" {
            return ModelTurn::new().text(text);
        }
        let properties = format["schema"]["properties"].as_object();
        let strings = properties.into_iter().flatten().filter(|(_, schema)| schema["type"] == "string");
        let object: serde_json::Map<String, Value> =
            strings.map(|(name, _)| (name.clone(), Value::from(text))).collect();
        ModelTurn::new().text(Value::Object(object).to_string())
    }
}

/// Takes connections until the model stops, and gives each its task.
async fn accept(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken, tasks: TaskTracker) {
    let accept_all = async {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    tasks.spawn(stop.clone().run_until_cancelled_owned(serve(stream, shared.clone())));
                }
                Err(error) => {
                    warn!(%error, "the scripted model could not accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    let Some(never) = stop.run_until_cancelled(accept_all).await else { return };
    match never {}
}

/// Serves one connection until its client closes it.
async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "a connection of the scripted model stays without TCP_NODELAY");
    }
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(answer(request, &shared).await) }
    });
    // A client that hangs up in mid-answer, as the CLI does on an interrupt, ends up here too.
    if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await {
        debug!(%error, "a connection of the scripted model ended early");
    }
}

/// The time zone in which it is about noon. The signs of these zones are reversed: `Etc/GMT-12` is 12 hours ahead.
fn noon() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let hour = i64::try_from(since.as_secs() / 3600 % 24).unwrap_or_default();
    format!("Etc/GMT{:+}", hour - 12)
}
