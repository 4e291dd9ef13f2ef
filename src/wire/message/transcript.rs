//! What is shown of a conversation.

use std::collections::HashSet;

use super::Message;

/// Removes from a list of messages those that a later one takes back ([`Message::supersedes`]).
///
/// When the model is asked again after something was already said (an answer that broke off, a model that refused and
/// another that goes on), the new message names those that should no longer be shown. A stream of messages cannot take
/// back what it has delivered; a list, or a chat window, can.
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
