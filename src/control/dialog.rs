//! Questions to the person: elicitations of MCP servers, and dialogs of the CLI.

use serde_json::{Value, json};

/// The answer to an elicitation: an MCP server asked the person for something.
///
/// ```
/// use greenroom::ElicitationAnswer;
///
/// let answer = ElicitationAnswer::Accept(serde_json::json!({ "name": "ada" }));
/// # let _ = answer;
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ElicitationAnswer {
    /// Here it is, in the shape that was asked for.
    Accept(Value),
    /// The person does not want to say.
    Decline,
    /// The person went away.
    Cancel,
}

impl ElicitationAnswer {
    pub(crate) fn to_wire(&self) -> Value {
        match self {
            ElicitationAnswer::Accept(content) => json!({ "action": "accept", "content": content }),
            ElicitationAnswer::Decline => json!({ "action": "decline" }),
            ElicitationAnswer::Cancel => json!({ "action": "cancel" }),
        }
    }
}

/// The answer to a dialog: the CLI asked the person something.
///
/// ```
/// use greenroom::DialogAnswer;
///
/// let answer = DialogAnswer::Completed(serde_json::json!("retry"));
/// # let _ = answer;
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum DialogAnswer {
    /// The person chose this.
    Completed(Value),
    /// The person closed it.
    Cancelled,
}

impl DialogAnswer {
    pub(crate) fn to_wire(&self) -> Value {
        match self {
            DialogAnswer::Completed(result) => json!({ "behavior": "completed", "result": result }),
            DialogAnswer::Cancelled => json!({ "behavior": "cancelled" }),
        }
    }
}
