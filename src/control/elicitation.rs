//! Elicitations and dialogs: an MCP server, or the CLI itself, asks the user something.

use serde_json::{Value, json};

use super::fields::requests;
use super::lazy::LazyValue;
use crate::wire::words::words;

words! {
    /// The form of an elicitation.
    pub enum ElicitationMode {
        /// A form, described by [`requested_schema`](ElicitationRequest::requested_schema).
        Form = "form",
        /// A page that the user opens: [`url`](ElicitationRequest::url).
        Url = "url",
    }
}

requests! {
    /// The CLI asks the user something (`request_user_dialog`), of a kind that you declared with
    /// [`SessionBuilder::on_dialog`](crate::SessionBuilder::on_dialog).
    request DialogRequest {
        /// Such as `refusal_fallback_prompt`: the set is open.
        need dialog_kind: String,
        /// The shape depends on the kind.
        or_default payload: LazyValue,
        may tool_use_id: String,
    }

    /// An MCP server asks the user for something (`elicitation`). Only servers that the CLI connects to itself can ask:
    /// the CLI offers no elicitation to in-process servers.
    request ElicitationRequest {
        need mcp_server_name: String,
        need message: String,
        /// `None` means a form: see [`mode`](ElicitationRequest::mode).
        may mode: ElicitationMode,
        /// The page to open, with [`ElicitationMode::Url`].
        may url: String,
        /// With [`ElicitationMode::Url`]: a `system` / `elicitation_complete` message with this id says that the page
        /// is done.
        may elicitation_id: String,
        /// JSON schema of the content, with [`ElicitationMode::Form`].
        may requested_schema: LazyValue,
        /// The schema's properties in the server's order, which JSON objects do not keep.
        or_default property_order: Vec<String>,
        /// A heading.
        may title: String,
        /// A short name of the tool or server.
        may display_name: String,
        /// A line below the heading.
        may description: String,
    }
}

impl ElicitationRequest {
    /// The form of the elicitation. Default: [`ElicitationMode::Form`].
    pub fn mode(&self) -> ElicitationMode {
        self.mode.clone().unwrap_or(ElicitationMode::Form)
    }
}

/// The answer to an [`ElicitationRequest`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ElicitationAnswer {
    /// The user's content, in the requested shape: an object, or null for plain consent to open a page.
    Accept(Value),
    /// The user refuses to answer.
    Decline,
    /// The user closed the question.
    Cancel,
    /// Leaves the elicitation to the handler of [`on_inquiry`](crate::SessionBuilder::on_inquiry); without it,
    /// `Decline`.
    Undecided,
}

impl ElicitationAnswer {
    /// The answer on the wire, or why it cannot be sent.
    pub(crate) fn to_wire(&self) -> Result<Value, String> {
        Ok(match self {
            ElicitationAnswer::Accept(content @ Value::Object(_)) => {
                json!({ "action": "accept", "content": content })
            }
            ElicitationAnswer::Accept(Value::Null) => json!({ "action": "accept" }),
            ElicitationAnswer::Accept(_) => {
                return Err("accepted with something that is neither an object nor null".into());
            }
            ElicitationAnswer::Decline | ElicitationAnswer::Undecided => Self::decline(),
            ElicitationAnswer::Cancel => Self::cancel(),
        })
    }

    /// The answer when there is no handler.
    pub(crate) fn decline() -> Value {
        json!({ "action": "decline" })
    }

    /// The answer for a failed handler.
    pub(crate) fn cancel() -> Value {
        json!({ "action": "cancel" })
    }
}

/// The answer to a [`DialogRequest`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum DialogAnswer {
    /// The user chose this.
    Completed(Value),
    /// The user closed the dialog: the CLI does its default.
    Cancelled,
    /// Leaves the dialog to the handler of [`on_inquiry`](crate::SessionBuilder::on_inquiry), if that answers its kind
    /// ([`inquiry_dialogs`](crate::SessionBuilder::inquiry_dialogs)); else `Cancelled`.
    Undecided,
}

impl DialogAnswer {
    pub(crate) fn to_wire(&self) -> Value {
        match self {
            DialogAnswer::Completed(result) => json!({ "behavior": "completed", "result": result }),
            DialogAnswer::Cancelled | DialogAnswer::Undecided => json!({ "behavior": "cancelled" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elicitation_answers_have_the_shape_of_the_wire() {
        let wire = |answer: ElicitationAnswer| answer.to_wire().unwrap();
        assert_eq!(wire(ElicitationAnswer::Accept(Value::Null)), json!({"action": "accept"}));
        assert_eq!(
            wire(ElicitationAnswer::Accept(json!({"a": 1}))),
            json!({"action": "accept", "content": {"a": 1}})
        );
        assert!(ElicitationAnswer::Accept(json!("text")).to_wire().is_err());
    }
}
