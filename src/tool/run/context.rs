//! The context of a handler: state, session, call and CLI.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cancel::Cancel;
use super::log_level::{LevelFilter, LogLevel};
use super::peer::{Alone, Request};
use crate::identity::{Identity, TestSession, identity_methods};
use crate::wire::rpc::CallMeta;

/// The context of a handler: the server's state, the session with the application's data, the call, its deadline and
/// cancellation, and the CLI to talk to. Cheap to clone.
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
    pub(crate) call: Arc<CallContext>,
}

impl<S> Clone for ToolContext<S> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), call: self.call.clone() }
    }
}

/// A [`ToolContext`] without the state.
pub(crate) struct CallContext {
    pub(crate) request: Arc<dyn Request>,
    pub(crate) link: Arc<Link>,
    /// Set when the request's ids do not have these fields.
    pub(crate) named: Option<Named>,
    pub(crate) deadline: Option<Instant>,
    /// Number of starts of the server before the handler got its state, from 1.
    pub(crate) generation: u32,
    /// Whether the handler is a tool, whose failures are results.
    pub(crate) is_tool: bool,
    /// Whether the handler blocks a thread, and so cannot be aborted.
    pub(crate) blocks: bool,
    /// Name for people, if it differs from the subject.
    pub(crate) label: Option<String>,
}

/// The server, for all its calls.
pub(crate) struct Link {
    pub(crate) server: String,
    pub(crate) log_level: Arc<LevelFilter>,
    pub(crate) identity: Arc<dyn Identity>,
    /// The [`ServerHandle`](crate::tool::ServerHandle), whose type lies above this module; `None` without a session.
    pub(crate) handle: Option<Box<dyn Any + Send + Sync>>,
}

/// Subject and `_meta` of a request that is not a plain tool call.
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

impl CallContext {
    /// The context of a tool that does not block, unless the caller changes it.
    pub(crate) fn new(
        request: Arc<dyn Request>,
        link: Arc<Link>,
        named: Option<Named>,
        deadline: Option<Instant>,
        generation: u32,
    ) -> Self {
        Self { request, link, named, deadline, generation, is_tool: true, blocks: false, label: None }
    }

    pub(crate) fn label(&self) -> &str {
        self.label.as_deref().unwrap_or_else(|| self.subject())
    }

    /// The name of the tool, or the URI of the resource.
    pub(crate) fn subject(&self) -> &str {
        match &self.named {
            Some(named) => &named.subject,
            None => self.request.ids().tool().unwrap_or_default(),
        }
    }

    pub(crate) fn request_id(&self) -> &str {
        self.request.ids().request_id()
    }

    pub(crate) fn tool_use_id(&self) -> Option<&str> {
        match &self.named {
            Some(named) => named.tool_use_id.as_deref(),
            None => self.request.ids().tool_use_id(),
        }
    }

    /// The raw token, if the CLI asked for progress.
    pub(crate) fn progress_token(&self) -> Option<&RawValue> {
        match &self.named {
            Some(named) => named.progress_token.as_deref(),
            // The token was JSON, so it parses.
            None => serde_json::from_str(self.request.ids().progress_token()?).ok(),
        }
    }

    pub(crate) fn cancel(&self) -> &Cancel {
        self.request.cancel()
    }

    pub(crate) async fn notify(&self, method: &str, params: Box<RawValue>) {
        self.request.notify(&self.link.server, method, params).await;
    }
}

/// The parameters of `notifications/progress`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProgressParams<'a> {
    progress_token: &'a RawValue,
    progress: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

impl<S> ToolContext<S> {
    pub(crate) fn new(state: Arc<S>, call: Arc<CallContext>) -> Self {
        Self { state, call }
    }

    /// A context without a session, to call a handler directly in a unit test. Notifications are dropped.
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
        Self::detached_in(state, TestSession::new())
    }

    /// [`detached`](ToolContext::detached) for a handler that looks at its session: with data, or an id.
    pub fn detached_in(state: S, session: TestSession) -> Self {
        let (log_level, identity) = (Arc::default(), Arc::new(session));
        let link = Link { server: "detached".into(), log_level, identity, handle: None };
        let request = Arc::new(Alone::new("detached", "detached"));
        let call = CallContext::new(request, Arc::new(link), None, None, 1);
        Self::new(Arc::new(state), Arc::new(call))
    }

    /// The server's state. A restart of the server makes a new one.
    pub fn state(&self) -> &S {
        &self.state
    }

    identity_methods!(self => &*self.call.link.identity);

    /// The name of the server.
    pub fn server(&self) -> &str {
        &self.call.link.server
    }

    /// The name of the tool, or the URI of the resource.
    pub fn tool(&self) -> &str {
        self.call.subject()
    }

    /// The id of the control request that carried the call: unique among the requests in flight.
    pub fn request_id(&self) -> &str {
        self.call.request_id()
    }

    /// The id of the model's tool use, as in the messages. The CLI sends it with every call of the model.
    pub fn tool_use_id(&self) -> Option<&str> {
        self.call.tool_use_id()
    }

    /// When the call times out. The session then answers the call, and cancels the handler.
    pub fn deadline(&self) -> Option<Instant> {
        self.call.deadline
    }

    /// Number of starts of this server in this session, from 1. Above 1 the state is not the first one.
    pub fn generation(&self) -> u32 {
        self.call.generation
    }

    /// The token that is cancelled when nobody waits for the answer: the call was cancelled or timed out, the turn was
    /// interrupted, or the CLI died. The handler then has
    /// [`Timeouts::cancel_grace`](crate::options::Timeouts::cancel_grace) to clean up before it is dropped at an
    /// `await`. When the server's actor fails, its handlers are dropped at once.
    pub fn cancellation(&self) -> &CancellationToken {
        self.call.cancel().token()
    }

    /// Resolves when [`cancellation`](ToolContext::cancellation) is cancelled.
    pub async fn cancelled(&self) {
        self.call.cancel().token().cancelled().await;
    }

    /// Whether the call is cancelled, for blocking handlers, which cannot await.
    pub fn is_cancelled(&self) -> bool {
        self.call.cancel().is_cancelled()
    }

    /// Reports progress: the amount done, the total if known, and a text. Waits while
    /// [`Limits::notifications_queued`](crate::options::Limits::notifications_queued) notifications are queued; does
    /// nothing if the CLI did not ask for progress.
    pub async fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let Some(token) = self.call.progress_token() else { return };
        // The token is echoed as raw JSON, because it may be any number.
        let params = ProgressParams { progress_token: token, progress, total, message };
        let Ok(params) = serde_json::value::to_raw_value(&params) else { return };
        self.call.notify("notifications/progress", params).await;
    }

    /// Sends a log message to the CLI, unless the CLI wants only more severe ones. Waits like
    /// [`progress`](ToolContext::progress).
    pub async fn log(&self, level: LogLevel, data: impl Into<Value> + Send) {
        if !self.call.link.log_level.lets(level) {
            return;
        }
        let params = json!({ "level": level, "logger": self.call.subject(), "data": data.into() });
        let Ok(params) = serde_json::value::to_raw_value(&params) else { return };
        self.call.notify("notifications/message", params).await;
    }

    /// Sends a notification that has no method here. Waits like [`progress`](ToolContext::progress); does nothing when
    /// `params` do not serialise.
    pub async fn notify(&self, method: &str, params: impl Serialize + Send) {
        if let Ok(params) = serde_json::value::to_raw_value(&params) {
            self.call.notify(method, params).await;
        }
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
