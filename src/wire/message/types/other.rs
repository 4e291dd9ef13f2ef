//! Messages without a typed view.

use std::fmt;

use serde_json::value::RawValue;

use crate::wire::brief::show;
use crate::wire::message::read::{MessageHead, field_names};

/// A message without a typed view: of an unknown type, or of a known type but an unexpected shape.
///
/// [`Message::field`](crate::Message::field) reads a field.
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
#[derive(Clone)]
#[non_exhaustive]
pub struct OtherMessage {
    pub(crate) head: MessageHead,
    raw: Box<RawValue>,
    problem: Option<String>,
}

crate::wire::message::view::common!(OtherMessage);

impl OtherMessage {
    pub(crate) fn new(head: MessageHead, raw: Box<RawValue>, problem: Option<serde_json::Error>) -> Self {
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

    /// Why a message of a known type has no typed view; `None` for an unknown type.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

/// Writes the names of the fields only: unknown fields may hold secrets.
impl fmt::Debug for OtherMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("OtherMessage");
        show(&mut shown, "type", &self.head.kind);
        show(&mut shown, "subtype", &self.head.subtype);
        show(&mut shown, "problem", &self.problem);
        show(&mut shown, "fields", &field_names(&self.raw));
        self.head.show(&self.raw, &mut shown);
        shown.finish()
    }
}
