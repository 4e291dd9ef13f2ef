//! Dialogs: the CLI asks the user something.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use super::fields::RequestFields;

/// The CLI asks the user something (`request_user_dialog`), of a kind that you declared with
/// [`SessionBuilder::on_dialog`](crate::SessionBuilder::on_dialog).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "fields are named as on the wire")]
#[non_exhaustive]
pub struct DialogRequest {
    /// Such as `refusal_fallback_prompt`: the set is open.
    pub dialog_kind: String,
    /// The shape depends on the kind.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub payload: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl DialogRequest {
    /// Reads the payload as a type of yours.
    ///
    /// # Errors
    /// The payload does not fit the type.
    pub fn payload_as<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        T::deserialize(&self.payload)
    }
}

impl<'de> Deserialize<'de> for DialogRequest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut fields = RequestFields::read(from)?;
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
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum DialogAnswer {
    /// The user chose this.
    Completed(Value),
    /// The user closed the dialog: the CLI does its default.
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
