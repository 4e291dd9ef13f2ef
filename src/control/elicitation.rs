//! Elicitations: an MCP server asks the user something.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use super::fields::RequestFields;
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

/// An MCP server asks the user for something (`elicitation`). Only servers that the CLI connects to itself can ask: the CLI
/// offers no elicitation to in-process servers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "fields are named as on the wire")]
#[non_exhaustive]
pub struct ElicitationRequest {
    pub mcp_server_name: String,
    pub message: String,
    /// `None` means a form: see [`mode`](ElicitationRequest::mode).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ElicitationMode>,
    /// The page to open, with [`ElicitationMode::Url`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// With [`ElicitationMode::Url`]: a `system` / `elicitation_complete` message with this id says that the page is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elicitation_id: Option<String>,
    /// JSON schema of the content, with [`ElicitationMode::Form`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_schema: Option<Value>,
    /// The schema's properties in the server's order, which JSON objects do not keep.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub property_order: Vec<String>,
    /// A heading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A short name of the tool or server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// A line below the heading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl ElicitationRequest {
    /// The form of the elicitation. Default: [`ElicitationMode::Form`].
    pub fn mode(&self) -> ElicitationMode {
        self.mode.clone().unwrap_or(ElicitationMode::Form)
    }
}

impl<'de> Deserialize<'de> for ElicitationRequest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut fields = RequestFields::read(from)?;
        fields.may::<String>("subtype");
        Ok(Self {
            mcp_server_name: fields.need("mcp_server_name")?,
            message: fields.need("message")?,
            mode: fields.may("mode"),
            url: fields.may("url"),
            elicitation_id: fields.may("elicitation_id"),
            requested_schema: fields.may("requested_schema"),
            property_order: fields.or_default("property_order"),
            title: fields.may("title"),
            display_name: fields.may("display_name"),
            description: fields.may("description"),
            extra: fields.rest(),
        })
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
            ElicitationAnswer::Decline => Self::decline(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_elicitation_is_written_as_it_came() {
        let raw = json!({
            "mcp_server_name": "files", "message": "Sign in", "mode": "url", "url": "https://example.org",
            "elicitation_id": "e1", "property_order": ["b", "a"], "title": "T", "display_name": "D",
            "description": "S", "requested_schema": {"type": "object"}, "new": 1,
        });
        let request = ElicitationRequest::deserialize(&raw).unwrap();
        assert_eq!((request.mode(), request.extra.len()), (ElicitationMode::Url, 1));
        assert_eq!(serde_json::to_value(&request).unwrap(), raw);
        assert!(ElicitationRequest::deserialize(json!({"message": "?"})).is_err());
    }

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
