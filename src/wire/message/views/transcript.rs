//! Removes retracted messages from a transcript.

use std::collections::HashSet;

use crate::wire::message::Message;

/// Removes messages that a later message replaces or retracts ([`Message::supersedes`]).
///
/// When the model is asked again after an answer broke off, or another model goes on after a refusal, the new message
/// names the messages that should no longer be shown.
///
/// ```
/// use greenroom::{Message, message::remove_superseded};
///
/// let mut messages = vec![
///     Message::parse(r#"{"type": "assistant", "uuid": "u1", "message": {"content": "I th"}}"#)?,
///     Message::parse(r#"{"type": "assistant", "uuid": "u2", "supersedes": ["u1"], "message": {"content": "I think."}}"#)?,
/// ];
/// remove_superseded(&mut messages);
/// assert_eq!(messages.len(), 1);
/// assert_eq!(messages[0].text().as_deref(), Some("I think."));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn remove_superseded(messages: &mut Vec<Message>) {
    let gone: HashSet<String> =
        messages.iter().flat_map(|message| message.supersedes().iter().cloned()).collect();
    if !gone.is_empty() {
        messages.retain(|message| message.uuid().is_none_or(|uuid| !gone.contains(uuid)));
    }
}
