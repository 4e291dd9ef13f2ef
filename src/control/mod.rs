//! Requests of the CLI besides tool calls: permissions, hooks, elicitations, dialogs.
//!
//! A handler is an async closure. Each request runs as a task under the callbacks actor, with the promises of a tool
//! call: a panic and a timeout are answered, and a withdrawn request cancels its handler.

pub mod callback;
pub(crate) mod dialog;
pub(crate) mod elicitation;
pub(crate) mod fields;
pub mod hook;
pub mod permission;

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

pub(crate) use callback::{CallbackContext, IntoReply};
pub(crate) use dialog::{DialogAnswer, DialogRequest};
pub(crate) use elicitation::{ElicitationAnswer, ElicitationRequest};
pub(crate) use hook::{Hook, OnFailure};
use permission::{Answers, Question};
pub(crate) use permission::{PermissionDecision, PermissionRequest, Wired};

/// Result of a handler: its answer, or the text of its error.
pub(crate) type Replied<O> = Result<O, String>;

/// A type-erased handler.
pub(crate) type Handler<I, O> =
    Arc<dyn Fn(I, CallbackContext) -> BoxFuture<'static, Replied<O>> + Send + Sync>;

/// All handlers of a session.
#[derive(Clone, Default)]
pub(crate) struct CallbackHandlers {
    pub(crate) permission: Option<Handler<PermissionRequest, PermissionDecision>>,
    pub(crate) question: Option<Handler<Vec<Question>, Answers>>,
    pub(crate) hooks: Vec<Hook>,
    pub(crate) elicitation: Option<Handler<ElicitationRequest, ElicitationAnswer>>,
    pub(crate) dialog: Option<Handler<DialogRequest, DialogAnswer>>,
    pub(crate) dialog_kinds: Vec<String>,
}

impl CallbackHandlers {
    /// Whether the application decides about permissions.
    pub(crate) fn decide(&self) -> bool {
        self.permission.is_some() || self.question.is_some()
    }

    /// Whether the application answers dialogs of this kind.
    pub(crate) fn declare(&self, dialog_kind: Option<&str>) -> bool {
        self.dialog.is_some() && self.dialog_kinds.iter().any(|known| Some(known.as_str()) == dialog_kind)
    }
}

impl fmt::Debug for CallbackHandlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackHandlers").field("hooks", &self.hooks.len()).finish_non_exhaustive()
    }
}

/// Erases the types of a handler.
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
        // The closure runs inside the future, so that the future catches its panic.
        Box::pin(async move { handler(input, cx).await.into_reply() })
    })
}

/// [`erase`] for a handler whose input is read first, within the handler's task: reading may run the application's
/// code.
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
