//! What a handler gets beside its arguments.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cancel::Cancel;
use super::handle::ServerHandle;
use super::peer::{Alone, Caller, RequestError};
use crate::wire::rpc::CallMeta;

/// What a handler gets beside its arguments: the server's state, who asks, how long it may take, and ways to speak
/// while it works. Cheap to clone.
///
/// ```
/// use greenroom::{NoArgs, ToolContext, ToolServer};
///
/// struct App { user: String }
///
/// let server: ToolServer = ToolServer::new("account", "1.0.0")
///     .tool("whoami", "Who is asking", |_: NoArgs, cx: ToolContext<App>| async move { cx.state().user.clone() })
///     .state(|| App { user: "ada".into() });
/// # let _ = server;
/// ```
pub struct ToolContext<S = ()> {
    state: Arc<S>,
    call: Arc<Call>,
}

impl<S> Clone for ToolContext<S> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), call: self.call.clone() }
    }
}

/// One call, as everything but its state.
pub(crate) struct Call<C: ?Sized = dyn Caller> {
    /// What it is about, where its head does not say.
    pub(crate) named: Option<Named>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) caller: C,
}

/// What a request is about that is not plainly a tool call.
pub(crate) struct Named {
    pub(crate) subject: String,
    pub(crate) tool_use_id: Option<String>,
    pub(crate) progress_token: Option<Box<RawValue>>,
}

impl Named {
    pub(crate) fn new(subject: String, meta: CallMeta) -> Self {
        Self { subject, tool_use_id: meta.tool_use_id, progress_token: meta.progress_token }
    }
}

impl<C: Caller + ?Sized> Call<C> {
    /// The tool; or the prompt, or the URI of the resource.
    pub(crate) fn subject(&self) -> &str {
        match &self.named {
            Some(named) => &named.subject,
            None => self.caller.head().tool().unwrap_or_default(),
        }
    }

    pub(crate) fn request_id(&self) -> &str {
        self.caller.head().request_id()
    }

    pub(crate) fn tool_use_id(&self) -> Option<&str> {
        match &self.named {
            Some(named) => named.tool_use_id.as_deref(),
            None => self.caller.head().tool_use_id(),
        }
    }

    /// As it came, if the CLI wants to hear of progress.
    pub(crate) fn progress_token(&self) -> Option<&RawValue> {
        match &self.named {
            Some(named) => named.progress_token.as_deref(),
            // It was JSON when it came.
            None => serde_json::from_str(self.caller.head().progress_token()?).ok(),
        }
    }

    pub(crate) fn cancel(&self) -> &Cancel {
        self.caller.cancel()
    }
}

/// The parameters of `notifications/progress`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Progress<'a> {
    progress_token: &'a RawValue,
    progress: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

impl<S> ToolContext<S> {
    pub(crate) fn new(state: Arc<S>, call: Arc<Call>) -> Self {
        Self { state, call }
    }

    /// A context without a session, to call a handler directly in a unit test. Progress and log go nowhere.
    ///
    /// ```
    /// use greenroom::ToolContext;
    ///
    /// async fn greet(cx: ToolContext<String>) -> String {
    ///     format!("hello {}", cx.state())
    /// }
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// assert_eq!(greet(ToolContext::detached("ada".to_string())).await, "hello ada");
    /// # });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn detached(state: S) -> Self {
        let caller = Alone::new("detached", "detached", "detached", Arc::default());
        let call = Call { named: None, deadline: None, caller };
        Self::new(Arc::new(state), Arc::new(call))
    }

    /// The server's state. It lives as long as the server's actor: a restart makes a new one.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// The same, shared.
    pub fn shared_state(&self) -> Arc<S> {
        self.state.clone()
    }

    /// The name of the server.
    pub fn server(&self) -> &str {
        self.call.caller.server_name()
    }

    /// The name of the tool; for a handler of something else, the name of the prompt or the URI of the resource.
    pub fn tool(&self) -> &str {
        self.call.subject()
    }

    /// The id of the control request that this call came in: unique among those in flight.
    pub fn request_id(&self) -> &str {
        self.call.request_id()
    }

    /// The id of the model's tool use, which is also in the messages. The CLI sends it with every call that the
    /// model makes.
    pub fn tool_use_id(&self) -> Option<&str> {
        self.call.tool_use_id()
    }

    /// When the call times out, if it does. It is then answered for, and
    /// [`cancelled`](ToolContext::cancelled) fires.
    pub fn deadline(&self) -> Option<Instant> {
        self.call.deadline
    }

    /// How often this server has been started in this session, counted from 1: above that, the state is not the
    /// one of the session's start.
    pub fn generation(&self) -> u32 {
        self.call.caller.generation()
    }

    /// The token that is cancelled when nobody waits for the answer any more: the call was cancelled or timed out,
    /// the turn was interrupted, or the CLI died. The handler may then clean up for
    /// [`Timeouts::cancel_grace`](crate::Timeouts::cancel_grace) before it is dropped at its next `await`. A server that
    /// ends because too many of its calls panicked takes its other handlers with it at once.
    pub fn cancellation(&self) -> &CancellationToken {
        self.call.cancel().token()
    }

    /// Resolves when the call is cancelled. The short form of [`cancellation`](ToolContext::cancellation).
    pub async fn cancelled(&self) {
        self.call.cancel().token().cancelled().await;
    }

    /// Whether the call is cancelled. For handlers on the blocking lane, which cannot await.
    pub fn is_cancelled(&self) -> bool {
        self.call.cancel().is_cancelled()
    }

    /// Reports progress: how far, of how much if that is known, and in words. Waits when many notifications are
    /// queued ([`Limits::notifications_queued`](crate::Limits::notifications_queued)); does nothing if the CLI
    /// did not ask for progress.
    pub async fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let Some(token) = self.call.progress_token() else { return };
        // Echoed as it came, whatever number it is.
        let params = Progress { progress_token: token, progress, total, message };
        let Ok(params) = serde_json::value::to_raw_value(&params) else { return };
        self.call.caller.notify("notifications/progress", params).await;
    }

    /// Sends a log message to the CLI, unless it asked for more severe ones only. Waits like
    /// [`progress`](ToolContext::progress).
    pub async fn log(&self, level: LogLevel, data: impl Into<Value> + Send) {
        if !self.call.caller.log_level().lets(level) {
            return;
        }
        let params = json!({ "level": level, "logger": self.call.subject(), "data": data.into() });
        let Ok(params) = serde_json::value::to_raw_value(&params) else { return };
        self.call.caller.notify("notifications/message", params).await;
    }

    /// Sends any notification to the CLI. For what has no method of its own. Waits like
    /// [`progress`](ToolContext::progress); does nothing when `params` do not serialise.
    pub async fn notify(&self, method: &str, params: impl Serialize + Send) {
        if let Ok(params) = serde_json::value::to_raw_value(&params) {
            self.call.caller.notify(method, params).await;
        }
    }

    /// Asks the CLI something, as MCP lets a server ask its client: `roots/list`, `elicitation/create`,
    /// `sampling/createMessage`, `ping`. The answer comes within
    /// [`Timeouts::mcp_request`](crate::Timeouts::mcp_request); when the call is cancelled, when the CLI ends and when the
    /// server is restarted, the request ends with it.
    ///
    /// The CLI announces no capabilities to in-process servers. CLI 2.1.328 was seen to answer `ping`, and to refuse
    /// everything else with -32601.
    ///
    /// # Errors
    /// See [`RequestError`]: a refusal of the CLI comes with its code.
    pub async fn request(&self, method: &str, params: impl Serialize + Send) -> Result<Value, RequestError> {
        let params = serde_json::value::to_raw_value(&params)
            .map_err(|error| RequestError::Unserializable(error.to_string()))?;
        let answer = self.call.caller.request(method, params).await?;
        // It was read as JSON before.
        Ok(serde_json::from_str(answer.get()).unwrap_or_default())
    }

    /// A handle of the server that this handler belongs to, to change what it offers; `None` without a session.
    pub fn server_handle(&self) -> Option<ServerHandle> {
        self.call.caller.server()
    }
}

impl<S> Deref for ToolContext<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.state
    }
}

impl<S> fmt::Debug for ToolContext<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext")
            .field("server", &self.server())
            .field("tool", &self.tool())
            .field("request_id", &self.request_id())
            .field("tool_use_id", &self.tool_use_id())
            .finish_non_exhaustive()
    }
}

/// How severe a log message is, in MCP's words (those of syslog).
///
/// ```
/// assert!(greenroom::LogLevel::Error > greenroom::LogLevel::Info);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
#[allow(missing_docs)]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

/// The least severe level that the client wants (`logging/setLevel`). Default: all.
#[derive(Debug, Default)]
pub(crate) struct LevelFilter(AtomicU8);

impl LevelFilter {
    pub(crate) fn set(&self, level: LogLevel) {
        self.0.store(level as u8, Ordering::Relaxed);
    }

    /// All again.
    pub(crate) fn reset(&self) {
        self.set(LogLevel::Debug);
    }

    pub(crate) fn lets(&self, level: LogLevel) -> bool {
        level as u8 >= self.0.load(Ordering::Relaxed)
    }
}
