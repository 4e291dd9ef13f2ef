//! Requests of the CLI besides tool calls: permissions, hooks, elicitations, dialogs.
//!
//! A handler is an async closure. Each request runs as a task under the callbacks actor, with the promises of a tool
//! call: a panic and a timeout are answered, and a withdrawn request cancels its handler.

pub(crate) mod asking;
pub mod callback;
pub(crate) mod elicitation;
pub(crate) mod fields;
pub mod hook;
pub(crate) mod inquiry;
pub(crate) mod lazy;
pub mod permission;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

pub(crate) use callback::{CallbackContext, IntoReply};
pub(crate) use elicitation::{DialogAnswer, DialogRequest, ElicitationAnswer, ElicitationRequest};
pub(crate) use hook::{Hook, OnFailure};
use inquiry::{Inquiry, InquiryAnswer};
use permission::{Answers, Question};
pub(crate) use permission::{PermissionDecision, PermissionRequest, Wired};

use crate::blocking::caught::DropElsewhere;

/// Result of a handler: its answer, or the text of its error.
pub(crate) type Replied<O> = Result<O, String>;

/// A type-erased handler.
pub(crate) type Handler<I, O> =
    Arc<dyn Fn(I, CallbackContext) -> BoxFuture<'static, Replied<O>> + Send + Sync>;

/// The handlers of a kind of dialogs: the own one, and the inquiry handler.
type DialogHandlers = (Option<Handler<DialogRequest, DialogAnswer>>, Option<Handler<Inquiry, InquiryAnswer>>);

/// All handlers of a session.
#[derive(Clone, Default)]
pub(crate) struct CallbackHandlers {
    pub(crate) permission: Option<Handler<PermissionRequest, PermissionDecision>>,
    pub(crate) question: Option<Handler<Vec<Question>, Answers>>,
    pub(crate) hooks: Vec<Hook>,
    pub(crate) elicitation: Option<Handler<ElicitationRequest, ElicitationAnswer>>,
    pub(crate) dialog: Option<Handler<DialogRequest, DialogAnswer>>,
    /// The kinds that `dialog` answers.
    pub(crate) dialog_kinds: Vec<String>,
    /// Gets what the other handlers leave open.
    pub(crate) inquiry: Option<Handler<Inquiry, InquiryAnswer>>,
    /// The kinds of dialogs that `inquiry` answers.
    pub(crate) inquiry_dialogs: Vec<String>,
}

impl CallbackHandlers {
    /// Whether a handler of its own decides about permissions.
    pub(crate) fn decide(&self) -> bool {
        self.permission.is_some() || self.question.is_some()
    }

    /// Whether the application decides about permissions. `prompt_tool` is the tool that the CLI is told to ask
    /// instead; the inquiry handler does not compete with the tool.
    pub(crate) fn are_asked(&self, prompt_tool: Option<&str>) -> bool {
        self.decide() || self.inquiry.is_some() && prompt_tool.is_none()
    }

    /// The handler that dialogs of this kind have of their own, and the inquiry handler if it answers this kind.
    pub(crate) fn of_dialog(&self, kind: Option<&str>) -> DialogHandlers {
        let names = |kinds: &[String]| kinds.iter().any(|known| Some(known.as_str()) == kind);
        let own = self.dialog.clone().filter(|_| names(&self.dialog_kinds));
        (own, self.inquiry.clone().filter(|_| names(&self.inquiry_dialogs)))
    }

    /// Whether the application answers dialogs of this kind.
    pub(crate) fn declare(&self, dialog_kind: Option<&str>) -> bool {
        !matches!(self.of_dialog(dialog_kind), (None, None))
    }

    /// The kinds of dialogs that the CLI may ask for.
    pub(crate) fn dialog_kinds(&self) -> Vec<&str> {
        let more = self.inquiry_dialogs.iter().filter(|kind| !self.dialog_kinds.contains(kind));
        let more = more.filter(|_| self.inquiry.is_some());
        self.dialog_kinds.iter().chain(more).map(String::as_str).collect()
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
    let handler = Arc::new(DropElsewhere::new(handler));
    Arc::new(move |input, cx| {
        let handler = handler.clone();
        // The closure runs inside the future, so that the future catches its panic.
        Box::pin(async move { handler(input, cx).await.into_reply() })
    })
}

/// [`erase`] for a handler whose input is read first, within the handler's task: reading may run the application's
/// code.
pub(crate) fn erase_reading<I, O, Fut>(
    read: impl Fn(Box<RawValue>) -> Result<I, String> + Send + Sync + 'static,
    handler: impl Fn(I, CallbackContext) -> Fut + Send + Sync + 'static,
) -> Handler<Box<RawValue>, O>
where
    I: Send + 'static,
    Fut: Future<Output: IntoReply<O>> + Send + 'static,
{
    let both = Arc::new((read, DropElsewhere::new(handler)));
    Arc::new(move |raw, cx| {
        let both = both.clone();
        Box::pin(async move {
            let input = (both.0)(raw)?;
            (both.1)(input, cx).await.into_reply()
        })
    })
}
