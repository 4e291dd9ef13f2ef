//! Requests of the CLI, as the reader sends them to the actors that serve them.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::actor::request::answer::Answer;
use crate::actor::request::pending::RequestKind;
use crate::wire::envelope::{CallbackRequest, UnservedRequest};
use crate::wire::rpc::Rpc;

/// The body of a request.
pub(crate) enum InboundBody {
    Mcp { server: Arc<str>, message: McpMessage },
    Callback(CallbackRequest),
    Unserved(UnservedRequest),
}

impl InboundBody {
    pub(crate) fn kind(&self) -> RequestKind {
        match self {
            InboundBody::Mcp { .. } => RequestKind::Mcp,
            InboundBody::Callback(CallbackRequest::Permission(_)) => RequestKind::Permission,
            InboundBody::Callback(CallbackRequest::Hook { .. }) => RequestKind::Hook,
            InboundBody::Callback(CallbackRequest::Elicitation(_)) => RequestKind::Elicitation,
            InboundBody::Callback(CallbackRequest::Dialog { .. }) => RequestKind::Dialog,
            InboundBody::Unserved(UnservedRequest::Silent { .. }) => RequestKind::Silent,
            InboundBody::Unserved(UnservedRequest::Unknown { .. } | UnservedRequest::Incomplete { .. }) => {
                RequestKind::Unknown
            }
        }
    }
}

/// A message to a tool server.
pub(crate) enum McpMessage {
    /// A tool call read in one pass: its arguments. The [`RequestIds`](crate::wire::fast::request_ids::RequestIds) hold
    /// the rest. Only for servers with tools of their own.
    Call(Option<Box<RawValue>>),
    /// Any message, parsed as JSON-RPC.
    Rpc(Rpc),
}

/// Messages to one tool server, in order: most often one.
pub(crate) enum McpBatch {
    One(Answer, McpMessage),
    Many(Vec<(Answer, McpMessage)>),
}

impl McpBatch {
    /// Adds a message. `capacity` is for the list that the second message makes.
    pub(crate) fn push(&mut self, answer: Answer, message: McpMessage, capacity: usize) {
        let mut list = match std::mem::replace(self, McpBatch::Many(Vec::new())) {
            McpBatch::One(first, asked) => {
                let mut list = Vec::with_capacity(capacity);
                list.push((first, asked));
                list
            }
            McpBatch::Many(list) => list,
        };
        list.push((answer, message));
        *self = McpBatch::Many(list);
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            McpBatch::One(..) => 1,
            McpBatch::Many(list) => list.len(),
        }
    }
}

impl IntoIterator for McpBatch {
    type Item = (Answer, McpMessage);
    type IntoIter = std::iter::Chain<
        std::option::IntoIter<(Answer, McpMessage)>,
        std::vec::IntoIter<(Answer, McpMessage)>,
    >;

    fn into_iter(self) -> Self::IntoIter {
        let (one, many) = match self {
            McpBatch::One(answer, message) => (Some((answer, message)), Vec::new()),
            McpBatch::Many(list) => (None, list),
        };
        one.into_iter().chain(many)
    }
}
