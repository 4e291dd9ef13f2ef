//! Messages without a typed view.

use serde_json::value::RawValue;

use super::read::Head;

/// A message that has no typed view: its type is not known here, or it does not have that type's shape.
///
/// [`Message::field`](crate::Message::field) reads one of its fields.
///
/// ```
/// use greenroom::Message;
///
/// let message = Message::parse(r#"{"mood": "good", "type": "of_next_year", "uuid": "u1"}"#)?;
/// let Message::Other(other) = &message else { unreachable!() };
/// assert_eq!((other.kind(), other.uuid(), other.problem()), ("of_next_year", Some("u1"), None));
/// assert_eq!(message.field("mood"), Some("good".into()));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OtherMessage {
    pub(super) head: Head,
    raw: Box<RawValue>,
    problem: Option<String>,
}

super::common!(OtherMessage);

impl OtherMessage {
    pub(super) fn new(head: Head, raw: Box<RawValue>, problem: Option<serde_json::Error>) -> Self {
        Self { head, raw, problem: problem.map(|problem| problem.to_string()) }
    }

    /// The `type`.
    pub fn kind(&self) -> &str {
        &self.head.kind
    }

    /// The `subtype`, if there is one.
    pub fn subtype(&self) -> Option<&str> {
        self.head.subtype.as_deref()
    }

    /// Why a message of a known type has no typed view; `None` if the type is not known.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}
