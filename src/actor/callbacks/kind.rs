//! The kinds of callbacks, their failures, and the answers for failed handlers.

use std::fmt;

use serde_json::Value;

use crate::control::hook::{HookEvent, OnFailure, blocking_answer};
use crate::control::inquiry::Asked;
use crate::control::{DialogAnswer, ElicitationAnswer, PermissionDecision};

/// The kind of a callback.
#[derive(Clone, Debug)]
pub(super) enum CallbackKind {
    Permission,
    Question,
    Hook(HookEvent, OnFailure),
    Elicitation,
    Dialog,
    /// The inquiry handler, about a request that has no handler of its own.
    Inquiry(Asked),
}

impl CallbackKind {
    pub(super) fn name(&self) -> &'static str {
        match self {
            CallbackKind::Permission => "permission",
            CallbackKind::Question => "question",
            CallbackKind::Hook(..) => "hook",
            CallbackKind::Elicitation => "elicitation",
            CallbackKind::Dialog => "dialog",
            CallbackKind::Inquiry(_) => "inquiry",
        }
    }

    pub(super) fn hook(&self) -> Option<String> {
        match self {
            CallbackKind::Hook(event, _) => Some(event.to_string()),
            _ => None,
        }
    }

    /// The answer for a handler that gave none, with the reason; `Err` for an error answer.
    pub(super) fn instead(&self, why: &str) -> Result<Value, String> {
        match self {
            CallbackKind::Permission | CallbackKind::Question => Ok(PermissionDecision::denied(why)),
            CallbackKind::Hook(event, OnFailure::Block) => {
                blocking_answer(event, why).ok_or_else(|| why.to_owned())
            }
            CallbackKind::Hook(_, OnFailure::Continue) => Err(why.to_owned()),
            CallbackKind::Elicitation => Ok(ElicitationAnswer::cancel()),
            CallbackKind::Dialog => Ok(DialogAnswer::Cancelled.to_wire()),
            CallbackKind::Inquiry(asked) => match asked {
                Asked::Permission | Asked::Questions => CallbackKind::Permission,
                Asked::Elicitation => CallbackKind::Elicitation,
                Asked::Dialog => CallbackKind::Dialog,
            }
            .instead(why),
        }
    }
}

impl fmt::Display for CallbackKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallbackKind::Hook(event, _) => write!(f, "the {event} hook"),
            kind => write!(f, "the {} handler", kind.name()),
        }
    }
}

/// The failure of a handler.
pub(crate) struct HandlerFault {
    /// Whether the handler panicked. If not, it returned an error, or an answer that cannot be sent.
    pub(super) panicked: bool,
    pub(super) message: String,
}

impl HandlerFault {
    pub(super) fn how(&self) -> &'static str {
        if self.panicked { "panicked" } else { "failed" }
    }
}

impl fmt::Display for HandlerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.how(), self.message)
    }
}

/// Logs a failure in the current span, which is that of the request.
pub(super) fn log(kind: &CallbackKind, how: &str, message: &str) {
    tracing::warn!(callback = %kind, message, "a callback {how}");
}
