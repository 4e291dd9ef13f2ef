//! Elicitations: an MCP server asks the person something.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use super::fields::{Fields, open_enum};

open_enum! {
    /// How an MCP server asks.
    ///
    /// ```
    /// use greenroom::ElicitationMode;
    ///
    /// assert_eq!(ElicitationMode::from("url"), ElicitationMode::Url);
    /// assert_eq!(ElicitationMode::from("video"), ElicitationMode::Other("video".into()));
    /// ```
    ElicitationMode {
        /// With a form: [`requested_schema`](ElicitationRequest::requested_schema) says what goes in.
        Form = "form",
        /// With a page that the person opens: [`url`](ElicitationRequest::url).
        Url = "url",
    }
}

/// An MCP server asks the person for something (`elicitation`).
///
/// The CLI asks for servers that it dials itself: it tells in-process servers that it knows no elicitation.
///
/// ```
/// use greenroom::{ElicitationMode, ElicitationRequest};
///
/// let request: ElicitationRequest = serde_json::from_value(serde_json::json!({
///     "mcp_server_name": "files", "message": "Which folder?",
///     "requested_schema": { "type": "object", "properties": { "folder": { "type": "string" } } },
/// }))?;
/// assert_eq!(request.mode(), ElicitationMode::Form);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ElicitationRequest {
    /// The server that asks.
    pub mcp_server_name: String,
    /// What the person is to read.
    pub message: String,
    /// How it asks, if it says so: see [`mode`](ElicitationRequest::mode).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ElicitationMode>,
    /// The page to open, with [`ElicitationMode::Url`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Names the elicitation with [`ElicitationMode::Url`]: a `system` / `elicitation_complete` message says when the
    /// page is done with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elicitation_id: Option<String>,
    /// The JSON schema of the content, with [`ElicitationMode::Form`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_schema: Option<Value>,
    /// The properties of the schema in the order in which the server listed them, which JSON does not keep.
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
    /// Every other field, as it came.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl ElicitationRequest {
    /// How the server asks: with a form unless it says otherwise.
    pub fn mode(&self) -> ElicitationMode {
        self.mode.clone().unwrap_or(ElicitationMode::Form)
    }
}

impl<'de> Deserialize<'de> for ElicitationRequest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut fields = Fields::read(from)?;
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
    /// Here it is, in the shape that was asked for: an object, or null where nothing was asked for but consent to open
    /// a page.
    Accept(Value),
    /// The person does not want to say.
    Decline,
    /// The person went away.
    Cancel,
}

impl ElicitationAnswer {
    /// The answer on the wire; the text of what is wrong with it otherwise.
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

    /// The answer where there is no handler.
    pub(crate) fn decline() -> Value {
        json!({ "action": "decline" })
    }

    /// The answer for a handler that gave none.
    pub(crate) fn cancel() -> Value {
        json!({ "action": "cancel" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_whole_and_written_as_it_came() {
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
    fn answers_have_the_shape_of_the_protocol() {
        let wire = |answer: ElicitationAnswer| answer.to_wire().unwrap();
        assert_eq!(wire(ElicitationAnswer::Accept(Value::Null)), json!({"action": "accept"}));
        assert_eq!(
            wire(ElicitationAnswer::Accept(json!({"a": 1}))),
            json!({"action": "accept", "content": {"a": 1}})
        );
        assert!(ElicitationAnswer::Accept(json!("text")).to_wire().is_err());
    }
}
