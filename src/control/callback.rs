//! Answer elicitations, dialogs and inquiries; the context and the return type of all callbacks other than tools.
//!
//! [`hook`](crate::hook) and [`permission`](crate::permission) hold the types of hooks and permissions.

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub use super::elicitation::{
    DialogAnswer, DialogRequest, ElicitationAnswer, ElicitationMode, ElicitationRequest,
};
pub use super::inquiry::{Inquiry, InquiryAnswer};
pub use super::lazy::LazyValue;
use crate::identity::{Identity, TestSession, identity_methods};

/// Context of a callback: which request it handles, the session with the application's data, and whether anybody still
/// waits for the answer.
///
/// ```
/// use greenroom::callback::CallbackContext;
/// use greenroom::{PermissionDecision, PermissionRequest};
///
/// async fn ask(request: PermissionRequest, cx: CallbackContext) -> PermissionDecision {
///     tokio::select! {
///         () = cx.cancelled() => PermissionDecision::deny("withdrawn"),
///         () = std::future::ready(()) => PermissionDecision::allow(),
///     }
/// }
/// # let _ = ask;
/// ```
#[derive(Clone, Debug)]
pub struct CallbackContext {
    pub(crate) request_id: String,
    pub(crate) tool_use_id: Option<String>,
    pub(crate) agent_id: Option<String>,
    pub(crate) cancel: CancellationToken,
    pub(crate) identity: Arc<dyn Identity>,
}

impl CallbackContext {
    /// A context without a session, to call a handler directly in a unit test.
    pub fn detached() -> Self {
        Self::detached_in(TestSession::new())
    }

    /// [`detached`](CallbackContext::detached) for a handler that looks at its session: with data, or an id.
    pub fn detached_in(session: TestSession) -> Self {
        Self {
            request_id: "detached".into(),
            tool_use_id: None,
            agent_id: None,
            cancel: CancellationToken::new(),
            identity: Arc::new(session),
        }
    }

    /// The id of the control request.
    pub fn request_id(&self) -> &str {
        &self.request_id
    }

    identity_methods!(self => self.identity);

    /// The id of the model's tool use, if the request is about a tool call.
    pub fn tool_use_id(&self) -> Option<&str> {
        self.tool_use_id.as_deref()
    }

    /// The id of the subagent that asks for a permission. `None` for the main thread, and for other requests.
    pub fn agent_id(&self) -> Option<&str> {
        self.agent_id.as_deref()
    }

    /// The token that is cancelled when the request was withdrawn, timed out, or lost its CLI.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Resolves when [`cancellation`](CallbackContext::cancellation) is cancelled.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }
}

/// The return type of a callback: an answer, or a `Result` of an answer.
///
/// An error emits [`Event::CallbackFailed`](crate::Event::CallbackFailed), and the CLI gets the answer for a failed
/// handler:
///
/// | handler | answer |
/// |---|---|
/// | permission, question | denied, with the text of the error |
/// | hook | by its [`OnFailure`](crate::hook::OnFailure): by default a hook that can forbid something forbids it |
/// | elicitation | `cancel` |
/// | dialog | `cancelled` |
/// | inquiry | that of the request which it is about |
///
/// ```
/// use greenroom::{PermissionDecision, Session};
///
/// let builder = Session::builder().can_use_tool(async |request, _cx| {
///     let policy = std::fs::read_to_string("policy.txt")?;
///     let known = policy.lines().any(|line| line == request.tool_name);
///     Ok::<_, std::io::Error>(if known { PermissionDecision::allow() } else { PermissionDecision::deny("unknown") })
/// });
/// # let _ = builder;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no answer of this handler",
    label = "this handler has to return `{T}`",
    note = "return a `{T}`, or a `Result` of it whose error implements `Display`",
    note = "the methods of its type make it: `PermissionDecision::allow()`, and for a hook those of the type with the name of \
            the event, such as `hook::PreToolUseOutput::pass()`"
)]
pub trait IntoReply<T> {
    /// The answer, or the text of the error.
    #[doc(hidden)]
    fn into_reply(self) -> Result<T, String>;
}

impl<T> IntoReply<T> for T {
    fn into_reply(self) -> Result<T, String> {
        Ok(self)
    }
}

impl<T, E: fmt::Display> IntoReply<T> for Result<T, E> {
    fn into_reply(self) -> Result<T, String> {
        // The alternate form prints the whole chain of causes of an `anyhow::Error`.
        self.map_err(|error| format!("{error:#}"))
    }
}
