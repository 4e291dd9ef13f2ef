//! A Messages API on loopback that plays a [`Script`] to the real `claude` CLI.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::script::{Item, ModelError, ModelTurn, Script};
use crate::error::{Error, ErrorKind, Result};

/// The largest request body that [`ScriptedModel`] takes: 64 MiB. A larger one is not kept in memory, and is
/// answered with status 413.
pub const MAX_REQUEST_BYTES: usize = 64 * 1024 * 1024;

/// How long the acceptor waits after a failed `accept`, such as one for want of file descriptors.
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
/// use greenroom::testkit::{ModelTurn, Script, ScriptedModel};
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
///   conversation of a CLI that was started without any tools is no side call.
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
    /// other side traffic, and `NO_PROXY` in both spellings. Add a `HOME` of your own, so that the CLI reads
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

    /// How many side calls there were.
    pub fn side_requests(&self) -> usize {
        self.shared.played().side_calls
    }

    /// How many turns of the main conversation no request has taken yet.
    pub fn turns_left(&self) -> usize {
        self.shared.script.turns().len().saturating_sub(self.shared.played().main)
    }

    /// Waits until `count` requests have taken a turn since the start, and returns those that
    /// [`take_requests`](ScriptedModel::take_requests) has not forgotten.
    ///
    /// It waits for as long as it takes: put a time limit around it where they may not come.
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

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let played = self.shared.played();
        f.debug_struct("ScriptedModel")
            .field("url", &self.url())
            .field("turns", &self.shared.script.turns().len())
            .field("requests", &played.requests.len())
            .field("side_requests", &played.side_calls)
            .finish()
    }
}

/// A request that took a turn of the script, as the CLI sent it.
///
/// ```
/// use greenroom::testkit::{Script, ScriptedModel};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> greenroom::Result<()> {
/// let model = ScriptedModel::start(Script::new()).await?;
/// for request in model.requests() {
///     println!("{:?} was told {:?}", request.model(), request.last_user_text());
///     for result in request.tool_results() {
///         println!("{}: {}", result.tool_use_id, result.text);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ModelRequest {
    body: Arc<Value>,
    agent_id: Option<String>,
    session_id: Option<String>,
}

impl ModelRequest {
    fn new(headers: &HeaderMap, body: Value) -> Self {
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Self { body: Arc::new(body), agent_id: header(AGENT_ID), session_id: header(SESSION_ID) }
    }

    /// The whole JSON body.
    pub fn body(&self) -> &Value {
        &self.body
    }

    /// The id of the subagent that sent it; `None` for the main conversation.
    pub fn agent_id(&self) -> Option<&str> {
        self.agent_id.as_deref()
    }

    /// The session id of the CLI that sent it, where the CLI names one.
    pub fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    /// The model that was asked for.
    pub fn model(&self) -> Option<&str> {
        self.body["model"].as_str()
    }

    /// True when the answer is to be streamed.
    pub fn is_streaming(&self) -> bool {
        self.body["stream"].as_bool().unwrap_or(false)
    }

    /// The messages of the conversation so far. Besides `user` and `assistant`, the CLI sends messages with
    /// the role `system`, also after the last user message.
    pub fn messages(&self) -> &[Value] {
        array(&self.body["messages"])
    }

    /// The names of the tools that the model is told of. Deferred tools are not among them.
    pub fn tool_names(&self) -> Vec<&str> {
        array(&self.body["tools"]).iter().filter_map(|tool| tool["name"].as_str()).collect()
    }

    /// The tool results in the last user message, in order. Empty when the user said something else last.
    pub fn tool_results(&self) -> Vec<ToolResultSeen> {
        let last = self.user_messages().next();
        let blocks = last.map(|message| array(&message["content"])).unwrap_or_default();
        blocks.iter().filter(|block| block["type"] == "tool_result").map(ToolResultSeen::new).collect()
    }

    /// The last text of the user: of the newest user message that has one, the last text block. The reminders
    /// that the CLI adds (`<system-reminder>`) do not count.
    ///
    /// A prompt that arrives while a turn is running is no user message: CLI 2.1.328 tells the model of it in
    /// a message with the role `system`.
    pub fn last_user_text(&self) -> Option<&str> {
        self.user_messages().find_map(|message| {
            let texts = match &message["content"] {
                Value::String(text) => vec![text.as_str()],
                content => array(content).iter().filter_map(text_of).collect(),
            };
            texts.into_iter().rev().find(|text| !text.trim_start().starts_with("<system-reminder>"))
        })
    }

    /// The user messages, newest first.
    fn user_messages(&self) -> impl Iterator<Item = &Value> {
        self.messages().iter().rev().filter(|message| message["role"] == "user")
    }

    fn is_side_call(&self) -> bool {
        self.tool_names().is_empty()
            && self.body["thinking"].is_null()
            && self.body["context_management"].is_null()
    }
}

/// A tool result as the model sees it.
///
/// ```
/// use greenroom::testkit::ToolResultSeen;
/// use serde_json::json;
///
/// let seen: ToolResultSeen = serde_json::from_value(json!({
///     "tool_use_id": "toolu_script_0", "is_error": false, "text": "8",
///     "content": [{"type": "text", "text": "8"}],
/// }))?;
/// assert_eq!(seen.text, "8");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolResultSeen {
    /// Which call it answers.
    pub tool_use_id: String,
    /// Whether the tool failed.
    pub is_error: bool,
    /// The texts of the content, with a newline between them.
    pub text: String,
    /// The content as the CLI sent it: a list of blocks, or a string, as it is for errors.
    pub content: Value,
}

impl ToolResultSeen {
    fn new(block: &Value) -> Self {
        let content = &block["content"];
        let text = match content {
            Value::String(text) => text.clone(),
            content => array(content).iter().filter_map(text_of).collect::<Vec<_>>().join("\n"),
        };
        Self {
            tool_use_id: block["tool_use_id"].as_str().unwrap_or_default().to_owned(),
            is_error: block["is_error"].as_bool().unwrap_or(false),
            text,
            content: content.clone(),
        }
    }
}

/// The elements of an array; none for anything else.
fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text_of(block: &Value) -> Option<&str> {
    if block["type"] == "text" { block["text"].as_str() } else { None }
}

// The server

/// What the connections share.
struct Shared {
    script: Script,
    played: Mutex<Played>,
    /// How many requests have taken a turn.
    arrived: watch::Sender<usize>,
}

/// How far the script has been played.
#[derive(Default)]
struct Played {
    requests: Vec<ModelRequest>,
    /// How many of the requests came from the main conversation, and so the index of its next turn.
    main: usize,
    /// The same for subagents.
    agents: usize,
    side_calls: usize,
    /// How many answers there were, for the ids of messages.
    answers: u64,
}

impl Shared {
    fn played(&self) -> MutexGuard<'_, Played> {
        self.played.lock().unwrap_or_else(PoisonError::into_inner)
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
        let turn = if request.agent_id.is_some() {
            played.agents += 1;
            self.script.agent_turn_at(played.agents - 1)
        } else {
            played.main += 1;
            self.script.turn_at(played.main - 1)
        };
        played.requests.push(request.clone());
        // Under the lock, so that the count never runs ahead of what `requests` shows.
        self.arrived.send_modify(|arrived| *arrived += 1);
        (turn, number)
    }

    /// The answer to a side call: the text, or JSON when the call asks for that.
    fn side_turn(&self, request: &ModelRequest) -> ModelTurn {
        let text = self.script.side_text();
        let format = &request.body["output_config"]["format"];
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

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The part of the API that is here.
async fn answer(request: Request<Incoming>, shared: &Shared) -> Answer {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    match (&head.method, path) {
        (&Method::POST, "/v1/messages") => match read(body).await {
            Ok((body, _)) => messages(ModelRequest::new(&head.headers, body), shared).await,
            Err(answer) => answer,
        },
        (&Method::POST, "/v1/messages/count_tokens") => match read(body).await {
            Ok((_, bytes)) => json_answer(StatusCode::OK, &json!({"input_tokens": tokens(bytes)})),
            Err(answer) => answer,
        },
        (&Method::GET, "/v1/models") => {
            let model = model_info("claude-scripted");
            let id = &model["id"];
            json_answer(
                StatusCode::OK,
                &json!({"data": [model], "has_more": false, "first_id": id, "last_id": id}),
            )
        }
        (&Method::GET, path) if path.starts_with("/v1/models/") => {
            json_answer(StatusCode::OK, &model_info(path.trim_start_matches("/v1/models/")))
        }
        (method, path) => error_answer(
            StatusCode::NOT_FOUND,
            "not_found_error",
            &format!("the scripted model has no {method} {path}"),
        ),
    }
}

/// Answers a request for a message with what the script says.
async fn messages(request: ModelRequest, shared: &Shared) -> Answer {
    let (turn, number) = shared.take_turn(&request);
    debug!(number, agent = request.agent_id(), "the scripted model answers");
    if !turn.pause().is_zero() {
        sleep(turn.pause()).await;
    }
    if let Some(error) = turn.failure() {
        return failure(error);
    }
    let message = Message { turn: &turn, request: &request, id: format!("msg_script_{number}") };
    if request.is_streaming() {
        let events = Events { waiting: message.events().into(), gap: turn.gap(), pause: None };
        let mut answer = Response::new(events.boxed_unsync());
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        answer
    } else {
        json_answer(StatusCode::OK, &message.whole())
    }
}

/// Reads a JSON body; an error is the answer to give instead. Also says how many bytes it had.
async fn read(mut body: Incoming) -> Result<(Value, usize), Answer> {
    let mut bytes = Vec::new();
    let mut total = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| invalid_request(&format!("the body ended early: {error}")))?;
        let Some(data) = frame.data_ref() else { continue };
        total += data.len();
        // What is too much is read all the same and dropped: an answer in mid-request would be lost, because
        // closing a connection that has unread bytes resets it.
        if total <= MAX_REQUEST_BYTES {
            bytes.extend_from_slice(data);
        } else {
            bytes = Vec::new();
        }
    }
    if total > MAX_REQUEST_BYTES {
        let message =
            format!("{total} bytes are more than the {MAX_REQUEST_BYTES} that the scripted model takes");
        return Err(error_answer(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", &message));
    }
    match serde_json::from_slice(&bytes) {
        Ok(body) => Ok((body, total)),
        Err(error) => Err(invalid_request(&format!("the body is not JSON: {error}"))),
    }
}

fn model_info(id: &str) -> Value {
    json!({"type": "model", "id": id, "display_name": "Scripted model", "created_at": "2026-01-01T00:00:00Z"})
}

/// About as many tokens as `bytes` of JSON are, never none.
fn tokens(bytes: usize) -> usize {
    bytes / 4 + 1
}

fn failure(error: &ModelError) -> Answer {
    let status = match StatusCode::from_u16(error.status) {
        Ok(status) if status.is_client_error() || status.is_server_error() => status,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut answer = error_answer(status, &error.kind, &error.message);
    if let Some(should_retry) = error.should_retry {
        let value = HeaderValue::from_static(if should_retry { "true" } else { "false" });
        answer.headers_mut().insert("x-should-retry", value);
    }
    answer
}

fn invalid_request(message: &str) -> Answer {
    error_answer(StatusCode::BAD_REQUEST, "invalid_request_error", message)
}

fn error_answer(status: StatusCode, kind: &str, message: &str) -> Answer {
    json_answer(status, &json!({"type": "error", "error": {"type": kind, "message": message}}))
}

fn json_answer(status: StatusCode, body: &Value) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body.to_string())).boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

// The message

/// One message of the model, on its way out.
struct Message<'a> {
    turn: &'a ModelTurn,
    request: &'a ModelRequest,
    id: String,
}

impl Message<'_> {
    /// The message with all of its content, for an answer that is not streamed.
    fn whole(&self) -> Value {
        let content: Vec<Value> = self.turn.items().iter().map(whole_block).collect();
        self.envelope(content, Some(self.turn.stop_reason()), self.output_tokens())
    }

    /// The events of a streamed answer, each ready to be sent.
    fn events(&self) -> Vec<Bytes> {
        let mut events = vec![
            json!({"type": "message_start", "message": self.envelope(Vec::new(), None, 1)}),
            json!({"type": "ping"}),
        ];
        for (index, item) in self.turn.items().iter().enumerate() {
            let (start, deltas) = streamed_block(item);
            events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
            for delta in deltas {
                events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
            }
            events.push(json!({"type": "content_block_stop", "index": index}));
        }
        events.push(json!({
            "type": "message_delta",
            "delta": {"stop_reason": self.turn.stop_reason(), "stop_sequence": null},
            "usage": {"output_tokens": self.output_tokens()},
        }));
        events.push(json!({"type": "message_stop"}));
        events.iter().map(server_sent_event).collect()
    }

    fn envelope(&self, content: Vec<Value>, stop_reason: Option<&str>, output_tokens: usize) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.request.model().unwrap_or("claude-scripted"),
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": null,
            "usage": {
                "input_tokens": self.request.messages().len() * 10,
                "output_tokens": output_tokens,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
            },
        })
    }

    fn output_tokens(&self) -> usize {
        let bytes = self.turn.items().iter().map(|item| match item {
            Item::Text(text) | Item::Thinking(text) => text.len(),
            Item::Call { name, input, .. } => name.len() + input.to_string().len(),
        });
        tokens(bytes.sum())
    }
}

/// What a thinking block is signed with. Nobody checks it.
const SIGNATURE: &str = "c2NyaXB0ZWQ=";

fn whole_block(item: &Item) -> Value {
    match item {
        Item::Text(text) => json!({"type": "text", "text": text}),
        Item::Thinking(text) => json!({"type": "thinking", "thinking": text, "signature": SIGNATURE}),
        Item::Call { name, input, id } => json!({"type": "tool_use", "id": id, "name": name, "input": input}),
    }
}

/// The empty block that a stream begins with, and the deltas that fill it.
fn streamed_block(item: &Item) -> (Value, Vec<Value>) {
    match item {
        Item::Text(text) => (
            json!({"type": "text", "text": ""}),
            pieces(text).map(|piece| json!({"type": "text_delta", "text": piece})).collect(),
        ),
        Item::Thinking(text) => (
            json!({"type": "thinking", "thinking": "", "signature": ""}),
            pieces(text)
                .map(|piece| json!({"type": "thinking_delta", "thinking": piece}))
                .chain([json!({"type": "signature_delta", "signature": SIGNATURE})])
                .collect(),
        ),
        Item::Call { name, input, id } => (
            json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
            pieces(&input.to_string())
                .map(|piece| json!({"type": "input_json_delta", "partial_json": piece}))
                .collect(),
        ),
    }
}

/// Cuts a text into at most four pieces of whole characters; none for an empty text.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let size = text.len().div_ceil(4).max(1);
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, tail) = rest.split_at(rest.ceil_char_boundary(size));
        rest = tail;
        Some(piece)
    })
}

fn server_sent_event(event: &Value) -> Bytes {
    Bytes::from(format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default()))
}

/// The body of a streamed answer: its events, with a pause between them where the script wants one.
struct Events {
    waiting: VecDeque<Bytes>,
    gap: Duration,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(pause) = &mut self.pause {
            std::task::ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let event = self.waiting.pop_front();
        if event.is_some() && !self.waiting.is_empty() && !self.gap.is_zero() {
            self.pause = Some(Box::pin(sleep(self.gap)));
        }
        Poll::Ready(event.map(|event| Ok(Frame::data(event))))
    }

    fn is_end_stream(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Instant;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    /// An HTTP answer, read to the end of its connection.
    struct Got {
        status: u16,
        head: String,
        body: String,
    }

    impl Got {
        fn json(&self) -> Value {
            serde_json::from_str(&self.body).unwrap()
        }

        fn events(&self) -> Vec<Value> {
            assert!(self.head.contains("content-type: text/event-stream"), "{}", self.head);
            let blocks = self.body.split_terminator("\n\n").map(|block| {
                let (event, data) = block.split_once('\n').unwrap();
                let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
                assert_eq!(event, format!("event: {}", data["type"].as_str().unwrap()));
                data
            });
            blocks.collect()
        }
    }

    async fn connect(model: &ScriptedModel) -> TcpStream {
        TcpStream::connect(model.address).await.unwrap()
    }

    fn raw(method: &str, path: &str, headers: &str, body: &str) -> String {
        let length = body.len();
        format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
    }

    async fn read_answer(stream: &mut TcpStream) -> Got {
        let mut bytes = Vec::new();
        timeout(SOON, stream.read_to_end(&mut bytes)).await.unwrap().unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, mut rest) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut body = String::new();
        if head.contains("transfer-encoding: chunked") {
            loop {
                let (size, tail) = rest.split_once("\r\n").unwrap();
                let size = usize::from_str_radix(size, 16).unwrap();
                if size == 0 {
                    break;
                }
                body.push_str(&tail[..size]);
                rest = &tail[size + 2..];
            }
        } else {
            body.push_str(rest);
        }
        Got { status, head: head.to_owned(), body }
    }

    async fn send(model: &ScriptedModel, method: &str, path: &str, headers: &str, body: &str) -> Got {
        let mut stream = connect(model).await;
        let headers = format!("connection: close\r\n{headers}");
        stream.write_all(raw(method, path, &headers, body).as_bytes()).await.unwrap();
        read_answer(&mut stream).await
    }

    async fn post(model: &ScriptedModel, body: Value) -> Got {
        send(model, "POST", "/v1/messages?beta=true", "", &body.to_string()).await
    }

    /// A request in the shape of the main conversation.
    fn main_request(text: &str) -> Value {
        json!({
            "model": "claude-x",
            "tools": [{"name": "mcp__calc__add"}, {"name": "Read"}],
            "messages": [{"role": "user", "content": text}],
        })
    }

    fn streamed(mut request: Value) -> Value {
        request["stream"] = json!(true);
        request
    }

    async fn model(script: Script) -> ScriptedModel {
        ScriptedModel::start(script).await.unwrap()
    }

    /// Puts the content of a streamed answer together again.
    fn assemble(events: &[Value]) -> Vec<Value> {
        let mut blocks: Vec<Value> = Vec::new();
        let mut json_of_call = String::new();
        for event in events {
            match event["type"].as_str().unwrap() {
                "content_block_start" => {
                    assert_eq!(event["index"], blocks.len());
                    blocks.push(event["content_block"].clone());
                    json_of_call.clear();
                }
                "content_block_delta" => {
                    let (block, delta) = (blocks.last_mut().unwrap(), &event["delta"]);
                    let mut add = |name: &str| {
                        let longer =
                            format!("{}{}", block[name].as_str().unwrap(), delta[name].as_str().unwrap());
                        block[name] = json!(longer);
                    };
                    match delta["type"].as_str().unwrap() {
                        "text_delta" => add("text"),
                        "thinking_delta" => add("thinking"),
                        "signature_delta" => add("signature"),
                        "input_json_delta" => json_of_call += delta["partial_json"].as_str().unwrap(),
                        other => panic!("delta {other}"),
                    }
                }
                "content_block_stop" if !json_of_call.is_empty() => {
                    blocks.last_mut().unwrap()["input"] = serde_json::from_str(&json_of_call).unwrap();
                }
                _ => {}
            }
        }
        blocks
    }

    #[tokio::test]
    async fn a_turn_is_the_same_streamed_and_whole() {
        let turn = ModelTurn::new()
            .thinking("Hm, 漢字.")
            .text("Let me add: é ü — 🙂.")
            .text("")
            .call_with_id("toolu_a", "mcp__calc__add", json!({"a": 5, "b": [1, {"c": null}]}))
            .call_with_id("toolu_b", "Read", json!({}));
        let model = model(Script::new().repeat(2, turn)).await;

        let events = post(&model, streamed(main_request("add"))).await.events();
        let whole = post(&model, main_request("add")).await;

        assert_eq!(whole.status, 200);
        assert_eq!(Value::from(assemble(&events)), whole.json()["content"]);
        assert_eq!(whole.json()["stop_reason"], "tool_use");
        assert_eq!(whole.json()["model"], "claude-x");
        let texts = events.iter().filter(|event| event["delta"]["type"] == "text_delta").count();
        assert!(texts > 1, "a text is split over several deltas");
        let types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(types.first(), Some(&"message_start"));
        assert_eq!(types[types.len() - 2..], ["message_delta", "message_stop"]);
        assert_eq!(events[types.len() - 2]["delta"]["stop_reason"], "tool_use");
        assert_ne!(events[0]["message"]["id"], whole.json()["id"]);
        assert_eq!(whole.json()["content"][4]["input"], json!({}));
    }

    #[tokio::test]
    async fn each_main_request_takes_the_next_turn_and_is_recorded() {
        let script = Script::new().turn(ModelTurn::new().text("one")).turn(ModelTurn::new().text("two"));
        let model = model(script).await;
        assert_eq!(model.turns_left(), 2);
        let mut answers = Vec::new();
        for prompt in ["a", "b", "c"] {
            answers.push(post(&model, main_request(prompt)).await.json()["content"][0]["text"].clone());
        }
        assert_eq!(answers[..2], ["one", "two"]);
        assert!(answers[2].as_str().unwrap().contains("script is over"));
        assert_eq!(model.turns_left(), 0);
        let requests = model.requests();
        let seen: Vec<_> = requests.iter().filter_map(ModelRequest::last_user_text).collect();
        assert_eq!(seen, ["a", "b", "c"]);
        assert_eq!(requests[0].tool_names(), ["mcp__calc__add", "Read"]);
        assert_eq!(requests[0].model(), Some("claude-x"));
        assert!(!requests[0].is_streaming());
        assert_eq!(requests[1].body()["messages"][0]["content"], "b");

        // What is taken is forgotten, and counts all the same.
        assert_eq!(model.take_requests().len(), 3);
        assert!(timeout(SOON, model.wait_for_requests(3)).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn side_calls_take_no_turn() {
        let script = Script::new().turn(ModelTurn::new().text("main")).side_answer("A title");
        let model = model(script).await;
        let side = json!({"model": "m", "tools": [], "messages": [{"role": "user", "content": "title?"}]});
        assert_eq!(post(&model, side.clone()).await.json()["content"][0]["text"], "A title");
        let mut as_json = side.clone();
        as_json["output_config"] = json!({"format": {"type": "json_schema", "schema": {
            "type": "object", "properties": {"title": {"type": "string"}, "n": {"type": "number"}}}}});
        let answer = post(&model, as_json).await.json();
        assert_eq!(answer["content"][0]["text"], r#"{"title":"A title"}"#);
        assert_eq!((model.side_requests(), model.requests().len()), (2, 0));

        // A conversation without tools is none.
        let mut bare = side;
        bare["thinking"] = json!({"type": "adaptive"});
        assert_eq!(post(&model, bare).await.json()["content"][0]["text"], "main");
        assert_eq!((model.side_requests(), model.requests().len()), (2, 1));
    }

    #[tokio::test]
    async fn subagents_have_turns_of_their_own() {
        let script =
            Script::new().turn(ModelTurn::new().text("main")).agent_turn(ModelTurn::new().text("agent"));
        let model = model(script).await;
        let ids = "x-claude-code-agent-id: a1\r\nx-claude-code-session-id: s1\r\n";
        let body = main_request("count").to_string();
        let agent = send(&model, "POST", "/v1/messages", ids, &body).await;
        assert_eq!(agent.json()["content"][0]["text"], "agent");
        assert_eq!(post(&model, main_request("x")).await.json()["content"][0]["text"], "main");
        let requests = model.requests();
        assert_eq!((requests[0].agent_id(), requests[0].session_id()), (Some("a1"), Some("s1")));
        assert_eq!(requests[1].agent_id(), None);
    }

    #[tokio::test]
    async fn errors_have_the_shape_of_the_api() {
        let script = Script::new()
            .turn(ModelTurn::new().error(529, "overloaded_error", "busy"))
            .turn(ModelTurn::new().final_error(7, "api_error", "odd"))
            .turn(ModelTurn::new().text("recovered"));
        let model = model(script).await;
        let busy = post(&model, streamed(main_request("x"))).await;
        assert_eq!(busy.status, 529);
        let shape = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
        assert_eq!(busy.json(), shape);
        assert!(!busy.head.contains("x-should-retry"));
        let odd = post(&model, main_request("x")).await;
        assert_eq!(odd.status, 500);
        assert!(odd.head.contains("x-should-retry: false"));
        assert_eq!(post(&model, main_request("x")).await.json()["content"][0]["text"], "recovered");
    }

    #[tokio::test]
    async fn the_rest_of_the_api() {
        let model = model(Script::new()).await;
        let body = main_request("x").to_string();
        let count = send(&model, "POST", "/v1/messages/count_tokens?beta=true", "", &body).await;
        assert!(count.json()["input_tokens"].as_u64().unwrap() > 0);
        let models = send(&model, "GET", "/v1/models?limit=5", "", "").await.json();
        assert_eq!(models["data"][0]["id"], models["first_id"]);
        assert_eq!(send(&model, "GET", "/v1/models/claude-x", "", "").await.json()["id"], "claude-x");
        for (method, path) in [("GET", "/v1/messages"), ("POST", "/v1/complete"), ("DELETE", "/")] {
            let got = send(&model, method, path, "", "").await;
            assert_eq!((got.status, &got.json()["error"]["type"]), (404, &json!("not_found_error")));
        }
        let got = send(&model, "POST", "/v1/messages", "", "{nonsense").await;
        assert_eq!((got.status, &got.json()["error"]["type"]), (400, &json!("invalid_request_error")));
        assert!(model.requests().is_empty());
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused() {
        let model = model(Script::new()).await;
        let got = send(&model, "POST", "/v1/messages", "", &" ".repeat(MAX_REQUEST_BYTES + 1)).await;
        assert_eq!((got.status, &got.json()["error"]["type"]), (413, &json!("request_too_large")));
        assert!(model.requests().is_empty());
    }

    #[tokio::test]
    async fn waiting_for_requests_ends_when_they_have_come() {
        let model = model(Script::new()).await;
        assert!(model.wait_for_requests(0).await.is_empty());
        let both = async {
            post(&model, main_request("a")).await;
            post(&model, main_request("b")).await;
        };
        let (requests, ()) =
            timeout(SOON, async { tokio::join!(model.wait_for_requests(2), both) }).await.unwrap();
        assert_eq!(requests.len(), 2);
        assert_eq!(timeout(SOON, model.wait_for_requests(1)).await.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn pauses_hold_the_answer_back() {
        let pause = Duration::from_millis(20);
        let turn = ModelTurn::new().pause_before(pause).pause_between(pause).text("ab");
        let model = model(Script::new().turn(turn)).await;
        let start = Instant::now();
        let events = post(&model, streamed(main_request("x"))).await.events();
        assert!(start.elapsed() >= pause * u32::try_from(events.len()).unwrap());
        assert_eq!(assemble(&events)[0]["text"], "ab");
    }

    #[tokio::test]
    async fn a_client_that_hangs_up_in_mid_answer_leaves_nothing_behind() {
        let before = ModelTurn::new().pause_before(Duration::MAX).text("never");
        let between = ModelTurn::new().pause_between(Duration::MAX).text("hardly");
        let model = model(Script::new().turn(before).turn(between)).await;
        for count in [1, 2] {
            let mut stream = connect(&model).await;
            let body = streamed(main_request("x")).to_string();
            stream.write_all(raw("POST", "/v1/messages", "", &body).as_bytes()).await.unwrap();
            assert_eq!(timeout(SOON, model.wait_for_requests(count)).await.unwrap().len(), count);
        }
        let only_the_acceptor = async {
            while model.tasks.len() > 1 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(SOON, only_the_acceptor).await.unwrap();
        timeout(SOON, model.stop()).await.unwrap();
    }

    #[tokio::test]
    async fn dropping_the_model_closes_port_and_connections() {
        let model = model(Script::new().turn(ModelTurn::new().pause_before(Duration::MAX))).await;
        let mut waiting = connect(&model).await;
        let mut idle = connect(&model).await;
        let request = raw("POST", "/v1/messages", "", &main_request("x").to_string());
        waiting.write_all(request.as_bytes()).await.unwrap();
        timeout(SOON, model.wait_for_requests(1)).await.unwrap();
        let (address, tasks) = (model.address, model.tasks.clone());
        drop(model);
        tasks.close();
        timeout(SOON, tasks.wait()).await.unwrap();
        assert!(TcpStream::connect(address).await.is_err());
        for stream in [&mut waiting, &mut idle] {
            let mut rest = Vec::new();
            let read = timeout(SOON, stream.read_to_end(&mut rest)).await.unwrap();
            assert!(read.is_err() || rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
        }
    }

    #[test]
    fn what_the_user_said_is_found_among_what_the_cli_adds() {
        let request = |messages: Value| ModelRequest::new(&HeaderMap::new(), json!({"messages": messages}));
        let reminder = json!({"type": "text", "text": "<system-reminder>\nnever mind\n</system-reminder>"});
        let prompt =
            json!({"role": "user", "content": [reminder, {"type": "text", "text": "What is 5 + 3?"}]});
        let system = json!({"role": "system", "content": [{"type": "text", "text": "# Environment"}]});

        let first = request(json!([prompt, system]));
        assert_eq!(first.last_user_text(), Some("What is 5 + 3?"));
        assert!(first.tool_results().is_empty());

        let after_calls = request(
            json!([prompt, system, {"role": "assistant", "content": []}, {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a",
                "content": [{"type": "text", "text": "8"}, {"type": "image"}, {"type": "text", "text": "9"}]},
            {"type": "tool_result", "tool_use_id": "b", "content": "boom", "is_error": true},
        ]}, system]),
        );
        assert_eq!(after_calls.last_user_text(), Some("What is 5 + 3?"));
        let results = after_calls.tool_results();
        assert_eq!(
            (results[0].tool_use_id.as_str(), results[0].is_error, results[0].text.as_str()),
            ("a", false, "8\n9")
        );
        assert_eq!(
            (results[1].tool_use_id.as_str(), results[1].is_error, results[1].text.as_str()),
            ("b", true, "boom")
        );
        assert_eq!(results[0].content[1]["type"], "image");

        assert_eq!(request(json!([])).last_user_text(), None);
        assert_eq!(request(json!("nonsense")).last_user_text(), None);
    }

    #[test]
    fn pieces_keep_characters_whole() {
        for text in ["", "a", "ab", "漢字", "🙂🙂🙂", "a longer text, with é and ü"] {
            let all: Vec<&str> = pieces(text).collect();
            assert_eq!(all.concat(), text);
            assert!(all.len() <= 4 && all.iter().all(|piece| !piece.is_empty()), "{all:?}");
        }
    }
}
