//! Messages without a typed view.

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
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OtherMessage {
    problem: Option<String>,
}

impl OtherMessage {
    pub(crate) fn new(problem: Option<serde_json::Error>) -> Self {
        Self { problem: problem.map(|problem| problem.to_string()) }
    }

    /// Why a message of a known type has no typed view; `None` for an unknown type.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}
