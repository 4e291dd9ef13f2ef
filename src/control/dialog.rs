//! Dialogs: the CLI asks the person something.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use super::fields::Fields;

/// The CLI asks the person something (`request_user_dialog`), of a kind that was declared with
/// [`SessionBuilder::on_dialog`](crate::SessionBuilder::on_dialog).
///
/// ```
/// let request: greenroom::DialogRequest = serde_json::from_value(serde_json::json!({
///     "dialog_kind": "refusal_fallback_prompt", "payload": { "model": "haiku" }
/// }))?;
/// assert_eq!(request.payload["model"], "haiku");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DialogRequest {
    /// Which dialog it is, such as `refusal_fallback_prompt`. An open set.
    pub dialog_kind: String,
    /// What it is about; its shape depends on the kind.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub payload: Value,
    /// The id of the model's tool use, if the dialog belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
    /// Every other field, as it came.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl DialogRequest {
    /// The payload as a type of yours.
    ///
    /// # Errors
    /// If it does not have that shape.
    pub fn payload_as<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        T::deserialize(&self.payload)
    }
}

impl<'de> Deserialize<'de> for DialogRequest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut fields = Fields::read(from)?;
        fields.may::<String>("subtype");
        Ok(Self {
            dialog_kind: fields.need("dialog_kind")?,
            payload: fields.or_default("payload"),
            tool_use_id: fields.may("tool_use_id"),
            extra: fields.rest(),
        })
    }
}

/// The answer to a [`DialogRequest`].
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
    /// The person closed it: the CLI does what it does by default.
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
