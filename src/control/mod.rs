//! What the CLI asks of the application besides tool calls, typed: permissions, hooks, elicitations, dialogs.
//!
//! A handler is an async closure. It runs as a task of its own under the session's callbacks actor, with the same
//! promises as a tool call: a panic is answered for, a limit is kept, a withdrawal reaches it.

pub(crate) mod dialog;
pub(crate) mod elicitation;
pub(crate) mod fields;
pub mod hook;
pub mod permission;

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

pub use dialog::{DialogAnswer, DialogRequest};
pub use elicitation::{ElicitationAnswer, ElicitationMode, ElicitationRequest};
pub use hook::{Hook, HookEvent, HookInput, HookOutput, OnFailure};
pub use permission::{PermissionDecision, PermissionRequest};

use permission::{Answers, Question};

/// What a callback gets beside its input.
///
/// ```
/// use greenroom::{CallbackContext, PermissionDecision, PermissionRequest};
///
/// async fn ask(request: PermissionRequest, cx: CallbackContext) -> PermissionDecision {
///     tokio::select! {
///         () = cx.cancelled() => PermissionDecision::deny("nobody waits any more"),
///         () = std::future::ready(()) => PermissionDecision::allow(),
///     }
/// }
/// # let _ = ask;
/// ```
#[derive(Clone, Debug)]
pub struct CallbackContext {
    pub(crate) request_id: String,
    pub(crate) session_id: Option<String>,
    pub(crate) tool_use_id: Option<String>,
    pub(crate) cancel: CancellationToken,
}

impl CallbackContext {
    /// A context without a session, to call a handler directly in a unit test.
    pub fn detached() -> Self {
        Self {
            request_id: "detached".into(),
            session_id: None,
            tool_use_id: None,
            cancel: CancellationToken::new(),
        }
    }

    /// The id of the control request.
    pub fn request_id(&self) -> &str {
        &self.request_id
    }

    /// The id of the conversation, as far as the CLI has named it: it does with its first turn.
    pub fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    /// The id of the model's tool use that the request is about, if it is about one.
    pub fn tool_use_id(&self) -> Option<&str> {
        self.tool_use_id.as_deref()
    }

    /// The token that is cancelled when nobody waits for the answer any more.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Resolves when nobody waits for the answer any more.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }
}

/// What a callback may return: its answer, or a `Result` of it.
///
/// An error stands for the answer that is given for a handler that fails, and is told as
/// [`Event::CallbackFailed`](crate::Event::CallbackFailed):
///
/// | handler | what the CLI is told |
/// |---|---|
/// | permission, question | denied, with the text of the error |
/// | hook | an error: what follows from it is the hook's [`OnFailure`] |
/// | elicitation | `cancel` |
/// | dialog | `cancelled` |
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
        // The alternate form: errors that keep a chain of causes tell all of it.
        self.map_err(|error| format!("{error:#}"))
    }
}

/// What came of a handler: its answer, or the text of its error.
pub(crate) type Replied<O> = Result<O, String>;

/// A handler, its types forgotten.
pub(crate) type Handler<I, O> =
    Arc<dyn Fn(I, CallbackContext) -> BoxFuture<'static, Replied<O>> + Send + Sync>;

/// All handlers of a session.
#[derive(Clone, Default)]
pub(crate) struct Handlers {
    pub(crate) permission: Option<Handler<PermissionRequest, PermissionDecision>>,
    pub(crate) question: Option<Handler<Vec<Question>, Answers>>,
    pub(crate) hooks: Vec<Hook>,
    pub(crate) elicitation: Option<Handler<ElicitationRequest, ElicitationAnswer>>,
    pub(crate) dialog: Option<Handler<DialogRequest, DialogAnswer>>,
    pub(crate) dialog_kinds: Vec<String>,
}

impl Handlers {
    /// Whether the CLI is to ask the application for permissions.
    pub(crate) fn decide(&self) -> bool {
        self.permission.is_some() || self.question.is_some()
    }

    /// Whether dialogs of this kind are answered by the application.
    pub(crate) fn declare(&self, dialog_kind: Option<&str>) -> bool {
        self.dialog.is_some() && self.dialog_kinds.iter().any(|known| Some(known.as_str()) == dialog_kind)
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handlers").field("hooks", &self.hooks.len()).finish_non_exhaustive()
    }
}

/// Forgets the types of a handler.
pub(crate) fn erase<I, O, Fut>(
    handler: impl Fn(I, CallbackContext) -> Fut + Send + Sync + 'static,
) -> Handler<I, O>
where
    I: Send + 'static,
    Fut: Future<Output: IntoReply<O>> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |input, cx| {
        let handler = handler.clone();
        // The handler itself runs inside the future too, so that its panic is the future's.
        Box::pin(async move { handler(input, cx).await.into_reply() })
    })
}

/// The same for one whose input is read first, as part of its own task: how it is read may be the application's code.
pub(crate) fn erase_reading<I, O, Fut>(
    read: impl Fn(&RawValue) -> Result<I, String> + Send + Sync + 'static,
    handler: impl Fn(I, CallbackContext) -> Fut + Send + Sync + 'static,
) -> Handler<Box<RawValue>, O>
where
    I: Send + 'static,
    Fut: Future<Output: IntoReply<O>> + Send + 'static,
{
    let both = Arc::new((read, handler));
    Arc::new(move |raw, cx| {
        let both = both.clone();
        Box::pin(async move {
            let input = (both.0)(&raw)?;
            drop(raw);
            (both.1)(input, cx).await.into_reply()
        })
    })
}
