//! Dialogs: the CLI asks the user something.

use serde_json::{Value, json};

use super::fields::requests;
use super::lazy::LazyValue;

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
